"""Messages to running agents over HTTP: stored once for each key, and refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from handoff_queue.shared.types.audit import AuditAction
from handoff_queue.shared.types.events import UserMessageSent
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.client import Client
from tests.doubles.jobs import a_job
from tests.supervisor.many_rows import submit_rows
from tests.supervisor.serve.conftest import ClientOf
from tests.supervisor.serve.test_job_routes import UNKNOWN, end
from tests.supervisor.shell import Shell

SHORTER = {"text": "Shorter, please."}


def messages(jobs: Client, job_id: JobId) -> list[UserMessageSent]:
    events = [recorded.event for recorded in jobs.events(job_id, follow=False)]
    return [event for event in events if isinstance(event, UserMessageSent)]


def test_a_message_is_stored_for_the_steps_that_run(
    http: TestClient, shell: Shell, tmp_path: Path
) -> None:
    job_id = submit_rows(shell, tmp_path, 1)
    (issued,) = shell.open(job_id)

    answer = http.post(f"/v1/jobs/{job_id}/messages", json={**SHORTER, "step": issued.step_id})

    (event,) = messages(shell.jobs, job_id)
    assert answer.status_code == 202
    assert answer.json() == {
        "job_id": job_id,
        "message_id": event.message_id,
        "version": shell.jobs.info(job_id).version,
        "running": [issued.step_id],
    }


def test_a_key_makes_one_message_and_refuses_another_text(http: TestClient, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    url, key = f"/v1/jobs/{job_id}/messages", {"Idempotency-Key": "m-1"}

    first = http.post(url, json=SHORTER, headers=key)
    again = http.post(url, json={**SHORTER, "idempotency_key": "m-1"})
    other = http.post(url, json={"text": "Longer."}, headers=key)

    assert first.json() == again.json()
    assert other.status_code == 409
    assert len(messages(jobs, job_id)) == 1


def test_a_message_needs_the_role_operate_and_names_its_actor(
    jobs: Client, client_with: ClientOf
) -> None:
    job_id = a_job(jobs.store)
    url = f"/v1/jobs/{job_id}/messages"

    refused = client_with("submit").post(url, json=SHORTER)
    sent = client_with("operate").post(url, json=SHORTER)

    assert (refused.status_code, sent.status_code) == (403, 202)
    entry = jobs.audit(job_id)[-1]
    assert entry.action is AuditAction.SAY
    assert entry.actor
    assert entry.actor.via == "api"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"text": " "}, "the message is empty"),
        ({"text": "x" * 10_001}, "write at most 10,000"),
        ({**SHORTER, "step": "nowhere"}, "has no step 'nowhere'"),
    ],
    ids=["empty", "long", "unknown step"],
)
def test_a_bad_message_is_a_problem_with_the_words_of_the_command(
    http: TestClient, jobs: Client, body: dict[str, Any], words: str
) -> None:
    answer = http.post(f"/v1/jobs/{a_job(jobs.store)}/messages", json=body)

    assert answer.status_code == 400
    assert words in answer.json()["detail"]


def test_an_ended_job_and_an_unknown_job_take_no_message(http: TestClient, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    end(jobs, job_id)

    ended = http.post(f"/v1/jobs/{job_id}/messages", json=SHORTER)

    assert ended.status_code == 400
    assert "has ended" in ended.json()["detail"]
    assert http.post(f"/v1/jobs/{UNKNOWN}/messages", json=SHORTER).status_code == 404
