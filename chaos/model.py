"""The model of a run: a Messages-API server on loopback that answers as planned, and writes down every call that it was paid for."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chaos.ends import INSTEAD
from chaos.messages_server import Json, MessagesServer, Reply, asked_for, calls, fails, said_in, says, says_json
from chaos.plan import CallKey, PlannedJob, Shape, Trouble, price_of
from shared.wire.usage import Usage

PROCESS = "x-chaos-process"
"""The header that says which process calls; the SDK takes it from its own environment variable."""
CUSTOM_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
LIMITS = {"anthropic-ratelimit-requests-limit": "100000", "anthropic-ratelimit-requests-remaining": "99999"}
"""Nobody has to wait, but everybody must count."""
NOTHING = Usage()
MENDED = "It has been mended."
DONE = "So it is."
ENVELOPE = {"status": "ok", "output": DONE, "claims": [], "confidence": 0.9, "needs": None, "problem": None}


@dataclass(frozen=True, slots=True)
class Call:
    """One request that came in. `at`: Unix seconds; `process`: the name of the one that made it."""

    key: CallKey
    process: str
    at: float
    tokens: int = 0
    """That it was paid for; none for one that was turned away."""
    microusd: int = 0
    """The same in money."""
    out_at: float | None = None
    """When its answer's last byte had left; None: it had not when the run was over."""
    was_heard: bool = True
    """Whoever called was still there then."""


class Model(MessagesServer):
    """Answers every call of these jobs; more can be added while it runs."""

    def __init__(self, jobs: Iterable[PlannedJob] = ()) -> None:
        super().__init__(lambda _request: fails(400, "no script"))
        self.calls: list[Call] = []
        self._jobs = {job.name: job for job in jobs}
        self._tries: Counter[CallKey] = Counter()
        self._degraded: set[str] = set()
        """Jobs that were planned by code: no review of them can ask for a step of the planner's."""
        self._lock = threading.Lock()

    def add(self, jobs: Iterable[PlannedJob]) -> None:
        self._jobs |= {job.name: job for job in jobs}

    def answer(self, request: Json, headers: Mapping[str, str]) -> Reply:
        key = key_of(request)
        job = self._jobs[key.job]
        with self._lock:
            self._tries[key] += 1
            trouble = job.trouble(key) if self._tries[key] == 1 else None
            if key.handoff == INSTEAD:
                self._degraded.add(key.job)
            is_degraded = key.job in self._degraded
        reply = replace(_reply(job, key, is_degraded=is_degraded), takes_s=job.takes_s(key)) if trouble is None else _trouble(trouble)
        used = job.usage if reply.status == 200 else NOTHING
        tokens = {"input_tokens": job.usage.input_tokens, "output_tokens": job.usage.output_tokens}
        reply = replace(reply, headers={**LIMITS, **reply.headers}, usage=tokens)
        paid = used.input_tokens + used.output_tokens, price_of(used, request["model"])
        with self._lock:
            number = len(self.calls)
            self.calls.append(Call(key, headers.get(PROCESS, "?"), time.time(), *paid))
        return replace(reply, when_out=lambda was_heard: self._is_out(number, was_heard=was_heard))

    def _is_out(self, number: int, *, was_heard: bool) -> None:
        with self._lock:
            self.calls[number] = replace(self.calls[number], out_at=time.time(), was_heard=was_heard)


def key_of(request: Json) -> CallKey:
    """Whose call this is. A step that has feedback is at its second attempt; a review says which it is."""
    said = said_in(request)
    turn = 1 + sum(message["role"] == "assistant" for message in request["messages"])
    properties = asked_for(request)
    if step := re.search(r"^<task>Do (\w+) of ([\w-]+)\.</task>", said):
        return CallKey(step[2], f"{step[1]}.{2 if '<feedback' in said else 1}", turn)
    if degraded := re.search(r"^<task>chaos ([\w-]+)</task>", said):  # the planner was killed too often: one step, the whole request
        return CallKey(degraded[1], INSTEAD, turn)
    name = re.findall(r"Request:\s+chaos ([\w-]+)", said)[-1]
    role = "planner" if "steps" in properties else "assessor" if "verdict" in properties else "synthesizer"
    again = re.search(r"Judge the results of round (\d+)", said)
    return CallKey(name, f"{role}.{again[1] if again else 1}", turn)


def _reply(job: PlannedJob, key: CallKey, *, is_degraded: bool) -> Reply:
    role, _, attempt = key.handoff.partition(".")
    match role:
        case "planner":
            return says("I had rather not.") if job.shape is Shape.REPAIRED and key.turn == 1 else says_json(_plan(job))
        case "assessor" if job.shape is Shape.REVISED and attempt == "1" and not is_degraded:
            return says_json({"verdict": "REVISE", "revisions": [{"step": "a", "problem": "Mend it."}], "open_points": []})
        case "assessor":
            return says_json({"verdict": "PASS", "revisions": [], "open_points": []})
        case "synthesizer":
            return says_json(ENVELOPE)
    turns = next((step.turns for step in job.steps if step.id == role), 1)
    if key.turn < turns and attempt == "1":
        return calls(("now", {}))
    return says_json({**ENVELOPE, "output": MENDED if attempt == "2" else DONE})


def _plan(job: PlannedJob) -> dict[str, Any]:
    steps = [
        {
            "id": step.id,
            "specialist": step.specialist,
            "task": f"Do {step.id} of {job.name}.",
            "depends_on": list(step.after),
            "fallback": "-",
        }
        for step in job.steps
    ]
    return {"steps": steps, "synthesis": "reconcile" if job.shape is Shape.WRITTEN else "merge", "why": ""}


def _trouble(trouble: Trouble) -> Reply:
    match trouble:
        case Trouble.BUSY:
            return fails(429, "slow down", "rate_limit_error", retry_after="0.2")
        case Trouble.OVERLOADED:
            return fails(529, "overloaded", "overloaded_error")
        case Trouble.GARBAGE:
            return Reply(body="<html>Welcome to this network.</html>", headers={"content-type": "text/html"})
        case Trouble.CUT:
            return replace(says_json(ENVELOPE), cut_after_events=4)
