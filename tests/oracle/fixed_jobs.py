"""A store of fixed jobs, made by one supervisor and two workers with one slot each.

The jobs run one after the other. With the offline model, the answers
are the same. `tests.oracle.normalized` replaces ids, times and process ids, which differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client import client
from tests.e2e.commands import DOCUMENTS, ROOT, Handoff
from tests.e2e.test_cli_up import printed_url
from tests.waiting import wait_until

NOTES = ROOT / "examples" / "disagreeing-notes"
QUESTION = "What is HNSW?"
UNREACHABLE_SCHEMA = {"type": "object", "properties": {"n": {"const": 7}}, "required": ["n"]}


@dataclass(frozen=True)
class FixedJobs:
    """A system with ended and waiting jobs. `ids` maps the name of each job to its id."""

    handoff: Handoff
    url: str
    ids: dict[str, str]

    def run(self, *arguments: str) -> str:
        """Return the exit code, stdout and stderr of a command, as one text."""
        completed = self.handoff.run(*arguments, HANDOFF_REDIS_URL=self.url, COLUMNS="100")
        return (
            f"exit code {completed.returncode}\n--- stdout\n{completed.stdout}---"
            f" stderr\n{completed.stderr}"
        )


@contextmanager
def fixed_jobs(folder: Path) -> Iterator[FixedJobs]:
    handoff = Handoff(folder)
    schema = folder / "schema.json"
    schema.write_text(json.dumps(UNREACHABLE_SCHEMA))
    single = (QUESTION, "--docs", str(DOCUMENTS), "--mode", "single")
    submissions: dict[str, tuple[str, ...]] = {
        "team": ("Compare Qdrant and Milvus", "--docs", str(DOCUMENTS), "--mode", "team"),
        "single": single,
        "brief": (QUESTION, "--docs", str(DOCUMENTS), "--workflow", "brief"),
        "adaptive": (QUESTION, "--docs", str(DOCUMENTS), "--mode", "adaptive"),
        "digest": ("Summarise", "--docs", str(NOTES), "--workflow", "digest"),
        "failed": (QUESTION, "--docs", str(DOCUMENTS), "--max-turns", "1", "--mode", "team"),
        "retried": (QUESTION, "--docs", str(DOCUMENTS), "--max-turns", "1", "--mode", "team"),
        "partial": (*single, "--max-turns-per-handoff", "1"),
        "schema": (QUESTION, "--docs", str(DOCUMENTS), "--answer-schema", str(schema)),
        "cancelled": (QUESTION, "--docs", str(DOCUMENTS), "--approve", "plan", "--mode", "team"),
        "waiting": (QUESTION, "--docs", str(DOCUMENTS), "--approve", "plan", "--mode", "team"),
    }
    up = ("up", "--no-serve", "--no-keys", "--concurrency", "1")
    # The results of tools that run side by side have no fixed order.
    with handoff.started(*up, HANDOFF_KEEP_TURNS="false"):
        jobs = FixedJobs(handoff, printed_url(handoff), {})
        for name, arguments in submissions.items():
            jobs.ids[name] = _submit(jobs, arguments)
            _wait_until_settled(jobs, name)
            if name == "cancelled":
                jobs.run("cancel", jobs.ids[name])
        jobs.run("retry", jobs.ids["retried"], "--max-turns", "200")
        _wait_until_settled(jobs, "retried")
        yield jobs


def _submit(jobs: FixedJobs, arguments: tuple[str, ...]) -> str:
    completed = jobs.handoff.run("submit", *arguments, HANDOFF_REDIS_URL=jobs.url)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.strip()


def _wait_until_settled(jobs: FixedJobs, name: str) -> None:
    """Wait until the job has ended, or waits for a person."""
    connected = client.connect(jobs.url, Settings(offline=True))
    job_id = JobId(jobs.ids[name])

    def has_settled() -> bool:
        return connected.info(job_id).status not in (JobStatus.QUEUED, JobStatus.RUNNING)

    wait_until(has_settled, expected=f"the job {name}")
    connected.store.connection.close()
