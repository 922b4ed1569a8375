"""Commands that Redis refused, and messages that workers refused. Supervisors copy these refusals
into the audit.

Redis keeps its last 128 refused commands in memory (`acllog-max-len`). Each supervisor reads them
every few seconds, and the first supervisor that sees an entry copies it. A flood of refused
commands removes earlier ones from Redis's log. The audit then states their number. A worker may not
write to the audit stream, so it reports a refused message in a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.observability.redaction import without_credentials
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.audit import MIN_REFUSALS, USER_FIELD, Audit
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import build_read_list_arguments, read_entries
from handoff_queue.shared.types.audit import AuditAction, AuditEntry
from handoff_queue.shared.types.errors import StoreError, StoreUnavailable

MAX_READ = 128
"""Most entries that one call reads: Redis's log has no more by default."""
READ_AT_ONCE = 8
"""Entries by which one read of the log is longer than the read before. An entry has a whole name of
a key, which can have 128 MB or more. So a call reads few entries at first.
"""
MAX_READ_CHARS = 1_000_000
"""Characters of the entries after which a call reads no more. It then empties Redis's log, because
`maxmemory` does not count its memory.
"""
MAX_OF_USER = 10
"""Refused commands of one user that are copied one by one in a minute. The others are counted."""
MAX_USERS = 1_000
"""Redis users whose refused commands have a separate stream."""
TOLERANCE_MS = 20
"""Error of the time of an entry that a server before Redis 7.2 reports."""
MAX_CHARS = 200
"""Most characters of a field of a refused command, and of the subject of a report."""
MAX_DETAIL_CHARS = 2_000
"""Most characters of a worker's reason."""
MAX_REPORTS = 1_000
"""Most reports of workers that one call moves."""
MAX_REPORT_BYTES = 20_000
"""Bytes of the longest report. A longer one is dropped."""
_COPIED = b"copied"
"""Field of `keys.REFUSED_COMMANDS` with the place of the last copied entry."""
_OTHERS = b"others"
"""Field with the number of copied entries of all other users."""
_WHY = ", because newer ones have removed them from Redis's log (`ACL LOG`)"


@dataclass(frozen=True, slots=True)
class Place:
    """Place of an entry in Redis's log."""

    at_ms: int
    """Time of the first refusal in Unix ms."""
    number: int
    """Number since the start of Redis, from 0; 0 on a server before Redis 7.2."""


@dataclass(frozen=True, slots=True)
class RefusedCommand:
    """A command that Redis has refused."""

    place: Place
    user: str
    reason: str
    """For example `key` or `command`; `auth` for a wrong password."""
    target: str
    """Beginning of the name of the key, the command or the channel."""
    is_known_user: bool
    """False if the client may have chosen any name."""
    at_s: float
    """Time of the refusal in Unix seconds."""


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
            build_read_list_arguments(
                -MAX_REPORTS, -1, MAX_REPORT_BYTES, MAX_REPORTS * MAX_REPORT_BYTES, removes=True
            ),
        )
        refusals: list[AuditEntry] = []
        for entry in read_entries(reversed(reports), AuditEntry.from_json, keys.REFUSALS):
            if entry.action is AuditAction.REFUSE:
                refusals.append(self._sanitize_report(entry))
        self._audit.add_refusals(refusals)
        return len(refusals)

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
        """Copy the new entries of Redis's log into the audit streams, and return their number. Of
        a flood, count the entries that were lost, and those after the first ones of each user. The
        work of one call has a limit. If this user may not read the log, do nothing from then on.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        if not self._may_read:
            return 0
        try:
            with self._connection.translate_errors():
                state = self._connection.redis.hgetall(keys.REFUSED_COMMANDS)
                refused_commands, lost_count = self._read_log(_parse_place(state.get(_COPIED, b"")))
        except StoreUnavailable:
            raise
        except StoreError:
            self._may_read = False
            return 0
        if not refused_commands:
            return 0
        fields, copies = self._build_copies(refused_commands, state)
        if lost_count:
            detail = f"{lost_count:,} refused commands were not read{_WHY}"
            entry = self._build_entry("Redis", detail)
            copies.append((keys.AUDIT_REFUSALS, entry))
        arguments: list[Any] = [state.get(_COPIED, b""), MIN_REFUSALS, len(fields)]
        for name, value in fields.items():
            arguments += (name, value)
        arguments += [entry.to_json() for _, entry in copies]
        script_keys = [keys.REFUSED_COMMANDS, *(stream for stream, _ in copies)]
        is_first = self._connection.run_script("copy_refused_commands", script_keys, arguments)
        return len(refused_commands) if is_first else 0

    def _read_log(self, copied: Place) -> tuple[list[RefusedCommand], int]:
        """Return the refused commands after the last copied one, the oldest first. Also return the
        number of refused commands that Redis's log has lost since then.
        """
        redis = self._connection.redis
        now_ms = int(self._connection.now() * 1000)
        count = 0
        while True:
            count += READ_AT_ONCE
            log = redis.acl_log(count)
            new = [entry for entry in log if _is_new(entry, copied, now_ms)]
            chars = sum(map(_count_chars, log))
            if len(new) < count or count >= MAX_READ or chars > MAX_READ_CHARS:
                break
        if chars > MAX_READ_CHARS:
            redis.acl_log_reset()
        refused_commands = [_build_refused_command(entry, now_ms) for entry in reversed(new)]
        lost_count = 0
        if new and "entry-id" in new[-1]:
            oldest = refused_commands[0].place.number
            expected = copied.number + 1
            lost_count = oldest - expected if oldest >= expected else oldest
        return refused_commands, lost_count

    def _build_copies(
        self, refused_commands: Sequence[RefusedCommand], state: Mapping[bytes, bytes]
    ) -> tuple[dict[bytes, str], list[tuple[str, AuditEntry]]]:
        """Return the changed fields of `keys.REFUSED_COMMANDS`, and the new entries of the audit,
        each with its stream.

        Args:
            state: the fields of `keys.REFUSED_COMMANDS`.
        """
        minute = int(self._connection.now() // 60)
        newest = refused_commands[-1].place
        fields = {_COPIED: f"{newest.at_ms}-{newest.number}"}
        copies: list[tuple[str, AuditEntry]] = []
        more: Counter[tuple[str, str, str]] = Counter()
        known_users = {field for field in state if field.startswith(USER_FIELD)}
        for refused in refused_commands:
            field = USER_FIELD + refused.user.encode()
            stream = keys.AUDIT_REFUSALS
            if refused.is_known_user and (field in known_users or len(known_users) < MAX_USERS):
                known_users.add(field)
                stream = keys.audit_refusals_of(refused.user)
            else:
                field = _OTHERS
            text = fields.get(field) or state.get(field, b"").decode()
            counted_minute, _, number = text.partition(" ")
            count = int(number) if counted_minute == str(minute) else 0
            if count >= MAX_OF_USER:
                more[stream, refused.user, refused.reason] += 1
                continue
            fields[field] = f"{minute} {count + 1}"
            detail = f"{refused.reason} {refused.target}"
            entry = self._build_entry(f"Redis user {refused.user}", detail, refused.at_s)
            copies.append((stream, entry))
        for (stream, user, reason), count in more.items():
            detail = f"{reason}: {count:,} more refused commands"
            copies.append((stream, self._build_entry(f"Redis user {user}", detail)))
        return fields, copies

    def _build_entry(self, subject: str, detail: str, at_s: float | None = None) -> AuditEntry:
        """Return an entry of the audit.

        Args:
            at_s: Unix time in seconds; None for now.
        """
        return AuditEntry(
            at=self._connection.now() if at_s is None else at_s,
            action=AuditAction.REFUSE,
            subject=subject,
            detail=detail,
        )


def _parse_place(text: bytes) -> Place:
    """Return the place of the last copied entry; before all entries if there is none."""
    at_ms, _, number = text.partition(b"-")
    return Place(int(at_ms), int(number)) if at_ms else Place(0, -1)


def _read_place(entry: Mapping[str, Any], now_ms: int) -> Place:
    """Return the place of an entry of Redis's log. A server before Redis 7.2 has only its age."""
    if "entry-id" in entry:
        return Place(int(entry["timestamp-created"]), int(entry["entry-id"]))
    return Place(now_ms - int(1000 * float(entry.get("age-seconds", 0))), 0)


def _count_chars(entry: Mapping[str, Any]) -> int:
    """Return the characters of the texts that an attacker may have chosen."""
    return sum(len(str(entry.get(name, ""))) for name in ("object", "username", "client-info"))


def _is_new(entry: Mapping[str, Any], copied: Place, now_ms: int) -> bool:
    """Return whether an entry comes after the last copied one. The numbers of a server that was
    started again begin at 0.
    """
    place = _read_place(entry, now_ms)
    if "entry-id" in entry:
        return place.number > copied.number or place.at_ms > copied.at_ms
    return place.at_ms > copied.at_ms + TOLERANCE_MS


def _build_refused_command(entry: Mapping[str, Any], now_ms: int) -> RefusedCommand:
    """Return the refused command of an entry of Redis's log."""
    place = _read_place(entry, now_ms)
    reason = _read_text(entry, "reason")
    return RefusedCommand(
        place=place,
        user=_read_text(entry, "username"),
        reason=reason,
        target=_read_text(entry, "object"),
        is_known_user=reason != "auth",
        at_s=place.at_ms / 1000,
    )


def _read_text(entry: Mapping[str, Any], field: str) -> str:
    """Return a field that an attacker may have chosen, in printable characters of one line."""
    return _clean_line(str(entry.get(field, "")), MAX_CHARS)


def _clean_line(text: str, limit: int) -> str:
    """Return the first characters of a text, without credentials, and with a question mark for each
    character that is not printable.
    """
    line = "".join(letter if letter.isprintable() else "?" for letter in text[:limit])
    return without_credentials(line)
