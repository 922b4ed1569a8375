"""Notifications of a job's end: the webhook, a task of the host's Celery app, and the reports
to OpenTelemetry and Flower.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from uuid import UUID, uuid5

from celery import Celery
from pydantic import JsonValue

from handoff_queue.shared.broker.host_celery_tasks import HostMessage, check_transport, send_to_host
from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.observability.telemetry import telemetry
from handoff_queue.shared.observability.trace_ids import JobSpan
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import HandoffError, StoreUnavailable, UserError
from handoff_queue.shared.types.events import (
    EndTaskTried,
    JobEnded,
    JobStatus,
    RecordedEvent,
    WebhookTried,
)
from handoff_queue.shared.types.job_options import EndTask
from handoff_queue.supervisor.client.celery_signatures import check_allowed
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.lifecycle.job_end import WEBHOOK_BACKOFF_S
from handoff_queue.supervisor.lifecycle.state import JobState

log = log_of(__name__)


TIMEOUT_S = 10.0
"""Seconds for a whole try. Without this limit, a receiver that sends one byte at a time would
block a thread forever.
"""
SIGNATURE_HEADER = "X-Handoff-Signature"
"""`sha256=` and the hexadecimal HMAC-SHA256 of `<timestamp>.<body>` under
HANDOFF_WEBHOOK_SECRET.
"""
TIMESTAMP_HEADER = "X-Handoff-Timestamp"
NOT_SET = "HANDOFF_ON_END_BROKER_URL is not set"
DEAD_LETTER_QUEUE = "on_end"
"""The name under which `handoff dead` lists tasks that could not be sent."""
_IDS = UUID("5b0b3a44-6e0a-4a56-9d0e-0d5b6f6f1f0e")
"""Namespace of the task ids. A random constant."""


def tell_end(state: JobState, recorded: Sequence[RecordedEvent], dispatcher: Dispatcher) -> None:
    """Report a job's end to OpenTelemetry and Flower, if these new events of its journal end
    it.

    The process that commits the end calls this, so the end is reported once.
    """
    ends: list[RecordedEvent] = []
    for record in recorded:
        if isinstance(record.event, JobEnded):
            ends.append(record)
    if not ends:
        return
    span = JobSpan(
        state.job_id,
        state.mode.value,
        state.status.value,
        state.status is JobStatus.FAILED,
        state.started_at,
        ends[-1].at,
        state.retries,
    )
    if telemetry().is_on:
        telemetry().job_ended(span)
    dispatcher.tell_ended(span)


class Webhooks:
    """Delivers webhooks. The journal gets the outcome of each try to report the end of a job."""

    def __init__(
        self,
        store: Store,
        secret: str | None,
        private_hosts: Sequence[str] = (),
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Set up the sender of webhooks.

        Args:
            secret: signs the requests. None: they are not signed.
            private_hosts: hosts that may have private addresses. All others must be public.
            timeout_s: seconds for one try.
        """
        self._store = store
        self._secret = secret
        self._private_hosts = private_hosts
        self._timeout_s = timeout_s

    def deliver(self, state: JobState, attempt: int) -> None:
        """Report the end of the job, with one try. The body holds the id, status and reason of
        the job and the number of the try. The receiver must ask for the result.
        """
        assert state.ended is not None
        body = json.dumps(
            {
                "job_id": state.job_id,
                "status": state.ended.status.value,
                "reason": state.ended.reason,
                "attempt": attempt,
            }
        ).encode()
        delivered, detail = self._post(state.submitted.webhook_url or "", body)
        tried = WebhookTried(
            attempt=attempt, delivered=delivered, detail=detail, end=state.ended_version
        )
        self._store.journal.append(state.job_id, tried)
        log.info(
            "webhook", job_id=state.job_id, attempt=attempt, delivered=delivered, detail=detail
        )

    def ask(self, state: JobState) -> None:
        """Report that the job waits for an approval, with one try. The next reminder repeats a
        lost report. Do nothing if the job has no webhook or no open question.
        """
        questions = (state.question, *state.open_calls[-1:])
        question = next((open_one for open_one in questions if open_one is not None), None)
        if state.submitted.webhook_url is None or question is None:
            return
        waits: dict[str, object] = {
            "job_id": state.job_id,
            "status": "waiting",
            "approval": question.what,
            "reminder": question.reminders,
        }
        if state.asks_about_steps:
            waits["steps"] = list(question.steps)
        if state.open_calls:
            waits["tools"] = [call.tool for call in state.open_calls]
        delivered, detail = self._post(state.submitted.webhook_url, json.dumps(waits).encode())
        log.info(
            "webhook",
            job_id=state.job_id,
            asks=question.what,
            delivered=delivered,
            detail=detail,
        )

    def _post(self, url: str, body: bytes) -> tuple[bool, str]:
        """Return whether the receiver answered with a 2xx status, and the status or the error."""
        if not url.lower().startswith(("http://", "https://")):
            return False, "not an http(s) URL"
        timestamp = str(int(self._store.connection.now()))
        headers = {"Content-Type": "application/json", TIMESTAMP_HEADER: timestamp}
        if self._secret:
            headers[SIGNATURE_HEADER] = signature(self._secret, timestamp, body)
        # httpx2 would add 50 ms to each start of a supervisor, and few jobs have a webhook.
        from handoff_queue.supervisor.engine.webhook_request import post

        return post(url, body, headers, self._private_hosts, self._timeout_s)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the value of `SIGNATURE_HEADER`. The receiver computes it again and compares the
    two with `hmac.compare_digest`.
    """
    signed = timestamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


class EndTasks:
    """Sends the task of a job's end to the host's broker, and records the outcome of each try."""

    def __init__(
        self,
        store: Store,
        payload_cache: PayloadCache,
        app: Celery,
        url: str | None,
        allowed: Sequence[str],
    ) -> None:
        """Set up the sender of host tasks.

        Args:
            app: an app of this project, which only builds the message.
            url: URL of the host's broker.
            allowed: patterns of the names of tasks that may be sent.

        Raises:
            UserError: kombu has no transport for the URL.
        """
        self._store = store
        self._payload_cache = payload_cache
        self._app = app
        self._url = url
        self._allowed = allowed
        if url is not None:
            check_transport("HANDOFF_ON_END_BROKER_URL", url)

    def send(self, state: JobState, attempt: int) -> None:
        """Make one try. Each try for the same end has the same task id. After the last try,
        the task becomes a dead letter.

        Raises:
            StoreUnavailable: Redis cannot be reached. The try has no outcome.
        """
        try:
            text = self._text(state)
            task = EndTask.from_json(text)
        except StoreUnavailable:
            raise
        except HandoffError as error:
            self._record(state, _tried(state, attempt, False, str(error)), "of the end", "")
            return
        delivered, detail = self._published(task, state)
        self._record(state, _tried(state, attempt, delivered, detail), task.task, text)

    def _text(self, state: JobState) -> str:
        """Return the task of a job's end, as JSON.

        Raises:
            StoreError: the payload is missing or cannot be read.
        """
        assert state.submitted.on_end is not None
        digest = state.submitted.on_end.digest
        return self._payload_cache.payloads(state.job_id, [digest])[digest]

    def _record(self, state: JobState, tried: EndTaskTried, task: str, text: str) -> None:
        """Record the outcome of a try. Make a dead letter after the last try.

        Args:
            task: name of the task.
            text: the task as JSON.
        """
        self._store.journal.append(state.job_id, tried)
        if not tried.delivered and tried.attempt >= len(WEBHOOK_BACKOFF_S):
            reason = f"the task {task} of {state.job_id} was not sent: {tried.detail}"
            self._store.dead_letters.add(DEAD_LETTER_QUEUE, reason, text)
        log.info(
            "end task",
            job_id=state.job_id,
            task=task,
            attempt=tried.attempt,
            delivered=tried.delivered,
            detail=tried.detail,
        )

    def _published(self, task: EndTask, state: JobState) -> tuple[bool, str]:
        """Return whether the broker accepted the message, and otherwise the reason. The reason
        never holds the URL.

        The supervisor checks the task's name again, because a client may lack the setting or
        write to Redis directly.
        """
        if self._url is None:
            return False, NOT_SET
        try:
            check_allowed(task.task, self._allowed)
        except UserError as error:
            return False, str(error)
        args = task.args
        if task.is_told:
            args = (end_of(state), *task.args)
        message = HostMessage(
            task_id=task_id_of(state),
            task=task.task,
            queue=task.queue,
            args=args,
            kwargs=task.kwargs,
            ignore_result=True,
        )
        try:
            send_to_host(self._app, self._url, message)
        except Exception as error:  # noqa: BLE001 - brokers' clients raise anything; the text may hold the URL
            return False, type(error).__name__
        return True, ""


def _tried(state: JobState, attempt: int, delivered: bool, detail: str) -> EndTaskTried:
    return EndTaskTried(
        attempt=attempt, delivered=delivered, detail=detail, end=state.ended_version
    )


def task_id_of(state: JobState) -> str:
    """Return the id of the task. It is the same for each try; the end after a retry has another."""
    return str(uuid5(_IDS, f"{state.job_id}/{state.ended_version}"))


def end_of(state: JobState) -> dict[str, JsonValue]:
    """Return the first argument of the task: the id of the job, its status and the reason."""
    assert state.ended is not None
    return {
        "job_id": state.job_id,
        "status": state.ended.status.value,
        "reason": state.ended.reason,
    }
