"""A fleet in real processes, and the scripted model that it calls.

Each test chooses a NAME for its job: the request is `plan NAME`, and the tasks are
`Do STEP of NAME.`. The model finds its script by this name, so tests share the processes.
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

from handoff_queue.chaos.leaks import find_keys_without_expiry
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fair_queue import get_member
from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.types.budget_measures import MEASURES
from handoff_queue.shared.types.events import HandoffFinished, HandoffIssued, JobEnded, JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
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
from tests.waiting import MAX_WAIT_S, wait_until

LEASE_S = 1.2
RECOVERY_S = LEASE_S + 5
"""Promised time of recovery, in seconds."""
SHORT_LEASES = {"HANDOFF_LEASE_S": str(LEASE_S), "HANDOFF_SWEEP_INTERVAL_S": "0.2"}
"""Settings with which the fleet repairs lost messages within `RECOVERY_S`."""
SPECIALIST = "generalist"
ENVELOPE = {
    "status": "ok",
    "output": "So it is.",
    "claims": [],
    "confidence": 0.9,
    "needs": None,
    "problem": None,
}
KEEP_PLAN = {"decision": "go_on", "why": "-"}
PASS = {"verdict": "PASS", "revisions": [], "open_points": []}


def _keep_plan(_number: int) -> Reply:
    return json_reply(KEEP_PLAN)


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A model call that gets its answer after the test sets `release`."""

    arrived: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Script:
    """Script of the model. A step's last turn answers. Its earlier turns call the tool `now`."""

    plans: dict[str, dict[str, str]] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    """NAME -> turns of each step, 1 by default."""
    specialists: dict[str, str] = field(default_factory=dict)
    """NAME -> specialist of each step, `SPECIALIST` by default."""
    on_failure: dict[str, str] = field(default_factory=dict)
    """NAME -> `on_failure` policy of its steps. Without an entry, the default applies."""
    joins: dict[str, dict[str, Json]] = field(default_factory=dict)
    """NAME -> step -> join. Without an entry, a step needs all results."""
    calls: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """(NAME, step or role, turn) -> number of received calls."""
    held: dict[tuple[str, str, int], HeldCall] = field(default_factory=dict)
    """(NAME, step or role, turn) -> a future call that the model holds."""
    held_calls: list[HeldCall] = field(default_factory=list)
    """Every call that the current test holds or has held."""
    refusals: dict[tuple[str, str, int], float] = field(default_factory=dict)
    """(NAME, step or role, turn) -> retry-after in seconds of a 429 for the next call."""
    storms: dict[str, float] = field(default_factory=dict)
    """NAME -> length of a storm in seconds. It begins with the first call of a step. Until its
    end, every call gets a 429 without a retry-after.
    """
    envelopes: dict[tuple[str, str], Json] = field(default_factory=dict)
    """(NAME, step) -> answer of its last turn. Without an entry, `ENVELOPE`."""
    tasks: dict[tuple[str, str], str] = field(default_factory=dict)
    """(NAME, step) -> text of the task before `Do STEP of NAME.`"""
    teams: dict[tuple[str, str], str] = field(default_factory=dict)
    """(NAME, step) -> NAME of the child job that does the step."""
    storm_over: dict[str, float] = field(default_factory=dict)
    """NAME -> end of its storm, by `time.monotonic`."""
    replans: dict[str, Callable[[int], Reply]] = field(default_factory=dict)
    """NAME -> replanner's reply to its nth call. Without an entry, the plan stays."""
    syntheses: dict[str, str] = field(default_factory=dict)
    """NAME -> method of the synthesis. Without an entry, code merges the results."""
    resolves: dict[str, list[Json]] = field(default_factory=dict)
    """NAME -> planner's resolutions for steps in need, one for each call."""

    def hold(self, name: str, role: str, turn: int = 1) -> HeldCall:
        """Hold the next call of this turn until the test sets its `release`."""
        call = self.held.setdefault((name, role, turn), HeldCall())
        self.held_calls.append(call)
        return call

    def release_all(self) -> None:
        """Release every held call. A failed test would otherwise block the slots for later
        tests.
        """
        self.held.clear()
        while self.held_calls:
            self.held_calls.pop().release.set()

    def __call__(self, request: Json) -> Reply:
        prompt = first_message_text(request)
        turn = 1 + sum(message["role"] == "assistant" for message in request["messages"])
        properties = answer_properties(request)
        step = re.search(r"Do ([\w-]+) of ([\w-]+)\.</task>", prompt)
        if step:
            name, agent = step[2], step[1]
        else:
            plan_line = re.search(r"Request:\s+plan ([\w-]+)", prompt)
            roles = {
                "steps": "planner",
                "decision": "replanner",
                "resolutions": "resolver",
                "verdict": "assessor",
            }
            name, agent = (
                plan_line[1] if plan_line else "",
                next(
                    (role for field_name, role in roles.items() if field_name in properties),
                    "synthesizer",
                ),
            )
        self.calls[name, agent, turn] += 1
        if step and name in self.storms:
            self.storm_over.setdefault(name, time.monotonic() + self.storms[name])
            if time.monotonic() < self.storm_over[name]:
                return error_reply(429, kind="rate_limit_error")
        held = self.held.pop((name, agent, turn), None)
        if held:
            held.arrived.set()
        options: dict[str, Any] = {"stall": held.release} if held else {}
        if (retry_after_s := self.refusals.pop((name, agent, turn), None)) is not None:
            refusal = error_reply(429, kind="rate_limit_error", retry_after=str(retry_after_s))
            return replace(refusal, stall_before_headers=bool(held), **options)
        if agent == "planner":
            return json_reply(self._plan(name), **options)
        if agent == "resolver":
            return json_reply({"resolutions": [self.resolves[name].pop(0)]}, **options)
        if agent == "replanner":
            reply = self.replans.get(name, _keep_plan)(
                sum(count for key, count in self.calls.items() if key[:2] == (name, agent))
            )
            return replace(reply, **options)
        if agent == "assessor":
            return json_reply(PASS, **options)
        if turn < self.turns.get(name, 1):
            return tool_call_reply(("now", {}), **options)
        return json_reply(self.envelopes.get((name, agent), ENVELOPE), **options)

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
        """Submit a job with this plan. `add_plan` explains the arguments."""
        self.add_plan(name, plan, turns=turns)
        return self.jobs.submit(Request(f"plan {name}", webhook_url=webhook_url))

    def add_plan(self, name: str, plan: dict[str, str], *, turns: int = 1) -> None:
        """Give the planner the plan of the job with this name. It has steps, each with the ids of
        the steps that it needs, and the number of turns of each step.

        The files of tests share a fleet. If an earlier test had a job with this name, its calls
        count no more.
        """
        for call in list(self.model.calls):
            if call[0] == name:
                del self.model.calls[call]
        self.model.plans[name] = plan
        self.model.turns[name] = turns

    def wait_for_end(self, job_id: JobId, within_s: float = 60.0) -> JobResult:
        """Wait for the end of the job, check its journal and its budget, and return its
        result.

        Every handoff was issued once and has ended at most once. The job has ended once. It
        has no reserved budget.
        """
        result = self.jobs.result(job_id, wait_s=within_s)
        assert result.status.has_ended, f"{job_id} has not ended: {self.event_types(job_id)}"
        events = [recorded.event for recorded in self.jobs.events(job_id, follow=False)]
        for kind, most in ((HandoffIssued, 1), (HandoffFinished, 1)):
            counts = Counter(event.handoff_id for event in events if isinstance(event, kind))
            assert all(count <= most for count in counts.values()), counts
        assert sum(isinstance(event, JobEnded) for event in events) == 1
        names = [measure.reserved for measure in MEASURES]
        reserved = self.redis.hmget(keys.progress(job_id), names)
        assert all(int(value or 0) == 0 for value in reserved)
        return result

    def wait_for_success(self, job_id: JobId, within_s: float = 60.0) -> JobResult:
        """Wait for the end of the job like `wait_for_end`, and check that its status is OK."""
        result = self.wait_for_end(job_id, within_s)
        assert result.status is JobStatus.OK, (
            result.notes,
            result.answer,
            self.event_types(job_id),
        )
        return result

    def usual_s(self) -> float:
        """Return the seconds that an undisturbed job of one step takes on this machine now."""
        return self.wait_for_success(self.submit("usual", a="")).wall_s

    def event_types(self, job_id: JobId) -> list[str]:
        """Return the types of the journal's events, in order."""
        return [recorded.event.type for recorded in self.jobs.events(job_id, follow=False)]

    def handoff_info(self, job_id: JobId, handoff_id: str) -> HandoffInfo:
        return self.jobs.store.jobs.read_handoffs(job_id, [HandoffId(handoff_id)])[
            HandoffId(handoff_id)
        ]

    def pid_of(self, job_id: JobId, handoff_id: str) -> int:
        """Return the id of the process that runs a handoff."""
        return int(self.handoff_info(job_id, handoff_id).worker.rpartition(":")[2])

    def issued(self, job_id: JobId) -> list[HandoffIssued]:
        return [
            recorded.event
            for recorded in self.jobs.events(job_id, follow=False)
            if isinstance(recorded.event, HandoffIssued)
        ]

    def finished(self, job_id: JobId) -> list[HandoffFinished]:
        return [
            recorded.event
            for recorded in self.jobs.events(job_id, follow=False)
            if isinstance(recorded.event, HandoffFinished)
        ]

    def announced_workers(self) -> set[int]:
        """Return the process ids of the workers that announce themselves. A stopping worker
        does not.
        """
        return {
            int(announcement.worker.rpartition(":")[2])
            for announcement in self.jobs.store.presence.read_announcements()
        }

    def has_logged(self, text: str, job_id: JobId) -> bool:
        """Return whether a process has logged this text about the job."""
        logs = [
            self.system.processes.get_log_path(name).read_text(errors="replace")
            for name in self.system.processes.get_pids()
        ]
        return any(text in line and job_id in line for log in logs for line in log.splitlines())

    def log_of(self, pid: int) -> Path:
        """Return the log file of a process."""
        return self.system.processes.get_log_path(
            next(
                name
                for name, process_id in self.system.processes.get_pids().items()
                if process_id == pid
            )
        )

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a process of the fleet. After SIGKILL, wait until the process is
        gone, so that `is_complete` does not count it as alive.
        """
        assert pid in self.system.processes.get_pids().values(), "only what this test has started"
        os.kill(pid, number)
        if number is signal.SIGKILL:
            wait_until(
                lambda: pid not in self.system.processes.get_pids().values(),
                expected="the end of a process",
            )

    def occupy(self, name: str) -> tuple[JobId, list[HeldCall]]:
        """Take all slots of all workers. New messages then stay in their queue."""
        calls = [self.model.hold(name, step) for step in ("x", "y", "z")]
        job_id = self.submit(name, x="", y="", z="")
        for call in calls:
            assert call.arrived.wait(MAX_WAIT_S)
        return job_id, calls

    def queued(self, job_id: JobId, steps: int) -> list[bytes]:
        """Wait for this number of the job's messages in the specialist's queue, and return
        them.

        Messages of other jobs do not count: on a busy machine, the sweeper may publish a
        handoff of an earlier test again.
        """

        def messages() -> list[bytes]:
            matching = [
                message
                for message in self.redis.lrange(SPECIALIST, 0, -1)
                if (get_member(json.loads(message)) or "").startswith(f"{job_id}/")
            ]
            return matching if len(matching) == steps else []

        return wait_until(messages, expected=f"{steps} messages in the queue")

    @property
    def admin(self) -> Client:
        """Client with all rights. Other than `jobs`, it may pause roles and drop dead letters."""
        return self.system.admin

    @property
    def redis(self) -> Any:
        """Redis with all rights."""
        return self.admin.store.connection.redis

    def is_complete(self) -> bool:
        """Return whether every process of the fleet runs and takes work."""
        processes = self.system.processes
        return len(processes.get_pids()) == len(processes._children) and all(
            child.is_ready() for child in processes._children.values()
        )

    @property
    def keys_without_expiry(self) -> list[str]:
        """Keys of the product in Redis that never expire."""
        return find_keys_without_expiry(self.redis)
