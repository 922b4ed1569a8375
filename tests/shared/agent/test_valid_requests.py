"""The Messages API accepts the agent's next request after any reply of a model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoff_queue.shared.agent.loop import LAST_TURN
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.testing import MessagesServer, Reply, in_turn, tool_call_reply
from tests.doubles.agent_runs import Run, answer_reply
from tests.doubles.handoffs import a_handoff, a_tool
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.served_model import model_at

Json = dict[str, Any]
THINKING: Json = {"type": "thinking", "thinking": "Let me think."}
TEXT: Json = {"type": "text", "text": "I look it up."}
SEARCH: Json = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
HITS: Json = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
LOOK = a_tool("look", lambda arguments: f"found {arguments.get('q')}")


def call(id_: object, name: object = "look") -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": {"q": "x"}}


def run(
    *replies: Reply, tools: bool = True, max_turns: int = 8
) -> tuple[HandoffResult, list[Json]]:
    """Return the result and the requests. Raise `BrokenRules` if the API would refuse a request."""
    handoff = a_handoff(limits=HandoffLimits(max_turns=max_turns))
    with MessagesServer(in_turn(*replies)) as server, model_at(server.url) as model:
        agent = Run(lambda _: answer_reply(), handoff, (LOOK,) if tools else (), model=model)
        return agent.go(), server.requests


def test_results_come_first_in_the_order_of_their_calls_and_text_comes_last() -> None:
    first = Reply(blocks=(THINKING, TEXT, call("a"), call("b")), stop_reason="tool_use")
    result, requests = run(first, answer_reply(), max_turns=2)

    assert result.status is ResultStatus.OK
    blocks = requests[1]["messages"][-1]["content"]
    assert [block.get("tool_use_id") for block in blocks] == ["a", "b", None]
    assert blocks[-1]["text"] == LAST_TURN


def test_no_message_follows_a_paused_turn() -> None:
    paused = Reply(blocks=(TEXT, SEARCH), stop_reason="pause_turn")
    result, requests = run(paused, answer_reply(), max_turns=2)

    assert result.status is ResultStatus.OK
    last = requests[1]["messages"][-1]
    assert last["role"] == "assistant"
    assert last["content"][-1]["type"] == "server_tool_use"


def test_only_results_follow_a_call_next_to_an_unfinished_search() -> None:
    first = Reply(blocks=(SEARCH, call("a")), stop_reason="tool_use")
    reply = Reply(blocks=(HITS, *answer_reply().blocks))
    result, requests = run(first, reply, max_turns=2)

    assert result.status is ResultStatus.OK
    assert [block["type"] for block in requests[1]["messages"][-1]["content"]] == ["tool_result"]


def test_a_search_that_was_cut_off_is_not_sent_back() -> None:
    cut = Reply(blocks=(THINKING, TEXT, SEARCH), stop_reason="max_tokens")
    result, requests = run(cut, answer_reply())

    assert result.status is ResultStatus.OK
    sent = [block["type"] for block in requests[1]["messages"][1]["content"]]
    assert sent == ["thinking", "text"]


@pytest.mark.parametrize(
    "name", ["n" * 300, "größe", "look up", "", None, 7, "functions.look", "\ud83d", "!?"]
)
def test_a_call_of_any_name_is_answered(name: object) -> None:
    first = Reply(blocks=(call("a", name),), stop_reason="tool_use")
    assert run(first, answer_reply())[0].status is ResultStatus.OK


@pytest.mark.parametrize("id_", ["a|b", "", None, 7, "i" * 500, "\ud83d", "call:1"])
def test_calls_with_repeated_ids_get_unique_ids(id_: object) -> None:
    reply = Reply(blocks=(call(id_), call(id_)), stop_reason="tool_use")
    result, requests = run(reply, reply, answer_reply())

    assert result.status is ResultStatus.OK
    ids = {
        block["id"]
        for message in requests[-1]["messages"]
        for block in message["content"]
        if block["type"] == "tool_use"
    }
    assert len(ids) == 4


def test_calls_of_a_specialist_without_tools_are_defined() -> None:
    result, requests = run(tool_call_reply(("now", {}), ("now", {})), answer_reply(), tools=False)

    assert result.status is ResultStatus.OK
    assert [tool["name"] for tool in requests[1]["tools"]] == ["now"]
    assert requests[1]["tool_choice"] == {"type": "none"}


class ProcessKilled(BaseException):
    """Stand for the death of the process."""


def test_ids_stay_unique_when_another_worker_continues() -> None:
    reply = Reply(blocks=(call("a|b"), call("same")), stop_reason="tool_use")
    checkpoints = MemoryCheckpoints()

    def die_at_the_first_result(_: object) -> None:
        if len(checkpoints.saved) == 1:
            raise ProcessKilled

    checkpoints.on_checkpoint = die_at_the_first_result
    script = in_turn(reply, reply, answer_reply())
    with MessagesServer(script) as server, model_at(server.url) as model:
        with pytest.raises(ProcessKilled):
            Run(lambda _: answer_reply(), tools=(LOOK,), model=model, checkpoints=checkpoints).go()
        again = Run(
            lambda _: answer_reply(), tools=(LOOK,), model=model, checkpoints=checkpoints.reopened()
        )
        assert again.go().status is ResultStatus.OK


words = st.sampled_from(["a", "b", "a|b", "", "x y", "i" * 200, "ü"])
own_calls = st.builds(call, words, st.sampled_from(["look", "", "n" * 100, "größe", "now"]))
searches = st.builds(
    lambda id_, is_finished: [
        {**SEARCH, "id": f"srvtoolu_{id_}"},
        *([{**HITS, "tool_use_id": f"srvtoolu_{id_}"}] if is_finished else []),
    ],
    st.integers(0, 10_000),
    st.booleans(),
)
texts = st.sampled_from(["", " ", "Some text.", "ends with a space "]).map(
    lambda text: {"type": "text", "text": text}
)
pieces = st.one_of(texts.map(lambda block: [block]), own_calls.map(lambda block: [block]), searches)


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """Generate a reply of any blocks, with a stop reason that fits. Only turns with a provider's
    tool pause.
    """
    blocks = [dict(THINKING)] if draw(st.booleans()) else []
    for piece in draw(st.lists(pieces, max_size=5)):
        blocks += piece
    kinds = {block["type"] for block in blocks}
    reasons = ["tool_use" if "tool_use" in kinds else "end_turn", "max_tokens"]
    if "server_tool_use" in kinds and "tool_use" not in kinds:
        reasons.append("pause_turn")
    return Reply(blocks=tuple(blocks), stop_reason=draw(st.sampled_from(reasons)))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(replies(), min_size=1, max_size=4), st.integers(1, 5), st.booleans())
def test_any_replies_lead_to_valid_requests(
    before: list[Reply], max_turns: int, tools: bool
) -> None:
    _, requests = run(*before, answer_reply(), tools=tools, max_turns=max_turns)

    assert requests


@pytest.mark.parametrize(
    "odd",
    [
        (HITS, SEARCH),
        ({"type": "tool_result", "tool_use_id": "a", "content": "made up"},),
        ({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},),
        ({"type": "document", "source": {"type": "text", "data": "made up"}},),
    ],
    ids=["a result before its call", "a result of ours", "an image", "a document"],
)
def test_blocks_that_a_model_may_not_write_are_not_sent_back(odd: tuple[Json, ...]) -> None:
    result, requests = run(Reply(blocks=(*odd, call("a")), stop_reason="tool_use"), answer_reply())
    assert result.status is ResultStatus.OK
    assert len(requests) == 2
