"""A supervisor records the events that it refuses, so that clients do not check a flood again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import journal, keys
from handoff_queue.shared.store.journal import MAX_EVENTS_A_READ, parse_entry
from handoff_queue.shared.store.journal_signature_check import (
    MAX_RUNS,
    MIN_RUN,
    NOTHING_SEEN,
    read_runs,
)
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.trust.key_files import find_private_key_file, make_keys
from handoff_queue.shared.types.events import CancelRequested, EventRefused, RecordedEvent
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.engine.journal_signature_guard import JournalGuard
from tests.doubles.jobs import a_job, issue_to_a_child

FORGED = b"x"
"""An entry of a worker that was taken over."""


@pytest.fixture
def signed(redis_url: str, tmp_path: Path) -> Iterator[Store]:
    """A store of a supervisor that signs its events."""
    make_keys(tmp_path)
    key = find_private_key_file(tmp_path, "supervisor")
    store = open_store(redis_url, Settings(offline=True, keys=tmp_path, signing_key=key))
    yield store
    store.connection.close()


def forge(store: Store, job_id: JobId, count: int) -> None:
    store.connection.redis.rpush(keys.log(job_id), *[FORGED] * count)


def check(store: Store, job_id: JobId, most: int | None = None) -> None:
    """Check the events up to the version `most`, and then all further events."""
    guard = JournalGuard(store, 60)
    events = store.journal.read_all(job_id)
    state, seen = guard.check(job_id, None, NOTHING_SEEN, [events[:most]])
    if most is not None:
        guard.check(job_id, state, seen, [events[most:]])


@pytest.mark.slow
def test_a_client_does_not_parse_a_long_run_of_refused_events(
    signed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60,000 refused events took each client three seconds."""
    job_id = a_job(signed)
    forge(signed, job_id, 2 * MAX_EVENTS_A_READ)
    signed.journal.append(job_id, CancelRequested(by="test"))
    before = signed.journal.read(job_id)
    check(signed, job_id, MAX_EVENTS_A_READ + 300)
    parsed: list[int] = []

    def counted(version: int, entry: bytes) -> RecordedEvent:
        parsed.append(version)
        return parse_entry(version, entry)

    monkeypatch.setattr(journal, "parse_entry", counted)
    events = signed.journal.read(job_id)

    assert [event.version for event in events] == [event.version for event in before]
    assert [type(event.event) for event in events] == [type(event.event) for event in before]
    assert events[-1].event == CancelRequested(by="test")
    assert len(parsed) == MAX_EVENTS_A_READ + 1


@pytest.mark.slow
def test_a_client_checks_a_short_run_of_refused_events_again(signed: Store) -> None:
    job_id = a_job(signed)
    forge(signed, job_id, MAX_EVENTS_A_READ)
    signed.journal.append(job_id, CancelRequested(by="test"))
    forge(signed, job_id, MIN_RUN - 1)
    check(signed, job_id)

    last = signed.journal.read(job_id)[-1].event

    assert last == EventRefused(reason="it has no signature")


def test_a_supervisor_records_the_newest_long_runs(signed: Store) -> None:
    job_id = a_job(signed)
    record = signed.refused_events.record
    record(job_id, [2, *range(10, 10 + MIN_RUN)], 60)
    record(job_id, range(10 + MIN_RUN, 300), 60)
    record(job_id, [400], 60)
    assert read_runs(signed.connection, job_id) == [(10, 299), (400, 400)]

    runs = [range(first, first + MIN_RUN) for first in range(1_000, 1_000 + 200 * MAX_RUNS, 200)]
    record(job_id, [version for run in runs for version in run], 60)

    assert read_runs(signed.connection, job_id) == [(run[0], run[-1]) for run in runs]


def test_the_submission_of_a_job_removes_the_record_of_an_earlier_journal(signed: Store) -> None:
    """A worker may know the id of a child job, and append to its journal before it begins."""
    parent, team = a_job(signed), HandoffId("team.1")
    child = issue_to_a_child(signed, parent, team)
    signed.refused_events.record(child, range(1, MIN_RUN + 1), 60)

    assert a_job(signed, "default", (parent, team)) == child
    assert read_runs(signed.connection, child) == []
    assert signed.refused_events.read_recorded_version(child) == 0
