"""The port from the agent loop to the store: the checkpoints of one claimed handoff, and the
questions to a person about its tool calls.

`shared.store.claim.HandoffClaim` implements it. Unit tests use
`tests.doubles.memory_checkpoints.MemoryCheckpoints`. Both pass tests/contracts/test_checkpoints.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from handoff_queue.shared.types.checkpoints import Checkpoint, UserPrompted, WorstCase
from handoff_queue.shared.types.errors import LeaseLost
from handoff_queue.shared.types.rate_limits import NO_RATE_LIMITS, ExpectedUsage, RateLimits, Wait


@dataclass(frozen=True, slots=True)
class CallQuestion:
    """A call that needs a person's approval."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    input_schema: Mapping[str, Any]
    """The JSON Schema of the tool's arguments."""
    why: str
    """Reason of the question, in words of our code."""
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Origins of the texts that contain each argument."""


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """A person's answer, or the default answer after a time limit."""

    is_approved: bool
    note: str | None = None
    arguments: Mapping[str, Any] | None = None
    """Arguments that replace the model's own; None: the call keeps them."""


class CheckpointStore(Protocol):
    """The checkpoints and the budget of one claimed handoff. `reserve`, `checkpoint` and
    `heartbeat` raise `Interrupted` if this process has lost the claim.
    """

    def load_earlier_checkpoints(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of earlier claims of this handoff, oldest first."""
        ...

    @property
    def has_messages(self) -> bool:
        """Return whether the store has reported messages of users that the agent has not taken."""
        ...

    def reserve(
        self,
        worst: WorstCase,
        expected: ExpectedUsage | None = None,
        *,
        takes_messages: bool = False,
        is_last: bool = False,
    ) -> Wait | None:
        """Reserve the budget of a model call. This waits while open reservations of the job
        hold the budget that the call needs.

        Args:
            worst: upper bound of the call.
            expected: expected share of the rate limits; None if there are no rate limits.
            takes_messages: True if the agent takes messages of users before this call.
            is_last: True if the agent takes no messages after this call.

        Returns:
            None if the call may be made. A `Wait` if the provider's rate limits refuse the call:
            then nothing is reserved, and the caller asks again later.

        Raises:
            LimitReached: the budget does not allow the call, or the time ran out while this
                waited. `limit` names the limit.
            MessagesWaiting: the agent must first take messages of users; nothing is reserved.
        """
        ...

    def report_limits(self, limits: RateLimits) -> None:
        """Record that the provider has accepted the last reserved call, and the rate limits
        that it reported.
        """
        ...

    def report_refusal(
        self, why: str, retry_after_s: float | None, limits: RateLimits = NO_RATE_LIMITS
    ) -> None:
        """Record that the provider takes no calls now (429, 529). No process calls this
        provider again until `retry_after_s` is over.

        Args:
            why: short reason for a progress line.
            retry_after_s: seconds that the provider asked for; None: an exponential backoff.
            limits: the rate limits that the provider reported with the refusal.
        """
        ...

    def checkpoint(self, *checkpoints: Checkpoint, deferrable: bool = False) -> None:
        """Append checkpoints. A `ModelReplied` or `ModelCallFailed` settles the reservation at
        its usage.

        Args:
            deferrable: True if the checkpoints may be stored together with the next message about
                this handoff, such as its result.
        """
        ...

    def take_messages(self, turn: int) -> tuple[UserPrompted, ...]:
        """Take the messages that users have sent to the agent, oldest first. They are stored
        as checkpoints, and the journal gets an event for each, in one step.

        Args:
            turn: turn of the handoff that begins with the messages.
        """
        ...

    def read_call_answers(self) -> Mapping[str, CallAnswer]:
        """Return the answers to questions about calls of this handoff, by the id of the call."""
        ...

    def ask_about_calls(self, questions: Sequence[CallQuestion], wait_s: int) -> None:
        """Ask a person about calls, and end the claim. The handoff waits in the store. If a
        call has an answer by now, the claim stays, and nothing is asked.

        Args:
            wait_s: longest wait for an answer in seconds.

        Raises:
            ApprovalAwaited: the questions are stored, and the claim has ended.
        """
        ...

    def heartbeat(self, doing: str, draft: str | None = None) -> None:
        """Send a heartbeat: the current activity in a few words, and the draft so far, if any.

        A new activity or draft is sent if the last heartbeat is at least 0.4 s old. An
        unchanged activity, or a wait with another number of seconds, is sent after 2 s.

        Raises:
            Interrupted: this process must stop its work on the handoff.
        """
        ...


class NoCheckpoints:
    """The checkpoint store of a handoff before its claim. It is empty and raises `LeaseLost`
    on each write.
    """

    def load_earlier_checkpoints(self) -> tuple[Checkpoint, ...]:
        return ()

    @property
    def has_messages(self) -> bool:
        return False

    def reserve(
        self,
        worst: WorstCase,
        expected: ExpectedUsage | None = None,
        *,
        takes_messages: bool = False,
        is_last: bool = False,
    ) -> Wait | None:
        self._refuse(worst, expected, takes_messages, is_last)

    def take_messages(self, turn: int) -> tuple[UserPrompted, ...]:
        self._refuse(turn)

    def read_call_answers(self) -> Mapping[str, CallAnswer]:
        self._refuse()

    def ask_about_calls(self, questions: Sequence[CallQuestion], wait_s: int) -> None:
        self._refuse(questions, wait_s)

    def report_limits(self, limits: RateLimits) -> None:
        self._refuse(limits)

    def report_refusal(
        self, why: str, retry_after_s: float | None, limits: RateLimits = NO_RATE_LIMITS
    ) -> None:
        self._refuse(why, retry_after_s, limits)

    def checkpoint(self, *checkpoints: Checkpoint, deferrable: bool = False) -> None:
        self._refuse(checkpoints, deferrable)

    def heartbeat(self, doing: str, draft: str | None = None) -> None:
        self._refuse(doing, draft)

    def _refuse(self, *_: object) -> NoReturn:
        raise LeaseLost("this handoff has not been claimed")
