"""Completion webhooks: a signed POST when a job has ended, tried again with growing pauses."""

from __future__ import annotations

import hashlib
import hmac
import json
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import structlog

from shared.ledger.ledger import Ledger
from shared.wire.events import WebhookTried
from supervisor.lifecycle.state import JobState

TIMEOUT_S = 10.0
SIGNATURE_HEADER = "X-Handoff-Signature"
"""`sha256=` and the hexadecimal HMAC-SHA256 of `<timestamp>.<body>` under HANDOFF_WEBHOOK_SECRET."""
TIMESTAMP_HEADER = "X-Handoff-Timestamp"

log = structlog.get_logger()


class _NoRedirects(HTTPRedirectHandler):
    """A webhook's address is what the user gave; nobody sends us elsewhere."""

    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        return None


class Webhooks:
    """Delivers, and writes down how it went."""

    def __init__(self, ledger: Ledger, secret: str | None) -> None:
        self._ledger = ledger
        self._secret = secret

    def deliver(self, state: JobState, attempt: int) -> None:
        """One try. The body has the id and the status; whoever gets it asks for the result."""
        assert state.ended is not None
        body = json.dumps(
            {"job_id": state.job_id, "status": state.ended.status.value, "reason": state.ended.reason, "attempt": attempt}
        ).encode()
        delivered, detail = self._post(state.submitted.webhook_url or "", body)
        self._ledger.journal.append(state.job_id, WebhookTried(attempt=attempt, delivered=delivered, detail=detail))
        log.info("webhook", job_id=state.job_id, attempt=attempt, delivered=delivered, detail=detail)

    def _post(self, url: str, body: bytes) -> tuple[bool, str]:
        if not url.startswith(("http://", "https://")):
            return False, "not an http(s) URL"
        timestamp = str(int(self._ledger.connection.now()))
        headers = {"Content-Type": "application/json", TIMESTAMP_HEADER: timestamp}
        if self._secret:
            headers[SIGNATURE_HEADER] = signature(self._secret, timestamp, body)
        try:
            with build_opener(_NoRedirects()).open(Request(url, body, headers), timeout=TIMEOUT_S) as answer:  # noqa: S310
                return 200 <= answer.status < 300, str(answer.status)
        except HTTPError as error:
            return False, str(error.code)
        except (URLError, OSError, ValueError) as error:
            return False, type(error).__name__


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """What the receiver computes again and compares (`hmac.compare_digest`)."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
