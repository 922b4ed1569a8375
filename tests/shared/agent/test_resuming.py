"""A handoff whose process dies continues elsewhere with the same conversation, and pays for no call
twice.
"""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.agent.tool_calls import observe_no_result
from handoff_queue.shared.types.checkpoints import (
    Checkpoint,
    ModelReplied,
    NoResult,
    ToolCallStarted,
)
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus
from handoff_queue.shared.types.usage import Usage
from handoff_queue.testing import Reply, text_reply, tool_call_reply
from tests.doubles.agent_runs import Run, answer_reply
from tests.doubles.handoffs import a_tool
from tests.doubles.memory_checkpoints import MemoryCheckpoints

REPLIES = (
    tool_call_reply(("look", {"q": "a"}), ("once", {"q": "b"})),
    text_reply("Done."),
    answer_reply(),
)


class ProcessKilled(BaseException):
    """Stand for the death of the process by SIGKILL."""


def resumed_run(checkpoints: MemoryCheckpoints, ran: list[str]) -> Run:
    """Return a run that continues from the stored turns. The model answers by the number of replies
    in the conversation.
    """

    def reply(call: Any) -> Reply:
        reply_count = sum(message["role"] == "assistant" for message in call.messages)
        return REPLIES[reply_count]

    def note(arguments: dict[str, Any]) -> str:
        ran.append(arguments["q"])
        return "found " + str(arguments["q"])

    return Run(
        reply,
        tools=(a_tool("look", note), a_tool("once", note, repeatable=False)),
        checkpoints=checkpoints,
    )


def without_usage(result: HandoffResult) -> HandoffResult:
    """Return the result without its usage, and without the origins of results that were lost."""
    return result.model_copy(update={"usage": Usage(), "origins": None})


def uninterrupted() -> tuple[HandoffResult, Run]:
    run = resumed_run(MemoryCheckpoints(), [])
    return run.go(), run


def test_an_uninterrupted_run_has_these_checkpoints() -> None:
    _, run = uninterrupted()
    kinds = [checkpoint.kind for checkpoint in run.checkpoints.load_earlier_checkpoints()]
    assert kinds == ["replied", "called", "observed", "observed", "replied", "prompted", "replied"]


@pytest.mark.parametrize("survived", range(7))
def test_a_death_after_any_checkpoint_costs_no_result(survived: int) -> None:
    expected, whole = uninterrupted()
    ran: list[str] = []
    checkpoints = MemoryCheckpoints()

    def die(_checkpoint: Checkpoint) -> None:
        if len(checkpoints.saved) == survived:
            raise ProcessKilled

    checkpoints.on_checkpoint = die
    with pytest.raises(ProcessKilled):
        resumed_run(checkpoints, ran).go()
    resumed = resumed_run(checkpoints.reopened(), ran)
    result = resumed.go()
    assert result.status is ResultStatus.OK
    assert without_usage(result) == without_usage(expected)
    assert ran.count("b") <= 1, "a tool that is not safe to repeat is not repeated"
    if ran.count("b") == 1 and survived in (0, 1, 4, 5, 6):
        assert resumed.calls[-1].messages == whole.calls[-1].messages


def test_a_tool_that_may_have_run_is_not_run_again_and_the_model_knows() -> None:
    checkpoints = MemoryCheckpoints()
    call = {"type": "tool_use", "id": "t1", "name": "once", "input": {"q": "b"}}
    checkpoints.checkpoint(
        ModelReplied(content=(call,), stop_reason="tool_use", usage=Usage(), model="m"),
        ToolCallStarted(tool_use_id="t1"),
    )
    ran: list[str] = []
    resumed = resumed_run(checkpoints.reopened(), ran)
    resumed.go()
    assert ran == []
    assert resumed.checkpoints.load_earlier_checkpoints()[2] == observe_no_result(
        call, NoResult.MAY_HAVE_RUN
    )


def test_an_unsafe_call_that_the_model_repeats_after_an_interruption_is_not_run() -> None:
    checkpoints = MemoryCheckpoints()
    call = {"type": "tool_use", "id": "t1", "name": "once", "input": {"q": "b"}}
    checkpoints.checkpoint(
        ModelReplied(content=(call,), stop_reason="tool_use", usage=Usage(), model="m"),
        ToolCallStarted(tool_use_id="t1"),
        observe_no_result(call, NoResult.MAY_HAVE_RUN),
        ModelReplied(
            content=({**call, "id": "t2"}, {**call, "id": "t3", "input": {"q": "c"}}),
            stop_reason="tool_use",
            usage=Usage(),
            model="m",
        ),
    )
    ran: list[str] = []
    resumed = resumed_run(checkpoints.reopened(), ran)
    result = resumed.go()

    assert ran == ["c"], "other arguments are another effect"
    assert result.acted
    observed = observe_no_result({**call, "id": "t2"}, NoResult.SAME_CALL)
    assert observed in resumed.checkpoints.load_earlier_checkpoints(), "it counts as a repetition"


def test_a_result_says_whether_a_tool_that_is_not_safe_to_repeat_may_have_run() -> None:
    result, _ = uninterrupted()
    no_calls = Run(lambda _: answer_reply(), tools=()).go()

    assert (result.acted, no_calls.acted) == (True, None)


def test_a_final_answer_that_was_checkpointed_is_read_without_another_call() -> None:
    _, run = uninterrupted()
    again = resumed_run(run.checkpoints.reopened(), [])
    assert again.go().status is ResultStatus.OK
    assert again.calls == []


def test_turns_of_earlier_claims_count() -> None:
    expected, run = uninterrupted()
    assert resumed_run(run.checkpoints.reopened(), []).go().turns == expected.turns == 3
