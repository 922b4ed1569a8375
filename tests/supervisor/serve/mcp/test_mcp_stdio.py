"""The server over stdin and stdout survives messages that no client should send."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn, cast

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.audit import Actor
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.serve.authentication import Access
from handoff_queue.supervisor.serve.mcp import stdio
from handoff_queue.supervisor.serve.mcp.server import AccessOf, Context
from handoff_queue.supervisor.serve.mcp.stdio import OpenCalls


def cancelled(request_id: Any) -> SessionMessage:
    params = {"requestId": request_id}
    return SessionMessage(
        JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)
    )


@pytest.mark.parametrize("request_id", [{}, [1], None, 1.5, "another", {"requestId": 1}])
def test_a_cancellation_without_a_call_ends_no_call(request_id: Any) -> None:
    async def run() -> None:
        calls = OpenCalls()
        calls.record_message(
            SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/list"))
        )

        calls.record_message(cancelled(request_id))

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(calls.wait_until_answered(), 0.01)
        calls.record_message(cancelled(1))
        await calls.wait_until_answered()

    asyncio.run(run())


def test_a_client_of_the_command_needs_no_token_when_the_server_has_tokens(
    jobs: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.store.api_tokens.create("a client over HTTP", AccessLevel.READ, None)
    given: list[Access] = []

    def end_at_once(get_access: AccessOf) -> NoReturn:
        given.append(get_access(cast("Context", None), AccessLevel.READ))
        raise KeyboardInterrupt

    monkeypatch.setattr(stdio, "make_server", end_at_once)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(
            stdio.serve_stdio(
                AsyncClient(jobs), settings, Actor(name="ada", via="mcp"), AccessLevel.READ, None
            )
        )

    asyncio.run(given[0].check_token())
