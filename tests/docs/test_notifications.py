"""The webhook code of docs/how-to/notifications.md works, and the listed errors exist."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.store.redis.connection import MAX_CONNECTIONS
from handoff_queue.shared.types import errors
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.journal_follower import FOLLOW_S
from handoff_queue.supervisor.engine import webhooks
from handoff_queue.supervisor.lifecycle.job_end import WEBHOOK_BACKOFF_S
from tests.docs.pages import blocks, coded, rows, sections, text_of

WEB = text_of("how-to/web-backend")
NOTIFICATIONS = sections(text_of("how-to/notifications"))
SECRET = "a-secret-of-this-test"


def defined_by(text: str) -> dict[str, Any]:
    """Return the names that the programs of a page or a section define."""
    names: dict[str, Any] = {"__name__": "docs"}
    for block in blocks(text, "python"):
        exec(compile(block, "docs", "exec"), names)
    return names


def signed(body: bytes, at: float) -> Mapping[str, str]:
    timestamp = str(int(at))
    return {
        webhooks.TIMESTAMP_HEADER: timestamp,
        webhooks.SIGNATURE_HEADER: webhooks.compute_signature(SECRET, timestamp, body),
    }


def test_a_genuine_webhook_is_told_from_a_forged_and_from_an_old_one() -> None:
    is_genuine = defined_by(NOTIFICATIONS["A webhook"])["is_genuine"]
    body = b'{"job_id": "j-0123456789ab", "status": "ok"}'
    now = time.time()

    assert is_genuine(SECRET, signed(body, now), body)
    assert not is_genuine(SECRET, signed(body, now), body.replace(b"ok", b"no"))
    assert not is_genuine("another", signed(body, now), body)
    assert not is_genuine(SECRET, signed(body, now - 3_600), body)
    assert not is_genuine(SECRET, {}, body)
    assert not is_genuine(SECRET, {**signed(body, now), webhooks.SIGNATURE_HEADER: "größer"}, body)
    assert not is_genuine(SECRET, {**signed(body, now), webhooks.TIMESTAMP_HEADER: "soon"}, body)


def test_the_page_names_the_pauses_between_webhooks() -> None:
    first, *later = WEBHOOK_BACKOFF_S

    assert (first, later) == (0.0, [5.0, 30.0, 120.0, 600.0, 3_600.0])
    assert "5 seconds, 30 seconds, 2 minutes, 10 minutes and an hour" in " ".join(
        NOTIFICATIONS["A webhook"].split()
    )
    assert (webhooks.TIMEOUT_S, FOLLOW_S, MAX_CONNECTIONS) == (10.0, 5.0, 64)


def test_every_error_that_the_client_says_it_raises_has_an_http_status() -> None:
    listed = [coded(row[0]) for row in rows(sections(WEB)["Errors"])]
    raised = {
        name
        for _, method in inspect.getmembers(Client, inspect.isfunction)
        for name in re.findall(r"^ +([A-Z]\w+): ", method.__doc__ or "", re.M)
        if name not in {"Args", "Raises"}
    }

    assert {"UserError", "BudgetSpent", "StoreUnavailable"} <= raised <= set(listed)
    assert all(issubclass(getattr(errors, name), errors.HandoffError) for name in listed)
