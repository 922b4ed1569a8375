"""Builds the `HandoffResult` of a handoff from its conversation. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from handoff_queue.shared.agent.answer_format import (
    AcceptedAnswer,
    AnswerFormat,
    InvalidAnswer,
    salvage,
)
from handoff_queue.shared.agent.conversation import Conversation
from handoff_queue.shared.agent.markdown_answer import without_notes
from handoff_queue.shared.types.checkpoints import ToolObserved
from handoff_queue.shared.types.handoff import (
    LAST_TOOL_ERROR,
    MAX_ERROR_CHARS,
    AgentHandoff,
    HandoffResult,
    ResultStatus,
    StopReason,
    build_result,
    only_announces_completion,
)
from handoff_queue.shared.types.memory_notes import (
    MAX_NOTES,
    MEMORY,
    MEMORY_FULL,
    MEMORY_REFUSED,
)
from handoff_queue.shared.types.message import describe_problems
from handoff_queue.shared.types.origins import Origin

MAX_REASON_CHARS = 240
"""Most characters of the reason of a failure that comes before the error of a tool."""
MAX_SALVAGED_CHARS = 100_000
"""Most characters of the text of a stopped handoff."""


@dataclass(frozen=True, slots=True)
class ResultBuilder:
    """Builds results of one handoff."""

    handoff: AgentHandoff
    answer_format: AnswerFormat
    origins_of: Callable[[Conversation], tuple[Origin, ...]]
    """Returns the origins of all that the handoff has seen."""

    def build_from_answer(
        self, answer: AcceptedAnswer, conversation: Conversation
    ) -> HandoffResult:
        """Return the result of an accepted answer.

        Raises:
            InvalidAnswer: the answer makes no valid `HandoffResult`. For example, its output only
                announces completion ("I completed the task").
        """
        try:
            return self._build_result(answer, conversation, StopReason.FINISHED)
        except ValidationError as error:
            raise InvalidAnswer(describe_problems(error)) from error

    def build_stopped_result(
        self, conversation: Conversation, reason: StopReason, error: str, draft: str = ""
    ) -> HandoffResult:
        """Return a `partial` result with the work so far, or a `failed` result if there is
        none.

        The work is the newest text that the answer format can salvage, else the newest prose.
        A JSON text that cannot be salvaged is not work, because a reader could not use it.

        Args:
            draft: text of a call that was cut, which is newer than the conversation.
        """
        drafts = _collect_drafts(conversation, draft)
        salvaged_result = self._salvage_draft(drafts, conversation, reason, error)
        if salvaged_result is not None:
            return salvaged_result
        for text in map(without_notes, drafts):
            if text.strip() and not text.lstrip().startswith(("{", "```")):
                prose = text[:MAX_SALVAGED_CHARS]
                answer = AcceptedAnswer(ResultStatus.PARTIAL, prose, confidence=0.0, error=error)
                return self._build_result(answer, conversation, reason)
        return self.build_failed_result(conversation, reason, error)

    def build_failed_result(
        self, conversation: Conversation, reason: StopReason, error: str
    ) -> HandoffResult:
        """Return a failed result without any work."""
        return self._build_result(
            AcceptedAnswer(ResultStatus.FAILED, None, confidence=0.0, error=error),
            conversation,
            reason,
        )

    def build_salvaged_or_failed_result(
        self, conversation: Conversation, reason: StopReason, error: str, draft: str = ""
    ) -> HandoffResult:
        """Return a `partial` result if the answer format can salvage some work, else a
        `failed` one.
        """
        drafts = _collect_drafts(conversation, draft)
        salvaged_result = self._salvage_draft(drafts, conversation, reason, error)
        if salvaged_result is not None:
            return salvaged_result
        return self.build_failed_result(conversation, reason, error)

    def _salvage_draft(
        self, drafts: list[str], conversation: Conversation, reason: StopReason, error: str
    ) -> HandoffResult | None:
        """Return a `partial` result with the newest draft that the answer format can salvage, or
        None.
        """
        for text in drafts:
            answer = salvage(self.answer_format, text)
            if answer is None or answer.output is None:
                continue
            if not only_announces_completion(answer.output):
                partial = replace(answer, status=ResultStatus.PARTIAL, error=error)
                return self._build_result(partial, conversation, reason)
        return None

    def _build_result(
        self, answer: AcceptedAnswer, conversation: Conversation, reason: StopReason
    ) -> HandoffResult:
        values: dict[str, Any] = {
            "needs": _describe_needs(answer, conversation),
            "notes": (*answer.notes, *_build_memory_notes(conversation)),
            "error": _describe_error(answer, conversation),
            "acted": conversation.has_acted or None,
            "origins": self.origins_of(conversation),
        }
        replies = conversation.replies_by_model
        if len(replies) > 1:
            values["replies_by_model"] = replies
        return build_result(
            self.handoff,
            status=answer.status,
            output=answer.output,
            claims=answer.claims,
            confidence=answer.confidence,
            usage=conversation.usage,
            turns=conversation.turns,
            stop_reason=reason,
            model=conversation.last_reply.model if conversation.last_reply else None,
            **values,
        )


def explain_decline(conversation: Conversation, words: str) -> str:
    """Return which models declined to answer, what to do, and the words of the last one."""
    names = " and ".join(conversation.declined_by)
    why = (
        f"{names} declined to answer: change the task, or use another model for the job or in"
        " the specialist's file"
    )
    if words.strip():
        why += f"; the model wrote: {words}"
    return why


MEMORY_FAULTS = {
    MEMORY_FULL: (
        f"The memory is full ({MAX_NOTES:,} notes), so a new note was not kept: remove some"
        " (handoff memory delete PATH)."
    ),
    MEMORY_REFUSED: (
        "The Redis user of the worker has no right to notes, so the memory was not used: name the"
        " folder of the specialist in HANDOFF_SPECIALISTS_DIRS, and make the users again (handoff"
        " keys init)."
    ),
}
"""Reply of the tool `memory` -> note for people."""


def _build_memory_notes(conversation: Conversation) -> tuple[str, ...]:
    """Return the note for people about the first fault of the memory; empty if there was none."""
    names = conversation.call_names
    for checkpoint in conversation.checkpoints:
        if not isinstance(checkpoint, ToolObserved) or not checkpoint.is_error:
            continue
        name = names.get(checkpoint.tool_use_id, "")
        if name.partition("#")[0] != MEMORY:
            continue
        for reply, note in MEMORY_FAULTS.items():
            if reply in checkpoint.text:
                return (note,)
    return ()


def _collect_drafts(conversation: Conversation, draft: str) -> list[str]:
    """Return the texts that may hold work, newest first: the draft, unless blank, and the
    conversation's drafts.
    """
    if draft.strip():
        return [draft, *conversation.drafts]
    return conversation.drafts


def _describe_needs(answer: AcceptedAnswer, conversation: Conversation) -> str | None:
    """Return the input that an answer asks for. The last error of a tool follows, because it may
    be the reason why the specialist asks.
    """
    if not answer.needs or answer.status is not ResultStatus.NEEDS_INPUT:
        return answer.needs
    return answer.needs + _describe_tool_error(conversation, answer.needs)


def _describe_error(answer: AcceptedAnswer, conversation: Conversation) -> str | None:
    """Return the error of an answer in one line. The error of a failure also has the last error
    of a tool, which a model may leave out.
    """
    if not answer.error:
        return None
    error = " ".join(answer.error.split())
    if answer.status is ResultStatus.FAILED:
        part = _describe_tool_error(conversation, error)
        if part:
            error = error[:MAX_REASON_CHARS] + part
    return error[:MAX_ERROR_CHARS]


def _describe_tool_error(conversation: Conversation, reason: str) -> str:
    """Return the last error of a tool as a second part of a reason. It is empty if no tool has
    failed, or if the reason has this error.
    """
    tool_error = conversation.last_tool_error
    if tool_error is None:
        return ""
    name, text = tool_error
    text = " ".join(text.split())
    if text in reason:
        return ""
    return f"; {LAST_TOOL_ERROR} {name}: {text}"[:MAX_ERROR_CHARS]
