"""The end of a job is told to its webhook: signed, once, and again when that failed."""

from __future__ import annotations

import json

import pytest

from handoff_queue.shared.types.events import WebhookTried
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.engine.notifications import (
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    signature,
)
from handoff_queue.supervisor.lifecycle.job_end import WEBHOOK_BACKOFF_S
from tests.doubles.webhook_server import WebhookServer
from tests.e2e.fleet import Fleet
from tests.e2e.fleets import WEBHOOK_SECRET
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_a_webhook_gets_one_signed_post_and_a_failed_post_is_repeated(fleet: Fleet) -> None:
    with WebhookServer(200) as well, WebhookServer(503, 200) as ill:
        job_id = fleet.submit("hook", webhook_url=well.url, a="")
        other = fleet.submit("hook-ill", webhook_url=ill.url, a="")
        fleet.ends_well(job_id)
        fleet.ends_well(other)
        wait_until(
            lambda: len(ill.posts) == 2, timeout_s=WEBHOOK_BACKOFF_S[1] + 5, what="the second try"
        )
        wait_until(lambda: delivered(fleet, other), what="its success in the journal")

        (post,) = well.posts
        assert json.loads(post.body) == {
            "job_id": job_id,
            "status": "ok",
            "reason": None,
            "attempt": 1,
        }
        sent = post.headers[SIGNATURE_HEADER.lower()], post.headers[TIMESTAMP_HEADER.lower()]
        assert sent[0] == signature(WEBHOOK_SECRET, sent[1], post.body)
        assert [json.loads(one.body)["attempt"] for one in ill.posts] == [1, 2]


def delivered(fleet: Fleet, job_id: str) -> bool:
    written = fleet.jobs.store.journal.read(JobId(job_id))
    tried = [each.event for each in written if isinstance(each.event, WebhookTried)]
    return bool(tried) and tried[-1].delivered
