"""The port to a provider's batches: calls that the provider makes within 24 hours, at half price.

`shared.providers.anthropic.batches_api.AnthropicBatches` implements it over the Message Batches
API.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from handoff_queue.shared.types.model import ModelCall, ModelReply

MAX_BATCH_S = 86_400
"""Seconds after which the provider ends a batch, by its documentation."""


class BatchStatus(StrEnum):
    """`processing_status` of a batch."""

    IN_PROGRESS = "in_progress"
    CANCELING = "canceling"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class BatchState:
    """A batch as the provider describes it. It does not name its requests."""

    batch_id: str
    status: BatchStatus
    created_at: float
    """Unix time in seconds, by the provider's clock."""
    requests: int
    """Number of its requests."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The result of one request of an ended batch."""

    reply: ModelReply | None = None
    """None: there is no reply, and the request costs nothing."""
    why: str = ""
    """Why there is no reply: `errored`, `expired` or `canceled`, and the provider's words."""


class ProviderBatches(Protocol):
    """Batches of one account. Each method makes one request, without retries, and raises
    `ModelError` if the provider gives no answer.
    """

    def create(self, custom_id: str, call: ModelCall) -> BatchState:
        """Create a batch of one call.

        Args:
            custom_id: name of the call. Its result has the same name.

        Raises:
            ModelUnreachable: the provider may have created the batch, unless the error is
                `NeverSent`.
        """
        ...

    def retrieve(self, batch_id: str) -> BatchState:
        """Return the current state of a batch."""
        ...

    def list_batches_since(self, since: float) -> Sequence[BatchState]:
        """Return all batches of the account that were created at this time or later.

        Args:
            since: Unix time in seconds.
        """
        ...

    def fetch_outcome(self, batch_id: str, custom_id: str, model: str) -> BatchOutcome | None:
        """Return the result of a request of an ended batch. None: the batch has no such request.

        Args:
            model: name of the model in the request.
        """
        ...

    def cancel(self, batch_id: str) -> None:
        """Ask the provider to end a batch. A request that the provider has begun may still get a
        reply. A batch that has ended stays as it is.
        """
        ...
