"""A store of fixed jobs, made by real processes: one supervisor and one worker, one slot each.

One slot makes the order of the work the same in every run. The offline model makes the answers the
same. What still differs (ids, times, process ids) is removed by `tests.oracle.normalized`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.commands import DOCUMENTS, ROOT, Handoff
from tests.e2e.test_cli_up import url_in
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
        done = self.handoff.run(*arguments, HANDOFF_REDIS_URL=self.url, COLUMNS="100")
        return f"exit code {done.returncode}\n--- stdout\n{done.stdout}--- stderr\n{done.stderr}"


@contextmanager
def fixed_jobs(folder: Path) -> Iterator[FixedJobs]:
    handoff = Handoff(folder)
    schema = folder / "schema.json"
    schema.write_text(json.dumps(UNREACHABLE_SCHEMA))
    submissions: dict[str, tuple[str, ...]] = {
        "team": ("Compare Qdrant and Milvus", "--docs", str(DOCUMENTS), "--mode", "team"),
        "single": (QUESTION, "--docs", str(DOCUMENTS), "--mode", "single"),
        "brief": (QUESTION, "--docs", str(DOCUMENTS), "--workflow", "brief"),
        "adaptive": (QUESTION, "--docs", str(DOCUMENTS), "--mode", "adaptive"),
        "digest": ("Summarise", "--docs", str(NOTES), "--workflow", "digest"),
        "failed": (QUESTION, "--docs", str(DOCUMENTS), "--max-job-turns", "1", "--mode", "team"),
        "retried": (QUESTION, "--docs", str(DOCUMENTS), "--max-job-turns", "1", "--mode", "team"),
        "partial": (QUESTION, "--docs", str(DOCUMENTS), "--max-turns", "1", "--mode", "single"),
        "schema": (QUESTION, "--docs", str(DOCUMENTS), "--answer-schema", str(schema)),
        "cancelled": (QUESTION, "--docs", str(DOCUMENTS), "--approve", "plan", "--mode", "team"),
        "waiting": (QUESTION, "--docs", str(DOCUMENTS), "--approve", "plan", "--mode", "team"),
    }
    with handoff.started("up", "--concurrency", "1"):
        jobs = FixedJobs(handoff, url_in(handoff), {})
        for name, arguments in submissions.items():
            jobs.ids[name] = _submitted(jobs, arguments)
            wait_until(lambda name=name: _stands(jobs, name), what=f"the job {name}")  # type: ignore[misc]
            if name == "cancelled":
                jobs.run("cancel", jobs.ids[name])
        jobs.run("retry", jobs.ids["retried"], "--max-job-turns", "200")
        wait_until(lambda: _stands(jobs, "retried"), what="the retried job")
        yield jobs


def _submitted(jobs: FixedJobs, arguments: tuple[str, ...]) -> str:
    done = jobs.handoff.run("submit", *arguments, HANDOFF_REDIS_URL=jobs.url)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _stands(jobs: FixedJobs, name: str) -> bool:
    """Whether nothing of the job runs: it has ended, or it waits for a person."""
    done = jobs.handoff.run("show", jobs.ids[name], "--full", "--json", HANDOFF_REDIS_URL=jobs.url)
    status = json.loads(done.stdout)["status"]
    return status not in ("queued", "planning", "running", "reviewing", "answering")
