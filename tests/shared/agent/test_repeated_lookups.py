"""A look-up that was made before costs one line, and ends the search after some repetitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.agent.loop import LAST_TURN, MAX_CALLS_AFTER_LAST_TURN
from handoff_queue.shared.agent.next_turn import MAX_REPEATED_CALLS
from handoff_queue.shared.agent.tool import ANY_HOST, ToolFailed
from handoff_queue.shared.agent.tool_calls import SAME_CALL, SAME_RESULT
from handoff_queue.shared.agent.tool_policy import ToolPolicy
from handoff_queue.shared.types.handoff import ResultStatus, StopReason
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.testing import Reply, tool_call_reply
from tests.doubles.agent_runs import Run, answer_reply, run_with_replies
from tests.doubles.handoffs import a_handoff, a_tool
from tests.doubles.memory_checkpoints import MemoryCheckpoints

LONG = "A long passage about queues. " * 20


class Index:
    """A tool that counts its calls."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    def __call__(self, arguments: dict[str, Any]) -> str:
        query = arguments["q"]
        self.queries.append(query)
        if query == "broken":
            raise ToolFailed("no such document")
        if query.startswith("all"):
            return LONG
        return f"found {query}"


def look_up(*queries: str) -> Reply:
    return tool_call_reply(*(("look_up", {"q": query}) for query in queries))


def run_of(index: Index, *replies: Reply, is_lookup: bool = True, sends: bool = False) -> Run:
    tool = replace(a_tool("look_up", index), is_lookup=is_lookup)
    if sends:
        tool = replace(tool, sends=("example.org",), reads="public")
    return run_with_replies(*replies, answer_reply(), tools=(tool,))


def results_in(run: Run, call: int) -> list[str]:
    """Return the results of tools in the last message of a call of the model."""
    blocks = run.calls[call].messages[-1]["content"]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def test_a_repeated_look_up_is_answered_in_one_line() -> None:
    index = Index()
    run = run_of(index, look_up("a"), look_up("a", "b"))
    assert run.go().status is ResultStatus.OK
    assert index.queries == ["a", "b"]
    assert results_in(run, 2) == [SAME_CALL, "found b"]


def test_the_same_look_up_twice_in_one_reply_runs_once() -> None:
    index = Index()
    run = run_of(index, look_up("a", "a"))
    run.go()
    assert index.queries == ["a"]
    assert sorted(results_in(run, 1)) == ["found a", SAME_CALL]


def test_a_resumed_handoff_knows_the_look_ups_of_its_earlier_claim() -> None:
    index = Index()
    first = run_of(index, look_up("a"), look_up("b"))
    first.go()
    resumed = run_of(index, look_up("a"))
    resumed.checkpoints = MemoryCheckpoints(saved=first.checkpoints.saved[:2])
    resumed.go()
    assert index.queries == ["a", "b"]
    assert results_in(resumed, 1) == [SAME_CALL]


def test_a_result_that_stands_above_is_not_shown_again() -> None:
    run = run_of(Index(), look_up("all"), look_up("all of it"))
    run.go()
    assert results_in(run, 2) == [SAME_RESULT]


def test_equal_results_of_a_tool_that_is_not_a_look_up_are_shown_each_time() -> None:
    run = run_of(Index(), look_up("all"), look_up("all of it"), is_lookup=False)
    run.go()
    assert results_in(run, 2) == [LONG]


def test_repeated_look_ups_end_the_search() -> None:
    index = Index()
    repeats = [look_up("a")] * (MAX_REPEATED_CALLS + 1)
    run = run_of(index, *repeats)
    assert run.go().status is ResultStatus.OK
    assert run.calls[-1].messages[-1]["content"][-1]["text"] == LAST_TURN
    assert not run.calls[-1].may_call_tools
    assert index.queries == ["a"]


def test_a_server_that_allows_calls_after_the_last_turn_ends_the_handoff_soon() -> None:
    run = run_of(Index(), *[look_up("a")] * 20)
    run.handoff = a_handoff(limits=HandoffLimits(max_turns=20))

    result = run.go()

    assert result.stop_reason is StopReason.MAX_TURNS
    assert len(run.calls) == 1 + MAX_REPEATED_CALLS + MAX_CALLS_AFTER_LAST_TURN


def test_a_tool_that_is_not_a_look_up_runs_each_time() -> None:
    index = Index()
    run_of(index, look_up("a"), look_up("a"), is_lookup=False).go()
    assert index.queries == ["a", "a"]


@pytest.mark.parametrize(("sends", "times"), [(False, 1), (True, 2)], ids=["documents", "the web"])
def test_a_failed_look_up_is_tried_again_only_outside_of_this_system(
    sends: bool, times: int
) -> None:
    index = Index()
    run_of(index, look_up("broken"), look_up("broken"), sends=sends).go()
    assert index.queries == ["broken"] * times


def test_a_call_with_the_same_bad_arguments_is_answered_in_one_line_and_ends_the_search() -> None:
    bad = tool_call_reply(("act", {"q": 1}))
    run = run_with_replies(*[bad] * 9, tools=(a_tool("act", Index()),))
    run.go()
    assert results_in(run, 2) == [SAME_CALL]
    assert len(run.calls) < 9
    assert not run.calls[-1].may_call_tools


def test_a_repeated_call_of_an_unknown_tool_is_answered_in_one_line() -> None:
    run = run_with_replies(*[tool_call_reply(("nothing", {}))] * 2, answer_reply())
    run.go()
    assert results_in(run, 2) == [SAME_CALL]


@pytest.mark.parametrize("is_lookup", [False, True])
def test_a_call_that_the_policy_refuses_again_and_again_ends_in_the_last_turn(
    is_lookup: bool,
) -> None:
    index = Index()
    tool = replace(a_tool("look_up", index), is_lookup=is_lookup, url_argument="q")
    if is_lookup:
        tool = replace(tool, sends=(ANY_HOST,))
    repeats = [look_up("https://b.example")] * (MAX_REPEATED_CALLS + 1)
    run = run_with_replies(
        *repeats,
        answer_reply(),
        tools=(tool,),
        tool_policy=ToolPolicy(hosts=("a.example",), asks=frozenset({"look_up"})),
    )

    assert run.go().status is ResultStatus.OK
    assert index.queries == []
    assert "b.example is not in the list of hosts" in results_in(run, 1)[0]
    assert results_in(run, 2) == [SAME_CALL]
    assert [call.may_call_tools for call in run.calls][-2:] == [True, False]


def test_refused_calls_with_other_arguments_are_not_repetitions() -> None:
    tool = replace(a_tool("look_up", Index()), url_argument="q")
    run = run_with_replies(
        look_up("https://b.example"),
        look_up("https://b.example/other"),
        answer_reply(),
        tools=(tool,),
        tool_policy=ToolPolicy(hosts=("a.example",), asks=frozenset({"look_up"})),
    )
    run.go()
    assert "not in the list of hosts" in results_in(run, 2)[0]


def test_a_page_that_fails_again_and_again_ends_the_search() -> None:
    repeats = [look_up("broken")] * (MAX_REPEATED_CALLS + 1)
    run = run_of(Index(), *repeats, sends=True)
    run.go()
    assert results_in(run, 2) == [SAME_RESULT]
    assert not run.calls[-1].may_call_tools
    assert len(run.calls) == MAX_REPEATED_CALLS + 2


def test_other_look_ups_that_fail_with_the_same_error_are_not_repetitions() -> None:
    def fail(_arguments: dict[str, Any]) -> str:
        raise ToolFailed("no connection")

    tool = replace(a_tool("look_up", fail), is_lookup=True, sends=("example.org",), reads="public")
    run = run_with_replies(look_up("a", "b"), answer_reply(), tools=(tool,))
    run.go()
    assert results_in(run, 1) == ["no connection"] * 2
