"""The audit stream: actions of users on the fleet, deletions of jobs, and refusals of Redis and
of workers. The journal of a job holds the other actions on the job.

Redis keeps its last 128 refused commands in memory (`acllog-max-len`). Each supervisor reads them
every few seconds, and the first supervisor that sees an entry copies it. A worker may not write to
the audit stream, so it reports a refused message in a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import list_arguments, read_entries
from handoff_queue.shared.types.audit import AuditAction, AuditEntry
from handoff_queue.shared.types.errors import StoreError, StoreUnavailable
from handoff_queue.shared.types.message import compute_digest

MIN_KEPT = 100_000
"""Entries that Redis keeps at least; it drops older entries in blocks. With 300 bytes for an
entry, the stream needs 30 MB.
"""
MIN_REFUSALS = 10_000
"""Refusals that Redis keeps at least. They have their own stream: a worker that was taken over can
cause any number of refusals, and would remove the actions of users.
"""
MIN_OF_CALLER = 10_000
"""Entries that Redis keeps at least for each caller of the HTTP API and the console. A token of a
tenant can cause any number of actions, and would remove the actions of others.
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

    def list_newest(self, count: int) -> list[AuditEntry]:
        """Return the newest entries, the newest last. An entry that this version cannot read is
        skipped.

        Args:
            count: most actions, and most refusals. So many refusals hide no action.
        """
        with self._connection.translate_errors():
            callers = sorted(self._connection.redis.smembers(keys.AUDIT_CALLERS))
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.xrevrange(keys.AUDIT_REFUSALS, count=count)
            pipe.xrevrange(keys.AUDIT, count=count)
            for caller in callers:
                pipe.xrevrange(keys.audit_of(caller.decode()), count=count)
            refusals, *streams = pipe.execute()
        actions = sorted(chain.from_iterable(streams), key=_get_place)
        entries = sorted([*actions[-count:], *refusals], key=_get_place)
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


KEPT_S = 3 * 86_400
"""Seconds for which a copied entry is known, so that it is copied once."""
MAX_READ = 10_000
"""Most entries that one look reads: the setting of `handoff up`."""
MAX_CHARS = 200
MAX_DETAIL_CHARS = 2_000
"""Most characters of a worker's reason."""
MAX_REPORTS = 1_000
"""Reports of workers that one look moves."""
MAX_REPORT_BYTES = 20_000
"""Bytes of the longest report. A longer one is dropped."""


class Refusals:
    """Redis's log of refused commands, and the reports of workers."""

    def __init__(self, connection: Connection, audit: Audit) -> None:
        self._connection = connection
        self._audit = audit
        self._may_read = True

    def report(self, entry: AuditEntry) -> None:
        """Report a message that this worker refused."""
        with self._connection.translate_errors():
            self._connection.redis.lpush(keys.REFUSALS, entry.to_json())

    def move_reports(self) -> int:
        """Move the reports of workers into the audit stream, and return their number. A text that
        is not a report is dropped.
        """
        reports = self._connection.run_script(
            "read_list",
            [keys.REFUSALS],
            list_arguments(
                -MAX_REPORTS, -1, MAX_REPORT_BYTES, MAX_REPORTS * MAX_REPORT_BYTES, removes=True
            ),
        )
        moved_count = 0
        for entry in read_entries(reversed(reports), AuditEntry.from_json, keys.REFUSALS):
            if entry.action is AuditAction.REFUSE:
                self._audit.add(self._sanitize_report(entry))
                moved_count += 1
        return moved_count

    def _sanitize_report(self, entry: AuditEntry) -> AuditEntry:
        """Return the report of a worker that may be taken over. It has the time of the move, texts
        of one line, and no actor.
        """
        return AuditEntry(
            at=self._connection.now(),
            action=AuditAction.REFUSE,
            subject=_clean_line(entry.subject, MAX_CHARS),
            detail=_clean_line(entry.detail, MAX_DETAIL_CHARS),
        )

    def copy_commands(self) -> int:
        """Copy the new entries of Redis's log into the audit stream, and return their number. If
        this user may not read the log, do nothing from then on.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        if not self._may_read:
            return 0
        try:
            with self._connection.translate_errors():
                log = self._connection.redis.acl_log(MAX_READ)
        except StoreUnavailable:
            raise
        except StoreError:
            self._may_read = False
            return 0
        copied_count = 0
        for entry in reversed(log):
            copied_count += self._copy(entry)
        return copied_count

    def _copy(self, entry: Mapping[str, Any]) -> bool:
        """Copy an entry, unless a supervisor has copied it. Return whether it was copied."""
        now = self._connection.now()
        with self._connection.translate_errors():
            is_new = self._connection.redis.set(
                keys.refused_command(_build_name(entry)), "", nx=True, ex=KEPT_S
            )
        if not is_new:
            return False
        copy = AuditEntry(
            at=now - float(entry.get("age-seconds", 0)),
            action=AuditAction.REFUSE,
            subject=f"Redis user {_read_text(entry, 'username')}",
            detail=f"{_read_text(entry, 'reason')} {_read_text(entry, 'object')}",
        )
        self._audit.add(copy)
        return True


def _build_name(entry: Mapping[str, Any]) -> str:
    """Return the name of an entry: its number and time, or its content on an old server."""
    if "entry-id" in entry:
        return f"{entry['entry-id']}-{entry.get('timestamp-created', 0)}"
    return "-".join(
        _read_text(entry, field) for field in ("username", "reason", "context", "object")
    )


def _read_text(entry: Mapping[str, Any], field: str) -> str:
    """Return a field that an attacker may have chosen, in printable characters of one line."""
    return _clean_line(str(entry.get(field, "")), MAX_CHARS)


def _clean_line(text: str, limit: int) -> str:
    """Return the first characters of a text, with a question mark for each that is not
    printable.
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text[:limit])
