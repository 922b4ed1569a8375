"""Webhooks: signed reports to the submitter's HTTP server that a job has ended, or that it waits
for an approval.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import WebhookTried
from handoff_queue.supervisor.lifecycle.state import JobState

log = log_of(__name__)

TIMEOUT_S = 10.0
"""Seconds for a whole try. Without this limit, a receiver that sends one byte at a time would
block a thread forever.
"""


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
        the job, the version of its journal and the number of the try. The receiver must ask for
        the result.
        """
        assert state.ended is not None
        body = json.dumps(
            {
                "job_id": state.job_id,
                "status": state.ended.status.value,
                "reason": state.ended.reason,
                "version": state.version,
                "attempt": attempt,
            }
        ).encode()
        self._record(state, attempt, *self._post(state.submitted.webhook_url or "", body))

    def not_delivered(self, state: JobState, attempt: int, detail: str) -> None:
        """Record that a try failed before it was sent. The next try comes after the usual time."""
        self._record(state, attempt, False, detail)

    def _record(self, state: JobState, attempt: int, delivered: bool, detail: str) -> None:
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
            "version": state.version,
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
        # httpx2 would add 50 ms to each start of a supervisor, and few jobs have a webhook.
        from handoff_queue.supervisor.engine.webhook_request import post, signature_headers

        headers = {"Content-Type": "application/json"}
        headers |= signature_headers(self._secret, int(self._store.connection.now()), body)
        return post(url, body, headers, self._private_hosts, self._timeout_s)
