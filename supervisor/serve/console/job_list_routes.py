"""The table of jobs."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from handoff_queue.supervisor.serve.console.pages import render
from handoff_queue.supervisor.serve.console.session import Reads

router = APIRouter(include_in_schema=False)


@router.get("/")
async def jobs(request: Request, visit: Reads) -> Response:
    """Show the jobs."""
    return render(request, "jobs.html", visit)
