"""Values that cannot be in an HTTP request are refused. The error shows no part of the value."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from handoff_queue.shared.settings.http_values import (
    check_header_value,
    check_headers,
    check_server_url,
    find_proxy,
    find_proxy_problems,
)
from tests.refusals import refusal_of

SERVER = "https://api.anthropic.com"


def refusal(check: Callable[[str], None], text: str) -> str:
    with pytest.raises(ValueError, match=r".") as refused:
        check(text)
    assert "\n" not in str(refused.value)
    assert "canary" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("text", ["canary\n", "canary\r\n", " canary", "canary\t", "canary\u2028"])
def test_space_around_a_header_value_is_refused(text: str) -> None:
    assert "begins or ends with" in refusal(check_header_value, text)


@pytest.mark.parametrize("text", ["can\nary", "can\0ary", "canary\x7fx", "canarý", "can\u200bary"])
def test_a_character_that_no_header_can_hold_is_refused(text: str) -> None:
    assert "which an HTTP header cannot contain" in refusal(check_header_value, text)


@pytest.mark.parametrize("text", ["canary", "no name: x", "A: canary\rx", ": canary"])
def test_custom_headers_are_lines_with_a_name_and_a_value(text: str) -> None:
    assert "line" in refusal(check_headers, text)


def test_custom_headers_may_have_space_around_them() -> None:
    assert refusal_of(check_headers, "X-Team: search\n  X-Trace : 1\n\n") is None


@pytest.mark.parametrize(
    "url",
    [
        "canary.example",
        "canary.example:8080/v1",
        "//canary.example",
        "ftp://canary.example",
        "https://",
        "https:///canary",
        "https://canary.example/a b",
        "https://canary.example\n",
        "https://canary.example:99999",
        "https://canary.example:0",
        "https://[canary]",
        "https://canary..example",
        "https://canary.example?a=1",
        "https://canary.example/#part",
        "https://user:can#ary@h.example",
        "https://user:can/ary@h.example",
    ],
)
def test_an_address_that_no_request_can_be_sent_to_is_refused(url: str) -> None:
    assert refusal(check_server_url, url)


@pytest.mark.parametrize(
    "url",
    [
        "https://h.example",
        "HTTP://localhost:8080/v1/",
        "http://[::1]:8080",
        "http://team:p%40ss@gateway_1:80",
    ],
)
def test_a_valid_server_address_is_accepted(url: str) -> None:
    assert refusal_of(check_server_url, url) is None


@pytest.mark.parametrize(
    "proxy",
    [
        "can ary://x",
        "http://canary:port",
        "http://user:can/ary@p:3128",
        "http://p:3128/canary",
        "ftp://canary:21",
        "http://canary:3128\n",
        "socks5://canary:1080",
    ],
)
@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_proxy_that_cannot_be_used_is_named_by_its_variable(name: str, proxy: str) -> None:
    (problem,) = find_proxy_problems(SERVER, {name: proxy})

    assert problem.startswith(f"{name}: ")
    assert "canary" not in problem


@pytest.mark.parametrize(
    "environment",
    [
        {"HTTPS_PROXY": "http://user:p%2Fw@proxy.example:3128"},
        {"HTTPS_PROXY": "proxy.example:3128"},
        {"HTTPS_PROXY": "http://proxy:3128", "ALL_PROXY": "socks5://proxy:1080"},
        {"ALL_PROXY": "socks5://proxy:1080", "NO_PROXY": "api.anthropic.com"},
        {"HTTPS_PROXY": ""},
    ],
)
def test_a_proxy_that_can_be_used_or_is_not_used_is_not_a_problem(
    environment: dict[str, str],
) -> None:
    assert not list(find_proxy_problems(SERVER, environment))


def test_the_proxy_of_the_scheme_overrides_the_general_proxy() -> None:
    environment = {"ALL_PROXY": "http://a:1", "HTTPS_PROXY": "http://b:1"}

    assert find_proxy("https", environment) == ("HTTPS_PROXY", "http://b:1")
    assert find_proxy("http", environment) == ("ALL_PROXY", "http://a:1")
    assert find_proxy("http", {}) is None
