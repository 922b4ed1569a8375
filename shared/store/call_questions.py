"""Questions to a person about calls of tools, and their answers. A question and an answer are
events of the journal; arguments and notes are payloads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.payloads import payload_arguments, unpack
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import retention_arguments
from handoff_queue.shared.types.call_approval import CallAnswer, CallQuestion
from handoff_queue.shared.types.errors import UnknownJob
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Approved,
    CallInQuestion,
    JobStatus,
    Rejected,
    parse_event,
)
from handoff_queue.shared.types.handoff import ref
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import ApprovalOf


@dataclass(frozen=True, slots=True)
class CallQuestions:
    """Questions about the calls of one reply, in the form of `ask_about_calls.lua`."""

    handoff_id: HandoffId
    questions: Sequence[CallQuestion]
    wait_s: int
    """Longest wait for an answer in seconds."""

    @property
    def activity(self) -> str:
        """Return the activity of the waiting handoff in words."""
        tools = dict.fromkeys(question.tool for question in self.questions)
        return f"waits for approval of {', '.join(tools)}"

    def arguments(self, fence: str, keep_s: int, deadline: float | None) -> list[Any]:
        """Return the arguments of the script."""
        events: list[str] = []
        texts: list[str] = []
        for question in self.questions:
            arguments = json.dumps(dict(question.arguments), ensure_ascii=False)
            schema = json.dumps(dict(question.input_schema), ensure_ascii=False)
            texts += [arguments, schema]
            call = CallInQuestion(
                handoff_id=self.handoff_id,
                call_id=question.call_id,
                tool=question.tool,
                arguments=ref(arguments),
                input_schema=ref(schema),
                origins=dict(question.origins),
            )
            event = ApprovalAsked(
                what=ApprovalOf.TOOLS, why=question.why, wait_s=self.wait_s, call=call
            )
            events.append(event.to_json())
        return [
            self.handoff_id,
            fence,
            *retention_arguments(keep_s, deadline),
            self.activity,
            json.dumps([(question.call_id, question.tool) for question in self.questions]),
            *events,
            *payload_arguments(texts),
        ]


def call_answers_in(fields: Sequence[bytes]) -> dict[str, CallAnswer]:
    """Return the answers by the id of their call, from the answer of `call_answers.lua`
    without its status.
    """
    answers: dict[str, CallAnswer] = {}
    parts = [fields[place::4] for place in range(4)]
    for call_id, text, note, arguments in zip(*parts, strict=True):
        event = parse_event(text)
        answers[call_id.decode()] = CallAnswer(
            is_approved=isinstance(event, Approved),
            note=unpack(note) if note else None,
            arguments=json.loads(unpack(arguments)) if arguments else None,
        )
    return answers


def answer_call(
    connection: Connection,
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
    open_statuses: list[str] = []
    for status in JobStatus:
        if not status.ended:
            open_statuses.append(status.value)
    arguments = [
        answer.to_json(),
        answer.asked,
        handoff_id,
        json.dumps(open_statuses),
        *payload_arguments(texts),
    ]
    version = int(connection.script("answer_call", [keys.job(job_id), keys.DUE], arguments))
    if not version:
        raise UnknownJob.named(job_id)
    return max(0, version)
