"""Each operation of the API that changes something leaves an entry of the audit with its token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.supervisor.client.request import Request
from tests.supervisor.serve.conftest import ClientOf
from tests.supervisor.serve.test_job_routes import end
from tests.supervisor.shell import Shell

NEWS = {"name": "news", "cron": "0 9 * * *", "job": {"text": "What is new?"}}


@dataclass(frozen=True)
class Scene:
    """What the operations need: a waiting job, a dead letter, a schedule and a paused agent."""

    http: TestClient
    shell: Shell
    job_id: JobId
    letter: str

    def at(self, path: str) -> str:
        """Return a path of the OpenAPI document with the names of this scene."""
        names = {
            "job_id": self.job_id,
            "letter_id": self.letter,
            "agent": "writer",
            "name": "news",
            "tenant": "acme",
        }
        return path.format(**names)


@pytest.fixture
def scene(shell: Shell, client_with: ClientOf) -> Scene:
    job_id = shell.jobs.submit(
        Request("Compare them", approvals=Approvals(what=(ApprovalOf.PLAN,)))
    )
    while not shell.jobs.info(job_id).approval:
        shell.advance(job_id)
    shell.jobs.store.dead_letters.add("writer", "a test", job_id)
    (letter,) = shell.jobs.store.dead_letters.list_newest()
    http = client_with("admin")
    assert http.post("/v1/schedules", json=NEWS).status_code == 201
    assert http.post("/v1/agents/writer/pause").status_code == 200
    return Scene(http, shell, job_id, letter.id)


def _ended(scene: Scene) -> None:
    end(scene.shell.jobs, scene.job_id)


def _cancelled(scene: Scene) -> None:
    scene.shell.jobs.cancel(scene.job_id)
    scene.shell.advance(scene.job_id)


def _paused(scene: Scene) -> None:
    scene.shell.jobs.pause_schedule("news")


def _nothing(_: Scene) -> None:
    return


Before = Callable[[Scene], None]
OPERATIONS: dict[tuple[str, str], tuple[str, object, Before]] = {
    ("POST", "/v1/jobs"): ("submit", {"text": "Where is it?"}, _nothing),
    ("POST", "/v1/quotes"): ("submit", {"text": "Where is it?"}, _nothing),
    ("POST", "/v1/jobs/{job_id}/cancel"): ("cancel", None, _nothing),
    ("POST", "/v1/jobs/{job_id}/retry"): ("retry", None, _cancelled),
    ("POST", "/v1/jobs/{job_id}/messages"): ("say", {"text": "Shorter."}, _nothing),
    ("POST", "/v1/jobs/{job_id}/approve"): ("approve", None, _nothing),
    ("POST", "/v1/jobs/{job_id}/reject"): ("reject", {"note": "no"}, _nothing),
    ("DELETE", "/v1/jobs/{job_id}"): ("delete", None, _ended),
    ("POST", "/v1/dead-letters/{letter_id}/requeue"): ("requeue", None, _nothing),
    ("DELETE", "/v1/dead-letters/{letter_id}"): ("drop", None, _nothing),
    ("POST", "/v1/agents/{agent}/pause"): ("pause", {"reason": "again"}, _nothing),
    ("POST", "/v1/agents/{agent}/unpause"): ("unpause", None, _nothing),
    ("POST", "/v1/schedules"): ("add_schedule", {**NEWS, "name": "more"}, _nothing),
    ("POST", "/v1/schedules/{name}/pause"): ("pause_schedule", None, _nothing),
    ("POST", "/v1/schedules/{name}/unpause"): ("unpause_schedule", None, _paused),
    ("POST", "/v1/schedules/{name}/run"): ("submit", None, _nothing),
    ("DELETE", "/v1/schedules/{name}"): ("remove_schedule", None, _nothing),
    ("DELETE", "/v1/tenants/{tenant}"): ("delete_tenant", None, _nothing),
}
"""Operation -> the action in the audit, the body, and a step before it."""


def test_the_table_has_every_operation_that_changes_something(app: FastAPI) -> None:
    changing = {
        (method.upper(), path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
        if method != "get"
    }

    assert changing == set(OPERATIONS)


def entries(scene: Scene) -> set[tuple[str, Actor | None]]:
    """Return the actions of the fleet and of all jobs, with their actors."""
    jobs = scene.shell.jobs
    entries_of_all = jobs.audit()
    for job in jobs.newest():
        entries_of_all += jobs.audit(job.job_id)
    return {(entry.action.value, entry.actor) for entry in entries_of_all}


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_an_operation_leaves_an_entry_with_the_token_and_the_address(
    method: str, path: str, scene: Scene, client_with: ClientOf
) -> None:
    action, body, prepare = OPERATIONS[method, path]
    prepare(scene)
    before = {token.id for token in scene.shell.jobs.tokens()}
    client = client_with("admin")
    (token,) = {token.id for token in scene.shell.jobs.tokens()} - before

    # No supervisor makes the plan of a quote, so the request must not wait for it.
    query = {"wait_s": 0} if path == "/v1/quotes" else None
    answer = client.request(method, scene.at(path), json=body, params=query)

    assert answer.is_success, answer.text
    actor = Actor(name="a test", via="api", address="203.0.113.7", token=token)
    assert (action, actor) in entries(scene)
