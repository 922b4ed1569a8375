"""One process of `handoff serve` serves 2,000 followers of events in 300 MB."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import JobId
from tests.doubles.jobs import a_job
from tests.e2e.commands import Handoff
from tests.e2e.test_serve import served

pytestmark = pytest.mark.slow

FOLLOWERS = 2_000
JOBS = 50
MAX_RSS_KB = 300_000
OPENING = 100
"""Connections that the test opens at the same time."""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def enough_files() -> Iterator[None]:
    """Let this process and its children open a file for each follower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 3 * FOLLOWERS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def rss_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


async def follow(port: int, job_id: JobId) -> Connection:
    """Open a stream, and read its first event."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"event: job_submitted")
    return reader, writer


async def memory_with_followers(url: str, pid: int, store: Store, job_ids: Sequence[JobId]) -> int:
    """Return the memory of the server in kB while each follower waits and then gets an event."""
    port = int(url.rpartition(":")[2])
    connections: list[Connection] = []
    for start in range(0, FOLLOWERS, OPENING):
        numbers = range(start, start + OPENING)
        connections += await asyncio.gather(
            *(follow(port, job_ids[number % JOBS]) for number in numbers)
        )
    for job_id in job_ids:
        store.journal.append(job_id, CancelRequested())
    for reader, _ in connections:
        await reader.readuntil(b"event: cancel_requested")
    used_kb = rss_kb(pid)
    for _, writer in connections:
        writer.close()
    return used_kb


def test_2000_followers_of_events_share_one_process_of_300_mb(
    handoff: Handoff, redis_url: str, store: Store, enough_files: None
) -> None:
    job_ids = [a_job(store) for _ in range(JOBS)]
    with served(
        handoff,
        redis_url,
        HANDOFF_SERVE_REQUESTS_PER_MINUTE=str(10 * FOLLOWERS),
        HANDOFF_SERVE_STREAMS=str(FOLLOWERS),
    ) as (
        process,
        url,
    ):
        used_kb = asyncio.run(memory_with_followers(url, process.pid, store, job_ids))

    assert used_kb < MAX_RSS_KB
