"""One signed POST to the address of a webhook. The submitter of a job chooses the address, so it
must not lead to the supervisor's own network.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

import httpx2

from handoff_queue.shared.agent.seen_texts import is_allowed_host
from handoff_queue.shared.network.pinned_transport import REQUEST_ERRORS, Deadline, PinnedTransport
from handoff_queue.shared.network.ssrf_guard import (
    AddressRefused,
    Policy,
    any_address,
    is_public,
    is_web_port,
    system_resolver,
)

SIGNATURE_HEADER = "X-Handoff-Signature"
"""`sha256=` and the hexadecimal HMAC-SHA256 of `<timestamp>.<body>` under
HANDOFF_WEBHOOK_SECRET.
"""
TIMESTAMP_HEADER = "X-Handoff-Timestamp"
_SETTING = "HANDOFF_WEBHOOK_PRIVATE_HOSTS"


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    private_hosts: Sequence[str],
    timeout_s: float,
) -> tuple[bool, str]:
    """Return whether the receiver answered with a 2xx status, and the status or the error.

    A redirect is not followed, and no proxy is used: it could connect to an address that was not
    checked.

    Args:
        url: an http or https URL.
        private_hosts: hosts that may have private addresses and any port, see `is_allowed_host`.
        timeout_s: seconds for the whole exchange.
    """
    try:
        place = httpx2.URL(url)
        policy: Policy = is_public
        if is_allowed_host(place.host, private_hosts):
            policy = any_address
        elif place.port is not None and not is_web_port(place.port):
            return False, f"port {place.port} is not one of the web ({_SETTING})"
        transport = PinnedTransport(
            system_resolver, policy, Deadline(timeout_s), httpx2.create_ssl_context()
        )
        with (
            httpx2.Client(transport=transport, trust_env=False) as client,
            client.stream("POST", place, content=body, headers=dict(headers)) as answer,
        ):
            return answer.is_success, str(answer.status_code)
    except AddressRefused as error:
        return False, f"{error} ({_SETTING})"
    except REQUEST_ERRORS as error:
        return False, type(error).__name__


def signature_headers(secret: str | None, at: int, body: bytes) -> dict[str, str]:
    """Return the headers with the time and the signature of a request. Without a secret there is no
    signature.

    Args:
        at: Unix time in seconds.
    """
    timestamp = str(at)
    headers = {TIMESTAMP_HEADER: timestamp}
    if secret:
        headers[SIGNATURE_HEADER] = signature(secret, timestamp, body)
    return headers


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the value of `SIGNATURE_HEADER`. The receiver computes it again and compares the
    two with `hmac.compare_digest`.
    """
    signed = timestamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
