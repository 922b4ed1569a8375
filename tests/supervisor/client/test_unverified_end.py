"""A client with an old keyring follows a job until its end, and names the reason and the remedy."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.trust.key_files import find_private_key_file, make_keys, rotate_key
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import (
    EventRefused,
    JobEnded,
    JobStatus,
    RecordedEvent,
    RetryRequested,
)
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.display.job_view import JobUpdate, follow
from handoff_queue.supervisor.cli.errors import BAD_INPUT, OK
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.serve.console.job_routes import read_job
from tests.doubles.jobs import a_job, issue, version_of
from tests.e2e.commands import HandoffInProcess

pytestmark = pytest.mark.slow

REMEDY = "unknown key: if HANDOFF_KEYS names an old keyring.json, replace the file"


@pytest.fixture
def jobs(redis_url: str, tmp_path: Path) -> Iterator[Client]:
    """A client with the public keys from before a rotation of the supervisor's key."""
    make_keys(tmp_path / "new", ["researcher"])
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    rotate_key(tmp_path / "new", "supervisor")
    store = open_store_of("client", redis_url, tmp_path / "old")
    yield Client(store, Settings(offline=True))
    store.connection.close()


@pytest.fixture
def supervisor(jobs: Client, redis_url: str, tmp_path: Path) -> Iterator[Store]:
    """The store of a supervisor with the new key."""
    store = open_store_of("supervisor", redis_url, tmp_path / "new")
    yield store
    store.connection.close()


@pytest.fixture
def job_id(jobs: Client, supervisor: Store) -> JobId:
    """A job of the client that the supervisor has begun."""
    job = a_job(jobs.store)
    issue(supervisor, job, "a.1", role="researcher")
    return job


@pytest.fixture
def trusted_job_id(jobs: Client, redis_url: str, tmp_path: Path) -> JobId:
    """A job that a supervisor has ended before the rotation."""
    job = a_job(jobs.store)
    with_old_key = open_store_of("supervisor", redis_url, tmp_path / "old")
    end(with_old_key, job)
    with_old_key.connection.close()
    return job


def open_store_of(identity: str, url: str, folder: Path) -> Store:
    key = find_private_key_file(folder, identity)
    return open_store(url, Settings(offline=True, keys=folder, signing_key=key))


def end(store: Store, job_id: JobId) -> None:
    event = JobEnded(status=JobStatus.OK)
    store.journal.commit(
        Commit(job_id, version_of(store, job_id), [event], fields={"status": "ok"})
    )


def follow_events(jobs: Client, job_id: JobId) -> list[RecordedEvent]:
    return list(jobs.events(job_id))


def follow_events_asynchronously(jobs: Client, job_id: JobId) -> list[RecordedEvent]:
    async def collect_events() -> list[RecordedEvent]:
        return [recorded async for recorded in AsyncClient(jobs).events(job_id)]

    return asyncio.run(collect_events())


@pytest.mark.parametrize("read", [follow_events, follow_events_asynchronously])
def test_the_events_of_a_job_stop_at_an_end_that_is_not_trusted(
    jobs: Client,
    supervisor: Store,
    job_id: JobId,
    read: Callable[[Client, JobId], list[RecordedEvent]],
) -> None:
    end(supervisor, job_id)

    *_, last = read(jobs, job_id)

    assert isinstance(last.event, EventRefused)
    assert REMEDY in last.event.reason
    assert jobs.wait(job_id, 60) is JobStatus.OK


def test_an_update_shows_each_refused_event_and_an_error_follows_the_end(
    jobs: Client, supervisor: Store, job_id: JobId
) -> None:
    updates = follow(jobs, job_id)
    before: JobUpdate = next(updates)
    end(supervisor, job_id)

    at_the_end = next(updates)
    with pytest.raises(UserError, match=f"{job_id} has ended with the status ok, .*{REMEDY}"):
        next(updates)

    assert isinstance(before.events[-1].event, EventRefused)
    assert isinstance(at_the_end.events[-1].event, EventRefused)


@pytest.mark.parametrize("arguments", [("watch",), ("result", "--wait", "1m"), ("show", "--full")])
def test_a_command_ends_with_one_line_that_names_the_reason_and_the_remedy(
    jobs: Client,
    supervisor: Store,
    job_id: JobId,
    redis_url: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    end(supervisor, job_id)
    old_keys = tmp_path / "old"

    done = HandoffInProcess(tmp_path, capture=capfd).run(
        *arguments,
        job_id,
        HANDOFF_REDIS_URL=redis_url,
        HANDOFF_KEYS=str(old_keys),
        HANDOFF_SIGNING_KEY=str(find_private_key_file(old_keys, "client")),
    )

    *_, line = done.stderr.splitlines()
    assert line.startswith(f"handoff: {job_id} has ended with the status ok")
    assert line.endswith(f"{REMEDY} with the newest one")
    assert (done.returncode, done.stdout) == (BAD_INPUT, "")


@pytest.mark.parametrize("arguments", [("trace", "-o", "-"), ("export",)])
def test_a_report_of_a_job_without_a_trusted_end_names_the_reason_and_the_remedy(
    jobs: Client,
    supervisor: Store,
    job_id: JobId,
    redis_url: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    end(supervisor, job_id)
    old_keys = tmp_path / "old"

    done = HandoffInProcess(tmp_path, capture=capfd).run(
        *arguments,
        job_id,
        HANDOFF_REDIS_URL=redis_url,
        HANDOFF_KEYS=str(old_keys),
        HANDOFF_SIGNING_KEY=str(find_private_key_file(old_keys, "client")),
    )

    *_, line = done.stderr.splitlines()
    assert line.startswith(f"handoff: {job_id} has ended with the status ok")
    assert line.endswith(f"{REMEDY} with the newest one")
    assert done.returncode == OK


def test_the_page_of_a_job_without_a_trusted_end_has_a_note(
    jobs: Client, supervisor: Store, job_id: JobId
) -> None:
    end(supervisor, job_id)

    (note,) = read_job(jobs.store, job_id).sections["notes"]

    assert REMEDY in note


def test_a_job_that_runs_is_followed_although_an_event_is_refused(
    jobs: Client, job_id: JobId
) -> None:
    updates = follow(jobs, job_id)
    refused = next(updates)

    quiet = next(updates)

    assert isinstance(refused.events[-1].event, EventRefused)
    assert quiet.events == ()
    assert jobs.result(job_id).status is JobStatus.RUNNING


def test_the_result_of_an_end_that_is_not_trusted_is_an_error_and_no_empty_answer(
    jobs: Client, supervisor: Store, job_id: JobId
) -> None:
    end(supervisor, job_id)

    with pytest.raises(UserError, match=REMEDY):
        jobs.result(job_id)


def test_the_result_before_a_retry_is_not_the_result_after_it(
    jobs: Client, supervisor: Store, trusted_job_id: JobId
) -> None:
    assert jobs.result(trusted_job_id).status is JobStatus.OK

    jobs.store.journal.append(trusted_job_id, RetryRequested(), {"status": "running"})
    end(supervisor, trusted_job_id)

    with pytest.raises(UserError, match=REMEDY):
        jobs.result(trusted_job_id)


def test_an_event_after_a_trusted_end_changes_no_result(
    jobs: Client, supervisor: Store, trusted_job_id: JobId
) -> None:
    """A supervisor may report the end to a webhook after it has a new key."""
    end(supervisor, trusted_job_id)

    assert jobs.result(trusted_job_id).status is JobStatus.OK
    assert [update.view.has_ended for update in follow(jobs, trusted_job_id)] == [True]
