"""Assembly of a worker process: its Celery app, a task for each specialist, and the parts that
these tasks use.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery import Celery, signals

from handoff_queue.shared.broker.attempt_outcome import AttemptEnd
from handoff_queue.shared.broker.celery_app import make_app, make_exit_on_error
from handoff_queue.shared.broker.celery_signals import WorkerSignals
from handoff_queue.shared.broker.consumer import ConsumptionControl
from handoff_queue.shared.broker.message_publisher import publish, wake_up
from handoff_queue.shared.broker.readiness import touch_while_alive
from handoff_queue.shared.broker.task_outcome import keep_unreadable, register, run_task
from handoff_queue.shared.broker.worker_slots import SLOTS
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.observability.telemetry import get_telemetry
from handoff_queue.shared.observability.telemetry_factory import start_telemetry
from handoff_queue.shared.providers.model_facts import create_model_server, without_code
from handoff_queue.shared.runtime.models import MakeModel, Models, create_provider_models
from handoff_queue.shared.runtime.process_resources import Announcer, Process, start_process
from handoff_queue.shared.runtime.shared_run import check_sharing
from handoff_queue.shared.settings.agent_sdk_cli import find_agent_sdk_fault
from handoff_queue.shared.settings.settings import Settings, get_redis_url
from handoff_queue.shared.specialists import load_servers, load_specialists
from handoff_queue.shared.specialists.policy_file import read_rules
from handoff_queue.shared.store.pauses import CHECK_EVERY_S
from handoff_queue.shared.store.presence import ANNOUNCED_FOR_S, FOUND_WITHIN_S, WITHDRAWN_WITHIN_S
from handoff_queue.shared.trust.signatures import open_trust
from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE, get_task
from handoff_queue.shared.types.origins import CODE_EXECUTION, RUN_CODE
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.shared.types.specialist import RunnerKind, SpecialistSpec
from handoff_queue.workers.handoff_task import run_handoff
from handoff_queue.workers.host_task_step import HostTasks
from handoff_queue.workers.index.index import DocumentIndex
from handoff_queue.workers.specialists import BUILT_IN
from handoff_queue.workers.tools.registry import Registry, build_registry
from handoff_queue.workers.tools.sandbox import find_sandbox_fault
from handoff_queue.workers.tools.user_tools import read_entry_points

SERVICE = "handoff-worker"
log = get_log(__name__)


@dataclass(slots=True)
class Worker:
    """The parts of one worker process."""

    process: Process
    registry: Registry


class LazyWorker:
    """Builds the worker at its first use, in the process that uses it. It announces the
    worker, and handles the signals of its start and its end.
    """

    def __init__(
        self,
        app: Celery,
        settings: Settings,
        specialists: Mapping[str, SpecialistSpec],
        registry: Registry,
        make_model: MakeModel | None,
    ) -> None:
        self._app = app
        self._settings = settings
        self._specialists = specialists
        self._registry = registry
        self._make_model = make_model
        self.host = HostTasks(app, settings)
        self._lock = threading.Lock()
        self._built: Worker | None = None
        self._not_served: dict[str, str] = {}
        """Specialist that this machine cannot run -> the reason."""
        self._stop = threading.Event()
        self._consumption = ConsumptionControl()
        self._paused: frozenset[str] = frozenset()
        self._announcing: threading.Thread | None = None

    def __call__(self) -> Worker:
        with self._lock:
            if self._built is None:
                self._built = Worker(
                    start_process(SERVICE, self._settings, self._make_model),
                    self._registry,
                )
                if self._stop.is_set():
                    self._built.process.drain.begin(self._settings.drain_s)
            return self._built

    def handle_start(self, **_: Any) -> None:
        """Load the provider's code before the worker takes a message."""
        if self._make_model is None:
            self._make_model = create_provider_models(self._settings)

    def check(self, **_: Any) -> None:
        """Check the key of this worker, its sandbox, and the models that run code at the provider.
        Check the Claude Agent SDK, and the specialists that are Celery tasks of the host. Celery
        calls this when the worker's queues are known. A specialist that needs a missing part is not
        served.

        Raises:
            UserError: the key may not do the work of all specialists, or no specialist can be
                served. Or a setting that a specialist needs is missing or invalid.
        """
        with_code = [
            spec.name for spec in self._list_specialists_to_serve() if RUN_CODE in spec.tools
        ]
        self._leave_out(with_code, "no sandbox", find_sandbox_fault)
        for spec in self._list_specialists_to_serve():
            if CODE_EXECUTION in spec.tools:
                fault = partial(self._find_code_fault, spec)
                self._leave_out([spec.name], "no code execution", fault, where="")
        with_runner = [
            spec.name
            for spec in self._list_specialists_to_serve()
            if spec.runner is RunnerKind.AGENT_SDK
        ]
        self._leave_out(with_runner, "no Claude Agent SDK", find_agent_sdk_fault)
        served = self._list_specialists_to_serve()
        open_trust(self._settings).check_worker([spec.name for spec in served])
        for spec in served:
            if spec.celery_task is not None:
                self.host.check(spec)

    def _leave_out(
        self,
        needing: Sequence[str],
        lack: str,
        find_fault: Callable[[], str],
        where: str = " on this machine",
    ) -> None:
        """Stop serving these specialists, if there is a fault.

        Args:
            lack: the missing part, in words.
            find_fault: returns the reason of the fault, or "".
            where: words that follow the missing part.

        Raises:
            UserError: no specialist is left.
        """
        if not needing:
            return
        fault = find_fault()
        if not fault:
            return
        names = ", ".join(needing)
        if len(needing) == len(self._list_specialists_to_serve()):
            raise UserError(f"cannot serve {names}: {lack}{where}: {fault}")
        log.warning(f"{lack}{where}, so it does not serve", names=names, why=fault)
        self._not_served |= dict.fromkeys(needing, f"{lack}: {fault}")
        self._app.amqp.queues.deselect(needing)

    def _find_code_fault(self, spec: SpecialistSpec) -> str:
        """Return why no model of a specialist can run code at the provider, or "". The model of
        the jobs, if it is known, replaces those of the specialist. A server that does not know
        whether a model can counts as able.
        """
        if self._settings.is_offline or self._settings.model_provider != "anthropic":
            return ""
        choices = Models(self._settings).list_choices(self._settings.job_model, spec)
        models = [choice.name for choice in choices]
        unable = dict(without_code(create_model_server(self._settings), models))
        if len(unable) < len(models):
            return ""
        return f"{' and '.join(unable)} cannot run code; {next(iter(unable.values()))}"

    def on_worker_ready(self, sender: Any, **_: Any) -> None:
        """Start the telemetry and the thread of announcements. Return after the first try to
        announce this worker, or after `FOUND_WITHIN_S`.
        """
        start_telemetry(SERVICE, self._settings)
        served = self._list_specialists_to_serve()
        queues = [spec.name for spec in served]
        self._consumption.attach(sender, queues, lambda queue: queue not in self._paused)
        first_try = threading.Event()
        self._announcing = threading.Thread(
            target=self._announce_for_ever,
            args=(served, sender.pool, str(sender.hostname), first_try),
            name="announcements",
            daemon=True,
        )
        self._announcing.start()
        first_try.wait(FOUND_WITHIN_S)

    def stop_consuming(self, role: str) -> None:
        """Stop consuming the queue of a role at once, because one of its handoffs was put on
        hold.
        """
        self._set_paused(self._paused | {role})

    def _set_paused(self, paused: frozenset[str]) -> None:
        if paused != self._paused:
            self._paused = paused
            self._consumption.schedule_update()

    def handle_stop(self, **_: Any) -> None:
        """Begin the drain of the worker. This runs in a signal handler at any point of its
        thread, so it takes no lock. A thread that is building the worker checks the flag
        afterwards.
        """
        self._stop.set()
        if self._built is not None:
            self._built.process.drain.begin(self._settings.drain_s)

    def on_worker_shutdown(self, **_: Any) -> None:
        """Wait for the end of the announcements, and stop the telemetry. Nothing else runs then."""
        if self._announcing is not None:
            self._announcing.join(WITHDRAWN_WITHIN_S)
        get_telemetry().stop()

    def _list_specialists_to_serve(self) -> list[SpecialistSpec]:
        """Return the specialists whose queues this worker consumes, sorted by name."""
        served: list[SpecialistSpec] = []
        for queue in self._app.amqp.queues.consume_from:
            if queue in self._specialists:
                served.append(self._specialists[queue])
        return sorted(served, key=lambda spec: spec.name)

    def _announce_for_ever(
        self, served: Sequence[SpecialistSpec], pool: Any, node: str, first_try: threading.Event
    ) -> None:
        """Run `_announce` until the process ends. After a defect, start it again.

        Args:
            served: specialists of this worker.
            pool: Celery's pool of the worker.
            node: name of the worker in Celery.
            first_try: set after the first try to announce the worker.
        """
        while not self._stop.is_set():
            try:
                self._announce(served, pool, node, first_try)
            except BaseException:  # a worker without announcements gets no work
                log.exception("announcements failed, they start again")
                self._stop.wait(CHECK_EVERY_S)

    def _announce(
        self, served: Sequence[SpecialistSpec], pool: Any, node: str, first_try: threading.Event
    ) -> None:
        """Announce this worker and read the paused roles until the process ends. Then withdraw
        the announcement. See `_announce_for_ever`.
        """
        worker = self()
        announcer = Announcer.create(worker.process, self._app, node, served)
        announcement = Announcement(
            **dict(announcer.now()),
            worker=worker.process.name,
            specialists=tuple(served),
            effects=worker.registry.effects,
            not_served=self._not_served,
        )
        store = worker.process.store
        announced_at = float("-inf")
        while not self._stop.is_set():
            _log_errors(
                "cannot read the pauses", lambda: self._set_paused(store.pauses.list_agents())
            )
            if time.monotonic() - announced_at >= ANNOUNCED_FOR_S / 3 - CHECK_EVERY_S:
                announced_at = time.monotonic()
                announcement = _with_lost_slots(announcement, SLOTS.count_lost_slots(pool))
                announcement = announcement.model_copy(update=dict(announcer.now()))
                _log_errors("not announced", partial(store.presence.announce, announcement))
            first_try.set()
            self._stop.wait(CHECK_EVERY_S)
        _log_errors("not withdrawn", partial(store.presence.withdraw, announcement))


def _with_lost_slots(announcement: Announcement, lost: int) -> Announcement:
    """Return the announcement with this number of lost slots. Log an increase."""
    if lost > announcement.lost_slots:
        log.error("slots are lost: start this worker again", lost=lost, slots=announcement.slots)
    return announcement.model_copy(update={"lost_slots": lost})


def _log_errors(message: str, call: Callable[[], None]) -> None:
    """Run the call. If it raises, log this message."""
    try:
        call()
    except StoreUnavailable as error:
        log.warning(message, why=str(error))
    except BaseException:  # a worker without announcements gets no work
        log.exception(message)


def prepare_forks() -> None:
    """Read the built-in specialists and the list of installed tools once, for forked workers."""
    load_servers(BUILT_IN)
    load_specialists(BUILT_IN)
    read_entry_points()


def make_workers_app(settings: Settings, make_model: MakeModel | None = None) -> Celery:
    """Return the Celery app with a task for each specialist. It does not connect to Redis
    before a worker starts.

    Raises:
        UserError: the file of a specialist, a tool or the policy is invalid.
    """
    index = DocumentIndex(settings.cache_folder)
    read_rules(settings.policy_file)
    servers = load_servers(BUILT_IN, *settings.specialists_dirs)
    registry = build_registry(settings, index, servers)
    specialists = load_specialists(
        BUILT_IN, *settings.specialists_dirs, tools=frozenset(registry.names)
    )
    for spec in specialists.values():
        check_sharing(spec, registry.get_tools(spec.tools))
    unused_remark = registry.without_use(specialists.values())
    if unused_remark is not None:
        sys.stderr.write(f"handoff: {unused_remark}\n")
    app = make_app("workers", get_redis_url(settings), settings, [*specialists, SUPERVISOR_QUEUE])
    app.amqp.queues.select(list(specialists))
    lazy_worker = LazyWorker(app, settings, specialists, registry, make_model)

    def wake(job_id: JobId) -> None:
        with get_telemetry().within(job_id):
            publish(app, wake_up(job_id))

    for name, spec in specialists.items():
        register(app, get_task(name), _make_specialist_task(lazy_worker, spec, wake))
    keep_unreadable(app, lambda: lazy_worker().process.store)
    worker_signals = WorkerSignals(app)
    worker_signals.connect(signals.worker_init, make_exit_on_error(lazy_worker.handle_start))
    worker_signals.connect(signals.celeryd_after_setup, make_exit_on_error(lazy_worker.check))
    worker_signals.connect(signals.worker_ready, make_exit_on_error(lazy_worker.on_worker_ready))
    touch_while_alive(app)  # after the receiver that announces the process
    worker_signals.connect(signals.worker_shutting_down, lazy_worker.handle_stop)
    worker_signals.connect(signals.worker_shutdown, lazy_worker.on_worker_shutdown)
    worker_signals.connect(signals.worker_shutdown, lambda **_: index.close())
    worker_signals.connect(signals.worker_shutdown, lambda **_: registry.close())
    return app


def _make_specialist_task(
    lazy_worker: LazyWorker, spec: SpecialistSpec, wake: Callable[[JobId], None]
) -> Callable[..., str]:
    """Return the function of a specialist's Celery task."""

    def run(self: Any, text: object) -> str:
        worker = lazy_worker()

        def attempt(handoff: AgentHandoff, message: str) -> Any:
            outcome = run_handoff(
                worker.process.attempts,
                worker.registry,
                wake,
                spec,
                handoff,
                message,
                lazy_worker.host,
            )
            if outcome.end is AttemptEnd.PAUSED:
                lazy_worker.stop_consuming(spec.name)
            return outcome

        return run_task(self, worker.process.store, spec.name, text, attempt)

    return run
