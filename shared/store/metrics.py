"""The counts and backlogs behind `/metrics` of `handoff serve`. Reads only: the scripts count,
see `parts/metrics.lua`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.redis.queue_access import is_refusal, read_answers_or_refusals
from handoff_queue.shared.store.script_arguments import convert_score, iterate_rows, parse_name

OTHER = "other"
"""Value of a label that all values beyond the first `MAX_VALUES` share."""
MAX_VALUES = {"tenant": 50, "agent": 100, "model": 30}
"""Number of values of each label with separate time series, as in `parts/metrics.lua`."""
METRICS_WITHOUT_TENANT = frozenset({
    "sweeper_recoveries", "dead_letters", "turn_duration_seconds", "model_call_duration_seconds",
    "job_duration_seconds", "job_end_delay_seconds",
})  # fmt: skip
"""Counts whose first label is not a tenant. Every other count has the tenant as its first label."""
_SEPARATOR = "\t"
MAX_FIELDS = 100_000
"""Most fields of a hash of counts that is read, which takes `/metrics` about a second. A worker may
write any number.
"""
MAX_DIGITS = 19
"""Digits of the largest integer of Redis. A longer text was written by another program."""


@dataclass(frozen=True, slots=True)
class Count:
    """One count since the store exists."""

    parts: tuple[str, ...]
    """Name of the metric, and then the values of its labels, as `parts/metrics.lua` says."""
    value: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """Handoffs that wait in a queue for a claim."""

    queue: str
    tenant: str | None
    """None: the handoffs of all tenants."""
    handoffs: int
    since: float | None
    """Time since which the oldest handoff waits, in Unix seconds; None if no handoff waits."""


def read_count_hashes(connection: Connection, names: Sequence[str]) -> list[Mapping[bytes, bytes]]:
    """Return the fields of each hash of counts, in two round trips. A hash with more than
    `MAX_FIELDS` fields, or a key of another type, has none.
    """
    with connection.translate_errors():
        pipe = connection.redis.pipeline(transaction=False)
        for name in names:
            pipe.hlen(name)
        sizes = dict(zip(names, pipe.execute(raise_on_error=False), strict=True))
        readable: list[str] = []
        for name, size in sizes.items():
            if isinstance(size, int) and size <= MAX_FIELDS:
                readable.append(name)
                pipe.hgetall(name)
            else:
                _warn(name, size)
        hashes = dict(zip(readable, pipe.execute(), strict=True))
    return [hashes.get(name, {}) for name in names]


def _warn(name: str, size: object) -> None:
    # imported here, because commands that list jobs load no logging
    from handoff_queue.shared.observability.logs import get_log

    get_log(__name__).warning("counts are not read: delete the key", key=name, fields=str(size))


class Metrics:
    """Reads the counts of the scripts, and the backlogs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read_counts(self) -> list[Count]:
        """Return all counts, in two round trips. A field that cannot be read is skipped.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        (fields,) = read_count_hashes(self._connection, [keys.METRICS])
        counts: list[Count] = []
        for field, value in fields.items():
            if value.isdigit() and len(value) <= MAX_DIGITS:
                parts = tuple(parse_name(field).split(_SEPARATOR))
                counts.append(Count(parts, int(value)))
        return counts

    def count_handoffs_by_outcome(self) -> dict[str, dict[str, int]]:
        """Return the number of ended handoffs by agent and outcome, of all tenants since the store
        exists. The agents beyond the first `MAX_VALUES` are together under `OTHER`.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        by_agent: dict[str, dict[str, int]] = {}
        for count in self.read_counts():
            match count.parts:
                case ("handoffs", _, agent, outcome):
                    outcomes = by_agent.setdefault(agent, {})
                    outcomes[outcome] = outcomes.get(outcome, 0) + count.value
                case _:
                    pass
        return by_agent

    def read_backlogs(self, queues: Sequence[str]) -> list[Backlog]:
        """Return the backlog of each queue, and then those of the tenants with a backlog, in
        two round trips. Paused handoffs are not in it, nor are queues that this process may not
        use.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for queue in queues:
                pipe.zcard(keys.WAITING + queue)
                pipe.zrange(keys.WAITING + queue, 0, 0, withscores=True)
            answers = read_answers_or_refusals(pipe)
        backlogs: list[Backlog] = []
        for queue, parts in zip(queues, iterate_rows(answers, 2), strict=True):
            if self._connection.queue_access.is_refused(queue, parts):
                continue
            number, oldest = parts
            since = convert_score(oldest[0][1]) if oldest else None
            backlogs.append(Backlog(queue, None, int(number), since))
        usable_queues = [backlog.queue for backlog in backlogs]
        of_tenants = self._connection.run_script("tenant_backlogs", [], usable_queues)
        for stored_queue, tenant, number, since_ms in of_tenants:
            since = convert_score(float(since_ms))
            backlogs.append(
                Backlog(parse_name(stored_queue), parse_name(tenant), int(number), since)
            )
        return backlogs

    def count_paused_handoffs(self, agents: Sequence[str]) -> dict[str, int]:
        """Return the number of handoffs that wait because their agent is paused, by agent.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for agent in agents:
                pipe.zcard(keys.PAUSED_HANDOFFS + agent)
            answers = read_answers_or_refusals(pipe)
        counts: dict[str, int] = {}
        for agent, answer in zip(agents, answers, strict=True):
            if not is_refusal(answer):
                counts[agent] = int(answer)
        return counts

    def take_turn(self, interval_s: float) -> bool:
        """Return whether this process is the first that asks in an interval, so that one of many
        processes exports the metrics.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        part_ms = max(1, int(interval_s * 900))  # 90 % of the interval: no interval is skipped
        with self._connection.translate_errors():
            return bool(self._connection.redis.set(keys.EXPORTED, 1, nx=True, px=part_ms))
