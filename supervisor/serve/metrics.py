"""Metrics for Prometheus: their names and labels, their values from the store, and their route.

Counters and histograms come from the store, which counts in the same step in which it stores a
fact. So every process of `handoff serve` answers with the same numbers, and a restart changes
none. Gauges are computed for each scrape.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from starlette.concurrency import run_in_threadpool

from handoff_queue.shared.store.metrics import OTHER, Backlog, Count
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.names import ROLES, get_queue
from handoff_queue.supervisor.client.fleet_statistics import AgentStats, FleetStats, read_stats
from handoff_queue.supervisor.serve.authentication import Reads
from handoff_queue.supervisor.text.sanitizing import replace_unsafe

PREFIX = "handoff_"
BUCKETS = (
    *("0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30", "60", "120", "300", "600"),
    *("1800", "3600", "+Inf"),
)
"""Upper bounds of each histogram's buckets in seconds, as `parts/metrics.lua` writes them."""
_SUM = "sum"
"""The text that the store has in place of a bound for the sum of a histogram, in ms."""
ANY = "any"
"""Value of the label `specialists` for jobs that may use every specialist."""
_CALL_LABELS = ("tenant", "agent", "model")


@dataclass(frozen=True, slots=True)
class Instrument:
    """The definition of a metric."""

    name: str
    """Name without the prefix, and without the suffix `_total` of a counter."""
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    """Unit for readers; empty for a number of things."""
    divisor: int = 1
    """Number of the store's units in one unit of the metric."""


COUNTERS = (
    Instrument("jobs_submitted", "Jobs that were submitted, without child jobs.", ("tenant",)),
    Instrument(
        "jobs_ended",
        "Ends of jobs, without child jobs. A job that is retried ends again.",
        ("tenant", "outcome"),
    ),
    Instrument("handoffs", "Handoffs that ended or were dropped.", ("tenant", "agent", "outcome")),
    Instrument(
        "model_calls",
        "Charged model calls: ok, failed, or cut (no report of the usage; the upper bound is"
        " charged).",
        (*_CALL_LABELS, "status"),
    ),
    Instrument(
        "tokens",
        "Charged tokens. The type is input or output.",
        (*_CALL_LABELS, "type"),
    ),
    Instrument(
        "cached_input_tokens",
        "Input tokens that were read from the provider's cache. They are part of handoff_tokens.",
        _CALL_LABELS,
    ),
    Instrument(
        "cache_saved_usd",
        "Money that reads from the provider's cache saved.",
        _CALL_LABELS,
        "US dollars",
        1_000_000,
    ),
    Instrument(
        "batch_calls",
        "Model calls whose reply came from a batch of the provider, at half price.",
        _CALL_LABELS,
    ),
    Instrument(
        "batch_saved_usd",
        "Money that calls in batches cost less than live calls.",
        _CALL_LABELS,
        "US dollars",
        1_000_000,
    ),
    Instrument(
        "cache_surcharge_usd",
        "Money that writes to the provider's cache cost more than other input. It is part of"
        " handoff_cost_usd.",
        _CALL_LABELS,
        "US dollars",
        1_000_000,
    ),
    Instrument(
        "cost_usd",
        "Charged money. A call without a known price adds nothing.",
        _CALL_LABELS,
        "US dollars",
        1_000_000,
    ),
    Instrument(
        "shared_handoffs",
        "Handoffs that copied the result of an equal handoff.",
        _CALL_LABELS,
    ),
    Instrument(
        "shared_saved_usd",
        "Money that these copies saved: the cost of the copied runs.",
        _CALL_LABELS,
        "US dollars",
        1_000_000,
    ),
    Instrument("unpriced_model_calls", "Model calls without a known price.", _CALL_LABELS),
    Instrument(
        "lease_losses",
        "Claims whose process died or froze, so that their lease ended.",
        ("tenant", "agent"),
    ),
    Instrument(
        "sweeper_recoveries",
        "Work that the sweeper found lost and put back: the claim of a dead process (lease), a"
        " message in no queue (message), a wake-up of a supervisor (wake_up).",
        ("kind",),
    ),
    Instrument("dead_letters", "Messages that became dead letters.", ("agent",)),
)
HISTOGRAMS = (
    Instrument(
        "turn_duration_seconds",
        "Time of a turn: its model call and its tool calls, without waits for the provider.",
        ("agent",),
        "seconds",
        1_000,
    ),
    Instrument(
        "model_call_duration_seconds",
        "Time of a model call, from its admission until its reply is stored.",
        ("model",),
        "seconds",
        1_000,
    ),
    Instrument(
        "job_duration_seconds",
        "Time from the submission of a job to its end.",
        ("outcome",),
        "seconds",
        1_000,
    ),
    Instrument(
        "job_end_delay_seconds",
        "Time from the last event before the end of a job to its end.",
        (),
        "seconds",
        1_000,
    ),
)
QUEUE_DEPTH = Instrument("queue_depth", "Handoffs that wait in the queue of an agent.", ("agent",))
OLDEST_WAIT = Instrument(
    "queue_oldest_wait_seconds",
    "Time that the oldest handoff has waited in the queue of an agent; 0 for an empty queue.",
    ("agent",),
    "seconds",
)
TENANT_QUEUE_DEPTH = Instrument(
    "tenant_queue_depth",
    "Handoffs of a tenant that wait in the queue of an agent. No series: none waits.",
    ("tenant", "agent"),
)
TENANT_OLDEST_WAIT = Instrument(
    "tenant_queue_oldest_wait_seconds",
    "Time that the oldest handoff of a tenant has waited in the queue of an agent.",
    ("tenant", "agent"),
    "seconds",
)
WANTED_SLOTS = Instrument(
    "wanted_slots",
    "Slots that would have work, and that the provider's limits allow.",
    ("agent",),
)
SLOTS = Instrument("slots", "Slots of the live processes.", ("agent",))
BUSY_SLOTS = Instrument("busy_slots", "Slots that run a handoff.", ("agent",))
FREE_SLOTS = Instrument("free_slots", "Slots that run no handoff.", ("agent",))
WORKERS = Instrument(
    "workers",
    "Live processes that serve an agent.",
    ("agent",),
)
DEFERRED = Instrument(
    "deferred_handoffs",
    "Handoffs that wait without a slot: for rate limits, a batch, an equal handoff, or the"
    " approval of a call.",
    ("agent",),
)
PAUSED_HANDOFFS = Instrument(
    "paused_handoffs", "Handoffs that wait because their agent is paused.", ("agent",)
)
PAUSED = Instrument("agent_paused", "1 if the agent is paused, else 0.", ("agent",))
UNPLANNED_JOBS = Instrument(
    "jobs_without_worker",
    "Jobs that cannot begin, because no worker serves a specialist that they may use.",
    ("specialists",),
)
SUPERVISORS = Instrument("supervisors", "Live supervisor processes.")
DEAD_LETTERS_KEPT = Instrument("dead_letters_kept", "Dead letters that are kept now.")
USED_MEMORY = Instrument("redis_used_memory_bytes", "Memory that Redis uses.", (), "bytes")
MAX_MEMORY = Instrument(
    "redis_max_memory_bytes", "Memory limit of Redis; 0: no limit.", (), "bytes"
)
GAUGES = (
    QUEUE_DEPTH,
    OLDEST_WAIT,
    TENANT_QUEUE_DEPTH,
    TENANT_OLDEST_WAIT,
    WANTED_SLOTS,
    SLOTS,
    BUSY_SLOTS,
    FREE_SLOTS,
    WORKERS,
    DEFERRED,
    PAUSED_HANDOFFS,
    PAUSED,
    UNPLANNED_JOBS,
    SUPERVISORS,
    DEAD_LETTERS_KEPT,
    USED_MEMORY,
    MAX_MEMORY,
)
_Series = Mapping[tuple[str, ...], int]
"""Value by the values of the labels."""


class StoreMetrics(Collector):
    """Collects the metrics from the store, for one scrape."""

    def __init__(self, store: Store, tenant: str | None = None) -> None:
        """Set up a collector.

        Args:
            tenant: the only tenant whose time series are collected; None: all time series. The
                series that many tenants share are left out.
        """
        self._store = store
        self._tenant = tenant

    def collect(self) -> Iterator[Metric]:
        """Return the metrics.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        counts = self._store.metrics.read_counts()
        load = self._store.fleet_load.now(counts_jobs=False)
        stats = read_stats(self._store, load)
        queues = sorted({stats.supervisor_roles.agent, *(agent.agent for agent in stats.agents)})
        waiting = self._store.metrics.read_backlogs(queues)
        paused_handoffs = self._store.metrics.count_paused_handoffs([*queues, *ROLES])
        families = [
            *_iterate_counters_and_histograms(counts),
            *_iterate_fleet_gauges(stats, paused_handoffs),
            *_iterate_backlog_gauges(waiting, stats.at),
        ]
        families.append(
            _build_unplanned_jobs_gauge(stats, self._store.presence.count_unplanned_jobs())
        )
        for family in families:
            family.samples = list(filter(_is_readable, family.samples))
            if self._tenant is None:
                yield family
            elif "tenant" in _LABELS[family.name]:
                yield self._filter_tenant(family)

    def _filter_tenant(self, family: Metric) -> Metric:
        """Remove the samples of other tenants."""
        filtered = Metric(family.name, family.documentation, family.type)
        for sample in family.samples:
            if sample.labels["tenant"] == self._tenant != OTHER:
                filtered.samples.append(sample)
        return filtered


def _is_readable(sample: Sample) -> bool:
    """Return whether no label has a control character. Other programs wrote such a label: no name
    of a tenant, an agent or a model has one.
    """
    return all(replace_unsafe(value) == value for value in sample.labels.values())


def _collect_labels_by_name() -> dict[str, tuple[str, ...]]:
    """Return the labels of each metric by its full name."""
    labels: dict[str, tuple[str, ...]] = {}
    for instrument in (*COUNTERS, *HISTOGRAMS, *GAUGES):
        labels[PREFIX + instrument.name] = instrument.labels
    return labels


_LABELS = _collect_labels_by_name()


def _iterate_counters_and_histograms(counts: Iterable[Count]) -> Iterator[Metric]:
    """Return the counters and the histograms. A count that this version does not know is
    skipped.
    """
    by_name: dict[str, dict[tuple[str, ...], int]] = defaultdict(dict)
    for count in counts:
        name, *values = count.parts
        by_name[name][tuple(values)] = count.value
    for instrument in COUNTERS:
        yield _build_counter(instrument, by_name[instrument.name])
    for instrument in HISTOGRAMS:
        yield _build_histogram(instrument, by_name[instrument.name])


def _build_counter(instrument: Instrument, series: _Series) -> Metric:
    family = CounterMetricFamily(
        PREFIX + instrument.name, instrument.help, labels=instrument.labels
    )
    for values, count in sorted(series.items()):
        if len(values) == len(instrument.labels):
            family.add_metric(values, count / instrument.divisor)
    return family


def _build_histogram(instrument: Instrument, series: _Series) -> Metric:
    family = HistogramMetricFamily(
        PREFIX + instrument.name, instrument.help, labels=instrument.labels
    )
    label_sets: set[tuple[str, ...]] = set()
    for _, *values in series:
        if len(values) == len(instrument.labels):
            label_sets.add(tuple(values))
    for labels in sorted(label_sets):
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound in BUCKETS:
            total += series.get((bound, *labels), 0)
            buckets.append((bound, total))
        sum_of_values = series.get((_SUM, *labels), 0) / instrument.divisor
        family.add_metric(labels, buckets, sum_of_values)
    return family


def _build_gauge(instrument: Instrument, values: Iterable[tuple[Sequence[str], float]]) -> Metric:
    family = GaugeMetricFamily(PREFIX + instrument.name, instrument.help, labels=instrument.labels)
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def _iterate_fleet_gauges(
    stats: FleetStats, paused_handoffs: Mapping[str, int]
) -> Iterator[Metric]:
    """Return the gauges of the fleet. The roles of the supervisor are one agent, `roles`."""
    agents = (*stats.agents, stats.supervisor_roles)

    def build_agent_gauge(instrument: Instrument, values_by_agent: dict[str, float]) -> Metric:
        return _build_gauge(
            instrument, [((agent,), value) for agent, value in values_by_agent.items()]
        )

    yield build_agent_gauge(WANTED_SLOTS, {agent.agent: agent.wanted_slots for agent in agents})
    yield build_agent_gauge(SLOTS, {agent.agent: agent.slots for agent in agents})
    yield build_agent_gauge(BUSY_SLOTS, {agent.agent: agent.busy for agent in agents})
    yield build_agent_gauge(
        FREE_SLOTS, {agent.agent: max(0, agent.slots - agent.busy) for agent in agents}
    )
    yield build_agent_gauge(WORKERS, {agent.agent: agent.workers for agent in agents})
    yield build_agent_gauge(DEFERRED, {agent.agent: agent.deferred for agent in agents})
    yield build_agent_gauge(PAUSED_HANDOFFS, _count_paused_by_queue(agents, paused_handoffs))
    yield build_agent_gauge(PAUSED, {agent.agent: int(agent.is_paused) for agent in agents})
    yield _build_gauge(SUPERVISORS, [((), stats.supervisors)])
    yield _build_gauge(DEAD_LETTERS_KEPT, [((), stats.dead_letters)])
    yield _build_gauge(USED_MEMORY, [((), stats.used_memory_bytes)])
    yield _build_gauge(MAX_MEMORY, [((), stats.max_memory_bytes)])


def _build_unplanned_jobs_gauge(stats: FleetStats, counts: Mapping[tuple[str, ...], int]) -> Metric:
    """Return the jobs that wait for a worker. A job whose specialist has a worker again is left
    out before its supervisor has checked it.
    """
    served = {agent.agent for agent in stats.agents if agent.workers}
    values: list[tuple[Sequence[str], float]] = []
    for names, count in sorted(counts.items()):
        if not served.intersection(names or served):
            values.append(((" ".join(names) or ANY,), count))
    return _build_gauge(UNPLANNED_JOBS, values)


def _count_paused_by_queue(
    agents: Iterable[AgentStats], paused_handoffs: Mapping[str, int]
) -> dict[str, float]:
    by_queue = dict.fromkeys((agent.agent for agent in agents), 0.0)
    for agent, handoffs in paused_handoffs.items():
        by_queue[get_queue(agent)] += handoffs
    return by_queue


def _iterate_backlog_gauges(waiting: Sequence[Backlog], at: float) -> Iterator[Metric]:
    """Yield the gauges of the queues: those of all tenants together, and then of each tenant.

    Args:
        at: time of the figures, in Unix seconds.
    """
    depths: list[tuple[Sequence[str], float]] = []
    waits: list[tuple[Sequence[str], float]] = []
    tenant_depths: list[tuple[Sequence[str], float]] = []
    tenant_waits: list[tuple[Sequence[str], float]] = []
    for backlog in waiting:
        wait_s = 0.0
        if backlog.since is not None:
            wait_s = max(0.0, at - backlog.since)
        if backlog.tenant is None:
            depths.append(((backlog.queue,), backlog.handoffs))
            waits.append(((backlog.queue,), wait_s))
        else:
            labels = (backlog.tenant, backlog.queue)
            tenant_depths.append((labels, backlog.handoffs))
            tenant_waits.append((labels, wait_s))
    yield _build_gauge(QUEUE_DEPTH, depths)
    yield _build_gauge(OLDEST_WAIT, waits)
    yield _build_gauge(TENANT_QUEUE_DEPTH, tenant_depths)
    yield _build_gauge(TENANT_OLDEST_WAIT, tenant_waits)


router = APIRouter(tags=["fleet"])


@router.get(
    "/metrics",
    summary="Read the metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request, access: Reads) -> Response:
    """Return all metrics in the text format of Prometheus. If the request accepts OpenMetrics,
    return them in that format. A token of a tenant gets only the time series of its tenant.
    """
    encode, media_type = choose_encoder(request.headers.get("accept", ""))

    def scrape() -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(StoreMetrics(access.store, access.tenant))
        return encode(registry)

    text = await run_in_threadpool(scrape)
    return Response(text, headers={"Content-Type": media_type})
