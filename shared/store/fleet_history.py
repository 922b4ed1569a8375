"""History of the installation: cost and duration of its newest handoffs, and accuracy of its
newest quotes, as the basis of the next quote.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, Field

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection, ScriptCall
from handoff_queue.shared.store.script_arguments import (
    MAX_EXACT_INTEGER,
    build_read_list_arguments,
    read_entries,
)

MAX_SAMPLES = 200
"""Newest samples of an agent that are read, as in `parts/results.lua`. A worker may add others."""
MAX_SAMPLE_BYTES = 10_000
"""Bytes of the longest sample: many times the usual 150."""

Count = Annotated[int, Field(strict=True, ge=0, le=MAX_EXACT_INTEGER)]
"""An amount. A worker may have written any number, and no quote has a negative amount."""
Factor = Annotated[float, Field(ge=0, le=MAX_EXACT_INTEGER, allow_inf_nan=False)]


class _BucketSample(BaseModel):
    """Tokens of a handoff that count for the limits of its rate-limit bucket."""

    name: str
    input: Count
    output: Count


class _Sample(BaseModel):
    at: Count
    usd: Count | None
    ms: Count
    waited_ms: Count
    turns: Count
    bucket: _BucketSample | None
    saved: Count = 0
    server_tools: Count = 0


class _Score(BaseModel):
    cost_likely: Factor | None
    cost_most: Factor | None
    time_likely: Factor | None
    time_most: Factor | None


class History:
    """The samples and scores that the store keeps. Reads only: `parts/results.lua` writes the
    samples and `commit.lua` the scores.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(
        self, agents: Iterable[str]
    ) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
        """Return the samples by specialist or role, and the scores, the newest first.

        A sample is `{at, usd, ms, waited_ms, turns, bucket, saved, server_tools}`. `at` is the end
        of the handoff in Unix milliseconds. `usd` is in micro-dollars, or None if unknown. `ms` is
        the time since its first claim, and `waited_ms` the wait for its provider in this time.
        `bucket` is its share of one bucket's rate limits: `{name, input, output}` in tokens, or
        None without limits. `saved` is the micro-dollars that its batches saved, and
        `server_tools` the part of `usd` for the provider's tools. Waits for batches are not part
        of `ms`.

        Entries that cannot be read are skipped, because no job depends on these statistics.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        names = sorted(set(agents))
        arguments = build_read_list_arguments(
            0, MAX_SAMPLES - 1, MAX_SAMPLE_BYTES, MAX_SAMPLES * MAX_SAMPLE_BYTES
        )
        calls: list[ScriptCall] = [([keys.history(name)], arguments) for name in names]
        samples = self._connection.run_script_for_all("read_list", calls)
        with self._connection.translate_errors():
            scores = self._connection.redis.lrange(keys.SCORES, 0, -1)
        samples_by_name: dict[str, list[dict[str, Any]]] = {}
        for name, texts in zip(names, samples, strict=True):
            samples_by_name[name] = read_entries(texts, _read_sample, keys.history(name))
        return samples_by_name, read_entries(scores, _read_score, keys.SCORES)


def _read_sample(text: bytes) -> dict[str, Any]:
    """Parse a sample.

    Raises:
        ValueError: the text is not a sample. Workers of the agent may write any text.
    """
    if len(text) > MAX_SAMPLE_BYTES:
        raise ValueError(f"it is longer than {MAX_SAMPLE_BYTES:,} bytes")
    return _Sample.model_validate_json(text).model_dump()


def _read_score(text: bytes) -> dict[str, Any]:
    """Parse a score.

    Raises:
        ValueError: the text is not a score.
    """
    return _Score.model_validate_json(text).model_dump()
