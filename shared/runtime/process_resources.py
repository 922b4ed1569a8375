"""Resources of a supervisor or worker process: the store, its leases, its drain. They are made
when the process starts, never on import.

A worker or a supervisor announces facts about itself (`Announcer`).
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from urllib.parse import urlsplit, urlunsplit

from celery import Celery

from handoff_queue.shared.agent.prompt_cache_prefixes import PromptCaches
from handoff_queue.shared.broker.celery_app import DEFAULT_THREADS
from handoff_queue.shared.observability.redaction import Redactor, find_secrets
from handoff_queue.shared.observability.telemetry import get_telemetry
from handoff_queue.shared.observability.telemetry_factory import start_telemetry
from handoff_queue.shared.runtime.attempt import Attempts
from handoff_queue.shared.runtime.models import MakeModel, ModelCallLog, Models
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.settings.http_values import split_credentials
from handoff_queue.shared.settings.settings import (
    DEFAULT_BASE_URL,
    OFFLINE_MODEL,
    Settings,
    get_redis_url,
)
from handoff_queue.shared.store.graceful_shutdown import Drain
from handoff_queue.shared.store.leases import Leases
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.presence import MAX_ANNOUNCED_NAMES, ModelCalls, Node
from handoff_queue.shared.types.specialist import SpecialistSpec

SWITCH_EVERY_S = 0.02
"""Seconds that a thread waits for the interpreter lock before it requests the lock. With
Python's default of 5 ms, hundreds of threads that wake at once spend a fifth of the processor
time on these requests. A longer wait saves no more (benchmarks/RESULTS.md).
"""
YOUNG_OBJECTS = 10_000
"""Net number of new objects that starts the garbage collector. Python's default is 700 (3.13:
2,000). Almost all of our objects need no collector, and at 700 it took a twentieth of the
processor time (benchmarks/RESULTS.md).
"""
GENERATIONS = (YOUNG_OBJECTS, 10, 2)
"""Thresholds of the collector. It examines all objects after every 200,000 new objects. The reason:
a reference cycle that lives longer than a model call can keep the call's texts in memory.
"""
MAX_FILES = 65_536
"""Open files of a process, if the system allows it. The usual default is 1,024, and each slot
has a connection to the model.
"""


@dataclass(frozen=True, slots=True)
class Process:
    """The parts that a supervisor and a worker share."""

    settings: Settings
    store: Store
    leases: Leases
    drain: Drain
    attempts: Attempts
    name: str
    """Host name and process id."""


def start_process(service: str, settings: Settings, make_model: MakeModel | None = None) -> Process:
    """Tune the interpreter, open the store, and start telemetry, the renewal of leases, and the
    watchdog that ends the process if it freezes.

    Args:
        service: name of this kind of process in telemetry.
        make_model: function that makes the models; None: `create_provider_models`.
    """
    sys.setswitchinterval(SWITCH_EVERY_S)
    _tune_garbage_collector()
    raise_open_file_limit()
    drain = Drain()
    store = open_store(get_redis_url(settings), settings, drain=drain)
    start_telemetry(service, settings)
    get_telemetry().set_trace_reader(store.traces.load_trace_context)
    leases = Leases(get_redis_url(settings), settings.lease_s, watchdog=True)
    leases.start()
    name = f"{socket.gethostname()}:{os.getpid()}"
    models = Models(
        settings,
        make_model,
        ModelCallLog(store.connection.now),
        PromptCaches(store.prompt_prefixes),
    )
    attempts = Attempts(store, settings, name, leases, PayloadCache(store), models)
    return Process(settings, store, leases, drain, attempts, name)


def _tune_garbage_collector() -> None:
    """Exclude imported objects from the garbage collector, and make collections rare. All
    threads stop during a collection, and its time grows with the number of objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GENERATIONS)


def raise_open_file_limit() -> None:
    """Raise the limit of open files to the system's maximum, at most `MAX_FILES`. If the
    system refuses, log one line.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        limit = MAX_FILES
    else:
        limit = min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError) as error:
            logging.getLogger(__name__).warning(
                "the system does not let this process open more than %d files: %s", soft, error
            )


@dataclass(frozen=True, slots=True)
class Announcer:
    """Source of the facts that one process announces."""

    process: Process
    app: Celery
    node: str
    """Name of the process in Celery."""
    specs: tuple[SpecialistSpec, ...]
    """Specialists or roles that it serves."""
    _redactor: Redactor

    @classmethod
    def create(
        cls, process: Process, app: Celery, node: str, specs: Iterable[SpecialistSpec]
    ) -> Announcer:
        """Return the announcer of a process. Its facts hide every secret of the settings and
        the environment.
        """
        return cls(process, app, node, tuple(specs), Redactor(find_secrets(process.settings)))

    def now(self) -> Node:
        """Return the facts, with the outcome of the newest model calls."""
        settings = self.process.settings
        models = self.process.attempts.models
        model_names: dict[str, str] = {}
        for spec in self.specs[:MAX_ANNOUNCED_NAMES]:
            model_names[spec.name] = self._redactor.redact_text(models.choose_name(None, spec))
        return Node(
            node=self.node,
            broker=self.app.connection_for_read().as_uri(),
            version=version("handoff-queue"),
            slots=int(self.app.conf.worker_concurrency or DEFAULT_THREADS),
            model=OFFLINE_MODEL if settings.is_offline else settings.model_provider,
            server=self._redactor.redact_text(get_server(settings)),
            models=model_names,
            calls=tuple(map(self._redact_calls, models.calls.list_newest())),
            refused_queues=self.process.store.connection.queue_access.refused,
        )

    def _redact_calls(self, calls: ModelCalls) -> ModelCalls:
        """Return the outcome of model calls without secrets."""
        redacted_texts = {
            "model": self._redactor.redact_text(calls.model),
            "error": self._redactor.redact_text(calls.error),
        }
        return calls.model_copy(update=redacted_texts)


def get_server(settings: Settings) -> str:
    """Return the address of the model's server without user, password and query. Return '' for
    the offline model, for other providers than Anthropic, and for an address that cannot be
    parsed.
    """
    if settings.is_offline or settings.model_provider != "anthropic":
        return ""
    address, _ = split_credentials((settings.anthropic_base_url or DEFAULT_BASE_URL).rstrip("/"))
    try:
        return urlunsplit(urlsplit(address)._replace(query="", fragment=""))
    except ValueError:
        return ""
