"""A supervisor in this process, on a real store and with the offline model.

The test does the work of the specialists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from celery import Celery
from pydantic import JsonValue

from handoff_queue.shared.broker.attempt_outcome import build_handoff_finished_event
from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.runtime.attempt import Attempts
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import presence
from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.graceful_shutdown import Drain
from handoff_queue.shared.store.leases import Leases
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.events import Event, HandoffIssued
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    HandoffResult,
    ResultStatus,
    StopReason,
    build_failed_result,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher, OutgoingHandoff
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.engine.decision_recorder import DecisionRecorder
from handoff_queue.supervisor.engine.deliveries import Deliveries
from handoff_queue.supervisor.engine.end_tasks import EndTasks
from handoff_queue.supervisor.engine.job_loop import JobLoop
from handoff_queue.supervisor.engine.role_runner import RoleRunner
from handoff_queue.supervisor.engine.webhooks import Webhooks
from handoff_queue.supervisor.lifecycle.state import JobState
from tests.doubles.handoffs import a_spec

SETTINGS = Settings(offline=True, lease_s=3_600)
"""A lease outlasts each test, also on a busy machine."""


class DyingDispatcher(Dispatcher):
    """Dispatcher that kills its process when the test sets a flag.

    `dies`: between a commit and the publication of its messages.
    """

    dies = False
    dies_waking = False
    """Kill the process between a write and the wake-up for it."""

    def publish_group(self, job_id: JobId, outgoing: Sequence[OutgoingHandoff]) -> None:
        if self.dies:
            raise KeyboardInterrupt
        super().publish_group(job_id, outgoing)

    def wake(self, job_id: JobId, suspects: Sequence[HandoffId] = ()) -> None:
        if self.dies_waking:
            raise KeyboardInterrupt
        super().wake(job_id, suspects)


@dataclass(slots=True)
class Shell:
    """The parts of one supervisor process. `another()` returns a second one on the same Redis."""

    url: str
    app: Celery
    drain: Drain = field(default_factory=Drain)
    end_broker: str | None = None
    """URL of the broker of a host's own Celery app."""
    settings: Settings = SETTINGS
    store: Store = field(init=False)
    dispatcher: DyingDispatcher = field(init=False)
    attempts: Attempts = field(init=False)
    advance: JobLoop = field(init=False)
    role_runner: RoleRunner = field(init=False)
    deliveries: Deliveries = field(init=False)
    jobs: Client = field(init=False)
    _announced: Announcement = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_store(self.url, self.settings, drain=self.drain)
        self.dispatcher = DyingDispatcher(self.app)
        leases = Leases(self.url, self.settings.lease_s, watchdog=False)
        self.attempts = Attempts(
            self.store,
            self.settings,
            "supervisor:1",
            leases,
            PayloadCache(self.store),
            Models(self.settings),
        )
        self.role_runner = RoleRunner(self.attempts, 4)
        library = self.attempts.payload_cache
        self.deliveries = Deliveries(
            Webhooks(self.store, None, ("127.0.0.1",)),
            EndTasks(self.store, library, self.app, self.end_broker, ("*",)),
        )
        self.advance = JobLoop(
            self.store,
            self.dispatcher,
            self.attempts,
            self.role_runner,
            self.deliveries,
        )
        self.jobs = Client(self.store, self.settings)

    def fact_checker(self, state: JobState) -> SpecialistSpec:
        """Return the fact-checker's spec that the supervisor uses."""
        return DecisionRecorder(self.store, PayloadCache(self.store)).get_fact_checker(state)

    def another(self) -> Shell:
        return Shell(self.url, self.app, settings=self.settings)

    def serve(self, *names: str) -> None:
        """Announce a worker with these specialists."""
        self.announce(*(a_spec(name=name) for name in names))

    def announce(self, *specs: SpecialistSpec, model: str = "offline") -> None:
        """Announce a worker with these specialists. A busy machine may need more than 15 s for a
        test, so the announcement is valid for the longest time that is read.
        """
        self._announced = Announcement(worker="w1", specialists=specs, slots=4, model=model)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(presence, "ANNOUNCED_FOR_S", presence.MAX_ANNOUNCEMENT_MS // 1000 - 1)
            self.store.presence.announce(self._announced)

    def leave(self) -> None:
        """Withdraw the worker's announcement."""
        self.store.presence.withdraw(self._announced)

    def submit(self, limits: JobLimits | None = None) -> JobId:
        return self.jobs.submit(Request("Compare Qdrant and Milvus", limits=limits or JobLimits()))

    def events(self, job_id: JobId) -> list[Event]:
        return [recorded.event for recorded in self.store.journal.read(job_id)]

    def kinds(self, job_id: JobId) -> list[str]:
        return [event.type for event in self.events(job_id)]

    def open(self, job_id: JobId) -> list[HandoffIssued]:
        """Return the open handoffs of specialists."""
        issued = [
            event
            for event in self.events(job_id)
            if isinstance(event, HandoffIssued) and event.group
        ]
        handoff_infos = self.store.jobs.read_handoffs(
            job_id, [event.handoff_id for event in issued]
        )
        return [
            event
            for event in issued
            if handoff_infos[event.handoff_id].state in ("issued", "running")
        ]

    def claim(self, job_id: JobId, event: HandoffIssued) -> HandoffClaim:
        """Claim a handoff as a worker does."""
        return self.store.claims.claim(
            ClaimRequest(job_id, HandoffId(event.handoff_id), event.handoff.digest, "worker:1")
        )

    def do(
        self,
        job_id: JobId,
        event: HandoffIssued,
        status: ResultStatus = ResultStatus.OK,
        output: JsonValue = "",
        stop_reason: StopReason = StopReason.INTERNAL_ERROR,
    ) -> None:
        """Finish one handoff as a worker does.

        `output` is the result's output; by default a sentence. `stop_reason` applies to a failure.
        """
        text = self.store.payloads.get(job_id, [event.handoff.digest])[event.handoff.digest]
        handoff = AgentHandoff.from_json(text)
        claim = self.claim(job_id, event)
        result = (
            build_failed_result(handoff, "it broke", stop_reason)
            if status is ResultStatus.FAILED
            else _well(handoff, output)
        )
        if status is ResultStatus.NEEDS_INPUT:
            result = result.model_copy(
                update={"status": status, "output": None, "needs": "the year"}
            )
        claim.finish(
            claim.build_finish_request(result, (build_handoff_finished_event(result, "worker:1"),))
        )

    def finish_all(self, job_id: JobId) -> None:
        """Finish all open handoffs until no handoff is open."""
        while open_handoffs := self.open(job_id):
            for event in open_handoffs:
                self.do(job_id, event)
            self.advance(job_id)

    def close(self) -> None:
        self.deliveries.finish()
        self.store.connection.close()


@contextmanager
def running_shell(
    redis_url: str, *specialists: str, settings: Settings = SETTINGS
) -> Iterator[Shell]:
    """Run a supervisor in this process, and announce workers of these specialists."""
    queues = (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE, *specialists)
    app = make_app("test", redis_url, settings, queues)
    supervisor = Shell(redis_url, app, settings=settings)
    if specialists:
        supervisor.serve(*specialists)
    yield supervisor
    supervisor.close()


def _well(handoff: AgentHandoff, output: JsonValue) -> HandoffResult:
    return HandoffResult(
        handoff_id=handoff.handoff_id,
        job_id=handoff.job_id,
        step_id=handoff.step_id,
        attempt=handoff.attempt,
        status=ResultStatus.OK,
        output=output or f"What {handoff.step_id} found.",
    )
