"""The audit stream: actions of users on the fleet, and deletions of jobs. The journal of a job
holds the other actions on the job.
"""

from __future__ import annotations

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection, translated_errors
from handoff_queue.shared.store.script_arguments import read_entries
from handoff_queue.shared.types.access import AuditEntry

LEAST_KEPT = 100_000
"""Entries that Redis keeps at least; it drops older entries in blocks. With 300 bytes for an
entry, the stream needs 30 MB.
"""
_ENTRY = b"e"


class Audit:
    """The audit stream in the store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, entry: AuditEntry) -> None:
        """Append an entry.

        Raises:
            StoreRefusesWrites: Redis is full or read-only.
        """
        with translated_errors():
            self._connection.redis.xadd(
                keys.AUDIT, {_ENTRY: entry.to_json()}, maxlen=LEAST_KEPT, approximate=True
            )

    def newest(self, count: int) -> list[AuditEntry]:
        """Return the newest entries, the newest last. An entry that this version cannot read is
        skipped.
        """
        with translated_errors():
            stored = self._connection.redis.xrevrange(keys.AUDIT, count=count)
        texts = [fields.get(_ENTRY, b"") for _, fields in reversed(stored)]
        return read_entries(texts, AuditEntry.from_json, keys.AUDIT)
