"""The page docs/how-to/messages.md: its figures are those of the code, and its requests work."""

from __future__ import annotations

import json
import subprocess

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.user_messages import MAX_MESSAGES
from handoff_queue.supervisor.cli.serve import DEFAULT_PORT
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.user_messages import MAX_MESSAGE_CHARS
from handoff_queue.supervisor.serve.application import make_application
from tests.docs.pages import blocks, sections, text_of
from tests.docs.samples import commands
from tests.doubles.jobs import a_job
from tests.supervisor.serve.serving import serving

PAGE = text_of("how-to/messages")
ADDRESS = f"http://127.0.0.1:{DEFAULT_PORT}"
JOB = "j-k5tq2wbz7x3mhd4n"


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    limits = sections(PAGE)["Limits"]

    assert f"1 to {MAX_MESSAGE_CHARS:,} characters" in limits
    assert f"at most {MAX_MESSAGES} messages" in limits


@pytest.mark.slow
def test_the_request_of_the_page_sends_a_message(redis_url: str) -> None:
    jobs = client.connect(redis_url, Settings(offline=True))
    job_id = a_job(jobs.store)
    typed = [command for block in blocks(PAGE, "console") for command in commands(block)]
    (request,) = [command for command in typed if command.startswith("curl ")]
    with serving(make_application(AsyncClient(jobs), jobs.settings)) as url:
        line = request.replace(ADDRESS, url).replace(JOB, job_id)
        done = subprocess.run(
            ["bash", "-c", f"{line} --silent --show-error --fail-with-body"],
            capture_output=True,
            text=True,
            check=True,
        )

    (message,) = jobs.result(job_id).messages
    assert message["message_id"] == json.loads(done.stdout)["message_id"]
    assert message["text"] == "Use metric units."


def test_the_program_of_the_page_sends_a_message(
    redis_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", redis_url)
    (program,) = blocks(PAGE, "python")

    exec(compile(program, "messages.md", "exec"), {})

    jobs = client.connect(redis_url, Settings(offline=True))
    (job_id,) = [info.job_id for info in jobs.newest()]
    (message,) = jobs.result(job_id).messages
    assert capsys.readouterr().out.startswith(message["message_id"])
