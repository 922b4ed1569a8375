"""Store requests as jobs, and announce the jobs to a supervisor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

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
from handoff_queue.supervisor.client.submission import (
    Admission,
    Clash,
    Submission,
    first_clash,
    keyed_job_ids,
)

ANNOUNCE_AFTER_S = 5.0
"""Seconds after which a sweeper finds a job whose first wake-up was lost."""
FLUSH_S = 2.0
"""Longest time in seconds for which an unreachable OpenTelemetry collector delays the end of a
command.
"""
SLICE = 50
"""Jobs that share their round trips. Larger slices save little and delay the first id."""
SLICE_CHARS = 1_000_000
"""Characters of payloads and documents after which a slice gets no further job. A slice is
held in memory.
"""

PreparedJob = tuple[Request, Submission]
"""A request and the job that it becomes."""


def submit(
    store: Store,
    dispatcher: Dispatcher,
    settings: Settings,
    request: Request,
    submission: Submission,
) -> JobId:
    """Store and announce one job. Its trace starts here, or continues the trace of the caller.

    Raises:
        UserError, BudgetSpent, Conflict, StoreUnavailable: see `Client.submit`.
    """
    _start_telemetry(store, settings)
    with telemetry().submitting(submission.job_id) as traceparent:
        Admission(store, settings.memory_mark).check(submission, request)
        store.payloads.put_new_documents(submission.documents, request.limits.max_seconds)
        commit = submission.commit(store.connection.now() + ANNOUNCE_AFTER_S, traceparent)
        try:
            store.journal.commit(commit)
        except VersionConflict:
            _check_same(store, submission)
            return submission.job_id
        except StoreRefusesWrites:
            raise
        except StoreUnavailable:
            # Redis may have stored the job and lost its reply: a second commit then finds the job
            _commit_again(store, commit, submission)
        dispatcher.announce(submission.job_id)
        return submission.job_id


def submit_each(
    store: Store, dispatcher: Dispatcher, settings: Settings, requests: Iterable[PreparedJob]
) -> Iterator[JobId]:
    """Store and announce many jobs, one slice at a time, and yield their ids in order.

    No job after a refused job is stored.

    Raises:
        UserError, BudgetSpent, Conflict, StoreUnavailable: see `Client.submit_each`.
    """
    _start_telemetry(store, settings)
    for slice_ in _slices(requests):
        submissions = [submission for _, submission in slice_]
        stored = store.journal.first_events(keyed_job_ids(submissions))
        clash = first_clash(submissions, stored)
        admitted, refusal = _admitted(store, settings, slice_, clash)
        yield from _enter(store, dispatcher, admitted, stored)
        if refusal:
            raise refusal


def _admitted(
    store: Store, settings: Settings, slice_: Sequence[PreparedJob], clash: Clash | None
) -> tuple[list[PreparedJob], HandoffError | None]:
    """Return the jobs before the first refused job, and the reason for the refusal."""
    admission, admitted = Admission(store, settings.memory_mark), list[PreparedJob]()
    for place, (request, submission) in enumerate(slice_):
        try:
            admission.check(submission, request)
            if clash and clash.place == place:
                raise _other_request(submission)
        except (UserError, StoreError) as error:
            return admitted, error
        admitted.append((request, submission))
    return admitted, None


def _start_telemetry(store: Store, settings: Settings) -> None:
    start_telemetry("handoff", settings, flush_s=FLUSH_S)
    telemetry().set_trace_reader(store.traces.kept)


def _slices(requests: Iterable[PreparedJob]) -> Iterator[list[PreparedJob]]:
    """Yield slices that are not empty. A request that is not valid ends its slice, and its
    error is raised after the slice.
    """
    slice_, chars = list[PreparedJob](), 0
    try:
        for request, submission in requests:
            if slice_ and (len(slice_) == SLICE or chars >= SLICE_CHARS):
                yield slice_
                slice_, chars = [], 0
            slice_.append((request, submission))
            chars += sum(map(len, submission.payloads)) + sum(
                map(len, submission.documents.values())
            )
    except HandoffError:
        if slice_:
            yield slice_
        raise
    if slice_:
        yield slice_


def _enter(
    store: Store,
    dispatcher: Dispatcher,
    slice_: Sequence[PreparedJob],
    stored: Mapping[JobId, Event],
) -> Iterator[JobId]:
    """Store one slice, and yield the ids of its jobs.

    A job is stored only if the job before it is stored. `stored`: the first events of jobs
    that were stored before.
    """
    new: dict[JobId, PreparedJob] = {}
    for request, submission in slice_:
        if submission.job_id not in stored:
            new[submission.job_id] = (request, submission)
    problems: dict[JobId, StoreError | None] = {}
    if new:
        problems.update(zip(new, _commit_each(store, dispatcher, list(new.values())), strict=True))
    for _, submission in slice_:
        if isinstance(problem := problems.get(submission.job_id), VersionConflict):
            _check_same(store, submission)
        elif problem is not None:
            raise problem
        yield submission.job_id


def _commit_each(
    store: Store, dispatcher: Dispatcher, new: Sequence[PreparedJob]
) -> list[StoreError | None]:
    """Store and announce the jobs. Return the error of each job, or None."""
    with telemetry().submitting_each([submission.job_id for _, submission in new]) as spans:
        for request, submission in new:
            store.payloads.put_new_documents(submission.documents, request.limits.max_seconds)
        due_at = store.connection.now() + ANNOUNCE_AFTER_S
        commits: list[Commit] = []
        previous: JobId | None = None
        for (_, submission), traceparent in zip(new, spans.traceparents, strict=True):
            commits.append(replace(submission.commit(due_at, traceparent), after=previous))
            previous = submission.job_id
        is_second_try = False
        try:
            problems = store.journal.commit_each(commits)
        except StoreUnavailable:
            # Redis may have stored the jobs and lost its replies: a second commit then finds them
            problems, is_second_try = _commit_each_again(store, commits), True
        refusals: list[StoreError | None] = []
        to_announce: list[JobId] = []
        for commit, problem in zip(commits, problems, strict=True):
            is_stored_already = isinstance(problem, VersionConflict)
            refusals.append(None if is_stored_already else problem)
            if problem is None or (is_second_try and is_stored_already):
                to_announce.append(commit.job_id)
        spans.record_results(refusals)
        if to_announce:
            dispatcher.announce_each(to_announce)
        return problems


def _commit_each_again(store: Store, commits: Sequence[Commit]) -> list[StoreError | None]:
    try:
        return store.journal.commit_each(commits)
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"{error}. Which of the next {len(commits)} were enqueued is not known: `handoff list` will say"
        ) from error


def _commit_again(store: Store, commit: Commit, submission: Submission) -> None:
    try:
        store.journal.commit(commit)
    except VersionConflict:
        _check_same(store, submission)
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"{error}. Whether {submission.job_id} was enqueued is not known: `handoff list` will say"
        ) from error


def _check_same(store: Store, submission: Submission) -> None:
    """Compare the request with the stored job.

    Raises:
        Conflict: the stored job has the same key and another request.
    """
    stored = store.journal.first_events([submission.job_id]).get(submission.job_id)
    if stored is None or not submission.event.is_same_request(stored):
        raise _other_request(submission)


def _other_request(submission: Submission) -> Conflict:
    return Conflict(
        f"this idempotency key was used for another request ({submission.job_id}): take a new key"
    )
