"""Check a request against the fleet, resolve its files, store it as a job, and announce the job to
a supervisor.

A job may follow on another job. The submission reads the earlier results once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import ValidationError

from handoff_queue.shared.documents.folder import FolderReading, read_folder
from handoff_queue.shared.observability.telemetry import get_telemetry
from handoff_queue.shared.observability.telemetry_factory import start_telemetry
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.budget_measures import MEASURES
from handoff_queue.shared.types.errors import (
    Conflict,
    HandoffError,
    InvalidDocuments,
    StoreError,
    StoreRefusesWrites,
    StoreUnavailable,
    UnknownJob,
    UserError,
    VersionConflict,
)
from handoff_queue.shared.types.events import Event, JobStatus, JobSubmitted
from handoff_queue.shared.types.handoff import (
    BlobRef,
    Document,
    EarlierJob,
    GivenResult,
    Manifest,
    find_answers,
    make_ref,
)
from handoff_queue.shared.types.ids import JobId, StepId, create_job_id
from handoff_queue.shared.types.job_options import Approvals, Mode, Priority
from handoff_queue.shared.types.limits import BudgetLimits, JobLimits
from handoff_queue.shared.types.message import describe_problems
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import HIDDEN_TITLE, Step
from handoff_queue.supervisor.client.admission import Admission
from handoff_queue.supervisor.client.celery_signatures import parse_end_task
from handoff_queue.supervisor.client.fetched_page_copies import load_passed_pages
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.client.request import Request, check_documents, choose_answer_gates
from handoff_queue.supervisor.lifecycle.follow_up_jobs import (
    choose_results_to_give,
    copy_results,
    list_payloads_to_give,
    rename_sources,
)
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.text.markdown import cut_title
from handoff_queue.supervisor.workflows.expansion import expand

HANDOFFS_A_STEP = 3
"""Most handoffs for each step of a workflow: one, and two repetitions."""
TURNS_A_STEP = 10
"""Most turns for each step of a workflow. Most built-in specialists have `max_turns: 8`; the
rest is for repairs.
"""
ANNOUNCE_AFTER_S = 5.0
"""Seconds after which a sweeper finds a job whose first wake-up was lost."""
FLUSH_S = 2.0
"""Longest time in seconds for which an unreachable OpenTelemetry collector delays the end of a
command.
"""
JOBS_A_BATCH = 50
"""Jobs that share their round trips. Larger batches save little and delay the first id."""
MAX_FOLDERS = 2_000
"""Folders in the names of the documents of one request. The file system needs about a millisecond
for each.
"""
CHARS_A_BATCH = 1_000_000
"""Characters of payloads and documents after which a batch gets no further job. A batch
is in memory.
"""


def follow_on(store: Store, job_id: JobId, request: Request) -> EarlierWork:
    """Return the results of an ended job for a request that continues it.

    A request without documents takes over the documents of that job.

    Raises:
        UnknownJob: there is no such job.
        UserError: the earlier job belongs to another tenant, has not ended or has no result, or the
            documents are gone.
        StoreError: a payload is gone.
    """
    state = fold(job_id, None, store.journal.read(job_id))
    if state is None:
        raise UnknownJob.for_job(job_id)
    if state.submitted.tenant != request.tenant:
        raise UserError(
            f"{job_id} is a job of another tenant: submit the follow-up for the tenant of that job"
            " (--tenant)"
        )
    if not state.ended:
        raise UserError(
            f"{job_id} has not ended yet: wait for its end, and submit the follow-up then",
            command=f"handoff watch {job_id}",
        )
    results = choose_results_to_give(state)
    if not results:
        raise UserError(
            f"{job_id} has no result to continue from: submit the whole request without after"
            " (--after)"
        )
    digests = [state.submitted.request.digest]
    manifest = None
    if request.documents is None:
        manifest = state.submitted.manifest
    if manifest:
        keep_documents(store, state)
        digests.append(manifest.digest)
    result_digests = [ref.digest for ref in list_payloads_to_give(state, results)]
    texts = store.payloads.get(job_id, digests, results=result_digests)
    given_results, payloads = copy_results(state, ResultTexts(texts))
    taken_over = [texts[digest] for digest in digests]
    passed = load_passed_pages(store, job_id, payloads, rename_sources)
    return EarlierWork(
        job=EarlierJob(job_id=job_id, request=state.submitted.request),
        given_results=given_results,
        manifest=manifest,
        document_count=state.submitted.document_count if manifest else 0,
        payloads=(*taken_over, *payloads, *passed.texts),
        pages=passed.pages,
        priority=state.submitted.priority,
    )


def keep_documents(store: Store, state: JobState) -> None:
    """Extend the retention of an ended job's documents, for the time limit of the job.

    Raises:
        UserError: the documents are gone.
    """
    manifest_ref = state.submitted.manifest
    if manifest_ref is None:
        return
    manifest = Manifest.from_json(
        store.payloads.get(state.job_id, [manifest_ref.digest])[manifest_ref.digest]
    )
    digests = [document.digest for document in manifest.documents]
    submitted = state.submitted
    missing = store.payloads.find_missing_documents(
        digests, submitted.limits.max_seconds, submitted.tenant
    )
    if missing:
        raise UserError(
            f"{len(missing)} of the documents of {state.job_id} are no longer stored: give them"
            " again in documents (--docs)"
        )


@dataclass(frozen=True, slots=True)
class Submission:
    """A job before it is stored. The tenant, the idempotency key and the secret of the installation
    determine its id. Without a key, the id is random.
    """

    job_id: JobId
    event: JobSubmitted
    payloads: tuple[str, ...]
    """Payloads that the event refers to, and texts of the pages."""
    documents: Mapping[str, str]
    """Texts of the documents by digest. Jobs share them."""
    has_key: bool
    """True if the request has an idempotency key."""
    month: str = ""
    """Key that counts the money of the schedule's month; empty: no schedule started the job."""
    pages: tuple[Document, ...] = ()
    """Pages of the given results, which were fetched for another job."""

    def set_actor(self, actor: Actor | None) -> Submission:
        """Return the same job, submitted by this actor."""
        if actor is None:
            return self
        return replace(self, event=self.event.model_copy(update={"actor": actor}))

    def commit(self, due_at: float, traceparent: str | None = None) -> Commit:
        """Return the commit that stores the job.

        Args:
            due_at: Unix time in seconds at which a sweeper announces the job if its wake-up is
                lost.
            traceparent: the span of the submission. It is not part of the event, so that a request
                with the same key stays the same request.
        """
        fields: dict[str, str | int] = {
            "status": JobStatus.QUEUED.value,
            "title": self.event.title,
            "tenant": self.event.tenant,
            "priority": self.event.priority.value,
            "mode": self.event.mode.value,
            **build_budget_fields(self.event.limits),
        }
        if traceparent:
            fields["traceparent"] = traceparent
        if self.month:
            fields["month"] = self.month
        if self.event.shares_runs is False:
            fields["alone"] = 1
        if self.event.specialists:
            fields["specialists"] = " ".join(self.event.specialists)
        return Commit(
            job_id=self.job_id,
            expected=0,
            events=[self.event],
            payloads=self.payloads,
            pages=self.pages,
            fields=fields,
            due_at=due_at,
            creates=True,
        )


@dataclass(frozen=True, slots=True)
class Clash:
    """Two different requests with one idempotency key."""

    place: int
    """Position of the later request in the list, from 0."""
    earlier: int | None
    """Position of the earlier request. None: the earlier request is a stored job."""
    job_id: JobId
    """The id that both requests have."""


def build_submission(
    request: Request,
    settings: Settings,
    follows: EarlierWork | None = None,
    job_id: JobId | None = None,
) -> Submission:
    """Return the job of a request whose documents have been read.

    Args:
        settings: values for fields that the request leaves out.
        follows: the results of the job in `request.after`.
        job_id: the id that follows from the idempotency key; None: a random id.

    Raises:
        UserError: the workflow needs documents or items that are missing, or the gates of the
            settings cannot be used.
    """
    earlier = follows or EarlierWork()
    manifest_ref, document_count = earlier.manifest, earlier.document_count
    documents: Mapping[str, str] = {}
    manifest = None
    reading = _get_reading(request)
    if reading:
        documents = reading.texts
        manifest = reading.manifest.to_json()
        manifest_ref, document_count = make_ref(manifest), len(reading.manifest.documents)
    schema = None
    if request.answer_schema is not None:
        schema = json.dumps(request.answer_schema, sort_keys=True)
    mode = request.mode or settings.mode
    workflow = None
    plan = build_plan(request, find_answers(earlier.given_results))
    if plan:
        mode = Mode.PIPELINE
        workflow = plan.to_json()
    is_reviewed = request.is_reviewed
    if request.workflow:
        is_reviewed = is_reviewed and request.workflow.review
    gating = choose_answer_gates(request, settings)
    on_end = None
    if request.on_end is not None:
        on_end = parse_end_task(request.on_end).to_json()
    event = JobSubmitted(
        request=make_ref(request.text),
        title=cut_title(request.text),
        limits=_choose_limits(request, plan),
        manifest=manifest_ref,
        document_count=document_count,
        model=request.model,
        answer_schema=_make_ref(schema),
        tenant=request.tenant,
        priority=request.priority or earlier.priority or settings.priority,
        webhook_url=request.webhook_url,
        on_end=_make_ref(on_end),
        specialists=request.specialists,
        mode=mode,
        workflow=_make_ref(workflow),
        is_reviewed=is_reviewed,
        **gating.fields,
        approvals=request.approvals or Approvals(),
        rubric=request.rubric,
        given=earlier.given_results,
        after=earlier.job,
        is_quoted=request.is_quoted,
        is_batched=request.deadline_s is not None or None,
        shares_runs=None if request.shares_runs else False,
    )
    own_payloads = (request.text, manifest, schema, workflow, on_end, gating.facts)
    return Submission(
        job_id=job_id or create_job_id(),
        event=event,
        payloads=tuple(filter(None, (*own_payloads, *earlier.payloads))),
        documents=documents,
        has_key=bool(request.idempotency_key),
        pages=earlier.pages,
    )


def _make_ref(payload: str | None) -> BlobRef | None:
    if payload is None:
        return None
    return make_ref(payload)


def _choose_limits(request: Request, plan: Plan | None) -> JobLimits:
    """Return the limits of the job: the deadline in place of its time limit, and enough for the
    steps of its workflow.
    """
    limits = request.limits
    if request.deadline_s is not None:
        limits = limits.model_copy(update={"max_seconds": request.deadline_s})
    if plan is None:
        return limits
    return _raise_limits_for_steps(limits, len(plan.steps))


def build_plan(request: Request, given_steps: tuple[StepId, ...] = ()) -> Plan | None:
    """Return the plan of the request's workflow, or None without a workflow.

    The documents have been read.

    Args:
        given_steps: ids of earlier results. Every step without a dependency depends on them.

    Raises:
        UserError: the workflow needs documents or items that are missing, or one of its steps has
            the id of an earlier result.
    """
    if request.workflow is None:
        return None
    files: list[str] = []
    reading = _get_reading(request)
    if reading:
        files = [document.path for document in reading.manifest.documents]
    plan = expand(
        request.workflow,
        request.text,
        files=files,
        lines=request.items.lines,
        rows=request.items.rows,
    )
    if not given_steps:
        return plan
    steps: list[Step] = []
    for step in plan.steps:
        if step.depends_on:
            steps.append(step)
        else:
            steps.append(step.model_copy(update={"depends_on": given_steps}))
    try:
        return Plan(
            steps=tuple(steps),
            synthesis=plan.synthesis,
            join=plan.join,
            given=given_steps,
            why=plan.why,
        )
    except ValidationError as error:
        raise UserError(
            f"the workflow cannot continue that job: {describe_problems(error)}; rename the step"
        ) from error


def _get_reading(request: Request) -> FolderReading | None:
    assert request.documents is None or isinstance(request.documents, FolderReading)
    return request.documents


def _raise_limits_for_steps(limits: JobLimits, steps: int) -> JobLimits:
    """Return limits that let each of `steps` steps run and be repeated.

    A limit of turns that the user set stays, and so does any other limit of handoffs than the
    default.
    """
    changes: dict[str, int] = {}
    if limits.max_handoffs == JobLimits().max_handoffs:
        changes["max_handoffs"] = max(limits.max_handoffs, HANDOFFS_A_STEP * steps)
    is_default = "max_turns" not in limits.model_fields_set
    if is_default and limits.max_turns is not None:
        changes["max_turns"] = max(limits.max_turns, TURNS_A_STEP * steps)
    return limits.model_copy(update=changes)


def list_job_ids_with_key(submissions: Iterable[Submission]) -> list[JobId]:
    """Return the ids of the jobs whose requests have an idempotency key."""
    return [submission.job_id for submission in submissions if submission.has_key]


def find_first_clash(
    submissions: Sequence[Submission], jobs: Mapping[JobId, Event]
) -> Clash | None:
    """Return the first clash, or None.

    Args:
        jobs: the first event of each stored job.
    """
    places: dict[JobId, int] = {}
    for place, submission in enumerate(submissions):
        earlier = places.setdefault(submission.job_id, place)
        if not submission.event.is_same_request(submissions[earlier].event):
            return Clash(place, earlier, submission.job_id)
        if not submission.event.is_same_request(jobs.get(submission.job_id, submission.event)):
            return Clash(place, None, submission.job_id)
    return None


def build_budget_fields(limits: BudgetLimits) -> dict[str, int]:
    """Return the limits that are set as fields of the job's hash, which the budget scripts read."""
    fields: dict[str, int] = {}
    for measure in MEASURES:
        limit = measure.get_limit(limits)
        if limit is not None:
            fields[measure.stored_limit] = limit
    return fields


def complete_request(store: Store, settings: Settings, request: Request) -> Submission:
    """Read the documents of a request and the results of the job before it, and return its
    job.

    Raises:
        UserError: see `Client.submit`.
    """
    if isinstance(request.documents, Path | Mapping):
        request = replace(request, documents=read_documents(request, settings))
    follows = None
    if request.after is not None:
        follows = follow_on(store, request.after, request)
    job_id = None
    if request.idempotency_key:
        job_id = store.job_ids.derive(request.tenant, request.idempotency_key)
    submission = build_submission(request, settings, follows, job_id)
    if store.connection.sealing.is_sealed(request.tenant):
        event = submission.event.model_copy(update={"title": HIDDEN_TITLE})
        submission = replace(submission, event=event)
    return submission


def read_documents(request: Request, settings: Settings) -> FolderReading:
    """Read the documents of a request.

    Raises:
        InvalidDocuments: a document cannot be read.
        UserError: a document has a name that is not allowed.
    """
    if isinstance(request.documents, Mapping):
        check_documents(request.documents)  # a name may lead out of the folder
        _check_number(request.documents, settings.max_documents)
        with _as_folder(request.documents) as folder:
            return _read(folder, request, settings)
    assert isinstance(request.documents, Path)
    return _read(request.documents, request, settings)


def _check_number(documents: Mapping[str, bytes], limit: int) -> None:
    """Check the number of the documents and the number of their folders.

    Raises:
        InvalidDocuments: there are too many.
    """
    if len(documents) > limit:
        raise InvalidDocuments(
            f"documents holds more than {limit:,} files: give fewer, or raise HANDOFF_MAX_DOCUMENTS"
        )
    folders: set[str] = set()
    for name in documents:
        folder = name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
        if len(folders) > MAX_FOLDERS:
            raise InvalidDocuments(
                f"the names of the documents have more than {MAX_FOLDERS:,} folders: give the"
                " documents shorter names"
            )


@contextmanager
def _as_folder(documents: Mapping[str, bytes]) -> Iterator[Path]:
    """Write documents with checked names to a temporary folder, and remove the folder at the end.

    Raises:
        InvalidDocuments: a document cannot be written, or the caller's block raised this error.
            The message then has `documents` in place of the path of the folder.
    """
    with TemporaryDirectory(prefix="handoff-documents-") as folder:
        try:
            for name, content in documents.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            yield Path(folder)
        except OSError as error:
            raise InvalidDocuments(
                f"the document {error.filename and Path(error.filename).name!r} cannot be stored"
                f" ({error.strerror}): give it another name, or free space in the folder of"
                " temporary files"
            ) from error
        except InvalidDocuments as error:
            raise InvalidDocuments(str(error).replace(folder, "documents")) from error


def _read(folder: Path, request: Request, settings: Settings) -> FolderReading:
    return read_folder(
        folder,
        max_document_bytes=settings.max_document_bytes,
        max_documents=settings.max_documents,
        strict=request.strict_documents,
    )


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
        UserError, BudgetSpent, TooManyOpenJobs, Conflict, StoreUnavailable: see `Client.submit`.
    """
    _start_telemetry(store, settings)
    with get_telemetry().submitting(submission.job_id) as traceparent:
        admission = Admission(store, settings)
        admission.check(submission.job_id, submission.event.fact_checker, request)
        store.payloads.put_new_documents(
            submission.documents, request.limits.max_seconds, request.tenant
        )
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
    """Store and announce many jobs, one batch at a time, and yield their ids in order.

    No job after a refused job is stored.

    Raises:
        UserError, BudgetSpent, TooManyOpenJobs, Conflict, StoreUnavailable: see
            `Client.submit_each`.
    """
    _start_telemetry(store, settings)
    for batch in _iterate_batches(requests):
        submissions = [submission for _, submission in batch]
        stored_events = store.journal.read_first_events(list_job_ids_with_key(submissions))
        clash = find_first_clash(submissions, stored_events)
        admitted, refusal = _admit_until_refusal(store, settings, batch, clash)
        yield from _enter(store, dispatcher, admitted, stored_events)
        if refusal:
            raise refusal


def _admit_until_refusal(
    store: Store, settings: Settings, batch: Sequence[PreparedJob], clash: Clash | None
) -> tuple[list[PreparedJob], HandoffError | None]:
    """Return the jobs before the first refused job, and the reason for the refusal."""
    admission = Admission(store, settings)
    admitted: list[PreparedJob] = []
    for place, (request, submission) in enumerate(batch):
        try:
            admission.check(submission.job_id, submission.event.fact_checker, request)
            if clash and clash.place == place:
                raise _build_key_reuse_error(submission)
        except (UserError, StoreError) as error:
            return admitted, error
        admitted.append((request, submission))
    return admitted, None


def _start_telemetry(store: Store, settings: Settings) -> None:
    start_telemetry("handoff", settings, flush_s=FLUSH_S)
    get_telemetry().set_trace_reader(store.traces.load_trace_context)


def _iterate_batches(requests: Iterable[PreparedJob]) -> Iterator[list[PreparedJob]]:
    """Yield batches that are not empty. A request that is not valid ends its batch, and its
    error is raised after the batch.
    """
    batch: list[PreparedJob] = []
    chars = 0
    try:
        for request, submission in requests:
            if batch and (len(batch) == JOBS_A_BATCH or chars >= CHARS_A_BATCH):
                yield batch
                batch, chars = [], 0
            batch.append((request, submission))
            chars += sum(map(len, submission.payloads)) + sum(
                map(len, submission.documents.values())
            )
    except HandoffError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _enter(
    store: Store,
    dispatcher: Dispatcher,
    batch: Sequence[PreparedJob],
    stored_events: Mapping[JobId, Event],
) -> Iterator[JobId]:
    """Store one batch, and yield the ids of its jobs.

    A job is stored only if the job before it is stored.

    Args:
        stored_events: the first events of jobs that were stored before.
    """
    new: dict[JobId, PreparedJob] = {}
    for request, submission in batch:
        if submission.job_id not in stored_events:
            new[submission.job_id] = (request, submission)
    problems: dict[JobId, StoreError | None] = {}
    if new:
        new_problems = _commit_each(store, dispatcher, list(new.values()))
        problems = dict(zip(new, new_problems, strict=True))
    for _, submission in batch:
        problem = problems.get(submission.job_id)
        if isinstance(problem, VersionConflict):
            _check_same(store, submission)
        elif problem is not None:
            raise problem
        yield submission.job_id


def _commit_each(
    store: Store, dispatcher: Dispatcher, new: Sequence[PreparedJob]
) -> list[StoreError | None]:
    """Store and announce the jobs. Return the error of each job, or None."""
    with get_telemetry().submitting_each([submission.job_id for _, submission in new]) as spans:
        for request, submission in new:
            store.payloads.put_new_documents(
                submission.documents, request.limits.max_seconds, request.tenant
            )
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
            problems = _commit_each_again(store, commits)
            is_second_try = True
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
            f"{error}. The list of jobs shows which of the next {len(commits)} were enqueued"
        ) from error


def _commit_again(store: Store, commit: Commit, submission: Submission) -> None:
    try:
        store.journal.commit(commit)
    except VersionConflict:
        _check_same(store, submission)
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"{error}. The list of jobs shows whether {submission.job_id} was enqueued"
        ) from error


def _check_same(store: Store, submission: Submission) -> None:
    """Compare the request with the stored job.

    Raises:
        Conflict: the stored job has the same key and another request.
    """
    stored_event = store.journal.read_first_events([submission.job_id]).get(submission.job_id)
    if stored_event is None or not submission.event.is_same_request(stored_event):
        raise _build_key_reuse_error(submission)


def _build_key_reuse_error(submission: Submission) -> Conflict:
    return Conflict(
        f"the idempotency key was used for another request ({submission.job_id}): use a new key"
    )


@dataclass(frozen=True, slots=True)
class EarlierWork:
    """Results and documents of an earlier job for the job that continues it. Without fields: the
    job continues no job.
    """

    job: EarlierJob | None = None
    """The earlier job and its request."""
    given_results: tuple[GivenResult, ...] = ()
    """The results of the earlier job."""
    manifest: BlobRef | None = None
    """The documents of the earlier job, for a job without documents."""
    document_count: int = 0
    payloads: tuple[str, ...] = ()
    """The payloads of the request, the manifest and the results, and the texts of the pages."""
    pages: tuple[Document, ...] = ()
    """The fetched pages that the results cite or name."""
    priority: Priority | None = None
    """The priority of the earlier job."""
