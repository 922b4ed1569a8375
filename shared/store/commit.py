"""A commit: one decision about a job, in the form of `lua/commit.lua`, and the reply to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handoff_queue.shared.types.errors import (
    StoreError,
    StoreRefusesWrites,
    TooManyOpenJobs,
    VersionConflict,
)
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Event,
    HandoffIssued,
    JobEnded,
    JobSubmitted,
    RecordedEvent,
    StepsTriedAgain,
)
from handoff_queue.shared.types.handoff import Document
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import CLOSING_ROLES, get_queue

TENANT_IS_FULL = -2
"""Version in the answer of `commit.lua` if the tenant may have no more open jobs."""


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question about a tool call that a commit answers."""

    asked: int
    """Version of the question."""
    handoff_id: HandoffId
    place: int
    """Place of the answer among the events of the commit, from 1."""


@dataclass(frozen=True, slots=True)
class VerifiedAmounts:
    """Amounts of the results in a job's journal, in the order of `AMOUNTS`. The budgets count at
    least these amounts.
    """

    job: tuple[int, ...]
    day: int
    """Number of days since 1970, in UTC."""
    today: tuple[int, ...]
    """The part of `job` that was used on this day."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One decision: the events to append to the journal, and its other changes."""

    job_id: JobId
    expected: int
    """The version of the journal that the decision was made on."""
    events: Sequence[Event]
    tip: float | None = None
    """Time of the event at `expected`, in Unix seconds. Together with the version it
    identifies the history after a restore of Redis. None: not compared.
    """
    fields: Mapping[str, str | int] = field(default_factory=dict)
    """Fields to set in the job's hash, such as its status and limits. A field set to '' is
    removed.
    """
    payloads: Sequence[str] = ()
    """Texts that the events refer to by digest."""
    pages: Sequence[Document] = ()
    """Pages that were fetched for another job, and that this job gets. Their texts are among the
    payloads.
    """
    drop: Sequence[HandoffId] = ()
    """Handoffs that end now: no process may claim or continue them."""
    dropped_children: Sequence[JobId] = ()
    """Child jobs of the dropped handoffs, which end with them."""
    keep: Sequence[HandoffId] = ()
    """Handoffs whose data must stay as long as the job."""
    answered: Sequence[AnsweredQuestion] = ()
    """Questions about tool calls that the events answer. Their handoffs continue."""
    deadline: float | None = None
    """Unix time in seconds until which the job may run. Its retention begins then. None: it begins
    now.
    """
    due_at: float | None = None
    """Unix time in seconds at which the sweeper must evaluate the job again; None: never."""
    creates: bool = False
    """True if the commit creates the job."""
    score: str | None = None
    """Accuracy of the job's quote as JSON, which adjusts later quotes."""
    parent: tuple[JobId, HandoffId] | None = None
    """The handoff of another job that this job does from now on. The commit claims the handoff
    for this job.
    """
    after: JobId | None = None
    """A job that must exist, or None."""
    evaluation_id: str = ""
    """Id of the evaluation that ends with the commit; empty if none."""
    verified: VerifiedAmounts | None = None
    """Amounts of the results; None: unchanged."""
    forces_end: bool = False
    """True to end the job without the results that arrived since the decision. In a job of
    thousands of steps there is always a newer result.
    """
    ignores_workers: bool = False
    """True to commit also if workers have appended events since the decision. A worker that was
    taken over may append without end.
    """


def build_records(commit: Commit, answer: Sequence[Any]) -> list[RecordedEvent]:
    """Return the events of a commit with their versions, by the script's answer.

    Raises:
        VersionConflict, StoreRefusesWrites, TooManyOpenJobs: see `Journal.commit`.
    """
    is_done, version, at_ms, *_ = answer
    if not is_done:
        raise build_conflict_error(commit, answer)
    return with_versions(commit.events, int(version), int(at_ms) / 1000)


def build_conflict_error(commit: Commit, answer: Sequence[Any]) -> StoreError:
    """Return the error of a refused commit, from the answer of `commit.lua`."""
    version = int(answer[1])
    if version == TENANT_IS_FULL:
        return TooManyOpenJobs.of(answer[3].decode(), int(answer[2]))
    if version < 0:
        return StoreRefusesWrites(
            f"{commit.job_id} was not written, because {commit.after} is not there"
        )
    return VersionConflict(f"{commit.job_id} is at version {version}, not {commit.expected}")


def with_versions(events: Sequence[Event], last_version: int, at: float) -> list[RecordedEvent]:
    """Return events that were appended together, with their versions. `last_version` is the
    version of the last event.
    """
    first = last_version - len(events) + 1
    recorded: list[RecordedEvent] = []
    for version, event in enumerate(events, start=first):
        recorded.append(RecordedEvent(version, at, event))
    return recorded


def commit_fields(commit: Commit, keep_ms: int) -> dict[str, Any]:
    """Return the fields for `commit.lua` that depend on the commit alone.

    Args:
        keep_ms: retention of a job after its end.
    """
    fields: dict[str, Any] = {
        "expected": commit.expected,
        "tip": -1 if commit.tip is None else round(commit.tip * 1000),
        "events": len(commit.events),
        "fields": dict(commit.fields),
        "due": -1 if commit.due_at is None else int(commit.due_at * 1000),
        "keep_ms": keep_ms + sum(map(_get_time_limit_ms, commit.events)),
        "evaluation": commit.evaluation_id,
    }
    if commit.pages:
        fields["pages"] = len(commit.pages)
    return fields | _build_issues(commit) | _build_optional_fields(commit)


def _build_issues(commit: Commit) -> dict[str, Any]:
    """Return the handoffs that a commit issues and the sizes of their groups, for `commit.lua`."""
    issued: list[dict[str, Any]] = []
    groups: dict[str, int] = {}
    for event in commit.events:
        if not isinstance(event, HandoffIssued):
            continue
        issued.append(_build_issue(event))
        if event.group:
            groups[event.group] = groups.get(event.group, 0) + 1
    if issued:
        return {"issue": issued, "groups": groups}
    return {}


def _build_optional_fields(commit: Commit) -> dict[str, Any]:
    """Return the fields for `commit.lua` that only some commits need."""
    fields: dict[str, Any] = {}
    if commit.drop:
        fields["drop"] = list(commit.drop)
    if commit.verified:
        verified_amounts = commit.verified
        fields["verified"] = {
            "job": verified_amounts.job,
            "day": str(verified_amounts.day),
            "today": verified_amounts.today,
        }
    if commit.keep:
        fields["keep"] = list(commit.keep)
    if commit.creates:
        fields["created"] = 1
    if _ends_job(commit):
        fields["ended"] = 1
    if commit.deadline is not None:
        fields["deadline"] = int(commit.deadline * 1000)
    if commit.after:
        fields["after"] = commit.after
    if commit.score:
        fields["score"] = commit.score
    if commit.parent:
        parent, handoff = commit.parent
        fields["parent"] = {"job": parent, "handoff": handoff}
    return fields


def describe_valid_events(commit: Commit) -> str:
    """Return which newer events leave the commit valid: `results`, or `workers` for all events of
    workers. Empty: none.
    """
    if commit.ignores_workers and not any(map(_depends_on_its_version, commit.events)):
        return "workers"
    if commit.forces_end and _ends_job(commit):
        return "results"
    if commit.events and all(map(_only_starts_work, commit.events)):
        return "results"
    return ""


def _depends_on_its_version(event: Event) -> bool:
    """Return whether fields of the job name the version of an event."""
    return isinstance(event, ApprovalAsked)


def _ends_job(commit: Commit) -> bool:
    return any(isinstance(event, JobEnded) for event in commit.events)


def _only_starts_work(event: Event) -> bool:
    """Return whether the event only starts work on steps: it issues the handoff of a step, or
    tries failed steps again. Such an event does not depend on the results of other steps.
    """
    if isinstance(event, HandoffIssued):
        return event.group is not None and not event.is_fact_check
    return isinstance(event, StepsTriedAgain)


def _get_time_limit_ms(event: Event) -> int:
    """Return the time in ms that a job may take after an event. Its retention begins after
    that time.
    """
    match event:
        case JobSubmitted():
            return 1000 * event.limits.max_seconds
        case ApprovalAsked():
            return 1000 * event.wait_s
        case _:
            return 0


def _build_issue(event: HandoffIssued) -> dict[str, Any]:
    """Return an issued handoff in the form of `commit.lua`. A handoff without a group has no
    queue, because the supervisor runs it.
    """
    fields: dict[str, str | int] = {"digest": event.handoff.digest, "agent": event.assigned_to}
    if event.max_microusd:
        fields |= {"max_usd": event.max_microusd}
    if event.closes or event.assigned_to in CLOSING_ROLES:
        fields |= {"closes": 1}
    if event.child:
        fields |= {"child": event.child.job_id}
    if event.counts:
        counts: dict[str, int] = {}
        for part_count in event.counts:
            counts[part_count.fan_in] = part_count.wakes_from
        fields |= {"counts": json.dumps(counts)}
    if event.group is None:
        return {"id": event.handoff_id, "fields": fields}
    queue = get_queue(event.assigned_to)
    return {
        "id": event.handoff_id,
        "queue": queue,
        "fields": fields | {"group": event.group, "index": event.index, "queue": queue},
    }
