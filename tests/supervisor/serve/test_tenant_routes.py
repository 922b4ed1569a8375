"""Tenants over HTTP: the export as lines, the deletion, and the roles that they need."""

from __future__ import annotations

import asyncio
import json

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve import authentication
from handoff_queue.supervisor.serve.authentication import Caller, build_access
from handoff_queue.supervisor.serve.tenant_routes import export
from tests.supervisor.client.test_open_jobs import end
from tests.supervisor.serve.conftest import ClientOf

HANDOFF_PROJECT = Request("Compare things.", tenant="acme")


def test_an_export_is_streamed_as_lines(http: TestClient, jobs: Client) -> None:
    job_id = jobs.submit(HANDOFF_PROJECT)

    answer = http.get("/v1/tenants/acme/export")

    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [line["type"] for line in lines] == ["tenant", "job", "end"]
    assert lines[1]["export"]["job"]["job_id"] == job_id


def test_an_export_ends_when_its_token_is_revoked(
    app: FastAPI, jobs: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "CHECK_S", 0.0)
    jobs.submit(HANDOFF_PROJECT)
    token, _ = jobs.store.api_tokens.create("a test", AccessLevel.ADMIN, None)
    caller = Caller(token.name, token.access, token.tenant, token.id, None)

    async def kinds() -> list[str]:
        stream = await export(build_access(caller, app.state.handoff_queue, "api"), "acme")
        lines: list[str] = []
        async for line in stream.body_iterator:
            lines.append(json.loads(str(line))["type"])
            jobs.store.api_tokens.revoke(token.id)
        return lines

    assert asyncio.run(kinds()) == ["tenant"]


def test_a_deletion_says_if_it_is_complete(http: TestClient, jobs: Client) -> None:
    job_id = jobs.submit(HANDOFF_PROJECT)

    first = http.delete("/v1/tenants/acme", params={"wait_s": 0}).json()
    end(jobs, job_id)
    second = http.delete("/v1/tenants/acme", params={"wait_s": 0}).json()

    assert (first["is_complete"], first["open_jobs"]) == (False, 1)
    assert (second["is_complete"], second["jobs"]) == (True, 1)


def test_the_export_and_the_deletion_need_an_admin(client_with: ClientOf) -> None:
    export, tenant = "/v1/tenants/acme/export", "/v1/tenants/acme"

    for caller in (client_with("operate"), client_with("operate", "acme")):
        assert caller.get(export).status_code == 403
        assert caller.delete(tenant).status_code == 403
    admin = client_with("admin")
    assert admin.get(export).status_code == 200
    assert admin.delete(tenant).status_code == 200


@pytest.mark.parametrize("name", ["%20", "%00", "a%0Ab"])
def test_a_name_that_no_tenant_can_have_is_refused(
    http: TestClient, jobs: Client, name: str
) -> None:
    job_id = jobs.submit(HANDOFF_PROJECT)
    end(jobs, job_id)

    for path in ("tenants/{}/export", "jobs?tenant={}", "budgets?tenant={}", "schedules?tenant={}"):
        assert http.get(f"/v1/{path.format(name)}").status_code == 400, path
    assert http.delete(f"/v1/tenants/{name}").status_code == 400
    assert http.get(f"/v1/jobs/{job_id}").status_code == 200
