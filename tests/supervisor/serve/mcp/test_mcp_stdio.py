"""The server over stdin and stdout survives messages that no client should send."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

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
