"""A worker that was taken over appends to the journal of a job. It changes and removes nothing
there, and its entries stop no job, no reader and no deadline.
"""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from handoff_queue.shared.store import journal, keys
from handoff_queue.shared.store.journal import build_unreadable_event, parse_entry
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.trust.event_signatures import FACT
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.events import (
    CancelRequested,
    EventRefused,
    JobStatus,
    RecordedEvent,
)
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client import event_hub
from handoff_queue.supervisor.client.event_hub import EventHub
from handoff_queue.supervisor.client.request import Request
from tests.doubles.jobs import a_job
from tests.hostile.redis_commands import JOB
from tests.hostile.redis_with_users import Server
from tests.hostile.signed_system import GENERALIST, SignedSystem, issued_in
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

WORKER = "worker-analyst"
LAST_ID = f"{2**64 - 1}-{2**64 - 1}"
"""The largest id of a stream: no entry can follow."""


def commands_on(server: Server, key: str) -> set[str]:
    """Return the commands that a worker may run with this key as their first key."""
    allowed: set[str] = set()
    with redis.Redis.from_url(server.address) as admin:
        for name, details in admin.execute_command("COMMAND").items():
            place = details["first_key_pos"]
            if not place:
                continue
            arguments = ["1"] * max(abs(details["arity"]) - 1, place)
            arguments[place - 1] = key
            answer = admin.execute_command("ACL", "DRYRUN", WORKER, name, *arguments)
            if answer in (b"OK", "OK"):
                allowed.add(name)
    return allowed


@pytest.mark.parametrize(
    ("part", "commands"),
    [
        ("log", {"rpush", "llen"}),
        ("blob", {"hget", "hstrlen", "hexists", "hsetnx"}),
        ("newest", {"xadd"}),
        ("fetched", {"rpush", "llen", "lrange"}),
    ],
)
def test_a_worker_has_no_command_that_changes_or_removes_an_entry_of_a_job(
    server: Server, part: str, commands: set[str]
) -> None:
    assert commands_on(server, f"{JOB}:{part}") == commands


def test_a_worker_replaces_no_payload(server: Server) -> None:
    with server.store("supervisor") as supervisor, server.connected_as(WORKER) as attacker:
        job_id = a_job(supervisor)
        blobs = supervisor.connection.redis.hgetall(keys.blobs(job_id))
        for digest in blobs:
            attacker.hsetnx(keys.blobs(job_id), digest, b"=other")

        assert blobs
        assert supervisor.connection.redis.hgetall(keys.blobs(job_id)) == blobs


def with_the_last_id(attacker: redis.Redis, job_id: JobId) -> None:
    attacker.xadd(keys.newest_event(job_id), {"v": ""}, id=LAST_ID)


def without_an_entry(attacker: redis.Redis, job_id: JobId) -> None:
    attacker.xadd(keys.newest_event(job_id), {"v": ""}, id=LAST_ID, maxlen=0, approximate=False)


Attack = Callable[[redis.Redis, JobId], None]
FALSE_VERSIONS = pytest.mark.parametrize("attack", [with_the_last_id, without_an_entry])


@FALSE_VERSIONS
def test_a_false_newest_version_hides_no_event_from_a_reader_that_waits(
    server: Server, attack: Attack
) -> None:
    with server.store("supervisor") as supervisor, server.connected_as(WORKER) as attacker:
        job_id = a_job(supervisor)
        attack(attacker, job_id)
        version = supervisor.journal.append(job_id, CancelRequested())

        (recorded,) = supervisor.journal.follow(job_id, version - 1, 0.05)

        assert isinstance(recorded.event, CancelRequested)


def test_a_waiting_reader_holds_no_long_entry_of_a_worker(server: Server) -> None:
    """Each waiting client and console read the whole entry, again and again."""
    with server.store("observer") as observer, server.store("supervisor") as supervisor:
        job_id, other_id = a_job(supervisor), a_job(supervisor)
        positions = {job_id: 1, other_id: 1}
        with server.connected_as(WORKER) as attacker:
            attacker.xadd(keys.newest_event(job_id), {"v": b"x" * 50_000_000}, id=LAST_ID)
        tracemalloc.start()

        assert observer.journal.follow_each(positions, 0.01) == {}
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        supervisor.journal.append(other_id, CancelRequested())
        news = observer.journal.follow_each(positions, MAX_WAIT_S)

        assert peak_bytes < 20_000_000
        assert list(news) == [other_id]
        supervisor.connection.redis.delete(keys.newest_event(job_id))


def test_a_reader_with_a_false_newest_version_waits_before_it_reads_again(server: Server) -> None:
    """A loop without a wait would take the processor of each server that follows the job."""
    with server.store("supervisor") as supervisor, server.connected_as(WORKER) as attacker:
        job_id = a_job(supervisor)
        with_the_last_id(attacker, job_id)
        before = supervisor.connection.now()

        assert supervisor.journal.follow(job_id, 1, 0.1) == []
        assert supervisor.journal.follow_each({job_id: 1}, 0.1) == {}

        assert supervisor.connection.now() - before >= 0.2


@FALSE_VERSIONS
def test_a_false_newest_version_hides_no_event_from_the_followers_of_many_jobs(
    server: Server, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_hub, "CHECK_EVERY_S", 0.0)
    with server.store("supervisor") as supervisor, server.connected_as(WORKER) as attacker:
        job_id = a_job(supervisor)
        attack(attacker, job_id)
        hub = EventHub(supervisor)

        async def follow() -> list[str]:
            subscription = hub.subscribe(job_id, 1)
            supervisor.journal.append(job_id, CancelRequested())
            news = await subscription.wait_for_news(60)
            await asyncio.to_thread(hub.close)
            return [recorded.event.type for recorded in news]

        assert asyncio.run(follow()) == ["cancel_requested"]


def of_another_type(store: Store, job_id: JobId, _: pytest.MonkeyPatch) -> None:
    redis_client = store.connection.redis
    redis_client.delete(keys.log(job_id))
    redis_client.set(keys.log(job_id), "no list", px=60_000)


def with_an_unknown_error(store: Store, job_id: JobId, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an entry raise an error that no reader of a journal expects."""

    def parse_unless_bad(version: int, entry: bytes) -> RecordedEvent:
        if entry.endswith(b" BAD"):
            raise ZeroDivisionError
        return parse_entry(version, entry)

    monkeypatch.setattr(journal, "parse_entry", parse_unless_bad)
    store.connection.redis.rpush(keys.log(job_id), "1790000000000 BAD")


@pytest.mark.parametrize("spoil", [of_another_type, with_an_unknown_error])
def test_a_journal_that_cannot_be_read_ends_only_the_streams_of_its_job(
    store: Store,
    spoil: Callable[[Store, JobId, pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One thread reads for all streams of a server."""
    monkeypatch.setattr(event_hub, "READ_S", 0.01)
    bad, good = a_job(store), a_job(store)
    hub = EventHub(store)

    async def follow() -> tuple[str, str, list[str]]:
        of_bad, of_good = hub.subscribe(bad, 1), hub.subscribe(good, 1)
        spoil(store, bad, monkeypatch)
        store.connection.redis.xadd(keys.newest_event(bad), {"v": ""}, id="2-0")
        with pytest.raises(MalformedMessage) as error:
            await of_bad.wait_for_news(60)
        again = hub.subscribe(bad, 1)
        with pytest.raises(MalformedMessage):
            await again.wait_for_news(60)
        store.journal.append(good, CancelRequested())
        news = await of_good.wait_for_news(60)
        await asyncio.to_thread(hub.close)
        return bad, str(error.value), [recorded.event.type for recorded in news]

    job_id, problem, news = asyncio.run(follow())

    assert f"the journal of {job_id} " in problem
    assert news == ["cancel_requested"]


def append(signed: SignedSystem, job_id: JobId, entry: bytes) -> None:
    """Append an entry to a journal, and make the job due."""
    signed.store.connection.redis.rpush(keys.log(job_id), entry)
    signed.store.connection.redis.zadd(keys.DUE, {job_id: 1})


GARBAGE = {
    "an empty entry": b"",
    "a text without a time": b"no event",
    "an event without a time": CancelRequested().to_json().encode(),
    "a time alone": b"1790000000000",
    "no event": b"1790000000000 {}",
    "bytes that are not UTF-8": b"1790000000000 \xff\x00",
    "an event of no type": b'1790000000000 {"type": "of_tomorrow"}',
    "deep JSON": b"1790000000000 " + b"[" * 50_000,
    "a time after all deadlines": b"999999999999999 {}",
    "a time with countless digits": b"9" * 5_000 + b" {}",
    "a long entry": b"1790000000000 " + b"x" * 60_000,
}


@pytest.mark.parametrize("entry", GARBAGE.values(), ids=GARBAGE.keys())
def test_an_entry_that_cannot_be_read_stops_no_job(
    signed: SignedSystem, held: JobId, entry: bytes
) -> None:
    append(signed, held, entry)

    signed.wait_for_letter("it has no signature")

    assert isinstance(signed.jobs.store.journal.read(held)[-1].event, EventRefused)
    assert signed.store.job_summaries.read(held).job.status is JobStatus.RUNNING


@pytest.mark.parametrize("digits", [13, 14, 15, 16, 5_000])
def test_each_time_of_an_entry_is_a_date(digits: int) -> None:
    """The MCP server shows the time of the last entry, also of a refused one."""
    entry = build_unreadable_event(1, b"9" * digits + b" {}", "-")

    assert datetime.fromtimestamp(entry.at, UTC).year < 9999


def signed_by(signed: SignedSystem, identity: str, job_id: JobId, handoff_id: str) -> bytes:
    """Return an entry that no version can read, with the signature of an identity."""
    text = json.dumps({"type": "of_tomorrow", "handoff_id": handoff_id}, separators=(",", ":"))
    signature = signed.trust_of(identity).code_events(FACT, job_id, "word", text)
    return f'1790000000000 {text[:-1]},"signature":"{FACT}/1/word/{signature}"}}'.encode()


def test_a_worker_stops_no_job_of_another_role_with_a_signed_entry(
    signed: SignedSystem, held: JobId
) -> None:
    issued = issued_in(signed.store, held)
    assert issued is not None
    append(signed, held, signed_by(signed, "worker-researcher", held, issued.handoff_id))

    signed.wait_for_letter("it is signed by worker-researcher, and cannot be read")


def unreadable_of_own_handoff(signed: SignedSystem, **options: Any) -> JobId:
    """Return a job with an entry that the worker of its open handoff has signed, and that no
    version can read. The handoff waits for its paused specialist.
    """
    signed.jobs.pause(GENERALIST)
    request = Request("What is Redis?", mode=Mode.SINGLE, specialists=(GENERALIST,), **options)
    job_id = signed.jobs.submit(request)
    wait_until(lambda: issued_in(signed.store, job_id), expected="the handoff")
    issued = issued_in(signed.store, job_id)
    assert issued is not None
    append(signed, job_id, signed_by(signed, f"worker-{GENERALIST}", job_id, issued.handoff_id))
    with pytest.raises(MalformedMessage, match="type"):
        signed.jobs.store.journal.read(job_id)
    return job_id


def test_a_worker_holds_up_no_cancel_with_a_signed_event_that_cannot_be_read(
    signed: SignedSystem,
) -> None:
    job_id = unreadable_of_own_handoff(signed)

    signed.jobs.cancel(job_id)
    ended = signed.jobs.wait(job_id, 60)
    signed.jobs.unpause(GENERALIST)

    assert ended is JobStatus.CANCELLED
    assert signed.jobs.result(job_id).status is JobStatus.CANCELLED
    signed.wait_for_letter("it is signed by worker-generalist, and cannot be read")


def test_a_job_ends_at_its_deadline_after_a_signed_event_that_cannot_be_read(
    signed: SignedSystem,
) -> None:
    job_id = unreadable_of_own_handoff(signed, limits=JobLimits(max_seconds=10))

    ended = signed.jobs.wait(job_id, 120)
    signed.jobs.unpause(GENERALIST)

    assert ended is JobStatus.FAILED
    assert signed.jobs.result(job_id).status is JobStatus.FAILED


def test_a_signed_event_after_the_end_hides_no_result(signed: SignedSystem) -> None:
    signed.jobs.pause(GENERALIST)
    job_id = signed.submit()
    wait_until(lambda: issued_in(signed.store, job_id), expected="the handoff")
    issued = issued_in(signed.store, job_id)
    assert issued is not None
    signed.jobs.cancel(job_id)
    assert signed.jobs.wait(job_id, 60) is JobStatus.CANCELLED
    signed.jobs.unpause(GENERALIST)

    append(signed, job_id, signed_by(signed, f"worker-{GENERALIST}", job_id, issued.handoff_id))

    assert signed.jobs.result(job_id).status is JobStatus.CANCELLED


def test_a_signed_event_of_a_newer_version_is_left_to_a_process_of_that_version(
    signed: SignedSystem, held: JobId
) -> None:
    redis_client, log = signed.store.connection.redis, keys.log(held)
    append(signed, held, signed_by(signed, "supervisor", held, ""))

    with pytest.raises(MalformedMessage, match="type"):
        signed.jobs.store.journal.read(held)

    redis_client.ltrim(log, 0, -2)
    redis_client.zadd(keys.DUE, {held: 1})
