"""Random questions about tool calls, for the random simulation of a job."""

from __future__ import annotations

from random import Random
from typing import Any

from handoff_queue.shared.types.events import ApprovalAsked, Approved, CallInQuestion, Rejected
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.supervisor.lifecycle.observations import ObservedHandoff

WAITING = ObservedHandoff("issued", waits=True, queued=True)
RELEASED = ObservedHandoff("issued", lost=True, queued=True)


def asks_randomly(job: Any, dice: Random, handoff_id: HandoffId) -> bool:
    """Let a running handoff of a step ask about a call, sometimes. Return whether it asks."""
    issued = job.state.open[handoff_id]
    approvals = job.state.submitted.approvals
    may_ask = ApprovalOf.TOOLS in approvals.what and issued.group and not issued.is_fact_check
    if not may_ask or dice.random() < 0.4:
        return False
    call = CallInQuestion(
        handoff_id=handoff_id,
        call_id=f"toolu_{job.state.version}",
        tool="send_mail",
        arguments=job.store_text("{}"),
        input_schema=job.store_text("{}"),
    )
    wait_s = approvals.wait_s
    job.append(ApprovalAsked(what=ApprovalOf.TOOLS, why="it acts", wait_s=wait_s, call=call))
    job.observed_handoffs[handoff_id] = WAITING
    return True


def answer_call_randomly(job: Any, dice: Random) -> None:
    """Let a person answer a question about a call. The answer may come twice, or too late."""
    asked = [event for event in job.journal if isinstance(event.event, ApprovalAsked)]
    about_calls = [recorded.version for recorded in asked if recorded.event.call is not None]
    if about_calls:
        answer = dice.choice([Approved, Rejected])
        job.append(answer(asked=dice.choice(about_calls)))


def release_answered(job: Any) -> None:
    """Release the handoffs whose question has an answer, as the script of the answer does."""
    for call in job.state.asked_calls:
        if call.is_answered and job.observed_handoffs.get(call.handoff_id) == WAITING:
            job.observed_handoffs[call.handoff_id] = RELEASED
