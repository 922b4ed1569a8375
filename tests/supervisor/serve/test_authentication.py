"""Tokens, access levels and the tenant wall of the HTTP API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.serve.application import ROUTERS
from tests.doubles.jobs import a_job
from tests.supervisor.serve.conftest import ClientOf
from tests.supervisor.serve.test_job_routes import end

UNKNOWN = "j-aaaaaaaaaaaaaaaa"
JOB_PATHS = (
    ("GET", ""),
    ("GET", "/plan"),
    ("GET", "/handoffs/a.1"),
    ("GET", "/events"),
    ("GET", "/events?follow=false"),
    ("GET", "/answer"),
    ("GET", "/result"),
    ("GET", "/export"),
    ("POST", "/cancel"),
    ("POST", "/messages"),
    ("POST", "/retry"),
    ("POST", "/approve"),
    ("POST", "/reject"),
    ("DELETE", ""),
)
"""Every operation on a job."""
FLEET = (
    ("GET", "/v1/stats"),
    ("GET", "/v1/dead-letters"),
    ("POST", "/v1/dead-letters/0123abcd/requeue"),
    ("DELETE", "/v1/dead-letters/0123abcd"),
    ("POST", "/v1/agents/writer/pause"),
    ("POST", "/v1/agents/writer/unpause"),
)
"""Every operation that concerns all tenants."""
SCHEDULE_PATHS = (
    ("GET", ""),
    ("POST", "/pause"),
    ("POST", "/unpause"),
    ("POST", "/run"),
    ("DELETE", ""),
)
"""Every operation on a schedule."""


def operations(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Yield method and path of each operation of the API."""
    for path, methods in app.openapi()["paths"].items():
        for method in methods:
            yield method.upper(), path


@pytest.mark.slow
def test_every_operation_needs_a_token_once_there_is_one(
    app: FastAPI, http: TestClient, client_with: ClientOf
) -> None:
    client_with()

    answers = [http.request(method, path) for method, path in operations(app)]

    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["www-authenticate"] for answer in answers} == {'Bearer realm="handoff"'}


def test_a_token_that_is_unknown_or_revoked_gives_no_access(
    http: TestClient, jobs: Client, client_with: ClientOf
) -> None:
    client = client_with()
    works = client.get("/v1/jobs").status_code
    (token,) = jobs.store.api_tokens.list_all()
    jobs.store.api_tokens.revoke(token.id)

    revoked = client.get("/v1/jobs")
    unknown = http.get("/v1/jobs", headers={"Authorization": f"Bearer hq_{'0' * 12}_{'A' * 43}"})

    assert (works, revoked.status_code, unknown.status_code) == (200, 401, 401)


def test_the_lists_of_these_tests_have_every_operation(app: FastAPI) -> None:
    of_jobs = {
        (method, f"/v1/jobs/{{job_id}}{path.partition('?')[0]}") for method, path in JOB_PATHS
    }
    listed = {(method, path.replace("/a.1", "/{handoff_id}")) for method, path in of_jobs}
    others = {
        ("GET", "/v1/jobs"),
        ("POST", "/v1/jobs"),
        ("POST", "/v1/quotes"),
        ("GET", "/v1/specialists"),
        ("GET", "/v1/budgets"),
        ("GET", "/metrics"),
        ("GET", "/v1/schedules"),
        ("POST", "/v1/schedules"),
        ("GET", "/v1/tenants/{tenant}/export"),
        ("DELETE", "/v1/tenants/{tenant}"),
    }
    others |= {(method, f"/v1/schedules/{{name}}{path}") for method, path in SCHEDULE_PATHS}
    fleet = {
        (method, path.replace("0123abcd", "{letter_id}").replace("writer", "{agent}"))
        for method, path in FLEET
    }

    assert set(operations(app)) == listed | others | fleet


@pytest.mark.parametrize(("method", "path"), JOB_PATHS)
def test_a_job_of_another_tenant_is_like_a_job_that_does_not_exist(
    method: str, path: str, jobs: Client, client_with: ClientOf
) -> None:
    job_id = a_job(jobs.store, "acme")
    end(jobs, job_id)
    stranger = client_with("operate", "globex")

    foreign = stranger.request(method, f"/v1/jobs/{job_id}{path}")
    unknown = stranger.request(method, f"/v1/jobs/{UNKNOWN}{path}")

    assert foreign.status_code == 404
    assert foreign.json() == {**unknown.json(), "detail": foreign.json()["detail"]}
    assert foreign.json()["detail"] == unknown.json()["detail"].replace(UNKNOWN, job_id)
    assert foreign.headers.items() - {("content-length", "")} == unknown.headers.items() - {
        ("content-length", "")
    }
    assert jobs.info(job_id).status.has_ended  # the job is still there


def test_the_list_has_only_jobs_of_the_tokens_tenant(jobs: Client, client_with: ClientOf) -> None:
    own, foreign = a_job(jobs.store, "acme"), a_job(jobs.store, "globex")
    acme, all_tenants = client_with("read", "acme"), client_with("read")

    def listed(client: TestClient, **params: str) -> set[str]:
        return {job["job_id"] for job in client.get("/v1/jobs", params=params).json()["jobs"]}

    assert listed(acme) == {own}
    assert listed(acme, tenant="globex") == set()
    assert listed(all_tenants) == {own, foreign}


def test_a_submitted_job_belongs_to_the_tokens_tenant(jobs: Client, client_with: ClientOf) -> None:
    acme = client_with("submit", "acme")

    job_id = acme.post("/v1/jobs", json={"text": "Where is it?"}).json()["job_id"]
    other = acme.post("/v1/jobs", json={"text": "Where is it?", "tenant": "globex"})

    assert jobs.store.jobs.find_owner(job_id) == "acme"
    assert other.status_code == 403


def test_tenants_have_separate_idempotency_keys(jobs: Client, client_with: ClientOf) -> None:
    acme, globex = client_with("submit", "acme"), client_with("submit", "globex")
    key = {"Idempotency-Key": "order-7"}

    job_of_acme = acme.post("/v1/jobs", json={"text": "Where is it?"}, headers=key).json()["job_id"]
    other = globex.post("/v1/jobs", json={"text": "Another"}, headers=key).json()["job_id"]

    assert (job_of_acme, other) == (
        jobs.store.job_ids.derive("acme", "order-7"),
        jobs.store.job_ids.derive("globex", "order-7"),
    )


def test_a_job_follows_no_job_of_another_tenant(jobs: Client, client_with: ClientOf) -> None:
    job_id = a_job(jobs.store, "acme")
    end(jobs, job_id)
    globex = client_with("submit", "globex")

    foreign = globex.post("/v1/jobs", json={"text": "Go on.", "after": job_id})
    unknown = globex.post("/v1/jobs", json={"text": "Go on.", "after": UNKNOWN})

    assert foreign.status_code == unknown.status_code == 404
    assert foreign.json()["detail"] == unknown.json()["detail"].replace(UNKNOWN, job_id)


def test_a_tenants_export_has_no_message_of_another_job(
    jobs: Client, client_with: ClientOf
) -> None:
    job_id = a_job(jobs.store, "acme")
    jobs.store.dead_letters.add("writer", "unreadable", f"a text of globex about {job_id}")
    jobs.store.dead_letters.add("supervisor", "unreadable", job_id)

    def bodies(client: TestClient) -> set[str]:
        exported = client.get(f"/v1/jobs/{job_id}/export").json()
        return {letter["body"] for letter in exported["letters"]}

    assert bodies(client_with("read", "acme")) == {job_id}
    assert len(bodies(client_with("read"))) == 2


@pytest.mark.parametrize(("method", "path"), FLEET)
def test_the_fleet_needs_a_token_without_a_tenant(
    method: str, path: str, client_with: ClientOf
) -> None:
    assert client_with("operate", "acme").request(method, path).status_code == 403


def test_a_tenant_sees_its_own_budget_and_no_workers(client_with: ClientOf) -> None:
    acme = client_with("read", "acme")

    own = acme.get("/v1/budgets").json()
    other = acme.get("/v1/budgets", params={"tenant": "globex"})

    assert (own["tenant"], own["of_installation"]) == ("acme", None)
    assert other.status_code == 403
    assert acme.get("/v1/specialists").json() == []


@pytest.mark.parametrize(
    ("level", "allowed"),
    [("read", set()), ("submit", {"POST /v1/jobs"}), ("operate", {"POST /v1/jobs", "cancel"})],
)
def test_an_access_level_allows_its_actions_and_no_more(
    level: str, allowed: set[str], jobs: Client, client_with: ClientOf
) -> None:
    job_id: JobId = a_job(jobs.store)
    client = client_with(level)

    statuses = {
        "POST /v1/jobs": client.post("/v1/jobs", json={"text": "Where is it?"}).status_code,
        "cancel": client.post(f"/v1/jobs/{job_id}/cancel").status_code,
    }

    assert {name for name, status in statuses.items() if status < 300} == allowed
    assert {status for name, status in statuses.items() if name not in allowed} <= {403}
    assert client.get(f"/v1/jobs/{job_id}").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:8321"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[127.0.0.1:8321"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Forwarded-For": "192.0.2.7"},
        {"Forwarded": "for=192.0.2.7"},
        {"Via": "1.1 proxy"},
    ],
)
def test_a_server_without_tokens_refuses_requests_of_foreign_pages_and_machines(
    headers: dict[str, str], http: TestClient
) -> None:
    assert http.get("/v1/jobs", headers=headers).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{}, {"Host": "localhost:8321"}, {"Host": "[::1]:8321"}, {"Origin": "http://127.0.0.1:8321"}],
)
def test_a_server_without_tokens_takes_requests_of_this_machine(
    headers: dict[str, str], http: TestClient
) -> None:
    assert http.get("/v1/jobs", headers=headers).status_code == 200


def test_a_server_without_tokens_refuses_a_client_of_another_machine(app: FastAPI) -> None:
    with TestClient(app, base_url="http://127.0.0.1:8321", client=("192.0.2.7", 50_000)) as http:
        assert http.get("/v1/jobs").status_code == 403


def test_a_server_on_another_address_stays_closed_when_its_tokens_are_gone(
    app: FastAPI, http: TestClient
) -> None:
    app.state.handoff_queue = replace(app.state.handoff_queue, is_loopback=False)

    assert http.get("/v1/jobs").status_code == 401


def test_only_the_health_check_needs_no_token(app: FastAPI, client_with: ClientOf) -> None:
    client_with()

    with TestClient(app, base_url="http://queue.example", client=("192.0.2.7", 50_000)) as http:
        answer, head = http.get("/healthz"), http.head("/healthz")

    assert (answer.status_code, answer.text) == (200, "ok\n")
    assert (head.status_code, head.text) == (200, "")


def test_no_route_escapes_the_openapi_document(app: FastAPI) -> None:
    listed = app.openapi()["paths"]
    routes = [route for router in ROUTERS for route in router.routes]
    hidden = {route.path for route in routes if isinstance(route, APIRoute)} - set(listed)

    assert hidden == {"/v1/openapi.json", "/v1/reference", "/mcp", "/healthz"}


def test_the_journal_and_the_audit_name_the_token_of_an_action(
    jobs: Client, client_with: ClientOf
) -> None:
    job_id = a_job(jobs.store)
    client = client_with("operate")
    (token,) = jobs.store.api_tokens.list_all()

    client.post(f"/v1/jobs/{job_id}/cancel")
    client.post("/v1/agents/writer/pause", json={"reason": "a test"})

    *_, cancelled = jobs.events(job_id, follow=False)
    assert isinstance(cancelled.event, CancelRequested)
    (paused,) = [entry for entry in jobs.audit() if entry.subject == "writer"]
    expected = Actor(name="a test", via="api", address="203.0.113.7", token=token.id)
    assert (cancelled.event.actor, paused.actor) == (expected, expected)
