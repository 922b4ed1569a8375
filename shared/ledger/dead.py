"""Dead letters: messages that could not be taken, with the reason. Shown, and kept until a person drops them or retention does."""

from __future__ import annotations

from shared.ledger import keys
from shared.ledger.connection import Connection, in_our_words
from shared.wire.message import Message

KEEP_AT_MOST = 1_000
_ID_CHARS = 8
"""Of a digest: among 1,000 letters, one chance in 8,600 that any two share it."""


class DeadLetter(Message):
    """One message that was not taken."""

    at: float
    """Unix time in seconds."""
    queue: str
    reason: str
    body: str
    """The message's argument, as it came."""

    @property
    def id(self) -> str:
        """A name that stays, while its place in the list changes with each letter that comes in."""
        return self.content_digest[:_ID_CHARS]


class DeadLetters:
    """The newest `KEEP_AT_MOST` of them."""

    def __init__(self, connection: Connection, keep_s: int) -> None:
        self._connection = connection
        self._keep_s = keep_s

    def add(self, queue: str, reason: str, body: str) -> None:
        letter = DeadLetter(at=self._connection.now(), queue=queue, reason=reason, body=body)
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.lpush(keys.DEAD, letter.to_json())
            pipe.ltrim(keys.DEAD, 0, KEEP_AT_MOST - 1)
            pipe.expire(keys.DEAD, self._keep_s)
            pipe.execute()

    def newest(self, count: int = KEEP_AT_MOST) -> list[DeadLetter]:
        with in_our_words():
            return [DeadLetter.from_json(text) for text in self._connection.redis.lrange(keys.DEAD, 0, count - 1)]

    def drop(self, letter: DeadLetter) -> bool:
        """False: somebody else, or retention, was quicker."""
        with in_our_words():
            return int(self._connection.redis.lrem(keys.DEAD, 1, letter.to_json())) > 0

    def drop_all(self) -> int:
        """Returns how many there were: what comes in meanwhile is among them, or stays."""
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=True)
            pipe.llen(keys.DEAD)
            pipe.unlink(keys.DEAD)
            return int(pipe.execute()[0])
