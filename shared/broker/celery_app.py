"""The Celery app of either side, with every setting that is not Celery's default, and why.

Celery is the transport that wakes processes; the truth about a job is the store. So the
settings choose: never lose a part of a chord silently, never wait for ever on a dead socket,
and leave as little as possible in Redis.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from urllib.parse import quote

from celery import Celery
from celery.exceptions import WorkerShutdown
from celery.platforms import EX_FAILURE
from kombu import Queue

from handoff_queue.shared.broker.flower import prepare_flower_command
from handoff_queue.shared.broker.isolated_app import IsolatedCelery
from handoff_queue.shared.broker.publisher import RETRY
from handoff_queue.shared.observability import failpoints
from handoff_queue.shared.observability.logs import configure_logging, log_of
from handoff_queue.shared.settings.foreign_environment import (
    check_celery_command,
    check_tls_variables,
)
from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.settings.redis_address import RedisAddress, read_address
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.names import UNROUTED_QUEUE

log = log_of(__name__)

DEFAULT_THREADS = 16
"""Slots of a worker started without `-c`. Model calls wait; 200 slots in one process were
measured at 147 MB.
"""
VISIBILITY_TIMEOUT_S = 6 * 3_600
"""Seconds after which Redis delivers a message again that an older version noted as taken. This
version notes nothing (docs/decisions/0014-no-second-copy.md): the lease recovers lost work, and
a second copy of a long handoff has no use.
"""
SOCKET_TIMEOUT_S = 30


def app_or_exit(make: Callable[[], Celery], module: str) -> Celery:
    """Return the app that `make` makes, for a module that Celery's own command line imports.

    Raises:
        SystemExit: a setting, a variable or a file of the user is wrong, or a package is
            missing. One line on standard error says which. Celery shows a traceback for any
            other error.
    """
    try:
        check_extra("worker", f"a process of {module}")
        check_celery_command(module)
        check_tls_variables()
        prepare_flower_command(module)
        return make()
    except UserError as error:
        sys.stderr.write(f"handoff: {' '.join(str(error).split())}\n")
        raise SystemExit(error.exit_code) from None


def or_exit(begins: Callable[..., None]) -> Callable[..., None]:
    """Make an error in this receiver of a Celery signal end the process. Celery logs such an error
    and continues: the process would take messages that it cannot run.
    """

    def receive(**sent: Any) -> None:
        try:
            begins(**sent)
        except UserError as error:
            sys.stderr.write(f"handoff: {' '.join(str(error).split())}\n")
            raise WorkerShutdown(error.exit_code) from None
        except Exception as error:
            log.exception("cannot begin")
            raise WorkerShutdown(EX_FAILURE) from error

    return receive


def make_app(name: str, redis_url: str, settings: Settings, queues: Iterable[str]) -> Celery:
    """Return an app without connections that has only these queues (and `unrouted`) and logs
    through `shared.observability.logs`.
    """
    address = read_address(redis_url)
    url, transport = _for_celery(address), _transport_options(address)
    own = list(dict.fromkeys(queues))
    app = IsolatedCelery(name, broker=url, backend=url, set_as_current=False)
    app.conf.update(
        **_messages(),
        **_broker(transport),
        **_results(transport),
        **_exchanges(address.prefix),
        broker_use_ssl=address.tls or False,
        redis_backend_use_ssl=address.tls or False,
        **_worker(),
        task_queues=[_queue(queue) for queue in dict.fromkeys([*own, UNROUTED_QUEUE])],
    )
    if failpoints.folder() is not None:
        from handoff_queue.shared.broker.failing_transport import (
            FailingStoreBackend,
            use_failpoints,
        )

        use_failpoints(app, FailingStoreBackend)
    app.amqp.queues.select(
        own
    )  # a worker started without -Q leaves `unrouted` to the eyes of a person
    app.configure_logging = partial(configure_logging, settings)
    return app


def declare_queues(app: Celery, queues: Iterable[str]) -> None:
    """Let this app publish to queues that it learned of later: a role that a live worker has
    announced.
    """
    for queue in queues:
        if queue not in app.amqp.queues:
            app.amqp.queues.add(_queue(queue))


def _queue(name: str) -> Queue:
    return Queue(name, routing_key=name)


def _messages() -> dict[str, Any]:
    return {
        "task_serializer": "json",
        "result_serializer": "json",
        "event_serializer": "json",
        "accept_content": ["json"],  # never pickle: any client of Redis could run code
        "result_accept_content": ["json"],
        # an undeclared queue name raises at publication; else the message would vanish
        "task_create_missing_queues": False,
        "task_default_queue": UNROUTED_QUEUE,
        # Results live in the store, and a chord's parts are counted there.
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "task_track_started": False,  # would store a result; Flower reads events
        "task_send_sent_event": False,  # one more message for each task, without a reader
        # arguments' reprs go to headers, logs and Flower; senders set argsrepr besides
        "task_repr_maxlevels": 1,
        "task_publish_retry_policy": dict(RETRY),
        "task_acks_late": True,  # a part counts when it is done, not when it is fetched
        # prefork: a dead child's message goes back at once; the store caps the claims
        "task_reject_on_worker_lost": True,
        # publishes, then acknowledges: a kill between the two doubles the message
        "task_retry_on_worker_lost": False,
        # returns early, without the chord's body; the store does it right
        "worker_deduplicate_successful_tasks": False,
    }


def _broker(transport: dict[str, Any]) -> dict[str, Any]:
    return {
        "broker_transport_options": {
            **transport,
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "priority_steps": [
                0
            ],  # one Redis list a queue instead of four, so that its depth is one LLEN
            "socket_timeout": SOCKET_TIMEOUT_S,  # or a publish waits for ever on a dead socket
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 25,  # notices a BRPOP whose other end is gone
        },
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        # the default 100 ends the worker during a long outage
        "broker_connection_max_retries": None,
        # READONLY, LOADING and OOM are channel errors, and would end the worker
        "broker_channel_error_retry": True,
    }


def _results(transport: dict[str, Any]) -> dict[str, Any]:
    return {
        "result_expires": 86_400,  # only results of Celery itself, after an unexpected failure
        "result_extended": False,  # would store arguments
        # waiting for results is not thread-safe, but unused; one backend for each thread costs 0.7
        # ms
        "result_backend_thread_safe": True,
        "result_backend_transport_options": transport,
        "result_backend_always_retry": True,
        "result_backend_max_retries": 10,  # infinite by default: a wedged slot
        "redis_socket_timeout": SOCKET_TIMEOUT_S,
        "redis_socket_connect_timeout": 5,
        "redis_socket_keepalive": True,
        "redis_retry_on_timeout": True,
        "redis_backend_health_check_interval": 25,
    }


def _worker() -> dict[str, Any]:
    return {
        # a model call is waiting: a slot is a thread, not 115 MB of process
        "worker_pool": "threads",
        "worker_concurrency": DEFAULT_THREADS,
        "worker_consumer": "handoff_queue.shared.broker.consumer:WorkerConsumer",
        # an idle worker cannot take a message that another worker has prefetched
        "worker_prefetch_multiplier": 1,
        # leaves replies popped in a socket: lost with the process
        "worker_disable_prefetch": False,
        # the fence makes a second copy harmless; the first was paid
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_send_task_events": True,  # Flower shows nothing without
        "worker_state_db": None,  # a cancel lives in the store
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_detect_quorum_queues": False,  # RabbitMQ only
        "control_queue_expires": 60,  # reply queues of `inspect` have no other end
    }


def _exchanges(prefix: str) -> dict[str, Any]:
    """Return names of our own: with Celery's, `control shutdown` of another app on this
    database would end our workers.
    """
    return {
        "control_exchange": f"{prefix}handoff.control",
        "event_exchange": f"{prefix}handoff.events",
        "event_queue_prefix": f"{prefix}handoff.events",
    }


def _for_celery(address: RedisAddress) -> str:
    """Return the URL in Celery's form: its options are settings. Celery asks the sentinels one
    after the other, each by its own URL.
    """
    user, password = (quote(part or "", safe="") for part in (address.username, address.password))
    who = ""
    if user or password:
        who = f"{user}:{password}@"
    hosts = ((f"[{host}]" if ":" in host else host, port) for host, port in address.hosts)
    return ";".join(
        f"{address.scheme}://{who}{host}:{port}/{address.database}" for host, port in hosts
    )


def _transport_options(address: RedisAddress) -> dict[str, Any]:
    """Return transport options, for messages and for results. Flower reads `global_keyprefix`, too."""
    options: dict[str, Any] = {"global_keyprefix": address.prefix} if address.prefix else {}
    if address.master_name is not None:
        options["master_name"] = address.master_name
        options["sentinel_kwargs"] = address.sentinel_options
    return options
