"""The model of a run: a Messages-API server on loopback that answers as planned, and records each
call.

The name of the job, which is part of every text, and the content of a request attribute the
request to a model call.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from handoff_queue.chaos.answers import ENVELOPE, reply_to
from handoff_queue.chaos.expected_handoffs import JUDGED, resolver_of
from handoff_queue.chaos.plan import CallKey, PlannedJob, Trouble, price_of
from handoff_queue.shared.types.names import FACT_GATE
from handoff_queue.shared.types.usage import Usage
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    answer_properties,
    error_reply,
    first_message_text,
    json_reply,
)

ASKED_OF = {
    "route": "router",
    "steps": "planner",
    "resolutions": "planner",
    "decision": "replanner",
    "settlements": "judge",
    "rulings": "judge",
    "verdict": "assessor",
}
"""Field that only one role's answer has -> the role. The synthesizer answers like a specialist."""
RESOLVER = "planner.needs"
"""Placeholder for the id of the planner's handoff that answers questions of steps. Its number
depends on the job (`expected_handoffs.resolver_of`).
"""
_STEP = re.compile(r"^<task>Do (\w+) of (?:chaos )?([\w-]+)\.")
_WHOLE = re.compile(r"^<task>chaos ([\w-]+)</task>")
_REQUEST = re.compile(r"Request:\s+chaos ([\w-]+)")
_CHECK = re.compile(r'^<task>Check the facts of an answer .*"chaos ([\w-]+)"</task>', re.S)
_CLAIMS = re.compile(r'"subject": "tower ([\w-]+)"|"reviewer": "Say it of ([\w-]+)\."')
_REJECTED = re.compile(r'^\{"note": ', re.M)
_STANDS_IN = '<feedback author="supervisor">'
_ROUND = re.compile(r"Judge the results of round (\d+)")


@dataclass(slots=True)
class CallAttribution:
    """Attributes requests to calls, and remembers the requests to the replanner and the
    fact-checker.
    """

    looks: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Texts of the requests, each once, in the order of arrival, by role and job's name. A
    repeated call has the same text, and the next call has another one.
    """

    def key_of(self, request: Json) -> CallKey:
        """Return the call that this request makes or repeats."""
        text = first_message_text(request)
        turn = 1 + sum(message["role"] == "assistant" for message in request["messages"])
        attempt = 1 + text.count("<feedback author=")
        if step := _STEP.search(text):
            return CallKey(step[2], f"{step[1]}.{attempt}", turn)
        if whole := _WHOLE.search(text):  # one step that does the whole request
            above, _, step_id = whole[1].rpartition("-")
            replaces_team = _STANDS_IN in text  # the child job of this step has failed
            if replaces_team:
                return CallKey(above, f"{step_id}.{attempt}", turn)
            return CallKey(whole[1], f"answer.{attempt}", turn)
        if check := _CHECK.search(text):
            number = self._number_of(FACT_GATE, check[1], text)
            return CallKey(check[1], f"{FACT_GATE}.{number}", turn)
        role = _role_of(request)
        if role == "judge":
            return CallKey("".join(_CLAIMS.findall(text)[0]), JUDGED, turn)
        return self._key_of_role(role, request, turn)

    def _key_of_role(self, role: str, request: Json, turn: int) -> CallKey:
        text, number = first_message_text(request), 1
        name = _REQUEST.findall(text)[-1]
        if role == "replanner":
            number = self._number_of(role, name, text)
        elif role == "planner":
            number += len(_REJECTED.findall(text))
        elif again := _ROUND.search(text):
            number = int(again[1])
        if "resolutions" in answer_properties(request):
            return CallKey(name, RESOLVER, turn)
        return CallKey(name, f"{role}.{number}", turn)

    def _number_of(self, role: str, name: str, text: str) -> int:
        """Return the number of this request to the role for this job, from 1."""
        texts = self.looks.setdefault((role, name), [])
        if text not in texts:
            texts.append(text)
        return 1 + texts.index(text)


def _role_of(request: Json) -> str:
    """Return the role of the supervisor that makes this request."""
    properties = answer_properties(request)
    for field_name, role in ASKED_OF.items():
        if field_name in properties:
            return role
    return "synthesizer"


PROCESS = "x-chaos-process"
"""Header with the name of the calling process. The SDK reads it from `CUSTOM_HEADERS`."""
CUSTOM_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
LIMITS = {
    "anthropic-ratelimit-requests-limit": "100000",
    "anthropic-ratelimit-requests-remaining": "99999",
}
"""Limits that are never reached, so that every process must count but no process waits."""
NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Call:
    """One request. Times are Unix seconds."""

    key: CallKey
    process: str
    """Name of the calling process."""
    at: float
    """Time of the request."""
    tokens: int = 0
    """Paid tokens; 0 for a refused request."""
    microusd: int = 0
    """Paid micro-dollars."""
    out_at: float | None = None
    """Time at which the last byte of the answer was sent; None: not before the end of the run."""
    was_heard: bool = True
    """True if the caller was still connected at that time."""


@dataclass(frozen=True, slots=True)
class UncountedCall:
    """A request of a job that is not compared with a plan."""

    job: str
    """Name of the job."""
    text: str
    """Its messages as JSON."""


class Model(MessagesServer):
    """Answers every call of its jobs. Jobs can be added while it runs."""

    raises = False
    """The report of the run names the requests that broke a rule."""

    def __init__(self, jobs: Iterable[PlannedJob] = ()) -> None:
        super().__init__(lambda _request: error_reply(400, "no script"))
        self.calls: list[Call] = []
        """Without the calls of jobs that are not compared with a plan."""
        self.uncounted: list[UncountedCall] = []
        self._jobs: dict[str, PlannedJob] = {}
        self._tries: Counter[CallKey] = Counter()
        self._asked = CallAttribution()
        self._lock = threading.Lock()
        self.add(jobs)

    def add(self, jobs: Iterable[PlannedJob]) -> None:
        """Add jobs and their children."""
        for job in jobs:
            for member in job.family:
                self._jobs[member.name] = member

    def answer(self, request: Json, headers: Mapping[str, str]) -> Reply:
        with self._lock:
            key = self._asked.key_of(request)
            job = self._jobs[key.job]
            if key.handoff == RESOLVER:
                key = replace(key, handoff=resolver_of(job))
            self._tries[key] += 1
            trouble = None
            if self._tries[key] == 1:
                trouble = job.trouble(key)
        if trouble is None:
            reply = replace(reply_to(job, key, request), duration_s=job.takes_s(key))
        else:
            reply = _trouble(trouble)
        used = NOTHING
        if reply.status == 200:
            used = job.usage
        tokens = {"input_tokens": job.usage.input_tokens, "output_tokens": job.usage.output_tokens}
        reply = replace(reply, headers={**LIMITS, **reply.headers}, usage=tokens)
        paid = used.input_tokens + used.output_tokens, price_of(used, request["model"])
        if job.is_uncounted:
            self.uncounted.append(UncountedCall(job.name, json.dumps(request["messages"])))
            return reply
        with self._lock:
            number = len(self.calls)
            self.calls.append(Call(key, headers.get(PROCESS, "?"), time.time(), *paid))
        return replace(reply, on_sent=lambda was_heard: self._is_out(number, was_heard=was_heard))

    def _is_out(self, number: int, *, was_heard: bool) -> None:
        with self._lock:
            self.calls[number] = replace(
                self.calls[number], out_at=time.time(), was_heard=was_heard
            )


def _trouble(trouble: Trouble) -> Reply:
    match trouble:
        case Trouble.BUSY:
            return error_reply(429, "slow down", "rate_limit_error", retry_after="0.2")
        case Trouble.OVERLOADED:
            return error_reply(529, "overloaded", "overloaded_error")
        case Trouble.GARBAGE:
            return Reply(
                body="<html>Welcome to this network.</html>", headers={"content-type": "text/html"}
            )
        case Trouble.CUT:
            return replace(json_reply(ENVELOPE), cut_after_events=4)
