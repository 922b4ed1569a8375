"""The model of a run: a Messages-API server on loopback that answers as planned, and records
each call.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from handoff_queue.chaos.answers import ENVELOPE, reply_to
from handoff_queue.chaos.call_attribution import RESOLVER, CallAttribution
from handoff_queue.chaos.expected_handoffs import resolver_of
from handoff_queue.chaos.plan import CallKey, PlannedJob, Trouble, price_of
from handoff_queue.shared.types.usage import Usage
from handoff_queue.testing import Json, MessagesServer, Reply, error_reply, json_reply

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


class Model(MessagesServer):
    """Answers every call of its jobs. Jobs can be added while it runs."""

    raises = False
    """The report of the run names the requests that broke a rule."""

    def __init__(self, jobs: Iterable[PlannedJob] = ()) -> None:
        super().__init__(lambda _request: error_reply(400, "no script"))
        self.calls: list[Call] = []
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
