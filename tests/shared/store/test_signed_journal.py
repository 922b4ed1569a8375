"""Parts of a journal whose batches of events are signed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.journal import MAX_UNSIGNED_VALUES
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.trust.key_files import find_private_key_file, make_keys
from handoff_queue.shared.types.events import EventRefused
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.json_values import has_more_values
from handoff_queue.shared.types.step_events import MAX_PASSAGES, MAX_RESTATED
from tests.doubles.jobs import a_job, finished_event, granted_claim, issue, result_of
from tests.shared.store.test_journal import a_batch

BATCHES = 3, 200, 1
"""Events of each batch after the submission."""
END = 1 + sum(BATCHES)


@pytest.fixture
def signed(redis_url: str, tmp_path: Path) -> Iterator[Store]:
    """A store of a supervisor that signs its events."""
    make_keys(tmp_path, ["researcher"])
    yield from store_of("supervisor", redis_url, tmp_path)


@pytest.fixture
def worker(signed: Store, redis_url: str, tmp_path: Path) -> Iterator[Store]:
    """A store of a worker with its key."""
    yield from store_of("worker-researcher", redis_url, tmp_path)


def store_of(identity: str, url: str, folder: Path) -> Iterator[Store]:
    key = find_private_key_file(folder, identity)
    store = open_store(url, Settings(offline=True, keys=folder, signing_key=key))
    yield store
    store.connection.close()


@pytest.fixture
def job_id(signed: Store) -> JobId:
    """A job with some batches of events."""
    job = a_job(signed)
    version = 1
    for count in BATCHES:
        events = a_batch(f"b{version}", count)
        version = signed.journal.commit(Commit(job, version, events))[-1].version
    return job


@pytest.mark.parametrize("after", [1, 2, 3, 4, 100, END - 2, END - 1])
def test_the_events_after_any_event_of_a_batch_are_trusted(
    signed: Store, job_id: JobId, after: int
) -> None:
    events = signed.journal.read(job_id, after)

    assert [recorded.version for recorded in events] == list(range(after + 1, END + 1))
    assert not any(isinstance(recorded.event, EventRefused) for recorded in events)


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2, 3, 50, 150])
def test_pages_that_cut_batches_are_the_whole_trusted_journal(
    signed: Store, job_id: JobId, most: int
) -> None:
    pages = []
    version = 0
    while page := signed.journal.read(job_id, version, most):
        assert len(page) <= most
        pages += page
        version = page[-1].version

    assert pages == signed.journal.read(job_id)


def test_an_unsigned_event_after_signed_batches_is_refused(
    signed: Store, job_id: JobId, store: Store
) -> None:
    forged = store.journal.commit(Commit(job_id, END, a_batch("forged", 1)))[-1].version

    (event,) = signed.journal.read(job_id, END)

    assert (event.version, type(event.event)) == (forged, EventRefused)


def test_followers_of_a_journal_get_checked_events(
    signed: Store, job_id: JobId, store: Store
) -> None:
    store.journal.commit(Commit(job_id, END, a_batch("forged", 1)))

    followed = signed.journal.follow(job_id, END - 1, 1.0)
    by_job = signed.journal.follow_each({job_id: END - 1}, 1.0)

    assert [isinstance(each.event, EventRefused) for each in followed] == [False, True]
    assert by_job == {job_id: followed}


def test_a_follower_gets_the_rest_of_a_batch_of_which_it_has_read_a_part(
    signed: Store, job_id: JobId
) -> None:
    followed = signed.journal.follow(job_id, 100, 1.0)

    assert followed == signed.journal.read(job_id, 100)


def test_the_longest_event_of_a_result_is_trusted(signed: Store, worker: Store) -> None:
    job_id = a_job(signed)
    issue(signed, job_id, "a.1")
    claimed = granted_claim(worker, job_id, "a.1")
    result = result_of(claimed)
    origins = tuple(f"tool t{number}" for number in range(10, 74))
    passages = tuple(f"{number:012x}" for number in range(MAX_PASSAGES))
    restated = tuple(f"s{number:047}" for number in range(MAX_RESTATED))
    longest = {"origins": origins, "passages": passages, "restated": restated}
    event = finished_event(result).model_copy(update=longest)
    claimed.finish(claimed.build_finish_request(result, (event,)))

    (recorded,) = signed.journal.read(job_id, 2)

    assert has_more_values(recorded.raw, MAX_UNSIGNED_VALUES)
    assert recorded.event == event
