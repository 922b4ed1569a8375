"""How a supervisor process is put together: its Celery app, its tasks, and the parts behind them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from celery import Celery, signals

from handoff_queue.shared.broker.celery_app import DEFAULT_THREADS, make_app, or_exit
from handoff_queue.shared.broker.consumption_control import ConsumptionControl
from handoff_queue.shared.broker.readiness import touch_while_alive
from handoff_queue.shared.broker.task_outcome import (
    ParsedRequest,
    keep_unreadable,
    register,
    run_task,
)
from handoff_queue.shared.broker.worker_signals import WorkerSignals
from handoff_queue.shared.observability.logs import logged_as
from handoff_queue.shared.observability.telemetry import telemetry
from handoff_queue.shared.runtime.models import MakeModel, provider_models
from handoff_queue.shared.runtime.node import Announcer
from handoff_queue.shared.runtime.process import Process, redis_url_of, start_process
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.daily_budget import caps_from
from handoff_queue.shared.types.ids import HandoffId, JobId, is_job_id
from handoff_queue.shared.types.names import (
    ADVANCE,
    ROLES,
    ROLES_QUEUE,
    SUBMISSIONS_QUEUE,
    SUPERVISOR_QUEUE,
    task_of,
)
from handoff_queue.supervisor.client.dispatch import Dispatcher
from handoff_queue.supervisor.engine.job_loop import JobLoop
from handoff_queue.supervisor.engine.notifications import EndTasks, Webhooks
from handoff_queue.supervisor.engine.role_runner import RoleRunner
from handoff_queue.supervisor.engine.sweeper import SWEEPS_PER_LEASE, Sweeper
from handoff_queue.supervisor.roles.instructions import read_role_once

if TYPE_CHECKING:
    from handoff_queue.shared.types.specialist import SpecialistSpec

QUEUES = (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)


@dataclass(frozen=True, slots=True)
class Supervisor:
    """The parts of one supervisor process."""

    process: Process
    advance: JobLoop
    sweeper: Sweeper
    role_runner: RoleRunner
    taking: ConsumptionControl


class _Once:
    """Builds the supervisor at its first use, in the process that uses it."""

    def __init__(self, app: Celery, settings: Settings, make_model: MakeModel | None) -> None:
        self._app = app
        self._settings = settings
        self._make_model = make_model
        self._lock = threading.Lock()
        self._built: Supervisor | None = None
        self._is_stopping = False

    def __call__(self) -> Supervisor:
        with self._lock:
            if self._built is None:
                self._built = build(self._app, self._settings, self._make_model)
                if self._is_stopping:
                    self._end(self._built)
            return self._built

    def starting(self, **_: Any) -> None:
        """Before it takes anything."""
        if self._make_model is None:
            self._make_model = provider_models(self._settings)

    def started(self, sender: Any = None, **_: Any) -> None:
        """Return when the supervisor is announced."""
        supervisor = self()
        roles: list[SpecialistSpec] = []
        for name in ROLES:
            roles.append(read_role_once(name))
        itself = Announcer.of(supervisor.process, self._app, str(sender.hostname), roles)
        supervisor.sweeper.start(itself.now)
        supervisor.taking.attach(
            sender, [ROLES_QUEUE], lambda _: not supervisor.role_runner.is_full, in_a_hurry=True
        )

    def stopping(self, **_: Any) -> None:
        """Set the flag that stops the supervisor. It runs in a signal handler at any point of its
        thread, so it takes no lock. A thread that is just building the supervisor sees the flag.
        """
        self._is_stopping = True
        if self._built is not None:
            self._end(self._built)

    def stopped(self, **_: Any) -> None:
        """Clean up when nothing runs any more."""
        if self._built is not None:
            self._built.sweeper.wait_until_withdrawn()
        telemetry().stop()

    def _end(self, supervisor: Supervisor) -> None:
        supervisor.process.drain.begin(self._settings.drain_s)
        supervisor.sweeper.stop()


def build(app: Celery, settings: Settings, make_model: MakeModel | None) -> Supervisor:
    """A supervisor out of its parts."""
    process = start_process("handoff-supervisor", settings, watchdog=True, make_model=make_model)
    slots = int(app.conf.worker_concurrency or DEFAULT_THREADS)
    dispatcher = Dispatcher(app)
    secret = None
    if settings.webhook_secret:
        secret = settings.webhook_secret.get_secret_value()
    taking = ConsumptionControl()
    role_runner = RoleRunner(process.attempts, slots // 2, taking.changed)
    broker = settings.on_end_broker_url
    end_tasks = EndTasks(
        process.store,
        process.attempts.library,
        app,
        broker.get_secret_value() if broker else None,
        settings.on_end_tasks or (),
    )
    webhooks = Webhooks(process.store, secret)
    advance = JobLoop(process.store, dispatcher, process.attempts, role_runner, webhooks, end_tasks)
    sweeper = Sweeper(
        process.store,
        dispatcher,
        process.name,
        interval_s=min(settings.sweep_interval_s, settings.lease_s / SWEEPS_PER_LEASE),
        keep_s=settings.retention_s,
        caps=caps_from(settings),
    )
    return Supervisor(process, advance, sweeper, role_runner, taking)


def make_supervisor_app(settings: Settings, make_model: MakeModel | None = None) -> Celery:
    """The app with its tasks; nothing connects until a worker starts."""
    app = make_app("supervisor", redis_url_of(settings), settings, QUEUES)
    once = _Once(app, settings, make_model)

    def advance(
        _task: object, job_id: object, suspects: object = (), _woken_by: object = ""
    ) -> None:
        """`_woken_by`: what messages of the version before say."""
        if (
            not isinstance(job_id, str)
            or not is_job_id(job_id)
            or not isinstance(suspects, list | tuple)
        ):
            once().process.store.dead_letters.add(
                SUPERVISOR_QUEUE,
                "advance takes a job id and a list of handoff ids",
                repr(job_id)[:1_000],
            )
            return
        with logged_as(job_id=job_id):
            once().advance(JobId(job_id), [HandoffId(str(item)) for item in suspects])

    register(app, ADVANCE, advance, ParsedRequest)
    for role in ROLES:
        register(app, task_of(role), _role_task(once, role))
    keep_unreadable(app, lambda: once().process.store)
    worker = WorkerSignals(app)
    worker.connect(signals.worker_init, or_exit(once.starting))
    worker.connect(signals.worker_ready, or_exit(once.started))
    touch_while_alive(app)  # after the receiver that announces the process
    worker.connect(signals.worker_shutting_down, once.stopping)
    worker.connect(signals.worker_shutdown, once.stopped)
    return app


def _role_task(once: _Once, role: str) -> Any:
    def run_role(self: Any, text: object) -> str:
        supervisor = once()
        return run_task(
            self, supervisor.process.store, role, text, supervisor.advance.run_queued_role
        )

    return run_role
