"""`handoff doctor` reports the state of a running fleet in another shell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    answer_properties,
    error_reply,
    json_reply,
)
from tests.doubles.one_step_job import ANSWER, PASS, PLAN
from tests.e2e.commands import Handoff
from tests.running_system import ALL_SPECIALISTS, RunningSystem, model_environment, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

KEY = "sk-test-canary-0123456789"
REFUSAL = "credit balance is too low"


def answers(request: Json) -> Reply:
    properties = answer_properties(request)
    if "steps" in properties:
        return json_reply(PLAN)
    return json_reply(PASS if "verdict" in properties else ANSWER)


def fail_specialists(request: Json) -> Reply:
    """Answer the supervisor, and refuse the workers."""
    if not answer_properties(request):
        return error_reply(400, f"{REFUSAL}, key {KEY}", "invalid_request_error")
    return answers(request)


@dataclass(frozen=True)
class Shell:
    """A shell with the HANDOFF_REDIS_URL of a running fleet, and without an API key."""

    handoff: Handoff
    system: RunningSystem
    server: MessagesServer

    def doctor(self) -> tuple[int, list[dict[str, Any]]]:
        completed = self.handoff.run("doctor", "--json", HANDOFF_REDIS_URL=self.system.redis_url)
        assert "canary" not in completed.stdout + completed.stderr
        return completed.returncode, json.loads(completed.stdout)

    def levels(self, about: str) -> set[str]:
        """Return the levels of the findings whose subject contains `about`."""
        return {finding["level"] for finding in self.doctor()[1] if about in finding["about"]}

    def run_job(self) -> None:
        jobs = self.system.jobs()
        jobs.result(jobs.submit(Request("Say how it is.")), wait_s=60)
        jobs.store.connection.close()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder: Path = tmp_path_factory.mktemp("doctor")
    with (
        MessagesServer(answers) as server,
        running_system(folder, settings=model_environment(server, ANTHROPIC_API_KEY=KEY)) as system,
    ):
        yield Shell(Handoff(folder), system, server)


def test_doctor_fails_while_workers_model_calls_fail(
    shell: Shell,
) -> None:
    shell.server.script = fail_specialists
    shell.run_job()

    def failure() -> dict[str, Any] | None:
        lines = [
            finding for finding in shell.doctor()[1] if finding["about"].startswith("model claude")
        ]
        return lines[0] if lines else None

    line = wait_until(failure, timeout_s=60, expected="the failure in a line of doctor")
    assert line is not None
    assert line["level"] == "fail"
    assert REFUSAL in line["report"]
    assert "of worker " in line["report"]
    assert shell.doctor()[0] == 1

    shell.server.script = answers
    shell.run_job()
    wait_until(lambda: failure() is None, timeout_s=60, expected="a doctor without the failure")
    assert shell.doctor()[0] == 0


def test_doctor_lists_the_fleets_processes_and_marks_lines_about_this_shell(shell: Shell) -> None:
    _, lines = shell.doctor()
    by_kind = {line["about"].partition(" ")[0]: line for line in lines}

    for kind in ("worker", "supervisor"):
        assert by_kind[kind]["level"] == "ok"
        assert "8 slots" in by_kind[kind]["report"]
        assert "anthropic (claude" in by_kind[kind]["report"]
        assert shell.server.url in by_kind[kind]["report"]
    (shell_line,) = [line for line in lines if line["about"] == "this shell: model"]
    assert (shell_line["level"], shell_line["fix"]) == ("ok", "")


def test_a_worker_of_another_model_is_a_warning(shell: Shell) -> None:
    other = {"HANDOFF_SPECIALIST_MODEL": "another-model"}
    name, app, queues = ALL_SPECIALISTS
    spec = shell.system.celery_worker(f"other-{name}", app, queues, variables=other)
    shell.system.processes.start(spec)

    wait_until(lambda: shell.levels("models") == {"warn"}, timeout_s=60, expected="a warning")
    assert shell.doctor()[0] == 0


def test_the_first_line_of_doctor_reports_a_fleet_without_processes(
    tmp_path: Path, redis_url: str
) -> None:
    completed = Handoff(tmp_path).run("doctor", HANDOFF_REDIS_URL=redis_url)

    assert completed.returncode == 1
    first = completed.stdout.splitlines()[0]
    assert first.startswith("fail  fleet: no worker and no supervisor is alive")
    assert "this shell: model" in completed.stdout
