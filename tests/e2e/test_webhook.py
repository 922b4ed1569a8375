"""The webhook of a job gets one signed request at its end. A failed request is repeated."""

from __future__ import annotations

import json

import pytest

from handoff_queue.shared.types.events import WebhookTried
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import DEFAULT_TENANT
from handoff_queue.supervisor.engine.webhooks import (
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    compute_signature,
    derive_tenant_secret,
)
from handoff_queue.supervisor.lifecycle.job_end import WEBHOOK_BACKOFF_S
from tests.doubles.webhook_server import WebhookServer
from tests.e2e.fleet import Fleet
from tests.e2e.fleets import WEBHOOK_SECRET
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_a_webhook_gets_one_signed_post_and_a_failed_post_is_repeated(fleet: Fleet) -> None:
    with WebhookServer(200) as healthy, WebhookServer(503, 200) as failing:
        job_id = fleet.submit("hook", webhook_url=healthy.url, a="")
        other = fleet.submit("hook-ill", webhook_url=failing.url, a="")
        fleet.wait_for_success(job_id)
        fleet.wait_for_success(other)
        wait_until(
            lambda: len(failing.posts) == 2,
            timeout_s=WEBHOOK_BACKOFF_S[1] + 5,
            expected="the second try",
        )
        wait_until(lambda: delivered(fleet, other), expected="its success in the journal")

        (post,) = healthy.posts
        body = json.loads(post.body)
        assert body.pop("version") > 0
        assert body == {"job_id": job_id, "status": "ok", "reason": None, "attempt": 1}
        sent = post.headers[SIGNATURE_HEADER.lower()], post.headers[TIMESTAMP_HEADER.lower()]
        secret = derive_tenant_secret(WEBHOOK_SECRET, DEFAULT_TENANT)
        assert sent[0] == compute_signature(secret, sent[1], post.body)
        first, second = (json.loads(post.body) for post in failing.posts)
        assert (first["attempt"], second["attempt"]) == (1, 2)
        assert first["version"] < second["version"]


def delivered(fleet: Fleet, job_id: str) -> bool:
    journal = fleet.jobs.store.journal.read(JobId(job_id))
    attempts = [recorded.event for recorded in journal if isinstance(recorded.event, WebhookTried)]
    return bool(attempts) and attempts[-1].delivered
