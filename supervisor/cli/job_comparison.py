"""The comparison of two ended jobs, side by side: `handoff compare JOB JOB`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.connection import connect_to_broker
from handoff_queue.supervisor.cli.display.answer import format_answer
from handoff_queue.supervisor.cli.display.tables import format_table
from handoff_queue.supervisor.cli.display.terminal import (
    format_money,
    write_as_json,
    write_line,
)
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.client.job_lookup import find_job
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.evaluation.resource_use import get_usage
from handoff_queue.supervisor.lifecycle.forks import list_kept_steps
from handoff_queue.supervisor.lifecycle.reduce import fold

NO_ANSWER = "(no answer)"


@dataclass(frozen=True, slots=True)
class _EndedJob:
    """One of the two jobs."""

    result: JobResult
    kept: Sequence[str]
    """The steps of a fork that have the results of the forked job."""


def compare_jobs(first: str, second: str, *, as_json: bool) -> int:
    """Print two jobs side by side. No model is called.

    Raises:
        UserError: HANDOFF_REDIS_URL is not set, or an argument does not name exactly one job, or a
            job has not ended.
    """
    jobs = connect_to_broker()
    job_ids = [find_job(jobs.store, name) for name in (first, second)]
    ended_jobs: list[_EndedJob] = []
    for job_id in job_ids:
        result = jobs.result(job_id)
        if not result.status.has_ended:
            raise UserError(
                f"{result.job_id} has not ended yet: wait for its end"
                f" (`handoff watch {result.job_id}`)"
            )
        state = fold(job_id, None, jobs.store.journal.read(job_id))
        ended_jobs.append(_EndedJob(result, list_kept_steps(state) if state else ()))
    if as_json:
        first_job, second_job = map(_convert_job, ended_jobs)
        write_as_json({"first": first_job, "second": second_job})
    else:
        write_line(_format_jobs(*ended_jobs))
    return OK


def _convert_job(job: _EndedJob) -> dict[str, Any]:
    """Return the JSON of one of the jobs, with the keys of docs/how-to/evaluation.md."""
    result = job.result
    steps: dict[str, Any] = {}
    for step_id, handoff in _find_latest_handoffs(result).items():
        steps[step_id] = None
        if handoff is not None:
            steps[step_id] = {"handoff_id": handoff["handoff_id"], "usage": handoff["usage"]}
    return {
        "job_id": result.job_id,
        "forked_from": result.forked_from,
        "kept": list(job.kept),
        "status": result.status.value,
        "model": result.model,
        "usage": result.usage,
        "wall_s": result.wall_s,
        "steps": steps,
        "answer": result.answer,
    }


def _format_jobs(first: _EndedJob, second: _EndedJob) -> str:
    rows = [["", first.result.job_id, second.result.job_id]]
    first_cells, second_cells = _build_job_cells(first.result), _build_job_cells(second.result)
    for label, first_cell in first_cells.items():
        rows.append([label, first_cell, second_cells[label]])
    first_steps = _find_latest_handoffs(first.result)
    second_steps = _find_latest_handoffs(second.result)
    for step_id in dict.fromkeys((*first_steps, *second_steps)):
        first_cell = _format_step_cell(first, first_steps, step_id)
        second_cell = _format_step_cell(second, second_steps, step_id)
        rows.append([step_id, first_cell, second_cell])
    parts = [format_table(rows)]
    for result in (first.result, second.result):
        parts.append(f"## Answer of {result.job_id}\n\n{format_answer(result) or NO_ANSWER}")
    return "\n\n".join(parts)


def _find_latest_handoffs(result: JobResult) -> dict[str, dict[str, Any] | None]:
    """Return the latest handoff of each step of the plan. None: the step has no handoff."""
    steps: dict[str, dict[str, Any] | None] = {}
    if result.plan is None:
        return steps
    for step in result.plan["steps"]:
        steps[step["id"]] = None
    for handoff in result.handoffs:
        if handoff["step_id"] in steps:
            steps[handoff["step_id"]] = handoff
    return steps


def _format_step_cell(job: _EndedJob, steps: dict[str, dict[str, Any] | None], step_id: str) -> str:
    """Return the tokens and the cost of a step's latest handoff in words."""
    if step_id not in steps:
        return "-"
    handoff = steps[step_id]
    if handoff is None:
        if step_id in job.kept:
            return f"kept from {job.result.forked_from}"
        return "did not run"
    usage = handoff["usage"]
    tokens = usage["input_tokens"] + usage["output_tokens"]
    return f"{format_count(tokens, 'token')}, {format_money(usage['cost_usd'])}"


def _build_job_cells(result: JobResult) -> dict[str, str]:
    """Return the cells of one job in the table, by the label of the row."""
    usage = get_usage(result)
    return {
        "status": result.status.value,
        "model": result.model or "-",
        "turns": f"{usage.turns:,}",
        "tokens": f"{usage.input_tokens:,} + {usage.output_tokens:,}",
        "cost": format_money(usage.cost_usd),
        "wall time": f"{result.wall_s:.1f} s",
        "sources": f"{len(result.citations):,}",
    }
