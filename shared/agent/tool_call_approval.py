"""The check of each call before it runs: the policy of tools, and a person's answer if the policy
asks for one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handoff_queue.shared.agent.checkpoint_store import CallAnswer, CallQuestion
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_calls import find_argument_problem, observe_result
from handoff_queue.shared.agent.tool_policy import (
    CallDecision,
    CallVerdict,
    describe_refusal,
)
from handoff_queue.shared.types.checkpoints import ToolObserved
from handoff_queue.shared.types.model import Block

Decide = Callable[[Tool, Mapping[str, Any]], CallDecision]
"""Function that returns the decision of the policy on a call of a tool with these arguments."""
REJECTED = "not run: a person rejected this call"
"""Beginning of the result of a rejected call. The person's note follows."""


@dataclass(slots=True)
class CheckedCalls:
    """The calls of one reply after the check."""

    allowed_calls: list[Block] = field(default_factory=list)
    """Calls that run, with the arguments that a person has given."""
    refused_results: list[ToolObserved] = field(default_factory=list)
    """Results of calls that do not run."""
    questions: list[CallQuestion] = field(default_factory=list)
    """Calls that wait for a person."""
    changed_arguments: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Arguments that a person has changed, by the id of the call."""

    def refuse(self, call: Block, why: str) -> None:
        """Add a call that does not run, with its result."""
        self.refused_results.append(observe_result(call, why, is_error=True))

    def with_note(self, result: ToolObserved) -> ToolObserved:
        """Return the result of a call. If a person changed the arguments, the text says so."""
        arguments = self.changed_arguments.get(result.tool_use_id)
        if arguments is None:
            return result
        arguments_json = json.dumps(dict(arguments), ensure_ascii=False)
        note = f"[a person changed the arguments of this call to {arguments_json}]"
        return result.model_copy(update={"text": f"{note}\n{result.text}"})


def check_calls(
    calls: Sequence[Block],
    tools: Mapping[str, Tool],
    decide: Decide,
    answers: Callable[[], Mapping[str, CallAnswer]],
    *,
    asks: bool,
) -> CheckedCalls:
    """Return the calls, divided by the policy and by the answers of a person.

    A call of an unknown tool, or with wrong arguments, counts as allowed: its run gives the model
    the error.

    Args:
        decide: returns the decision of the policy on a call.
        answers: returns the answers so far. It is called once, and only if a call needs an
            approval.
        asks: False if no person is asked. A call that needs an approval is then refused.
    """
    checked = CheckedCalls()
    known: Mapping[str, CallAnswer] | None = None
    for call in calls:
        tool = tools.get(str(call.get("name")))
        if tool is None or find_argument_problem(call.get("input"), tool):
            checked.allowed_calls.append(call)
            continue
        decision = decide(tool, call["input"])
        if decision.verdict is CallVerdict.ALLOW:
            checked.allowed_calls.append(call)
        elif decision.verdict is CallVerdict.REFUSE or not asks:
            checked.refuse(call, describe_refusal(decision))
        else:
            known = answers() if known is None else known
            answer = known.get(call["id"])
            if answer is None:
                checked.questions.append(_build_question(call, tool, decision))
            else:
                _apply(checked, call, tool, answer, decide)
    if checked.questions:
        _hold_back_later_changes(checked, calls, tools)
    return checked


def _hold_back_later_changes(
    checked: CheckedCalls, calls: Sequence[Block], tools: Mapping[str, Tool]
) -> None:
    """Remove the allowed calls that may change something and come after another such call, which
    waits for a person. The earlier call may delete what the later one creates. The removed calls
    have no result, so they are checked again after the answer.
    """
    asked_ids = {question.call_id for question in checked.questions}
    held_back_ids: set[str] = set()
    waits = False
    for call in calls:
        tool = tools.get(str(call.get("name")))
        if tool is None or not tool.changes_something:
            continue
        if call["id"] in asked_ids:
            waits = True
        elif waits:
            held_back_ids.add(call["id"])
    allowed_calls = checked.allowed_calls
    checked.allowed_calls = [call for call in allowed_calls if call["id"] not in held_back_ids]


def _build_question(call: Block, tool: Tool, decision: CallDecision) -> CallQuestion:
    return CallQuestion(
        call["id"],
        tool.name,
        call["input"],
        tool.input_schema,
        decision.reason,
        decision.argument_origins,
    )


def _apply(
    checked: CheckedCalls, call: Block, tool: Tool, answer: CallAnswer, decide: Decide
) -> None:
    """Add a call with an answer of a person to the checked calls. A person cannot change the
    arguments to what the policy refuses, such as a host that is not allowed.
    """
    if not answer.is_approved:
        checked.refuse(call, f"{REJECTED}: {answer.note}" if answer.note else REJECTED)
        return
    if answer.arguments is None:
        checked.allowed_calls.append(call)
        return
    decision = decide(tool, answer.arguments)
    if decision.verdict is CallVerdict.REFUSE:
        checked.refuse(call, describe_refusal(decision))
        return
    checked.changed_arguments[call["id"]] = answer.arguments
    checked.allowed_calls.append({**call, "input": dict(answer.arguments)})
