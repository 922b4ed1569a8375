"""`handoff list`: list the newest jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from handoff_queue.shared.store.jobs import EVERY_JOB
from handoff_queue.supervisor.cli.connection import client_of_broker
from handoff_queue.supervisor.cli.display.job_list import header, lines_of_job
from handoff_queue.supervisor.cli.display.terminal import (
    print_message,
    stdout,
    write_as_json,
    write_line,
)
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.job_filters import (
    OlderThan,
    Statuses,
    Tenant,
    filter_of,
    statuses_of,
)
from handoff_queue.supervisor.cli.options import AsJson
from handoff_queue.supervisor.client.json_forms import standing_as_json


def list_jobs(
    statuses: Statuses = [],  # noqa: B006
    tenant: Tenant = None,
    older_than: OlderThan = None,
    as_json: AsJson = False,
    count: Annotated[
        int, typer.Option("-n", metavar="N", min=1, max=10_000, help="Number of jobs.")
    ] = 20,
) -> int:
    """List the newest jobs.

    handoff list --status queued,running --older-than 2h
    """
    wanted = statuses_of(statuses)
    jobs = client_of_broker()
    where = filter_of(wanted, tenant, older_than, jobs.store.connection.now())
    standings = jobs.newest(count, where)
    if as_json:
        write_as_json([standing_as_json(standing) for standing in standings])
        return OK
    if not standings:
        problem = "no job matches"
        if where == EVERY_JOB:
            problem = _NO_JOBS
        print_message(problem)
        return OK
    columns = stdout().width
    write_line(header(columns))
    for standing in standings:
        for line in lines_of_job(standing, columns):
            write_line(line)
    return OK


_NO_JOBS = 'there are no jobs (`handoff submit "..."` makes one)'
