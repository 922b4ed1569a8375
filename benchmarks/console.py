"""Times of the console in Chromium, for a table of many jobs and a job of many handoffs:
`python -m benchmarks.console`.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import httpx2

from benchmarks.arguments import parse_positive
from benchmarks.fleets import private_redis
from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from tests.browser.console import JobPage, painted_after_ms
from tests.browser.driver import Browser, browser
from tests.doubles.many_jobs import many_jobs
from tests.supervisor.many_rows import submit_rows
from tests.supervisor.shell import SETTINGS, Shell
from tests.waiting import wait_until

FILTER = "tenant=tenth&text=database+{}&status=queued"
"""A filter that one of the oldest jobs matches."""
ROWS_DRAWN = "return document.querySelectorAll('#timeline .row:not(.group)').length"


@contextmanager
def console(redis_url: str, folder: Path) -> Iterator[str]:
    """Run `handoff serve` in its own process, and give its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        with suppress(httpx2.TransportError):
            return httpx2.get(f"{url}/login", trust_env=False).is_success
        return False

    with Processes(folder) as processes:
        command = [str(Path(sys.executable).parent / "handoff"), "serve", "--port", str(port)]
        environment = {**os.environ, "HANDOFF_REDIS_URL": redis_url}
        processes.start(ChildSpec("console", command, environment, is_ready=answers))
        processes.wait_until_ready()
        yield url


def store_jobs(redis_url: str, folder: Path, jobs: int, handoffs: int) -> JobId:
    """Store many queued jobs, and then one job with many handoffs. Return the id of the latter."""
    queues = (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)
    shell = Shell(redis_url, make_app("console", redis_url, SETTINGS, queues))
    store: Store = shell.store
    many_jobs(store, jobs)
    shell.serve("researcher", "writer", "generalist")
    job_id = submit_rows(shell, folder, handoffs)
    shell.close()
    return job_id


def repeat_measure(measure: Callable[[], float], repeats: int) -> str:
    """Return the median and the largest of repeated times, in ms. The first time does not count."""
    measure()
    times = [measure() for _ in range(repeats)]
    return f"{median(times):.0f} | {max(times):.0f}"


def measure_of_first_paint(window: Browser, url: str) -> Callable[[], float]:
    """Return a function that opens a page, and returns the ms until its first paint."""

    def measure() -> float:
        window.visit(url)
        return painted_after_ms(window)

    return measure


def measure_of_timeline(window: Browser, page: JobPage, handoffs: int) -> Callable[[], float]:
    """Return a function that opens the page of a job, and returns the ms until its timeline has
    the rows of all handoffs.
    """

    def measure() -> float:
        page.open()
        wait_until(lambda: window.run(ROWS_DRAWN) >= handoffs, expected="the timeline")
        return float(window.run("return performance.now()"))

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=parse_positive, default=10_000)
    parser.add_argument("--handoffs", type=parse_positive, default=2_000)
    parser.add_argument("--repeats", type=parse_positive, default=9)
    options = parser.parse_args()
    load, *_ = os.getloadavg()
    with (
        tempfile.TemporaryDirectory() as name,
        private_redis(Path(name) / "redis") as (redis_url, _),
    ):
        folder = Path(name)
        job_id = store_jobs(redis_url, folder, options.jobs, options.handoffs)
        with console(redis_url, folder / "console") as url, browser(folder / "profile") as window:
            query = FILTER.format(options.jobs - options.jobs // 1_000)
            page = JobPage(window, url, job_id)
            figures = {
                "a page without data, first paint": measure_of_first_paint(window, f"{url}/login"),
                f"{options.jobs:,} jobs, first paint": measure_of_first_paint(window, f"{url}/"),
                f"{options.jobs:,} jobs with a filter, first paint": measure_of_first_paint(
                    window, f"{url}/?{query}"
                ),
                f"a job of {options.handoffs:,} handoffs, first paint": measure_of_first_paint(
                    window, f"{url}/jobs/{job_id}"
                ),
                f"a job of {options.handoffs:,} handoffs, drawn": measure_of_timeline(
                    window, page, options.handoffs
                ),
            }
            print(f"load of the machine: {load:.1f}\n\n| | median ms | largest ms |\n|---|---|---|")
            for label, measure in figures.items():
                print(f"| {label} | {repeat_measure(measure, options.repeats)} |", flush=True)


if __name__ == "__main__":
    main()
