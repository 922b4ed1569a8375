"""Errors of a model's server are shown to people without secrets."""

from __future__ import annotations

import pytest

from handoff_queue.shared.providers.anthropic.errors import error_of_event

CANARY = "canary-90f3e1"


@pytest.mark.parametrize(
    "said",
    [
        f"no route to redis://:{CANARY}@h:1/0",
        f"refused Bearer {CANARY}",
        f"unknown key sk-{CANARY}",
    ],
)
def test_a_server_that_says_a_secret_is_quoted_without_it(said: str) -> None:
    error = error_of_event(f'{{"error": {{"type": "api_error", "message": "{said}"}}}}')

    assert said.split(maxsplit=1)[0] in str(error)
    assert CANARY not in str(error)
