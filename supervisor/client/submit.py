"""Store requests as jobs, each completely and once, and announce them to a supervisor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import NoneType

from handoff_queue.shared.observability.telemetry import telemetry
from handoff_queue.shared.observability.telemetry_start import start_telemetry
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.journal import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import (
    Conflict,
    HandoffError,
    StoreError,
    StoreRefusesWrites,
    StoreUnavailable,
    UserError,
    VersionConflict,
)
from handoff_queue.shared.types.events import Event
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.dispatch import Dispatcher
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.submission import Admission, Submission, first_clash

ANNOUNCE_AFTER_S = 5.0
"""Seconds after which a sweeper finds a job whose first wake-up was lost."""
FLUSH_S = 2.0
"""Longest time in seconds for which a collector without a reply delays the end of a command."""
SLICE = 50
"""Jobs that share their round trips. Larger slices save little and delay the first id."""
SLICE_CHARS = 1_000_000
"""Most characters of payloads in a slice, unless one job alone has more. A slice is held in
memory.
"""

Made = tuple[Request, Submission]
"""A request and the job that it becomes."""


def submit(
    store: Store, dispatcher: Dispatcher, settings: Settings, request: Request, made: Submission
) -> JobId:
    """Store and announce one job. Its trace starts here, or continues the trace of the caller.

    Raises:
        UserError, BudgetSpent, Conflict, StoreUnavailable: see `Client.submit`.
    """
    _start_telemetry(store, settings)
    with telemetry().submitting(made.job_id) as traceparent:
        Admission(store, settings.memory_mark).check(made, request)
        store.payloads.put_new_documents(made.documents, request.limits.max_seconds)
        commit = made.commit(store.connection.now() + ANNOUNCE_AFTER_S, traceparent)
        try:
            store.journal.commit(commit)
        except VersionConflict:
            _check_same(store, made)
            return made.job_id
        except StoreRefusesWrites:
            raise
        except (
            StoreUnavailable
        ):  # perhaps only its answer was lost: said again, it finds the job that it has made
            _commit_again(store, commit, made)
        dispatcher.announce(made.job_id)
        return made.job_id


def submit_each(
    store: Store, dispatcher: Dispatcher, settings: Settings, all_of: Iterable[Made]
) -> Iterator[JobId]:
    """Store and announce many jobs, one slice at a time, and yield their ids in order.

    The order is kept: no job after a refused job is stored.

    Raises:
        UserError, BudgetSpent, Conflict, StoreUnavailable: see `Client.submit_each`.
    """
    _start_telemetry(store, settings)
    for some in _slices(all_of):
        there = store.journal.first_events([made.job_id for _, made in some if made.has_key])
        admitted, refusal = _admitted(store, settings, some, there)
        yield from _enter(store, dispatcher, admitted, there)
        if refusal:
            raise refusal


def _admitted(
    store: Store, settings: Settings, some: Sequence[Made], there: Mapping[JobId, Event]
) -> tuple[list[Made], HandoffError | None]:
    """Return the jobs before the first refused job, and the reason for the refusal."""
    admission, admitted = Admission(store, settings.memory_mark), list[Made]()
    clash = first_clash([made for _, made in some], there)
    for place, (request, made) in enumerate(some):
        try:
            admission.check(made, request)
            if clash and clash.place == place:
                raise _other_request(made)
        except (UserError, StoreError) as error:
            return admitted, error
        admitted.append((request, made))
    return admitted, None


def _start_telemetry(store: Store, settings: Settings) -> None:
    start_telemetry("handoff", settings, flush_s=FLUSH_S)
    telemetry().reads(store.traces.kept)


def _slices(all_of: Iterable[Made]) -> Iterator[list[Made]]:
    """Yield slices that are not empty. A request that cannot be made ends its slice."""
    some, chars = list[Made](), 0
    try:
        for submission in all_of:
            if some and (len(some) == SLICE or chars >= SLICE_CHARS):
                yield some
                some, chars = [], 0
            some.append(submission)
            chars += sum(map(len, (*submission[1].payloads, *submission[1].documents.values())))
    except HandoffError:
        if some:
            yield some
        raise
    if some:
        yield some


def _enter(
    store: Store, dispatcher: Dispatcher, slice_: Sequence[Made], there: Mapping[JobId, Event]
) -> Iterator[JobId]:
    """Store one slice. A job is stored only if the job before it is stored, so that no gap can
    arise.
    """
    new = {made.job_id: (request, made) for request, made in slice_ if made.job_id not in there}
    if new:
        problems = dict(zip(new, _commit_each(store, dispatcher, list(new.values())), strict=True))
    else:
        problems = {}
    for _, made in slice_:
        if isinstance(problem := problems.get(made.job_id), VersionConflict):
            _check_same(store, made)
        elif problem is not None:
            raise problem
        yield made.job_id


def _commit_each(
    store: Store, dispatcher: Dispatcher, new: Sequence[Made]
) -> list[StoreError | None]:
    """Store and announce the jobs. Return the error of each job, or None."""
    with telemetry().submitting_each([made.job_id for _, made in new]) as submissions:
        for request, made in new:
            store.payloads.put_new_documents(made.documents, request.limits.max_seconds)
        due_at, commits, before = store.connection.now() + ANNOUNCE_AFTER_S, list[Commit](), None
        for (_, made), traceparent in zip(new, submissions.traceparents, strict=True):
            commits.append(replace(made.commit(due_at, traceparent), after=before))
            before = made.job_id
        announced: tuple[type, ...] = (NoneType,)
        try:
            came_to = store.journal.commit_each(commits)
        except (
            StoreUnavailable
        ):  # perhaps only the answers were lost: said again, each finds the job that it has made
            came_to, announced = _commit_each_again(store, commits), (NoneType, VersionConflict)
        refusals = [
            None if isinstance(problem, VersionConflict) else problem for problem in came_to
        ]  # those are there already
        submissions.came_to(refusals)
        if ids := [
            commit.job_id
            for commit, problem in zip(commits, came_to, strict=True)
            if isinstance(problem, announced)
        ]:
            dispatcher.announce_each(ids)
        return came_to


def _commit_each_again(store: Store, commits: Sequence[Commit]) -> list[StoreError | None]:
    try:
        return store.journal.commit_each(commits)
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"{error}. Which of the next {len(commits)} were enqueued is not known: `handoff list` will say"
        ) from error


def _commit_again(store: Store, commit: Commit, made: Submission) -> None:
    try:
        store.journal.commit(commit)
    except VersionConflict:
        _check_same(store, made)
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"{error}. Whether {made.job_id} was enqueued is not known: `handoff list` will say"
        ) from error


def _check_same(store: Store, made: Submission) -> None:
    """Compare the request with the stored job.

    Raises:
        Conflict: the stored job has the same key and another request.
    """
    if store.journal.first_events([made.job_id]).get(made.job_id) != made.event:
        raise _other_request(made)


def _other_request(made: Submission) -> Conflict:
    return Conflict(
        f"this idempotency key was used for another request ({made.job_id}): take a new key"
    )
