"""Where a chord's parts are counted: in the ledger, with the results that they are (docs/decisions/0018-parts-are-results.md).

Celery's own count is a second book of the same thing, kept by a script and up to five commands for each part, and what one book has and the
other lacks has to be found by the sweeper. So whoever ends the last part of a chord is told so by `finish`, and sends its body.
"""

from __future__ import annotations

from typing import Any

from celery.backends.redis import RedisBackend, SentinelBackend

from handoff_queue.shared.broker.publisher import message_in, publish
from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.store.redis.tls import share_contexts

log = log_of(__name__)


def tell_parts_left(task: Any, parts_left: int) -> None:
    """To the backend, when this task has ended: how many of its chord are still out."""
    task.request.parts_left = parts_left


class LedgerBackend(RedisBackend):  # type: ignore[misc]
    """For redis:// and rediss://."""

    def _get_pool(self, **params: Any) -> Any:
        pool = super()._get_pool(**params)
        share_contexts(pool)
        return pool

    def on_chord_part_return(self, request: Any, *_of_its_result: Any, **_rest: Any) -> None:
        """Sends the body behind the last part. If it cannot: the ledger knows that all parts are done, and the sweeper wakes the job."""
        if getattr(request, "parts_left", None) != 0:
            return
        try:
            publish(self.app, message_in(request.chord))
        except Exception:  # a chord that was tampered with, or whatever the broker's client raises: the part is done all the same
            log.exception("chord's body not sent", group=request.group)


class SentinelLedgerBackend(LedgerBackend, SentinelBackend):  # type: ignore[misc]
    """For sentinel://."""
