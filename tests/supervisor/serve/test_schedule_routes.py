"""Schedules over HTTP: roles, the tenant wall, and the same words as the command."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from handoff_queue.supervisor.client.client import Client
from tests.supervisor.serve.conftest import ClientOf

NEWS = {"name": "news", "cron": "0 9 * * *", "job": {"text": "What is new?"}}


def test_a_schedule_is_added_listed_run_paused_and_removed(http: TestClient, jobs: Client) -> None:
    body = {**NEWS, "timezone": "Europe/Berlin", "overlap": "queue", "missed": "all"}
    body["job"] = {"text": "What is new?", "documents": {"a.md": "HNSW is a graph."}}
    added = http.post("/v1/schedules", json=body)
    job_id = http.post("/v1/schedules/news/run").json()["job_id"]
    paused = http.post("/v1/schedules/news/pause").json()
    unpaused = http.post("/v1/schedules/news/unpause").json()
    shown = http.get("/v1/schedules/news").json()
    listed = http.get("/v1/schedules").json()
    removed = http.delete("/v1/schedules/news")

    assert (added.status_code, removed.status_code) == (201, 204)
    assert (added.json()["cron"], added.json()["overlap"]) == ("0 9 * * *", "queue")
    assert (paused["is_paused"], paused["next_slot"]) == (True, None)
    assert (unpaused["is_paused"], shown["last_job"], listed) == (False, job_id, [shown])
    assert jobs.outline(job_id).title == "What is new?"
    assert http.get("/v1/schedules").json() == []


def test_a_repeated_run_with_the_same_key_starts_one_job(http: TestClient, jobs: Client) -> None:
    http.post("/v1/schedules", json=NEWS)
    keys = ("order-7", "order-7", "order-8")
    answers = [
        http.post("/v1/schedules/news/run", headers={"Idempotency-Key": key}) for key in keys
    ]
    unusable = http.post("/v1/schedules/news/run", headers={"Idempotency-Key": " "})

    first, repeated, other = (answer.json()["job_id"] for answer in answers)
    assert (first == repeated, first == other, unusable.status_code) == (True, False, 400)
    assert {job.job_id for job in jobs.newest()} == {first, other}
    assert http.get("/v1/schedules/news").json()["started"] == 2


def test_the_role_submit_adds_and_runs_and_the_role_operate_does_the_rest(
    client_with: ClientOf,
) -> None:
    read, submit, operate = client_with("read"), client_with("submit"), client_with("operate")
    path = "/v1/schedules/news"

    assert read.post("/v1/schedules", json=NEWS).status_code == 403
    assert submit.post("/v1/schedules", json=NEWS).status_code == 201
    assert read.get(path).status_code == 200
    assert (read.post(f"{path}/run").status_code, submit.post(f"{path}/run").status_code) == (
        403,
        201,
    )
    assert {submit.post(f"{path}/pause").status_code, submit.delete(path).status_code} == {403}
    assert operate.post(f"{path}/pause").status_code == 200
    assert operate.delete(path).status_code == 204


def test_a_tenant_sees_and_changes_only_its_own_schedules(client_with: ClientOf) -> None:
    acme, globex, everyone = (
        client_with("operate", "acme"),
        client_with("operate", "globex"),
        client_with("operate"),
    )
    acme.post("/v1/schedules", json=NEWS)
    path = "/v1/schedules/news"
    refused = [
        globex.get(path),
        globex.post(f"{path}/pause"),
        globex.post(f"{path}/unpause"),
        globex.post(f"{path}/run"),
        globex.delete(path),
    ]
    elsewhere = globex.get(path, params={"tenant": "acme"})
    in_body = globex.post("/v1/schedules", json={**NEWS, "job": {"text": "x", "tenant": "acme"}})

    assert {answer.status_code for answer in refused} == {404}
    assert (elsewhere.status_code, in_body.status_code) == (403, 403)
    assert globex.get("/v1/schedules").json() == []
    assert globex.post("/v1/schedules", json=NEWS).status_code == 201, "the name is free here"
    assert [schedule["tenant"] for schedule in everyone.get("/v1/schedules").json()] == [
        "acme",
        "globex",
    ]
    assert everyone.get(path, params={"tenant": "acme"}).json()["tenant"] == "acme"
    assert acme.get(path).json()["running"] == []


@pytest.mark.parametrize(
    ("change", "status", "detail"),
    [
        ({"cron": "nope"}, 400, "'nope' is not a cron expression"),
        ({"timezone": "Mars"}, 400, "there is no time zone 'Mars'"),
        ({"name": "Bad Name"}, 422, "name: must be lower-case letters, digits, `-` and `_`"),
        ({"missed": "all"}, 400, "needs overlap queue"),
        ({"overlap": "twice"}, 422, "overlap: "),
        ({"job": {"text": " "}}, 400, "the request is empty"),
        ({"job": {"text": "x", "after": "j-0123456789ab"}}, 400, "follows_last"),
    ],
)
def test_a_schedule_that_cannot_work_is_one_problem(
    http: TestClient, change: dict[str, object], status: int, detail: str
) -> None:
    refused = http.post("/v1/schedules", json={**NEWS, **change})

    assert refused.status_code == status
    assert detail in refused.json()["detail"]


def test_a_second_schedule_of_the_same_name_is_a_conflict(http: TestClient) -> None:
    http.post("/v1/schedules", json=NEWS)
    refused = http.post("/v1/schedules", json=NEWS)

    assert refused.status_code == 409
    assert refused.json()["detail"].startswith("there is a schedule news already: remove it first")


def test_an_unknown_name_is_not_found(http: TestClient) -> None:
    answer = http.get("/v1/schedules/nws")

    assert answer.status_code == 404
    assert answer.json()["detail"].startswith("there is no schedule 'nws' of tenant default")
