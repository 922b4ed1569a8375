"""Server processes refuse placeholders for secrets and do not repeat the value."""

from __future__ import annotations

import base64
import secrets

import pytest

from handoff_queue.shared.settings.placeholder_passwords import (
    check_log_ins,
    is_placeholder,
    load_process_settings,
)
from handoff_queue.shared.types.errors import UserError
from tests.refusals import refusal_of

PLACEHOLDERS = [
    "change-me", "changeme", "CHANGE_ME", "change-me-redis", "change-me-flower",
    "please-change-this", "ChangeIt!", "replace-me", "password", "Password1", "passwd",
    "secret", "redis", "redis-password", "your-password", "<REDIS_PASSWORD>", "admin",
    "admin123", "flower", "handoff", "example-password", "placeholder", "xxxxxxxx", "...",
    "********", "0000", "1234", "TODO",
]  # fmt: skip
"""Placeholders from examples of this project and other projects."""


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a_placeholder_is_recognized_by_its_words(text: str) -> None:
    assert is_placeholder(text)


def test_a_generated_secret_is_not_a_placeholder() -> None:
    generated = [make() for make in (secrets.token_hex, secrets.token_urlsafe) for _ in range(200)]
    generated += [base64.b64encode(secrets.token_bytes(18)).decode() for _ in range(200)]
    generated += [
        "correct horse battery staple",
        "whsec_51f0b2",
        "Tr0ub4dor&3",
        "пароль-от-очереди",
    ]

    assert [text for text in generated if is_placeholder(text)] == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HANDOFF_REDIS_URL", "redis://:change-me-redis@redis:6379/0"),
        ("HANDOFF_REDIS_URL", "rediss://handoff:change%2Dme@redis:6379/0"),
        (
            "HANDOFF_REDIS_URL",
            "sentinel://:a8d1f0c2@s1/0?master_name=mymaster&sentinel_password=changeme",
        ),
        ("HANDOFF_WEBHOOK_SECRET", "changeme"),
        ("HANDOFF_WEBHOOK_SECRET", "xchange4fd20a1b"),
    ],
)
def test_a_process_names_the_variable_of_a_weak_secret_and_not_its_value(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(UserError) as refused:
        load_process_settings()

    line = str(refused.value)
    assert variable in line
    assert "openssl rand -hex 24" in line
    assert "change" not in line.casefold()
    assert "\n" not in line


@pytest.mark.parametrize("url", [None, "redis://localhost:6379/0", "redis://:5d41402abc@redis/0"])
def test_a_process_takes_a_real_password_and_a_redis_without_one(
    monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    monkeypatch.delenv("HANDOFF_REDIS_URL", raising=False)
    if url:
        monkeypatch.setenv("HANDOFF_REDIS_URL", url)

    redis_url = load_process_settings().redis_url

    assert (redis_url.get_secret_value() if redis_url else None) == url


@pytest.mark.parametrize(
    "log_in", ["admin:change-me-flower", "admin:admin", "mary:mary", "admin:", ":", "admin", ":x7f"]
)
def test_flower_needs_an_individual_user_and_password(log_in: str) -> None:
    with pytest.raises(UserError, match="FLOWER_BASIC_AUTH") as refused:
        check_log_ins(["ops:9f86d081884c", log_in])

    assert "change" not in str(refused.value)
    assert "mary" not in str(refused.value)


def test_flower_takes_several_log_ins() -> None:
    assert refusal_of(check_log_ins, ["admin:9f86d081884c", "ops:a:b:c"]) is None
