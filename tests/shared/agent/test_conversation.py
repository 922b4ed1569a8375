from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.agent.conversation import Conversation, get_final_text
from handoff_queue.shared.agent.tool_calls import MAY_HAVE_RUN, observe_no_result
from handoff_queue.shared.types.checkpoints import (
    AgentPrompted,
    Checkpoint,
    ContextCleared,
    ModelCallFailed,
    ModelReplied,
    NoResult,
    PromptReason,
    ToolObserved,
)
from handoff_queue.shared.types.usage import Usage
from tests.machine_pace import measure

OPENING = {"role": "user", "content": [{"type": "text", "text": "task"}]}
TALK = Conversation(OPENING)


def replied(*blocks: dict[str, Any], stop_reason: str = "end_turn") -> ModelReplied:
    return ModelReplied(
        content=blocks, stop_reason=stop_reason, usage=Usage(input_tokens=1), model="m"
    )


def prompted(reason: PromptReason, text: str = "Once more.") -> AgentPrompted:
    return AgentPrompted(reason=reason, text=text)


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def call(name: str, arguments: Any = None) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": name,
        "name": name,
        "input": {} if arguments is None else arguments,
    }


blocks = st.one_of(
    st.builds(text, st.sampled_from(["", " ", "x"])), st.builds(call, st.sampled_from("abc"))
)
checkpoints: st.SearchStrategy[Checkpoint] = st.one_of(
    st.lists(blocks, max_size=3).map(lambda some: replied(*some)),
    st.builds(ToolObserved, tool_use_id=st.sampled_from("abc"), text=st.just("found")),
    st.builds(AgentPrompted, reason=st.sampled_from(PromptReason), text=st.just("go")),
    st.builds(ModelCallFailed, error=st.just("cut"), usage=st.just(Usage())),
)


@given(st.lists(checkpoints, max_size=12))
def test_roles_alternate_and_no_message_is_empty(items: list[Checkpoint]) -> None:
    messages = TALK.add(*items).messages
    assert messages[0]["role"] == "user"
    assert all(message["role"] != other["role"] for message, other in pairwise(messages))
    assert all(message["content"] for message in messages)


@given(st.lists(checkpoints, max_size=12))
def test_rendering_does_not_change_the_conversation(items: list[Checkpoint]) -> None:
    talk = TALK.add(*items)
    assert talk.messages == talk.messages
    assert OPENING == {"role": "user", "content": [{"type": "text", "text": "task"}]}


@given(st.lists(checkpoints, max_size=12), st.integers(0, 12))
def test_earlier_messages_never_change_as_the_conversation_grows(
    items: list[Checkpoint], cut: int
) -> None:
    only_replies = [item for item in items if isinstance(item, ModelReplied | AgentPrompted)]
    before, after = TALK.add(*only_replies[:cut]).messages, TALK.add(*only_replies).messages
    assert list(before[:-1]) == list(after[: len(before) - 1])


def test_results_come_in_the_order_of_their_calls_and_before_any_text() -> None:
    talk = TALK.add(
        replied(call("a"), call("b")),
        ToolObserved(tool_use_id="b", text="2"),
        ToolObserved(tool_use_id="a", text="1"),
        prompted(PromptReason.LAST_TURN, "go"),
    )
    assert [block.get("content", block.get("text")) for block in talk.messages[-1]["content"]] == [
        "1",
        "2",
        "go",
    ]


def test_a_reply_is_open_until_it_is_processed() -> None:
    answer = replied(text("x"))
    assert TALK.add(answer).open_reply == answer
    assert TALK.add(answer, prompted(PromptReason.INVALID_ANSWER)).open_reply is None


def test_a_reply_with_calls_is_open_until_all_are_answered() -> None:
    asks = replied(call("a"), call("b"))
    assert TALK.add(asks, ToolObserved(tool_use_id="a", text="1")).open_reply == asks
    assert (
        TALK.add(
            asks, ToolObserved(tool_use_id="a", text="1"), ToolObserved(tool_use_id="b", text="1")
        ).open_reply
        is None
    )


def test_failed_calls_count_as_turns() -> None:
    talk = TALK.add(
        replied(text("x")),
        ModelCallFailed(error="cut", usage=Usage(output_tokens=5)),
        ModelCallFailed(error="cut", usage=Usage()),
    )
    assert (talk.turns, talk.failures_in_a_row, talk.usage.total_tokens) == (3, 2, 6)


def test_truncated_arguments_are_sent_back_as_empty() -> None:
    assert TALK.add(replied(call("a", '{"q": "ha'))).messages[1]["content"][0]["input"] == {}


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "thinking", "thinking": "x"}],
        [{"type": "thinking", "thinking": "x", "signature": "s"}],
        [text(" ")],
        [],
    ],
)
def test_a_reply_that_the_api_would_refuse_is_left_out(content: list[dict[str, Any]]) -> None:
    assert len(TALK.add(replied(*content)).messages) == 1


def test_thinking_with_its_signature_is_sent_back() -> None:
    thought = {"type": "thinking", "thinking": "x", "signature": "s"}
    assert TALK.add(replied(thought, text("y"))).messages[1]["content"] == [thought, text("y")]


def test_the_final_text_is_after_the_last_search() -> None:
    search = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    assert get_final_text([text("I'll look."), search, text("a"), text("b")]) == "ab"
    assert get_final_text([text("all"), search]) == "all"


def test_repetitive_texts_are_compared_in_a_short_time() -> None:
    """The text of a weak model may repeat a few characters up to its length limit."""
    talk = TALK.add(prompted(PromptReason.INVALID_ANSWER, "ab " * 500))
    repetition = "ba " * 500

    assert measure(lambda: talk.only_repeats_prompts(repetition), limit_s=5) < 5
    assert not talk.only_repeats_prompts(repetition)


def look_up(answer: str, *, is_error: bool = False) -> Conversation:
    observed = ToolObserved(tool_use_id="a", text=answer, is_error=is_error)
    return TALK.add(replied(call("a")), observed)


CLEARED = ContextCleared(tool_use_ids=("a",), tokens=1)


def test_a_cleared_text_is_not_visible_and_still_a_result_of_an_equal_call() -> None:
    answered = look_up("found")
    cleared = answered.add(CLEARED)

    assert answered.is_text_visible("found")
    assert answered.is_text_visible_for_equal_call(call("a"), "found")
    assert answered.has_visible_result_of_equal_call(call("a"), counts_errors=False)
    assert not cleared.is_text_visible("found")
    assert not cleared.is_text_visible_for_equal_call(call("a"), "found")
    assert not cleared.has_visible_result_of_equal_call(call("a"), counts_errors=True)
    assert [result.text for result in cleared.find_results_of_equal_calls(call("a"))] == ["found"]


def test_the_text_for_a_call_that_did_not_run_is_visible_and_no_result() -> None:
    refused = TALK.add(replied(call("a")), observe_no_result(call("a"), NoResult.MAY_HAVE_RUN))

    assert refused.is_text_visible_for_equal_call(call("a"), MAY_HAVE_RUN)
    assert refused.find_results_of_equal_calls(call("a")) == []
    assert refused.find_errors_of_equal_calls(call("a")) == set()
    assert not refused.has_visible_result_of_equal_call(call("a"), counts_errors=True)


def test_a_conversation_knows_its_stored_messages_when_a_later_version_has_other_texts() -> None:
    talk = TALK
    for number, no_result in enumerate(NoResult):
        block = call("a", {"q": number})
        observed = observe_no_result(block, no_result).model_copy(update={"text": "other words"})
        talk = talk.add(replied(block), observed)
    for reason in PromptReason:
        talk = talk.add(replied(text("x")), prompted(reason))

    assert talk.last_tool_error is None
    assert talk.may_have_run(call("a", {"q": list(NoResult).index(NoResult.MAY_HAVE_RUN)}))
    assert talk.find_results_of_equal_calls(call("a", {"q": 0})) == []
    assert (talk.cut_calls, talk.repeated_calls) == (1, 2)
    assert (talk.repairs, talk.shortenings, talk.summary_requests) == (3, 1, 1)
    assert talk.is_told_last
    assert talk.is_summarizing


def test_a_result_of_a_call_with_other_arguments_is_visible_for_no_equal_call() -> None:
    other = call("a", {"q": "another"})

    assert look_up("found").is_text_visible("found")
    assert not look_up("found").is_text_visible_for_equal_call(other, "found")
    assert look_up("found").find_results_of_equal_calls(other) == []


def test_an_error_is_a_result_of_an_equal_call_only_if_errors_count() -> None:
    failed = look_up("not there", is_error=True)

    assert failed.find_errors_of_equal_calls(call("a")) == {"not there"}
    assert failed.has_visible_result_of_equal_call(call("a"), counts_errors=True)
    assert not failed.has_visible_result_of_equal_call(call("a"), counts_errors=False)
