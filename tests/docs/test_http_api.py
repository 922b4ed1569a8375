"""The commands of docs/how-to/http-api.md work with curl on the server of `handoff serve`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.events import JobEnded, JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.serve import DEFAULT_PORT
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.serve.application import make_application
from handoff_queue.supervisor.serve.openapi_document import PROBLEMS
from tests.docs.pages import blocks, sections, text_of
from tests.docs.samples import commands
from tests.supervisor.serve.serving import serving

PAGE = text_of("how-to/http-api")
JOB = "j-0123456789ab"
ADDRESS = f"http://127.0.0.1:{DEFAULT_PORT}"


@pytest.fixture
def jobs(redis_url: str) -> client.Client:
    return client.connect(redis_url, Settings(offline=True))


def curls() -> list[str]:
    """Return the curl commands of the page, in order."""
    typed = [command for block in blocks(PAGE, "console") for command in commands(block)]
    return [command for command in typed if command.startswith("curl ")]


@pytest.mark.slow
def test_the_commands_of_the_page_work_in_their_order(jobs: client.Client, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("Order A-1042 was shipped.")
    submit, form, follow, result, cancel = curls()
    with serving(make_application(AsyncClient(jobs), jobs.settings)) as url:

        def output_of(command: str, job_id: str = JOB) -> str:
            line = command.replace(ADDRESS, url).replace(JOB, job_id)
            done = subprocess.run(
                ["bash", "-c", f"{line} --silent --show-error --fail-with-body"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=True,
            )
            return done.stdout

        job_id = json.loads(output_of(submit))["job_id"]
        in_form = json.loads(output_of(form))["job_id"]
        cancelled = json.loads(output_of(cancel, in_form))
        end = JobEnded(status=JobStatus.OK)
        jobs.store.journal.append(JobId(job_id), end, {"status": "ok"})
        events = output_of(follow, job_id).splitlines()
        job = json.loads(output_of(result, job_id))

    assert cancelled["cancelled"]
    assert events[:2] == ["id: 1", "event: job_submitted"]
    assert (job["job_id"], job["status"]) == (job_id, "ok")


def test_the_page_lists_every_status_of_an_error() -> None:
    rows = [
        line.split("|")[1].strip() for line in sections(PAGE)["Errors"].splitlines() if "|" in line
    ]

    assert set(rows[2:]) == {str(status) for status in PROBLEMS}
