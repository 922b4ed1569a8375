"""`handoff watch`: follow a job until its end, then print its answer."""

from __future__ import annotations

from typing import Annotated

import typer

from handoff_queue.shared.text.times import DurationRange, in_units
from handoff_queue.shared.types.errors import INTERRUPTED
from handoff_queue.shared.types.limits import MAX_SECONDS
from handoff_queue.supervisor.cli.connection import Job, connect_and_find_job
from handoff_queue.supervisor.cli.display.terminal import print_message
from handoff_queue.supervisor.cli.errors import end_like_ctrl_c
from handoff_queue.supervisor.cli.options import AllowPartial, AsJson
from handoff_queue.supervisor.client.journal_follower import RECONNECT_FOR_S


def watch(
    job: Job,
    as_json: AsJson = False,
    reconnect: Annotated[
        float,
        typer.Option(
            metavar="TIME",
            parser=DurationRange(0, MAX_SECONDS),
            show_default=in_units(RECONNECT_FOR_S),
            help="How long to reconnect when Redis is away: 90s, 10m.",
        ),
    ] = RECONNECT_FOR_S,
    allow_partial: AllowPartial = False,
) -> int:
    """Follow a job until it ends, then print its answer.

    The command prints the earlier events first. Ctrl-C does not stop the job.
    """
    from handoff_queue.supervisor.cli.follow_job import follow_to_end

    jobs, job_id = connect_and_find_job(job)
    end_like_ctrl_c()
    try:
        return follow_to_end(
            jobs,
            job_id,
            as_json=as_json,
            allow_partial=allow_partial,
            reconnect_for_s=reconnect,
        )
    except KeyboardInterrupt:
        print_message(f"the job continues: `handoff watch {job_id}` follows it")
        return INTERRUPTED
