"""Tasks of the host's Celery app that are sent when a job ends."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid5

from celery import Celery
from pydantic import JsonValue

from handoff_queue.shared.broker.host_celery_tasks import HostMessage, check_transport, send_to_host
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import HandoffError, StoreUnavailable, UserError
from handoff_queue.shared.types.events import EndTaskTried
from handoff_queue.shared.types.job_options import EndTask
from handoff_queue.supervisor.client.celery_signatures import check_allowed
from handoff_queue.supervisor.lifecycle.job_end import WEBHOOK_BACKOFF_S
from handoff_queue.supervisor.lifecycle.state import JobState

log = get_log(__name__)

NOT_SET = "HANDOFF_ON_END_BROKER_URL is not set for the supervisors"
DEAD_LETTER_QUEUE = "on_end"
"""The name under which `handoff dead` lists tasks that could not be sent."""
_IDS = UUID("5b0b3a44-6e0a-4a56-9d0e-0d5b6f6f1f0e")
"""Namespace of the task ids. A random constant."""


class EndTasks:
    """Sends the task of a job's end to the host's broker, and records the outcome of each try."""

    def __init__(
        self,
        store: Store,
        payload_cache: PayloadCache,
        app: Celery,
        url: str | None,
        allowed_names: Sequence[str],
    ) -> None:
        """Set up the sender of host tasks.

        Args:
            app: an app of this project, which only builds the message.
            url: URL of the host's broker.
            allowed_names: patterns of the names of tasks that may be sent.

        Raises:
            UserError: kombu has no transport for the URL.
        """
        self._store = store
        self._payload_cache = payload_cache
        self._app = app
        self._url = url
        self._allowed_names = allowed_names
        if url is not None:
            check_transport("HANDOFF_ON_END_BROKER_URL", url)

    def send(self, state: JobState, attempt: int, *, not_sent: str = "") -> None:
        """Make one try. Each try for the same end has the same task id. After the last try,
        the task becomes a dead letter.

        Args:
            not_sent: why the try failed before it was sent; '' to send the task.

        Raises:
            StoreUnavailable: Redis cannot be reached. The try has no outcome.
        """
        try:
            text = self._build_text(state)
            task = EndTask.from_json(text)
        except StoreUnavailable:
            raise
        except HandoffError as error:
            self._record(state, attempt, str(error), "of the end", "")
            return
        self._record(state, attempt, not_sent or self._publish(task, state), task.task, text)

    def _build_text(self, state: JobState) -> str:
        """Return the task of a job's end, as JSON.

        Raises:
            StoreError: the payload is missing or cannot be read.
        """
        assert state.submitted.on_end is not None
        digest = state.submitted.on_end.digest
        return self._payload_cache.get_payloads(state.job_id, [digest])[digest]

    def _record(self, state: JobState, attempt: int, why_not: str, task: str, text: str) -> None:
        """Record the outcome of a try. Make a dead letter after the last try.

        Args:
            why_not: why the task was not sent; '' if it was.
            task: name of the task.
            text: the task as JSON.
        """
        is_delivered = not why_not
        event = EndTaskTried(
            attempt=attempt, delivered=is_delivered, detail=why_not, end=state.ended_version
        )
        self._store.journal.append(state.job_id, event)
        if not is_delivered and attempt >= len(WEBHOOK_BACKOFF_S):
            reason = f"the task {task} of {state.job_id} was not sent: {why_not}"
            self._store.dead_letters.add(DEAD_LETTER_QUEUE, reason, text)
        log.info(
            "the end task of a job was sent",
            job_id=state.job_id,
            task=task,
            attempt=attempt,
            delivered=is_delivered,
            detail=why_not,
        )

    def _publish(self, task: EndTask, state: JobState) -> str:
        """Send the task. Return why the broker did not accept it, without the URL; '' if it did.

        The supervisor checks the task's name again, because a client may lack the setting or
        write to Redis directly.
        """
        if self._url is None:
            return NOT_SET
        try:
            check_allowed(task.task, self._allowed_names)
        except UserError as error:
            return str(error)
        args = task.args
        if task.is_told:
            args = (build_end_argument(state), *task.args)
        message = HostMessage(
            task_id=build_task_id(state),
            task=task.task,
            queue=task.queue,
            args=args,
            kwargs=task.kwargs,
            ignore_result=True,
        )
        try:
            send_to_host(self._app, self._url, message)
        except Exception as error:  # noqa: BLE001 - brokers' clients raise anything; the text may hold the URL
            return type(error).__name__
        return ""


def build_task_id(state: JobState) -> str:
    """Return the id of the task. It is the same for each try; the end after a retry has another."""
    return str(uuid5(_IDS, f"{state.job_id}/{state.ended_version}"))


def build_end_argument(state: JobState) -> dict[str, JsonValue]:
    """Return the first argument of the task: the id of the job, its status and the reason."""
    assert state.ended is not None
    return {
        "job_id": state.job_id,
        "status": state.ended.status.value,
        "reason": state.ended.reason,
    }
