"""Sends a task to the broker of the host's own Celery app when a job has ended.

The message has the format of stock Celery (protocol 2), so a stock worker runs it. It goes over kombu's transports and a new
connection, and uses no app, pool or setting of the host process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid5

from celery import Celery
from kombu import Connection, Producer

from shared.ledger.ledger import Ledger
from shared.library import Library
from shared.logs import log_of
from shared.wire.end_task import EndTask
from shared.wire.errors import UserError
from shared.wire.events import EndTaskTried
from supervisor.lifecycle.ending import WEBHOOK_BACKOFF_S
from supervisor.lifecycle.state import JobState
from supervisor.signatures import check_allowed

TIMEOUT_S = 5.0
"""Limit for a connect, a read and a write."""
NOT_SET = "HANDOFF_ON_END_BROKER_URL is not set"
DEAD_LETTER_QUEUE = "on_end"
"""The name under which `handoff dead` lists tasks that could not be sent."""
_IDS = UUID("5b0b3a44-6e0a-4a56-9d0e-0d5b6f6f1f0e")
"""The namespace of task ids, made once."""
_OPTIONS: dict[str, dict[str, Any]] = {
    "redis": {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S},
    "amqp": {"confirm_publish": True, "read_timeout": TIMEOUT_S, "write_timeout": TIMEOUT_S},
}

log = log_of(__name__)


class EndTasks:
    """Sends, and writes down how it went."""

    def __init__(
        self,
        ledger: Ledger,
        library: Library,
        app: Celery,
        url: str | None,
        allowed: Sequence[str],
    ) -> None:
        """`app`: ours, which only builds the message. `url`: of the host's broker. `allowed`:
        patterns of the names of tasks that may be sent.

        Raises:
            UserError: kombu has no transport for the URL.
        """
        self._ledger = ledger
        self._library = library
        self._app = app
        self._url = url
        self._allowed = allowed
        if url is not None:
            check_transport(url)

    def send(self, state: JobState, attempt: int) -> None:
        """Make one try. Each try for the same end has the same task id."""
        assert state.ended is not None
        assert state.submitted.on_end is not None
        digest = state.submitted.on_end.digest
        text = self._library.payloads(state.job_id, [digest])[digest]
        task = EndTask.from_json(text)
        delivered, detail = self._published(task, state)
        tried = EndTaskTried(
            attempt=attempt, delivered=delivered, detail=detail, end=state.ended_version
        )
        self._ledger.journal.append(state.job_id, tried)
        if not delivered and attempt >= len(WEBHOOK_BACKOFF_S):
            reason = f"the task {task.task} of {state.job_id} was not sent: {detail}"
            self._ledger.dead.add(DEAD_LETTER_QUEUE, reason, text)
        log.info(
            "end task",
            job_id=state.job_id,
            task=task.task,
            attempt=attempt,
            delivered=delivered,
            detail=detail,
        )

    def _published(self, task: EndTask, state: JobState) -> tuple[bool, str]:
        """Return whether the broker took the message, and why not. The reason never holds the URL.

        The check of the name comes again here: a job may come from a client without the setting, or
        past every client.
        """
        if self._url is None:
            return False, NOT_SET
        try:
            check_allowed(task.task, self._allowed)
        except UserError as error:
            return False, str(error)
        try:
            with Connection(
                self._url,
                connect_timeout=TIMEOUT_S,
                transport_options=_OPTIONS.get(_kind_of(self._url), {}),
            ) as connection:
                connection.connect()
                self._publish(connection, task, state)
        except Exception as error:  # noqa: BLE001 - of any broker's client; its text may hold the URL
            return False, type(error).__name__
        return True, ""

    def _publish(self, connection: Any, task: EndTask, state: JobState) -> None:
        message = self._app.amqp.as_task_v2(
            task_id_of(state),
            task.task,
            args=(*((end_of(state),) if task.is_told else ()), *task.args),
            kwargs=task.kwargs,
            ignore_result=True,
        )
        with connection.channel() as channel:
            if connection.transport.driver_type == "amqp":  # or the broker would drop the message
                channel.queue_declare(queue=task.queue, passive=True)
            Producer(channel, auto_declare=False).publish(
                message.body,
                exchange="",
                routing_key=task.queue,
                serializer="json",
                headers=message.headers,
                delivery_mode=2,
                retry=False,
                **message.properties,
            )


def task_id_of(state: JobState) -> str:
    """Return the id of the task: the same for each try, and another one for the end of a retry."""
    return str(uuid5(_IDS, f"{state.job_id}/{state.ended_version}"))


def end_of(state: JobState) -> dict[str, str | None]:
    """Return the first argument of the task: the id of the job, its status and the reason."""
    assert state.ended is not None
    return {
        "job_id": state.job_id,
        "status": state.ended.status.value,
        "reason": state.ended.reason,
    }


def check_transport(url: str) -> None:
    """Raises: UserError: kombu does not know this kind of broker, or lacks its package."""
    scheme = url.partition("://")[0]
    try:
        Connection(url).get_transport_cls()
    except Exception as error:  # noqa: BLE001 - each kind of broker has errors of its own
        raise UserError(
            f"HANDOFF_ON_END_BROKER_URL: no transport for {scheme}:// ({type(error).__name__});"
            " install its package, or correct the URL"
        ) from None  # the text of kombu's error may hold the URL


def _kind_of(url: str) -> str:
    scheme = url.partition("://")[0]
    return {"rediss": "redis", "amqps": "amqp", "pyamqp": "amqp"}.get(scheme, scheme)
