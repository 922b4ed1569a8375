"""This project with real processes, as its users run it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.tokens.jobs import Job, all_jobs
from benchmarks.tokens.server import CountingServer
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing.running_system import running_system
from handoff_queue.workers.specialists import BUILT_IN

PATIENCE_S = 120.0


def run(server: CountingServer, model: str, mode: Mode, runner: str | None = None) -> list[str]:
    """Run all jobs in order, and return their answers.

    Args:
        runner: `runner` of all specialists; None: our own loop.
    """
    settings = {"HANDOFF_SUPERVISOR_MODEL": model, "HANDOFF_SPECIALIST_MODEL": model}
    with tempfile.TemporaryDirectory() as folder:
        if runner is not None:
            for path in BUILT_IN.glob("*.md"):
                text = path.read_text().replace("---\n", f"---\nrunner: {runner}\n", 1)
                (Path(folder) / path.name).write_text(text)
        with running_system(server, settings=settings, specialists=Path(folder)) as system:
            return [_answer(system.jobs, job, mode) for job in all_jobs()]


def _answer(jobs: Client, job: Job, mode: Mode) -> str:
    job_id = jobs.submit(Request(job.request, documents=job.documents, mode=mode))
    result = jobs.result(job_id, PATIENCE_S)
    return str(result.answer)
