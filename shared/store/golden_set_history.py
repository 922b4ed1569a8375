"""The history of evaluations: a summary of each ended run of `handoff eval`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, StringConstraints

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import read_entries
from handoff_queue.shared.types.message import Message

MAX_RUNS = 500
KEEP_S = 90 * 24 * 3600
"""Seconds after the newest run, as `PAST_KEPT_MS` in `parts/retention.lua`."""
MAX_NAME_CHARS = 200
"""Most characters of the name of a golden set, a run, a mode or a model."""
MAX_VARIANTS = 100
"""Most variants of one evaluation in the history."""
ShortName = Annotated[str, StringConstraints(max_length=MAX_NAME_CHARS)]


class EvaluatedVariant(Message):
    """Figures of all trials of one mode with one model."""

    mode: ShortName
    model: ShortName | None
    """None: the models of the workers."""
    trials: NonNegativeInt
    """Trials that count."""
    passed: NonNegativeInt
    score: float | None
    """Mean of the grader's scores, 1 to 5. None: nothing was graded."""
    tokens: NonNegativeInt
    microusd: NonNegativeInt | None
    """None: a price is unknown."""

    @property
    def passing(self) -> float | None:
        """Return the share of passing trials. None: there is no trial."""
        if not self.trials:
            return None
        return self.passed / self.trials


class EvaluationRun(Message):
    """One ended evaluation."""

    run: ShortName
    golden: ShortName
    """Name of the file with the requests, without its folder."""
    ended_at: float
    """Unix time in seconds, by Redis's clock."""
    variants: Annotated[tuple[EvaluatedVariant, ...], Field(max_length=MAX_VARIANTS)]
    not_run: NonNegativeInt = 0
    """Jobs for which the budget had no room."""
    microusd: NonNegativeInt | None
    """Cost of all jobs and of the grader. None: a price is unknown."""


class Evaluations:
    """The summaries in the store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, run: EvaluationRun) -> None:
        """Store a summary. It replaces the summary of the same run, which a user has continued.

        Raises:
            StoreRefusesWrites: Redis is full or read-only.
        """
        old_runs = [
            old for old in self.list_newest() if (old.run, old.golden) == (run.run, run.golden)
        ]
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=True)
            for old in old_runs:
                pipe.lrem(keys.EVALUATIONS, 0, old.to_json())
            pipe.lpush(keys.EVALUATIONS, run.to_json())
            pipe.ltrim(keys.EVALUATIONS, 0, MAX_RUNS - 1)
            pipe.expire(keys.EVALUATIONS, KEEP_S)
            pipe.execute()

    def list_newest(self, count: int = MAX_RUNS) -> list[EvaluationRun]:
        """Return the newest summaries, the newest first. A summary that this version cannot read
        is skipped.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        with self._connection.translate_errors():
            texts = self._connection.redis.lrange(keys.EVALUATIONS, 0, count - 1)
        return read_entries(texts, EvaluationRun.from_json, keys.EVALUATIONS)
