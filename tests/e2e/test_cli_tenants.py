"""`handoff export --tenant` and `handoff delete --tenant` with real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handoff_queue.supervisor.cli.errors import BAD_INPUT, FAILED
from handoff_queue.supervisor.client.request import Request
from tests.e2e.commands import Handoff, error_line
from tests.running_system import SUPERVISOR, running_system

pytestmark = pytest.mark.slow


def test_the_jobs_of_a_tenant_are_exported_and_its_open_jobs_are_cancelled_and_deleted(
    tmp_path: Path,
) -> None:
    handoff = Handoff(tmp_path)
    with running_system(tmp_path, [SUPERVISOR]) as system:
        url, jobs = system.url_of("console"), system.jobs()
        open_job = jobs.submit(Request("Compare things.", tenant="acme"))
        other = jobs.submit(Request("Compare things.", tenant="globex"))

        exported = handoff.run(
            "export", "--tenant", "acme", "--output", "acme.jsonl", HANDOFF_REDIS_URL=url
        )
        unanswered = handoff.run("delete", "--tenant", "acme", HANDOFF_REDIS_URL=url)
        deleted = handoff.run("delete", "--tenant", "acme", "--yes", HANDOFF_REDIS_URL=url)

        written = (handoff.folder / "acme.jsonl").read_text()
        lines = [json.loads(line) for line in written.splitlines()]
        assert exported.returncode == 0, exported.stderr
        assert [line["type"] for line in lines] == ["tenant", "job", "end"]
        assert lines[1]["export"]["job"]["job_id"] == open_job
        assert "there is no terminal: use --yes" in error_line(unanswered, BAD_INPUT)
        assert deleted.returncode == 0, deleted.stderr
        assert deleted.stdout.startswith("tenant acme: deleted 1 job, 0 schedules")
        assert [job.job_id for job in jobs.newest()] == [other]


def test_a_command_needs_a_job_or_a_tenant(tmp_path: Path, redis_url: str) -> None:
    handoff = Handoff(tmp_path)

    for command, problem in (
        (["export"], "a JOB is missing: name a job, or a tenant with --tenant"),
        (["delete", "j-0123456789ab", "--tenant", "acme"], "a JOB and --tenant exclude each other"),
    ):
        line = error_line(handoff.run(*command, HANDOFF_REDIS_URL=redis_url), BAD_INPUT)
        assert problem in line


def test_a_deletion_of_an_unknown_tenant_says_that_there_was_nothing(
    tmp_path: Path, redis_url: str
) -> None:
    deleted = Handoff(tmp_path).run(
        "delete", "--tenant", "acmee", "--yes", HANDOFF_REDIS_URL=redis_url
    )

    assert "there was nothing of tenant acmee: check the name" in deleted.stderr


def test_a_deletion_without_a_supervisor_names_the_remedy(tmp_path: Path, redis_url: str) -> None:
    handoff = Handoff(tmp_path)
    handoff.run("submit", "Compare.", "--tenant", "acme", HANDOFF_REDIS_URL=redis_url)

    deleted = handoff.run(
        "delete", "--tenant", "acme", "--yes", "--wait", "0", HANDOFF_REDIS_URL=redis_url
    )

    assert deleted.returncode == FAILED
    assert "check that a supervisor runs" in deleted.stderr
