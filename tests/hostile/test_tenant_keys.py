"""Texts of a tenant with a key: no reader without this key, no other place, and no guess."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.encryption_at_rest import MESSAGE_START, PLAIN
from handoff_queue.shared.store.payloads import pack
from handoff_queue.shared.types.checkpoints import UserPrompted
from handoff_queue.shared.types.errors import (
    MalformedMessage,
    NoTenantKey,
    StoreError,
    UnreadablePayload,
)
from handoff_queue.shared.types.events import JobEnded, JobStatus, JobSubmitted
from handoff_queue.shared.types.handoff import Document
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.schedules import ScheduleOptions
from handoff_queue.testing import Json, Reply, answer_properties, json_reply, result_reply
from tests.doubles.jobs import granted_claim, issue, turns_key
from tests.doubles.tenant_keys import new_key, sealed_client, sealing_of, write_keys
from tests.hostile.obedient_system import ObedientSystem, obedient_system
from tests.supervisor.client.test_open_jobs import end

SECRET = "The offer of acme is 4,711 euros."
TEXT = SECRET + " Nobody may know it." * 100
HANDOFF_PROJECT = Request(
    f"Compare things. {SECRET}", tenant="acme", documents={"own.md": TEXT.encode()}
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a key of acme and a key of globex."""
    write_keys(tmp_path / "keys", "acme", new_key())
    write_keys(tmp_path / "keys", "globex", new_key())
    return tmp_path / "keys"


@pytest.fixture
def jobs(redis_url: str, folder: Path) -> Iterator[Client]:
    connected = sealed_client(redis_url, folder)
    yield connected
    connected.store.connection.close()


@pytest.fixture
def without_keys(redis_url: str) -> Iterator[Client]:
    connected = sealed_client(redis_url, None)
    yield connected
    connected.store.connection.close()


def request_digest(jobs: Client, job_id: JobId) -> str:
    submitted = jobs.store.journal.read(job_id)[0].event
    assert isinstance(submitted, JobSubmitted)
    return submitted.request.digest


def values_in(jobs: Client) -> Iterator[tuple[str, bytes]]:
    """Yield each value in Redis with its key, also unpacked and decoded."""
    redis = jobs.store.connection.redis
    for name in redis.keys("*"):
        values: list[bytes] = []
        match redis.type(name):
            case b"string":
                values = [redis.get(name)]
            case b"hash":
                values = [part for pair in redis.hgetall(name).items() for part in pair]
            case b"list":
                values = redis.lrange(name, 0, -1)
            case b"stream":
                values = [part for _, fields in redis.xrange(name) for part in fields.values()]
            case b"zset" | b"set":
                values = [name]
        for value in (name, *values):
            yield name.decode(), value
            if value[:1] == b"z":
                yield name.decode(), zlib.decompress(value[1:])
            if value[:1] == b"{" and b'"body"' in value:
                yield name.decode(), base64.b64decode(json.loads(value.strip())["body"])


def keys_with(jobs: Client, text: str) -> set[str]:
    return {name for name, value in values_in(jobs) if text.encode() in value}


def obey(request: Json) -> Reply:
    if "route" in answer_properties(request):
        return json_reply({"route": "single", "specialist": "generalist", "why": ""})
    return result_reply(SECRET)


@pytest.fixture
def system(redis_url: str) -> Iterator[ObedientSystem]:
    with obedient_system(redis_url, obey) as running:
        yield running


def test_a_whole_job_leaves_no_readable_text_in_redis(system: ObedientSystem, folder: Path) -> None:
    jobs = system.shell.jobs
    system.seal_with(sealing_of(jobs, folder))
    job_id = jobs.submit(
        Request(
            f"{SECRET} What is our offer?",
            tenant="acme",
            mode=Mode.SINGLE,
            documents={"own.md": TEXT.encode()},
        )
    )
    jobs.say(job_id, f"Think of this: {SECRET}")
    system.run(job_id)

    assert SECRET in str(jobs.result(job_id).answer)
    assert keys_with(jobs, SECRET) == set()
    assert jobs.outline(job_id).title == "(encrypted)"


def test_each_kind_of_text_is_readable_with_the_key_only(
    jobs: Client, without_keys: Client
) -> None:
    job_id = jobs.submit(HANDOFF_PROJECT)
    issue(jobs.store, job_id, "a.1")
    claimed = granted_claim(jobs.store, job_id, "a.1")
    claimed.checkpoint(UserPrompted(message_id="0123456789abcdef", text=SECRET))
    claimed.heartbeat("writes", SECRET)
    claimed.renew()
    page = Document(
        path="https://example.com/4711",
        digest=compute_digest(SECRET),
        chars=len(SECRET),
        media_type="text/plain",
    )
    jobs.store.payloads.put_fetched_page(job_id, page, SECRET)
    schedule = jobs.add_schedule("news", HANDOFF_PROJECT, ScheduleOptions("0 0 1 1 *"))
    handoff_id = HandoffId("a.1")

    def read_by(reader: Client) -> list[Any]:
        stored = reader.store.schedules.find("acme", schedule.name)
        assert stored is not None
        return [
            reader.store.claims.read_checkpoints(job_id, [handoff_id]) != {},
            SECRET in reader.store.payloads.draft(job_id, handoff_id),
            reader.store.payloads.load_fetched_pages(job_id) == [page],
        ]

    assert read_by(jobs) == [True, True, True]
    assert read_by(without_keys) == [False, False, False]
    assert keys_with(jobs, SECRET) == set()
    assert keys_with(jobs, "example.com/4711") == set()
    other = jobs.submit(HANDOFF_PROJECT)
    assert SECRET in jobs.export(other).payloads[request_digest(jobs, other)]
    for read in (without_keys.export, without_keys.result):
        with pytest.raises(NoTenantKey, match=r"acme are encrypted, and this process has no keys"):
            read(other)
    lines = list(without_keys.export_tenant("acme"))
    assert sum('"type":"unreadable"' in line for line in lines) == 2


def test_the_key_of_another_tenant_opens_nothing(
    jobs: Client, redis_url: str, tmp_path: Path
) -> None:
    job_id = jobs.submit(HANDOFF_PROJECT)
    attacker_keys = tmp_path / "theirs"
    write_keys(attacker_keys, "globex", new_key())
    write_keys(attacker_keys, "acme", new_key())
    attacker = sealed_client(redis_url, attacker_keys)

    with pytest.raises(NoTenantKey, match="this process does not have this key"):
        attacker.store.payloads.get(job_id, [request_digest(jobs, job_id)])


def test_a_ciphertext_is_refused_in_another_place(jobs: Client) -> None:
    first, second = jobs.submit(HANDOFF_PROJECT), jobs.submit(HANDOFF_PROJECT)
    foreign = jobs.submit(Request(HANDOFF_PROJECT.text, tenant="globex"))
    redis, digest = jobs.store.connection.redis, request_digest(jobs, first)
    manifest = jobs.store.journal.read(first)[0].event.manifest.digest  # type: ignore[union-attr]
    own = redis.hget(keys.blobs(first), digest)
    cases = [
        (first, redis.hget(keys.blobs(second), digest), "another place"),
        (first, redis.hget(keys.blobs(first), manifest), "another place"),
        (first, redis.hget(keys.blobs(foreign), digest), "another tenant"),
        (foreign, own, "another tenant"),
    ]
    for job_id, stored, why in cases:
        before = redis.hget(keys.blobs(job_id), digest)
        redis.hset(keys.blobs(job_id), digest, stored)
        with pytest.raises(UnreadablePayload, match=why):
            jobs.store.payloads.get(job_id, [digest])
        redis.hset(keys.blobs(job_id), digest, before)
    assert jobs.store.payloads.get(first, [digest])


def test_every_cut_and_every_changed_byte_is_refused(jobs: Client) -> None:
    job_id = jobs.submit(Request(SECRET, tenant="acme"))
    redis, digest = jobs.store.connection.redis, request_digest(jobs, job_id)
    stored = redis.hget(keys.blobs(job_id), digest)

    for length in range(1, len(stored)):
        redis.hset(keys.blobs(job_id), digest, stored[:length])
        with pytest.raises(StoreError):
            jobs.store.payloads.get(job_id, [digest])
    for place in range(1, len(stored)):
        changed = bytearray(stored)
        changed[place] ^= 1
        redis.hset(keys.blobs(job_id), digest, bytes(changed))
        with pytest.raises(StoreError):
            jobs.store.payloads.get(job_id, [digest])


def test_turns_of_another_handoff_are_refused(jobs: Client) -> None:
    job_id = jobs.submit(HANDOFF_PROJECT)
    redis = jobs.store.connection.redis
    for name in ("a.1", "b.1"):
        issue(jobs.store, job_id, name)
        granted_claim(jobs.store, job_id, name).checkpoint(
            UserPrompted(message_id="0123456789abcdef", text=name)
        )
    foreign = redis.lindex(turns_key(jobs.store, job_id, HandoffId("b.1")), 0)
    redis.lset(turns_key(jobs.store, job_id, HandoffId("a.1")), 0, foreign)

    assert set(
        jobs.store.claims.read_checkpoints(job_id, [HandoffId("a.1"), HandoffId("b.1")])
    ) == {"b.1"}


def test_a_guess_of_a_document_finds_nothing(jobs: Client, without_keys: Client) -> None:
    jobs.submit(HANDOFF_PROJECT)
    guess = compute_digest(TEXT)

    assert not without_keys.store.connection.redis.exists(keys.document(guess))
    for tenant in ("globex", "default"):
        assert jobs.store.payloads.find_missing_documents([guess], 60, tenant) == {guess}
        assert jobs.store.payloads.read_documents([guess], tenant) == {}
    assert jobs.store.payloads.read_documents([guess], "acme") == {guess: TEXT}


def test_equal_documents_of_two_tenants_are_stored_twice_and_look_different(jobs: Client) -> None:
    for tenant in ("acme", "globex", "default", "default"):
        jobs.submit(Request("Compare.", tenant=tenant, documents={"own.md": TEXT.encode()}))

    names = jobs.store.connection.redis.keys(keys.document("*"))
    assert len(names) == 3
    assert len({jobs.store.connection.redis.get(name) for name in names}) == 3


def test_a_text_in_the_memory_of_a_process_is_not_found_by_a_job_of_another_tenant(
    jobs: Client,
) -> None:
    own_job = jobs.submit(HANDOFF_PROJECT)
    cache, digest = PayloadCache(jobs.store), request_digest(jobs, own_job)
    assert cache.get_payloads(own_job, [digest])
    assert cache.get_text(own_job, compute_digest(TEXT), "acme")

    for tenant in ("globex", "default"):
        other_job = jobs.submit(Request("What is it?", tenant=tenant))
        with pytest.raises(StoreError, match="are gone"):
            cache.get_payloads(other_job, [digest])
        documents = cache.open_job_documents(
            other_job, HandoffId("a.1"), cache.parse_manifest("{}"), None
        )
        with pytest.raises(Exception, match="no longer stored"):
            documents.tool_context.text_of(compute_digest(TEXT))


def test_after_its_key_is_deleted_a_tenant_is_unreadable_and_can_still_be_deleted(
    jobs: Client, redis_url: str, folder: Path
) -> None:
    ended, still_open = jobs.submit(HANDOFF_PROJECT), jobs.submit(HANDOFF_PROJECT)
    end(jobs, ended)
    (folder / "acme.key").unlink()
    late = sealed_client(redis_url, folder)

    for read in (late.result, late.export):
        with pytest.raises(NoTenantKey, match=r"encrypted with the key [0-9a-f]{16}"):
            read(ended)
    late.delete(ended)
    assert late.cancel(still_open)
    end(late, still_open, JobStatus.CANCELLED)
    deletion = late.delete_tenant("acme")

    assert (deletion.is_complete, deletion.jobs) == (True, 1)
    assert late.newest() == []


def test_a_supervisor_without_the_key_ends_the_job_with_the_reason(
    system: ObedientSystem, folder: Path
) -> None:
    jobs = system.shell.jobs
    system.seal_with(sealing_of(jobs, folder))
    job_id = jobs.submit(HANDOFF_PROJECT)
    system.seal_with(PLAIN)

    system.run(job_id)

    last = [recorded.event for recorded in jobs.store.journal.read(job_id)][-1]
    assert isinstance(last, JobEnded)
    assert last.status is JobStatus.FAILED
    assert "texts of tenant acme are encrypted, and this process has no keys" in str(last.reason)


def test_two_keys_are_valid_at_once_and_new_texts_use_the_newest(
    redis_url: str, tmp_path: Path
) -> None:
    old, new = new_key(), new_key()
    folder = tmp_path / "rotated"
    write_keys(folder, "acme", old)
    before = sealed_client(redis_url, folder).submit(HANDOFF_PROJECT)
    write_keys(folder, "acme", new, old)
    both = sealed_client(redis_url, folder)
    after = both.submit(Request("Later.", tenant="acme"))
    write_keys(tmp_path / "new", "acme", new)
    only_new = sealed_client(redis_url, tmp_path / "new")

    assert both.export(before, texts=True).texts == {compute_digest(TEXT): TEXT}
    assert both.export(after)
    assert only_new.export(after)
    with pytest.raises(NoTenantKey):
        only_new.export(before)


def test_texts_from_the_time_before_the_key_stay_readable(
    redis_url: str, without_keys: Client, folder: Path
) -> None:
    before = without_keys.submit(HANDOFF_PROJECT)

    export = sealed_client(redis_url, folder).export(before, texts=True)

    assert export.texts == {compute_digest(TEXT): TEXT}


def test_a_message_of_a_queue_is_opened_with_the_key_and_in_its_place_only(
    jobs: Client, without_keys: Client
) -> None:
    job_id, other = jobs.submit(HANDOFF_PROJECT), jobs.submit(HANDOFF_PROJECT)
    sealing = jobs.store.connection.sealing
    message = sealing.seal_message(job_id, "a.1", SECRET)
    fields = json.loads(message)

    assert SECRET not in message
    assert sealing.open_message(message) == SECRET
    for wrong in ({"job_id": other}, {"handoff_id": "b.1"}, {"sealed": "?"}, {"sealed": "AA=="}):
        with pytest.raises(Exception, match="the message cannot be opened"):
            sealing.open_message(
                json.dumps({"sealed": "", **fields, **wrong}, separators=(",", ":"))
            )
    with pytest.raises(Exception, match="has no keys of tenants"):
        without_keys.store.connection.sealing.open_message(message)


def test_a_message_of_deep_brackets_that_looks_sealed_is_a_dead_letter(jobs: Client) -> None:
    message = f"{MESSAGE_START}{'[' * 100_000}"

    with pytest.raises(MalformedMessage, match="the message cannot be opened: RecursionError"):
        jobs.store.connection.sealing.open_message(message)
    assert jobs.store.dead_letters.add_unreadable("a", "it cannot be opened", message, patience_s=0)


def test_a_worker_without_the_key_leaves_the_message_to_others_and_its_letter_has_no_text(
    jobs: Client, without_keys: Client
) -> None:
    job_id = jobs.submit(HANDOFF_PROJECT)
    issue(jobs.store, job_id, "a.1")
    message = jobs.store.connection.sealing.seal_message(job_id, "a.1", "the message of a.1")
    letters = without_keys.store.dead_letters

    assert not letters.add_unreadable("a", "it cannot be opened", message)
    assert letters.add_unreadable("a", "it cannot be opened", message, patience_s=0)
    assert [letter.reason for letter in letters.list_newest()] == ["it cannot be opened"]
    assert "the message of" not in letters.list_newest()[0].body


def test_a_file_that_others_may_read_is_refused_without_its_content(
    redis_url: str, tmp_path: Path
) -> None:
    file = write_keys(tmp_path / "open", "acme", new_key())
    file.chmod(0o644)

    with pytest.raises(NoTenantKey, match=r"other users can read .*: chmod 600") as refused:
        sealed_client(redis_url, file.parent).submit(HANDOFF_PROJECT)

    assert file.read_text().strip() not in str(refused.value)


@pytest.mark.parametrize(
    "content", [b"short", b"!!", base64.b64encode(b"a" * 16), base64.b64encode(b"a" * 33)]
)
def test_a_file_with_a_wrong_key_is_refused_and_nothing_is_stored_as_plain_text(
    content: bytes, redis_url: str, tmp_path: Path
) -> None:
    file = write_keys(tmp_path / "wrong", "acme")
    file.write_bytes(content)
    jobs = sealed_client(redis_url, file.parent)

    with pytest.raises(NoTenantKey, match="must be 32 bytes"):
        jobs.submit(HANDOFF_PROJECT)
    assert keys_with(jobs, SECRET) == set()


def without_content(file: Path) -> None:
    file.write_bytes(b"")


def with_blank_lines(file: Path) -> None:
    file.write_bytes(b"\n \n")


def as_a_link_without_target(file: Path) -> None:
    file.unlink()
    file.symlink_to("gone")


def as_a_link_to_itself(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


def as_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def as_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def without_its_folder(file: Path) -> None:
    file.unlink()
    file.parent.rmdir()


@pytest.mark.parametrize(
    "damage",
    [
        without_content,
        with_blank_lines,
        as_a_link_without_target,
        as_a_link_to_itself,
        as_a_pipe,
        as_a_folder,
        without_its_folder,
    ],
)
def test_a_damaged_file_is_refused_and_nothing_is_stored_as_plain_text(
    damage: Callable[[Path], None], redis_url: str, tmp_path: Path
) -> None:
    file = write_keys(tmp_path / "damaged", "acme", new_key())
    jobs = sealed_client(redis_url, file.parent)
    damage(file)

    with pytest.raises(NoTenantKey):
        jobs.submit(HANDOFF_PROJECT)
    assert keys_with(jobs, SECRET) == set()


@pytest.mark.parametrize("tenant", ["../acme", "a/b", "..", "."])
def test_the_name_of_a_tenant_cannot_name_a_file_outside_the_folder(
    tenant: str, jobs: Client, tmp_path: Path
) -> None:
    write_keys(tmp_path, "acme", new_key())
    (tmp_path / ".key").write_bytes(b"no key")

    assert not jobs.store.connection.sealing.is_sealed(tenant)


def test_a_plain_text_of_a_forged_size_is_still_checked(jobs: Client) -> None:
    job_id = jobs.submit(HANDOFF_PROJECT)
    digest = request_digest(jobs, job_id)
    jobs.store.connection.redis.hset(keys.blobs(job_id), digest, pack("forged"))

    with pytest.raises(UnreadablePayload, match="does not match its digest"):
        jobs.store.payloads.get(job_id, [digest])


def test_each_text_has_a_new_nonce(jobs: Client) -> None:
    job_id = jobs.submit(HANDOFF_PROJECT)
    sealing = jobs.store.connection.sealing

    assert len({sealing.seal(job_id, "a", os.urandom(0)) for _ in range(100)}) == 100
