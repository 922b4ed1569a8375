"""Tool calls run in parallel in a bounded number of threads. Each call ends in a result."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from handoff_queue.shared.agent import tool_calls
from handoff_queue.shared.agent.tool import Tool, ToolFailed
from handoff_queue.shared.agent.tool_calls import (
    MAX_ABANDONED_THREADS,
    MAX_AT_ONCE,
    MAX_CALLS,
    TOO_MANY_CALLS,
    ToolThreads,
)
from handoff_queue.shared.types.checkpoints import ToolObserved
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.testing import tool_call_reply
from tests.doubles.agent_runs import answer_reply, run_with_replies
from tests.doubles.handoffs import a_tool, a_tool_context
from tests.waiting import wait_until


class UncaughtByExceptException(BaseException):
    """Exception that no `except Exception` catches."""


class FailureWithoutText(ToolFailed):
    def __str__(self) -> str:
        raise SystemExit("no words")


def fails_forever(_arguments: dict[str, Any]) -> str:
    return fails_forever(_arguments)


@pytest.fixture
def hanging() -> Iterator[Callable[[dict[str, Any]], str]]:
    """Yield a tool's function that returns only when the test ends."""
    is_over = threading.Event()

    def hang(_arguments: dict[str, Any]) -> str:
        is_over.wait()
        return "late"

    yield hang
    is_over.set()


def with_timeout(tool: Tool, timeout_s: float) -> Tool:
    return Tool(tool.name, tool.description, tool.input_schema, tool.run, timeout_s=timeout_s)


def results(tool: Tool, count: int = 1) -> list[ToolObserved]:
    blocks = [
        {"type": "tool_use", "id": f"t{n}", "name": tool.name, "input": {"q": "x"}}
        for n in range(count)
    ]
    threads = ToolThreads({tool.name: tool}, a_tool_context())
    return list(threads.run_calls(blocks, lambda: None))


@pytest.mark.parametrize(
    "error",
    [
        SystemExit("x"),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        UncaughtByExceptException("x"),
        MemoryError(),
        FailureWithoutText(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_of_a_tool_is_a_failed_call_of_one_line(error: BaseException) -> None:
    def breaks(_arguments: dict[str, Any]) -> str:
        raise error

    run = run_with_replies(
        tool_call_reply(("breaks", {"q": "x"})), answer_reply(), tools=(a_tool("breaks", breaks),)
    )
    result = run.go()

    assert result.status is ResultStatus.OK
    (block,) = run.calls[-1].messages[-1]["content"]
    kind = "SystemExit" if isinstance(error, FailureWithoutText) else type(error).__name__
    assert block["content"] == f"breaks failed with {kind}; try other arguments, or do without"
    assert block["is_error"] is True


def away_once(calls: list[str]) -> Callable[[dict[str, Any]], str]:
    """Return a tool's function for which Redis is away at its first call."""

    def run(_arguments: dict[str, Any]) -> str:
        calls.append("run")
        if len(calls) == 1:
            raise StoreUnavailable("Redis is away")
        return "found"

    return run


def test_a_tool_runs_again_when_redis_was_away() -> None:
    calls: list[str] = []
    (result,) = results(a_tool("reads", away_once(calls)))

    assert (result.text, result.is_error, len(calls)) == ("found", False, 2)


def test_a_tool_that_is_not_safe_to_repeat_does_not_run_again_when_redis_was_away() -> None:
    calls: list[str] = []
    (result,) = results(a_tool("pays", away_once(calls), repeatable=False))

    assert (result.text, result.is_error, len(calls)) == (
        "pays failed: StoreUnavailable",
        True,
        1,
    )


def test_endless_recursion_is_a_failed_call() -> None:
    (result,) = results(a_tool("deep", fails_forever))

    assert result.is_error
    assert "RecursionError" in result.text


@pytest.mark.parametrize("effect", [{"acts": True}, {"writes": True}, {"repeatable": False}])
def test_calls_that_change_something_run_one_after_the_other_in_their_order(
    effect: dict[str, Any],
) -> None:
    steps: list[str] = []
    ticked = threading.Event()

    def changes(arguments: dict[str, Any]) -> str:
        assert ticked.wait(30)  # by then, all calls that may run side by side have started
        steps.append(f"end {arguments['q']}")
        return "done"

    tool = replace(a_tool("changes", changes), **effect)
    blocks = [
        {"type": "tool_use", "id": str(number), "name": tool.name, "input": {"q": str(number)}}
        for number in range(3)
    ]
    threads = ToolThreads({tool.name: tool}, a_tool_context())
    list(threads.run_calls(blocks, ticked.set, lambda call: steps.append(f"start {call['id']}")))
    assert steps == ["start 0", "end 0", "start 1", "end 1", "start 2", "end 2"]


def test_a_call_that_changes_nothing_does_not_wait_for_a_call_that_does() -> None:
    looked = threading.Event()

    def change(_arguments: dict[str, Any]) -> str:
        assert looked.wait(30)
        return "changed"

    def look(_arguments: dict[str, Any]) -> str:
        looked.set()
        return "seen"

    tools = {"change": a_tool("change", change, repeatable=False), "look": a_tool("look", look)}
    blocks = [
        {"type": "tool_use", "id": str(number), "name": name, "input": {"q": "x"}}
        for number, name in enumerate(["change", "change", "look"])
    ]
    results = list(ToolThreads(tools, a_tool_context()).run_calls(blocks, lambda: None))
    assert sorted(result.text for result in results) == ["changed", "changed", "seen"]


def test_the_number_of_concurrent_tool_calls_is_bounded() -> None:
    at_work, most, lock, full = 0, 0, threading.Lock(), threading.Barrier(MAX_AT_ONCE)

    def counts(_arguments: dict[str, Any]) -> str:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        full.wait(30)
        with lock:
            at_work -= 1
        return "done"

    assert len(results(a_tool("counts", counts), 3 * MAX_AT_ONCE)) == 3 * MAX_AT_ONCE
    assert most == MAX_AT_ONCE


@pytest.mark.slow
def test_of_thousands_of_calls_in_a_reply_the_first_run_and_each_has_a_result() -> None:
    ran = list[str]()

    def look(arguments: dict[str, Any]) -> str:
        ran.append(arguments["q"])
        return "found"

    before = threading.active_count()
    reply = tool_call_reply(*(("look", {"q": str(n)}) for n in range(5_000)))
    run = run_with_replies(reply, answer_reply(), tools=(a_tool("look", look),))
    run.go()

    contents = [block["content"] for block in run.calls[-1].messages[-1]["content"]]
    assert sorted(ran, key=int) == [str(n) for n in range(MAX_CALLS)]
    assert contents == ["found"] * MAX_CALLS + [TOO_MANY_CALLS] * (5_000 - MAX_CALLS)
    wait_until(lambda: threading.active_count() <= before, expected="the end of the tools' threads")


def count_functions_called(calls: int) -> int:
    """Return how many functions the loop calls for a reply with this number of tool calls."""
    reply = tool_call_reply(*(("look", {"q": str(n)}) for n in range(calls)))
    run = run_with_replies(reply, answer_reply(), tools=(a_tool("look", lambda _: "found"),))
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        run.go()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.slow
def test_the_work_for_a_call_does_not_grow_with_the_number_of_calls_in_its_reply() -> None:
    few, many = 4 * MAX_CALLS, 12 * MAX_CALLS
    count_functions_called(few)  # imports modules

    assert count_functions_called(many) <= 4 * count_functions_called(few)


def test_a_tool_that_does_not_return_in_its_time_is_a_failed_call(
    hanging: Callable[[dict[str, Any]], str],
) -> None:
    run = run_with_replies(
        tool_call_reply(("hangs", {"q": "x"})),
        answer_reply(),
        tools=(with_timeout(a_tool("hangs", hanging), 0.01),),
    )

    assert run.go().status is ResultStatus.OK
    (block,) = run.calls[-1].messages[-1]["content"]
    assert block["is_error"] is True
    assert block["content"].startswith("hangs did not return within 0.01 s")


def test_a_tool_with_many_hanging_calls_is_not_called_again(
    hanging: Callable[[dict[str, Any]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_calls, "_ABANDONED_THREADS", tool_calls._AbandonedThreads())
    tool = with_timeout(a_tool("hangs", hanging), 0.01)

    assert all("did not return" in result.text for result in results(tool, MAX_ABANDONED_THREADS))
    (result,) = results(tool)
    assert "hangs was not run" in result.text


def test_a_call_of_an_ended_handoff_counts_as_abandoned(
    hanging: Callable[[dict[str, Any]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind = tool_calls._AbandonedThreads()
    monkeypatch.setattr(tool_calls, "_ABANDONED_THREADS", left_behind)
    tool = a_tool("hangs", hanging)

    def over() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        list(
            ToolThreads({"hangs": tool}, a_tool_context()).run_calls(
                [{"id": "t", "name": "hangs", "input": {"q": "x"}}], over
            )
        )

    assert left_behind.count("hangs") == 1
