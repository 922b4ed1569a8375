"""Webhooks: signed reports to the submitter's HTTP server that a job has ended, or that it waits
for an approval.

The submitter of a job chooses the address of a webhook, so the address must not lead to the
supervisor's own network.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from handoff_queue.shared.agent.seen_texts import is_allowed_host
from handoff_queue.shared.network.ssrf_guard import (
    AddressRefused,
    Policy,
    accepts_any_address,
    is_public,
    is_web_port,
    resolve_with_system,
)
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import WebhookTried
from handoff_queue.supervisor.lifecycle.state import JobState

log = get_log(__name__)

TIMEOUT_S = 10.0
"""Seconds for a whole try. Without this limit, a receiver that sends one byte at a time would
block a thread forever.
"""


class PostOutcome(NamedTuple):
    """Outcome of a request to a receiver."""

    is_accepted: bool
    """True if the receiver answered with a 2xx status."""
    detail: str
    """The status of the answer, or why there is none."""


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
            secret: the secret of the installation, from which `derive_tenant_secret` makes the
                secret of each tenant. None: the requests are not signed.
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
        self._record(state, attempt, self._post(state, body))

    def record_failed_try(self, state: JobState, attempt: int, detail: str) -> None:
        """Record that a try failed before it was sent. The next try comes after the usual time."""
        self._record(state, attempt, PostOutcome(is_accepted=False, detail=detail))

    def _record(self, state: JobState, attempt: int, outcome: PostOutcome) -> None:
        event = WebhookTried(
            attempt=attempt,
            delivered=outcome.is_accepted,
            detail=outcome.detail,
            end=state.ended_version,
        )
        self._store.journal.append(state.job_id, event)
        log.info(
            "the webhook of a job was called",
            job_id=state.job_id,
            attempt=attempt,
            delivered=outcome.is_accepted,
            detail=outcome.detail,
        )

    def ask(self, state: JobState) -> None:
        """Report that the job waits for an approval, with one try. The next reminder repeats a
        lost report. Do nothing if the job has no webhook or no open question.
        """
        question = state.question
        if question is None and state.open_calls:
            question = state.open_calls[-1]
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
        outcome = self._post(state, json.dumps(waits).encode())
        log.info(
            "the webhook of a job was called",
            job_id=state.job_id,
            asks=question.what,
            delivered=outcome.is_accepted,
            detail=outcome.detail,
        )

    def _post(self, state: JobState, body: bytes) -> PostOutcome:
        url = state.submitted.webhook_url or ""
        if not url.lower().startswith(("http://", "https://")):
            return PostOutcome(is_accepted=False, detail="not an http(s) URL")
        headers = {"Content-Type": "application/json"}
        secret = None
        if self._secret:
            secret = derive_tenant_secret(self._secret, state.submitted.tenant)
        headers |= build_signature_headers(secret, int(self._store.connection.now()), body)
        return post(url, body, headers, self._private_hosts, self._timeout_s)


SIGNATURE_HEADER = "X-Handoff-Signature"
"""`sha256=` and the hexadecimal HMAC-SHA256 of `<timestamp>.<body>` under the secret of the job's
tenant.
"""
TIMESTAMP_HEADER = "X-Handoff-Timestamp"
_SETTING = "HANDOFF_WEBHOOK_PRIVATE_HOSTS"


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    private_hosts: Sequence[str],
    timeout_s: float,
) -> PostOutcome:
    """Send a request to a receiver, and return the outcome.

    A redirect is not followed, and no proxy is used: it could connect to an address that was not
    checked.

    Args:
        url: an http or https URL.
        private_hosts: hosts that may have private addresses and any port, see `is_allowed_host`.
        timeout_s: seconds for the whole exchange.
    """
    # httpx2 would add 50 ms to each start of a supervisor, and few jobs have a webhook.
    import httpx2

    from handoff_queue.shared.network.pinned_transport import (
        REQUEST_ERRORS,
        Deadline,
        PinnedTransport,
    )

    try:
        place = httpx2.URL(url)
        policy: Policy = is_public
        if is_allowed_host(place.host, private_hosts):
            policy = accepts_any_address
        elif place.port is not None and not is_web_port(place.port):
            why = f"port {place.port} is not a web port (80, 443, or above 1023; {_SETTING})"
            return PostOutcome(is_accepted=False, detail=why)
        transport = PinnedTransport(
            resolve_with_system, policy, Deadline(timeout_s), httpx2.create_ssl_context()
        )
        with (
            httpx2.Client(transport=transport, trust_env=False) as client,
            client.stream("POST", place, content=body, headers=dict(headers)) as answer,
        ):
            return PostOutcome(answer.is_success, str(answer.status_code))
    except (AddressRefused, socket.gaierror):  # a submitter learns no name of this network
        why = f"{place.host} is not on the public internet, or is unknown ({_SETTING})"
        return PostOutcome(is_accepted=False, detail=why)
    except REQUEST_ERRORS as error:
        return PostOutcome(is_accepted=False, detail=type(error).__name__)


def derive_tenant_secret(secret: str, tenant: str) -> str:
    """Return the secret that signs the webhooks of a tenant: 64 hexadecimal digits. Pure.

    A receiver of one tenant cannot compute the secret of another tenant. So no receiver gets the
    secret of the installation, also for the tenant `DEFAULT_TENANT`.

    Args:
        secret: the secret of the installation (HANDOFF_WEBHOOK_SECRET).
    """
    return hmac.new(secret.encode(), tenant.encode(), hashlib.sha256).hexdigest()


def build_signature_headers(secret: str | None, at: int, body: bytes) -> dict[str, str]:
    """Return the headers with the time and the signature of a request. Without a secret there is no
    signature.

    Args:
        at: Unix time in seconds.
    """
    timestamp = str(at)
    headers = {TIMESTAMP_HEADER: timestamp}
    if secret:
        headers[SIGNATURE_HEADER] = compute_signature(secret, timestamp, body)
    return headers


def compute_signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the value of `SIGNATURE_HEADER`. The receiver computes it again and compares the
    two with `hmac.compare_digest`.
    """
    signed = timestamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
