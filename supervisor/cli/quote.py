"""`handoff quote`: plan a job and estimate its cost before it runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.cost_quote import Quote
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, OnTimeout
from handoff_queue.shared.types.usage import to_microusd, to_usd
from handoff_queue.supervisor.cli.display.job_status import format_quote
from handoff_queue.supervisor.cli.display.terminal import (
    format_money,
    print_message,
    write_line,
)
from handoff_queue.supervisor.cli.errors import FAILED, OK
from handoff_queue.supervisor.cli.options import AsJson, RequestText
from handoff_queue.supervisor.cli.request_options import JobOptions, with_job_options
from handoff_queue.supervisor.client.cost_quotes import (
    QUOTE_VALID_S,
    build_quote_json,
    exceeds,
    explain_missing_plan,
    get_most_usd,
    wait_for_plan,
)

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client
    from handoff_queue.supervisor.lifecycle.state import JobState


@with_job_options
def quote(job: JobOptions, request: RequestText = None, as_json: AsJson = False) -> int:
    """Plan a job and estimate its cost before it runs.

      handoff quote "Compare these contracts" --docs contracts --max-usd 0.50

    The job then waits. `handoff approve JOB` runs it with this plan. A job that may cost
    more than --max-usd is cancelled at once.
    """
    from handoff_queue.shared.settings.settings import load_settings
    from handoff_queue.supervisor.cli.connection import connect_to_broker, require_processes
    from handoff_queue.supervisor.cli.request_options import build_request, read_request_text

    chosen_options = job.build_request_options()
    request_options = replace(
        chosen_options,
        request=read_request_text(request, load_settings()),
        approve=tuple(dict.fromkeys((ApprovalOf.PLAN.value, *chosen_options.approve))),
        approve_timeout_s=chosen_options.approve_timeout_s or QUOTE_VALID_S,
        on_timeout=chosen_options.on_timeout or OnTimeout.STOP,
    )
    jobs = connect_to_broker()
    quoted_request = replace(build_request(request_options, jobs), is_quoted=True)
    require_processes(jobs, request_options.model)
    job_id = jobs.submit(quoted_request)
    return _print_quote(
        jobs, job_id, wait_for_plan(jobs, job_id), request_options.max_usd, as_json=as_json
    )


def _print_quote(
    jobs: Client, job_id: JobId, state: JobState, max_usd: float | None, *, as_json: bool
) -> int:
    """Print the quote of a planned job, and return the exit code. Cancel the job if its quote
    exceeds `max_usd`.
    """
    quoted = state.quote or Quote()
    if state.ended or state.plan is None:
        print_message(f"{job_id} {state.status.value}: {explain_missing_plan(state)}")
        return FAILED
    paid = to_usd(state.usage.cost_microusd)
    if paid is None:
        plan_cost = "the cost of its plan is unknown"
    else:
        plan_cost = f"its plan has cost {format_money(paid)}"
    most_usd = get_most_usd(quoted)
    is_refused = exceeds(quoted, to_microusd(max_usd))
    if is_refused:
        jobs.cancel(job_id)
    teams = (jobs.result(job_id).plan or {}).get("child_jobs")
    if as_json:
        write_line(json.dumps(build_quote_json(state, teams, is_refused=is_refused)))
    else:
        write_line(f"{format_count(len(state.steps), 'step')}: {format_quote(quoted)}")
        if teams:
            write_line(teams)
    if is_refused:
        print_message(
            f"{job_id} may cost {format_money(most_usd)}, more than --max-usd {max_usd:g}: it is"
            f" cancelled; {plan_cost}"
        )
        return FAILED
    print_message(
        f"{job_id} waits: `handoff approve {job_id}` runs it, `handoff cancel {job_id}` cancels it;"
        f" {plan_cost}"
    )
    return OK
