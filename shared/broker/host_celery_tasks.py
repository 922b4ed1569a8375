"""Tasks of the host's own Celery app: sent to its broker, and read from its result backend.

A message has the format of stock Celery (protocol 2), so a stock worker runs it. It goes over
kombu's transports and a new connection, and uses no app, pool or setting of another Celery app
in the process.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery import Celery, states
from celery.app.backends import by_url
from kombu import Connection, Producer

from handoff_queue.shared.broker.isolated_app import IsolatedCelery
from handoff_queue.shared.types.errors import UserError

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
        builder: an app of this project, which only builds the message.
        url: the URL of the host's broker. On AMQP the queue must exist.

    Raises:
        Exception: any error of a broker's client. Its text may hold the URL.
    """
    options = _OPTIONS.get(_get_kind(url), {})
    with Connection(url, connect_timeout=TIMEOUT_S, transport_options=options) as connection:
        connection.ensure_connection(max_retries=1, interval_start=0.1, timeout=TIMEOUT_S)
        task_message = builder.amqp.as_task_v2(
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
                task_message.body,
                exchange="",
                routing_key=message.queue,
                serializer="json",
                headers=task_message.headers,
                delivery_mode=2,
                retry=False,
                **task_message.properties,
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
            self._get_backend()
        except Exception as error:  # noqa: BLE001 - each kind of backend has errors of its own
            scheme = url.partition("://")[0]
            raise UserError(
                f"{setting}: no result backend for {scheme}:// ({type(error).__name__});"
                " install its package, or correct the URL"
            ) from None  # the text of the error may hold the URL

    def _get_backend(self) -> Any:
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
        meta = self._get_backend().get_task_meta(task_id, cache=False)
        state = meta.get("status")
        if state == states.SUCCESS:
            return HostResult(meta.get("result"))
        if state in states.PROPAGATE_STATES:
            return HostResult(error=f"{state}, {type(meta.get('result')).__name__}")
        return None


def _get_kind(url: str) -> str:
    """Return the key of the URL's scheme in `_OPTIONS`, or the scheme itself."""
    scheme = url.partition("://")[0]
    return {"rediss": "redis", "amqps": "amqp", "pyamqp": "amqp"}.get(scheme, scheme)
