"""The process of the Claude Agent SDK's CLI, as a transport of the SDK.

The SDK's own transport passes on all variables of this process, so keys of the worker would be in
the environment of the CLI. This transport passes on none.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from claude_agent_sdk import Transport

from handoff_queue.shared.local.parent_death_guard import guarded_command

REAP_S = 5.0
"""Seconds in which a killed process ends."""
MAX_LINE_BYTES = 64 * 1024 * 1024
"""Bytes of the longest message of the CLI. It repeats texts of the conversation."""
_PIECE = 65_536


class CliEnded(Exception):
    """The CLI has ended before the handoff, or has sent a line without an end."""


class CliProcess(Transport):
    """Starts the CLI, and exchanges lines of JSON with it. It is killed at the end, and at the
    end of this worker.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Prepare the process.

        Args:
            environment: the only variables that the process gets.
        """
        self._command = list(command)
        self._environment = dict(environment)
        self._process: asyncio.subprocess.Process | None = None

    async def connect(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *guarded_command(self._command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._environment,
            cwd=Path("/"),
            start_new_session=True,
        )

    async def write(self, data: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(data.encode())
        await self._process.stdin.drain()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        assert self._process is not None
        assert self._process.stdout is not None
        pieces: list[bytes] = []
        while piece := await self._process.stdout.read(_PIECE):
            *lines, rest = piece.split(b"\n")
            for line in lines:
                text = b"".join((*pieces, line))
                pieces.clear()
                if text.startswith(b"{"):
                    yield json.loads(text)
            pieces.append(rest)
            if sum(map(len, pieces)) > MAX_LINE_BYTES:
                raise CliEnded("it sends a message without an end")
        raise CliEnded(f"it ended with status {await self._process.wait()}")

    async def close(self) -> None:
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), REAP_S)
        process._transport.close()  # type: ignore[attr-defined]  # a grandchild may hold the pipes

    def is_ready(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def end_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
