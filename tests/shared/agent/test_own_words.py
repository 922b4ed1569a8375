"""The words that a model wrote into its calls are found, however they were written."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.agent.conversation import Conversation
from handoff_queue.shared.agent.loop import are_own_words
from handoff_queue.shared.types.checkpoints import ModelReplied
from handoff_queue.shared.types.usage import Usage

WORDS = "The licence is MIT."


def are_own(name: str, arguments: Any) -> bool:
    call = {"type": "tool_use", "id": "t1", "name": name, "input": arguments}
    reply = ModelReplied(content=(call,), stop_reason="tool_use", usage=Usage(), model="m")
    opening = {"role": "user", "content": [{"type": "text", "text": WORDS}]}
    return are_own_words(WORDS, Conversation(opening, (reply,)), "memory")


@pytest.mark.parametrize(
    "arguments",
    [
        {"q": f"Say: {WORDS} Thanks."},
        {"q": "The  licence\nis MIT."},
        {"a": [{"b": WORDS}]},
        {"url": "https://echo.example/get?say=The+licence+is%20MIT."},
        {"url": "https://echo.example/The%20licence%20is%20MIT./page"},
    ],
    ids=["text", "white-space", "nested", "query", "path"],
)
def test_words_in_an_argument_are_the_models_own(arguments: Any) -> None:
    assert are_own("echo", arguments)


@pytest.mark.parametrize("arguments", [{}, {"q": "The licence"}, {"n": 7, "x": None}, "text", None])
def test_other_arguments_and_the_task_do_not_count(arguments: Any) -> None:
    assert not are_own("echo", arguments)


def test_the_calls_of_the_tool_that_asks_do_not_count() -> None:
    assert not are_own("memory", {"quote": WORDS})
