"""The agent loop asks a person about calls, and runs each approved call once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.agent.checkpoint_store import CallAnswer
from handoff_queue.shared.agent.tool_call_approval import REJECTED
from handoff_queue.shared.agent.tool_calls import MAY_HAVE_RUN
from handoff_queue.shared.agent.tool_policy import ToolPolicy
from handoff_queue.shared.types.checkpoints import (
    Checkpoint,
    ModelReplied,
    ToolCallStarted,
    ToolObserved,
)
from handoff_queue.shared.types.errors import ApprovalAwaited
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.testing import Reply, tool_call_reply
from tests.doubles.agent_runs import Run, answer_reply
from tests.doubles.handoffs import a_handoff, a_tool
from tests.doubles.memory_checkpoints import MemoryCheckpoints

CALLS = (("send", {"q": "a"}), ("look", {"q": "b"}), ("send", {"q": "c"}))
APPROVED = CallAnswer(is_approved=True)


class ProcessKilled(BaseException):
    """Stand for the death of the process by SIGKILL."""


def mailing_run(
    ran: list[str], checkpoints: MemoryCheckpoints | None = None, *, wait_s: int | None = 60
) -> Run:
    """Return a run whose model calls `send`, which needs an approval, and `look`."""

    def reply(call: Any) -> Reply:
        replies = sum(message["role"] == "assistant" for message in call.messages)
        return answer_reply() if replies else tool_call_reply(*CALLS)

    def note(arguments: dict[str, Any]) -> str:
        ran.append(arguments["q"])
        return "did " + str(arguments["q"])

    return Run(
        reply,
        handoff=a_handoff(call_approval_s=wait_s),
        tools=(a_tool("look", note), a_tool("send", note, repeatable=False)),
        tool_policy=ToolPolicy(asks=frozenset({"send"})),
        checkpoints=checkpoints or MemoryCheckpoints(),
    )


def asked_run(ran: list[str]) -> Run:
    """Return a run that has asked about its two mails."""
    run = mailing_run(ran)
    with pytest.raises(ApprovalAwaited):
        run.go()
    return run


def resumed(run: Run, ran: list[str], **answers: CallAnswer) -> Run:
    """Return the run of the next claim, with these answers by the argument of the call."""
    checkpoints = run.checkpoints.reopened()
    for call_id, question in run.checkpoints.questions.items():
        if question.arguments["q"] in answers:
            checkpoints.answers[call_id] = answers[question.arguments["q"]]
    return mailing_run(ran, checkpoints)


def results_shown(run: Run) -> str:
    return json.dumps(run.calls[-1].messages)


def test_calls_without_a_question_run_before_the_handoff_waits() -> None:
    ran: list[str] = []
    run = asked_run(ran)

    assert ran == ["b"]
    assert [question.arguments for question in run.checkpoints.questions.values()] == [
        {"q": "a"},
        {"q": "c"},
    ]


def test_a_call_that_changes_something_waits_for_an_earlier_one() -> None:
    """The earlier call may delete what the later one creates."""
    ran: list[str] = []
    again = resumed(asked_run(ran), ran, c=APPROVED)
    with pytest.raises(ApprovalAwaited):
        again.go()
    assert ran == ["b"]

    assert resumed(again, ran, a=APPROVED, c=APPROVED).go().status is ResultStatus.OK
    assert ran == ["b", "a", "c"]


def test_an_approved_call_runs_and_the_paid_turn_stays() -> None:
    ran: list[str] = []
    again = resumed(asked_run(ran), ran, a=APPROVED, c=APPROVED)

    assert again.go().status is ResultStatus.OK
    assert sorted(ran) == ["a", "b", "c"]  # the tools run in threads
    assert len(again.calls) == 1, "only the call after the tools is made"


def test_a_call_with_an_answer_runs_while_another_waits() -> None:
    ran: list[str] = []
    again = resumed(asked_run(ran), ran, a=APPROVED)
    with pytest.raises(ApprovalAwaited):
        again.go()

    assert ran == ["b", "a"]
    last = resumed(again, ran, c=CallAnswer(is_approved=False, note="Not to them."))
    last.go()
    assert ran == ["b", "a"]
    assert f"{REJECTED}: Not to them." in results_shown(last)


def test_a_call_runs_with_the_arguments_of_the_person_and_the_model_is_told() -> None:
    ran: list[str] = []
    edited = replace(APPROVED, arguments={"q": "d"})
    again = resumed(asked_run(ran), ran, a=edited, c=APPROVED)
    again.go()

    assert sorted(ran) == ["b", "c", "d"]
    assert "a person changed the arguments of this call to" in results_shown(again)


def test_a_person_cannot_send_a_call_to_a_host_that_the_policy_refuses() -> None:
    called: list[str] = []

    def fetch(arguments: dict[str, Any]) -> str:
        called.append(arguments["q"])
        return "a page"

    def reply(call: Any) -> Reply:
        replies = sum(message["role"] == "assistant" for message in call.messages)
        return answer_reply() if replies else tool_call_reply(("get", {"q": "https://a.example"}))

    def run(checkpoints: MemoryCheckpoints) -> Run:
        return Run(
            reply,
            handoff=a_handoff(call_approval_s=60),
            tools=(replace(a_tool("get", fetch), url_argument="q"),),
            tool_policy=ToolPolicy(hosts=("a.example",), asks=frozenset({"get"})),
            checkpoints=checkpoints,
        )

    first = run(MemoryCheckpoints())
    with pytest.raises(ApprovalAwaited):
        first.go()
    checkpoints = first.checkpoints.reopened()
    (call_id,) = checkpoints.questions
    edited = replace(APPROVED, arguments={"q": "https://b.example"})
    checkpoints.answers[call_id] = edited
    again = run(checkpoints)
    again.go()

    assert called == []
    assert "b.example is not in the list of hosts" in results_shown(again)


def test_without_approvals_a_call_that_needs_one_does_not_run() -> None:
    ran: list[str] = []
    run = mailing_run(ran, wait_s=None)

    assert run.go().status is ResultStatus.OK
    assert ran == ["b"]
    assert "a person must approve it" in results_shown(run)
    assert run.checkpoints.questions == {}


def test_a_call_with_wrong_arguments_asks_no_person() -> None:
    def reply(call: Any) -> Reply:
        replies = sum(message["role"] == "assistant" for message in call.messages)
        return answer_reply() if replies else tool_call_reply(("send", {"q": 3}))

    run = replace(mailing_run([]), script=reply)

    assert run.go().status is ResultStatus.OK
    assert "bad arguments" in results_shown(run)


@pytest.mark.parametrize("kind", [ToolCallStarted, ToolObserved])
def test_a_kill_never_runs_an_approved_call_twice(kind: type[Checkpoint]) -> None:
    """The process dies before it stores the first checkpoint of this kind after the approval."""
    ran: list[str] = []
    again = resumed(asked_run(ran), ran, a=APPROVED, c=APPROVED)

    def die(checkpoint: Checkpoint) -> None:
        if isinstance(checkpoint, kind):
            raise ProcessKilled

    again.checkpoints.on_checkpoint = die
    with pytest.raises(ProcessKilled):
        again.go()
    last = mailing_run(ran, again.checkpoints.reopened())
    last.go()

    assert ran.count("a") <= 1
    assert ran.count("c") <= 1
    if kind is ToolObserved:
        assert MAY_HAVE_RUN in results_shown(last)
    else:
        assert sorted(ran) == ["a", "b", "c"]  # the tools run in threads
    kinds = [type(checkpoint) for checkpoint in last.checkpoints.load_earlier_checkpoints()]
    assert kinds.count(ModelReplied) == 2
