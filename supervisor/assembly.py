"""The Celery app of a supervisor process, its tasks, and the parts that run them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from celery import Celery, signals

from handoff_queue.shared.agent.prices import build_prices
from handoff_queue.shared.broker.celery_app import DEFAULT_THREADS, make_app, make_exit_on_error
from handoff_queue.shared.broker.celery_signals import WorkerSignals
from handoff_queue.shared.broker.consumer import ConsumptionControl
from handoff_queue.shared.broker.readiness import touch_while_alive
from handoff_queue.shared.broker.task_outcome import (
    ParsedRequest,
    keep_unreadable,
    register,
    run_task,
)
from handoff_queue.shared.observability.logs import logged_as
from handoff_queue.shared.observability.telemetry import get_telemetry
from handoff_queue.shared.runtime.models import MakeModel, create_provider_models
from handoff_queue.shared.runtime.process_resources import Announcer, Process, start_process
from handoff_queue.shared.settings.settings import Settings, get_redis_url
from handoff_queue.shared.store.daily_budgets import read_caps
from handoff_queue.shared.trust.signatures import open_trust
from handoff_queue.shared.types.ids import HandoffId, JobId, is_job_id
from handoff_queue.shared.types.names import (
    ADVANCE,
    ROLES,
    ROLES_QUEUE,
    SUBMISSIONS_QUEUE,
    SUPERVISOR_QUEUE,
    get_task,
)
from handoff_queue.shared.types.presence import count_role_slots
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.engine.batch_canceller import BatchCanceller
from handoff_queue.supervisor.engine.deliveries import Deliveries
from handoff_queue.supervisor.engine.end_tasks import EndTasks
from handoff_queue.supervisor.engine.job_loop import JobLoop
from handoff_queue.supervisor.engine.role_runner import RoleRunner
from handoff_queue.supervisor.engine.schedule_starter import ScheduleStarter
from handoff_queue.supervisor.engine.sweeper import SWEEPS_PER_LEASE, Sweeper
from handoff_queue.supervisor.engine.webhooks import Webhooks
from handoff_queue.supervisor.roles.briefs import read_role_once

QUEUES = (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)


@dataclass(frozen=True, slots=True)
class Supervisor:
    """The parts of one supervisor process."""

    process: Process
    advance: JobLoop
    sweeper: Sweeper
    role_runner: RoleRunner
    deliveries: Deliveries
    consumption: ConsumptionControl
    """Leaves out the roles queue while no role slot is free."""


class _LazySupervisor:
    """The supervisor of this process. It is built at its first use, also in a forked process."""

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

    def handle_start(self, **_: Any) -> None:
        """Check the key of this process, and make the model clients, before the worker takes a
        message.

        Raises:
            UserError: the key may not decide about jobs.
        """
        open_trust(self._settings).check_supervisor()
        if self._make_model is None:
            self._make_model = create_provider_models(self._settings)

    def on_worker_ready(self, sender: Any = None, **_: Any) -> None:
        """Announce the supervisor, start its sweeper, and start to control the roles queue.

        Args:
            sender: Celery's consumer.
        """
        supervisor = self()
        roles = [read_role_once(name) for name in ROLES]
        announcer = Announcer.create(supervisor.process, self._app, str(sender.hostname), roles)
        supervisor.sweeper.start(announcer.now)
        supervisor.consumption.attach(
            sender,
            [ROLES_QUEUE],
            lambda _: not supervisor.role_runner.is_full,
            resumes_quickly=True,
        )

    def handle_stop(self, **_: Any) -> None:
        """Begin to drain the process, and stop the sweeper.

        Celery calls this in a signal handler, at any point of the main thread, so it takes no
        lock. If the supervisor is just being built, the flag stops it after that.
        """
        self._is_stopping = True
        if self._built is not None:
            self._end(self._built)

    def on_worker_shutdown(self, **_: Any) -> None:
        """Wait for running deliveries, and until the announcement is withdrawn. Export the
        remaining telemetry.
        """
        if self._built is not None:
            self._built.deliveries.finish()
            self._built.sweeper.wait_until_withdrawn()
        get_telemetry().stop()

    def _end(self, supervisor: Supervisor) -> None:
        supervisor.process.drain.begin(self._settings.drain_s)
        supervisor.sweeper.stop()


def build(app: Celery, settings: Settings, make_model: MakeModel | None) -> Supervisor:
    """Start the process and build the parts of its supervisor."""
    process = start_process("handoff-supervisor", settings, make_model)
    if settings.check_specialists or process.store.trust.is_on:
        digests = _compute_file_digests(settings)
        process.store.presence.compare_with(digests)
        if settings.check_specialists:
            process.store.presence.accept_only(digests)
    slots = int(app.conf.worker_concurrency or DEFAULT_THREADS)
    dispatcher = Dispatcher(app, process.store.trust, process.store.connection.sealing)
    webhook_secret = None
    if settings.webhook_secret:
        webhook_secret = settings.webhook_secret.get_secret_value()
    end_broker_url = None
    if settings.on_end_broker_url:
        end_broker_url = settings.on_end_broker_url.get_secret_value()
    consumption = ConsumptionControl()
    role_runner = RoleRunner(process.attempts, count_role_slots(slots), consumption.schedule_update)
    end_tasks = EndTasks(
        process.store,
        process.attempts.payload_cache,
        app,
        end_broker_url,
        settings.on_end_tasks or (),
    )
    webhooks = Webhooks(process.store, webhook_secret, settings.webhook_private_hosts)
    deliveries = Deliveries(webhooks, end_tasks)
    advance = JobLoop(process.store, dispatcher, process.attempts, role_runner, deliveries)
    schedule_starter = ScheduleStarter(process.store, dispatcher, settings)
    batch_canceller = BatchCanceller(
        process.store.unwanted_batches,
        lambda: process.attempts.models.get_batches(settings.specialist_model),
        build_prices(settings),
    )
    sweeper = Sweeper(
        process.store,
        dispatcher,
        process.name,
        interval_s=min(settings.sweep_interval_s, settings.lease_s / SWEEPS_PER_LEASE),
        keep_s=settings.retention_s,
        caps=read_caps(settings),
        start_schedules=schedule_starter.start_due,
        cancel_batches=batch_canceller.start,
    )
    return Supervisor(process, advance, sweeper, role_runner, deliveries, consumption)


def _compute_file_digests(settings: Settings) -> dict[str, str]:
    """Return the digest of each specialist in the files of this machine.

    Raises:
        UserError: a file is not valid.
    """
    from handoff_queue.shared.specialists import find_specialists_folder, load_specialists

    specialists = load_specialists(find_specialists_folder(), *settings.specialists_dirs)
    return {name: spec.content_digest for name, spec in specialists.items()}


def prepare_forks() -> None:
    """Read the roles once, for forked supervisors."""
    for name in ROLES:
        read_role_once(name)


def make_supervisor_app(settings: Settings, make_model: MakeModel | None = None) -> Celery:
    """Return the app with its tasks. It connects to nothing until a worker starts."""
    app = make_app("supervisor", get_redis_url(settings), settings, QUEUES)
    supervisor = _LazySupervisor(app, settings, make_model)

    def advance(_task: object, job_id: object, suspects: object = ()) -> None:
        """Advance the job. A message with other arguments becomes a dead letter.

        Args:
            suspects: handoffs that may have lost their worker.
        """
        if (
            not isinstance(job_id, str)
            or not is_job_id(job_id)
            or not isinstance(suspects, list | tuple)
        ):
            supervisor().process.store.dead_letters.add(
                SUPERVISOR_QUEUE,
                "advance takes a job id and a list of handoff ids",
                repr(job_id)[:1_000],
            )
            return
        handoff_ids = [HandoffId(str(suspect)) for suspect in suspects]
        with logged_as(job_id=job_id):
            supervisor().advance(JobId(job_id), handoff_ids)

    register(app, ADVANCE, advance, ParsedRequest)
    for role in ROLES:
        register(app, get_task(role), _build_role_task(supervisor, role))
    keep_unreadable(app, lambda: supervisor().process.store)
    worker = WorkerSignals(app)
    worker.connect(signals.worker_init, make_exit_on_error(supervisor.handle_start))
    worker.connect(signals.worker_ready, make_exit_on_error(supervisor.on_worker_ready))
    touch_while_alive(app)  # after the receiver that announces the process
    worker.connect(signals.worker_shutting_down, supervisor.handle_stop)
    worker.connect(signals.worker_shutdown, supervisor.on_worker_shutdown)
    return app


def _build_role_task(lazy_supervisor: _LazySupervisor, role: str) -> Any:
    def run_role(self: Any, text: object) -> str:
        supervisor = lazy_supervisor()
        return run_task(
            self, supervisor.process.store, role, text, supervisor.advance.run_queued_role
        )

    return run_role
