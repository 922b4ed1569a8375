"""A variable `HANDOFF_...` with a typing error is named in one line, and the command runs."""

from __future__ import annotations

import json

import pytest

from handoff_queue.shared.settings.ports import find_free_port
from tests.e2e.commands import Handoff

pytestmark = pytest.mark.slow

LINE = (
    "unknown environment variables are ignored: HANDOFF_MAX_TOKEN (did you mean"
    " HANDOFF_DAY_TOKENS?)"
)


def test_a_command_names_an_unknown_variable_once_and_runs(handoff: Handoff) -> None:
    completed = handoff.run("specialists", "--json", HANDOFF_MAX_TOKEN="canary")

    assert completed.returncode == 0
    assert json.loads(completed.stdout)
    assert completed.stderr == f"handoff: {LINE}\n"


def test_a_command_without_an_unknown_variable_says_nothing(handoff: Handoff) -> None:
    assert handoff.run("specialists", "--json", HANDOFF_MODE="single").stderr == ""


@pytest.mark.parametrize("command", ["supervisor", "worker", "serve"])
def test_a_process_logs_an_unknown_variable_in_one_warning(
    handoff: Handoff, redis_url: str, command: str
) -> None:
    arguments, ready = {
        "supervisor": ([], " ready."),
        "worker": (["researcher"], " ready."),
        "serve": (["--port", str(find_free_port())], "/v1/reference"),
    }[command]

    with handoff.started(
        command, *arguments, HANDOFF_REDIS_URL=redis_url, HANDOFF_MAX_TOKEN="canary"
    ):
        handoff.wait_for_text(ready)

    lines = [line for line in handoff.read("err").splitlines() if "HANDOFF_MAX_TOKEN" in line]
    assert len(lines) == 1
    warning = json.loads(lines[0])
    assert (warning["event"], warning["level"]) == (LINE, "warning")
