"""The summary of a job has the counts of its accounts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.job_info import parse_job_info
from handoff_queue.shared.store.job_summary import MAX_EVENT_BYTES, TAIL_EVENTS, HandoffTally
from handoff_queue.shared.store.payloads import pack
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import CancelRequested, JobSubmitted, PlanMade, StepOutline
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId
from handoff_queue.shared.types.message import compute_digest
from tests.doubles.jobs import (
    a_job,
    finish,
    granted_claim,
    issue,
    issue_to_a_child,
    submission,
    version_of,
)

STEPS = tuple(StepOutline(id=StepId(f"s_{n:04d}"), specialist="researcher") for n in range(1_000))


def add(
    store: Store, job_id: JobId, *events: JobSubmitted | PlanMade, drop: tuple[str, ...] = ()
) -> None:
    due_at, dropped = store.connection.now() + 3_600, [HandoffId(name) for name in drop]
    store.journal.commit(
        Commit(
            job_id=job_id,
            expected=version_of(store, job_id),
            events=events,
            drop=dropped,
            due_at=due_at,
        )
    )


def test_a_long_event_is_left_out_except_the_first_which_describes_the_job(
    store: Store,
) -> None:
    job_id = a_job(store)
    store.connection.redis.delete(keys.log(job_id))
    for event in (
        submission("x" * MAX_EVENT_BYTES),
        PlanMade(plan=make_ref("the plan"), steps=STEPS),
        submission(),
    ):
        store.connection.redis.rpush(keys.log(job_id), f"1 {event.to_json()}")
    store.connection.redis.expire(keys.log(job_id), 60)

    summary = store.job_summaries.read(job_id)

    assert summary.first.version == 1
    assert [recorded.version for recorded in summary.tail] == [1, 3]


def test_a_bounded_number_of_the_last_events_is_read_oldest_first(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, *(f"s{n}.1" for n in range(2 * TAIL_EVENTS)))

    versions = [recorded.version for recorded in store.job_summaries.read(job_id).tail]

    assert versions == list(range(TAIL_EVENTS + 2, 2 * TAIL_EVENTS + 2))


def test_every_script_that_writes_the_journal_updates_the_counts(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1", "c.1", "d.1")
    finish(granted_claim(store, job_id, "a.1"))
    finish(granted_claim(store, job_id, "b.1"), "An answer.", CancelRequested())
    store.journal.append(job_id, CancelRequested())
    add(store, job_id, submission(), drop=("a.1", "c.1"))
    granted_claim(store, job_id, "d.1")

    summary = store.job_summaries.read(job_id)

    assert summary.tally == HandoffTally(
        issued=4, ok=2, partial=0, needs_input=0, failed=0, dropped=1
    )
    assert summary.tally.open == 1
    assert (summary.dropped, summary.running) == (("c.1",), ("d.1",))


def test_a_child_that_is_cancelled_from_above_is_counted_on(store: Store) -> None:
    job_id = a_job(store)
    issue_to_a_child(store, job_id, "a.1")
    child = a_job(store, "default", (job_id, HandoffId("a.1")))
    issue(store, child, "b.1")

    add(store, job_id, submission(), drop=("a.1",))

    summary = store.job_summaries.read(child)
    assert isinstance(summary.tail[-1].event, CancelRequested)
    assert summary.tally == HandoffTally(
        issued=1, ok=0, partial=0, needs_input=0, failed=0, dropped=0
    )


def test_payloads_that_are_longer_than_wanted_are_not_unpacked(store: Store) -> None:
    job_id, redis = a_job(store), store.connection.redis
    short, exact, dense = "x", "y" * 1_000, "z" * 1_000_000
    for text in (short, exact, dense):
        redis.hset(keys.blobs(job_id), compute_digest(text), pack(text))
    digests = [compute_digest(text) for text in (short, exact, dense, "not stored")]

    assert store.payloads.read_short(job_id, digests, 1_000) == {
        compute_digest(short): short,
        compute_digest(exact): exact,
    }
    assert store.payloads.read_short(job_id, [], 1_000) == {}


class RecordedFields(dict[bytes, bytes]):
    """A job's hash that records the names of the fields that a reader asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, name: bytes, default: Any = None) -> Any:
        self.names.add(name.decode())
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        assert isinstance(name, bytes)
        self.names.add(name.decode())
        return super().__contains__(name)


def test_the_summary_reads_every_field_of_a_job_except_the_child_jobs(store: Store) -> None:
    fields = RecordedFields()
    job_id = a_job(store)
    parse_job_info(job_id, fields, 1, 0.0)
    texts = {"status": "running", "parent": "j-000000000000/a.1", "usd": "5"}
    for place, name in enumerate(sorted(fields.names - {"unpriced"}), 1):
        value = texts.get(name, str(place))
        store.connection.redis.hset(keys.progress(job_id), name, value)

    (priced,) = store.jobs.read([job_id])
    assert store.job_summaries.read(job_id).job == replace(priced, children=())

    store.connection.redis.hset(keys.progress(job_id), "unpriced", "1")
    (unpriced,) = store.jobs.read([job_id])
    assert store.job_summaries.read(job_id).job == replace(unpriced, children=())
    assert (priced.cost_microusd, unpriced.cost_microusd) == (5, None)
