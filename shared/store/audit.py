"""The audit stream: actions of users on the fleet, and deletions of jobs. The journal of a job
holds the other actions on the job.
"""

from __future__ import annotations

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection, translated_errors
from handoff_queue.shared.store.script_arguments import read_entries
from handoff_queue.shared.types.access import AuditAction, AuditEntry

MIN_KEPT = 100_000
"""Entries that Redis keeps at least; it drops older entries in blocks. With 300 bytes for an
entry, the stream needs 30 MB.
"""
MIN_REFUSALS = 10_000
"""Refusals that Redis keeps at least. They have their own stream: a worker that was taken over can
cause any number of refusals, and would remove the actions of users.
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
        key, least = keys.AUDIT, MIN_KEPT
        if entry.action is AuditAction.REFUSE:
            key, least = keys.AUDIT_REFUSALS, MIN_REFUSALS
        with translated_errors():
            self._connection.redis.xadd(
                key, {_ENTRY: entry.to_json()}, maxlen=least, approximate=True
            )

    def newest(self, count: int) -> list[AuditEntry]:
        """Return the newest entries, the newest last. An entry that this version cannot read is
        skipped.

        Args:
            count: most actions, and most refusals. So many refusals hide no action.
        """
        with translated_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.xrevrange(keys.AUDIT, count=count)
            pipe.xrevrange(keys.AUDIT_REFUSALS, count=count)
            actions, refusals = pipe.execute()
        stored = sorted([*actions, *refusals], key=_place)
        texts = [fields.get(_ENTRY, b"") for _, fields in stored]
        return read_entries(texts, AuditEntry.from_json, keys.AUDIT)


def _place(entry: tuple[bytes, dict[bytes, bytes]]) -> tuple[int, int]:
    """Return the time of an entry in Unix ms by Redis's clock, and its number in this ms."""
    ms, _, number = entry[0].partition(b"-")
    return int(ms), int(number)
