"""A person decides about a tool call over HTTP, in the console and through MCP."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from handoff_queue.shared.agent.checkpoint_store import CallAnswer
from handoff_queue.shared.types.events import ApprovalAsked, HandoffIssued, JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.audit import find_actions
from handoff_queue.supervisor.client.request import Request
from tests.doubles.call_questions import a_question, ask
from tests.mcp_client import connected, get_task, update_task
from tests.supervisor.many_rows import submit_rows
from tests.supervisor.serve.conftest import ClientOf
from tests.supervisor.serve.console.test_job_list import act
from tests.supervisor.serve.console.visitor import Visitor
from tests.supervisor.serve.serving import serving
from tests.supervisor.shell import Shell


@dataclass(frozen=True, slots=True)
class AskingJob:
    """A job whose only step asks about two mails."""

    shell: Shell
    job_id: JobId
    issued: HandoffIssued
    questions: tuple[int, ...]

    def waits_for(self) -> list[str]:
        """Return the tool of each call that has no answer yet."""
        return list(self.shell.jobs.info(self.job_id).calls_to_approve)

    def answers(self) -> dict[str, CallAnswer]:
        """Return the answers that the next claim of the handoff finds."""
        return self.shell.claim(self.job_id, self.issued).read_call_answers()


@pytest.fixture
def local(app: FastAPI, http: TestClient) -> Visitor:
    """A user of this machine, without a token."""
    return Visitor(app, "127.0.0.1")


@pytest.fixture
def asking(shell: Shell, tmp_path: Path) -> AskingJob:
    job_id = submit_rows(shell, tmp_path, 1)
    (issued,) = shell.open(job_id)
    claimed = shell.claim(job_id, issued)
    ask(claimed, a_question("toolu_1"), a_question("toolu_2", "<b>@example.com"))
    questions = [
        recorded.version
        for recorded in shell.store.journal.read(job_id)
        if isinstance(recorded.event, ApprovalAsked)
    ]
    return AskingJob(shell, job_id, issued, tuple(questions))


def test_an_approval_over_http_may_change_the_arguments(
    asking: AskingJob, http: TestClient
) -> None:
    url, (first, second) = f"/v1/jobs/{asking.job_id}", asking.questions
    body = {"question": first, "arguments": {"to": "b@example.com"}}
    shown = http.get(f"{url}/result").json()["approvals"]

    wrong = http.post(f"{url}/approve", json={**body, "arguments": {"too": 1}})
    unnamed = http.post(f"{url}/approve", json={})
    approved = http.post(f"{url}/approve", json=body)
    repeated = http.post(f"{url}/approve", json=body)
    other = http.post(f"{url}/approve", json={"question": first})
    rejected = http.post(f"{url}/reject", json={"question": second, "note": "No."})

    assert [entry["call"]["arguments"] for entry in shown] == [
        {"to": "a@example.com"},
        {"to": "<b>@example.com"},
    ]
    assert shown[0]["call"]["origins"] == {"to": ["user", "web"]}
    assert (wrong.status_code, unnamed.status_code) == (400, 400)
    assert "do not match send_mail" in wrong.text
    assert "name one of the questions" in unnamed.text
    assert (approved.status_code, repeated.status_code, rejected.status_code) == (202, 202, 202)
    assert other.status_code == 400
    assert asking.answers() == {
        "toolu_1": CallAnswer(is_approved=True, arguments={"to": "b@example.com"}),
        "toolu_2": CallAnswer(is_approved=False, note="No."),
    }


@pytest.fixture
def asking_once(shell: Shell, tmp_path: Path) -> AskingJob:
    """A job whose only step asks about one mail."""
    job_id = submit_rows(shell, tmp_path, 1)
    (issued,) = shell.open(job_id)
    ask(shell.claim(job_id, issued), a_question("toolu_1"))
    version = shell.store.journal.read(job_id)[-1].version
    return AskingJob(shell, job_id, issued, (version,))


def test_an_approval_of_a_call_names_the_question_that_the_person_has_read(
    asking_once: AskingJob, http: TestClient, local: Visitor
) -> None:
    job_id, (version,) = asking_once.job_id, asking_once.questions

    unnamed = http.post(f"/v1/jobs/{job_id}/approve", json={})
    from_the_list = act(local, "approve", job_id)

    expected = f"{job_id} asks about a call of send_mail: read the call, and name its question"
    assert (unnamed.status_code, unnamed.json()["detail"].partition(" (")[0]) == (400, expected)
    assert expected in from_the_list[job_id]
    assert asking_once.waits_for() == ["send_mail"]
    http.post(f"/v1/jobs/{job_id}/approve", json={"question": version})
    assert asking_once.answers() == {"toolu_1": CallAnswer(is_approved=True)}


def test_a_rejection_needs_no_number(asking_once: AskingJob, http: TestClient) -> None:
    http.post(f"/v1/jobs/{asking_once.job_id}/reject", json={"note": "No."})

    assert asking_once.answers() == {"toolu_1": CallAnswer(is_approved=False, note="No.")}


@pytest.mark.parametrize("level", ["read", "submit"])
@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_a_token_that_may_not_operate_answers_no_question(
    asking_once: AskingJob, client_with: ClientOf, level: str, verb: str
) -> None:
    url, (version,) = f"/v1/jobs/{asking_once.job_id}/{verb}", asking_once.questions

    assert client_with(level).post(url, json={"question": version}).status_code == 403
    assert asking_once.waits_for() == ["send_mail"]


def test_a_question_of_one_job_is_not_a_question_of_another(
    asking_once: AskingJob, shell: Shell, http: TestClient
) -> None:
    other = shell.jobs.submit(Request("Look."))
    (version,) = asking_once.questions

    answer = http.post(f"/v1/jobs/{other}/approve", json={"question": version})

    assert answer.status_code == 400
    assert asking_once.waits_for() == ["send_mail"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/schedules"])
@pytest.mark.parametrize(
    ("level", "what", "on_timeout", "status"),
    [
        ("submit", ["tools"], "go-on", 403),
        ("submit", ["plan", "tools"], "go-on", 403),
        ("submit", ["tools"], "stop", 201),
        ("submit", ["plan"], "go-on", 201),
        ("operate", ["tools"], "go-on", 201),
    ],
)
def test_a_token_that_may_not_approve_a_call_lets_no_time_approve_it(
    client_with: ClientOf, path: str, level: str, what: list[str], on_timeout: str, status: int
) -> None:
    approvals = {"what": what, "timeout_s": 1, "on_timeout": on_timeout}
    job: dict[str, Any] = {"text": "Send it.", "approvals": approvals}
    body = job
    if path == "/v1/schedules":
        body = {"name": "news", "cron": "0 9 * * *", "job": job}

    answer = client_with(level).post(path, json=body)

    assert answer.status_code in (status, status + 1)  # 202: a job is accepted
    assert status == 201 or "need operate" in answer.json()["detail"]


def test_the_status_and_the_audit_name_the_tool(asking: AskingJob, http: TestClient) -> None:
    jobs = asking.shell.jobs
    (info,) = jobs.store.jobs.read([asking.job_id])
    assert info.status is JobStatus.WAITING
    assert "an approval of a call of send_mail by a person" in jobs.newest()[0].waiting_for

    http.post(f"/v1/jobs/{asking.job_id}/approve", json={"question": asking.questions[0]})

    entry = find_actions(asking.job_id, jobs.store.journal.read(asking.job_id))[-1]
    assert (entry.action.value, entry.detail) == ("approve", "send_mail")


def test_the_inbox_shows_each_call_with_its_arguments_and_their_origins(
    asking: AskingJob, local: Visitor
) -> None:
    page = local.get(f"/inbox/{asking.job_id}").text
    job = local.get(f"/jobs/{asking.job_id}").text

    assert "a call of send_mail" in local.get("/inbox").text
    for text in (page, job):
        assert "a@example.com" in text
        assert "<b>@example.com" not in text, "an argument is text"
        assert "<b>@example.com" in unescape(text)
        assert "user, web" in text
    assert page.count('name="arguments"') == 2
    assert "waits for approval of send_mail" in job


def test_a_person_edits_the_arguments_in_the_inbox(asking: AskingJob, local: Visitor) -> None:
    first, second = map(str, asking.questions)
    url = f"/inbox/{asking.job_id}"
    unchanged = json.dumps({"to": "<b>@example.com"}, indent=2).replace("\n", "\r\n")

    wrong = local.post(url, decision="approve", question=first, arguments='{"to": ')
    edited = local.post(url, decision="approve", question=first, arguments='{"to": "c"}')
    same = local.post(url, decision="approve", question=second, arguments=unchanged)

    assert wrong.status_code == 422
    assert "the arguments are not JSON" in wrong.text
    assert (edited.status_code, same.status_code) == (303, 303)
    assert asking.answers() == {
        "toolu_1": CallAnswer(is_approved=True, arguments={"to": "c"}),
        "toolu_2": CallAnswer(is_approved=True),
    }


def test_a_task_of_mcp_asks_for_each_call(asking: AskingJob, app: FastAPI) -> None:
    first, second = asking.questions
    edited = {"decision": "approve", "arguments": '{"to": "c"}'}
    responses: dict[str, Any] = {
        f"approval-{first}": {"action": "accept", "content": edited},
        f"approval-{second}": {"action": "decline"},
    }

    async def run() -> Any:
        async with connected(url) as client:
            task = await get_task(client.session, asking.job_id)
            await update_task(client.session, asking.job_id, responses)
            return task

    with serving(app) as url:
        task = asyncio.run(run())

    assert task.status == "input_required"
    requests = task.input_requests
    assert set(requests) == set(responses)
    assert "a call of send_mail" in str(requests[f"approval-{first}"])
    assert "a@example.com" in str(requests[f"approval-{first}"])
    assert asking.answers() == {
        "toolu_1": CallAnswer(is_approved=True, arguments={"to": "c"}),
        "toolu_2": CallAnswer(is_approved=False),
    }
