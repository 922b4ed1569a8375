"""Checkpoints and budget of one handoff in memory.

`MemoryCheckpoints` passes the contract in `tests/contracts/test_checkpoints.py`, as the store's
`HandoffClaim` does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from handoff_queue.shared.agent.checkpoint_store import CallAnswer, CallQuestion
from handoff_queue.shared.types.checkpoints import (
    Checkpoint,
    ModelCallFailed,
    ModelReplied,
    UserPrompted,
    WorstCase,
    checkpoint_adapter,
)
from handoff_queue.shared.types.errors import (
    ApprovalAwaited,
    Interrupted,
    Level,
    LimitReached,
    MessagesWaiting,
)
from handoff_queue.shared.types.rate_limits import NO_RATE_LIMITS, ExpectedUsage, RateLimits, Wait
from tests.doubles.memory_rate_limiter import MemoryRateLimiter

NO_MORE = "the job's budget does not allow another model call"
"""The store's message."""


@dataclass(slots=True)
class MemoryCheckpoints:
    """Checkpoints as JSON in a list. If `interrupt_with` is set, every method raises it."""

    most_tokens: int | None = None
    """The job's budget in tokens."""
    most_turns: int | None = None
    is_limited_in_money: bool = False
    """True if the job has a large budget in money, which a call of unknown price never fits."""
    saved: list[str] = field(default_factory=list)
    reserved: list[WorstCase] = field(default_factory=list)
    heartbeats: list[tuple[str, str | None]] = field(default_factory=list)
    used_tokens: int = 0
    used_turns: int = 0
    interrupt_with: Interrupted | None = None
    waiting: list[str] = field(default_factory=list)
    """Kinds of the checkpoints that were stored with `deferrable`."""
    on_checkpoint: Callable[[Checkpoint], None] = lambda _checkpoint: None
    """Called before each checkpoint is stored. An exception is a crash at that point."""
    on_heartbeat: Callable[[str], None] = lambda _doing: None
    has_reserved_last: bool = False
    """True after the reservation of a call after which the agent takes no messages."""
    messages: list[UserPrompted] = field(default_factory=list)
    """Messages of users that the agent has not taken."""
    questions: dict[str, CallQuestion] = field(default_factory=dict)
    """Calls that a person was asked about, by their ids."""
    answers: dict[str, CallAnswer] = field(default_factory=dict)
    limiter: MemoryRateLimiter = field(default_factory=MemoryRateLimiter)
    """Shared by all handoffs under the same rate limits."""
    limiters: dict[str, MemoryRateLimiter] = field(default_factory=dict)
    """Limiters of single buckets. Other buckets have `limiter`."""
    admitted_by: MemoryRateLimiter | None = None
    """Limiter that has admitted the last call."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def load_earlier_checkpoints(self) -> tuple[Checkpoint, ...]:
        return tuple(checkpoint_adapter.validate_json(text) for text in self.saved)

    @property
    def has_messages(self) -> bool:
        return bool(self.messages)

    def take_messages(self, turn: int) -> tuple[UserPrompted, ...]:
        self._check()
        messages, self.messages = tuple(self.messages), []
        self.checkpoint(*messages)
        return messages

    def read_call_answers(self) -> dict[str, CallAnswer]:
        self._check()
        return dict(self.answers)

    def ask_about_calls(self, questions: Sequence[CallQuestion], wait_s: int) -> None:
        self._check()
        if any(question.call_id in self.answers for question in questions):
            return
        for question in questions:
            self.questions.setdefault(question.call_id, question)
        self.interrupt_with = ApprovalAwaited("the handoff waits for an approval")
        raise self.interrupt_with

    def reserve(
        self,
        worst: WorstCase,
        expected: ExpectedUsage | None = None,
        *,
        takes_messages: bool = False,
        is_last: bool = False,
    ) -> Wait | None:
        self._check()
        if takes_messages and self.messages:
            raise MessagesWaiting("users have sent messages")
        if self.most_turns is not None and self.used_turns >= self.most_turns:
            raise LimitReached("max_turns", NO_MORE, level=Level.JOB)
        if self.is_limited_in_money and worst.microusd is None:
            raise LimitReached("max_usd", NO_MORE, level=Level.JOB)
        if (
            self.most_tokens is not None
            and self.used_tokens + worst.input_tokens + worst.output_tokens > self.most_tokens
        ):
            raise LimitReached("max_tokens", NO_MORE, level=Level.JOB)
        if expected is not None:
            limiter = self.limiters.get(expected.bucket, self.limiter)
            if (wait := limiter.admit(id(self))) is not None:
                return wait
            self.admitted_by = limiter
        self.reserved.append(worst)
        self.has_reserved_last |= is_last
        return None

    def report_limits(self, limits: RateLimits) -> None:
        (self.admitted_by or self.limiter).report_limits(id(self), limits)

    def report_refusal(
        self, why: str, retry_after_s: float | None, limits: RateLimits = NO_RATE_LIMITS
    ) -> None:
        limiter = self.admitted_by or self.limiter
        limiter.report_refusal(id(self), why, retry_after_s, limits)

    def checkpoint(self, *checkpoints: Checkpoint, deferrable: bool = False) -> None:
        """Store the checkpoints at once, also with `deferrable`."""
        self._check()
        with self.lock:
            for checkpoint in checkpoints:
                self.on_checkpoint(checkpoint)
                if isinstance(checkpoint, ModelReplied | ModelCallFailed):
                    self.used_tokens += checkpoint.usage.total_tokens
                    self.used_turns += 1
                self.saved.append(checkpoint.to_json())
                self.waiting += [checkpoint.kind] if deferrable else []

    def heartbeat(self, doing: str, draft: str | None = None) -> None:
        self._check()
        self.heartbeats.append((doing, draft))
        self.on_heartbeat(doing)

    def reopened(self) -> MemoryCheckpoints:
        """Return the checkpoints of the same handoff under a new claim, as after a crash."""
        return MemoryCheckpoints(
            most_tokens=self.most_tokens,
            saved=list(self.saved),
            messages=list(self.messages),
            questions=dict(self.questions),
            answers=dict(self.answers),
            used_tokens=self.used_tokens,
            used_turns=self.used_turns,
        )

    def _check(self) -> None:
        if self.interrupt_with is not None:
            raise self.interrupt_with
