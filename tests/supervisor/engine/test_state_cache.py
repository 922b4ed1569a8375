"""A process continues from its cached state, unless the journal's earlier events changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.trust.key_files import find_private_key_file, make_keys
from handoff_queue.shared.types.events import (
    CancelRequested,
    JobStatus,
    PlanMade,
    StepOutline,
    WebhookTried,
)
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import JobId, StepId, create_job_id
from handoff_queue.supervisor.engine.journal_signature_guard import JournalGuard
from handoff_queue.supervisor.engine.state_cache import MAX_STATES, StateCache
from tests.doubles.jobs import a_job, submission


def backup_of(store: Store, job_id: JobId) -> dict[str, bytes]:
    """Return a backup of the job's keys."""
    return {
        name: store.connection.redis.dump(name)
        for name in (
            keys.job(job_id),
            keys.progress(job_id),
            keys.log(job_id),
            keys.blobs(job_id),
        )
    }


def restore(store: Store, backup: dict[str, bytes]) -> None:
    for name, value in backup.items():
        store.connection.redis.restore(name, 100_000, value, replace=True)


def range_reads(store: Store) -> int:
    stats: dict[str, Any] = store.connection.redis.info("commandstats")
    return int(stats.get("cmdstat_lrange", {"calls": 0})["calls"])


def test_an_unknown_job_has_no_state(store: Store) -> None:
    assert StateCache(store.journal).load(create_job_id()) is None


def test_the_state_follows_the_journal(store: Store) -> None:
    states, job_id = StateCache(store.journal), a_job(store)

    first = states.load(job_id)
    assert first is not None
    assert (first.version, first.cancelled_by) == (1, None)
    store.journal.append(job_id, CancelRequested())
    second = states.load(job_id)
    assert second is not None
    assert (second.version, second.cancelled_by) == (2, "user")
    assert states.load(job_id) == second


def test_known_events_are_not_folded_again(store: Store) -> None:
    states, job_id = StateCache(store.journal), a_job(store)
    states.load(job_id)
    before = range_reads(store)
    states.load(job_id)

    assert range_reads(store) == before + 1


def test_a_long_event_of_this_process_is_not_folded_again(redis_url: str, tmp_path: Path) -> None:
    """With keys, a long event is read without its content."""
    make_keys(tmp_path, ())
    key = find_private_key_file(tmp_path, "supervisor")
    store = open_store(redis_url, Settings(offline=True, keys=tmp_path, signing_key=key))
    states, job_id = StateCache(store.journal, JournalGuard(store, 60)), a_job(store)
    state = states.load(job_id)
    assert state is not None
    steps = tuple(StepOutline(id=StepId(f"s{n}"), specialist="writer") for n in range(100))
    plan = Commit(job_id, state.version, [PlanMade(plan=make_ref("the plan"), steps=steps)])
    states.fold_on(state, store.journal.commit(plan))
    before = range_reads(store)
    later = states.load(job_id)

    assert range_reads(store) == before + 1
    assert later is not None
    assert len(later.steps) == 100
    store.connection.close()


def test_a_state_ahead_of_the_journal_is_forgotten(store: Store) -> None:
    """Redis restarted with older data, so the journal no longer has the later decisions."""
    states, job_id = StateCache(store.journal), a_job(store)
    backup = backup_of(store, job_id)
    store.journal.append(job_id, CancelRequested())
    states.load(job_id)

    restore(store, backup)

    state = states.load(job_id)
    assert state is not None
    assert (state.version, state.cancelled_by) == (1, None)
    store.journal.commit(
        Commit(
            job_id=job_id,
            expected=state.version,
            events=[WebhookTried(attempt=1, delivered=True, end=0)],
        )
    )


def test_a_journal_with_other_events_is_read_from_its_beginning(store: Store) -> None:
    states, job_id = StateCache(store.journal), a_job(store)
    backup = backup_of(store, job_id)
    store.journal.append(job_id, CancelRequested())
    states.load(job_id)

    restore(store, backup)
    for attempt in (1, 2, 3):
        store.journal.append(job_id, WebhookTried(attempt=attempt, delivered=False, end=0))

    state = states.load(job_id)
    assert state is not None
    assert (state.version, state.cancelled_by, state.webhook.attempts) == (4, None, 3)


def test_a_job_that_was_deleted_and_submitted_again_is_another_job(store: Store) -> None:
    states, job_id = StateCache(store.journal), a_job(store)
    store.journal.append(job_id, CancelRequested())
    states.load(job_id)
    store.jobs.delete(job_id)
    assert states.load(job_id) is None

    store.journal.commit(
        Commit(
            job_id=job_id,
            expected=0,
            events=[submission("Another.")],
            creates=True,
            payloads=["Another."],
        )
    )

    state = states.load(job_id)
    assert state is not None
    assert (state.version, state.submitted.title, state.status) == (1, "Another.", JobStatus.QUEUED)


def test_the_cache_of_job_states_is_bounded(store: Store) -> None:
    states, job_id = StateCache(store.journal), a_job(store)
    state, (last,) = states.load(job_id), store.journal.read(job_id)
    assert state is not None
    for _ in range(MAX_STATES + 10):
        states.remember(state.model_copy(update={"job_id": create_job_id()}), last)

    assert len(states._cached_states) == MAX_STATES
