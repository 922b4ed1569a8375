"""The loop does not run tool calls that are a decision. It joins the calls of a reply, and an error
costs one turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed
from handoff_queue.shared.types.handoff import ResultStatus, StopReason
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.model import Block
from handoff_queue.testing import Reply, json_reply, tool_call_reply
from tests.doubles.agent_runs import Run, run_with_replies
from tests.doubles.handoffs import a_handoff, a_tool
from tests.doubles.memory_checkpoints import MemoryCheckpoints


def _later(_arguments: dict[str, Any], _context: ToolContext) -> str:
    raise ToolFailed("decide when you have looked")


@dataclass(frozen=True, slots=True)
class ChoiceFormat:
    """Answer format whose answer is calls of `choose(what)`. It refuses a call with the value
    "wrong".
    """

    schema: Mapping[str, Any]

    @property
    def tools(self) -> tuple[Tool, ...]:
        return (Tool("choose", "Chooses.", {"type": "object"}, _later),)

    def is_answer(self, calls: Sequence[Block]) -> bool:
        return all(call["name"] == "choose" for call in calls)

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        return AcceptedAnswer(ResultStatus.OK, text)

    def read_calls(self, calls: Sequence[Block], *, last_try: bool) -> AcceptedAnswer:
        chosen = [call["input"]["what"] for call in calls]
        if "wrong" in chosen:
            raise InvalidAnswer("wrong is none of them")
        return AcceptedAnswer(ResultStatus.OK, ", ".join(chosen))


CHOICE_FORMAT = ChoiceFormat({"type": "object"})


def choice_reply(*values: str, **rest: Any) -> Reply:
    return tool_call_reply(*(("choose", {"what": value}) for value in values), **rest)


def run_with_choices(*replies: Reply, **rest: Any) -> Run:
    return run_with_replies(*replies, answer_format=CHOICE_FORMAT, **rest)


def test_all_calls_of_a_reply_are_the_answer_in_one_turn() -> None:
    run = run_with_choices(choice_reply("a", "b"))
    result = run.go()

    assert (result.output, result.turns, result.stop_reason) == ("a, b", 1, StopReason.FINISHED)
    assert [tool["name"] for tool in run.calls[0].tools] == ["choose"]


def test_a_decision_in_text_is_accepted() -> None:
    assert (
        run_with_choices(json_reply({"choose": "nothing"})).go().output == '{"choose": "nothing"}'
    )


def test_an_error_in_the_calls_is_reported_once_and_every_call_has_a_result() -> None:
    run = run_with_choices(choice_reply("a", "wrong"), choice_reply("b"))
    result = run.go()

    content = run.calls[1].messages[-1]["content"]
    assert [(block["type"], block.get("is_error")) for block in content] == [
        ("tool_result", True),
        ("tool_result", True),
        ("text", None),
    ]
    assert "wrong is none of them" in content[-1]["text"]
    assert (result.output, result.turns) == ("b", 2)


def test_wrong_twice_is_a_failure() -> None:
    result = run_with_choices(choice_reply("wrong"), choice_reply("wrong"), choice_reply("a")).go()

    assert (result.status, result.stop_reason, result.error) == (
        ResultStatus.FAILED,
        StopReason.INVALID_OUTPUT,
        "wrong is none of them",
    )
    assert result.turns == 2


def test_a_decision_next_to_other_calls_is_not_accepted_yet() -> None:
    look = a_tool("look", lambda _arguments: "it is sound")
    run = run_with_choices(
        tool_call_reply(("look", {"q": "x"}), ("choose", {"what": "a"})),
        choice_reply("b"),
        tools=(look,),
    )
    result = run.go()

    assert [block["content"] for block in run.calls[1].messages[-1]["content"]] == [
        "it is sound",
        "decide when you have looked",
    ]
    assert result.output == "b"


def test_calls_that_were_cut_off_are_asked_for_again() -> None:
    run = run_with_choices(_cut_reply("a"), choice_reply("b"))

    assert run.go().output == "b"
    assert "cut off" in run.calls[1].messages[-1]["content"][-1]["text"]


def _cut_reply(value: str) -> Reply:
    return Reply(
        blocks=({"type": "tool_use", "id": "toolu_1", "name": "choose", "input": {"what": value}},),
        stop_reason="max_tokens",
    )


def test_a_decision_can_be_called_on_the_last_turn() -> None:
    run = run_with_choices(choice_reply("a"), handoff=a_handoff(limits=HandoffLimits(max_turns=1)))

    assert run.go().output == "a"
    assert run.calls[0].may_call_tools


def test_a_paid_decision_is_read_by_the_next_claim() -> None:
    checkpoints = MemoryCheckpoints()
    run_with_choices(choice_reply("a"), checkpoints=checkpoints).go()
    again = run_with_choices(checkpoints=checkpoints)

    assert (again.go().output, again.calls) == ("a", [])
