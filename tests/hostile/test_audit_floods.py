"""Many actions of one token remove no audit entry of another caller."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import audit
from handoff_queue.shared.types.audit import AuditAction
from handoff_queue.supervisor.client.client import Client
from tests.supervisor.serve.conftest import ClientOf

KEPT = 100
SCHEDULE = {"name": "daily", "cron": "0 0 1 1 *", "job": {"text": "Look."}}


@pytest.fixture(autouse=True)
def short_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MIN_KEPT", KEPT)
    monkeypatch.setattr(audit, "MIN_OF_CALLER", KEPT)


@pytest.mark.slow
def test_actions_of_a_tenant_remove_no_action_of_the_fleet_and_of_another_tenant(
    jobs: Client, client_with: ClientOf
) -> None:
    jobs.pause("writer")
    other, flooding = client_with("operate", "b"), client_with("operate", "a")
    assert other.post("/v1/schedules", json=SCHEDULE).status_code == 201
    assert flooding.post("/v1/schedules", json=SCHEDULE).status_code == 201
    for _ in range(2 * KEPT):
        for action in ("pause", "unpause"):
            assert flooding.post(f"/v1/schedules/daily/{action}").status_code == 200

    entries = jobs.audit(count=10 * KEPT)

    assert [entry.subject for entry in entries if entry.action is AuditAction.PAUSE] == ["writer"]
    added = [entry.detail for entry in entries if entry.action is AuditAction.ADD_SCHEDULE]
    assert any("tenant b" in detail for detail in added)
    assert len(entries) < 4 * KEPT, "the stream of a token has a bound"


def test_a_list_has_the_newest_actions_of_all_callers(jobs: Client, client_with: ClientOf) -> None:
    jobs.pause("writer")
    client_with("operate", "a").post("/v1/schedules", json=SCHEDULE)
    jobs.unpause("writer")
    actions = [entry.action for entry in jobs.audit(count=2)]
    assert actions == [AuditAction.ADD_SCHEDULE, AuditAction.UNPAUSE]
