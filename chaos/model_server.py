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

from handoff_queue.chaos.expected_handoffs import JUDGED, get_resolver
from handoff_queue.chaos.model_answers import ENVELOPE, build_reply, find_writers
from handoff_queue.chaos.planned_jobs import (
    FORK_SUFFIX,
    STORM_S,
    CallKey,
    ModelRefusal,
    PlannedJob,
    Trouble,
    compute_price,
)
from handoff_queue.chaos.shortened_requests import compute_usage, count_summarized_turns
from handoff_queue.shared.types.names import FACT_GATE
from handoff_queue.shared.types.usage import NOTHING_USED, Usage
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    answer_properties,
    error_reply,
    first_message_text,
    json_reply,
    text_reply,
)
from handoff_queue.testing.batches import BATCH_ID

ROLE_OF_ANSWER = {
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
depends on the job (`expected_handoffs.get_resolver`).
"""
_STEP = re.compile(r"^<task>Do (\w+) of (?:chaos )?([\w-]+)\.")
_WHOLE = re.compile(r"^<task>chaos ([\w-]+)</task>")
_REQUEST = re.compile(r"Request:\s+chaos ([\w-]+)")
_FORK = re.compile(rf"Do \w+ of ([\w-]+{FORK_SUFFIX})\.")
"""Task of the repeated step of a fork. The forked job has the same request."""
_CHECK = re.compile(r'^<task>Check the facts of an answer .*"chaos ([\w-]+)"</task>', re.S)
_CLAIMS = re.compile(r'"subject": "tower ([\w-]+)"|"assessor": "Say it of ([\w-]+)\."')
_REJECTED = re.compile(r'^\{"note": ', re.M)
_STANDS_IN = '<feedback author="supervisor">'
_ROUND = re.compile(r"This is round (\d+)")


@dataclass(slots=True)
class CallAttribution:
    """Attributes requests to calls, and remembers the requests to the replanner and the
    fact-checker.
    """

    request_texts: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Texts of the requests, each once, in the order of arrival, by role and job's name. A
    repeated call has the same text, and the next call has another one.
    """

    def find_key(self, request: Json) -> CallKey:
        """Return the call that this request makes or repeats."""
        text = first_message_text(request)
        turn = 1 + sum(message["role"] == "assistant" for message in request["messages"])
        turn += count_summarized_turns(request)
        attempt = 1 + text.count("<feedback author=")
        if step := _STEP.search(text):
            return CallKey(step[2], f"{step[1]}.{attempt}", turn)
        if whole_step := _WHOLE.search(text):  # one step that does the whole request
            above, _, step_id = whole_step[1].rpartition("-")
            replaces_child_job = _STANDS_IN in text  # the child job of this step has failed
            if replaces_child_job:
                return CallKey(above, f"{step_id}.{attempt}", turn)
            return CallKey(whole_step[1], f"answer.{attempt}", turn)
        if check := _CHECK.search(text):
            number = self._count_request(FACT_GATE, check[1], text)
            return CallKey(check[1], f"{FACT_GATE}.{number}", turn)
        role = _find_role(request)
        if role == "judge":
            return CallKey("".join(_CLAIMS.findall(text)[0]), JUDGED, turn)
        return self._find_key_of_role(role, request, turn)

    def _find_key_of_role(self, role: str, request: Json, turn: int) -> CallKey:
        text, number = first_message_text(request), 1
        name = _REQUEST.findall(text)[-1]
        if fork := _FORK.search(text):
            name = fork[1]
        if role == "replanner":
            number = self._count_request(role, name, text)
        elif role == "planner":
            number += len(_REJECTED.findall(text))
        elif again := _ROUND.search(text):
            number = int(again[1])
        if "resolutions" in answer_properties(request):
            return CallKey(name, RESOLVER, turn)
        return CallKey(name, f"{role}.{number}", turn)

    def _count_request(self, role: str, name: str, text: str) -> int:
        """Return the number of this request to the role for this job, from 1."""
        texts = self.request_texts.setdefault((role, name), [])
        if text not in texts:
            texts.append(text)
        return 1 + texts.index(text)


def _find_role(request: Json) -> str:
    """Return the role of the supervisor that makes this request."""
    properties = answer_properties(request)
    for field_name, role in ROLE_OF_ANSWER.items():
        if field_name in properties:
            return role
    return "synthesizer"


PROCESS = "x-chaos-process"
"""Header with the name of the calling process. The SDK reads it from `CUSTOM_HEADERS`."""
CUSTOM_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
OF_THE_SDK = "Claude Agent SDK"
"""Words in the system prompt of the Claude Agent SDK."""
BATCH_S = 0.3
"""Seconds that the provider takes for a batch."""
LIMITS = {
    "anthropic-ratelimit-requests-limit": "100000",
    "anthropic-ratelimit-requests-remaining": "99999",
}
"""Limits that are never reached, so that every process must count but no process waits."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request. Times are Unix seconds."""

    key: CallKey
    process: str
    """Name of the calling process."""
    at: float
    """Time of the request."""
    usage: Usage = NOTHING_USED
    """Paid usage; nothing for a refused request."""
    turns: int = 1
    out_at: float | None = None
    """Time at which the last byte of the answer was sent; None: not before the end of the run."""
    was_heard: bool = True
    """True if the caller was still connected at that time."""
    model: str = ""
    """Name of the requested model."""
    writers: tuple[str, ...] = ()
    """Models that wrote the replies in the request, in a handoff with several models."""
    is_batched: bool = False
    """True if the request came in a batch."""
    is_external: bool = False
    """True if the request has the system prompt of the Claude Agent SDK."""
    is_refused: bool = False
    """True if the model turned the call away, and another model can serve it."""
    is_shortened: bool = False
    """True if the provider has cleared results of tools from the request."""
    is_summary: bool = False
    """True if the provider has written a summary."""


@dataclass(frozen=True, slots=True)
class UncountedCall:
    """A request of a job that is not compared with a plan."""

    job: str
    """Name of the job."""
    text: str
    """Its messages as JSON."""


class ChaosModel(MessagesServer):
    """Answers every call of its jobs. Jobs can be added while it runs."""

    raises = False
    """The report of the run names the requests that broke a rule."""

    def __init__(self, jobs: Iterable[PlannedJob] = ()) -> None:
        super().__init__(lambda _request: error_reply(400, "no script"))
        self.batches.duration_s = BATCH_S
        self.calls: list[Call] = []
        """Without the calls of jobs that are not compared with a plan."""
        self.uncounted: list[UncountedCall] = []
        self._jobs: dict[str, PlannedJob] = {}
        self._tries: Counter[CallKey] = Counter()
        self._had_storm: set[tuple[str, str]] = set()
        """Handoffs, by job's name and id, of which a storm has refused a call."""
        self._attribution = CallAttribution()
        self._lock = threading.Lock()
        self.add(jobs)

    def add(self, jobs: Iterable[PlannedJob]) -> None:
        """Add jobs and their children."""
        for job in jobs:
            for member in job.family:
                self._jobs[member.name] = member

    def answer(self, request: Json, headers: Mapping[str, str]) -> Reply:
        def reply(shorter: Json) -> Reply:
            return self._answer_as_planned(shorter, headers, is_shortened=shorter is not request)

        return self._reply_with_edits(request, reply)

    def _answer_as_planned(
        self, request: Json, headers: Mapping[str, str], *, is_shortened: bool
    ) -> Reply:
        """Return the reply to a request, and record the call.

        Args:
            request: without the results of tools that the server has cleared.
        """
        with self._lock:
            key = self._attribution.find_key(request)
            job = self._jobs[key.job]
            if key.handoff == RESOLVER:
                key = replace(key, handoff=get_resolver(job))
            self._tries[key] += 1
            trouble = None
            if self._tries[key] == 1:
                trouble = job.draw_fault(key)
            refusal = self.draw_refusal(job, key, request["model"])
        if refusal is not None:
            reply = replace(_build_refusal_reply(refusal), duration_s=job.draw_seconds(key))
        elif trouble is None:
            reply = replace(build_reply(job, key, request), duration_s=job.draw_seconds(key))
        else:
            reply = _build_fault(trouble)
        reported_usage = compute_usage(job, request, reply)
        usage = NOTHING_USED
        if reply.status == 200:
            usage = reported_usage
        tokens = {
            "input_tokens": reported_usage.input_tokens,
            "output_tokens": reported_usage.output_tokens,
        }
        reply = replace(reply, headers={**LIMITS, **reply.headers}, usage=tokens)
        paid_usage = usage.model_copy(
            update={"cost_microusd": compute_price(usage, request["model"])}
        )
        if job.is_uncounted:
            self.uncounted.append(UncountedCall(job.name, json.dumps(request["messages"])))
            return reply
        call = Call(
            key,
            headers.get(PROCESS, "?"),
            time.time(),
            paid_usage,
            model=request["model"],
            writers=_find_writers(job, key, request),
            is_batched=BATCH_ID in headers,
            is_external=OF_THE_SDK in json.dumps(request.get("system", "")),
            is_refused=refusal is not None,
            is_shortened=is_shortened,
            is_summary="compaction" in request,
        )
        with self._lock:
            number = len(self.calls)
            self.calls.append(call)
        return replace(
            reply, on_sent=lambda was_heard: self._record_sent(number, was_heard=was_heard)
        )

    def draw_refusal(self, job: PlannedJob, key: CallKey, model: str) -> ModelRefusal | None:
        """Return how the model turns this call away, or None. A storm refuses one call of a
        handoff.
        """
        refusal, handoff = job.draw_refusal(key, model), (key.job, key.handoff)
        if refusal is not None and refusal.is_storm:
            if handoff in self._had_storm:
                return None
            self._had_storm.add(handoff)
        return refusal

    def _record_sent(self, number: int, *, was_heard: bool) -> None:
        with self._lock:
            self.calls[number] = replace(
                self.calls[number], out_at=time.time(), was_heard=was_heard
            )


def _find_writers(job: PlannedJob, key: CallKey, request: Json) -> tuple[str, ...]:
    if job.find_switching_step(key.handoff) is None:
        return ()
    replies = []
    for each in request["messages"]:
        if each["role"] == "assistant":
            replies.append(each["content"])
    return find_writers(json.dumps(replies))


def _build_refusal_reply(refusal: ModelRefusal) -> Reply:
    wait = str(STORM_S)
    match refusal:
        case ModelRefusal.BUSY:
            return error_reply(429, "slow down", "rate_limit_error", retry_after=wait)
        case ModelRefusal.OVERLOADED:
            return error_reply(529, "overloaded", "overloaded_error", retry_after=wait)
        case ModelRefusal.DECLINED:
            return text_reply("No.", stop_reason="refusal")


def _build_fault(trouble: Trouble) -> Reply:
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
