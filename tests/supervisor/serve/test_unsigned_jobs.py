"""A job that is older than the keys of the installation is a problem in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.trust.key_files import find_private_key_file, make_keys
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve.application import make_application
from tests.doubles.jobs import a_job
from tests.supervisor.serve.conftest import LOCAL, URL

GETS = ("/plan", "/result", "/export")
POSTS = ("/retry", "/approve", "/reject", "/messages")


@pytest.fixture
def old_job(store: Store) -> JobId:
    """A job of a client without keys."""
    return a_job(store)


@pytest.fixture
def http(old_job: JobId, redis_url: str, tmp_path: Path) -> Iterator[TestClient]:
    """A client of a server with keys. The server has one signed job."""
    make_keys(tmp_path, ())
    key = find_private_key_file(tmp_path, "console")
    settings = Settings(offline=True, keys=tmp_path, signing_key=key)
    jobs = client.connect(redis_url, settings)
    jobs.submit(Request("Compare things."))
    app = make_application(AsyncClient(jobs), settings)
    with TestClient(app, base_url=URL, client=LOCAL, raise_server_exceptions=False) as made:
        yield made
    jobs.store.connection.close()


@pytest.mark.parametrize(
    ("method", "path"), [*(("GET", path) for path in GETS), *(("POST", path) for path in POSTS)]
)
def test_each_operation_on_an_unsigned_job_names_the_remedy(
    http: TestClient, old_job: JobId, method: str, path: str
) -> None:
    body = {"text": "Go on."} if path == "/messages" else None

    answer = http.request(method, f"/v1/jobs/{old_job}{path}", json=body)

    assert answer.status_code == 409, answer.text
    assert f"the submission of {old_job} has no valid signature" in answer.json()["detail"]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/jobs/{0}", "/jobs/{0}/live", "/inbox/{0}"])
def test_each_page_of_an_unsigned_job_names_the_remedy(
    http: TestClient, old_job: JobId, path: str
) -> None:
    page = http.get(path.format(old_job), headers={"Accept": "text/html"})

    assert (page.status_code, "has no valid signature" in page.text) == (409, True)


@pytest.mark.slow
def test_the_export_of_the_tenant_has_the_other_jobs(http: TestClient, old_job: JobId) -> None:
    lines = [json.loads(line) for line in http.get("/v1/tenants/default/export").text.splitlines()]

    assert [line["type"] for line in lines] == ["tenant", "job", "unreadable", "end"]
    assert lines[2]["job_id"] == old_job
