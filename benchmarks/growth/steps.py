"""Jobs with one step for each row. The benchmark measures processor time and memory of a step by
the number of rows, and the waiting time of other jobs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fleets import SLOTS, SUPERVISOR, WORKER, ProcessKind, build_environment, fleet
from benchmarks.growth.queued import ROUNDS, measure_time
from benchmarks.memory import measure_bytes_by_kind
from benchmarks.trips import read_cpu_by_process
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.supervisor.cli.show import show_handoffs, show_outline
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows.items_file import Items
from handoff_queue.supervisor.workflows.library import read_workflow
from handoff_queue.supervisor.workflows.workflow import Workflow

WORKFLOW = """
description: A step for each row.
review: false
steps:
  - id: check
    specialist: researcher
    for_each: rows
    task: "Objective: say what holds for {name}."
"""
EXTRA_STEPS = {
    "rows": "",
    "fan-in": """  - id: summary
    specialist: researcher
    depends_on: [check]
    task: "Objective: say what holds for all."
""",
    "pairs": """  - id: tell
    specialist: researcher
    for_each: rows
    depends_on: [check]
    task: "Objective: tell {name} of it."
""",
}
"""Steps after the step for each row: none, one step that depends on all, or another step for
each.
"""
MAX_RUN_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Steps:
    """Cost of one step in jobs with this number of rows."""

    rows: int
    wall_ms: float
    cpu_ms: Mapping[str, float]
    """Processor time by process: supervisor, worker, redis."""
    memory_kb: float
    """Redis's used_memory, when the jobs have ended."""
    by_kind_kb: Mapping[str, float]
    """Memory of the keys, by their content."""
    show_ms: float
    """Median time of `handoff show` for the last job, in this process, in ms."""
    handoff_ms: float
    """Median time with `--handoff`, for one full handoff."""
    all_ms: float
    """Time with `--full`, measured once."""
    others_ms: Sequence[float]
    """Milliseconds from submission to answer of the small jobs that ran at the same time."""

    @property
    def total_ms(self) -> float:
        return sum(self.cpu_ms.values())


def make_workflow(folder: Path, shape: str) -> Workflow:
    path = folder / "growth.yaml"
    path.write_text(WORKFLOW + EXTRA_STEPS[shape])
    return read_workflow(str(path))


def measure_display_ms(display: Callable[[], object]) -> float:
    """Return the time of a display whose output is discarded, in ms."""
    with redirect_stdout(StringIO()):
        return measure_time(display)


class RowFleet:
    """A supervisor and a worker for the rows. Other jobs have another worker and another
    tenant, so only shared resources delay them.
    """

    def __init__(
        self, folder: Path, url: str, redis: Any, pids: Mapping[str, int], shape: str
    ) -> None:
        self.jobs = client.connect(url, Settings(offline=True, mode=Mode.SINGLE))
        self._workflow = make_workflow(folder, shape)
        if shape == "pairs":
            self._steps_of_a_row = 2
        else:
            self._steps_of_a_row = 1
        self._redis = redis
        self._pids = pids

    def wait_for_workers(self) -> None:
        until = time.monotonic() + 30
        while {"researcher", "writer"} - self.jobs.store.presence.load_served_specialists().keys():
            assert time.monotonic() < until, "the workers did not come"
            time.sleep(0.05)

    def run_small_job(self) -> float:
        """Submit to answer of one agent's job with one call, in ms."""
        began = time.perf_counter()
        job_id = self.jobs.submit(
            Request(
                "Say how it stands.", specialists=("writer",), mode=Mode.SINGLE, tenant="others"
            )
        )
        assert self.jobs.wait(job_id, MAX_RUN_S) is JobStatus.OK
        return 1000 * (time.perf_counter() - began)

    def run_steps(self, rows: int, jobs: int) -> Steps:
        """Run this number of jobs, one after the other, each with this number of rows."""
        items = Items(rows=tuple({"name": f"number {n}"} for n in range(rows)))
        before, used_bytes, cpu, began = (
            measure_bytes_by_kind(self._redis),
            self._read_used_memory(),
            read_cpu_by_process(self._pids),
            time.perf_counter(),
        )
        others_ms: list[float] = []
        for n in range(jobs):
            job_id = self.jobs.submit(
                Request(
                    f"Look at them all, for the {n}th time.", workflow=self._workflow, items=items
                )
            )
            with self._others(others_ms):  # not before: it is this process that makes the plan
                status = self._wait(job_id)
            assert status is JobStatus.OK, f"{job_id} ended {status}"
        took_s, cpu_after = time.perf_counter() - began, read_cpu_by_process(self._pids)
        handoff_ids = [HandoffId(f"check_{rows // 2:04d}.1")]
        outlines_ms: list[float] = []
        handoffs_ms: list[float] = []
        for _ in range(ROUNDS):
            outlines_ms.append(
                measure_display_ms(lambda: show_outline(self.jobs, job_id, as_json=False))
            )
            handoffs_ms.append(
                measure_display_ms(
                    lambda: show_handoffs(self.jobs, job_id, handoff_ids, as_json=False)
                )
            )
        kinds, steps = measure_bytes_by_kind(self._redis), self._steps_of_a_row * rows * jobs
        return Steps(
            rows=rows,
            wall_ms=1000 * took_s / steps,
            cpu_ms={
                name: 1000 * (cpu_after[name] - cpu[name]) / steps
                for name in cpu
                if name not in ("client", "writer")
            },
            memory_kb=(self._read_used_memory() - used_bytes) / steps / 1024,
            by_kind_kb={kind: (kinds[kind] - before[kind]) / steps / 1024 for kind in kinds},
            show_ms=median(outlines_ms),
            handoff_ms=median(handoffs_ms),
            all_ms=measure_time(lambda: self.jobs.result(job_id)),
            others_ms=others_ms,
        )

    def _read_used_memory(self) -> int:
        return int(self._redis.info("memory")["used_memory"])

    def _wait(self, job_id: Any) -> JobStatus:
        """Poll the job. A client that follows each event would take processor time that no
        step needs.
        """
        while not (status := self.jobs.store.jobs.read([job_id])[0].status).has_ended:
            time.sleep(0.05)
        return status

    @contextmanager
    def _others(self, took_ms: list[float]) -> Iterator[None]:
        """Run small jobs one after the other during the block."""
        over = threading.Event()

        def run() -> None:
            while not over.is_set():
                took_ms.append(self.run_small_job())
                over.wait(0.2)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


PARTS = (SUPERVISOR, WORKER, ProcessKind("writer", "benchmarks.handoff_worker", "writer", SLOTS))


@contextmanager
def steps_fleet(
    folder: Path, url: str, redis: Any, server: Mapping[str, int], shape: str
) -> Iterator[RowFleet]:
    with fleet(
        folder / "handoff", build_environment(url, 0.0, Synthesis.MERGE), PARTS, slots=SLOTS
    ) as pids:
        steps = RowFleet(folder, url, redis, {**pids, **server}, shape)
        steps.wait_for_workers()
        yield steps
