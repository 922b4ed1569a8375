"""The program of docs/how-to/mcp-server.md reads an answer, and its tables are complete."""

from __future__ import annotations

import re
import threading

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.events import JobEnded, JobStatus
from handoff_queue.supervisor.cli.serve import DEFAULT_PORT
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.serve.application import make_application
from handoff_queue.supervisor.serve.mcp.tools import TOOLS
from tests.docs.pages import blocks, text_of
from tests.supervisor.serve.serving import serving
from tests.waiting import wait_until

PAGE = text_of("how-to/mcp-server")


def test_the_program_of_the_page_submits_a_job_and_prints_its_result(
    redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = client.connect(redis_url, Settings(offline=True))
    (program,) = blocks(PAGE, "python")
    with serving(make_application(AsyncClient(jobs), jobs.settings)) as url:
        adapted = program.replace(f"http://127.0.0.1:{DEFAULT_PORT}", url)
        assert adapted != program
        code = compile(adapted, "docs/how-to/mcp-server.md", "exec")
        thread = threading.Thread(target=exec, args=(code, {"__name__": "sample"}))
        thread.start()
        (job,) = wait_until(jobs.newest, expected="the job")
        jobs.store.journal.append(
            job.job_id, JobEnded(status=JobStatus.CANCELLED), {"status": "cancelled"}
        )
        thread.join()

    assert capsys.readouterr().out.startswith(f"{job.job_id}: cancelled")


def test_the_page_names_every_tool_and_its_role() -> None:
    named = {
        name: role
        for row in re.findall(r"^\| (`.+`) \| `(\w+)` \| ", PAGE, re.MULTILINE)
        for name, role in [(name, row[1]) for name in re.findall(r"`(\w+)`", row[0])]
    }

    assert named == {name: tool.role for name, tool in TOOLS.items()}
