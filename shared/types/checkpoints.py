"""The stored checkpoints of a handoff, which are the parts of its conversation with the model,
and the upper bound of one call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, TypeAdapter

from handoff_queue.shared.types.ids import MessageIdField
from handoff_queue.shared.types.message import NO_PAYLOAD_IN_ERRORS, Message, OmitNone
from handoff_queue.shared.types.origins import Origins
from handoff_queue.shared.types.usage import Usage


class ModelReplied(Message):
    """A paid reply of the model."""

    kind: Literal["replied"] = "replied"
    content: tuple[dict[str, Any], ...]
    stop_reason: str
    usage: Usage
    model: str
    """Name of the model in the server's answer."""
    requested_model: Annotated[str | None, OmitNone] = None
    """Name of the model in the request; None: the handoff has only one model."""
    batch_id: Annotated[str | None, OmitNone] = None
    """The batch that gave the reply; None: a live call."""

    def is_from_another(self, model: str) -> bool:
        """Return whether another model than this one wrote the reply."""
        return self.requested_model not in (None, model)


class ObservedImage(Message):
    """An image that a tool returned."""

    media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
    data: str
    """Base64."""


class NoResult(StrEnum):
    """Why a call has a line of the agent loop in place of a result of its tool."""

    CUT_CALL = "cut_call"
    """The reply was cut off within the call."""
    MAY_HAVE_RUN = "may_have_run"
    """The call was interrupted, and is not safe to repeat."""
    TOO_MANY_CALLS = "too_many_calls"
    NOTHING_DONE = "nothing_done"
    """A message to the model, which follows, says why."""
    NO_TURNS_LEFT = "no_turns_left"
    SAME_CALL = "same_call"
    """Requests show the result of an equal call."""
    SAME_RESULT = "same_result"
    """The call has run, and requests show its result already."""


class ToolObserved(Message):
    """The result of one tool call."""

    kind: Literal["observed"] = "observed"
    tool_use_id: str
    text: str
    is_error: bool = False
    images: Annotated[tuple[ObservedImage, ...] | None, OmitNone] = None
    """Images that follow the text; None: there are no images."""
    source: Annotated[str | None, OmitNone] = None
    """Name under which an answer may cite the text; None: an answer may not cite it."""
    origins: Annotated[Origins | None, OmitNone] = None
    """Origins of the text; None: unknown."""
    no_result: Annotated[NoResult | None, OmitNone] = None
    """Why the text is a line of the agent loop; None: the call has a result."""


class PromptReason(StrEnum):
    """Why the agent loop writes to the model."""

    LAST_TURN = "last_turn"
    """The model can call no more tools."""
    EMPTY_ANSWER = "empty_answer"
    INVALID_ANSWER = "invalid_answer"
    LONG_ANSWER = "long_answer"
    """The answer was cut off at its length limit."""
    SUMMARY = "summary"
    """A summary must replace the earlier turns."""


class AgentPrompted(Message):
    """A message from the agent loop to the model between turns."""

    kind: Literal["prompted"] = "prompted"
    reason: PromptReason
    text: str


class UserPrompted(Message):
    """A message of the user who runs the job. The agent took it between two turns."""

    kind: Literal["user_prompted"] = "user_prompted"
    message_id: MessageIdField
    text: str


class ToolCallStarted(Message):
    """A tool that is not safe to repeat is about to run."""

    kind: Literal["called"] = "called"
    tool_use_id: str


class ContextCleared(Message):
    """Results of calls that later requests no longer show. A short note is in their place, and
    `read_result` shows such a result again.
    """

    kind: Literal["cleared"] = "cleared"
    tool_use_ids: tuple[str, ...]
    tokens: NonNegativeInt
    """Estimated tokens of these results."""
    by_provider: Annotated[bool | None, OmitNone] = None
    """True if the provider cleared them from the request before. The tokens are its count."""


class CitedQuote(Message):
    """A passage and the name of the source in which code has found it."""

    source: str
    quote: str


class ContextCompacted(Message):
    """A summary by the model, in place of all earlier turns in later requests. The opening message
    and the messages of users stay.
    """

    kind: Literal["compacted"] = "compacted"
    summary: str
    quotes: tuple[CitedQuote, ...] = ()
    """Quotes that the model has written so far, and that are in their sources."""
    results: tuple[str, ...] = ()
    """Names of results that `read_result` shows again, such as `look#1 to look#9`."""
    documents: tuple[str, ...] = ()
    """Documents that the model has opened."""
    tool_use_ids: tuple[str, ...]
    """Calls whose results later requests no longer show."""
    tokens: NonNegativeInt
    """Estimated tokens of the turns that are left out."""
    by_provider: Annotated[bool | None, OmitNone] = None
    """True if the provider wrote the summary. The last reply then has its signed block."""


class ModelCallFailed(Message):
    """A model call that gave no reply. It counts as a turn."""

    kind: Literal["call_failed"] = "call_failed"
    error: str
    usage: Usage
    requested_model: Annotated[str | None, OmitNone] = None
    """Name of the model in the request; None: the handoff has only one model."""
    rules_out: Annotated[bool | None, OmitNone] = None
    """True if this model serves no further turn of the handoff."""
    declined: Annotated[bool | None, OmitNone] = None
    """True if this model declined to answer, and another one may answer."""


class BatchIntended(Message):
    """The next model call goes into a batch of the provider. The batch is created after this
    checkpoint. `ModelReplied`, `ModelCallFailed` or `BatchClosed` ends the call.
    """

    kind: Literal["batch_intended"] = "batch_intended"
    custom_id: str
    """Our own name of the call, which the result of the batch has, too."""
    model: str
    """Name of the model in the request."""
    at: float
    """Unix time in seconds, by Redis's clock."""
    most: Usage
    """Upper bound of the call at the price of a live call."""


class BatchCreated(Message):
    """The provider has created the batch of the call that the last `BatchIntended` names."""

    kind: Literal["batch_created"] = "batch_created"
    custom_id: str
    batch_id: str
    at: float
    """Unix time in seconds, by Redis's clock."""


class BatchClosed(Message):
    """The batch of a call gave no reply, and cost nothing. It does not count as a turn."""

    kind: Literal["batch_closed"] = "batch_closed"
    custom_id: str
    why: str
    goes_live: bool
    """True if the turn is made by a live call. False: another batch may be created."""


Checkpoint = Annotated[
    ModelReplied
    | ToolObserved
    | AgentPrompted
    | UserPrompted
    | ToolCallStarted
    | ContextCleared
    | ContextCompacted
    | ModelCallFailed
    | BatchIntended
    | BatchCreated
    | BatchClosed,
    Field(discriminator="kind"),
]
checkpoint_adapter: TypeAdapter[Checkpoint] = TypeAdapter(Checkpoint, config=NO_PAYLOAD_IN_ERRORS)


@dataclass(frozen=True, slots=True)
class WorstCase:
    """Upper bound of one model call: whole tokens and micro-dollars. The store reserves it
    before the call.
    """

    input_tokens: int
    output_tokens: int
    microusd: int | None
    """None if the price is unknown."""
    model: str = field(default="", compare=False)
    """Model of the call, for the metrics."""
    is_batched: bool = field(default=False, compare=False)
    """True if the call goes into a batch. Its reservation stays while no process has the claim."""
    own_microusd: int | None = field(default=None, compare=False)
    """The bound at the price of the called model, if `microusd` has the price of a dearer model of
    the handoff. A call that was cut off counts with it. None: it is `microusd`.
    """
