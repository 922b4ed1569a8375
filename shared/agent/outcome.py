"""The `HandoffResult` of a handoff's conversation. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from handoff_queue.shared.agent.answer_format import (
    AcceptedAnswer,
    AnswerFormat,
    InvalidAnswer,
    PartialAnswerFormat,
)
from handoff_queue.shared.agent.conversation import Conversation
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    HandoffResult,
    ResultStatus,
    StopReason,
    result_of,
    says_only_that_it_is_done,
)
from handoff_queue.shared.types.message import problems_of

MOST_ERROR_CHARS = 500
MOST_SALVAGED_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class ResultBuilder:
    """Builds results of one handoff."""

    handoff: AgentHandoff
    reading: AnswerFormat

    def accepted(self, read: AcceptedAnswer, talk: Conversation) -> HandoffResult:
        """Return the result of a text that the answer format took.

        Raises:
            InvalidAnswer: the text only announces completion ("I completed the task").
        """
        try:
            return self._result(read, talk, StopReason.FINISHED)
        except ValidationError as error:
            raise InvalidAnswer(problems_of(error)) from error

    def stopped(
        self, talk: Conversation, reason: StopReason, error: str, draft: str = ""
    ) -> HandoffResult:
        """Return the work so far as `partial`, or `failed` if there is none.

        The work is the newest text that the answer format can salvage, else the newest prose. A
        JSON text that cannot be salvaged is not work, because a reader could not use it.
        """
        drafts = _drafts(talk, draft)
        salvaged = self._salvaged(drafts, talk, reason, error)
        prose = None
        for text in drafts:
            if not text.lstrip().startswith(("{", "```")):
                prose = text
                break
        if salvaged or prose is None:
            return salvaged or self.failed(talk, reason, error)
        return self._result(
            AcceptedAnswer(
                ResultStatus.PARTIAL, prose[:MOST_SALVAGED_CHARS], confidence=0.0, error=error
            ),
            talk,
            reason,
        )

    def failed(self, talk: Conversation, reason: StopReason, error: str) -> HandoffResult:
        """Return a failed result without any work."""
        return self._result(
            AcceptedAnswer(ResultStatus.FAILED, None, confidence=0.0, error=error), talk, reason
        )

    def stopped_or_failed(
        self, talk: Conversation, reason: StopReason, error: str, draft: str = ""
    ) -> HandoffResult:
        """Return a `partial` result if the answer format can salvage some work, else a `failed`
        one.
        """
        return self._salvaged(_drafts(talk, draft), talk, reason, error) or self.failed(
            talk, reason, error
        )

    def _salvaged(
        self, drafts: list[str], talk: Conversation, reason: StopReason, error: str
    ) -> HandoffResult | None:
        if not isinstance(self.reading, PartialAnswerFormat):
            return None
        for text in drafts:
            read = self.reading.salvage(text)
            if (
                read is not None
                and read.output is not None
                and not says_only_that_it_is_done(read.output)
            ):
                return self._result(_stopped(read, error), talk, reason)
        return None

    def _result(
        self, read: AcceptedAnswer, talk: Conversation, reason: StopReason
    ) -> HandoffResult:
        values: dict[str, Any] = {
            "needs": read.needs,
            "notes": read.notes,
            "error": _short(read.error),
            "acted": talk.acted or None,
        }
        return result_of(
            self.handoff,
            status=read.status,
            output=read.output,
            claims=read.claims,
            confidence=read.confidence,
            usage=talk.usage,
            turns=talk.turns,
            stop_reason=reason,
            model=talk.last_reply.model if talk.last_reply else None,
            **values,
        )


def _drafts(talk: Conversation, draft: str) -> list[str]:
    drafts: list[str] = []
    for text in (draft, *talk.drafts):
        if text.strip():
            drafts.append(text)
    return drafts


def _stopped(read: AcceptedAnswer, error: str) -> AcceptedAnswer:
    return AcceptedAnswer(
        ResultStatus.PARTIAL,
        read.output,
        read.claims,
        read.confidence,
        read.needs,
        error,
        read.notes,
    )


def _short(error: str | None) -> str | None:
    if error:
        return " ".join(error.split())[:MOST_ERROR_CHARS]
    return None
