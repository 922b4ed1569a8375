"""Errors are problem documents of RFC 9457, with the words of the commands."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.events import CancelRequested, JobEnded, JobStatus
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve.application import make_application
from handoff_queue.supervisor.serve.request_body import JobBody
from handoff_queue.supervisor.serve.security_headers import HEADERS
from tests.doubles.jobs import a_job, granted_claim, issue, model_reply
from tests.supervisor.serve.conftest import LOCAL, URL


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("GET", "/v1/nothing", None, 404, "not-found"),
        ("PUT", "/v1/jobs", None, 405, "no-such-method"),
        ("GET", "/v1/jobs/j-000000000000", None, 404, "unknown-job"),
        ("GET", "/v1/jobs/latest", None, 404, "unknown-job"),
        ("GET", "/v1/jobs?limit=0", None, 422, "invalid"),
        ("GET", "/v1/jobs?cursor=(1", None, 422, "invalid"),
        ("GET", "/v1/jobs?status=done", None, 422, "invalid"),
        ("POST", "/v1/jobs", {"text": " "}, 400, "bad-request"),
        ("POST", "/v1/jobs", {"txt": "a"}, 422, "invalid"),
        ("POST", "/v1/agents/nobody/unpause", {}, 200, ""),
        ("DELETE", "/v1/dead-letters/0123abcd", None, 404, "not-found"),
    ],
)
def test_an_error_is_a_problem_document(
    method: str, path: str, body: object, status: int, kind: str, http: TestClient
) -> None:
    answer = http.request(method, path, json=body)

    assert answer.status_code == status
    if kind:
        problem = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["type"] == f"/v1/reference#{kind}"
        assert problem["status"] == status
        assert problem["detail"]


def test_the_problem_of_a_wrong_method_names_all_methods_of_the_resource(http: TestClient) -> None:
    refused = http.put("/v1/jobs")

    assert refused.headers["Allow"] == "GET, POST"


def test_a_body_that_does_not_validate_has_an_entry_for_each_problem(http: TestClient) -> None:
    body = {"txt": "a", "limits": {"max_turns": 0}, "mode": "fast"}

    problem = http.post("/v1/jobs", json=body).json()

    assert {entry["pointer"] for entry in problem["errors"]} == {
        "#/text",
        "#/txt",
        "#/limits/max_turns",
        "#/mode",
    }
    assert "did you mean text?" in str(problem["errors"])


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"limits": {"max_turns": 0}}, "limits.max_turns: must be at least 1, not 0"),
        ({"mode": "fast"}, "mode: must be 'auto', 'single', 'pipeline', 'team' or 'adaptive', not"),
        ({"text": 5}, "text: must be a text, not 5"),
        ({"text": True}, "text: must be a text, not true"),
        ({"is_quoted": "no"}, "is_quoted: must be true or false, not 'no'"),
    ],
)
def test_the_problem_of_a_body_names_the_wrong_value(
    fields: dict[str, object], detail: str, http: TestClient
) -> None:
    problem = http.post("/v1/jobs", json={"text": "x", **fields}).json()

    assert problem["detail"].startswith(detail)
    assert problem["errors"][0]["detail"] in problem["detail"]


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("limit=0", "query.limit: must be at least 1, not 0"),
        ("limit=many", "query.limit: must be a whole number, not 'many'"),
    ],
)
def test_the_problem_of_a_parameter_names_the_wrong_value(
    query: str, detail: str, http: TestClient
) -> None:
    assert http.get(f"/v1/jobs?{query}").json()["detail"] == detail


SECRET_OR_UNREADABLE = {
    "a URL with a password": "https://ann:hunter2@example.com/hook",
    "a token": "hq_abc",
    "a key of the provider": "sk-ant-1234",
    "a key after spaces": "  sk-ant-1234",
    "an escape sequence": "\x1b[31mred",
    "a bidirectional override": "\u202eabc",
    "two lines": "a\nb",
    "a long text": "a" * 10_000,
    "a number of many digits": 10**300,
}


@pytest.mark.parametrize("value", SECRET_OR_UNREADABLE.values(), ids=SECRET_OR_UNREADABLE)
def test_a_problem_leaves_out_a_value_that_is_secret_or_unreadable(
    value: str | int, http: TestClient
) -> None:
    of_body = http.post("/v1/jobs", json={"text": "x", "deadline_s": value}).json()
    of_query = http.get("/v1/jobs", params={"limit": value}).json()

    for problem in (of_body, of_query):
        assert re.fullmatch(r"[\w.]+: must be (a whole number|at most \d+)", problem["detail"])


def test_a_body_without_fields_is_refused_with_some_of_its_fields(http: TestClient) -> None:
    detail = http.post("/v1/jobs", json=[]).json()["detail"]

    assert detail.startswith("the body must be a JSON object: use text, documents, ")
    assert detail.endswith(", ...")


def test_a_text_in_place_of_documents_is_refused_with_the_form_of_an_object(
    http: TestClient,
) -> None:
    detail = http.post("/v1/jobs", json={"text": "x", "documents": "a"}).json()["detail"]

    assert detail == """documents: must be a JSON object, not 'a': write {"name": value}"""


def test_a_field_that_no_known_field_resembles_is_refused_with_all_fields(
    http: TestClient,
) -> None:
    detail = http.post("/v1/jobs", json={"text": "x", "foo": 1}).json()["detail"]

    assert detail.startswith("foo: there is no such field: use one of text, ")
    assert detail.endswith(", ".join(JobBody.model_fields))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs/j-000000000000"),
        ("GET", "/v1/jobs/latest"),
        ("POST", "/v1/jobs/j-000000000000/cancel"),
        ("DELETE", "/v1/dead-letters/0123abcd"),
    ],
)
def test_an_error_names_no_command_because_a_caller_may_not_have_the_commands(
    method: str, path: str, http: TestClient
) -> None:
    problem = http.request(method, path).json()

    assert "handoff" not in problem["detail"]


def test_the_pointer_to_a_problem_is_a_json_pointer(http: TestClient) -> None:
    problem = http.post("/v1/jobs", json={"text": "a", "documents": {"notes/~a.md": 3}}).json()

    assert problem["errors"][0]["pointer"] == "#/documents/notes~1~0a.md"
    assert problem["detail"].startswith("documents.notes/~a.md: ")


def test_an_error_has_the_words_of_the_python_client(http: TestClient, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    with pytest.raises(UserError) as refused:
        jobs.approve(job_id)

    answer = http.post(f"/v1/jobs/{job_id}/approve")

    assert (answer.status_code, answer.json()["detail"]) == (400, str(refused.value))


@pytest.mark.parametrize(
    ("content", "media_type", "status"),
    [
        (b"{", "application/json", 422),
        (b'{"text": "a", "text": "b"}', "application/json", 400),
        (b'{"text": "\xff"}', "application/json", 422),
        (b'{"text": "\\ud800"}', "application/json", 422),
        (b"[" * 5_000, "application/json", 422),
        (b'{"text": "a"}', "text/plain", 415),
        (b"no form", "multipart/form-data", 400),
    ],
)
def test_a_body_that_is_not_json_is_refused(
    content: bytes, media_type: str, status: int, http: TestClient
) -> None:
    answer = http.post("/v1/jobs", content=content, headers={"Content-Type": media_type})

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "headers", "detail"),
    [
        (
            "/v1/jobs",
            {"Content-Type": "text/plain"},
            "the body must be application/json or multipart/form-data",
        ),
        (
            "/v1/schedules",
            {"Content-Type": "multipart/form-data; boundary=x"},
            "the body must be application/json",
        ),
        (
            "/v1/jobs",
            {"Content-Type": "application/json", "Content-Encoding": "gzip"},
            "the body has the Content-Encoding 'gzip': send it uncompressed",
        ),
        (
            "/v1/jobs",
            {"Content-Type": "multipart/form-data; boundary=x", "Content-Encoding": "gzip"},
            "the body has the Content-Encoding 'gzip': send it uncompressed",
        ),
    ],
)
def test_a_body_in_another_form_is_415_with_the_right_form(
    path: str, headers: dict[str, str], detail: str, http: TestClient
) -> None:
    answer = http.post(path, content=b"--x", headers=headers)

    assert (answer.status_code, answer.json()["detail"]) == (415, detail)


def test_an_empty_form_has_the_defaults_of_all_fields(http: TestClient, jobs: Client) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = http.post(f"/v1/jobs/{a_job(jobs.store)}/retry", content=b"", headers=form)

    assert answer.status_code != 415


def test_a_lost_redis_is_503_with_a_time_to_try_again() -> None:
    jobs = client.connect(f"redis://127.0.0.1:{find_free_port()}/0", Settings(offline=True))
    app = make_application(AsyncClient(jobs), jobs.settings)
    with TestClient(app, base_url=URL, client=LOCAL, raise_server_exceptions=False) as http:
        answer = http.get("/v1/jobs")
    with pytest.raises(StoreUnavailable) as away:
        jobs.newest()

    assert (answer.status_code, answer.json()["detail"]) == (503, str(away.value))
    assert int(answer.headers["retry-after"]) > 0


def test_a_spent_budget_is_429_until_the_next_day(http: TestClient, jobs: Client) -> None:
    jobs.store.daily_budgets.set_caps(DailyCaps(day_tokens=100))
    known = jobs.submit(Request("Compare."))
    issue(jobs.store, known, "a.1")
    claimed = granted_claim(jobs.store, known, "a.1")
    claimed.reserve(WorstCase(80, 20, 1))
    claimed.checkpoint(model_reply(80, 20, 1))

    answer = http.post("/v1/jobs", json={"text": "Where is it?"})

    assert answer.status_code == 429
    assert answer.json()["type"] == "/v1/reference#budget-spent"
    assert "there is more at 00:00 UTC" in answer.json()["detail"]
    assert 0 < int(answer.headers["retry-after"]) <= 86_400


def test_a_tenant_with_too_many_open_jobs_gets_429_for_a_job_and_for_a_retry(
    http: TestClient, jobs: Client
) -> None:
    ended = jobs.submit(Request("Compare."))
    jobs.store.journal.append(ended, CancelRequested())
    cancelled = JobEnded(status=JobStatus.CANCELLED)
    jobs.store.journal.append(ended, cancelled, {"status": "cancelled"})
    jobs.store.daily_budgets.set_caps(DailyCaps(tenant_open_jobs=1))
    jobs.submit(Request("Compare."))

    for path, body in (("/v1/jobs", {"text": "Where is it?"}), (f"/v1/jobs/{ended}/retry", {})):
        answer = http.post(path, json=body)
        assert (answer.status_code, answer.json()["type"]) == (
            429,
            "/v1/reference#too-many-open-jobs",
        )
        assert "has reached its limit of open jobs (1," in answer.json()["detail"]
        assert int(answer.headers["retry-after"]) > 0
    budgets = http.get("/v1/budgets").json()
    assert (budgets["open_jobs"], budgets["most_open_jobs"]) == (1, 1)


def test_every_response_has_the_security_headers(http: TestClient) -> None:
    for path in ("/v1/jobs", "/v1/nothing", "/v1/openapi.json"):
        headers = http.get(path).headers
        assert {name: headers[name] for name in HEADERS} == HEADERS


def test_a_defect_is_500_without_its_words(jobs: Client) -> None:
    app = make_application(AsyncClient(jobs), jobs.settings)

    @app.get("/v1/broken")
    async def broken() -> None:
        raise RuntimeError("a secret text")

    with TestClient(app, base_url=URL, client=LOCAL, raise_server_exceptions=False) as http:
        answer = http.get("/v1/broken")

    assert answer.status_code == 500
    assert "a secret text" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
