"""Sends a task to the broker of the host's own Celery app when a job has ended."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid5

from celery import Celery

from handoff_queue.shared.broker.host_tasks import HostMessage, check_transport, send_to_host
from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.runtime.payload_cache import Library
from handoff_queue.shared.store.store import Ledger
from handoff_queue.shared.types.end_task import EndTask
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import EndTaskTried
from handoff_queue.supervisor.client.task_signatures import check_allowed
from handoff_queue.supervisor.lifecycle.job_end import WEBHOOK_BACKOFF_S
from handoff_queue.supervisor.lifecycle.state import JobState

NOT_SET = "HANDOFF_ON_END_BROKER_URL is not set"
DEAD_LETTER_QUEUE = "on_end"
"""The name under which `handoff dead` lists tasks that could not be sent."""
_IDS = UUID("5b0b3a44-6e0a-4a56-9d0e-0d5b6f6f1f0e")
"""The namespace of task ids, made once."""

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
            check_transport("HANDOFF_ON_END_BROKER_URL", url)

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
        message = HostMessage(
            task_id=task_id_of(state),
            task=task.task,
            queue=task.queue,
            args=(*((end_of(state),) if task.is_told else ()), *task.args),
            kwargs=task.kwargs,
            ignore_result=True,
        )
        try:
            send_to_host(self._app, self._url, message)
        except Exception as error:  # noqa: BLE001 - of any broker's client; its text may hold the URL
            return False, type(error).__name__
        return True, ""


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
