"""The asyncio client, on a real Redis. The test writes the events that a supervisor would write."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.errors import HandoffError, StoreUnavailable, UnknownJob, UserError
from handoff_queue.shared.types.events import CancelRequested, JobEnded, JobStatus, RetryRequested
from handoff_queue.shared.types.ids import JobId, create_job_id
from handoff_queue.supervisor.client import event_hub
from handoff_queue.supervisor.client.async_client import AsyncClient, connect_async
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.doubles.jobs import a_job
from tests.doubles.redis_faults import OwnRedis
from tests.waiting import wait_until

ENDED = JobEnded(status=JobStatus.OK)
FOLLOWERS = 200


@asynccontextmanager
async def client_of(store: Store) -> AsyncIterator[AsyncClient]:
    async with connect_async(store.connection.url, Settings(offline=True)) as jobs:
        yield jobs


async def until_followed(jobs: AsyncClient, count: int) -> None:
    """Wait until the event hub has this many followers."""
    while sum(map(len, list(jobs._hub._followers.values()))) < count:
        await asyncio.to_thread(threading.Event().wait, 0.01)


async def kinds_of(jobs: AsyncClient, job_id: JobId, after: int = 0) -> list[str]:
    return [recorded.event.type async for recorded in jobs.events(job_id, after)]


def request_cancel(store: Store, job_id: JobId) -> None:
    store.journal.append(job_id, CancelRequested())


def end_job(store: Store, job_id: JobId) -> None:
    store.journal.append(job_id, ENDED, {"status": "ok"})


def test_a_closed_client_has_no_connection_to_redis(store: Store) -> None:
    def connections() -> set[str]:
        return {client["id"] for client in store.connection.redis.client_list()}

    async def submit() -> None:
        async with client_of(store) as jobs:
            await jobs.submit(Request("Compare Qdrant and Milvus"))
            assert len(connections() - before) >= 2, "one for the store, one for the broker"

    before = connections()
    asyncio.run(submit())

    wait_until(lambda: connections() <= before, expected="the end of the connections")


def test_the_async_client_has_the_methods_of_the_sync_client() -> None:
    def methods(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}

    assert methods(AsyncClient) - {
        "aclose",
        "event_batches",
        "event_stream",
        "stop_following",
    } == methods(Client) - {"close"}


@pytest.mark.parametrize("name", sorted({"retry", "approve", "reject", "export", "events", "wait"}))
def test_methods_take_the_same_arguments_as_those_of_the_sync_client(name: str) -> None:
    asynchronous, synchronous = getattr(AsyncClient, name), getattr(Client, name)

    assert inspect.signature(asynchronous).parameters == inspect.signature(synchronous).parameters


def test_stored_events_come_before_new_events_and_the_end_ends_the_stream(store: Store) -> None:
    job_id = a_job(store)
    request_cancel(store, job_id)

    async def follow() -> list[str]:
        async with client_of(store) as jobs:
            following = asyncio.create_task(kinds_of(jobs, job_id))
            await until_followed(jobs, 1)
            end_job(store, job_id)
            return await following

    assert asyncio.run(follow()) == ["job_submitted", "cancel_requested", "job_ended"]


def test_a_returning_follower_gets_only_the_events_after_its_last(store: Store) -> None:
    job_id = a_job(store)
    request_cancel(store, job_id)
    end_job(store, job_id)

    async def follow() -> list[str]:
        async with client_of(store) as jobs:
            return await kinds_of(jobs, job_id, after=2)

    assert asyncio.run(follow()) == ["job_ended"]


def test_following_an_ended_job_from_its_last_event_ends_at_once(store: Store) -> None:
    job_id = a_job(store)
    end_job(store, job_id)

    async def follow() -> list[str]:
        async with client_of(store) as jobs:
            return await kinds_of(jobs, job_id, after=2)

    assert asyncio.run(follow()) == []


def test_a_job_that_is_retried_is_followed_to_its_next_end(store: Store) -> None:
    job_id = a_job(store)
    end_job(store, job_id)
    store.journal.append(job_id, RetryRequested(), {"status": "running"})

    async def follow() -> list[str]:
        async with client_of(store) as jobs:
            following = asyncio.create_task(kinds_of(jobs, job_id, after=1))
            await until_followed(jobs, 1)
            end_job(store, job_id)
            return await following

    assert asyncio.run(follow()) == ["job_ended", "retry_requested", "job_ended"]


def test_a_slow_follower_of_a_job_that_is_retried_follows_the_job_to_its_next_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_hub, "CHECK_EVERY_S", 0.0)
    job_id = a_job(store)

    async def follow() -> list[str]:
        kinds: list[str] = []
        async with client_of(store) as jobs:
            async for recorded in jobs.events(job_id):
                kinds.append(recorded.event.type)
                if kinds == [
                    "job_submitted"
                ]:  # the end and the retry come while the follower works
                    end_job(store, job_id)
                    (subscription,) = jobs._hub._followers[job_id]
                    while not subscription.has_ended:
                        await asyncio.to_thread(threading.Event().wait, 0.01)
                    store.journal.append(job_id, RetryRequested(), {"status": "running"})
                elif kinds[-1] == "retry_requested":
                    request_cancel(store, job_id)
                elif kinds[-1] == "cancel_requested":
                    end_job(store, job_id)
        return kinds

    expected = ["job_submitted", "job_ended", "retry_requested", "cancel_requested", "job_ended"]
    assert asyncio.run(follow()) == expected


def test_a_job_whose_end_shows_only_in_its_status_ends_the_stream(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower that starts between the last event and the change of the status must not wait."""
    monkeypatch.setattr(event_hub, "CHECK_EVERY_S", 0.0)
    job_id = a_job(store)

    async def follow() -> list[str]:
        async with client_of(store) as jobs:
            following = asyncio.create_task(kinds_of(jobs, job_id, after=1))
            await until_followed(jobs, 1)
            store.connection.redis.hset(f"handoff:{{{job_id}}}", "status", "ok")
            return await following

    assert asyncio.run(follow()) == []


def test_a_job_that_is_deleted_while_it_is_followed_is_an_unknown_job(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_hub, "CHECK_EVERY_S", 0.0)
    job_id = a_job(store)

    async def follow() -> None:
        async with client_of(store) as jobs:
            following = asyncio.create_task(kinds_of(jobs, job_id))
            await until_followed(jobs, 1)
            store.jobs.delete(job_id)
            await following

    with pytest.raises(UnknownJob, match=job_id):
        asyncio.run(follow())


def test_an_unknown_job_cannot_be_followed(store: Store) -> None:
    async def follow() -> None:
        async with client_of(store) as jobs:
            await kinds_of(jobs, create_job_id())

    with pytest.raises(UnknownJob):
        asyncio.run(follow())


def test_a_slow_follower_loses_no_event(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_hub, "BACKLOG", 3)
    job_id = a_job(store)

    async def follow() -> list[int]:
        versions = []
        async with client_of(store) as jobs:
            async for recorded in jobs.events(job_id):
                versions.append(recorded.version)
                if len(versions) == 1:
                    for _ in range(20):
                        request_cancel(store, job_id)
                    end_job(store, job_id)
        return versions

    assert asyncio.run(follow()) == list(range(1, 23))


def test_followers_of_one_job_share_one_read(store: Store) -> None:
    job_id = a_job(store)

    async def follow() -> list[list[str]]:
        async with client_of(store) as jobs:
            following = [asyncio.create_task(kinds_of(jobs, job_id)) for _ in range(5)]
            await until_followed(jobs, 5)
            assert len(jobs._hub._positions) == 1
            end_job(store, job_id)
            return await asyncio.gather(*following)

    assert asyncio.run(follow()) == [["job_submitted", "job_ended"]] * 5


@pytest.mark.slow
def test_followers_cost_neither_threads_nor_connections(store: Store) -> None:
    job_ids = [a_job(store) for _ in range(FOLLOWERS)]

    async def follow() -> tuple[int, int, list[list[str]]]:
        async with client_of(store) as jobs:
            threads = threading.active_count()
            connections = len(store.connection.redis.client_list())
            following = [asyncio.create_task(kinds_of(jobs, job_id)) for job_id in job_ids]
            await until_followed(jobs, FOLLOWERS)
            more_threads = threading.active_count() - threads
            more_connections = len(store.connection.redis.client_list()) - connections
            for job_id in job_ids:
                end_job(store, job_id)
            return more_threads, more_connections, await asyncio.gather(*following)

    threads, connections, kinds = asyncio.run(follow())
    # the client's pool, the reader of the event hub, and a helper of this test
    few = 16 + 1 + 2
    assert threads <= few
    assert connections <= few
    assert kinds == [["job_submitted", "job_ended"]] * FOLLOWERS


def test_a_leaving_follower_is_forgotten(store: Store) -> None:
    job_id = a_job(store)

    async def follow() -> int:
        async with client_of(store) as jobs:
            following = asyncio.create_task(kinds_of(jobs, job_id))
            await until_followed(jobs, 1)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            return len(jobs._hub._followers)

    assert asyncio.run(follow()) == 0


def test_a_quiet_stream_sends_heartbeats(store: Store) -> None:
    job_id = a_job(store)

    async def follow() -> list[str]:
        async with client_of(store) as jobs:
            stream = jobs.event_stream(job_id, heartbeat_s=0.05)
            return [await anext(stream) for _ in range(3)]

    first, *silence = asyncio.run(follow())
    assert first.startswith("id: 1\nevent: job_submitted\ndata: {")
    assert silence == [": heartbeat\n\n"] * 2


def test_wait_returns_the_status_at_the_job_s_end(store: Store) -> None:
    job_id = a_job(store)

    async def follow() -> JobStatus:
        async with client_of(store) as jobs:
            waiting = asyncio.create_task(jobs.wait(job_id, 60))
            await until_followed(jobs, 1)
            end_job(store, job_id)
            return await waiting

    assert asyncio.run(follow()) is JobStatus.OK


@pytest.mark.parametrize("wait_s", [float("nan"), -1.0, "soon"])
def test_a_wait_has_the_bounds_of_the_sync_client(store: Store, wait_s: float) -> None:
    async def ask() -> None:
        async with client_of(store) as jobs:
            await jobs.result(a_job(store), wait_s=wait_s)

    with pytest.raises(UserError, match="wait_s must be a number"):
        asyncio.run(ask())


def test_wait_returns_the_status_at_the_end_of_its_time(store: Store) -> None:
    job_id = a_job(store)

    async def follow() -> JobStatus:
        async with client_of(store) as jobs:
            return await jobs.wait(job_id, 0.05)

    assert asyncio.run(follow()) is JobStatus.RUNNING


def test_a_job_is_submitted_read_and_cancelled(store: Store) -> None:
    async def use() -> tuple[bool, str]:
        async with client_of(store) as jobs:
            job_id = await jobs.submit(Request("Compare Qdrant and Milvus"))
            is_cancelled = await jobs.cancel(job_id)
            return is_cancelled, (await jobs.result(job_id)).job_id

    is_cancelled, job_id = asyncio.run(use())
    assert is_cancelled
    assert job_id.startswith("j-")


def test_many_jobs_are_submitted_in_order(store: Store) -> None:
    requests = [Request(f"Compare {number} things") for number in range(3)]

    async def use() -> list[str]:
        async with client_of(store) as jobs:
            return [(await jobs.info(job_id)).title async for job_id in jobs.submit_each(requests)]

    assert asyncio.run(use()) == [request.text for request in requests]


def test_followers_of_a_closed_client_get_an_error(store: Store) -> None:
    job_id = a_job(store)

    async def follow() -> None:
        async with client_of(store) as jobs:
            following = asyncio.create_task(kinds_of(jobs, job_id))
            await until_followed(jobs, 1)
        await following

    with pytest.raises(HandoffError, match="the client was closed"):
        asyncio.run(follow())


@pytest.fixture
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    server = OwnRedis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.mark.slow
def test_a_restart_of_redis_costs_a_follower_nothing(own_redis: OwnRedis) -> None:
    async def follow() -> list[str]:
        async with connect_async(own_redis.url, Settings(offline=True)) as jobs:
            store = jobs._client.store
            job_id = a_job(store)
            following = asyncio.create_task(kinds_of(jobs, job_id))
            await until_followed(jobs, 1)
            await asyncio.to_thread(own_redis.kill)
            await asyncio.to_thread(own_redis.start)
            another = open_store(own_redis.url, Settings())
            end_job(another, job_id)
            another.connection.close()
            return await following

    assert asyncio.run(follow()) == ["job_submitted", "job_ended"]


@pytest.mark.slow
def test_a_read_of_a_follower_waits_for_a_redis_that_restarts(own_redis: OwnRedis) -> None:
    async def read() -> list[str]:
        async with connect_async(own_redis.url, Settings(offline=True)) as jobs:
            job_id = a_job(jobs._client.store)
            await asyncio.to_thread(own_redis.kill)
            reading = asyncio.create_task(jobs._read_through_outage(jobs._read_events, job_id, 0))
            await asyncio.to_thread(own_redis.start)
            return [recorded.event.type for recorded in await reading]

    assert asyncio.run(read()) == ["job_submitted"]


@pytest.mark.slow
def test_a_lasting_outage_of_redis_is_an_error_for_every_follower(
    own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "handoff_queue.supervisor.client.journal_follower.ReconnectLimit.record_failure", _refuse
    )

    async def follow() -> list[BaseException | list[str]]:
        async with connect_async(own_redis.url, Settings(offline=True)) as jobs:
            job_ids = [a_job(jobs._client.store) for _ in range(2)]
            following = [asyncio.create_task(kinds_of(jobs, job_id)) for job_id in job_ids]
            await until_followed(jobs, 2)
            await asyncio.to_thread(own_redis.kill)
            return await asyncio.gather(*following, return_exceptions=True)

    assert [type(outcome) for outcome in asyncio.run(follow())] == [StoreUnavailable] * 2


def _refuse(_: object, error: StoreUnavailable) -> None:
    raise error
