"""What this installation's handoffs cost and took, and how its quotes turned out: the newest of each, for the next quote."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from shared.ledger import keys
from shared.ledger.connection import Connection, in_our_words


class History:
    """Reads. `finish.lua` and `commit.lua` write, and say how many are kept."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(
        self, roles: Iterable[str]
    ) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
        """Of each specialist or role `{at, usd, ms, waited_ms, turns, lane}`: when it ended (Unix ms), micro-dollars (null: unknown),
        milliseconds, those of them that it waited for its provider, turns, and what these took of which lane's limits:
        `{name, input, output}`, tokens (null: nobody counts). Older samples lack some. And the scores. The newest first.
        """
        names = sorted(set(roles))
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            for name in names:
                pipe.lrange(keys.history(name), 0, -1)
            pipe.lrange(keys.SCORES, 0, -1)
            *samples, scores = pipe.execute()
        read = [[json.loads(text) for text in one] for one in samples]
        return dict(zip(names, read, strict=True)), [json.loads(text) for text in scores]
