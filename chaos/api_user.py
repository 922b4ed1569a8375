"""A user of the HTTP API of `handoff serve`, followers of events, and the records of the users with
the promises that they check.

There are several servers, and each is killed while it works. Each request goes to the next server,
as a load balancer sends it. The user sends a request again until an answer comes.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import httpx2

from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.request import Request

ACTOR = "chaos"
"""Name of the user's token."""
ANSWERS_WITHIN_S = 3.0
"""Seconds after which the user sends a request again."""
SILENT_S = 20.0
"""Seconds of silence after which a follower connects again: more than a heartbeat."""
RECONNECT_S = 0.1
"""Seconds between two connections of a follower."""
NO_ANSWER = (429, 503)
"""Statuses that ask the user to send the request again."""
APPROVED_ANSWER, REJECTED_ANSWER = "approved", "rejected"
"""Types of the events of an answer."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer of the server."""

    status: int
    content: Mapping[str, Any]

    @property
    def detail(self) -> str:
        """The words of an error."""
        return str(self.content.get("detail", ""))


@dataclass(slots=True)
class ApiUser:
    """A user with a token. One thread sends requests; followers have their own threads."""

    urls: Sequence[str]
    """Addresses of the servers."""
    secret: str
    requests: int = 0
    unanswered: int = 0
    taken_over: int = 0
    """Requests to which one server gave no answer, and then another server answered."""
    answered: set[str] = field(default_factory=set)
    """Addresses of the servers that have answered."""
    failures: list[str] = field(default_factory=list)
    """Answers with an internal error."""
    _open: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """Request without an answer: method, path and key -> the server that gave none."""
    _http: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        self._http = httpx2.Client(
            headers={"Authorization": f"Bearer {self.secret}"},
            timeout=ANSWERS_WITHIN_S,
            limits=httpx2.Limits(max_connections=None),
            trust_env=False,
            verify=False,
        )

    def send(
        self, method: str, path: str, body: object = None, *, key: str = ""
    ) -> HttpAnswer | None:
        """Send a request. Return None if no answer came: the request may have had its effect, so
        the caller must send it again.

        Args:
            key: the Idempotency-Key.
        """
        server = self.urls[self.requests % len(self.urls)]
        self.requests += 1
        headers = {"Idempotency-Key": key} if key else {}
        try:
            response = self._http.request(method, server + path, json=body, headers=headers)
            content = response.json() if response.content else {}
        except (httpx2.HTTPError, ValueError):
            self._record_silence(method, path, key, server)
            return None
        if response.status_code in NO_ANSWER:
            self._record_silence(method, path, key, server)
            return None
        self.answered.add(server)
        self.taken_over += self._open.pop((method, path, key), server) != server
        if response.status_code >= 500:
            self.failures.append(f"{method} {path}: {response.status_code} {response.text:.200}")
            return None
        return HttpAnswer(response.status_code, content)

    def _record_silence(self, method: str, path: str, key: str, server: str) -> None:
        self.unanswered += 1
        self._open[method, path, key] = server

    def submit(self, request: Request) -> JobId:
        """Submit a job without a workflow and without documents.

        Raises:
            StoreUnavailable: no answer came, so the caller must submit the same job again.
            UserError: the server refuses the job.
        """
        answer = self.send(
            "POST", "/v1/jobs", build_body(request), key=request.idempotency_key or ""
        )
        if answer is None:
            raise StoreUnavailable("the HTTP server did not answer")
        if answer.status != 202:
            raise UserError(answer.detail)
        return JobId(answer.content["job_id"])

    def follow(self, job_id: JobId) -> Follower:
        """Return a running follower of a job."""
        follower = Follower(self._http, self.urls, job_id)
        follower.start()
        return follower

    def close(self) -> None:
        self._http.close()


def build_body(request: Request) -> dict[str, object]:
    """Return the body of a request for a job."""
    body: dict[str, object] = {
        "text": request.text,
        "limits": request.limits.model_dump(mode="json"),
        "model": request.model,
        "tenant": request.tenant,
        "priority": request.priority,
        "deadline_s": request.deadline_s,
        "mode": request.mode,
        "after": request.after,
    }
    for name, part in (("approvals", request.approvals), ("gates", request.gates)):
        if part is not None:
            body[name] = part.model_dump(mode="json", exclude_defaults=True)
    return body


class Follower(threading.Thread):
    """Follows the events of one job across reconnections, as a browser does. Each connection is to
    the next server.
    """

    def __init__(self, http: httpx2.Client, urls: Sequence[str], job_id: JobId) -> None:
        super().__init__(name=f"follower of {job_id}", daemon=True)
        self.seen: list[tuple[int, str]] = []
        """Version and JSON of each event, in the order of arrival."""
        self.streams = 0
        """Number of streams that the server began."""
        self._http = http
        self._servers = cycle(urls)
        self._path = f"/v1/jobs/{job_id}/events"
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.is_set():
            with suppress(httpx2.HTTPError, RuntimeError):  # the user has closed its connections
                self._connect()
            self._is_over.wait(RECONNECT_S)

    def stop(self, within_s: float) -> None:
        """Wait for the last event, for at most this time. Then end the follower."""
        self.join(within_s)
        self._is_over.set()

    def _connect(self) -> None:
        last = self.seen[-1][0] if self.seen else 0
        headers = {"Last-Event-ID": str(last)}
        url = next(self._servers) + self._path
        with self._http.stream("GET", url, headers=headers, timeout=SILENT_S) as response:
            if response.status_code == 204:  # the job has ended, and there are no further events
                self._is_over.set()
            if response.status_code == 200:
                self.streams += 1
                self._read(response)

    def _read(self, response: httpx2.Response) -> None:
        """Record the events of a stream. An event counts when its last line has come."""
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            if self._is_over.is_set():
                return
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "id" in fields:
                self.seen.append((int(fields["id"]), fields["data"]))
                fields = {}
            else:
                fields = {}


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer in the journal of a job."""

    kind: str
    """APPROVED_ANSWER or REJECTED_ANSWER."""
    actor: str
    """Name of the actor and the way of the answer, such as `chaos by api`."""


@dataclass(frozen=True, slots=True)
class QuestionRecord:
    """A question of a job, and its answers in the order of the journal."""

    job: str
    """Name of the job."""
    version: int
    sent_answer: str
    """Kind of the answer that the user sent; '' if the user sent none."""
    recorded_answers: tuple[GivenAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A schedule at the end of the run. The jobs are those of its slots and of `run`."""

    name: str
    expected_slots: Mapping[str, str]
    """The slots that must have started: id of the slot's job -> time of the slot."""
    possible_jobs: Collection[str] = ()
    """Ids of the jobs of slots that may have started."""
    stored_jobs: Mapping[str, int] = field(default_factory=dict)
    """The jobs of the schedule in the store: id -> number of ends."""
    started_by_hand: Collection[str] = ()
    """Ids of jobs that the server named as an answer to `run`."""

    def find_breaches(self) -> Iterator[str]:
        """Yield one line for each slot without its one job, and for jobs without a slot."""
        for job_id, slot in self.expected_slots.items():
            if job_id not in self.stored_jobs:
                yield f"{self.name}: the slot {slot} has no job"
        for job_id in sorted({*self.started_by_hand} - self.stored_jobs.keys()):
            yield f"{self.name}: {job_id} was started by hand, and is not there"
        expected = {*self.expected_slots, *self.possible_jobs, *self.started_by_hand}
        for job_id in sorted(self.stored_jobs.keys() - expected):
            yield f"{self.name}: {job_id} is of no slot, and no user started it"
        for job_id, ends in self.stored_jobs.items():
            if ends != 1:
                yield f"{self.name}: {job_id} ended {ends} times"


@dataclass(frozen=True, slots=True)
class FollowedJob:
    """The events of a job: as its follower saw them, and as the journal has them."""

    job: str
    """Name of the job."""
    seen: Sequence[tuple[int, str]]
    """Version and JSON of each event, in the order of arrival."""
    journal: Sequence[tuple[int, str]]

    def find_breach(self) -> str:
        """Return the first difference; '' if there is none."""
        pairs = zip(self.seen, self.journal, strict=False)
        for number, (seen_event, journal_event) in enumerate(pairs):
            if seen_event != journal_event:
                return (
                    f"{self.job}: event {number + 1} has version {journal_event[0]},"
                    f" {journal_event[1]:.80}, and the follower saw version"
                    f" {seen_event[0]}, {seen_event[1]:.80}"
                )
        if len(self.seen) != len(self.journal):
            return f"{self.job}: {len(self.journal)} events, and the follower saw {len(self.seen)}"
        return ""


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message of a user to the only agent of a job."""

    text: str
    is_stored: bool
    """False: the server refused it, because no agent would read it."""
    events: int
    """Number of its events in the journal."""
    takers: Sequence[str]
    """The handoffs that took it, in the order of the journal."""
    calls: int
    """How often one call had the text, at most."""
    is_cut_off: bool = False
    """True if three kills in a row ended the agent that took it or could have taken it."""

    def find_breach(self) -> str:
        """Return the fault of the message; '' if there is none."""
        names = ", ".join(self.takers) or "nobody"
        if self.events != self.is_stored:
            did = "stored" if self.is_stored else "refused"
            return (
                f"message {self.text}: {self.events} events in the journal, and the server {did} it"
            )
        if len(self.takers) > 1 or self.calls > 1:
            return f"message {self.text}: taken by {names}, and {self.calls} times in one call"
        if self.is_cut_off and not self.calls:
            return ""
        if len(self.takers) != self.calls:
            return f"message {self.text}: taken by {names}, and one call had it {self.calls} times"
        if self.is_stored and not self.takers:
            return f"message {self.text}: stored, and no agent took it"
        return ""


@dataclass(frozen=True, slots=True)
class ApiRecords:
    """Requests and answers of the users of the HTTP API, and their jobs in the store."""

    requests: int = 0
    unanswered: int = 0
    """Requests without an answer, which the users sent again."""
    taken_over: int = 0
    """Requests to which one server gave no answer, and then another server answered."""
    servers: int = 0
    """Servers that have answered."""
    reconnections: int = 0
    """Streams of followers after their first one."""
    failures: Sequence[str] = ()
    """Answers with an internal error."""
    jobs_by_key: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Ids of the jobs with the same key in the answers and in the store: job's name -> ids."""
    questions: Sequence[QuestionRecord] = ()
    audited: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Actors of the answers in the audit of each job, by job's name."""
    actor: str = ""
    """The actor of every answer that the user sent."""
    schedules: Sequence[ScheduleRecord] = ()
    followed: Sequence[FollowedJob] = ()
    messages: Sequence[MessageRecord] = ()

    def find_breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        events = [breach for job in self.followed if (breach := job.find_breach())]
        remarks = [breach for message in self.messages if (breach := message.find_breach())]
        slots: list[str] = []
        for schedule in self.schedules:
            slots += schedule.find_breaches()
        return {
            "keys with more than one job": list(self._find_duplicate_jobs()),
            "answers without their one effect": list(self._find_wrong_answers()),
            "slots without their one job": slots,
            "followers who missed an event or saw one twice": events,
            "messages that an agent missed or had twice": remarks,
            "requests that the server failed": list(self.failures),
        }

    def collect_figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        started_jobs = 0
        for schedule in self.schedules:
            started_jobs += len(schedule.stored_jobs)
        return {
            "requests to the API": self.requests,
            "sent again": self.unanswered,
            "answered by another server": self.taken_over,
            "servers that answered": self.servers,
            "questions answered": sum(bool(question.sent_answer) for question in self.questions),
            "messages taken": sum(len(message.takers) for message in self.messages),
            "messages refused": sum(not message.is_stored for message in self.messages),
            "jobs of schedules": started_jobs,
            "events followed": sum(len(job.seen) for job in self.followed),
            "reconnections of followers": self.reconnections,
        }

    def _find_duplicate_jobs(self) -> Iterator[str]:
        for name, job_ids in self.jobs_by_key.items():
            if len(job_ids) > 1:
                yield f"{name}: {', '.join(sorted(job_ids))}"

    def _find_wrong_answers(self) -> Iterator[str]:
        effects: dict[str, list[str]] = {}
        for question in self.questions:
            where = f"{question.job}, question {question.version}"
            if not question.recorded_answers:
                continue
            first = question.recorded_answers[0]
            effects.setdefault(question.job, []).append(first.actor)
            if first.kind != question.sent_answer:
                sent_answer = question.sent_answer or "no answer"
                yield f"{where}: {first.kind}, and its user sent {sent_answer}"
            elif first.actor != self.actor:
                yield f"{where}: answered by {first.actor}, not by {self.actor}"
        for job in sorted(effects.keys() | self.audited.keys()):
            in_audit, expected = list(self.audited.get(job, ())), effects.get(job, [])
            if in_audit != expected:
                yield f"{job}: the audit names {in_audit or 'nobody'}, and {expected} answered"
