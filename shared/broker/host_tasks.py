"""Tasks of the host's own Celery app: sent to its broker, and read from its result backend.

A message has the format of stock Celery (protocol 2), so a stock worker runs it. It goes over
kombu's transports and a new connection, and uses no app, pool or setting of another Celery app
in the process.

A job stores the task for its end as the task's signature, such as `notify.s(order=7)`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from celery import Celery, states
from celery.app.backends import by_url
from kombu import Connection, Producer

from handoff_queue.shared.broker.isolated_app import IsolatedCelery
from handoff_queue.shared.types.characters import has_half_a_character
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.job_options import DEFAULT_QUEUE, MOST_NAME_CHARS, EndTask

MOST_ARGUMENT_CHARS = 10_000
"""Most characters of args and kwargs together, as JSON."""
_FIELDS = ("task", "args", "kwargs", "options", "immutable", "subtask_type", "chord_size")
"""Fields of a Celery signature."""
_SIGNATURE_OPTIONS = ("queue",)


def end_task_of(signature: Mapping[str, Any]) -> EndTask:
    """Return the task that is sent at the end of a job.

    `signature`: a `celery.Signature`, or a dict with `task`, `args`, `kwargs`, `immutable` and
    `options` (`{"queue": ...}`).

    Raises:
        UserError: the signature is not one of a single task, or has another field or option; or its
            arguments are not JSON, or too long.
    """
    for name in signature:
        if name not in _FIELDS:
            raise UserError(
                f"on_end has a field {str(name)!r:.60}; a signature has {', '.join(_FIELDS[:5])}"
            )
    if signature.get("subtask_type"):
        raise UserError(
            f"on_end is a {signature['subtask_type']}: give the signature of one task,"
            " which can start others"
        )
    task, queue = _name("task", signature.get("task")), _queue_of(signature)
    args, kwargs = signature.get("args") or (), signature.get("kwargs") or {}
    if not isinstance(args, list | tuple) or not isinstance(kwargs, Mapping):
        raise UserError("on_end: args must be a list or a tuple, and kwargs a dict")
    text = _json([list(args), dict(kwargs)])
    if len(text) > MOST_ARGUMENT_CHARS:
        raise UserError(
            f"on_end: args and kwargs have {len(text):,} characters as JSON, at most"
            f" {MOST_ARGUMENT_CHARS:,} are allowed: give the task an id to load them by"
        )
    given, named = json.loads(text)
    is_told = not signature.get("immutable")
    return EndTask(task=task, queue=queue, args=tuple(given), kwargs=named, is_told=is_told)


def check_allowed(task: str, patterns: Sequence[str]) -> None:
    """Refuse a task that the fleet must not start.

    `patterns`: as in HANDOFF_ON_END_TASKS. An empty list allows no task.

    Raises:
        UserError: no pattern matches the name.
    """
    if not any(fnmatchcase(task, pattern) for pattern in patterns):
        raise UserError(
            f"HANDOFF_ON_END_TASKS does not allow the task {task!r}: add its name or a pattern,"
            " such as shop.*, to the setting of the supervisors"
        )


def _queue_of(signature: Mapping[str, Any]) -> str:
    """Return the queue of the signature, or the queue to which the host's app routes the task."""
    options = signature.get("options") or {}
    if not isinstance(options, Mapping):
        raise UserError("on_end: options must be a dict, such as {'queue': 'billing'}")
    for name, value in options.items():
        if value and name not in _SIGNATURE_OPTIONS:
            raise UserError(
                f"on_end has the option {str(name)!r:.60}; only queue can be set here,"
                " and the task itself can do the rest"
            )
    queue = options.get("queue") or _routed(signature)
    return _name("queue", getattr(queue, "name", queue))


def _routed(signature: Mapping[str, Any]) -> str:
    """Return the queue by the settings of the signature's app (`task_routes`,
    `task_default_queue`).
    """
    app = getattr(signature, "app", None)
    if app is None:
        return DEFAULT_QUEUE
    queue: Any = app.amqp.router.route({}, signature["task"]).get("queue")
    return str(getattr(queue, "name", queue) or DEFAULT_QUEUE)


def _name(kind: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise UserError(f"on_end: the {kind} must be a name in one line")
    if has_half_a_character(value) or len(value.encode()) > MOST_NAME_CHARS:
        raise UserError(f"on_end: the {kind} has more than {MOST_NAME_CHARS} bytes")
    return value


def _json(value: Any) -> str:
    """Return a value as JSON.

    Raises:
        UserError: the value is not JSON, or holds a lone surrogate.
    """
    try:
        text = json.dumps(value, allow_nan=False)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"on_end: args and kwargs must be JSON ({type(error).__name__}):"
            " texts, numbers, lists, dicts, true, false, null"
        ) from error
    return text


TIMEOUT_S = 5.0
"""Limit for a connect, a read and a write."""
_OPTIONS: dict[str, dict[str, Any]] = {
    "redis": {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S},
    "amqp": {"confirm_publish": True, "read_timeout": TIMEOUT_S, "write_timeout": TIMEOUT_S},
}


@dataclass(frozen=True, slots=True)
class HostMessage:
    """A call of a task of the host's app. The arguments are JSON values."""

    task_id: str
    task: str
    """The registered name of the task."""
    queue: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    ignore_result: bool = False


def send_to_host(builder: Celery, url: str, message: HostMessage) -> None:
    """Send a task to the host's broker.

    Args:
        builder: an app of ours, which only builds the message.
        url: the URL of the host's broker. On AMQP the queue must exist.

    Raises:
        Exception: any error of a broker's client. Its text may hold the URL.
    """
    options = _OPTIONS.get(_kind_of(url), {})
    with Connection(url, connect_timeout=TIMEOUT_S, transport_options=options) as connection:
        connection.ensure_connection(max_retries=1, interval_start=0.1, timeout=TIMEOUT_S)
        built = builder.amqp.as_task_v2(
            task_id=message.task_id,
            name=message.task,
            args=tuple(message.args),
            kwargs=dict(message.kwargs or {}),
            ignore_result=message.ignore_result,
        )
        with connection.channel() as channel:
            if connection.transport.driver_type == "amqp":  # or the broker would drop the message
                channel.queue_declare(queue=message.queue, passive=True)
            Producer(channel, auto_declare=False).publish(
                built.body,
                exchange="",
                routing_key=message.queue,
                serializer="json",
                headers=built.headers,
                delivery_mode=2,
                retry=False,
                **built.properties,
            )


def check_transport(setting: str, url: str) -> None:
    """Check that kombu has a transport for the scheme of this URL, without connecting.

    Args:
        setting: the name of the variable with the URL.

    Raises:
        UserError: kombu does not know this kind of broker, or lacks its package.
    """
    scheme = url.partition("://")[0]
    try:
        Connection(url).get_transport_cls()
    except Exception as error:  # noqa: BLE001 - each kind of broker has errors of its own
        raise UserError(
            f"{setting}: no transport for {scheme}:// ({type(error).__name__});"
            " install its package, or correct the URL"
        ) from None  # the text of kombu's error may hold the URL


@dataclass(frozen=True, slots=True)
class HostResult:
    """Outcome of a task of the host's app."""

    value: Any = None
    """The JSON value that the task returned."""
    error: str = ""
    """Reason why there is no value: the state of the task, and the name of its exception.
    Empty if there is a value.
    """


class HostResults:
    """Reads the host's result backend. Threads may share it."""

    def __init__(self, setting: str, url: str) -> None:
        """Make a reader of the host's results.

        Args:
            setting: the name of the variable with the URL.

        Raises:
            UserError: Celery does not know this kind of result backend, or lacks its package.
        """
        self._url = url
        self._app = IsolatedCelery("host-results", set_as_current=False)
        self._app.conf.update(
            accept_content=["json"],
            result_accept_content=["json"],
            result_serializer="json",
            redis_socket_timeout=TIMEOUT_S,
            redis_socket_connect_timeout=TIMEOUT_S,
        )
        self._of_thread = threading.local()
        try:
            self._backend()
        except Exception as error:  # noqa: BLE001 - each kind of backend has errors of its own
            scheme = url.partition("://")[0]
            raise UserError(
                f"{setting}: no result backend for {scheme}:// ({type(error).__name__});"
                " install its package, or correct the URL"
            ) from None  # the text of the error may hold the URL

    def _backend(self) -> Any:
        """Return the backend of this thread: some kinds of backends are not safe between
        threads.
        """
        if not hasattr(self._of_thread, "backend"):
            backend_class, url = by_url(self._url)
            self._of_thread.backend = backend_class(app=self._app, url=url)
        return self._of_thread.backend

    def get(self, task_id: str) -> HostResult | None:
        """Return the outcome of a task, or None if the backend has none yet.

        Raises:
            Exception: any error of a backend's client. Its text may hold the URL.
        """
        meta = self._backend().get_task_meta(task_id, cache=False)
        state = meta.get("status")
        if state == states.SUCCESS:
            return HostResult(meta.get("result"))
        if state in states.PROPAGATE_STATES:
            return HostResult(error=f"{state}, {type(meta.get('result')).__name__}")
        return None


def _kind_of(url: str) -> str:
    """Return the key of the URL's scheme in `_OPTIONS`, or the scheme itself."""
    scheme = url.partition("://")[0]
    return {"rediss": "redis", "amqps": "amqp", "pyamqp": "amqp"}.get(scheme, scheme)
