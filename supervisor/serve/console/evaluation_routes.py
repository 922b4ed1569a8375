"""The page of the evaluations: the results of `handoff eval` over time."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.evaluation.history import compare_runs
from handoff_queue.supervisor.serve.console.pages import render
from handoff_queue.supervisor.serve.console.session import ReadsFleet

MAX_RUNS = 200
"""Most runs of the page, the newest first."""

router = APIRouter(include_in_schema=False)


@router.get("/evaluations")
async def evaluations(request: Request, visit: ReadsFleet) -> Response:
    """Show the stored evaluations by their set."""
    runs = await run_in_threadpool(visit.access.store.evaluations.list_newest, MAX_RUNS)
    return render(
        request,
        "evaluations.html",
        visit,
        sets=compare_runs(runs),
        most=MAX_RUNS,
        count=len(runs),
        usd=to_usd,
    )
