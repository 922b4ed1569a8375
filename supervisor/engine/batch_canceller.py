"""Cancels batches of the provider that no job needs any more. Their handoffs were dropped, because
the job was cancelled, or because its time was over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.store.due_work import UnwantedBatches
from handoff_queue.shared.types.batches import Batches
from handoff_queue.shared.types.errors import HandoffError, ModelError

log = log_of(__name__)


class BatchCanceller:
    """Cancels unwanted batches in a thread, because a request to the provider may take a minute."""

    def __init__(self, unwanted: UnwantedBatches, batches: Callable[[], Batches | None]) -> None:
        """Make the canceller.

        Args:
            batches: returns the batches of the account. None: there are none.
        """
        self._unwanted = unwanted
        self._batches = batches
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Cancel the unwanted batches, unless the thread of an earlier call still runs.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        if self._thread is not None and self._thread.is_alive():
            return
        if batch_ids := self._unwanted.oldest():
            self._thread = threading.Thread(
                target=self._cancel, args=(batch_ids,), name="batches", daemon=True
            )
            self._thread.start()

    def wait(self) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None:
            self._thread.join()

    def _cancel(self, batch_ids: list[str]) -> None:
        """Cancel the batches, and forget them. A batch without an answer is tried again later."""
        try:
            batches, done = self._batches(), list[str]()
            for batch_id in batch_ids:
                if batches is None or self._is_over(batches, batch_id):
                    done.append(batch_id)
            self._unwanted.forget(done)
        except HandoffError as error:
            log.warning("batches not cancelled", why=str(error))

    def _is_over(self, batches: Batches, batch_id: str) -> bool:
        """Cancel a batch. Return False if another try may help."""
        try:
            batches.cancel(batch_id)
        except ModelError as error:
            log.warning("batch not cancelled", batch=batch_id, why=str(error))
            return not error.retryable
        log.info("batch cancelled", batch=batch_id)
        return True
