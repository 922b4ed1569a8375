"""A worker that was taken over writes long values where other processes read. These processes read
only the beginnings of such values. So the values take little memory of a supervisor, of the next
worker and of a client.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict
from handoff_queue.shared.store.claim_requests import MAX_TURNS_BYTES
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.journal import MAX_PAGE_BYTES
from handoff_queue.shared.store.journal_signature_check import (
    MAX_BATCH_BYTES,
    MAX_WORKER_BYTES,
    TOO_LONG,
)
from handoff_queue.shared.store.payloads import MAX_DRAFT_BYTES, pack
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import AgentPrompted, PromptReason
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.events import EventRefused, StepsAbandoned
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.engine.journal_signature_guard import JournalGuard
from handoff_queue.supervisor.engine.state_cache import StateCache
from tests.doubles.jobs import a_job, granted_claim, issue
from tests.hostile.signed_system import SUPERVISOR, SignedSystem

LONG = b'1790000000000 {"type":"plan_made","x":"%b"}' % (b"x" * MAX_WORKER_BYTES)
"""An entry that is longer than all events of a worker."""
UNSIGNED = b"1790000000000 " + b"x" * 60_000
HANDOFF = HandoffId("a.1")


def abandoned(chars: int) -> StepsAbandoned:
    """Return an event of a supervisor with a text of this length."""
    return StepsAbandoned(steps=(), why="w" * chars)


def peak_mb(pid: int) -> int:
    """Return the most memory that a process has used since the last call of `forget_peak`."""
    match = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) // 1024


def forget_peak(pid: int) -> int:
    """Count the peak from now on, and return the memory that the process uses now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak_mb(pid)


@pytest.mark.slow
def test_long_entries_take_little_memory_of_a_supervisor(signed: SignedSystem, held: JobId) -> None:
    """10 entries of 50 MB took 1.2 GB. The 2,000 later entries are short enough to be read."""
    supervisor = signed.processes.get_pids()[SUPERVISOR]
    before = forget_peak(supervisor)
    redis = signed.store.connection.redis
    for _ in range(4):
        redis.rpush(keys.log(held), LONG + b" " * 50_000_000)
    for _ in range(40):
        redis.rpush(keys.log(held), *[UNSIGNED] * 50)
    redis.zadd(keys.DUE, {held: 1})

    signed.wait_for_letter(f"more events of {held}")

    assert peak_mb(supervisor) - before < 150


@pytest.mark.slow
def test_a_long_entry_of_a_worker_is_a_dead_letter_with_its_beginning(
    signed: SignedSystem, held: JobId
) -> None:
    signed.store.connection.redis.rpush(keys.log(held), LONG)
    signed.store.connection.redis.zadd(keys.DUE, {held: 1})

    letter = signed.wait_for_letter(TOO_LONG)

    assert letter.body.startswith('{"type":"plan_made","x":"xxx')
    assert f"[{len(LONG)} bytes are too long" in letter.body


def test_a_long_event_counts_only_if_no_worker_has_written_it(signed: SignedSystem) -> None:
    store = signed.store_of("supervisor")
    job_id = a_job(store)
    long = abandoned(2 * MAX_WORKER_BYTES)
    store.journal.commit(Commit(job_id, expected=1, events=[abandoned(1), long, abandoned(2)]))
    store.connection.redis.rpush(keys.log(job_id), LONG)
    store.journal.commit(Commit(job_id, expected=5, events=[long]))

    events = [recorded.event for recorded in signed.jobs.store.journal.read(job_id)][1:]
    later = [recorded.event for recorded in signed.jobs.store.journal.read(job_id, 4)]
    state = StateCache(store.journal, JournalGuard(store, 60)).load(job_id)
    store.jobs.delete(job_id)

    refused = EventRefused(reason=TOO_LONG)
    assert events == [abandoned(1), long, abandoned(2), refused, long]
    assert later == events[3:]
    assert state is not None
    assert state.version == 6


def test_a_batch_on_several_pages_counts(signed: SignedSystem) -> None:
    store = signed.store_of("supervisor")
    job_id = a_job(store)
    batch = [abandoned(MAX_PAGE_BYTES // 2), *[abandoned(50_000)] * 80, abandoned(MAX_PAGE_BYTES)]
    store.journal.commit(Commit(job_id, expected=1, events=batch))

    pages = [*store.journal.iterate_pages(job_id)]
    read = {
        after: [recorded.event for recorded in signed.jobs.store.journal.read(job_id, after, 80)]
        for after in (1, 2, 3, 82)
    }
    store.jobs.delete(job_id)

    assert len(pages) > 2
    assert [recorded.event for recorded in chain(*pages)][1:] == batch
    assert read == {after: batch[after - 1 :][:80] for after in read}


def test_a_decision_after_many_unsigned_entries_counts(signed: SignedSystem) -> None:
    """No page of these entries ends a batch."""
    store = signed.store_of("supervisor")
    job_id = a_job(store)
    many = MAX_BATCH_BYTES // len(UNSIGNED) + 100
    store.connection.redis.rpush(keys.log(job_id), *[UNSIGNED] * many)
    batch = [abandoned(1), abandoned(2)]
    store.journal.commit(Commit(job_id, expected=many + 1, events=batch))

    events = [recorded.event for recorded in signed.jobs.store.journal.read(job_id)]
    store.jobs.delete(job_id)

    assert events[-2:] == batch
    assert [event.type for event in events[1:-2]] == ["event_refused"] * many


def test_without_keys_a_long_entry_of_a_worker_cannot_be_read(store: Store) -> None:
    job_id = a_job(store)
    store.connection.redis.rpush(keys.log(job_id), LONG)

    with pytest.raises(MalformedMessage, match="too long for an event of a worker"):
        store.journal.read(job_id)


def test_a_list_of_jobs_reads_past_a_long_entry(store: Store) -> None:
    job_id = a_job(store)
    store.connection.redis.rpush(keys.log(job_id), LONG)

    assert store.journal.read_end_reasons([job_id]) == {}
    assert store.job_summaries.read_routing_decision(job_id) is None


def packed_prompt(text: str) -> bytes:
    """Return a stored message of the agent loop."""
    return pack(AgentPrompted(reason=PromptReason.LAST_TURN, text=text).to_json())


NOT_READ = "they are longer than"
NOT_UNPACKED = "it is longer than"
TURNS = [
    ([packed_prompt("first"), b"=" + b"x" * MAX_TURNS_BYTES], NOT_READ),
    ([b"=x"] * (MAX_TURNS_BYTES // 100), NOT_READ),
    ([packed_prompt("x" * (MAX_TURNS_BYTES // 2))] * 3, NOT_UNPACKED),
]


@pytest.mark.slow
@pytest.mark.parametrize(("turns", "why"), TURNS, ids=["long", "many", "compressed"])
def test_too_long_turns_of_a_handoff_are_not_read(
    store: Store, turns: list[bytes], why: str
) -> None:
    job_id = a_job(store)
    issue(store, job_id, HANDOFF)
    key = keys.turns(job_id, "researcher", HANDOFF)
    for first in range(0, len(turns), 10_000):
        store.connection.redis.rpush(key, *turns[first : first + 10_000])
    store.connection.redis.expire(key, 60)

    claim = granted_claim(store, job_id, HANDOFF)

    assert claim.verdict is ClaimVerdict.GRANTED
    assert why in (claim.unreadable or "")
    assert claim.checkpoints == ()
    assert store.claims.read_checkpoints(job_id, [HANDOFF]) == {}


def test_a_long_draft_is_not_read(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, HANDOFF)
    key = keys.draft(job_id, "researcher", HANDOFF)

    store.connection.redis.set(key, b"=" + b"x" * MAX_DRAFT_BYTES, ex=60)
    assert store.payloads.draft(job_id, HANDOFF) == ""

    store.connection.redis.set(key, pack("x" * (MAX_DRAFT_BYTES + 1)), ex=60)
    assert store.payloads.draft(job_id, HANDOFF) == ""


def test_a_summary_has_no_long_text_of_the_progress(store: Store) -> None:
    job_id = a_job(store)
    store.connection.redis.hset(keys.progress(job_id), "failed_last", "x" * 2**21)
    store.connection.redis.expire(keys.progress(job_id), 60)

    assert store.job_summaries.read(job_id).failed == ()
