"""The Celery app of a supervisor, a worker or a client, with each setting that is not Celery's
default and its reason.

Celery is the transport that wakes processes; the truth about a job is the store. So the settings
never lose a part of a chord silently and never wait without end on a dead socket. They leave as
little as possible in Redis.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from celery import Celery
from celery.exceptions import WorkerShutdown
from celery.platforms import EX_FAILURE
from celery.utils.imports import load_extension_class_names
from kombu import Queue

from handoff_queue.shared.broker.isolated_app import IsolatedCelery
from handoff_queue.shared.observability import failpoints
from handoff_queue.shared.observability.logs import configure_logging, get_log
from handoff_queue.shared.settings.foreign_environment import (
    check_celery_command,
    check_tls_variables,
)
from handoff_queue.shared.settings.optional_packages import check_extra, without_collection
from handoff_queue.shared.settings.redis_url import RedisAddress, read_address
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.names import UNROUTED_QUEUE

log = get_log(__name__)

DEFAULT_THREADS = 16
"""Slots of a worker that is started without `-c`. A slot mostly waits for a model call. A
process with 200 slots used 147 MB in a measurement.
"""
SOCKET_TIMEOUT_S = 30
PUBLISH_RETRY: Mapping[str, Any] = {
    "max_retries": 3,
    "interval_start": 0,
    "interval_step": 0.2,
    "interval_max": 1,
}
"""kombu's policy for tries to send while Redis refuses or is unreachable; times are seconds.
After the last try, the publication fails, and the sweeper publishes the message later.
"""


def make_app_or_exit(make: Callable[[], Celery], module: str) -> Celery:
    """Return the app that `make` makes, for a module that Celery's own command line imports.

    Raises:
        SystemExit: a setting, a variable or a file of the user is wrong, or a package is
            missing. One line on standard error names the problem. For any other exception,
            Celery would show a traceback.
    """
    try:
        check_extra("worker", f"a process of {module}")
        check_celery_command(module)
        check_tls_variables()
        if "flower" in sys.argv:
            from handoff_queue.shared.broker.flower import prepare_flower_command

            prepare_flower_command(module)
        with without_collection():
            return make()
    except UserError as error:
        sys.stderr.write(f"handoff: {' '.join(error.line.split())}\n")
        raise SystemExit(error.exit_code) from None


def prepare_forks() -> None:
    """Read what every process of an app reads at its start, and keep it for forked processes.

    Raises:
        UserError: a variable is wrong.
    """
    load_extension_class_names("celery.result_backends")
    check_tls_variables()


def make_exit_on_error(begins: Callable[..., None]) -> Callable[..., None]:
    """Return the receiver of a Celery signal, changed so that an error in it ends the worker.
    Celery logs such an error and continues: the worker would take messages that it cannot run.
    """

    def receive(**signal_arguments: Any) -> None:
        try:
            begins(**signal_arguments)
        except UserError as error:
            sys.stderr.write(f"handoff: {' '.join(error.line.split())}\n")
            raise WorkerShutdown(error.exit_code) from None
        except Exception as error:
            log.exception("this process cannot begin its work", at=begins.__qualname__)
            raise WorkerShutdown(EX_FAILURE) from error

    return receive


def make_app(name: str, redis_url: str, settings: Settings, queues: Iterable[str]) -> Celery:
    """Return an app that has not connected yet. It knows only these queues and `unrouted`, and
    it logs through `shared.observability.logs`.
    """
    address = read_address(redis_url)
    url = _build_celery_url(address)
    transport = _build_transport_options(address)
    own_queues = list(dict.fromkeys(queues))
    queue_names = dict.fromkeys([*own_queues, UNROUTED_QUEUE])
    app = IsolatedCelery(name, broker=url, backend=url, set_as_current=False)
    app.conf.update(
        **_build_message_settings(),
        **_build_broker_settings(transport),
        **_build_result_settings(transport),
        **_build_exchange_settings(address.prefix),
        broker_use_ssl=address.tls or False,
        redis_backend_use_ssl=address.tls or False,
        **_build_worker_settings(),
        task_queues=[_build_queue(queue) for queue in queue_names],
    )
    if failpoints.get_folder() is not None:
        from handoff_queue.shared.broker.failpoint_transport import (
            FailingStoreBackend,
            use_failpoints,
        )

        use_failpoints(app, FailingStoreBackend)
    # a worker that is started without -Q does not consume `unrouted`: a person reads that queue
    app.amqp.queues.select(own_queues)
    app.configure_logging = partial(configure_logging, settings)
    return app


def declare_queues(app: Celery, queues: Iterable[str]) -> None:
    """Declare more queues, so that this app can publish to them. A live worker may announce
    an agent that the app did not know at its start.
    """
    for queue in queues:
        if queue not in app.amqp.queues:
            app.amqp.queues.add(_build_queue(queue))


def _build_queue(name: str) -> Queue:
    return Queue(name, routing_key=name)


def _build_message_settings() -> dict[str, Any]:
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
        "task_publish_retry_policy": dict(PUBLISH_RETRY),
        "task_acks_late": True,  # a part counts when it is done, not when it is fetched
        # prefork: a dead child's message goes back at once; the store caps the claims
        "task_reject_on_worker_lost": True,
        # publishes, then acknowledges: a kill between the two doubles the message
        "task_retry_on_worker_lost": False,
        # returns early, without the chord's body; the store does it right
        "worker_deduplicate_successful_tasks": False,
    }


def _build_broker_settings(transport: dict[str, Any]) -> dict[str, Any]:
    return {
        "broker_transport_options": {
            **transport,
            # one Redis list for each queue instead of four: one LLEN gives the depth
            "priority_steps": [0],
            "socket_timeout": SOCKET_TIMEOUT_S,  # or a publish never ends on a dead socket
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


def _build_result_settings(transport: dict[str, Any]) -> dict[str, Any]:
    return {
        "result_expires": 86_400,  # only results of Celery itself, after an unexpected failure
        "result_extended": False,  # would store arguments
        # only waiting for results is not thread-safe, and no code waits for them; a backend for
        # each thread costs 0.7 ms
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


def _build_worker_settings() -> dict[str, Any]:
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


def _build_exchange_settings(prefix: str) -> dict[str, Any]:
    """Return the names of the exchanges. With Celery's default names, `control shutdown` of
    another app on this database would end our workers.
    """
    return {
        "control_exchange": f"{prefix}handoff.control",
        "event_exchange": f"{prefix}handoff.events",
        "event_queue_prefix": f"{prefix}handoff.events",
    }


def _build_celery_url(address: RedisAddress) -> str:
    """Return the URL in Celery's form, without the options of the address, which become
    settings. Several sentinels become several URLs, joined by semicolons. Celery tries them in
    order.
    """
    user = quote(address.username or "", safe="")
    password = quote(address.password or "", safe="")
    credentials = ""
    if user or password:
        credentials = f"{user}:{password}@"
    urls: list[str] = []
    for host, port in address.hosts:
        name = f"[{host}]" if ":" in host else host  # an IPv6 address
        urls.append(f"{address.scheme}://{credentials}{name}:{port}/{address.database}")
    return ";".join(urls)


def _build_transport_options(address: RedisAddress) -> dict[str, Any]:
    """Return the transport options for messages and results. Flower reads `global_keyprefix`,
    too.
    """
    options: dict[str, Any] = {}
    if address.prefix:
        options["global_keyprefix"] = address.prefix
    if address.master_name is not None:
        options["master_name"] = address.master_name
        options["sentinel_kwargs"] = address.sentinel_options
    return options
