"""Two ended jobs side by side: their figures, their steps and their answers."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.connection import client_of_broker
from handoff_queue.supervisor.cli.display.answer import answer_text
from handoff_queue.supervisor.cli.display.tables import table
from handoff_queue.supervisor.cli.display.terminal import (
    count_text,
    money,
    write_as_json,
    write_line,
)
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.client.job_lookup import find_job
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.evaluation.resource_use import usage_of

NO_ANSWER = "(no answer)"


def compare_jobs(first: str, second: str, *, as_json: bool) -> int:
    """Print two jobs side by side. No model is called.

    Raises:
        UserError: HANDOFF_REDIS_URL is not set, or an argument does not name exactly one job, or a
            job has not ended.
    """
    jobs = client_of_broker()
    job_ids = [find_job(jobs.store, name) for name in (first, second)]
    results: list[JobResult] = []
    for job_id in job_ids:
        result = jobs.result(job_id)
        if not result.status.ended:
            raise UserError(
                f"{result.job_id} has not ended yet: wait for its end"
                f" (`handoff watch {result.job_id}`)"
            )
        results.append(result)
    if as_json:
        write_as_json({"first": _as_json(results[0]), "second": _as_json(results[1])})
    else:
        write_line(_as_text(*results))
    return OK


def _as_json(result: JobResult) -> dict[str, Any]:
    """Return the JSON of one of the jobs, with the keys of docs/how-to/evaluation.md."""
    steps: dict[str, Any] = {}
    for step_id, handoff in _latest(result).items():
        steps[step_id] = None
        if handoff is not None:
            steps[step_id] = {"handoff_id": handoff["handoff_id"], "usage": handoff["usage"]}
    return {
        "job_id": result.job_id,
        "forked_from": result.forked_from,
        "status": result.status.value,
        "model": result.model,
        "usage": result.usage,
        "wall_s": result.wall_s,
        "steps": steps,
        "answer": result.answer,
    }


def _as_text(first: JobResult, second: JobResult) -> str:
    rows = [["", first.job_id, second.job_id]]
    first_cells, second_cells = _cells(first), _cells(second)
    for label, first_cell in first_cells.items():
        rows.append([label, first_cell, second_cells[label]])
    first_steps, second_steps = _latest(first), _latest(second)
    for step_id in dict.fromkeys((*first_steps, *second_steps)):
        first_cell = _step_cell(first, first_steps, step_id)
        second_cell = _step_cell(second, second_steps, step_id)
        rows.append([step_id, first_cell, second_cell])
    parts = [table(rows)]
    for result in (first, second):
        parts.append(f"## Answer of {result.job_id}\n\n{answer_text(result) or NO_ANSWER}")
    return "\n\n".join(parts)


def _latest(result: JobResult) -> dict[str, dict[str, Any] | None]:
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


def _step_cell(result: JobResult, steps: dict[str, dict[str, Any] | None], step_id: str) -> str:
    """Return the tokens and the cost of a step's latest handoff in words."""
    if step_id not in steps:
        return "-"
    handoff = steps[step_id]
    if handoff is None:
        if result.forked_from is not None:
            return f"kept from {result.forked_from}"
        return "did not run"
    usage = handoff["usage"]
    tokens = usage["input_tokens"] + usage["output_tokens"]
    return f"{count_text(tokens, 'token')}, {money(usage['cost_usd'])}"


def _cells(result: JobResult) -> dict[str, str]:
    """Return the cells of one job in the table, by the label of the row."""
    usage = usage_of(result)
    return {
        "status": result.status.value,
        "model": result.model or "-",
        "turns": f"{usage.turns:,}",
        "tokens": f"{usage.input_tokens:,} + {usage.output_tokens:,}",
        "cost": money(usage.cost_usd),
        "wall time": f"{result.wall_s:.1f} s",
        "sources": f"{len(result.citations):,}",
    }
