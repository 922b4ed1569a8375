"""Answers of a person to questions about calls of tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.store.tool_call_approvals import answer_call
from handoff_queue.shared.text.unicode_text import has_lone_surrogate
from handoff_queue.shared.types.errors import StoreError, StoreUnavailable, UserError
from handoff_queue.shared.types.events import (
    AnsweredCall,
    ApprovalAsked,
    Approved,
    CallInQuestion,
    RecordedEvent,
    Rejected,
)
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.lifecycle.reduce import fold

MAX_ARGUMENT_CHARS = 200_000
"""Most characters of the arguments that a person gives, as JSON."""


@dataclass(frozen=True, slots=True)
class QuestionAboutCall:
    """A question about the call of a tool."""

    job_id: JobId
    version: int
    call: CallInQuestion

    @property
    def reference(self) -> AnsweredCall:
        """Return the call as an answer names it."""
        return AnsweredCall(handoff_id=self.call.handoff_id, call_id=self.call.call_id)


def describe_subject(approval: Mapping[str, Any]) -> str:
    """Return the subject of an entry of `JobResult.approvals` in words, such as `the plan` or `a
    call of send_mail`.
    """
    if call := approval.get("call"):
        return f"a call of {call['tool']}"
    return f"the {approval['what']}"


def find_question_about_call(
    job_id: JobId, events: Sequence[RecordedEvent], question_version: int | None
) -> QuestionAboutCall | None:
    """Return the question about a call that an answer is for. None: the answer is for a question
    about something else, or for no question.

    Args:
        question_version: the version of the question; None: the only open question.

    Raises:
        UserError: several questions about calls are open, and `question_version` names none.
    """
    if question_version is None:
        state = fold(job_id, None, events)
        if state is None or state.question is not None or not state.open_calls:
            return None
        if len(state.open_calls) > 1:
            open_calls = ", ".join(f"{call.version} ({call.tool})" for call in state.open_calls)
            raise UserError(
                f"{job_id} waits for approvals of {len(state.open_calls)} calls: name one of the"
                f" questions {open_calls} (--question N)"
            )
        question_version = state.open_calls[0].version
    for recorded in events:
        if recorded.version == question_version and isinstance(recorded.event, ApprovalAsked):
            call = recorded.event.call
            return QuestionAboutCall(job_id, question_version, call) if call else None
    return None


def refuse_parts(question: QuestionAboutCall, parts: dict[str, object]) -> None:
    """Check that an answer about a call names nothing that a call does not have.

    Args:
        parts: the given parts by their names.

    Raises:
        UserError: a part is given.
    """
    given_parts = [name for name, part in parts.items() if part]
    if given_parts:
        raise UserError(
            f"question {question.version} of {question.job_id} is about a call of"
            f" {question.call.tool}: leave out {', '.join(given_parts)}"
        )


def format_arguments(store: Store, question: QuestionAboutCall, arguments: JsonValue) -> str:
    """Return the edited arguments of a call as JSON.

    Raises:
        UserError: the arguments do not match the tool's schema, or are too long.
    """
    tool, digest = question.call.tool, question.call.input_schema.digest
    if not isinstance(arguments, dict):
        raise UserError(
            f'the arguments of {tool} must be a JSON object such as {{"name": "value"}}, not'
            f" {json.dumps(arguments):.80}"
        )
    text = json.dumps(arguments, ensure_ascii=False)
    if len(text) > MAX_ARGUMENT_CHARS or has_lone_surrogate(text):
        raise UserError(
            f"the arguments of {tool} have {len(text):,} characters, or are not valid text: write"
            f" at most {MAX_ARGUMENT_CHARS:,} characters"
        )
    try:
        schema = json.loads(store.payloads.get(question.job_id, [digest])[digest])
    except StoreUnavailable:
        raise
    except (StoreError, ValueError, RecursionError):  # a worker that was taken over wrote it
        raise UserError(
            f"the schema of {tool} cannot be read: reject the call, or approve it as it is"
        ) from None
    # imported here, because jsonschema takes as long to import as the other modules together
    from handoff_queue.shared.agent.json_schema_validation import BrokenSchema, find_problem

    try:
        problem = find_problem(arguments, schema)
    except BrokenSchema as error:
        problem = str(error)
    if problem:
        raise UserError(
            f"the arguments do not match {tool}: {' '.join(problem.split())[:500]}: correct them"
            " (--arguments)"
        )
    return text


def send_answer(
    store: Store, question: QuestionAboutCall, answer: Approved | Rejected, texts: Sequence[str]
) -> None:
    """Append the answer to a question about a call.

    Raises:
        UserError: the question is not open any more. The answer has no effect.
    """
    if not answer_call(
        store.connection, store.trust, question.job_id, answer, question.call.handoff_id, texts
    ):
        raise UserError(
            f"{question.job_id} does not ask question {question.version} any more: another person"
            " has answered, the time for an answer has ended, or the call is no longer needed",
            command=f"handoff show {question.job_id}",
        )
