"""A job whose record another program has written over breaks no list of the API and no page."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.client import Client
from tests.doubles.jobs import a_job
from tests.hostile.test_unreadable_jobs import FAULTS
from tests.supervisor.serve.conftest import ClientOf


@pytest.fixture(params=FAULTS)
def damaged(request: pytest.FixtureRequest, jobs: Client) -> JobId:
    """Return a job whose record another program has written over."""
    job_id = a_job(jobs.store, "acme")
    FAULTS[request.param](jobs.store, job_id)
    return job_id


def test_the_list_of_the_api_has_the_other_jobs_and_names_the_damaged_job(
    http: TestClient, jobs: Client, damaged: JobId
) -> None:
    other = a_job(jobs.store)

    listed = http.get("/v1/jobs").json()["jobs"]

    statuses = {job["job_id"]: job["status"] for job in listed}
    assert statuses == {other: "running", damaged: "unreadable"}


def test_the_table_and_its_counts_have_the_other_jobs_and_name_the_damaged_job(
    http: TestClient, jobs: Client, damaged: JobId
) -> None:
    other = a_job(jobs.store)

    table = http.get("/", headers={"Accept": "text/html"}).text
    counts = http.get("/jobs/counts")

    assert f'<tr id="{other}"' in table
    assert f'<tr id="{damaged}"' in table
    assert "its record in Redis cannot be read" in table
    assert sum(counts.json().values()) == 2


def test_the_damaged_job_itself_is_a_problem_in_one_line(http: TestClient, damaged: JobId) -> None:
    answers = [http.get(f"/v1/jobs/{damaged}"), http.post(f"/v1/jobs/{damaged}/cancel")]

    for answer in answers:
        assert answer.status_code == 409, answer.text
        assert answer.json()["detail"].endswith(": delete the job")


def test_a_user_deletes_the_damaged_job_in_the_api(http: TestClient, damaged: JobId) -> None:
    assert http.delete(f"/v1/jobs/{damaged}").is_success

    assert http.get("/v1/jobs").json()["jobs"] == []


def test_the_damaged_job_belongs_to_no_tenant_that_it_does_not_name(
    client_with: ClientOf, damaged: JobId
) -> None:
    listed = client_with("operate", "globex").get("/v1/jobs").json()["jobs"]

    assert listed == []
