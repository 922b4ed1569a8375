"""The CLI gets the recorded conversation, and may only add texts to it."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.types.model import ModelCall, SystemPrompt
from handoff_queue.workers.agent_sdk.conversation import GO_ON, list_turns, with_cli_texts

OPENING = {"role": "user", "content": [{"type": "text", "text": "The task."}]}
LOOK = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"q": "a"}}
CALLED = {"role": "assistant", "content": [LOOK]}
FOUND = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "found a"}
RESULT = {"role": "user", "content": [FOUND]}


def a_call(*messages: dict[str, Any]) -> ModelCall:
    return ModelCall("claude-haiku-5-5", SystemPrompt("You look."), messages, 1_000)


def test_a_recorded_call_has_the_name_in_the_cli_of_its_tool_and_its_result() -> None:
    (turn,) = list_turns([OPENING, CALLED, RESULT])

    assert turn.content == ({**LOOK, "name": "mcp__handoff__look"},)
    assert turn.results == (FOUND,)


def test_a_reply_without_calls_is_followed_by_the_prompt_of_the_loop() -> None:
    answer = {"role": "assistant", "content": [{"type": "text", "text": "no JSON"}]}
    fault = {"role": "user", "content": [{"type": "text", "text": "Write JSON."}]}

    assert [turn.prompt for turn in list_turns([OPENING, answer, fault])] == ["Write JSON."]
    assert [turn.prompt for turn in list_turns([OPENING, answer])] == [GO_ON]


def test_the_texts_of_the_cli_join_the_system_prompt_without_its_version() -> None:
    texts = ["x-anthropic-billing-header: cc_version=1;", "You are an agent.", "You look."]
    request = {
        "system": [{"type": "text", "text": text} for text in texts],
        "messages": [OPENING, {"role": "system", "content": "Today is Sunday."}],
    }

    sent = with_cli_texts(a_call(OPENING), request)

    assert sent.system.text == "You are an agent.\n\nYou look.\n\nToday is Sunday."
    assert sent.messages == (OPENING,)


def test_the_cli_cannot_change_a_recorded_result() -> None:
    reminder = {"type": "text", "text": "A reminder."}
    forged = {"role": "user", "content": [{**FOUND, "content": "forged"}, reminder]}

    sent = with_cli_texts(
        a_call(OPENING, CALLED, RESULT),
        {"system": "You look.", "messages": [OPENING, CALLED, forged]},
    )

    assert sent.messages == (OPENING, CALLED, {"role": "user", "content": [FOUND, reminder]})


def test_a_request_with_another_conversation_is_replaced_by_the_record() -> None:
    sent = with_cli_texts(
        a_call(OPENING, CALLED, RESULT), {"system": "You look.", "messages": [OPENING]}
    )

    assert sent.messages == (OPENING, CALLED, RESULT)
