"""A process makes as many concurrent calls as it has slots."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor

import pytest

from handoff_queue.shared.providers.anthropic import streamed_call
from handoff_queue.shared.providers.anthropic.client_factory import create_model
from handoff_queue.shared.providers.anthropic.model import AnthropicModel
from handoff_queue.shared.runtime.process_resources import raise_open_file_limit
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.model import ModelCall, SystemPrompt
from tests.doubles.gathering_server import gathering_server

pytestmark = pytest.mark.slow

CALLS = 1_010
"""More than the 1,000 connections that the SDK's client opens by default."""
CALL_TIMEOUT_S = 240
"""A busy machine may need a minute for the start of 1,010 threads."""


@pytest.fixture(autouse=True)
def no_short_connect_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each connection as much time as its call. One event loop opens all connections, and a
    busy machine may need longer than the usual 10 seconds for 1,010 connections.
    """
    monkeypatch.setattr(streamed_call, "CONNECT_TIMEOUT_S", CALL_TIMEOUT_S)


def replies_at_once(calls: int) -> int:
    """Make this many concurrent calls, each in its own thread. Return the number of replies."""
    call = ModelCall(
        model="m",
        system=SystemPrompt(""),
        messages=({"role": "user", "content": "Well?"},),
        max_output_tokens=10,
        timeout_s=CALL_TIMEOUT_S,
    )
    model = create_model(Settings())
    assert isinstance(model, AnthropicModel)
    try:
        with ThreadPoolExecutor(calls) as slots:
            return len(
                list(slots.map(lambda _n: model.reply(call, lambda _progress: None), range(calls)))
            )
    finally:
        model.close()


def test_every_slot_gets_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_open_file_limit()
    with gathering_server(CALLS) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        assert replies_at_once(CALLS) == CALLS


def test_with_few_allowed_files_a_call_waits_for_a_connection_and_does_not_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with gathering_server(1) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        try:
            assert replies_at_once(400) == 400
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
