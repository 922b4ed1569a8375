"""`handoff doctor` reports the state of a live fleet to another shell: real processes, real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.supervisor.client.client import Request
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
from tests.running_system import EVERYONE, RunningSystem, over, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

KEY = "sk-test-canary-0123456789"
WORDS = "credit balance is too low"


def answers(request: Json) -> Reply:
    properties = answer_properties(request)
    if "steps" in properties:
        return json_reply(PLAN)
    return json_reply(PASS if "verdict" in properties else ANSWER)


def specialists_fail(request: Json) -> Reply:
    """Answer the supervisor, and refuse the workers."""
    if "claims" in answer_properties(request):
        return error_reply(400, f"{WORDS}, key {KEY}", "invalid_request_error")
    return answers(request)


@dataclass(frozen=True)
class Shell:
    """A shell with the fleet's HANDOFF_REDIS_URL and no key."""

    handoff: Handoff
    system: RunningSystem
    server: MessagesServer

    def doctor(self) -> tuple[int, list[dict[str, Any]]]:
        done = self.handoff.run("doctor", "--json", HANDOFF_REDIS_URL=self.system.redis_url)
        assert "canary" not in done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    def levels(self, about: str) -> set[str]:
        """Return the levels of the lines about something."""
        return {one["level"] for one in self.doctor()[1] if about in one["about"]}

    def run_job(self) -> None:
        jobs = self.system.jobs()
        jobs.result(jobs.submit(Request("Say how it is.")), wait_s=60)
        jobs.store.connection.close()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder: Path = tmp_path_factory.mktemp("doctor")
    with (
        MessagesServer(answers) as server,
        running_system(folder, settings=over(server, ANTHROPIC_API_KEY=KEY)) as system,
    ):
        yield Shell(Handoff(folder), system, server)


def test_doctor_fails_while_workers_model_calls_fail(
    shell: Shell,
) -> None:
    shell.server.script = specialists_fail
    shell.run_job()

    def failure() -> dict[str, Any] | None:
        lines = [one for one in shell.doctor()[1] if one["about"].startswith("model claude")]
        return lines[0] if lines else None

    line = wait_until(failure, timeout_s=60, what="the failure in a line of doctor")
    assert line is not None
    assert line["level"] == "fail"
    assert WORDS in line["found"]
    assert "of worker " in line["found"]
    assert shell.doctor()[0] == 1

    shell.server.script = answers
    shell.run_job()
    wait_until(lambda: failure() is None, timeout_s=60, what="a doctor without the failure")
    assert shell.doctor()[0] == 0


def test_doctor_lists_the_fleets_processes_and_marks_lines_about_this_shell(shell: Shell) -> None:
    _, lines = shell.doctor()
    by_kind = {one["about"].partition(" ")[0]: one for one in lines}

    for kind in ("worker", "supervisor"):
        assert by_kind[kind]["level"] == "ok"
        assert "8 slots" in by_kind[kind]["found"]
        assert "anthropic (claude" in by_kind[kind]["found"]
        assert shell.server.url in by_kind[kind]["found"]
    (own,) = [one for one in lines if one["about"] == "this shell: model"]
    assert (own["level"], own["fix"]) == ("ok", "")


def test_a_worker_of_another_model_is_a_warning(shell: Shell) -> None:
    other = {"HANDOFF_SPECIALIST_MODEL": "another-model"}
    name, app, queues = EVERYONE
    spec = replace(
        shell.system.celery("other", "-A", app, "worker", "-n", f"other-{name}@%h", "-Q", queues),
        environment={**shell.system.environment, **other},
    )
    shell.system.processes.start(spec)

    wait_until(lambda: shell.levels("models") == {"warn"}, timeout_s=60, what="a warning")
    assert shell.doctor()[0] == 0


def test_without_a_live_process_doctor_says_so_first(tmp_path: Path, redis_url: str) -> None:
    done = Handoff(tmp_path).run("doctor", HANDOFF_REDIS_URL=redis_url)

    assert done.returncode == 1
    first = done.stdout.splitlines()[0]
    assert first.startswith("fail  fleet: no worker and no supervisor is alive")
    assert "this shell: model" in done.stdout
