"""Questions to a person about calls of tools, and their answers. A question and an answer are
events of the journal; arguments and notes are payloads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.agent.checkpoint_store import CallAnswer, CallQuestion
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.encryption_at_rest import Sealing
from handoff_queue.shared.store.payloads import build_payload_arguments, verify_payload
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import build_retention_arguments, iterate_rows
from handoff_queue.shared.trust.event_signatures import (
    check_batch,
    may_write,
    read_stamp,
    sign_events,
    without_signature,
)
from handoff_queue.shared.trust.signatures import Trust
from handoff_queue.shared.types.errors import MalformedMessage, UnknownJob, UntrustedMessage
from handoff_queue.shared.types.events import (
    OPEN_STATUSES,
    AnsweredCall,
    ApprovalAsked,
    Approved,
    CallInQuestion,
    Rejected,
    parse_event,
)
from handoff_queue.shared.types.handoff import BlobRef, make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import ApprovalOf


@dataclass(frozen=True, slots=True)
class CallQuestions:
    """Questions about the calls of one reply, in the form of `ask_tool_call_approval.lua`."""

    handoff_id: HandoffId
    questions: Sequence[CallQuestion]
    wait_s: int
    """Longest wait for an answer in seconds."""

    @property
    def activity(self) -> str:
        """Return the activity of the waiting handoff in words."""
        tools = dict.fromkeys(question.tool for question in self.questions)
        return f"waits for approval of {', '.join(tools)}"

    def build_arguments(
        self,
        job_id: JobId,
        trust: Trust,
        sealing: Sealing,
        fence: str,
        keep_s: int,
        deadline: float | None,
    ) -> list[Any]:
        """Return the arguments of the script.

        Args:
            trust: the keys of this process, which sign each event by itself.
            sealing: encrypts the payloads of a tenant with a key.
        """
        calls: list[tuple[str, str]] = []
        events: list[str] = []
        texts: list[str] = []
        for question in self.questions:
            calls.append((question.call_id, question.tool))
            arguments = json.dumps(dict(question.arguments), ensure_ascii=False)
            schema = json.dumps(dict(question.input_schema), ensure_ascii=False)
            texts += [arguments, schema]
            call = CallInQuestion(
                handoff_id=self.handoff_id,
                call_id=question.call_id,
                tool=question.tool,
                arguments=make_ref(arguments),
                input_schema=make_ref(schema),
                origins=dict(question.origins),
            )
            event = ApprovalAsked(
                what=ApprovalOf.TOOLS, why=question.why, wait_s=self.wait_s, call=call
            )
            events += sign_events(trust, job_id, [event])
        return [
            self.handoff_id,
            fence,
            *build_retention_arguments(keep_s, deadline),
            self.activity,
            json.dumps(calls),
            *events,
            *build_payload_arguments(sealing, job_id, texts),
        ]


def parse_call_answers(
    fields: Sequence[bytes], trust: Trust, job_id: JobId, handoff_id: HandoffId, sealing: Sealing
) -> dict[str, CallAnswer]:
    """Return the answers by the id of their call, from the reply of
    `tool_call_approval_answers.lua` without its status. With a keyring, an answer without a
    valid signature is a rejection.
    """

    def unpack_text(payload: BlobRef, stored_form: bytes) -> str:
        return verify_payload(payload.digest, sealing.open(job_id, payload.digest, stored_form))

    answers: dict[str, CallAnswer] = {}
    for name, decision, note, arguments in iterate_rows(fields, 4):
        call = AnsweredCall(handoff_id=handoff_id, call_id=name.decode())
        try:
            event = _parse_answer(decision, trust, job_id, call)
        except UntrustedMessage as error:
            why = f"the answer is not valid, because {error}"
            answers[call.call_id] = CallAnswer(is_approved=False, note=why)
            continue
        new_arguments = None
        if isinstance(event, Approved) and event.arguments is not None:
            new_arguments = json.loads(unpack_text(event.arguments, arguments))
        answers[call.call_id] = CallAnswer(
            is_approved=isinstance(event, Approved),
            note=unpack_text(event.note, note) if event.note is not None else None,
            arguments=new_arguments,
        )
    return answers


def _parse_answer(
    decision: bytes, trust: Trust, job_id: JobId, call: AnsweredCall
) -> Approved | Rejected:
    """Return the answer to a question about a call.

    Args:
        decision: the event, with its signature.

    Raises:
        UntrustedMessage: the answer is about another call, or its signature does not hold.
        MalformedMessage: the event is not an answer.
    """
    text, stamp_text = without_signature(decision)
    event = parse_event(text)
    if not isinstance(event, Approved | Rejected):
        raise MalformedMessage(f"{event.type} is not an answer about a call")
    if event.call != call:
        raise UntrustedMessage("it is about another call")
    if trust.is_on:
        stamp = read_stamp(stamp_text)
        if stamp.count != 1:
            raise UntrustedMessage("its signature is about more events")
        signer = check_batch(trust, job_id, [text.decode()], stamp, [event])
        if not may_write(signer, event):
            raise UntrustedMessage(f"it is signed by {signer.name}, which may not answer")
    return event


def answer_call(
    connection: Connection,
    trust: Trust,
    job_id: JobId,
    answer: Approved | Rejected,
    handoff_id: HandoffId,
    texts: Sequence[str],
) -> int:
    """Append a person's answer to a question about a call. Return its version, or 0 if the
    question is not open any more.

    Args:
        texts: payloads of the answer.

    Raises:
        UnknownJob: the job does not exist.
    """
    arguments = [
        sign_events(trust, job_id, [answer])[0],
        answer.asked,
        handoff_id,
        json.dumps(OPEN_STATUSES),
        *build_payload_arguments(connection.sealing, job_id, texts),
    ]
    version = int(
        connection.run_script("answer_tool_call_approval", [keys.job(job_id), keys.DUE], arguments)
    )
    if not version:
        raise UnknownJob.for_job(job_id)
    return max(0, version)
