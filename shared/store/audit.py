"""The audit stream: actions of users on the fleet, deletions of jobs, and refusals of Redis and
of workers. The journal of a job holds the other actions on the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import parse_name, read_entries
from handoff_queue.shared.types.audit import AuditAction, AuditEntry
from handoff_queue.shared.types.message import compute_digest

MIN_KEPT = 100_000
"""Entries that Redis keeps at least; it drops older entries in blocks. With 300 bytes for an
entry, the stream needs 30 MB.
"""
MIN_REFUSALS = 10_000
"""Refusals that Redis keeps at least in each stream. The reports of workers have one stream, and
the refused commands of each Redis user another one. A worker that was taken over can cause any
number of refusals, and would remove the actions of users and the refusals of other users.
"""
MIN_OF_CALLER = 10_000
"""Entries that Redis keeps at least for each caller of the HTTP API and the console. A token of a
tenant can cause any number of actions, and would remove the actions of others.
"""
_ENTRY = b"e"
USER_FIELD = b"user:"
"""Beginning of the fields of `keys.REFUSED_COMMANDS` with the names of Redis users."""


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
        caller = _get_caller(entry)
        if entry.action is AuditAction.REFUSE:
            key, least = keys.AUDIT_REFUSALS, MIN_REFUSALS
        elif caller:
            key, least = keys.audit_of(caller), MIN_OF_CALLER
        with self._connection.translate_errors():
            if caller:
                self._connection.redis.sadd(keys.AUDIT_CALLERS, caller)
            self._connection.redis.xadd(
                key, {_ENTRY: entry.to_json()}, maxlen=least, approximate=True
            )

    def add_refusals(self, entries: Sequence[AuditEntry]) -> None:
        """Append refusals that workers have reported, in one round trip."""
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for entry in entries:
                pipe.xadd(
                    keys.AUDIT_REFUSALS,
                    {_ENTRY: entry.to_json()},
                    maxlen=MIN_REFUSALS,
                    approximate=True,
                )
            pipe.execute()

    def list_newest(self, count: int) -> list[AuditEntry]:
        """Return the newest entries, the newest last. An entry that this version cannot read is
        skipped.

        Args:
            count: most actions, and most refusals. So many refusals hide no action.
        """
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.smembers(keys.AUDIT_CALLERS)
            pipe.hkeys(keys.REFUSED_COMMANDS)
            callers, fields_of_state = pipe.execute()
            streams = [keys.AUDIT, *(keys.audit_of(caller.decode()) for caller in sorted(callers))]
            refusing = [keys.AUDIT_REFUSALS]
            for field in sorted(fields_of_state):
                if field.startswith(USER_FIELD):
                    refusing.append(keys.audit_refusals_of(parse_name(field[len(USER_FIELD) :])))
            for stream in (*streams, *refusing):
                pipe.xrevrange(stream, count=count)
            parts = pipe.execute()
        actions = sorted(chain.from_iterable(parts[: len(streams)]), key=_get_place)
        refusals = sorted(chain.from_iterable(parts[len(streams) :]), key=_get_place)
        entries = sorted([*actions[-count:], *refusals[-count:]], key=_get_place)
        texts = [fields.get(_ENTRY, b"") for _, fields in entries]
        return read_entries(texts, AuditEntry.from_json, keys.AUDIT)


def _get_caller(entry: AuditEntry) -> str:
    """Return the name of the caller's own stream. It is the id of its token, or a digest of the
    name of a user that a proxy has authenticated. Return '' for a caller without an own stream.
    """
    actor = entry.actor
    if actor is None or actor.via not in ("api", "console", "mcp"):
        return ""
    if actor.token is not None:
        return actor.token
    return "" if actor.via == "mcp" else f"user-{compute_digest(actor.name)[:16]}"


def _get_place(entry: tuple[bytes, dict[bytes, bytes]]) -> tuple[int, int]:
    """Return the time of an entry in Unix ms by Redis's clock, and its number in this ms."""
    ms, _, number = entry[0].partition(b"-")
    return int(ms), int(number)
