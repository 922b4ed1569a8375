"""Errors of a model's server are shown to people without secrets."""

from __future__ import annotations

import pytest

from handoff_queue.shared.providers.anthropic.errors import convert_error_event

CANARY = "canary-90f3e1"


def test_an_error_of_deep_brackets_is_an_error_of_the_server() -> None:
    assert "[[[" in str(convert_error_event("[" * 100_000))


@pytest.mark.parametrize(
    "message",
    [
        f"no route to redis://:{CANARY}@h:1/0",
        f"refused Bearer {CANARY}",
        f"unknown key sk-{CANARY}",
    ],
)
def test_an_error_that_quotes_a_server_hides_secrets(message: str) -> None:
    error = convert_error_event(f'{{"error": {{"type": "api_error", "message": "{message}"}}}}')

    assert message.split(maxsplit=1)[0] in str(error)
    assert CANARY not in str(error)
