"""As many calls at once as a process has slots."""

from __future__ import annotations

import asyncio
import json
import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from shared.agent.anthropic_clients import model_from
from shared.agent.anthropic_model import AnthropicModel
from shared.agent.model import ModelCall
from shared.config import Settings
from shared.process import allow_files

pytestmark = pytest.mark.slow

CALLS = 1_010
"""More than the 1,000 connections that the SDK's client opens by itself."""
MESSAGE = {
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Here."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


@contextmanager
def a_server_that_answers_when_so_many_have_asked(enough: int) -> Iterator[str]:
    """Its URL."""
    asked, all_have = 0, asyncio.Event()
    body = json.dumps(MESSAGE).encode()
    answer = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
        % (len(body), body)
    )

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        if asked == enough:
            all_have.set()
        await all_have.wait()
        writer.write(answer)
        await writer.drain()
        writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(talk, "127.0.0.1", 0, backlog=4096))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def replies_at_once(calls: int) -> int:
    """How many come."""
    call = ModelCall(
        model="m",
        system="",
        messages=({"role": "user", "content": "Well?"},),
        max_output_tokens=10,
        timeout_s=60,
    )
    model = model_from(Settings())
    assert isinstance(model, AnthropicModel)
    try:
        with ThreadPoolExecutor(calls) as slots:
            return len(
                list(slots.map(lambda _n: model.reply(call, lambda _pulse: None), range(calls)))
            )
    finally:
        model.close()


def test_no_slot_waits_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_files()
    with a_server_that_answers_when_so_many_have_asked(CALLS) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        assert replies_at_once(CALLS) == CALLS


def test_where_the_system_allows_few_files_a_call_waits_for_a_connection_and_does_not_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with a_server_that_answers_when_so_many_have_asked(1) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        try:
            assert replies_at_once(400) == 400
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
