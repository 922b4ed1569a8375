"""The history of evaluations: a summary of each ended run of `handoff eval`."""

from __future__ import annotations

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection, translated_errors
from handoff_queue.shared.store.script_arguments import read_entries
from handoff_queue.shared.types.golden_set_summary import EvaluationRun

KEEP_AT_MOST = 500
KEEP_S = 90 * 24 * 3600
"""Seconds after the newest run, as `PAST_KEPT_MS` in `parts/retention.lua`."""


class Evaluations:
    """The summaries in the store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, run: EvaluationRun) -> None:
        """Store a summary. It replaces the summary of the same run, which a user has continued.

        Raises:
            StoreRefusesWrites: Redis is full or read-only.
        """
        replaced = [old for old in self.newest() if (old.run, old.golden) == (run.run, run.golden)]
        with translated_errors():
            pipe = self._connection.redis.pipeline(transaction=True)
            for old in replaced:
                pipe.lrem(keys.EVALUATIONS, 0, old.to_json())
            pipe.lpush(keys.EVALUATIONS, run.to_json())
            pipe.ltrim(keys.EVALUATIONS, 0, KEEP_AT_MOST - 1)
            pipe.expire(keys.EVALUATIONS, KEEP_S)
            pipe.execute()

    def newest(self, count: int = KEEP_AT_MOST) -> list[EvaluationRun]:
        """Return the newest summaries, the newest first. A summary that this version cannot read
        is skipped.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        with translated_errors():
            stored = self._connection.redis.lrange(keys.EVALUATIONS, 0, count - 1)
        return read_entries(stored, EvaluationRun.from_json, keys.EVALUATIONS)
