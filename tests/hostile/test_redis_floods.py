"""A worker that writes very many values into its keys of Redis makes no other process slow."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest
import redis

from handoff_queue.shared.local.redis_server import MAX_VALUE_BYTES
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.dead_letters import DeadLetter
from handoff_queue.shared.store.memory_notes import Notes
from handoff_queue.shared.store.payloads import (
    LEFT_OUT,
    MAX_BYTES,
    MAX_RESULT_BYTES,
    MAX_STORED_BYTES,
    SHORT_BYTES,
    pack,
)
from handoff_queue.shared.store.presence import MAX_READ_BYTES, READ_AT_ONCE
from handoff_queue.shared.store.redis.script import build_source
from handoff_queue.shared.store.refusals import MAX_REPORTS
from handoff_queue.shared.store.script_arguments import MAX_TEXT_BYTES
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.audit import AuditAction, AuditEntry
from handoff_queue.shared.types.errors import UnreadablePayload
from handoff_queue.shared.types.events import (
    CancelRequested,
    StepRetry,
    StepsTriedAgain,
)
from handoff_queue.shared.types.handoff import Document
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId
from handoff_queue.shared.types.memory_notes import Note
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from tests.doubles.jobs import (
    a_job,
    issue,
    version_of,
)
from tests.hostile.redis_commands import OTHER_JOB
from tests.hostile.redis_with_users import Server, calls_of

pytestmark = pytest.mark.slow

SAMPLE = '{"at": 1, "usd": 1, "ms": 1, "waited_ms": 0, "turns": 1, "bucket": null}'
MANY = 2_000
"""Values of a label, many more than a script writes."""
NOTES = "hqn_flooded"
"""Name of the notes of a tenant. Honest workers and the attacker have received the name."""
ENDLESS_S = 5
"""Seconds after which a script counts as endless."""


@dataclass(frozen=True)
class KnownJob:
    """A job whose id an analyst's worker knows, because it has a handoff for this role."""

    supervisor: Store
    attacker: redis.Redis
    """Connection with the credentials of the worker."""
    admin: redis.Redis
    job_id: JobId
    handoff: str
    """Key of the handoff."""

    def cancel(self) -> None:
        """Cancel the job, and drop its handoff."""
        version = version_of(self.supervisor, self.job_id)
        decision = Commit(self.job_id, version, [CancelRequested()], drop=[HandoffId("find.1")])
        assert self.supervisor.journal.commit(decision)


@contextmanager
def known_job(server: Server) -> Iterator[KnownJob]:
    with (
        server.store("supervisor") as supervisor,
        server.connected_as("worker-analyst") as attacker,
        redis.Redis.from_url(server.address) as admin,
    ):
        job_id = a_job(supervisor)
        issue(supervisor, job_id, "find.1", role="analyst")
        handoff = keys.handoff(job_id, "analyst", HandoffId("find.1"))
        yield KnownJob(supervisor, attacker, admin, job_id, handoff)


def test_a_flood_of_questions_keeps_redis_for_a_short_time(server: Server) -> None:
    """During that time, Redis runs no other command, and cannot stop a script that has written."""
    versions = list(map(str, range(MANY)))
    with known_job(server) as job:
        attacker, progress = job.attacker, keys.progress(job.job_id)
        attacker.hset(job.handoff, "asks", json.dumps(dict(zip(versions, versions, strict=True))))
        attacker.hset(progress, "calls", " ".join(f"{version}:tool" for version in versions))
        attacker.hset(progress, mapping={f"approval:{version}": "tools" for version in versions})
        before = calls_of(job.admin, "hget")

        job.cancel()

        assert calls_of(job.admin, "hget") - before < 100


def test_a_worker_adds_no_label_of_a_tenant(server: Server) -> None:
    """Sweeps read all labels. The first job of a tenant adds its label."""
    labels = f"{keys.METRICS}:tenant"
    with (
        server.connected_as("worker-analyst") as attacker,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        attacker.sadd(labels, "x")
    with server.store("supervisor") as supervisor, redis.Redis.from_url(server.address) as admin:
        a_job(supervisor)

        assert admin.smembers(labels) == {b"default"}


def test_a_flood_of_due_entries_makes_no_list_of_running_handoffs_long(server: Server) -> None:
    """The console, `/metrics` and `handoff top` read this list again and again."""
    with known_job(server) as job:
        at_ms = int(job.attacker.time()[0]) * 1000
        open_jobs = server.observed_fleet().open_jobs
        for set_of_worker in (keys.due("analyst"), f"{keys.WAITING}supervisor"):
            entries = [f"j-{number:012x}" for number in range(40_000)]
            job.attacker.zadd(set_of_worker, dict.fromkeys(entries, at_ms + 3_600_000))
        before = calls_of(job.admin, "hmget")

        load = server.observed_fleet()

        assert load.open_jobs == open_jobs
        assert calls_of(job.admin, "hmget") - before < 25_000
        job.admin.delete(keys.due("analyst"), f"{keys.WAITING}supervisor")


def test_an_entry_that_is_never_due_expires(server: Server) -> None:
    with known_job(server) as job:
        job.attacker.zadd(keys.due("analyst"), {"x": 9 * 10**15, f"{OTHER_JOB}/a.1": 10**14})

        job.supervisor.due_work.sweep()

        assert job.admin.zcard(keys.due("analyst")) == 0


@pytest.mark.parametrize("key", [keys.SERVING, keys.BUCKETS])
def test_a_long_name_of_a_process_or_a_rate_limit_is_not_read(server: Server, key: str) -> None:
    with redis.Redis.from_url(server.address) as admin, server.connected_as("worker-analyst") as w:
        until_ms = (int(w.time()[0]) + 10) * 1000
        w.zadd(key, {f"{number}/" + "x" * 2**21: until_ms for number in range(10)})
        before = int(admin.info("stats")["total_net_output_bytes"])

        load = server.observed_fleet()

        assert int(admin.info("stats")["total_net_output_bytes"]) - before < 2**20
        assert load.buckets == ()
        admin.delete(key)


def test_a_decision_parses_no_results_of_workers(server: Server) -> None:
    """A decision that stays valid after results looks at thousands of entries of 64 KB."""
    with known_job(server) as job:
        version = version_of(job.supervisor, job.job_id)
        nested = '{"type":"handoff_finished",' + "[" * 30_000
        job.attacker.rpush(keys.log(job.job_id), f"1 {nested}")
        decision = Commit(
            job.job_id, version, [StepsTriedAgain(steps=(StepRetry(step=StepId("find")),))]
        )

        assert job.supervisor.journal.commit(decision)


def test_a_flood_of_fields_of_a_rate_limit_is_not_read(server: Server) -> None:
    """Every model call reads its bucket, so a call would take seconds."""
    bucket = keys.bucket("account:model")
    with server.connected_as("worker-analyst") as attacker:
        attacker.hset(bucket, mapping=dict.fromkeys(map(str, range(MANY)), "1"))
        attacker.zadd(keys.BUCKETS, {"account:model": 2**52})
    with redis.Redis.from_url(server.address) as admin, server.store("worker-writer") as honest:
        before = calls_of(admin, "hgetall")
        report = {"bucket": "account:model", "window": 60_000, "asked_at": 1, "limits": {}}

        honest.connection.run_script(
            "record_provider_answer", [bucket], ["j/a.1", json.dumps(report)]
        )
        server.observed_fleet()

        # the list of running handoffs reads only pauses whole
        assert calls_of(admin, "hgetall") - before == 0
        admin.delete(bucket, keys.BUCKETS)


def test_a_long_text_in_a_rate_limit_does_not_leave_redis(server: Server) -> None:
    """Each process that calls the model reads it, and each waiting handoff had a copy."""
    bucket = keys.bucket("account:model")
    with redis.Redis.from_url(server.address) as admin, server.store("worker-writer") as honest:
        with server.connected_as("worker-analyst") as attacker:
            long = dict.fromkeys(("why", "going", "input", "at"), "x" * LONG_ENTRY)
            attacker.hset(bucket, mapping={"until": 2**52, "strikes": 1, "known": 1, **long})
            attacker.zadd(keys.BUCKETS, {"account:model": 2**52})
        before = bytes_from(admin)
        report = {"bucket": "account:model", "window": 60_000, "asked_at": 1, "limits": {}}

        load = server.observed_fleet()
        honest.connection.run_script(
            "record_provider_answer", [bucket], ["j/a.1", json.dumps(report)]
        )

        assert [shown.why for shown in load.buckets] == [""]
        assert bytes_from(admin) - before < LONG_ENTRY
        assert not admin.hexists(bucket, "why")
        admin.delete(bucket, keys.BUCKETS)


def test_a_flood_of_announcements_ends_with_the_next_announcement(server: Server) -> None:
    with server.connected_as("worker-analyst") as attacker:
        attacker.zadd(keys.SERVING, {f"writer/x{number}": 2**52 for number in range(MANY)})
    with server.store("supervisor") as supervisor, redis.Redis.from_url(server.address) as admin:
        assert supervisor.presence.list_processes() == []

        supervisor.presence.announce_supervisor("h:1")

        assert [process.name for process in supervisor.presence.list_processes()] == ["h:1"]
        assert admin.zcard(keys.SERVING) == 1
        admin.delete(keys.SERVING)


def test_a_flood_of_long_announcements_is_not_read(server: Server) -> None:
    """Each planner reads the announcements, and would parse these for a minute."""
    names = [f"x{number}" for number in range(100)]
    with server.connected_as("worker-analyst") as attacker:
        for name in names:
            attacker.set(keys.worker("analyst", name), b"{" * 2**20, ex=60)
        until_ms = (int(attacker.time()[0]) + 30) * 1000
        attacker.zadd(keys.SERVING, {"analyst/x": until_ms})
        attacker.zadd(keys.announced_workers("analyst"), dict.fromkeys(names, until_ms))
    with server.store("supervisor") as supervisor, redis.Redis.from_url(server.address) as admin:
        before = int(admin.info("stats")["total_net_output_bytes"])

        assert supervisor.presence.load_served_specialists() == {}

        read = int(admin.info("stats")["total_net_output_bytes"]) - before
        assert read <= MAX_READ_BYTES + 2 * READ_AT_ONCE
        admin.delete(keys.SERVING, keys.announced_workers("analyst"))
        admin.delete(*(keys.worker("analyst", name) for name in names))


def test_a_flood_of_notes_is_not_read(server: Server) -> None:
    """The agents of all roles read all notes of their tenant."""
    with server.connected_as("worker-analyst") as attacker:
        attacker.hset(keys.notes(NOTES), mapping=dict.fromkeys(map(str, range(MANY)), "x"))
    with server.store("worker-writer") as honest, redis.Redis.from_url(server.address) as admin:
        before = calls_of(admin, "hkeys")

        assert Notes(honest.connection, NOTES).list_all("flooded") == []

        assert calls_of(admin, "hkeys") == before


def test_a_flood_of_samples_of_a_role_is_not_read(server: Server) -> None:
    with server.connected_as("worker-analyst") as attacker:
        attacker.lpush(keys.history("analyst"), *['{"at": 1}'] * MANY, *[SAMPLE] * MANY)
    with server.store("supervisor") as supervisor, redis.Redis.from_url(server.address) as admin:
        samples, _ = supervisor.history.read(["analyst"])

        assert len(samples["analyst"]) < MANY
        admin.delete(keys.history("analyst"))


def bombs(count: int) -> dict[str, bytes]:
    """Return packed texts by their digests. Each text is 1,000 times as long as it is stored."""
    packed: dict[str, bytes] = {}
    for number in range(count):
        text = str(number) + "x" * (MAX_BYTES // 8)
        packed[compute_digest(text)] = pack(text)
    return packed


@pytest.fixture(scope="module")
def many_bombs() -> dict[str, bytes]:
    return bombs(10)


def test_results_that_are_long_together_are_not_decompressed(
    server: Server, many_bombs: dict[str, bytes]
) -> None:
    """The console reads all payloads of a job at once, and so does a supervisor."""
    with server.store("supervisor") as supervisor:
        job_id = a_job(supervisor)
        with server.connected_as("worker-analyst") as attacker:
            for digest, packed in many_bombs.items():
                attacker.hsetnx(keys.blobs(job_id), digest, packed)

        texts = supervisor.payloads.get(job_id, [], results=list(many_bombs))

        assert sum(map(len, texts.values())) <= MAX_BYTES + 20 * sum(map(len, many_bombs.values()))
        with pytest.raises(UnreadablePayload):
            supervisor.payloads.get(job_id, list(many_bombs))


def test_documents_that_are_long_together_are_not_decompressed(
    server: Server, many_bombs: dict[str, bytes]
) -> None:
    """A worker reads the documents of its job at once. A client can store any text."""
    with server.connected_as("client") as attacker:
        for digest, packed in many_bombs.items():
            attacker.set(keys.document(digest), packed)
    with server.store("worker-writer") as honest, pytest.raises(UnreadablePayload):
        honest.payloads.read_documents(list(many_bombs))


def test_a_result_that_is_much_longer_than_any_other_is_not_decompressed(server: Server) -> None:
    text = "x" * (MAX_RESULT_BYTES + 1)
    digest = compute_digest(text)
    with server.store("supervisor") as supervisor:
        job_id = a_job(supervisor)
        with server.connected_as("worker-analyst") as attacker:
            attacker.hsetnx(keys.blobs(job_id), digest, pack(text))

        assert supervisor.payloads.get(job_id, [], results=[digest]) == {digest: ""}


@pytest.mark.parametrize("user", ["supervisor", "client", "console", "worker-writer"])
def test_a_payload_that_is_much_longer_than_any_other_does_not_leave_redis(
    server: Server, user: str
) -> None:
    """Redis takes values of up to 512 MB."""
    text = "x" * MAX_STORED_BYTES
    digest = compute_digest(text)
    with server.store("supervisor") as supervisor, server.store(user) as reader:
        job_id = a_job(supervisor)
        redis_of_supervisor = supervisor.connection.redis
        with server.connected_as("worker-analyst") as attacker:
            attacker.hsetnx(keys.blobs(job_id), digest, f"={text}")

        before = bytes_from(redis_of_supervisor)
        assert reader.payloads.get(job_id, [], results=[digest]) == {digest: ""}
        assert reader.payloads.read_short(job_id, [digest], SHORT_BYTES) == {}
        with pytest.raises(UnreadablePayload, match="it is longer than"):
            reader.payloads.get(job_id, [digest])

        assert bytes_from(redis_of_supervisor) - before < LONG_ENTRY
        redis_of_supervisor.delete(keys.blobs(job_id))


def test_payloads_that_are_long_together_do_not_leave_redis(server: Server) -> None:
    with server.store("supervisor") as supervisor:
        job_id = a_job(supervisor)
        with server.connected_as("worker-analyst") as attacker:
            for name in "abc":
                attacker.hsetnx(keys.blobs(job_id), name, "x" * 10)

        answer = supervisor.connection.run_script(
            "read_payloads", [keys.blobs(job_id)], [10, 25, "a", "none", "b", "c"]
        )

        assert answer == [b"x" * 10, None, b"x" * 10, LEFT_OUT]


def test_no_program_stores_a_value_that_is_longer_than_all_documents(server: Server) -> None:
    with server.connected_as("worker-analyst") as attacker, pytest.raises(redis.RedisError):
        attacker.rpush(keys.log(JobId(OTHER_JOB)), b"x" * (MAX_VALUE_BYTES + 1))


@pytest.mark.parametrize("field", ["usd", "turns"])
def test_a_long_amount_of_a_child_job_does_not_leave_redis(server: Server, field: str) -> None:
    with server.store("supervisor") as supervisor:
        job_id, child = a_job(supervisor), a_job(supervisor)
        issue(supervisor, job_id, "part.1", role=CHILD_JOB_SPECIALIST)
        redis_of_supervisor = supervisor.connection.redis
        handoff = keys.handoff(job_id, CHILD_JOB_SPECIALIST, HandoffId("part.1"))
        redis_of_supervisor.hset(handoff, "child", child)
        with server.connected_as("worker-analyst") as attacker:
            attacker.hset(keys.progress(child), field, "9" * LONG_ENTRY)

        before = bytes_from(redis_of_supervisor)
        info = supervisor.jobs.read_handoffs(job_id, [HandoffId("part.1")])[HandoffId("part.1")]

        assert info.turns == 0
        assert bytes_from(redis_of_supervisor) - before < LONG_ENTRY


def test_a_note_that_is_much_longer_than_any_other_is_not_decompressed(server: Server) -> None:
    """The worker of each role reads all notes of a tenant."""
    at = time.time()
    note = Note(
        path="notes/long", text="x", author="mallory", at=at, expires_at=at + 60, origins=("user",)
    )
    padded = note.to_json().replace("{", "{" + " " * SHORT_BYTES, 1)
    with server.connected_as("worker-analyst") as attacker:
        attacker.hset(keys.notes(f"{NOTES}2"), "notes/long", pack(padded))
    with server.store("worker-writer") as honest:
        assert Notes(honest.connection, f"{NOTES}2").list_all("acme") == []


LONG = 20_000_000
"""Bytes of a text that a script or a process takes apart for seconds."""
MUCH_MEMORY = 5 * LONG
"""Bytes. A script that takes apart a text needs more than 8 bytes of memory for each byte, which
`maxmemory` does not count.
"""


def test_long_texts_in_a_job_keep_redis_and_a_supervisor_for_a_short_time(server: Server) -> None:
    """A script that takes apart a text of 500 MB would keep Redis for minutes."""
    with known_job(server) as job:
        attacker, progress = job.attacker, keys.progress(job.job_id)
        jobs = job.supervisor.jobs
        attacker.hset(progress, "calls", b"1 " * (LONG // 2))
        attacker.hset(progress, "dropped_last", b"a " * (LONG // 2))
        attacker.hset(progress, "approval:1", "tools")
        attacker.hset(job.handoff, mapping={"asks": '{"x": "1"}', "r_model": b"m" * LONG})
        attacker.hset(job.handoff, mapping={"r_turns": 1, "r_in": 1, "r_out": 1, "r_usd": 1})

        assert len(jobs.read([job.job_id])[0].calls_to_approve) <= MAX_TEXT_BYTES
        assert script_memory(job.admin, job.cancel) < MUCH_MEMORY
        assert jobs.read([job.job_id])[0].calls_to_approve == ()
        assert b"m" * LONG not in job.admin.smembers(f"{keys.METRICS}:model")


def test_long_texts_in_a_handoff_keep_a_sweep_for_a_short_time(server: Server) -> None:
    with known_job(server) as job:
        job.attacker.hset(job.handoff, mapping={"state": "running", "claimed_at": 1, "lease": 1})
        job.attacker.hset(job.handoff, "past_claims", b"1 2 lost w\n" * (LONG // 11))
        job.attacker.hset(job.handoff, "worker", b"w" * LONG)
        job.attacker.zadd(keys.due("analyst"), {f"{job.job_id}/find.1": 1})

        assert script_memory(job.admin, job.supervisor.due_work.sweep) < MUCH_MEMORY

        assert job.admin.hget(job.handoff, "state") == b"issued"
        assert job.admin.hstrlen(job.handoff, "past_claims") < 100


def test_a_long_list_of_questions_is_not_read(server: Server) -> None:
    with known_job(server) as job:
        job.attacker.hset(job.handoff, "asks", b"[" + b"[]," * (LONG // 3) + b"[]]")

        assert script_memory(job.admin, job.cancel) < MUCH_MEMORY


def script_memory(admin: redis.Redis, call: Callable[[], object]) -> int:
    """Return the bytes of memory that the scripts of Redis need more after a call."""
    before = int(admin.info("memory")["used_memory_lua"])
    call()
    return int(admin.info("memory")["used_memory_lua"]) - before


def endless_commit(job_id: JobId) -> list[str | int]:
    """Return a commit that ends a handoff with countless arguments."""
    decision = {"expected": 1, "tip": -1, "events": 0, "fields": {}, "due": -1, "keep_ms": 1}
    text = json.dumps({**decision, "evaluation": "", "ends": 10**15})
    return [3, keys.job(job_id), keys.DUE, keys.JOBS, text]


def endless_search(connection: redis.Redis, job_id: JobId) -> list[str | int]:
    """Return a search in a list of jobs of the worker's own, whose job is its own child."""
    own_list, loop = f"{keys.FAIR}analyst", f"{job_id}}}:h:analyst:x"
    connection.hset(f"{keys.PREFIX}{{{loop}}}", mapping={"status": "queued", "children": loop})
    connection.zadd(own_list, {loop: 1})
    return [1, own_list, "+inf", "10", "j-"]


def endless_renewal(connection: redis.Redis) -> list[str | int]:
    """Return the renewal of a lease in a job of the worker's own, with countless messages. From
    2^53 on, a loop that adds 1 to a number stays at the number.
    """
    job, first = f"{keys.PREFIX}{{{OTHER_JOB}}}:h:analyst:x", 2**53
    message = json.dumps({"id": "m", "digest": "d", "step": "other"})
    connection.hset(
        job, mapping={"status": "running", "messages": first + 8, f"message:{first}": message}
    )
    connection.hset(f"{job}:agents", "find.1", "analyst")
    fence = hashlib.sha1(b"word", usedforsecurity=False).hexdigest()
    connection.hset(
        f"{job}:h:analyst:find.1",
        mapping={"state": "running", "fence": fence, "messages": first, "group": "g"},
    )
    return [1, job, "find.1", "word", 1_000, "", ""]


@pytest.mark.parametrize("script", ["commit", "find_jobs", "renew_lease"])
def test_a_worker_makes_no_script_endless(server: Server, script: str) -> None:
    with server.store("supervisor") as supervisor:
        job_id = a_job(supervisor)
    url = server.users.build_url("worker-analyst", server.address)
    digest = hashlib.sha1(build_source(script).encode(), usedforsecurity=False).hexdigest()
    with (
        redis.Redis.from_url(url, socket_timeout=ENDLESS_S, retry=None) as connection,
        redis.Redis.from_url(server.address) as admin,
    ):
        if script == "commit":
            arguments = endless_commit(job_id)
        elif script == "renew_lease":
            arguments = endless_renewal(connection)
        else:
            arguments = endless_search(connection, job_id)
        try:
            with suppress(redis.ResponseError):
                connection.execute_command("EVALSHA", digest, *arguments)
        except redis.TimeoutError:
            with suppress(redis.ResponseError):  # a script that has written cannot be stopped
                admin.script_kill()
            pytest.fail(f"the script {script} does not end")
        admin.delete(f"{keys.FAIR}analyst")


REPORT = AuditEntry(at=1, action=AuditAction.REFUSE, subject="a message")
LETTER = DeadLetter(at=1, queue="analyst", reason="unknown", body="{}")
PAGE = Document(path="https://example.org/", digest="a" * 64, media_type="text/html", chars=5)
LISTS: dict[str, tuple[str, Callable[[Store], object], object]] = {
    keys.REFUSALS: (REPORT.to_json(), lambda store: store.refusals.move_reports(), 1),
    keys.DEAD: (LETTER.to_json(), lambda store: store.dead_letters.list_newest(), [LETTER]),
    keys.fetched_pages(JobId(OTHER_JOB)): (
        PAGE.to_json(),
        lambda store: store.payloads.load_fetched_pages(JobId(OTHER_JOB)),
        [PAGE],
    ),
    keys.history("analyst"): (
        SAMPLE,
        lambda store: len(store.history.read(["analyst"])[0]["analyst"]),
        1,
    ),
}
"""Lists to which a worker may add entries, an entry of each, and what its readers read."""


@pytest.mark.parametrize("key", LISTS)
def test_a_long_entry_of_a_list_does_not_leave_redis(server: Server, key: str) -> None:
    """A process that read a thousand entries of 500 MB would have no memory left."""
    entry, read, expected = LISTS[key]
    reader = "worker-writer" if key.endswith(":fetched") else "supervisor"
    with (
        server.store("supervisor") as supervisor,
        server.store(reader) as honest,
        server.connected_as("worker-analyst") as worker,
    ):
        redis_of_supervisor = supervisor.connection.redis
        redis_of_supervisor.delete(key)
        add = worker.rpush if key.endswith(":fetched") else worker.lpush
        for text in ("x" * LONG_ENTRY, entry, "x" * LONG_ENTRY):
            add(key, text)

        before = bytes_from(redis_of_supervisor)
        entries = read(honest)

        assert entries == expected
        assert bytes_from(redis_of_supervisor) - before < LONG_ENTRY
        redis_of_supervisor.delete(key)


LONG_ENTRY = 2_000_000
"""Bytes of an entry that is longer than any entry of an honest process."""


def bytes_from(connection: redis.Redis) -> int:
    """Return the bytes that Redis has sent to all clients."""
    return int(connection.info("stats")["total_net_output_bytes"])


def test_a_supervisor_removes_the_reports_that_it_has_read(server: Server) -> None:
    with server.store("supervisor") as supervisor, server.connected_as("worker-analyst") as worker:
        supervisor.connection.redis.delete(keys.REFUSALS)
        worker.lpush(keys.REFUSALS, *[REPORT.to_json()] * (MAX_REPORTS + 1))

        moved = [supervisor.refusals.move_reports() for _ in range(3)]

        assert moved == [MAX_REPORTS, 1, 0]


@pytest.mark.parametrize("user", ["supervisor", "client", "console", "observer"])
def test_a_long_text_in_the_progress_of_a_job_does_not_leave_redis(
    server: Server, user: str
) -> None:
    with (
        server.store("supervisor") as supervisor,
        server.store(user) as reader,
        server.connected_as("worker-analyst") as worker,
    ):
        job_id = a_job(supervisor)
        long = "x" * LONG_ENTRY
        texts = {"tally": long, "calls": long, "other": long, "approval:3": long}
        worker.hset(keys.progress(job_id), mapping={**texts, "turns": 7, "asked_last": 3})
        before = bytes_from(supervisor.connection.redis)

        (job,) = reader.jobs.read([job_id])

        assert job.turns == 7
        assert bytes_from(supervisor.connection.redis) - before < LONG_ENTRY


@pytest.mark.parametrize("user", ["supervisor", "client", "console", "observer"])
def test_a_long_text_in_the_state_of_a_handoff_does_not_leave_redis(
    server: Server, user: str
) -> None:
    with (
        server.store("supervisor") as supervisor,
        server.store(user) as reader,
        server.connected_as("worker-analyst") as worker,
    ):
        job_id = a_job(supervisor)
        issue(supervisor, job_id, "find.1", role="analyst")
        handoff_id = HandoffId("find.1")
        texts = dict.fromkeys(("doing", "result", "past_claims", "other"), "x" * LONG_ENTRY)
        worker.hset(keys.handoff(job_id, "analyst", handoff_id), mapping={**texts, "turns": 7})
        before = bytes_from(supervisor.connection.redis)

        infos = reader.jobs.read_handoffs(job_id, [handoff_id])
        records = reader.job_summaries.read_handoffs(job_id, [handoff_id])

        assert infos[handoff_id].turns == 7
        assert records[handoff_id].assigned_to == "analyst"
        assert bytes_from(supervisor.connection.redis) - before < LONG_ENTRY


def test_answers_that_a_worker_does_not_read_have_a_limit(server: Server) -> None:
    """With 10 kB of commands about a value of 10 MB, Redis would grow by 2 GB."""
    with redis.Redis.from_url(server.address, decode_responses=True) as admin:
        settings = admin.config_get("client-output-buffer-limit", "maxmemory-clients")
        admin_store = open_store(server.address, Settings())
        assert admin_store.health.read_facts().limits_clients
        admin.config_set("client-output-buffer-limit", "normal 0 0 0")
        assert not admin_store.health.read_facts().limits_clients
        admin.config_set(
            "client-output-buffer-limit",
            settings["client-output-buffer-limit"].partition(" slave")[0],
        )
        admin_store.connection.close()

    assert settings["client-output-buffer-limit"].startswith(f"normal {2**29} {2**28} 60 ")
    assert settings["maxmemory-clients"] == str(2**30)
