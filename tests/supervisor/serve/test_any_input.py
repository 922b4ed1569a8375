"""No input makes the server fail: schemathesis sends generated requests to every operation.

The requests come from the OpenAPI document, with valid and with invalid values. A status of
500 or above would be a defect. `make explore` draws new requests.
"""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import requests
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.client import Client
from tests.doubles.jobs import a_job
from tests.property_settings import draws
from tests.supervisor.serve.conftest import URL, ClientOf
from tests.supervisor.serve.test_job_routes import end

pytestmark = [pytest.mark.slow, pytest.mark.hypothesis]

EXAMPLES = 3
"""Generated requests of each operation, job and mode."""


@pytest.fixture
def settings() -> Settings:
    return Settings(offline=True, serve_requests_per_minute=1_000_000)


def test_no_input_makes_the_server_fail(app: FastAPI, jobs: Client, client_with: ClientOf) -> None:
    # Imported here: the import takes a second, and every test process imports this file.
    import schemathesis
    from schemathesis.generation import GenerationMode

    schema = schemathesis.openapi.from_dict(app.openapi())
    http = client_with()
    statuses: list[int] = []

    def send(case: Any) -> None:
        for body in _bodies(case):
            case.body = body
            answer = _sent(http, case)
            statuses.append(answer.status_code)
            assert answer.status_code < 500, (case.as_curl_command(), answer.text)

    operations: list[Any] = [operation.ok() for operation in schema.get_all_operations()]  # type: ignore[union-attr]
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            job_id = a_job(jobs.store)
            end(jobs, job_id)  # so that a stream of events ends
            _try(operation, mode, None, send)
            _try(operation, mode, job_id, send)

    assert len(statuses) > 200
    assert {200, 202, 204, 400, 404, 422} <= set(statuses)


def _try(operation: Any, mode: Any, job_id: JobId | None, send: Any) -> None:
    """Send generated requests of an operation. `job_id`: a job that exists; None: any text."""
    given: dict[str, Any] = {}
    if job_id is not None:
        if "{job_id}" not in operation.path or "{handoff_id}" in operation.path:
            return
        given["path_parameters"] = {"job_id": job_id}
    settings = hypothesis.settings(
        draws(EXAMPLES),
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    attempt: Any = hypothesis.given(operation.as_strategy(mode, **given))(send)  # type: ignore[no-untyped-call]
    settings(attempt)()


def _bodies(case: Any) -> list[Any]:
    """Return the generated body. For a job, add a body for each generated field alone.

    A generated job has many fields, and the first field that is not valid hides the others.
    """
    bodies = [case.body]
    if case.operation.label == "POST /v1/jobs" and isinstance(case.body, dict):
        fields = case.body.items()
        bodies += [{"text": "Where is it?", name: value} for name, value in fields]
    return bodies


def _sent(http: TestClient, case: Any) -> Any:
    """Send a generated request, and return the response."""
    if case.operation.label == "POST /v1/quotes":
        case.query = {**(case.query or {}), "wait_s": "0"}  # no supervisor makes a plan
    request: Any = requests.Request(**case.as_transport_kwargs(base_url=URL)).prepare()
    headers: dict[str, Any] = dict(request.headers)
    headers.pop("Authorization", None)
    return http.request(
        str(request.method),
        str(request.url),
        content=request.body,
        headers=[*headers.items(), *http.headers.items()],
    )
