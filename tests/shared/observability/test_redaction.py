"""Redaction removes secrets by their value, their name and their shape."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from handoff_queue.shared.observability.redaction import HIDDEN, Redactor, secrets_of
from handoff_queue.shared.settings.settings import Settings

CANARY = "canary-5f0c1e"


def test_a_secret_inside_a_text_is_hidden_and_the_rest_stays() -> None:
    assert (
        Redactor([CANARY]).text(f"calling with {CANARY}, twice") == f"calling with {HIDDEN}, twice"
    )


def test_a_short_secret_is_hidden_only_if_it_is_the_whole_value() -> None:
    redactor = Redactor(["abc"])

    assert redactor.text("abc") == HIDDEN
    assert redactor.text("abcdef") == "abcdef"


def test_a_secret_that_contains_another_leaves_no_tail() -> None:
    assert Redactor([CANARY, f"{CANARY}-and-more"]).text(f"{CANARY}-and-more") == HIDDEN


@pytest.mark.parametrize(
    "name",
    ["api_key", "x-api-key", "ANTHROPIC_AUTH_TOKEN", "password", "webhook_secret", "Authorization"],
)
def test_a_value_under_a_secret_name_is_always_hidden(name: str) -> None:
    assert Redactor([]).value({name: "anything"}) == {name: HIDDEN}


@pytest.mark.parametrize("name", ["input_tokens", "max_tokens", "routing_key", "keyboard", "queue"])
def test_names_that_only_resemble_secrets_are_left_alone(name: str) -> None:
    assert Redactor([]).value({name: "researcher"}) == {name: "researcher"}


def test_figures_are_never_secrets() -> None:
    assert Redactor(["12"]).value({"token": 12, "ok": True, "none": None}) == {
        "token": 12,
        "ok": True,
        "none": None,
    }


def test_nested_values_and_objects_are_searched() -> None:
    hidden = Redactor([CANARY]).value({"a": [{"b": ValueError(CANARY)}], CANARY: 1})

    assert CANARY not in repr(hidden)


@pytest.mark.parametrize(
    "text",
    [
        "redis://:hunter2hunter2@db:6379/0",
        "sk-ant-api03-abcdefghijklmnop",
        "Authorization: Bearer abcdefghijklmnop",
        "https://me:pw@host/x",
    ],
)
def test_credentials_are_recognized_by_their_shape(text: str) -> None:
    shown = Redactor([]).text(text)

    assert HIDDEN in shown
    assert not any(part in shown for part in ("hunter2", "abcdefgh", "me:pw"))


def test_a_token_of_the_api_is_hidden_and_its_id_stays() -> None:
    shown = Redactor([]).text(f"GET /v1/jobs?token=hq_0123456789ab_{'aB3-_' * 9} failed")

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

    secrets = secrets_of(settings, environment)

    assert {CANARY, "p@ss-word", "flower-pw", "url-pw", "query-pw"} <= secrets
    assert "/usr/bin" not in secrets


def test_a_password_is_hidden_also_where_it_is_percent_encoded() -> None:
    redactor = Redactor(["p@ss-word"])

    assert redactor.text("p%40ss-word") == HIDDEN


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
    secrets = secrets_of(Settings(), {"OTEL_EXPORTER_OTLP_HEADERS": headers})

    assert "4711" not in Redactor(secrets).text(f"sent with hny-4711, out of {headers}")
