"""Tenants over HTTP: the export as lines, the deletion, and the roles that they need."""

from __future__ import annotations

import json

from fastapi.testclient import TestClient

from handoff_queue.supervisor.client.client import Client, Request
from tests.supervisor.client.test_open_jobs import end
from tests.supervisor.serve.conftest import ClientOf

OURS = Request("Compare things.", tenant="acme")


def test_an_export_is_streamed_as_lines(http: TestClient, jobs: Client) -> None:
    job_id = jobs.submit(OURS)

    answer = http.get("/v1/tenants/acme/export")

    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [line["type"] for line in lines] == ["tenant", "job", "end"]
    assert lines[1]["export"]["job"]["job_id"] == job_id


def test_a_deletion_says_if_it_is_complete(http: TestClient, jobs: Client) -> None:
    job_id = jobs.submit(OURS)

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
