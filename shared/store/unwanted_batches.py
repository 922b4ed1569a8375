"""Batches of the provider whose handoffs were dropped. A supervisor cancels them. `lua/commit.lua`
writes them with the drop.
"""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection, translated_errors
from handoff_queue.shared.store.script_arguments import name_in

MAX_AT_ONCE = 100
"""Batches that one look returns."""


class UnwantedBatches:
    """The batches to cancel, of all jobs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def oldest(self) -> list[str]:
        """Return the ids of the batches that were dropped first."""
        with translated_errors():
            stored = self._connection.redis.zrange(keys.BATCHES, 0, MAX_AT_ONCE - 1)
        return [name_in(batch_id) for batch_id in stored]

    def forget(self, batch_ids: Sequence[str]) -> None:
        """Remove batches that were cancelled, or that the provider does not know."""
        if batch_ids:
            with translated_errors():
                self._connection.redis.zrem(keys.BATCHES, *batch_ids)
