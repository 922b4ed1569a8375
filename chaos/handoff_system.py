"""This system in a run: submits jobs with its client, and reads their records from its store."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeVar

from handoff_queue.chaos.api_user import (
    ACTOR,
    APPROVED_ANSWER,
    REJECTED_ANSWER,
    ApiRecords,
    ApiUser,
    FollowedJob,
    Follower,
    GivenAnswer,
    QuestionRecord,
)
from handoff_queue.chaos.equal_user import EqualUser
from handoff_queue.chaos.expected_handoffs import INSTEAD, Ended, compute_expected_handoffs
from handoff_queue.chaos.expected_outcomes import NO_RECORD, StoredJob
from handoff_queue.chaos.features import (
    BATCH_DEADLINE_S,
    FeatureRecords,
    NoteReader,
    SwitchWatch,
    collect_batch_records,
    collect_external_records,
)
from handoff_queue.chaos.fleet import (
    CONSOLE,
    RETENTION_S,
    SUPERVISOR,
    WORKER,
    Fleet,
    Member,
    Size,
)
from handoff_queue.chaos.forks import ForkUser
from handoff_queue.chaos.job_generator import EVERYTHING, build_workflow
from handoff_queue.chaos.job_shapes import FACT_CHECKED, REJECTED, Shape
from handoff_queue.chaos.message_user import MessageUser
from handoff_queue.chaos.model_server import Call, UncountedCall
from handoff_queue.chaos.notes import build_documents, is_of_notes
from handoff_queue.chaos.planned_jobs import FACT_CHECKER, FORK_SUFFIX, KEEPER, CallKey, PlannedJob
from handoff_queue.chaos.schedule_user import ScheduleUser
from handoff_queue.chaos.shortened_requests import ShortenedRecords, build_document
from handoff_queue.chaos.system import Kind
from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.handoff_info import read_agents
from handoff_queue.shared.store.redis.connection import translate_errors
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.audit import Actor, AuditAction
from handoff_queue.shared.types.checkpoints import ModelReplied
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Approved,
    CancelRequested,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobStatus,
    JobSubmitted,
    RecordedEvent,
    Rejected,
    StepsAbandoned,
)
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.ids import HandoffId, JobId, derive_child_id
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, Mode, Priority
from handoff_queue.shared.types.names import ROLES
from handoff_queue.supervisor.client.client import Client, connect
from handoff_queue.supervisor.client.json_forms import encode_event
from handoff_queue.supervisor.client.request import Request

APPROVALS = Approvals(what=(ApprovalOf.PLAN, ApprovalOf.ANSWER))
"""Approvals that a job with the shape `approved` asks for."""
TIMES_SENT = (1, 1, 2, 3)
"""How often the server responds to an answer before its user stops sending it."""
PAUSES_S = (0.0, 0.5, 1.0)
"""Seconds that a user takes to read a question."""
FOLLOWED_WITHIN_S = 10.0
"""Seconds in which a follower must see the last event, after all jobs have ended."""
MAX_JOBS = 10_000
"""Most jobs of a run that its records read. A run has at most a few hundred."""
Event = TypeVar("Event")


@dataclass(slots=True)
class HandoffProject:
    """See `System`."""

    client: Client
    api: ApiUser
    switches: SwitchWatch
    notes: NoteReader
    forks: ForkUser
    ids: dict[str, JobId] = field(default_factory=dict)
    """Job ids by job's name."""
    frozen_at: str = "script.renew_lease.before"
    counted_at: str = "script.finish.after"
    _before: dict[str, JobId] = field(default_factory=dict)
    """Id of the earlier job that a job follows, by the name of the later job."""
    schedules: ScheduleUser | None = None
    """None: the run has no schedules."""
    messages: MessageUser | None = None
    """None: the run has no messages."""
    equals: EqualUser | None = None
    """None: the run has no equal jobs."""
    _followers: dict[str, Follower] = field(default_factory=dict)
    """Followers of the jobs that were submitted through the API, by job's name."""
    _named_ids: dict[str, set[str]] = field(default_factory=dict)
    """Ids that the server named for the same job, by job's name."""
    _answers: dict[tuple[str, int], SentAnswer] = field(default_factory=dict)
    """Answers to questions by job's name and the question's version."""

    @property
    def absent(self) -> Mapping[str, str]:
        return {}

    def adapt_job(self, job: PlannedJob) -> PlannedJob:
        return job

    def submit(self, job: PlannedJob) -> None:
        if job.shape is Shape.FORK:
            self.begin(job, self.forks.fork(job, self._before[job.name]))
            return
        request = Request(
            job.request,
            limits=job.limits,
            model=job.model,
            idempotency_key=job.name,
            tenant=job.tenant,
            priority=job.priority,
        )
        if job.mode is Mode.PIPELINE:
            workflow, items = build_workflow(job)
            request = replace(request, workflow=workflow, items=items)
        else:
            request = replace(request, mode=job.mode)
        if job.shape is Shape.BATCHED:
            request = replace(request, priority=Priority.BATCH, deadline_s=BATCH_DEADLINE_S)
        if job.shape is Shape.APPROVED:
            request = replace(request, approvals=APPROVALS)
        if subject := REJECTED.get(job.shape):
            request = replace(request, approvals=Approvals(what=(subject,)))
        if job.shape in FACT_CHECKED:
            request = replace(request, gates=Gates(fact_checker=FACT_CHECKER))
        if job.shape is Shape.SHORTENED:
            request = replace(request, documents=build_document(job))
        if is_of_notes(job):
            request = self._build_request_with_notes(job, request)
        else:
            request = replace(request, after=self._before.get(job.name))
        if not goes_through_api(job):
            self.begin(job, self.client.submit(request))
            return
        job_id = self.api.submit(request)
        self._named_ids.setdefault(job.name, set()).add(job_id)
        self.begin(job, job_id)
        if job.name not in self._followers:
            self._followers[job.name] = self.api.follow(job_id)

    def _build_request_with_notes(self, job: PlannedJob, request: Request) -> Request:
        """Return the request of a job that writes or finds a note.

        Raises:
            UserError: the earlier job has no note.
        """
        if job.shape is Shape.REMEMBERED:
            return replace(request, documents=build_documents(job))
        if not self.notes.has_written(job.follows):
            raise UserError(f"{job.follows} was given up before it had written its note")
        return replace(request, specialists=(KEEPER,))

    def begin(self, job: PlannedJob, job_id: JobId) -> None:
        """Remember the id of the job, and the ids of its children, which are derived from it."""
        self.ids[job.name] = job_id
        if job.then:
            self._before[job.then.name] = job_id
        for step in job.steps:
            if step.team:
                self.begin(step.team, derive_child_id(job_id, HandoffId(step.last)))

    def act_as_users(self, jobs: Collection[PlannedJob], call_keys: Collection[CallKey]) -> None:
        if self.schedules is not None:
            self.schedules.advance()
        if self.messages is not None:
            self.messages.advance()
        if self.equals is not None:
            self.equals.advance()
        self.switches.observe(jobs)
        waiting: dict[JobId, PlannedJob] = {}
        for job in jobs:
            if job.shape in (Shape.APPROVED, Shape.CALLED_OFF, *REJECTED):
                waiting[self.ids[job.name]] = job
        for info in self.client.store.jobs.read(list(waiting)):
            job = waiting[info.job_id]
            if info.approval:
                self._decide(job)
            elif (
                job.shape is Shape.CALLED_OFF and not info.cancelled and _is_at_work(job, call_keys)
            ):
                self.api.send("POST", f"/v1/jobs/{info.job_id}/cancel")
        for answer in self._answers.values():
            answer.send_again(self.api)

    def _decide(self, job: PlannedJob) -> None:
        """Choose the answer to the open question of a job: its user rejects once."""
        events = self.client.store.journal.read(self.ids[job.name])
        question_versions = []
        for each in events:
            if isinstance(each.event, ApprovalAsked):
                question_versions.append(each.version)
        if not question_versions or (job.name, question_versions[-1]) in self._answers:
            return
        kind, note = APPROVED_ANSWER, None
        if job.shape in REJECTED and not _find_events(events, Rejected):
            kind, note = REJECTED_ANSWER, f"Not so: {job.name}."
        dice = random.Random(f"{job.seed} {job.name} answers {len(question_versions)}")  # noqa: S311
        self._answers[job.name, question_versions[-1]] = SentAnswer(
            self.ids[job.name],
            kind,
            question_versions[-1],
            note,
            times_left=dice.choice(TIMES_SENT),
            pause_s=dice.choice(PAUSES_S),
            next_at=time.monotonic() + dice.choice(PAUSES_S),
        )

    def find_ended_jobs(self, names: Collection[str]) -> set[str]:
        by_id: dict[JobId, str] = {}
        for name in names:
            by_id[self.ids[name]] = name
        ended_jobs: set[str] = set()
        for info in self.client.store.jobs.read(list(by_id)):
            if JobStatus(info.status).has_ended:
                ended_jobs.add(by_id[info.job_id])
        return ended_jobs

    def find_stuck(self, _names: Collection[str]) -> set[str]:
        """Return an empty set: the sweeper continues every job."""
        return set()

    def find_stored_calls(
        self, names: Collection[str], call_keys: Collection[CallKey]
    ) -> set[CallKey]:
        stored_calls = set()
        by_name = defaultdict[str, set[HandoffId]](set)
        for key in call_keys:
            by_name[key.job].add(HandoffId(key.handoff))
        for name in names:
            handoffs = sorted(by_name[name])
            for handoff, checkpoints in self.client.store.claims.read_checkpoints(
                self.ids[name], handoffs
            ).items():
                replies = 0
                for checkpoint in checkpoints:
                    replies += isinstance(checkpoint, ModelReplied)
                for turn in range(1, replies + 1):
                    stored_calls.add(CallKey(name, handoff, turn))
        return stored_calls

    def find_holders(
        self, jobs: Collection[PlannedJob]
    ) -> Mapping[tuple[str, str], tuple[int, int]]:
        connection = self.client.store.connection
        handoffs: list[tuple[str, str]] = []
        states: list[str] = []
        for job in jobs:
            handoff_ids: list[HandoffId] = []
            for expected in compute_expected_handoffs(job).values():
                if expected.turns:  # a handoff without turns is done by a child job
                    handoff_ids.append(HandoffId(expected.id))
            job_id = self.ids[job.name]
            for handoff, role in read_agents(connection, job_id, handoff_ids).items():
                handoffs.append((job.name, handoff))
                states.append(keys.handoff(job_id, role, handoff))
        with translate_errors():
            pipe = connection.redis.pipeline(transaction=False)
            for state in states:
                pipe.hmget(state, "worker", "claims", "fence")
            answers = pipe.execute()
        holders: dict[tuple[str, str], tuple[int, int]] = {}
        for whose, (worker, claims, fence) in zip(handoffs, answers, strict=True):
            if fence:
                pid = int(worker.rpartition(b":")[2])
                holders[whose] = (pid, int(claims))
        return holders

    def read_job_record(self, name: str) -> StoredJob:
        job_id = self.ids[name]
        events = self.client.store.journal.read(job_id)
        if not events:
            return NO_RECORD
        finished: dict[str, tuple[float, ...]] = {}
        results: dict[str, Ended] = {}
        for at, event in _find_events(events, HandoffFinished):
            finished[event.handoff_id] = (*finished.get(event.handoff_id, ()), at)
            results[event.handoff_id] = Ended(event.status.value, event.stop_reason.value)
        ends, submissions = _find_events(events, JobEnded), _find_events(events, JobSubmitted)
        status, reason = "running", ""
        waits_for: tuple[str, ...] = ()
        if ends:
            last_end = ends[-1][1]
            status, reason = last_end.status.value, last_end.reason or ""
        else:
            waits_for = self._find_open_handoffs(job_id, events)
        notes: Sequence[str] = ()
        if status != JobStatus.OK.value:
            notes = self.client.result(job_id).notes
        stop_reasons = sorted({end.stop_reason for end in results.values()})
        cancels = _find_events(events, CancelRequested)
        return StoredJob(
            status=status,
            submitted_at=events[0].at,
            ended_at=tuple(at for at, _ in ends),
            finished_at=finished,
            results=results,
            reason=reason,
            why="; ".join((status, *stop_reasons, *notes, reason, *waits_for)),
            given_up_at=_find_abandonment_times(events),
            cancelled_at=cancels[0][0] if cancels else None,
            question_periods=find_question_periods(events),
            limits=submissions[0][1].limits,
        )

    @property
    def is_busy(self) -> bool:
        users = (self.schedules, self.messages, self.equals)
        return any(user is not None and not user.is_over for user in users)

    def begin_users(self, seed: int) -> Sequence[PlannedJob]:
        self.schedules = ScheduleUser(self.api, self.client.store, seed)
        self.messages = MessageUser(self.api, self.client.store, seed)
        self.equals = EqualUser(self.client, seed)
        return [*self.schedules.jobs, *self.messages.jobs, *self.equals.jobs]

    def make_slots_due(self) -> bool:
        return self.schedules is not None and self.schedules.make_slots_due()

    def add_slot(self) -> None:
        """Make one more slot due, if the earlier slots of its schedule have started."""
        if self.schedules is not None:
            self.schedules.add_slot()

    def finish(self) -> None:
        if self.schedules is not None:
            self.schedules.finish()
        if self.messages is not None:
            self.messages.finish()
        if self.equals is not None:
            self.equals.finish()

    def send_messages(self) -> None:
        """Start a job that gets messages, if none runs."""
        if self.messages is not None:
            self.messages.request_job()

    def collect_api_records(self, calls: Sequence[UncountedCall]) -> ApiRecords:
        for follower in self._followers.values():
            follower.stop(FOLLOWED_WITHIN_S)
        questions: list[QuestionRecord] = []
        audited_actors: dict[str, list[str]] = {}
        for name in sorted({name for name, _ in self._answers}):
            questions += self._collect_questions(name)
            actors: list[str] = []
            for entry in self.client.audit(self.ids[name]):
                if entry.action in (AuditAction.APPROVE, AuditAction.REJECT):
                    actors.append(_format_actor(entry.actor))
            audited_actors[name] = actors
        return ApiRecords(
            requests=self.api.requests,
            unanswered=self.api.unanswered,
            taken_over=self.api.taken_over,
            servers=len(self.api.answered),
            reconnections=sum(max(0, each.streams - 1) for each in self._followers.values()),
            failures=self.api.failures,
            jobs_by_key=self._map_jobs(),
            questions=questions,
            audited=audited_actors,
            actor=f"{ACTOR} by api",
            schedules=self.schedules.collect_records() if self.schedules else (),
            followed=[self._read_followed_job(name) for name in self._followers],
            messages=self.messages.collect_records(calls) if self.messages else (),
        )

    def collect_feature_records(
        self, jobs: Collection[PlannedJob], calls: Sequence[Call]
    ) -> Sequence[FeatureRecords]:
        return [
            self.switches.collect_records(jobs, calls),
            self.notes.collect_records(jobs, calls),
            collect_batch_records(jobs, calls),
            collect_external_records(jobs, calls),
            ShortenedRecords(calls),
            self.forks.collect_records(),
            *([self.equals.collect_records()] if self.equals else ()),
        ]

    def _collect_questions(self, name: str) -> list[QuestionRecord]:
        """Return the questions of a job, and their answers in its journal."""
        versions: list[int] = []
        recorded_answers = defaultdict[int, list[GivenAnswer]](list)
        for recorded in self.client.store.journal.read(self.ids[name]):
            event = recorded.event
            if isinstance(event, ApprovalAsked):
                versions.append(recorded.version)
            elif isinstance(event, Approved | Rejected):
                kind = REJECTED_ANSWER if isinstance(event, Rejected) else APPROVED_ANSWER
                recorded_answers[event.asked].append(GivenAnswer(kind, _format_actor(event.actor)))
        questions: list[QuestionRecord] = []
        for version in versions:
            sent_answer = self._answers.get((name, version))
            kind = sent_answer.kind if sent_answer else ""
            questions.append(QuestionRecord(name, version, kind, tuple(recorded_answers[version])))
        return questions

    def _map_jobs(self) -> dict[str, set[str]]:
        """Return the ids of the jobs with the same request, by job's name. Each request of a run
        is sent for one job.
        """
        by_request = defaultdict[str, set[str]](set)
        forks = set()
        for name, id_ in self.ids.items():
            if name.endswith(FORK_SUFFIX):
                forks.add(id_)
        for info in self.client.newest(MAX_JOBS):
            if info.job_id in forks:
                continue  # a fork has the request of its job
            by_request[info.title].add(info.job_id)
        ids: dict[str, set[str]] = {}
        for name, named_ids in self._named_ids.items():
            ids[name] = named_ids | by_request[f"chaos {name}"]
        return ids

    def _read_followed_job(self, name: str) -> FollowedJob:
        journal: list[tuple[int, str]] = []
        for recorded in self.client.store.journal.read(self.ids[name]):
            journal.append((recorded.version, encode_event(recorded.event)))
        return FollowedJob(name, list(self._followers[name].seen), journal)

    def _find_open_handoffs(
        self, job_id: JobId, events: Sequence[RecordedEvent]
    ) -> tuple[str, ...]:
        """Return the state of each handoff of the job that has not ended."""
        handoffs = [issued.handoff_id for _, issued in _find_events(events, HandoffIssued)]
        handoff_infos = self.client.store.jobs.read_handoffs(job_id, handoffs)
        lines: list[str] = []
        for id_, info in handoff_infos.items():
            if info.state not in ("done", "dropped"):
                lines.append(f"{id_} {'waits' if info.waits else info.state}")
        return tuple(lines)

    def get_point_name(self, point: str, _kind: str, _to: str = "") -> str | None:
        return point

    def close(self) -> None:
        for follower in self._followers.values():
            follower.stop(0.0)
        self.api.close()
        self.client.close()


@dataclass(slots=True)
class SentAnswer:
    """An answer of a user to a question. The user sends it until the server has taken it, and
    then again, as a proxy that repeats requests does.
    """

    job_id: JobId
    kind: str
    question_version: int
    """Version of the question."""
    note: str | None
    times_left: int
    """Number of responses after which the user stops."""
    pause_s: float
    """Seconds from a response to the next request. The job may ask another question then."""
    next_at: float
    """Time of the next request. Seconds of a monotonic clock."""

    def send_again(self, api: ApiUser) -> None:
        """Send the answer, if the user has not had enough responses."""
        if not self.times_left or time.monotonic() < self.next_at:
            return
        verb = "approve" if self.kind == APPROVED_ANSWER else "reject"
        body = {"note": self.note, "question": self.question_version}
        if api.send("POST", f"/v1/jobs/{self.job_id}/{verb}", body) is not None:
            self.times_left -= 1
            self.next_at = time.monotonic() + self.pause_s


def goes_through_api(job: PlannedJob) -> bool:
    """Return whether the user of a job submits it through the API: about half of all jobs, and
    each job with a question. The API takes workflows as text only.
    """
    if job.mode is Mode.PIPELINE or job.shape is Shape.SHORTENED or is_of_notes(job):
        return False
    if job.shape in (Shape.APPROVED, *REJECTED):
        return True
    return random.Random(f"{job.seed} {job.name} api").random() < 0.5  # noqa: S311


def _format_actor(actor: Actor | None) -> str:
    return f"{actor.name} by {actor.via}" if actor else "nobody"


def _is_at_work(job: PlannedJob, call_keys: Collection[CallKey]) -> bool:
    """Return whether the job has made a call that takes long enough for a cancel. Such calls
    come from steps of a child, and from the only step of a job without a usable plan.
    """
    below = {member.name for member in job.family} - {job.name}
    steps: set[CallKey] = set()
    for key in call_keys:
        if key.job in below and key.handoff.partition(".")[0] not in ROLES:
            steps.add(key)
    return bool(steps) or CallKey(job.name, INSTEAD, 1) in call_keys


def _find_abandonment_times(events: Iterable[RecordedEvent]) -> dict[str, float]:
    """Return the time of abandonment of the newest handoff of each abandoned step, by
    handoff's id.
    """
    newest: dict[str, str] = {}
    times: dict[str, float] = {}
    for recorded in events:
        match recorded.event:
            case HandoffIssued(step_id=step_id, handoff_id=handoff_id):
                newest[step_id] = handoff_id
            case StepsAbandoned(steps=steps):
                for step in steps:
                    if step.step in newest:
                        times[newest[step.step]] = recorded.at
    return times


def find_question_periods(events: Sequence[RecordedEvent]) -> tuple[tuple[float, float], ...]:
    """Return the periods in which the job waited for its user's answer."""
    answer_times = dict[int, float]()
    for recorded in events:
        if isinstance(recorded.event, Approved | Rejected):
            answer_times.setdefault(recorded.event.asked, recorded.at)
    periods: list[tuple[float, float]] = []
    for recorded in events:
        if isinstance(recorded.event, ApprovalAsked):
            periods.append((recorded.at, answer_times.get(recorded.version, inf)))
    return tuple(periods)


def _find_events(events: Iterable[RecordedEvent], kind: type[Event]) -> list[tuple[float, Event]]:
    """Return the events of a class, with their times."""
    timed_events: list[tuple[float, Event]] = []
    for recorded in events:
        if isinstance(recorded.event, kind):
            timed_events.append((recorded.at, recorded.event))
    return timed_events


def list_members(size: Size) -> list[Member]:
    """Return the members: supervisors, workers that each serve every specialist, and the HTTP
    servers.
    """
    kinds = (
        (SUPERVISOR, "handoff_queue.supervisor.app", size.supervisors),
        (WORKER, "handoff_queue.workers.app", size.workers),
    )
    slots = ("-c", str(size.slots))
    members: list[Member] = []
    for kind, app, count in kinds:
        for number in range(1, count + 1):
            members.append(Member(f"{kind}{number}", kind, app, slots))
    limit = {"HANDOFF_SERVE_REQUESTS_PER_MINUTE": "1000000"}
    for number in range(1, size.consoles + 1):
        name = f"{CONSOLE}{number}"
        members.append(Member(name, CONSOLE, "", environment=limit, port=find_free_port()))
    return members


def _make_project(fleet: Fleet) -> HandoffProject:
    settings = Settings(offline=True, retention_s=RETENTION_S, keys=None, signing_key=None)
    client = connect(fleet.url, settings)
    _, secret = client.create_token(ACTOR, AccessLevel.OPERATE)
    api = ApiUser([f"http://127.0.0.1:{port}" for port in fleet.ports], secret)
    ids: dict[str, JobId] = {}
    store = client.store
    return HandoffProject(
        client,
        api,
        SwitchWatch(store, ids),
        NoteReader(store, ids),
        ForkUser(fleet, store),
        ids,
    )


HANDOFF_PROJECT = Kind(list_members, _make_project, EVERYTHING)
