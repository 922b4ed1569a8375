"""A server over stdin and stdout: a process that gets only the named variables.

The transport of the package `mcp` reads lines of any length, and gives the process more
variables. So this module is a transport with limits. The worker drops stderr, which may hold
secrets.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from handoff_queue.shared.local.parent_death_guard import build_guarded_command
from handoff_queue.workers.tools.mcp.response_size_limit import (
    ByteAllowance,
    JsonStream,
    TooManyBytes,
)

GRACE_S = 0.5
"""Seconds that a process gets to end after its stdin was closed."""
_REAP_S = 2.0
"""Seconds that a killed server may take to end."""
_PIECE = 65_536
"""Most bytes of one read of the output."""

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def open_stdio_transport(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    allowance: ByteAllowance,
    end_event: asyncio.Event,
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Start a server, and yield the streams of its messages. Kill its group of processes at the
    end, also at the end of this worker.

    Args:
        environment: the only variables that the process gets.
        folder: the working directory of the process.
        end_event: set when the server sends no more.

    Raises:
        OSError: the command cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *build_guarded_command(list(command)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
    )
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    reading = asyncio.create_task(_read(process, received, allowance, end_event))
    writing = asyncio.create_task(_write(process, to_send))
    try:
        yield incoming, outgoing
    finally:
        for task in (reading, writing):
            task.cancel()
        await asyncio.gather(reading, writing, return_exceptions=True)
        for stream in (received, incoming, outgoing, to_send):
            stream.close()
        await _stop(process)


async def _read(
    process: asyncio.subprocess.Process,
    received: MemoryObjectSendStream[SessionMessage | Exception],
    allowance: ByteAllowance,
    end_event: asyncio.Event,
) -> None:
    """Pass on each line of stdout as a message, until the server ends or sends too much."""
    assert process.stdout is not None
    pieces: list[bytes] = []
    json_stream = JsonStream(allowance)
    try:
        with received:
            while piece := await process.stdout.read(_PIECE):
                json_stream.take(piece)
                *lines, rest = piece.split(b"\n")
                for line in lines:
                    await received.send(_parse_message(b"".join((*pieces, line))))
                    pieces.clear()
                pieces.append(rest)
    except (TooManyBytes, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        end_event.set()


def _parse_message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(
    process: asyncio.subprocess.Process, to_send: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    assert process.stdin is not None
    with suppress(OSError), to_send:
        async for message in to_send:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the process and its children."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), GRACE_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _REAP_S)
    process._transport.close()  # type: ignore[attr-defined]  # a grandchild may hold the pipes
