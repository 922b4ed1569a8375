"""What the loop needs of the ledger: the checkpoints of one claimed handoff. Implemented by `shared.ledger.claims.Claim`
and, in unit tests, by `tests.doubles.turns.MemoryTurns`; both pass tests/contracts/test_turns.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, TypeAdapter

from shared.wire.errors import LeaseLost
from shared.wire.message import Message
from shared.wire.usage import Usage


class Replied(Message):
    """A paid reply of the model."""

    kind: Literal["replied"] = "replied"
    content: tuple[dict[str, Any], ...]
    stop_reason: str
    usage: Usage
    model: str


class Observed(Message):
    """The result of one tool call."""

    kind: Literal["observed"] = "observed"
    tool_use_id: str
    text: str
    is_error: bool = False


class Prompted(Message):
    """What our own code told the model between turns: what to repair, that the last turn has come."""

    kind: Literal["prompted"] = "prompted"
    text: str


class Called(Message):
    """A tool that is not safe to repeat is about to run."""

    kind: Literal["called"] = "called"
    tool_use_id: str


class CallFailed(Message):
    """A model call that gave no reply; it was a turn all the same."""

    kind: Literal["call_failed"] = "call_failed"
    error: str
    usage: Usage


Checkpoint = Annotated[Replied | Observed | Prompted | Called | CallFailed, Field(discriminator="kind")]
checkpoint_adapter: TypeAdapter[Checkpoint] = TypeAdapter(Checkpoint)


@dataclass(frozen=True, slots=True)
class WorstCase:
    """The most that one model call can use: reserved before it, settled after it. Whole tokens, micro-dollars."""

    input_tokens: int
    output_tokens: int
    microusd: int | None
    """None: the price is not known."""


class Turns(Protocol):
    """The checkpoints and the budget of one claimed handoff. Every method raises `Interrupted` if the claim is no longer ours."""

    def so_far(self) -> tuple[Checkpoint, ...]:
        """What earlier claims of this handoff have checkpointed, oldest first."""
        ...

    def reserve(self, worst: WorstCase) -> None:
        """Before a model call. Waits while other reservations of the job are out.

        Raises:
            LimitReached: the job's budget can never take this call; `limit` names it.
        """
        ...

    def checkpoint(self, *checkpoints: Checkpoint) -> None:
        """Append. A `Replied` or `CallFailed` settles the reservation at its usage."""
        ...

    def beat(self, doing: str, draft: str | None = None) -> None:
        """A sign of life: what goes on right now, in a few words; at most sent on twice a second. Raises if interrupted."""
        ...


class Unclaimed:
    """The turns of a handoff before its claim: there are none, and none may be made."""

    def so_far(self) -> tuple[Checkpoint, ...]:
        return ()

    def reserve(self, worst: WorstCase) -> None:
        self._refuse(worst)

    def checkpoint(self, *checkpoints: Checkpoint) -> None:
        self._refuse(checkpoints)

    def beat(self, doing: str, draft: str | None = None) -> None:
        self._refuse(doing, draft)

    def _refuse(self, *_: object) -> None:
        raise LeaseLost("this handoff has not been claimed")
