"""This project with real processes, as its users run it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.tokens.jobs import list_jobs
from benchmarks.tokens.server import CountingServer
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing.running_system import running_system
from handoff_queue.workers.specialists import BUILT_IN

PATIENCE_S = 120.0


def format_specialist(name: str, instructions: str, *fields: str) -> str:
    """Return the file of a specialist.

    Args:
        fields: further lines of the front matter.
    """
    front_matter = "\n".join([f"name: {name}", f"description: The {name}.", *fields])
    return f"---\n{front_matter}\n---\n{instructions}\n"


def run(
    server: CountingServer,
    model: str,
    mode: Mode,
    runner: str | None = None,
    own_files: Mapping[str, str] | None = None,
    *,
    has_review: bool = True,
) -> list[str]:
    """Run all jobs in order, and return their answers with the sources.

    Args:
        runner: `runner` of all specialists; None: our own loop.
        own_files: files of specialists by name. The jobs use only these.
        has_review: False: a team has no review.
    """
    files = dict(own_files or {})
    if runner is not None:
        for path in BUILT_IN.glob("*.md"):
            files[path.stem] = path.read_text().replace("---\n", f"---\nrunner: {runner}\n", 1)
    settings = {"HANDOFF_SUPERVISOR_MODEL": model, "HANDOFF_SPECIALIST_MODEL": model}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / f"{name}.md").write_text(text)
        own_folder = Path(folder) if files else ()  # the system refuses an empty folder
        with running_system(server, settings=settings, specialists=own_folder) as system:
            answers: list[str] = []
            for job in list_jobs():
                request = Request(
                    job.request,
                    documents=job.documents,
                    mode=mode,
                    specialists=tuple(own_files or ()),
                    is_reviewed=has_review,
                )
                answers.append(_choose_answer(system.jobs, request))
            return answers


def _choose_answer(jobs: Client, request: Request) -> str:
    job_id = jobs.submit(request)
    result = jobs.result(job_id, PATIENCE_S)
    sources = [f'{cited["source"]}: "{cited["quote"]}"' for cited in result.citations]
    return "\n".join([str(result.answer), *sources])
