"""Submit a fork of an ended job: a new job that keeps the results before one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from handoff_queue.shared.specialists.specialist_files import load_specialists
from handoff_queue.shared.specialists.tool_grants import grant_spec
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.events import Fork, JobSubmitted
from handoff_queue.shared.types.handoff import BlobRef, make_ref
from handoff_queue.shared.types.ids import JobId, StepId, create_job_id
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import NewLimits, raise_limits
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.specialist import SpecialistSpec, parse_spec
from handoff_queue.supervisor.client.fetched_page_copies import load_passed_pages
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.submission import Submission, keep_documents
from handoff_queue.supervisor.lifecycle.forks import (
    build_fork,
    build_fork_plan,
    get_fork_specialists,
)
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.state import JobState


@dataclass(frozen=True, slots=True)
class ForkOptions:
    """The differences between a fork and its job."""

    task: str | None = None
    """Another task of the step; None: the same task."""
    model: str | None = None
    """Model of all agents of the fork; None: the models of the job."""
    limits: NewLimits = field(default_factory=NewLimits)
    """Limits of the fork; None: the limit of the job. The fork begins with nothing spent."""
    specialists: Path | None = None
    """Folder of specialist files that the fork uses in place of the files of the workers. A worker
    grants no tool, host or limit beyond its own file. A fork of a fork keeps the files of the
    first fork for the specialists that the folder does not have. None: no new files.
    """


@dataclass(frozen=True, slots=True)
class FilesOfFork:
    """The specialist files that a fork uses in place of those of the workers."""

    kept: Sequence[str] = ()
    """Names of the specialists whose files were already those of the forked job."""
    not_taken: Mapping[str, list[str]] = field(default_factory=dict)
    """Name of a specialist -> fields of its file that the workers do not take. A specialist that
    no worker announces is left out.
    """


def prepare_fork(
    store: Store, job_id: JobId, from_step: str, options: ForkOptions, key: str | None
) -> tuple[Request, Submission]:
    """Return the fork of a job, with the request that its admission is checked for.

    Args:
        key: idempotency key; None: each call is another fork.

    Raises:
        UnknownJob: there is no such job.
        UserError: see `fork_of`. Or the documents of the job are gone, the task is empty, or no
            step of the fork has one of the given specialists.
        InvalidSpecialist: a specialist file has faults.
        StoreError: a payload of the job is gone.
    """
    state = fold(job_id, None, store.journal.read(job_id))
    if state is None:
        raise UnknownJob.for_job(job_id)
    if options.task is not None and not options.task.strip():
        raise UserError("the new task is empty: write a task, or leave it out to keep the old one")
    specs_of_files: Mapping[str, SpecialistSpec] = {}
    if options.specialists is not None:
        specs_of_files = load_specialists(options.specialists)
    specs = _select_specs(state, from_step, specs_of_files)
    digests = get_fork_specialists(state.submitted)
    for name, spec in specs.items():
        digests[name] = spec.content_digest
    fork = build_fork(state, from_step, digests, has_new_task=options.task is not None)
    keep_documents(store, state)
    assert state.plan is not None
    copied = _list_payloads(state)
    copied += [digest for name, digest in fork.specialists.items() if name not in specs]
    results = _list_results(state, fork)
    plan_digest = state.plan.plan.digest
    texts = store.payloads.get(job_id, [plan_digest, *copied], results=results)
    plan = build_fork_plan(Plan.from_json(texts[plan_digest]), fork, options.task).to_json()
    event = build_fork_submission(state, fork, make_ref(plan), options)
    result_texts = [texts[digest] for digest in results]
    passed = load_passed_pages(store, job_id, result_texts)
    payloads = [plan, *(texts[digest] for digest in copied), *result_texts]
    payloads += [spec.to_json() for spec in specs.values()]
    payloads += passed.texts
    request = Request(
        texts[state.submitted.request.digest],
        tenant=event.tenant,
        model=event.model,
        limits=event.limits,
        idempotency_key=key,
    )
    submission = Submission(
        job_id=store.job_ids.derive(event.tenant, key) if key else create_job_id(),
        event=event,
        payloads=tuple(filter(None, payloads)),
        documents={},
        has_key=bool(key),
        pages=passed.pages,
    )
    return request, submission


def build_fork_submission(
    state: JobState, fork: Fork, plan: BlobRef, options: ForkOptions
) -> JobSubmitted:
    """Return the submission of the fork. The webhook and the end task of the job get no news
    of the fork.
    """
    submitted = state.submitted
    return submitted.model_copy(
        update={
            "limits": raise_limits(submitted.limits, options.limits),
            "model": options.model or submitted.model,
            "mode": Mode.PIPELINE,
            "workflow": plan,
            "is_reviewed": state.is_reviewed,
            "webhook_url": None,
            "on_end": None,
            "is_quoted": False,
            "actor": None,
            "fork": fork,
        }
    )


def _list_payloads(state: JobState) -> list[str]:
    """Return the digests of the payloads that a submission names, without its results and its
    plan. A fork copies them.
    """
    submitted = state.submitted
    digests = [submitted.request.digest]
    for blob in (submitted.manifest, submitted.answer_schema, submitted.facts):
        if blob is not None:
            digests.append(blob.digest)
    if submitted.after is not None:
        digests.append(submitted.after.request.digest)
    return digests


def _list_results(state: JobState, fork: Fork) -> list[str]:
    """Return the digests of the results that a fork copies from its job."""
    digests = [step.result.digest for step in state.submitted.given]
    for step in fork.kept:
        digests.append(step.result.digest)
        digests += [result.digest for result in step.results_with_claims or ()]
        if step.problem_result is not None:
            digests.append(step.problem_result.digest)
    return list(dict.fromkeys(digests))


def _select_specs(
    state: JobState, from_step: str, specialists: Mapping[str, SpecialistSpec]
) -> dict[str, SpecialistSpec]:
    """Return the given specs that steps of the fork use.

    Raises:
        UserError: specs are given, and no step uses one.
    """
    if not specialists or from_step not in state.steps:
        return {}
    first = StepId(from_step)
    used_specs: dict[str, SpecialistSpec] = {}
    names: dict[str, None] = {}
    for step_id in (first, *sorted(state.find_downstream(frozenset({first})))):
        name = state.steps[step_id].outline.specialist
        names[name] = None
        if name in specialists:
            used_specs[name] = specialists[name]
    if not used_specs:
        raise UserError(
            f"no step that runs again uses {', '.join(sorted(specialists))}: name a specialist of"
            f" these steps in its file ({', '.join(names)})"
        )
    return used_specs


def find_files_of_fork(store: Store, fork: JobId) -> FilesOfFork:
    """Return the specialist files of a fork.

    Raises:
        StoreError: a payload of the fork is gone.
    """
    state = fold(fork, None, store.journal.read(fork))
    if state is None or state.submitted.fork is None or not state.submitted.fork.specialists:
        return FilesOfFork()
    digests = state.submitted.fork.specialists
    forked_job = state.submitted.fork.job_id
    before = fold(forked_job, None, store.journal.read(forked_job))
    earlier = get_fork_specialists(before.submitted) if before else {}
    texts = store.payloads.get(fork, list(digests.values()))
    served = store.presence.load_served_specialists()
    not_taken: dict[str, list[str]] = {}
    for name, digest in digests.items():
        if name in served:
            not_taken[name] = compare_with_grant(parse_spec(texts[digest]), served[name].spec)
    return FilesOfFork(
        kept=[name for name, digest in digests.items() if earlier.get(name) == digest],
        not_taken={name: fields for name, fields in not_taken.items() if fields},
    )


def compare_with_grant(fork_spec: SpecialistSpec, worker_spec: SpecialistSpec) -> list[str]:
    """Return the names of the fields of a given spec that a worker replaces by those of its own
    file.
    """
    known = [tool for tool in fork_spec.tools if tool in worker_spec.tools]
    granted = grant_spec(fork_spec.model_copy(update={"tools": tuple(known)}), worker_spec)
    fields = type(fork_spec).model_fields
    return [name for name in fields if getattr(fork_spec, name) != getattr(granted, name)]
