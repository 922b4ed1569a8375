"""Redaction removes secrets by their value, their name and their shape."""

from __future__ import annotations

import html
import json
import re
import shlex
import urllib.parse
from base64 import b64encode, urlsafe_b64encode

import pytest
from pydantic import SecretStr

from handoff_queue.shared.observability.redaction import (
    HIDDEN,
    Redactor,
    SecretSpellings,
    find_secrets,
)
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.workers.tools.tenant_credentials import without_values

CANARY = "canary-5f0c1e"
SECRET = "p\"4/ss'wö\\rd <?>=+&~ÿ"
IN_JSON = json.dumps(SECRET)[1:-1]
QUOTED = urllib.parse.quote(SECRET, safe="")
SPELLINGS = {
    "plain": SECRET,
    "JSON": IN_JSON,
    "JSON with letters": json.dumps(SECRET, ensure_ascii=False)[1:-1],
    "JSON with escaped slashes": IN_JSON.replace("/", "\\/"),
    "JSON in JSON": json.dumps(json.dumps({"a": SECRET})),
    "JSON in capitals": re.sub(r"u00..", lambda match: f"u{match[0][1:].upper()}", IN_JSON),
    "JSON of Go": re.sub("[<>&]", lambda match: f"\\u00{ord(match[0]):02x}", IN_JSON),
    "percent": QUOTED,
    "percent in small letters": re.sub("%..", lambda match: match[0].lower(), QUOTED),
    "percent twice": urllib.parse.quote(QUOTED),
    "percent of JavaScript": urllib.parse.quote(SECRET, safe="!'()*~"),
    "percent with a slash": urllib.parse.quote(SECRET),
    "a form": urllib.parse.urlencode({"key": SECRET}),
    "HTML": html.escape(SECRET),
    "HTML of MarkupSafe": html.escape(SECRET).replace("&#x27;", "&#39;"),
    "Python": repr(SECRET),
    "bytes of Python": repr(SECRET.encode()),
    "a shell": shlex.quote(SECRET),
    "base64": b64encode(SECRET.encode()).decode(),
    "base64url": urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    "base64 after one byte": b64encode(b":" + SECRET.encode()).decode(),
    "base64 with a user": b64encode(b"admin:" + SECRET.encode()).decode(),
    "base64 between others": b64encode(b"ab" + SECRET.encode() + b"more").decode(),
    "hexadecimal digits": SECRET.encode().hex(),
    "hexadecimal digits in capitals": SECRET.encode().hex().upper(),
}


def test_a_secret_inside_a_text_is_hidden_and_the_rest_stays() -> None:
    assert (
        Redactor([CANARY]).redact_text(f"calling with {CANARY}, twice")
        == f"calling with {HIDDEN}, twice"
    )


def test_a_short_secret_is_hidden_only_if_it_is_the_whole_value() -> None:
    redactor = Redactor(["abc"])

    assert redactor.redact_text("abc") == HIDDEN
    assert redactor.redact_text("abcdef") == "abcdef"


def test_a_secret_that_contains_another_leaves_no_tail() -> None:
    assert Redactor([CANARY, f"{CANARY}-and-more"]).redact_text(f"{CANARY}-and-more") == HIDDEN


@pytest.mark.parametrize(
    "name",
    ["api_key", "x-api-key", "ANTHROPIC_AUTH_TOKEN", "password", "webhook_secret", "Authorization"],
)
def test_a_value_under_a_secret_name_is_always_hidden(name: str) -> None:
    assert Redactor([]).redact_value({name: "anything"}) == {name: HIDDEN}


@pytest.mark.parametrize("name", ["input_tokens", "max_tokens", "routing_key", "keyboard", "queue"])
def test_names_that_only_resemble_secrets_are_left_alone(name: str) -> None:
    assert Redactor([]).redact_value({name: "researcher"}) == {name: "researcher"}


def test_figures_are_never_secrets() -> None:
    assert Redactor(["12"]).redact_value({"token": 12, "ok": True, "none": None}) == {
        "token": 12,
        "ok": True,
        "none": None,
    }


def test_nested_values_and_objects_are_searched() -> None:
    hidden = Redactor([CANARY]).redact_value({"a": [{"b": ValueError(CANARY)}], CANARY: 1})

    assert CANARY not in repr(hidden)


@pytest.mark.parametrize(
    "text",
    [
        "redis://:hunter2hunter2@db:6379/0",
        "sk-ant-api03-abcdefghijklmnop",
        "Authorization: Bearer abcdefghijklmnop",
        "https://me:pw@host/x",
        f"handoff:notes:hqn_{'0123abcd' * 4}",
    ],
)
def test_credentials_are_recognized_by_their_shape(text: str) -> None:
    shown = Redactor([]).redact_text(text)

    assert HIDDEN in shown
    assert not any(part in shown for part in ("hunter2", "abcdefgh", "me:pw", "0123abcd"))


def test_a_token_of_the_api_is_hidden_and_its_id_stays() -> None:
    shown = Redactor([]).redact_text(f"GET /v1/jobs?token=hq_0123456789ab_{'aB3-_' * 9} failed")

    assert shown == f"GET /v1/jobs?token=hq_0123456789ab_{HIDDEN} failed"


def test_secrets_come_from_named_variables_settings_and_urls() -> None:
    settings = Settings(redis_url=SecretStr("redis://:p%40ss-word@h/0"))
    environment = {
        "MY_TOKEN": CANARY,
        "FLOWER_BASIC_AUTH": "admin:flower-pw",
        "BACKUP": "https://u:url-pw@h",
        "BROKER": "sentinel://a?sentinel_password=query-pw;sentinel://b",
        "PATH": "/usr/bin",
    }

    secrets = find_secrets(settings, environment)

    assert {CANARY, "p@ss-word", "flower-pw", "url-pw", "query-pw"} <= secrets
    assert "/usr/bin" not in secrets


def test_a_password_is_hidden_also_where_it_is_percent_encoded() -> None:
    redactor = Redactor(["p@ss-word"])

    assert redactor.redact_text("p%40ss-word") == HIDDEN


@pytest.mark.parametrize(
    "headers",
    [
        "x-api-key=hny-4711",
        "a=b, x-api-key: hny-4711",
        "hny-4711",
        "Authorization: Bearer hny-4711",
        "x-api-key hny-4711",
    ],
)
def test_a_collectors_key_is_hidden_in_every_form_of_its_headers(headers: str) -> None:
    secrets = find_secrets(Settings(), {"OTEL_EXPORTER_OTLP_HEADERS": headers})

    assert "4711" not in Redactor(secrets).redact_text(f"sent with hny-4711, out of {headers}")


def pieces() -> set[str]:
    """Return parts of all spellings that must not stay."""
    return {spelling[start : start + 12] for spelling in SPELLINGS.values() for start in (8, 12)}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_spelling_of_a_secret_is_hidden(spelling: str) -> None:
    shown = Redactor([SECRET]).without_values(f"it is {SPELLINGS[spelling]} here")

    assert HIDDEN in shown
    assert shown.startswith("it is ")
    assert shown.endswith(" here")
    assert not any(piece in shown for piece in pieces())


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_tool_shows_the_name_of_a_secret(spelling: str) -> None:
    shown = without_values(f"it is {SPELLINGS[spelling]} here", {"TOKEN": SECRET})

    assert "[TOKEN]" in shown
    assert not any(piece in shown for piece in pieces())


def test_a_secret_from_a_url_is_hidden_also_without_percent_encodings() -> None:
    assert Redactor(["p%40ss-word"]).redact_text("p@ss-word") == HIDDEN


def test_the_longest_of_two_secrets_is_hidden_first() -> None:
    spellings = SecretSpellings({"secret-1": "[A]", "secret-1-and-more": "[B]"})

    assert spellings.replace_secrets_in("secret-1-and-more, secret-1") == "[B], [A]"


def test_without_secrets_a_text_stays() -> None:
    assert SecretSpellings({}).replace_secrets_in("a text") == "a text"
    assert SecretSpellings({"": "[A]"}).replace_secrets_in("a text") == "a text"


def test_a_short_secret_has_no_spelling_that_other_texts_have_by_chance() -> None:
    assert without_values("MQ and 31", {"A": "1"}) == "MQ and 3[A]"
