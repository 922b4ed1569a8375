"""A job's journal: read it, add a decision to it (compare-and-append), add a fact to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.payloads import payload_arguments
from handoff_queue.shared.store.redis.connection import Connection, in_our_words
from handoff_queue.shared.store.script_arguments import json_argument
from handoff_queue.shared.types.errors import (
    MalformedMessage,
    StoreError,
    StoreRefusesWrites,
    UnknownJob,
    VersionConflict,
)
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    CancelRequested,
    Event,
    HandoffIssued,
    JobEnded,
    JobStatus,
    JobSubmitted,
    Recorded,
    StepsTriedAgain,
    parse_event,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import CLOSING_ROLES, queue_of

READ_AT_MOST = 5_000
"""Events in one round trip."""
READ_AT_MOST_OF_EACH = 200
"""Events of one job in one round trip that reads several jobs."""


LONGEST_RETRY_DELAY_MS = 300_000
"""Between two looks at a job that cannot be carried on by this version: another one, or a
person, may mend it.
"""


@dataclass(frozen=True, slots=True)
class Commit:
    """One decision: the events to append to the journal, and its other changes."""

    job_id: JobId
    expected: int
    """The version that the decision was made on."""
    events: Sequence[Event]
    tip: float | None = None
    """Time of the last event, in Unix seconds. Together with the version it identifies the history
    after a restore of Redis. None: not compared.
    """
    fields: Mapping[str, str | int] = field(default_factory=dict)
    """Fields of the job's hash: status, limits. One set to '' is removed."""
    payloads: Sequence[str] = ()
    """Payloads that the events refer to by digest."""
    drop: Sequence[HandoffId] = ()
    """Handoffs that must not be claimed any more, nor go on."""
    keep: Sequence[HandoffId] = ()
    """Handoffs that must stay as long as the job does."""
    due_at: float | None = None
    """Unix time in seconds at which the sweeper must look at the job again; None: never."""
    creates: bool = False
    score: str | None = None
    """Accuracy of the job's quote as JSON, which adjusts later quotes."""
    parent: tuple[JobId, HandoffId] | None = None
    """The handoff of another job that this one is there to do from now on. It is claimed with
    the commit, in this job's name.
    """
    after: JobId | None = None
    """A job that must be there; None: none must."""
    look: str = ""
    """The look that comes to its end with it; empty: none does."""
    insists: bool = False
    """True to end the job without the results that arrived since the decision. In a job of
    thousands of steps there is always a newer result.
    """


class Journal:
    """The journals of all jobs."""

    def __init__(self, connection: Connection, keep_s: int) -> None:
        self._connection = connection
        self._keep_ms = keep_s * 1000

    def commit(self, commit: Commit) -> list[Recorded]:
        """Append all events of the decision, or none, and return them with their versions.

        A commit that only issues steps, or that forces the end, is valid even if results of other
        steps arrived after `expected`. A job of thousands of steps gets results all the time.

        Raises:
            VersionConflict: the journal is not at `expected`, or the parent's handoff was
                abandoned; nothing was written.
        """
        return records_of_commit(commit, self.run_commit(commit))

    def run_commit(
        self, commit: Commit, claim: Sequence[Any] = (), end: Sequence[Any] = ()
    ) -> Sequence[Any]:
        """Run `commit.lua` and return its answer.

        With an end, any other result that arrived in the meantime makes the commit fail. The
        handoff may have run for minutes, and the wake-up of that result has had no effect.

        Args:
            claim: request to claim a handoff that the commit issues.
            end: request to finish the handoff whose result led to the decision.
        """
        answer: Sequence[Any] = self._connection.script("commit", *self._order(commit, claim, end))
        return answer

    def commit_each(self, commits: Sequence[Commit]) -> list[StoreError | None]:
        """Commit each decision separately, in one round trip. Return None or the error of `commit`
        for each.

        Raises:
            StoreUnavailable: it is unknown which decisions were written.
        """
        answers = self._connection.script_for_each(
            "commit", [self._order(each) for each in commits]
        )
        store_errors: list[StoreError | None] = []
        for commit, answer in zip(commits, answers, strict=True):
            if isinstance(answer, StoreError):
                store_errors.append(answer)
            elif answer[0]:
                store_errors.append(None)
            else:
                store_errors.append(_conflict(commit, answer[1]))
        return store_errors

    def _order(
        self, commit: Commit, claim: Sequence[Any] = (), end: Sequence[Any] = ()
    ) -> tuple[list[str], list[Any]]:
        """Return keys and arguments of `commit.lua`."""
        issued = [event for event in commit.events if isinstance(event, HandoffIssued)]
        groups: dict[str, int] = {}
        for event in issued:
            if event.group:
                groups[event.group] = groups.get(event.group, 0) + 1
        order = (
            {
                "expected": commit.expected,
                "tip": -1 if commit.tip is None else round(commit.tip * 1000),
                "events": len(commit.events),
                "fields": dict(commit.fields),
                "due": -1 if commit.due_at is None else int(commit.due_at * 1000),
                "keep_ms": self._keep_ms + sum(map(_takes_ms, commit.events)),
                "look": commit.look,
            }
            | ({"issue": [_issue(event) for event in issued], "groups": groups} if issued else {})
            | (
                {"drop": list(commit.drop), "cancels": CancelRequested(by=commit.job_id).to_json()}
                if commit.drop
                else {}
            )
            | ({"keep": list(commit.keep)} if commit.keep else {})
            | ({"regardless": 1} if not end and _regardless(commit) else {})
            | ({"created": 1} if commit.creates else {})
            | ({"ended": 1} if _ends_job(commit) else {})
            | ({"after": commit.after} if commit.after else {})
            | ({"score": commit.score} if commit.score else {})
            | (
                {"parent": dict(zip(("job", "handoff"), commit.parent, strict=True))}
                if commit.parent
                else {}
            )
            | ({"claim": claim} if claim else {})
            | ({"ends": len(end)} if end else {})
        )
        return [keys.job(commit.job_id), keys.DUE, keys.JOBS], [
            json_argument(order),
            *end,
            *(event.to_json() for event in commit.events),
            *payload_arguments(commit.payloads),
        ]

    def append(
        self, job_id: JobId, event: Event, fields: Mapping[str, str | int] | None = None
    ) -> int:
        """Append an event at any version. A field set to '' is removed. The sweeper evaluates the
        job a second later.

        Raises:
            UnknownJob: the job does not exist.
        """
        return self._append(job_id, event, fields)

    def append_unless_ended(
        self,
        job_id: JobId,
        event: Event,
        fields: Mapping[str, str | int] | None = None,
        payloads: Sequence[str] = (),
    ) -> int:
        """Append an event and its payloads unless the job has ended. Return the version, or 0 if
        the job has ended.

        Raises:
            UnknownJob: the job does not exist.
        """
        return max(
            0,
            self._append(
                job_id,
                event,
                fields,
                [status.value for status in JobStatus if not status.ended],
                payloads,
            ),
        )

    def _append(
        self,
        job_id: JobId,
        event: Event,
        fields: Mapping[str, str | int] | None,
        statuses: Sequence[str] = (),
        payloads: Sequence[str] = (),
    ) -> int:
        order = [
            event.to_json(),
            json.dumps(dict(fields or {})),
            json.dumps(list(statuses)),
            *payload_arguments(payloads),
        ]
        version = int(self._connection.script("append", [keys.job(job_id), keys.DUE], order))
        if not version:
            raise UnknownJob.named(job_id)
        return version

    def read(self, job_id: JobId, after: int = 0) -> list[Recorded]:
        """Return the events after a version, oldest first."""
        recorded: list[Recorded] = []
        while True:
            with in_our_words():
                part = self._connection.redis.xrange(
                    keys.log(job_id), min=f"{after + 1}-0", count=READ_AT_MOST
                )
            for entry in part:
                recorded.append(parse_stream_entry(entry))
            if len(part) < READ_AT_MOST:
                return recorded
            after = recorded[-1].version

    def first_events(self, job_ids: Sequence[JobId]) -> dict[JobId, Event]:
        """Return the first event of each existing job, in one round trip."""
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.xrange(keys.log(job_id), count=1)
            answers = pipe.execute()
        return {
            job_id: parse_stream_entry(entries[0]).event
            for job_id, entries in zip(job_ids, answers, strict=True)
            if entries
        }

    def follow(self, job_id: JobId, after: int, wait_s: float) -> list[Recorded]:
        """Return the events after a version, and wait up to `wait_s` seconds for the first one."""
        with in_our_words():
            answer = self._connection.waiting.xread(
                {keys.log(job_id): f"{after}-0"},
                block=max(1, int(wait_s * 1000)),
                count=READ_AT_MOST,
            )
        if answer:
            recordeds: list[Recorded] = []
            for entry in answer[0][1]:
                recordeds.append(parse_stream_entry(entry))
            return recordeds
        return []

    def follow_each(
        self, positions: Mapping[JobId, int], wait_s: float
    ) -> dict[JobId, list[Recorded] | MalformedMessage]:
        """Wait for new events of several jobs, over one connection.

        Args:
            positions: job -> last known version. Not empty.
            wait_s: seconds to wait until one of the jobs has a new event.

        Returns:
            The new events of each job, oldest first. A `MalformedMessage` replaces the events of a
            job with an event that this version cannot read.

        Raises:
            StoreUnavailable: see `in_our_words`.
        """
        streams: dict[str, str] = {}
        for job_id, version in positions.items():
            streams[keys.log(job_id)] = f"{version}-0"
        prefix = self._connection.prefix
        jobs: dict[bytes, JobId] = {}
        for position in positions:
            jobs[f"{prefix}{keys.log(position)}".encode()] = position
        with in_our_words():
            answer = self._connection.waiting.xread(
                streams, block=max(1, int(wait_s * 1000)), count=READ_AT_MOST_OF_EACH
            )
        mapping: dict[JobId, list[Recorded] | MalformedMessage] = {}
        for stream, entries in answer or ():
            mapping[jobs[stream]] = _parsed(entries)
        return mapping

    def set_due(self, job_id: JobId, due_at: float | None, version: int, look: str = "") -> None:
        """Set the time at which the sweeper must evaluate the job again.

        Nothing changes if the journal is no longer at `version`: a result that arrived in the
        meantime has set its own time.

        Args:
            look: id of the evaluation that ends with this call; empty if none.
        """
        if due_at is None:
            due_ms = -1
        else:
            due_ms = int(due_at * 1000)
        self._connection.script("set_due", [keys.job(job_id), keys.DUE], [version, due_ms, look])

    def record_failure(self, job_id: JobId, look: str = "") -> int:
        """Record a failed evaluation. The sweeper wakes the job again, with a growing delay.

        Returns the number of failures in a row without a new event; 0 if the job does not exist.
        """
        return int(
            self._connection.script(
                "record_failure", [keys.job(job_id), keys.DUE], [LONGEST_RETRY_DELAY_MS, look]
            )
        )


def records_of_commit(commit: Commit, answer: Sequence[Any]) -> list[Recorded]:
    """Return the events of a commit with their versions, by the script's answer.

    Raises:
        VersionConflict: see `Journal.commit`.
    """
    is_done, version, at_ms, *_ = answer
    if not is_done:
        raise _conflict(commit, version)
    return with_versions(commit.events, int(version), int(at_ms) / 1000)


def _conflict(commit: Commit, version: Any) -> StoreError:
    if int(version) < 0:
        return StoreRefusesWrites(
            f"{commit.job_id} was not written, because {commit.after} is not there"
        )
    return VersionConflict(f"{commit.job_id} is at version {version}, not {commit.expected}")


def with_versions(events: Sequence[Event], last_version: int, at: float) -> list[Recorded]:
    """Return events that were appended together with their versions; the last has `last_version`."""
    first = last_version - len(events) + 1
    recordeds: list[Recorded] = []
    for version, event in enumerate(events, start=first):
        recordeds.append(Recorded(version, at, event))
    return recordeds


def _regardless(commit: Commit) -> bool:
    """Return whether the commit is valid after further results."""
    is_last = commit.insists and _ends_job(commit)
    return is_last or (bool(commit.events) and all(map(_hands_out, commit.events)))


def _ends_job(commit: Commit) -> bool:
    return any(isinstance(event, JobEnded) for event in commit.events)


def _hands_out(event: Event) -> bool:
    """Return whether the event only concerns steps that no worker has claimed."""
    return isinstance(event, StepsTriedAgain) or (
        isinstance(event, HandoffIssued) and event.group is not None and not event.is_fact_check
    )


def _takes_ms(event: Event) -> int:
    """Return the time in milliseconds that the work after an event may take. The job's retention
    begins after it.
    """
    match event:
        case JobSubmitted():
            return 1000 * event.limits.max_seconds
        case ApprovalAsked():
            return 1000 * event.wait_s
        case _:
            return 0


def _issue(event: HandoffIssued) -> dict[str, Any]:
    fields: dict[str, str | int] = {"digest": event.handoff.digest, "role": event.assigned_to}
    if event.max_microusd:
        fields |= {"max_usd": event.max_microusd}
    if event.closes or event.assigned_to in CLOSING_ROLES:
        fields |= {"closes": 1}
    if event.child:
        fields |= {"child": event.child.job_id}
    if event.counts:
        fields |= {
            "counts": json.dumps({counted.fan_in: counted.wakes_from for counted in event.counts})
        }
    if event.group is None:
        return {"id": event.handoff_id, "fields": fields}
    queue = queue_of(event.assigned_to)
    return {
        "id": event.handoff_id,
        "queue": queue,
        "fields": fields | {"group": event.group, "index": event.index, "queue": queue},
    }


def _parsed(
    entries: Sequence[tuple[bytes, dict[bytes, bytes]]],
) -> list[Recorded] | MalformedMessage:
    try:
        recordeds: list[Recorded] = []
        for entry in entries:
            recordeds.append(parse_stream_entry(entry))
        return recordeds
    except MalformedMessage as error:
        return error


def parse_stream_entry(entry: tuple[bytes, dict[bytes, bytes]]) -> Recorded:
    """Parse an entry of the stream: its id, and its fields."""
    entry_id, fields = entry
    return Recorded(
        version=int(entry_id.split(b"-")[0]),
        at=int(fields[b"t"]) / 1000,
        event=parse_event(fields[b"e"]),
    )
