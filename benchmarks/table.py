"""Measures every row in turn, and prints the comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median, quantiles

from benchmarks.driver import Driver
from benchmarks.fleets import (
    BARE_CANVAS,
    THIS_PROJECT,
    THIS_PROJECT_TWO_WORKERS,
    SystemRow,
    running,
)
from benchmarks.processor_time import forget_peak, read_cpu_seconds, read_peak_memory
from benchmarks.timed_model import TimedCall
from handoff_queue.shared.local.fork_server import ForkServer
from handoff_queue.shared.types.plan import Synthesis

JOBS_AT_LEAST = 20
"""Least number of jobs of each measurement without waiting calls; smaller batches are repeated."""


@dataclass(frozen=True, slots=True, order=True)
class Load:
    """Jobs that a row must run."""

    call: TimedCall
    at_once: int

    @property
    def batches(self) -> int:
        if self.call.seconds:
            return 1
        return -(-JOBS_AT_LEAST // self.at_once)


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement of one row under one load."""

    jobs_per_s: float
    each_s: tuple[float, ...]
    """Seconds from each submission to its answer."""
    cpu_ms: float
    """Processor time of a job in all processes, in ms."""
    redis_cpu_ms: float
    memory_mb: float
    """Sum of the peak memory of all processes."""
    redis_mb: float

    @property
    def p50_s(self) -> float:
        return median(self.each_s)

    @property
    def p95_s(self) -> float:
        if len(self.each_s) > 1:
            return quantiles(self.each_s, n=20, method="inclusive")[-1]
        return self.each_s[0]


Table = dict[tuple[Load, SystemRow], list[Measured]]
"""Measurements of each row under each load, one for each repeat."""


def measure_load(driver: Driver, pids: Mapping[str, int], load: Load) -> Measured:
    for pid in pids.values():
        forget_peak(pid)
    before: dict[str, float] = {}
    for name, pid in pids.items():
        before[name] = read_cpu_seconds(pid)
    jobs, took_s, each_s = load.batches * load.at_once, 0.0, list[float]()
    for _ in range(load.batches):
        took_s += driver.run(load.at_once)
        if load.batches > 1:
            each_s += driver.list_durations()
    cpu_ms: dict[str, float] = {}
    memory_mb: dict[str, float] = {}
    for name, pid in pids.items():
        cpu_ms[name] = 1000 * (read_cpu_seconds(pid) - before[name]) / jobs
        memory_mb[name] = read_peak_memory(pid)
    each_s = (
        each_s or driver.list_durations()
    )  # where it takes the most to find out, after the clock
    return Measured(
        jobs / took_s,
        tuple(each_s),
        sum(cpu_ms.values()),
        cpu_ms.get("redis", 0.0),
        sum(memory_mb.values()),
        memory_mb.get("redis", 0.0),
    )


def measure(
    rows: Sequence[SystemRow],
    calls: Iterable[TimedCall],
    at_once: Sequence[int],
    synthesis: Synthesis,
    repeats: int,
    fork_server: ForkServer | None = None,
) -> Iterator[Table]:
    """Measure the rows in turn. Each row has its own processes, which end before the next row
    begins. Yields the table after each turn.

    Args:
        fork_server: see `fleets.fleet`. The figures of forked processes cannot be compared.
    """
    table: Table = {}
    kinds = list(calls)
    for _ in range(repeats):
        for call in kinds:
            for row in rows:
                with running(row, call, synthesis, fork_server) as (driver, pids):
                    for count in sorted(at_once):  # what many have taken is not given back
                        load = Load(call, count)
                        table.setdefault((load, row), []).append(measure_load(driver, pids, load))
                yield table


def compute_ratio(
    table: Table, load: Load, row: SystemRow, to: Iterable[SystemRow]
) -> float | None:
    """Return the jobs a second relative to the best other row: the median of the repeats'
    ratios. None: there is no other row.
    """
    others: list[list[Measured]] = []
    for other in to:
        if (load, other) in table:
            others.append(table[load, other])
    if not others:
        return None
    ratios: list[float] = []
    for measured, *rivals in zip(table[load, row], *others, strict=True):
        ratios.append(measured.jobs_per_s / max(rival.jobs_per_s for rival in rivals))
    return median(ratios)


HEAD = (
    "| call | at once | | jobs/s | p50 s | p95 s | CPU ms a job | MB | MB a job | of the canvas |"
    " of LangGraph |"
)


def format_lines(table: Table) -> Iterator[str]:
    """Yield the table as Markdown."""
    yield HEAD
    yield "|---" * (HEAD.count("|") - 1) + "|"
    for load in sorted({load for load, _ in table}):
        rows = [row for row_load, row in table if row_load == load]
        peers = [row for row in rows if row.is_peer]
        for row in rows:
            cells = [str(load.call), str(load.at_once), row.name]
            cells += _format_figures(load, table[load, row])
            for others in ([BARE_CANVAS], peers):
                times = None
                if row not in others:
                    times = compute_ratio(table, load, row, others)
                cells.append(_format_ratio(times))
            yield f"| {' | '.join(cells)} |"


def _format_figures(load: Load, repeats: Sequence[Measured]) -> list[str]:
    cpu_ms = _compute_median(repeats, "cpu_ms")
    memory_mb = _compute_median(repeats, "memory_mb")
    redis_cpu, redis_memory = "", ""
    if _compute_median(repeats, "redis_mb"):
        redis_cpu = f" (Redis {_compute_median(repeats, 'redis_cpu_ms'):.1f})"
        redis_memory = f" (Redis {_compute_median(repeats, 'redis_mb'):.0f})"
    return [
        f"{_compute_median(repeats, 'jobs_per_s'):.1f}",
        f"{_compute_median(repeats, 'p50_s'):.3f}",
        f"{_compute_median(repeats, 'p95_s'):.3f}",
        f"{cpu_ms:.1f}{redis_cpu}",
        f"{memory_mb:.0f}{redis_memory}",
        f"{memory_mb / load.at_once:.1f}",
    ]


def _compute_median(repeats: Iterable[Measured], figure: str) -> float:
    """Return the median of a figure, by its name in `Measured`."""
    return float(median(map(attrgetter(figure), repeats)))


def _format_ratio(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}x"


def format_targets(table: Table, critical_path_calls: int) -> Iterator[str]:
    """Yield each target with its measurement: for many jobs at once the best row of this
    project, for one job the first row.
    """
    loads = sorted({load for load, _ in table})
    rows_of = {row for _, row in table}
    instant: list[Load] = []
    waiting: list[Load] = []
    for load in loads:
        if load.call.seconds:
            waiting.append(load)
        else:
            instant.append(load)
    max_at_once: dict[TimedCall, Load] = {}
    by_function: list[Load] = []
    for load in waiting:
        max_at_once[load.call] = load
        if not load.call.is_over_http:
            by_function.append(load)
    peers = [row for row in rows_of if row.is_peer]
    rows = [row for row in (THIS_PROJECT, THIS_PROJECT_TWO_WORKERS) if row in rows_of]
    for load in instant:
        if load.at_once > 1:
            yield _find_best_ratio(
                table, load, rows, [BARE_CANVAS], "the canvas's jobs/s, no latency", "at least 1.2x"
            )
            yield _find_best_ratio(
                table, load, rows, peers, "LangGraph's jobs/s, no latency", "at least 0.7x"
            )
    for load in max_at_once.values():
        yield _find_best_ratio(
            table, load, rows, peers, f"LangGraph's jobs/s, {load.call} a call", "at least 1x"
        )
    if instant and instant[0].at_once == 1 and {THIS_PROJECT, BARE_CANVAS} <= rows_of:
        pairs = zip(table[instant[0], THIS_PROJECT], table[instant[0], BARE_CANVAS], strict=True)
        idle = median(project.p50_s / canvas.p50_s for project, canvas in pairs)
        yield (
            f"- Of the canvas's time for one job, no latency: **{idle:.2f}x** (wanted: at most"
            " 1.0x)"
        )
    if by_function and by_function[0].at_once == 1 and THIS_PROJECT in rows_of:
        path = _compute_median(table[by_function[0], THIS_PROJECT], "p50_s") / (
            critical_path_calls * by_function[0].call.seconds
        )
        yield (
            f"- Of a critical path of {critical_path_calls} calls of {by_function[0].call}:"
            f" **{path:.3f}x** (wanted: at most 1.03x)"
        )


def _find_best_ratio(
    table: Table,
    load: Load,
    rows: Sequence[SystemRow],
    to: Sequence[SystemRow],
    of: str,
    target: str,
) -> str:
    candidates: list[tuple[float, str]] = []
    for row in rows:
        if (times := compute_ratio(table, load, row, to)) is not None:
            candidates.append((times, row.name))
    if not candidates:
        return f"- Of {of}, {load.at_once} at once: not measured"
    times, name = max(candidates)
    return f"- Of {of}, {load.at_once} at once: **{times:.2f}x** ({name}; wanted: {target})"
