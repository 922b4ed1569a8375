"""Two supervisors and three workers with one slot each, and a scripted model. Tests inject the
faults.

The names of a test's job and steps contain the test's name: the request is `plan NAME`, the tasks
are `Do STEP of NAME.`. So tests can share the processes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from handoff_queue.chaos.leaks import keys_for_ever
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fair_queue import is_for
from handoff_queue.shared.store.jobs import HandoffStanding
from handoff_queue.shared.types.events import HandoffFinished, HandoffIssued, JobEnded, JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client.client import Client, Request
from handoff_queue.supervisor.client.report import JobResult
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    answer_properties,
    error_reply,
    first_message_text,
    json_reply,
    tool_call_reply,
)
from tests.running_system import RunningSystem
from tests.waiting import wait_until

LEASE_S = 1.2
RECOVERY_S = LEASE_S + 5
"""Promised time of recovery, in seconds."""
QUICK = {"HANDOFF_LEASE_S": str(LEASE_S), "HANDOFF_SWEEP_INTERVAL_S": "0.2"}
"""Settings that find lost messages within this time."""
SPECIALIST = "generalist"
ENVELOPE = {
    "status": "ok",
    "output": "So it is.",
    "claims": [],
    "confidence": 0.9,
    "needs": None,
    "problem": None,
}
GO_ON = {"decision": "go_on", "why": "-"}
PASS = {"verdict": "PASS", "revisions": [], "open_points": []}


def _goes_on(_nth: int) -> Reply:
    return json_reply(GO_ON)


@dataclass(frozen=True, slots=True)
class Held:
    """A model call that is answered when the test says so."""

    arrived: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Script:
    """The model. A step's first `turns - 1` turns ask for the time, its last one answers."""

    plans: dict[str, dict[str, str]] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    """NAME -> turns of each step, 1 by default."""
    specialists: dict[str, str] = field(default_factory=dict)
    """NAME -> specialist of each step, `SPECIALIST` by default."""
    on_failure: dict[str, str] = field(default_factory=dict)
    """NAME -> the `on_failure` policy of its steps, if not the default."""
    joins: dict[str, dict[str, Json]] = field(default_factory=dict)
    """NAME -> the joins of its steps, for steps that need fewer results than all."""
    calls: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """(NAME, step or role, turn) -> calls that came in."""
    held: dict[tuple[str, str, int], Held] = field(default_factory=dict)
    """The calls to come that wait."""
    given: list[Held] = field(default_factory=list)
    """All that this test has held."""
    refusals: dict[tuple[str, str, int], float] = field(default_factory=dict)
    """The next call of this turn gets a 429 with this retry-after, in seconds."""
    storms: dict[str, float] = field(default_factory=dict)
    """NAME -> seconds after the first call of a step in which every call gets a 429 without a
    retry-after.
    """
    envelopes: dict[tuple[str, str], Json] = field(default_factory=dict)
    """(NAME, step) -> what its last turn answers, where it is not the usual."""

    tasks: dict[tuple[str, str], str] = field(default_factory=dict)
    """(NAME, step) -> the text of the task before `Do STEP of NAME.`"""
    teams: dict[tuple[str, str], str] = field(default_factory=dict)
    """(NAME, step) -> the NAME of the plan of the sub-supervisor that does it, where one does."""
    storm_over: dict[str, float] = field(default_factory=dict)
    """NAME -> when, by `time.monotonic`."""
    replans: dict[str, Callable[[int], Reply]] = field(default_factory=dict)
    """NAME -> the replanner's reply to its nth call. Without an entry, the plan stays."""

    syntheses: dict[str, str] = field(default_factory=dict)
    """NAME -> how its results become an answer, where that is not by code."""
    resolves: dict[str, list[Json]] = field(default_factory=dict)
    """NAME -> the planner's resolutions for steps in need, one for each call."""

    def hold(self, name: str, who: str, turn: int = 1) -> Held:
        """The next call of this turn waits."""
        held = self.held.setdefault((name, who, turn), Held())
        self.given.append(held)
        return held

    def let_go(self) -> None:
        """Release every held call. A failed test would otherwise block the slots for later tests."""
        self.held.clear()
        while self.given:
            self.given.pop().go.set()

    def __call__(self, request: Json) -> Reply:
        said = first_message_text(request)
        turn = 1 + sum(message["role"] == "assistant" for message in request["messages"])
        properties = answer_properties(request)
        step = re.search(r"Do ([\w-]+) of ([\w-]+)\.</task>", said)
        if step:
            name, who = step[2], step[1]
        else:
            found = re.search(r"Request:\s+plan ([\w-]+)", said)
            roles = {
                "steps": "planner",
                "decision": "replanner",
                "resolutions": "resolver",
                "output": "synthesizer",
            }
            name, who = (
                found[1] if found else "",
                next((role for mark, role in roles.items() if mark in properties), "assessor"),
            )
        self.calls[name, who, turn] += 1
        if step and name in self.storms:
            self.storm_over.setdefault(name, time.monotonic() + self.storms[name])
            if time.monotonic() < self.storm_over[name]:
                return error_reply(429, kind="rate_limit_error")
        if (retry_after_s := self.refusals.pop((name, who, turn), None)) is not None:
            return error_reply(429, kind="rate_limit_error", retry_after=str(retry_after_s))
        held = self.held.pop((name, who, turn), None)
        if held:
            held.arrived.set()
        rest: dict[str, Any] = {"stall": held.go} if held else {}
        if who == "planner":
            return json_reply(self._plan(name), **rest)
        if who == "resolver":
            return json_reply({"resolutions": [self.resolves[name].pop(0)]}, **rest)
        if who == "replanner":
            said_so = self.replans.get(name, _goes_on)(
                sum(n for k, n in self.calls.items() if k[:2] == (name, who))
            )
            return replace(said_so, **rest)
        if who == "assessor":
            return json_reply(PASS, **rest)
        if turn < self.turns.get(name, 1):
            return tool_call_reply(("now", {}), **rest)
        return json_reply(self.envelopes.get((name, who), ENVELOPE), **rest)

    def task(self, name: str, step: str) -> str:
        if team := self.teams.get((name, step)):
            return f"plan {team}"
        return f"{self.tasks.get((name, step), '')} Do {step} of {name}.".strip()

    def _plan(self, name: str) -> Json:
        specialist = self.specialists.get(name, SPECIALIST)
        steps = [
            {
                "id": step,
                "specialist": "supervisor" if (name, step) in self.teams else specialist,
                "task": self.task(name, step),
                "depends_on": before.split(),
                "fallback": "-",
                "on_failure": self.on_failure.get(name),
                "join": self.joins.get(name, {}).get(step),
            }
            for step, before in self.plans[name].items()
        ]
        return {"steps": steps, "synthesis": self.syntheses.get(name, "merge"), "why": ""}


@dataclass(slots=True)
class Fleet:
    """The running system, with methods that observe it and inject faults."""

    system: RunningSystem
    server: MessagesServer
    model: Script
    jobs: Client

    def submit(
        self, name: str, *, turns: int = 1, webhook_url: str | None = None, **plan: str
    ) -> JobId:
        self.model.plans[name] = plan
        self.model.turns[name] = turns
        return self.jobs.submit(Request(f"plan {name}", webhook_url=webhook_url))

    def ends(self, job_id: JobId, within_s: float = 60.0) -> JobResult:
        """The result. Every handoff was issued once and has ended once; the job has ended
        once; nothing is reserved any more.
        """
        result = self.jobs.result(job_id, wait_s=within_s)
        assert result.status.ended, f"{job_id} has not ended: {self.shown(job_id)}"
        events = [recorded.event for recorded in self.jobs.events(job_id, follow=False)]
        for kind, at_most in ((HandoffIssued, 1), (HandoffFinished, 1)):
            seen = Counter(event.handoff_id for event in events if isinstance(event, kind))
            assert all(count <= at_most for count in seen.values()), seen
        assert sum(isinstance(event, JobEnded) for event in events) == 1
        reserved = self.redis.hmget(
            keys.job(job_id), "reserved_turns", "reserved_tokens", "reserved_usd"
        )
        assert all(int(value or 0) == 0 for value in reserved)
        return result

    def ends_well(self, job_id: JobId, within_s: float = 60.0) -> JobResult:
        result = self.ends(job_id, within_s)
        assert result.status is JobStatus.OK, (result.notes, result.answer, self.shown(job_id))
        return result

    def shown(self, job_id: JobId) -> list[str]:
        return [recorded.event.type for recorded in self.jobs.events(job_id, follow=False)]

    def standing(self, job_id: JobId, handoff_id: str) -> HandoffStanding:
        return self.jobs.store.jobs.handoffs(job_id, [HandoffId(handoff_id)])[HandoffId(handoff_id)]

    def pid_of(self, job_id: JobId, handoff_id: str) -> int:
        """The process that runs a handoff."""
        return int(self.standing(job_id, handoff_id).worker.rpartition(":")[2])

    def issued(self, job_id: JobId) -> list[HandoffIssued]:
        return [
            one.event
            for one in self.jobs.events(job_id, follow=False)
            if isinstance(one.event, HandoffIssued)
        ]

    def finished(self, job_id: JobId) -> list[HandoffFinished]:
        return [
            one.event
            for one in self.jobs.events(job_id, follow=False)
            if isinstance(one.event, HandoffFinished)
        ]

    def announced(self) -> set[int]:
        """The workers that are not about to end."""
        return {
            int(one.worker.rpartition(":")[2]) for one in self.jobs.store.presence.announcements()
        }

    def logged(self, what: str, job_id: JobId) -> bool:
        """Return whether a process has logged this text about the job."""
        logs = [
            self.system.processes.log_of(name).read_text(errors="replace")
            for name in self.system.processes.pids()
        ]
        return any(what in line and job_id in line for log in logs for line in log.splitlines())

    def log_of(self, pid: int) -> Path:
        """What this process writes."""
        return self.system.processes.log_of(
            next(name for name, its in self.system.processes.pids().items() if its == pid)
        )

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill a process and wait until it is gone. Otherwise the check of the fleet would count it
        as alive.
        """
        assert pid in self.system.processes.pids().values(), "only what this test has started"
        os.kill(pid, number)
        if number is signal.SIGKILL:
            wait_until(
                lambda: pid not in self.system.processes.pids().values(),
                what="the end of a process",
            )

    def occupy(self, name: str) -> tuple[JobId, list[Held]]:
        """Take all slots of all workers. New messages then stay in their queue."""
        held = [self.model.hold(name, step) for step in ("x", "y", "z")]
        job_id = self.submit(name, x="", y="", z="")
        for one in held:
            assert one.arrived.wait(30)
        return job_id, held

    def queued(self, job_id: JobId, steps: int) -> list[bytes]:
        """Return the messages of a job in the specialist's queue. Other jobs may have messages
        there: a lease of one second can end early on a busy machine.
        """

        def look() -> list[bytes]:
            found = [
                one
                for one in self.redis.lrange(SPECIALIST, 0, -1)
                if (is_for(json.loads(one)) or "").startswith(f"{job_id}/")
            ]
            return found if len(found) == steps else []

        return wait_until(look, what=f"{steps} messages in the queue")

    @property
    def redis(self) -> Any:
        return self.jobs.store.connection.redis

    def is_whole(self) -> bool:
        """All processes are there, and take work."""
        processes = self.system.processes
        return len(processes.pids()) == len(processes._children) and all(
            child.is_ready() for child in processes._children.values()
        )

    @property
    def kept_for_ever(self) -> list[str]:
        return keys_for_ever(self.redis)
