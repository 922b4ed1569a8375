"""Jobs over HTTP: submit, list, show, results, export and delete."""

from __future__ import annotations

import json
from pathlib import Path

from fastapi.testclient import TestClient

from handoff_queue.shared.types.events import JobEnded, JobStatus
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.doubles.jobs import a_job

UNKNOWN = "j-aaaaaaaaaaaaaaaa"


def end(jobs: Client, job_id: str) -> None:
    jobs.store.journal.append(job_id, JobEnded(status=JobStatus.OK), {"status": "ok"})  # type: ignore[arg-type]


def test_a_submitted_job_has_a_location_and_is_shown(http: TestClient) -> None:
    submitted = http.post("/v1/jobs", json={"text": "How does HNSW work?"})

    job_id = submitted.json()["job_id"]
    shown = http.get(submitted.headers["Location"]).json()

    assert submitted.status_code == 202
    assert (shown["job_id"], shown["status"]) == (job_id, "queued")
    assert shown["title"] == "How does HNSW work?"


def test_documents_come_as_texts_or_as_parts_of_a_form(http: TestClient, jobs: Client) -> None:
    as_json = {"text": "Summarise.", "documents": {"notes/a.md": "Order A-1042 was shipped."}}
    as_form = [
        ("documents", ("notes/a.md", b"Order A-1042 was shipped.", "text/markdown")),
    ]

    job_of_json = http.post("/v1/jobs", json=as_json).json()["job_id"]
    other = http.post(
        "/v1/jobs", data={"request": json.dumps({"text": "Summarise."})}, files=as_form
    ).json()["job_id"]

    assert jobs.export(job_of_json).documents == jobs.export(other).documents
    assert [document.path for document in jobs.export(job_of_json).documents] == ["notes/a.md"]


def test_a_document_that_cannot_be_read_is_an_error_or_is_left_out(http: TestClient) -> None:
    documents = {"a.md": "A text.", "b.json": "\0\0"}

    strict = http.post("/v1/jobs", json={"text": "Summarise.", "documents": documents})
    lenient = http.post(
        "/v1/jobs",
        json={"text": "Summarise.", "documents": documents, "strict_documents": False},
    )

    assert strict.status_code == 400
    assert "b.json" in strict.json()["detail"]
    assert lenient.status_code == 202
    assert "b.json" in lenient.json()["left_out"][0]


def test_the_response_names_the_specialists_of_the_request_that_no_worker_serves(
    http: TestClient,
) -> None:
    body = {"text": "Summarise.", "specialists": ["wrter"]}

    assert http.post("/v1/jobs", json=body).json()["unserved"] == ["wrter"]
    assert http.post("/v1/jobs", json={"text": "Summarise."}).json()["unserved"] == []


def test_a_key_makes_one_job_and_refuses_another_request(http: TestClient) -> None:
    key = {"Idempotency-Key": "order-7"}

    first = http.post("/v1/jobs", json={"text": "Where is it?"}, headers=key)
    again = http.post("/v1/jobs", json={"text": "Where is it?", "idempotency_key": "order-7"})
    other = http.post("/v1/jobs", json={"text": "Something else"}, headers=key)

    assert first.json() == again.json()
    assert other.status_code == 409
    assert first.json()["job_id"] in other.json()["detail"]


def test_all_pages_of_the_list_together_have_each_job_once(http: TestClient, jobs: Client) -> None:
    job_ids = [a_job(jobs.store) for _ in range(7)]
    listed: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = http.get("/v1/jobs", params={"limit": 3, **cursor}).json()
        listed += [job["job_id"] for job in page["jobs"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}

    assert listed == job_ids[::-1]


def test_the_list_has_only_jobs_that_match_the_filters(http: TestClient, jobs: Client) -> None:
    ended, running, of_acme = a_job(jobs.store), a_job(jobs.store), a_job(jobs.store, "acme")
    end(jobs, ended)

    def listed(**params: str) -> list[str]:
        return [job["job_id"] for job in http.get("/v1/jobs", params=params).json()["jobs"]]

    assert listed(status="ok") == [ended]
    assert listed(tenant="acme") == [of_acme]
    assert listed(status="running", tenant="default") == [running]
    assert listed(submitted_before="1.0") == []
    assert listed(submitted_after="9999999999") == []
    assert listed(min_microusd="1") == []
    assert listed(text=running) == [running]


def test_the_list_is_filtered_by_mode_and_priority(http: TestClient, jobs: Client) -> None:
    urgent = jobs.submit(Request("Now", mode=Mode.SINGLE))
    later = jobs.submit(Request("Later", priority=Priority.BATCH, mode=Mode.TEAM))

    def listed(query: str) -> list[str]:
        return [job["job_id"] for job in http.get(f"/v1/jobs?{query}").json()["jobs"]]

    assert listed("mode=single") == [urgent]
    assert listed("priority=batch") == [later]


def test_an_unknown_parameter_is_refused_with_the_known_names(http: TestClient) -> None:
    refused = http.get("/v1/jobs?state=ok")

    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("state: is not a parameter of this resource: it has")
    assert "status" in refused.json()["detail"]
    assert refused.json()["errors"][0]["pointer"] == "#query/state"


def test_the_result_of_an_ended_job_comes_at_once(http: TestClient, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    end(jobs, job_id)

    result = http.get(f"/v1/jobs/{job_id}/result", params={"wait_s": 60}).json()

    assert (result["job_id"], result["status"]) == (job_id, "ok")


def test_an_ended_job_is_exported_and_deleted(http: TestClient, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    early = http.delete(f"/v1/jobs/{job_id}")
    end(jobs, job_id)
    exported = http.get(f"/v1/jobs/{job_id}/export").json()
    deleted = http.delete(f"/v1/jobs/{job_id}")

    assert early.status_code == 400
    assert exported["job"]["job_id"] == job_id
    assert deleted.status_code == 204
    assert http.get(f"/v1/jobs/{job_id}").status_code == 404


def test_no_text_of_a_request_names_a_file_of_the_server(http: TestClient, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("subject,attribute,value\nthe vault,code,SESAME\n")
    workflow = (
        f"description: d\ngates: {{facts: {{file: {secret}}}}}\nsteps: [{{id: a, specialist:"
        " writer, task: t}]"
    )
    bodies = [
        {"text": "t", "workflow": workflow},
        {"text": "t", "workflow": str(secret)},
        {"text": "t", "workflow": "../../brief.yaml"},
        {"text": "t", "documents": {str(secret): "x"}},
        {"text": "t", "documents": {"../a.md": "x"}},
        {"text": "t", "docs": str(tmp_path)},
        {"text": "t", "gates": {"facts": {"file": str(secret)}}},
        {"text": "t", "facts": {"file": str(secret)}},
    ]

    answers = [http.post("/v1/jobs", json=body) for body in bodies]

    assert {answer.status_code for answer in answers} <= {400, 422}
    assert not any("SESAME" in answer.text for answer in answers)


def test_a_workflow_comes_by_its_name_or_as_yaml_or_as_json(http: TestClient) -> None:
    yaml = (
        "description: Write.\nreview: false\nsteps:\n- {id: a, specialist: writer, task:"
        " '{request}'}\n"
    )
    as_json = {
        "description": "Write.",
        "review": False,
        "steps": [{"id": "a", "specialist": "writer", "task": "{request}"}],
    }

    statuses = [
        http.post("/v1/jobs", json={"text": "A poem", "workflow": workflow}).status_code
        for workflow in (yaml, as_json)
    ]
    named = http.post(
        "/v1/jobs", json={"text": "A poem", "workflow": "brief", "documents": {"a.md": "Roses."}}
    )
    unknown = http.post("/v1/jobs", json={"text": "A poem", "workflow": "breif"})

    assert statuses == [202, 202]
    assert named.status_code == 202
    assert "did you mean brief" in unknown.json()["detail"]
