"""The OpenAPI document, and the page that shows it without scripts and other files."""

from __future__ import annotations

import json
import re

import pytest
from fastapi.testclient import TestClient

from tests.supervisor.serve.conftest import ClientOf


@pytest.mark.slow
def test_the_document_is_openapi_3_1_and_every_reference_in_it_exists(http: TestClient) -> None:
    document = http.get("/v1/openapi.json").json()
    schemas = document["components"]["schemas"]
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))

    assert document["openapi"] == "3.1.0"
    assert named <= set(schemas)
    assert {"JobBody", "JobResult", "Export", "ProblemDocument"} <= set(schemas)


def test_every_operation_has_a_summary_a_description_and_its_errors(http: TestClient) -> None:
    document = http.get("/v1/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            assert operation["description"], (method, path)
            assert {"401", "403", "404", "422", "429", "503"} <= set(operation["responses"])
            problem = operation["responses"]["422"]["content"]
            assert set(problem) == {"application/problem+json"}


def test_the_page_lists_every_operation_and_loads_nothing(http: TestClient) -> None:
    document = http.get("/v1/openapi.json").json()
    page = http.get("/v1/reference")
    operations = [
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    ]

    assert all(f"<code>{operation}</code>" in page.text for operation in operations)
    assert not re.search(r"<script|<link|<img|src=|@import|url\(", page.text)
    assert "default-src 'none'; style-src 'sha256-" in page.headers["content-security-policy"]


def test_every_type_of_a_problem_is_an_anchor_of_the_page(http: TestClient) -> None:
    page = http.get("/v1/reference").text
    types = [
        http.get("/v1/jobs/j-000000000000").json()["type"],
        http.get("/v1/jobs?limit=0").json()["type"],
    ]

    assert all(f'id="{kind.partition("#")[2]}"' in page for kind in types)


def test_the_page_and_the_document_need_no_token(http: TestClient, client_with: ClientOf) -> None:
    client_with()

    assert http.get("/v1/reference").status_code == 200
    assert http.get("/v1/openapi.json").status_code == 200
