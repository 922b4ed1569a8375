"""The CLI of the Claude Agent SDK asks for the calls of a handoff, and the worker's own loop
keeps its promises. These tests run the real CLI against a scripted server.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.settings.agent_sdk_cli import find_cli_path
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.testing import MessagesServer, Reply, in_turn, text_reply, tool_call_reply
from handoff_queue.workers.agent_sdk import cli_session
from handoff_queue.workers.agent_sdk.model import MAX_ADDED_BYTES, MAX_RESTARTS, AgentSdkModel
from tests.doubles.agent_runs import Run, answer_reply, run_with_replies
from tests.doubles.handoffs import a_tool
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.served_model import model_at

pytestmark = pytest.mark.slow

LOOK_CALLS = tool_call_reply(("look", {"q": "rust"}), ("no_such_tool", {}))
UNUSABLE = text_reply("Done.")


@contextmanager
def run_of(
    *replies: Reply, checkpoints: MemoryCheckpoints | None = None
) -> Iterator[tuple[Run, MessagesServer, list[str]]]:
    """Yield a run with the CLI, its server, and a list of the calls of its tool."""
    looked: list[str] = []

    def look(arguments: dict[str, Any]) -> str:
        looked.append(arguments["q"])
        return f"found {arguments['q']}"

    run = run_with_replies(
        tools=(a_tool("look", look),), checkpoints=checkpoints or MemoryCheckpoints()
    )
    with MessagesServer(in_turn(*replies)) as server, model_at(server.url) as model:
        run.model = external = AgentSdkModel(model)
        with closing(external):
            yield run, server, looked


def cli_processes() -> list[int]:
    """Return the process ids of running CLIs that this process has started."""
    process_ids: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if command.startswith(str(find_cli_path()).encode()) and int(parent) == os.getpid():
            process_ids.append(int(folder.name))
    return process_ids


def test_a_handoff_with_tool_calls_and_a_repair_has_the_same_requests_and_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HANDOFF_REDIS_URL", "redis://:sk-canary@127.0.0.1")
    environments: list[bytes] = []
    own = run_with_replies(
        LOOK_CALLS, UNUSABLE, answer_reply(), tools=(a_tool("look", lambda _: ""),)
    )
    own.go()
    with run_of(LOOK_CALLS, UNUSABLE, answer_reply()) as (run, server, looked):
        script = server.script

        def spying(request: dict[str, Any]) -> Reply:
            assert [path.name for path in tmp_path.glob("*/*")] == ["home"], "no file of the prompt"
            for pid in cli_processes():
                folder = Path("/proc") / str(pid)
                environments.append((folder / "environ").read_bytes())
                environments.append((folder / "cmdline").read_bytes())
            return script(request)

        server.script = spying
        result = run.go()

    assert (result.status, result.turns, looked) == (ResultStatus.OK, 3, ["rust"])
    assert len(result.claims) == 1
    for request, call in zip(server.requests, own.calls, strict=True):
        assert [tool["name"] for tool in request["tools"]] == ["look"]
        assert call.system.text.strip() in request["system"][0]["text"]
        added = len(request["system"][0]["text"].encode()) - len(call.system.text.encode())
        assert 0 < added < MAX_ADDED_BYTES
    results = server.requests[1]["messages"][2]["content"]
    assert results[0]["content"] == "found rust"
    assert "there is no tool 'no_such_tool'" in results[1]["content"]
    assert environments
    assert not list(tmp_path.iterdir()), "the folder of the CLI is removed"
    assert not any(b"sk-canary" in text for text in environments)


def test_a_handoff_continues_without_paying_for_its_earlier_turns() -> None:
    with run_of(LOOK_CALLS, answer_reply()) as (first, _, _looked):
        first.go()
    *earlier, _answer = first.checkpoints.load_earlier_checkpoints()
    stored = MemoryCheckpoints()
    stored.checkpoint(*earlier)

    with run_of(answer_reply(), checkpoints=stored) as (run, server, looked):
        result = run.go()

    assert (result.status, result.turns) == (ResultStatus.OK, 2)
    assert (len(server.requests), looked) == (1, [])
    assert server.requests[0]["messages"][2]["content"][0]["content"] == "found rust"


def test_the_cli_calls_the_tools_of_each_reply_and_gets_the_recorded_results() -> None:
    with run_of(LOOK_CALLS, answer_reply()) as (run, _, looked):
        run.go()
        assert isinstance(run.model, AgentSdkModel)
        assert run.model._session is not None
        request = run.model._session.next_request(0)

    assert request is not None
    *_, called, tool_results = [
        message for message in request.body["messages"] if message["role"] != "system"
    ]
    names = [block["name"] for block in called["content"] if block["type"] == "tool_use"]
    assert names == ["mcp__handoff__look", "mcp__handoff__no_such_tool"]
    results = [block["content"] for block in tool_results["content"]]
    assert [{"type": "text", "text": "found rust"}] in results
    assert looked == ["rust"], "the worker has run the call once, before the CLI"


def test_a_cli_that_is_killed_is_started_again_without_a_second_payment() -> None:
    with run_of(LOOK_CALLS, answer_reply()) as (run, server, looked):
        script = server.script

        def killing(request: dict[str, Any]) -> Reply:
            if len(server.requests) == 1:
                for pid in cli_processes():
                    os.kill(pid, signal.SIGKILL)
            return script(request)

        server.script = killing
        result = run.go()

    assert (result.status, looked) == (ResultStatus.OK, ["rust"])
    assert (len(server.requests), result.turns) == (2, 2), "the start again takes no turn"
    assert not cli_processes()


def test_a_cli_that_dies_each_time_is_started_again_a_few_times_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    broken = tmp_path / "claude"
    broken.write_text(f"#!/bin/sh\necho start >> {starts}\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(cli_session, "find_cli_path", lambda: broken)

    with run_of() as (run, server, _):
        result = run.go()

    assert result.status is ResultStatus.FAILED
    assert len(starts.read_text().splitlines()) == MAX_RESTARTS + result.turns
    assert not server.requests
