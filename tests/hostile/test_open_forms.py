"""Forms that everybody may send: the login, and each form before its caller is known."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

BROWSER_HEADERS = {"Origin": "http://127.0.0.1:8321"}
FIELD = '--b\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n--b--\r\n'


@pytest.mark.parametrize("path", ["/login", "/v1/jobs", "/new"])
@pytest.mark.parametrize("charset", ["punycode", "idna", '"punycode"', "utf-7", "zlib"])
def test_a_form_of_another_charset_than_utf_8_is_refused_before_it_is_read(
    http: TestClient, path: str, charset: str
) -> None:
    answer = http.post(
        path,
        content=FIELD.format("request", "-aaaa"),
        headers={
            **BROWSER_HEADERS,
            "Content-Type": f"multipart/form-data; boundary=b; charset={charset}",
        },
    )

    assert answer.status_code == 415, answer.text


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (FIELD.format('token"; filename="a.md', "x"), "Too many files"),
        (FIELD.format("token", "x" * 5_000), "maximum size"),
        (FIELD.replace("--b--\r\n", "").format("token", "x") * 11 + "--b--\r\n", "Too many fields"),
    ],
    ids=["a file", "a long field", "many fields"],
)
def test_the_login_takes_only_a_few_short_fields(http: TestClient, body: str, problem: str) -> None:
    answer = http.post(
        "/login",
        content=body,
        headers={**BROWSER_HEADERS, "Content-Type": "multipart/form-data; boundary=b"},
    )

    assert answer.status_code == 400, answer.text
    assert problem in answer.text
