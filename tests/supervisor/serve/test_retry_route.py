"""The retry of a job over HTTP: from a step, and with higher limits. It also fills the
gaps of a partial answer.
"""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobEnded, JobStatus, RetryRequested
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.supervisor.client.request import Request
from tests.supervisor.serve.conftest import ClientOf
from tests.supervisor.shell import Shell


def end_with_gaps(shell: Shell, job_id: JobId) -> None:
    """End a job whose steps have no result, with a partial answer."""
    event = JobEnded(status=JobStatus.PARTIAL)
    shell.jobs.store.journal.append(job_id, event, {"status": "partial"})


@pytest.fixture
def planned(shell: Shell) -> JobId:
    """Return a job that waits for the approval of its plan."""
    job_id = shell.jobs.submit(
        Request("Compare them", approvals=Approvals(what=(ApprovalOf.PLAN,)))
    )
    while not shell.jobs.info(job_id).approval:
        shell.advance(job_id)
    return job_id


@pytest.fixture
def cancelled(shell: Shell, planned: JobId) -> JobId:
    """Return a cancelled job that has a plan."""
    job_id = planned
    shell.jobs.cancel(job_id)
    shell.advance(job_id)
    return job_id


@pytest.fixture
def operator(client_with: ClientOf) -> TestClient:
    return client_with("operate")


def steps_of(http: TestClient, job_id: JobId) -> list[str]:
    return [step["id"] for step in http.get(f"/v1/jobs/{job_id}/plan").json()["plan"]["steps"]]


def test_a_job_is_retried_from_a_step_with_a_higher_limit(
    shell: Shell, operator: TestClient, cancelled: JobId
) -> None:
    step = steps_of(operator, cancelled)[-1]

    answer = operator.post(
        f"/v1/jobs/{cancelled}/retry", json={"from_step": step, "limits": {"max_turns": 500}}
    )

    assert answer.status_code == 202
    *_, event = [stored.event for stored in shell.jobs.store.journal.read(cancelled)]
    assert isinstance(event, RetryRequested)
    assert event.from_step == step
    assert event.max_turns == 500


def test_a_step_that_is_not_in_the_plan_is_refused_with_the_words_of_the_client(
    shell: Shell, operator: TestClient, cancelled: JobId
) -> None:
    with pytest.raises(UserError) as refused:
        shell.jobs.retry(cancelled, "reserch")

    answer = operator.post(f"/v1/jobs/{cancelled}/retry", json={"from_step": "reserch"})

    assert answer.status_code == 400
    assert answer.json()["detail"] == str(refused.value)
    assert "has no step reserch: its steps are" in answer.json()["detail"]


def test_a_repeated_retry_with_the_same_key_has_no_effect(
    shell: Shell, operator: TestClient, cancelled: JobId
) -> None:
    path, key = f"/v1/jobs/{cancelled}/retry", {"Idempotency-Key": "r1"}
    body = {"from_step": steps_of(operator, cancelled)[-1], "limits": {"max_turns": 500}}
    first = operator.post(path, json=body, headers=key)
    shell.jobs.cancel(cancelled)
    shell.advance(cancelled)
    before = shell.jobs.store.journal.read(cancelled)

    again = operator.post(path, json={**body, "idempotency_key": "r1"})
    other = operator.post(path, json={}, headers=key)

    assert (first.status_code, again.status_code, other.status_code) == (202, 202, 409)
    assert shell.jobs.store.journal.read(cancelled) == before


def test_a_retry_fills_the_gaps_of_a_partial_answer(
    shell: Shell, operator: TestClient, planned: JobId
) -> None:
    end_with_gaps(shell, planned)
    body = {"limits": {"max_turns": 500}, "idempotency_key": "f1"}

    first = operator.post(f"/v1/jobs/{planned}/retry", json=body)
    stored = shell.jobs.store.journal.read(planned)
    again = operator.post(f"/v1/jobs/{planned}/retry", json=body)

    assert (first.status_code, again.status_code) == (202, 202)
    *_, event = [recorded.event for recorded in stored]
    assert isinstance(event, RetryRequested)
    assert (event.fills_gaps, event.from_step, event.max_turns) == (True, None, 500)
    assert shell.jobs.store.journal.read(planned) == stored, "the key belongs to the first request"
    assert shell.jobs.audit(planned)[-1].detail == "fills the gaps"
