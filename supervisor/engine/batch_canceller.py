"""Cancels batches of the provider that no job needs any more, and settles the reservations of their
calls. Their handoffs were dropped, because the job was cancelled, or because its time was over. Or
they have ended for another reason, for example because their process died too often.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from handoff_queue.shared.agent.call_usage import is_reported
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.observability.failpoints import run_between
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.store.due_work import UnwantedBatch, UnwantedBatches
from handoff_queue.shared.types.batches import BatchStatus, ProviderBatches
from handoff_queue.shared.types.errors import HandoffError, ModelError, ModelUnreachable
from handoff_queue.shared.types.usage import NOTHING_USED, Usage

log = get_log(__name__)


class BatchCanceller:
    """Cancels unwanted batches in a thread, because a request to the provider may take a minute."""

    def __init__(
        self,
        unwanted_batches: UnwantedBatches,
        batches: Callable[[], ProviderBatches | None],
        prices: Prices,
    ) -> None:
        """Make the canceller.

        Args:
            batches: returns the batches of the account. None: there are none.
        """
        self._unwanted = unwanted_batches
        self._batches = batches
        self._prices = prices
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Cancel the unwanted batches, unless the thread of an earlier call still runs.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        if self._thread is not None and self._thread.is_alive():
            return
        if unwanted_batches := self._unwanted.list_oldest():
            self._thread = threading.Thread(
                target=self._cancel, args=(unwanted_batches,), name="batches", daemon=True
            )
            self._thread.start()

    def wait(self) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None:
            self._thread.join()

    def _cancel(self, unwanted_batches: list[UnwantedBatch]) -> None:
        """Cancel the batches, and settle the calls of ended batches. The next call of `start`
        asks again about the other batches.
        """
        try:
            batches = self._batches()
            for batch in unwanted_batches:
                if batches is None:
                    self._unwanted.settle(batch, None)
                else:
                    self._advance(batches, batch)
        except HandoffError as error:
            log.warning("the unwanted batches could not be cancelled", why=str(error))

    def _advance(self, batches: ProviderBatches, batch: UnwantedBatch) -> None:
        """Cancel a batch that has not ended. Settle the call of a batch that has ended, or about
        which the provider will give no answer.
        """
        try:
            status = batches.retrieve(batch.batch_id).status
            if status is BatchStatus.ENDED:
                self._unwanted.settle(batch, self._fetch_usage(batches, batch))
                return
            if status is BatchStatus.IN_PROGRESS:
                run_between(
                    "batch", "cancel", lambda: batches.cancel(batch.batch_id), ModelUnreachable
                )
                log.info("a batch was cancelled", batch=batch.batch_id)
        except ModelError as error:
            log.warning(
                "the provider does not answer about an unwanted batch",
                batch=batch.batch_id,
                why=str(error),
            )
            if not error.retryable:
                self._unwanted.settle(batch, None)
                return
        self._unwanted.postpone(batch)

    def _fetch_usage(self, batches: ProviderBatches, batch: UnwantedBatch) -> Usage | None:
        """Return the usage of the call in an ended batch; None: it is not known. A call without a
        reply costs nothing.
        """
        outcome = batches.fetch_outcome(batch.batch_id, batch.custom_id, batch.model)
        if outcome is None:
            return None
        if outcome.reply is None:
            return NOTHING_USED
        if not is_reported(outcome.reply):
            return None
        return self._prices.add_batch_cost(outcome.reply.usage, batch.model)
