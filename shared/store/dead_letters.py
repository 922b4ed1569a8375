"""Dead letters: messages that no process could use, with the reason.

A process of another version may have written a handoff that this process cannot read. The
store knows whether it issued that message. If so, the message is not a dead letter yet,
because workers of that version may run or start. The sweeper publishes it again every few
seconds, for `PATIENCE_S`. After that time the handoff waits, like a handoff of a paused
agent, until an operator runs `handoff dead requeue`.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

from handoff_queue.shared.observability.redaction import without_credentials
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.encryption_at_rest import find_digest
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import build_read_list_arguments, read_entries
from handoff_queue.shared.types.errors import MalformedMessage, UserError
from handoff_queue.shared.types.ids import HANDOFF_ID_PATTERN, HandoffId, JobId, is_job_id
from handoff_queue.shared.types.message import Message, UnixTime, compute_digest

MAX_LETTERS = 1_000
"""Dead letters that the store keeps."""
PATIENCE_S = 60.0
"""Seconds that a handoff is left to workers of another version. A rolling deploy takes about
that time.
"""
AT_ONCE = 20
"""Oldest letters that one check of the retention reads."""
MAX_BODY_CHARS = 65_536
"""Characters of a letter that are kept; longer letters are cut, so that all letters together
stay small. The store has the full text of a handoff.
"""
MAX_LETTER_BYTES = 8 * MAX_BODY_CHARS
"""Bytes of the longest stored letter. JSON needs six bytes for some characters."""
_ID_CHARS = 8
"""Hexadecimal digits of an id. Among 1,000 letters the chance of a clash is 1 in 8,600."""


class DeadLetter(Message):
    """A message that no process could use."""

    at: UnixTime
    queue: str
    reason: str
    body: str
    """The argument of the message, or the message itself. Only the first 65,536 characters are
    kept.
    """

    @property
    def id(self) -> str:
        """Return the id of the letter: the beginning of its digest. It does not depend on the
        place of the letter in the list.
        """
        return self.content_digest[:_ID_CHARS]


class DeadLetters:
    """The newest `MAX_LETTERS` dead letters."""

    def __init__(self, connection: Connection, keep_s: int) -> None:
        self._connection = connection
        self._keep_s = keep_s

    def add(self, queue: str, reason: str, body: str) -> None:
        """Add a dead letter for a message of this queue."""
        self._add(self._build_letter(queue, reason, body))

    def add_unreadable(
        self, queue: str, reason: str, body: str, patience_s: float = PATIENCE_S
    ) -> bool:
        """Record that this process cannot read a message of this queue. Return False if
        another version may read it, and True if it is a dead letter now.
        """
        body = escape_surrogates(body)
        handoff = parse_handoff(body)
        if handoff is None:
            self.add(queue, reason, body)
            return True
        job_id, handoff_id, text = handoff
        if len(body) <= MAX_BODY_CHARS:
            short = body
        else:
            short = json.dumps({"job_id": job_id, "handoff_id": handoff_id})
        letter = self._build_letter(queue, reason, short)
        arguments = [
            handoff_id,
            find_digest(text) or compute_digest(text),
            int(patience_s * 1000),
            letter.to_json(),
        ]
        answer = self._connection.run_script(
            "dead_letter_unreadable", [keys.job(job_id), keys.DEAD], arguments
        )
        if answer == b"unknown":
            self._add(letter)
        return bool(answer in (b"unknown", b"dead"))

    def _build_letter(self, queue: str, reason: str, body: str) -> DeadLetter:
        if len(body) > MAX_BODY_CHARS:
            reason = (
                f"{reason} (it has {len(body):,} characters, of which the first {MAX_BODY_CHARS:,}"
                " are kept)"
            )
        return DeadLetter(
            at=self._connection.now(),
            queue=queue,
            reason=escape_surrogates(reason),
            body=without_credentials(escape_surrogates(body[:MAX_BODY_CHARS])),
        )

    def _add(self, letter: DeadLetter) -> None:
        self._connection.run_script(
            "push_dead_letter", [keys.DEAD], [letter.queue, letter.to_json()]
        )

    def forget_old(self) -> None:
        """Remove letters after their retention, and all letters but the newest `MAX_LETTERS`.
        Supervisors do so, because workers may only add letters.
        """
        before = self._connection.now() - self._keep_s
        redis = self._connection.redis
        with self._connection.translate_errors():
            redis.ltrim(keys.DEAD, 0, MAX_LETTERS - 1)
            for letter in self._read(-AT_ONCE, -1):
                with suppress(MalformedMessage, ValueError):
                    if DeadLetter.from_json(letter).at < before:
                        redis.lrem(keys.DEAD, -1, letter)

    def publish_again(self, job_id: JobId, handoff_id: HandoffId) -> None:
        """Make the sweeper publish a handoff whose message was a dead letter.

        Raises:
            UserError: no job waits for the handoff any more.
        """
        answer = self._connection.run_script(
            "requeue_dead_letter", [keys.job(job_id)], [handoff_id]
        )
        if answer == b"unknown":
            raise UserError(
                f"the store has no handoff {handoff_id} of {job_id}: no job needs it: drop its dead"
                " letter"
            )
        if answer == b"over":
            raise UserError(f"{handoff_id} of {job_id} runs, or has ended: drop its dead letter")

    def find(self, letter_id: str) -> DeadLetter:
        """Return the dead letter with this id.

        Raises:
            UserError: there is no such letter.
        """
        for letter in self.list_newest():
            if letter.id == letter_id:
                return letter
        raise UserError(f"there is no dead letter {letter_id!r:.42}", command="handoff dead")

    def list_newest(self, count: int = MAX_LETTERS) -> list[DeadLetter]:
        """Return the readable letters among the newest `count`, the newest first. A letter
        that this version cannot read is skipped; only `drop_all` deletes it.
        """
        return read_entries(self._read(0, count - 1), DeadLetter.from_json, keys.DEAD)

    def _read(self, first: int, last: int) -> list[bytes]:
        """Return stored letters. A worker that was taken over may have written longer ones."""
        arguments = build_read_list_arguments(
            first, last, MAX_LETTER_BYTES, MAX_LETTERS * MAX_BODY_CHARS
        )
        letters: list[bytes] = self._connection.run_script("read_list", [keys.DEAD], arguments)
        return letters

    def drop(self, letter: DeadLetter) -> bool:
        """Delete the letter. Return False if another process or retention had deleted it."""
        with self._connection.translate_errors():
            return int(self._connection.redis.lrem(keys.DEAD, 1, letter.to_json())) > 0

    def drop_all(self) -> int:
        """Delete all letters and return their number. A letter that arrives during the call is
        deleted and counted, or stays.
        """
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=True)
            pipe.llen(keys.DEAD)
            pipe.unlink(keys.DEAD)
            return int(pipe.execute()[0])


def escape_surrogates(text: str) -> str:
    """Return the text with each lone surrogate as an escape, because UTF-8 has no bytes for it."""
    return text.encode(errors="backslashreplace").decode()


def parse_handoff(body: str) -> tuple[JobId, HandoffId, str] | None:
    """Return the ids of job and handoff and the text of the handoff. The body is that text, or
    the body of a Celery message with it. Return None if the body is neither.
    """
    try:
        value = json.loads(body)
        if isinstance(value, list):
            body = value[0][0]
            value = json.loads(body)
        job_id = value["job_id"]
        handoff_id = value["handoff_id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if not isinstance(job_id, str) or not is_job_id(job_id):
        return None
    if not isinstance(handoff_id, str) or not re.fullmatch(HANDOFF_ID_PATTERN, handoff_id):
        return None
    return JobId(job_id), HandoffId(handoff_id), body
