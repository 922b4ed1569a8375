"""One run of the Claude Agent SDK's CLI: its process, its folder, and the thread in which the
SDK talks to it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from claude_agent_sdk import ClaudeAgentOptions, SdkMcpTool, Transport, create_sdk_mcp_server, query
from mcp.types import ToolAnnotations

from handoff_queue.shared.local.parent_death_guard import build_guarded_command
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.settings.agent_sdk_cli import find_cli_path
from handoff_queue.shared.types.model import Block, ModelCall
from handoff_queue.workers.agent_sdk.conversation import (
    PREFIX,
    SERVER,
    RecordedTurn,
    get_result_text,
    get_system_text,
)
from handoff_queue.workers.agent_sdk.messages_api import CliRequest, Gateway, iterate_events

END_S = 10.0
"""Seconds in which the thread of a run ends."""
NOT_RUN = "no result is recorded for this call"
_VARIABLES = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "CLAUDE_CODE_SKIP_MCP_DEBUG_LOG_FILES": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_COMPACT": "1",
    "DISABLE_TELEMETRY": "1",
    "ENABLE_TOOL_SEARCH": "false",
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
}
"""Variables of the CLI. They turn off its further calls, its updates and its compaction. The worker
clears old results and compacts the conversation.
"""
REAP_S = 5.0
"""Seconds in which a killed process ends."""
MAX_LINE_BYTES = 64 * 1024 * 1024
"""Bytes of the longest message of the CLI. It repeats texts of the conversation."""
_PIECE = 65_536
"""Most bytes of one read of the output."""
_log = get_log(__name__)


class CliEnded(Exception):
    """The CLI has ended before the handoff, or has sent a line without an end."""


class CliProcess(Transport):
    """Starts the CLI, and exchanges lines of JSON with it. It is killed at the end, and at the
    end of this worker.

    The SDK's own transport passes on all variables of this process, so keys of the worker would be
    in the environment of the CLI. This transport passes on none.
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
            *build_guarded_command(self._command),
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


class Session:
    """A run of the CLI for one handoff. It begins with the opening message."""

    def __init__(self, call: ModelCall) -> None:
        """Start the CLI.

        Args:
            call: the next call of the handoff.
        """
        self.served = 0
        """Replies that the CLI has got."""
        self.failure: str | None = None
        """Reason for the end of the CLI. None: it runs."""
        self._folder = Path(tempfile.mkdtemp(prefix="handoff-agent-sdk-"))
        self._prompt_file = self._folder / "system-prompt.md"
        system = call.system.text.strip()
        self._gateway = Gateway(lambda body: system in get_system_text(body))
        self._request: CliRequest | None = None
        self._results: dict[str, list[Block]] = {}
        self._loop = asyncio.new_event_loop()
        self._prompts: asyncio.Queue[str | list[Block]] = asyncio.Queue()
        self._prompts.put_nowait(_select_texts(call.messages[0]["content"]))
        self._talking: asyncio.Task[None] | None = None
        options, process = self._prepare_options_and_process(call)
        self._thread = threading.Thread(
            target=self._talk, args=(options, process), name="agent-sdk", daemon=True
        )
        self._thread.start()

    def next_request(self, wait_s: float) -> CliRequest | None:
        """Return the request that waits for an answer, or None if there is none after these
        seconds.
        """
        if self._request is None:
            self._request = self._gateway.next_request(wait_s)
            if self._request is not None:  # a killed worker leaves no prompt on the disk
                self._prompt_file.unlink(missing_ok=True)
        return self._request

    def serve(self, request: CliRequest, turn: RecordedTurn, model: str) -> None:
        """Answer a request with a recorded reply. The CLI then calls the tools of the reply,
        and gets the recorded results.
        """
        calls = {block["id"]: block for block in turn.content if block["type"] == "tool_use"}
        self._results = {}
        for result in turn.results:
            call = calls.get(result["tool_use_id"])
            if call is not None:
                key = _build_key(call["name"], call["input"])
                self._results.setdefault(key, []).append(result)
        if not turn.has_calls:
            with suppress(RuntimeError):  # the CLI has ended
                self._loop.call_soon_threadsafe(self._prompts.put_nowait, turn.prompt)
        self._request = None
        self.served += 1
        message_id = f"msg_{uuid4().hex}"
        request.send_answer(list(iterate_events(message_id, model, turn.content)))

    def close(self) -> None:
        """Kill the CLI, and remove its folder."""
        with suppress(RuntimeError):  # the thread has ended
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(END_S)
        self._gateway.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _prepare_options_and_process(
        self, call: ModelCall
    ) -> tuple[ClaudeAgentOptions, CliProcess]:
        """Return the options of the SDK and the process. No secret is an argument."""
        tools: list[SdkMcpTool[Any]] = []
        for definition in call.tools:
            if "input_schema" in definition:
                tools.append(self._build_tool(definition))
        server = create_sdk_mcp_server(SERVER, tools=tools)
        options = ClaudeAgentOptions(
            mcp_servers={SERVER: server}, skills=[], setting_sources=[], verbatim_prompts=True
        )
        self._prompt_file.write_text(call.system.text)
        home = self._folder / "home"
        home.mkdir()
        command = [
            str(find_cli_path()),
            *("--output-format", "stream-json", "--input-format", "stream-json", "--verbose"),
            *("--system-prompt-file", str(self._prompt_file)),
            *("--tools", ""),
            *("--allowedTools", ",".join(f"{PREFIX}{tool.name}" for tool in tools)),
            *("--permission-mode", "dontAsk"),
            *("--mcp-config", json.dumps({"mcpServers": {SERVER: _without_instance(server)}})),
            "--strict-mcp-config",
            "--setting-sources=",
            "--no-session-persistence",
            "--disable-slash-commands",
            f"--model={call.model}",
        ]
        variables = {
            **_VARIABLES,
            "ANTHROPIC_API_KEY": self._gateway.token,
            "ANTHROPIC_BASE_URL": self._gateway.url,
            "CLAUDE_CONFIG_DIR": str(home),
            "HOME": str(home),
            "TMPDIR": str(home),
        }
        return options, CliProcess(command, variables)

    def _build_tool(self, definition: Mapping[str, Any]) -> SdkMcpTool[Any]:
        """Return a tool of the MCP server. The tool runs nothing: it returns the result that the
        worker has stored for the same name and arguments.
        """
        name = str(definition["name"])

        async def wait_for_result(arguments: dict[str, Any]) -> dict[str, Any]:
            waiting = self._results.get(_build_key(f"{PREFIX}{name}", arguments))
            if not waiting:
                return {"content": [{"type": "text", "text": NOT_RUN}], "is_error": True}
            result = waiting.pop(0)
            return {
                "content": [{"type": "text", "text": get_result_text(result)}],
                "is_error": bool(result.get("is_error")),
            }

        schema = {"properties": {}, **definition["input_schema"]}
        description = str(definition.get("description", ""))
        return SdkMcpTool(
            name,
            description,
            schema,
            wait_for_result,
            annotations=ToolAnnotations(read_only_hint=True),
        )

    def _talk(self, options: ClaudeAgentOptions, process: CliProcess) -> None:
        """Exchange messages with the CLI until it ends. This is the thread of the run."""
        asyncio.set_event_loop(self._loop)
        try:
            self._talking = self._loop.create_task(self._converse(options, process))
            self._loop.run_until_complete(self._talking)
            self.failure = "it ended"
        except asyncio.CancelledError:
            self.failure = "it was stopped"
        except Exception as error:  # noqa: BLE001 - the SDK raises errors of many types
            self.failure = type(error).__name__
            _log.warning("the CLI of the Claude Agent SDK has failed", error=self.failure)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _converse(self, options: ClaudeAgentOptions, process: CliProcess) -> None:
        """Give the prompts to the CLI. The messages that it reports are not needed: the
        worker has recorded each reply before.
        """
        try:
            async for _message in query(
                prompt=self._stream_prompts(), options=options, transport=process
            ):
                pass
        finally:
            await process.close()

    async def _stream_prompts(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            content = await self._prompts.get()
            message = {"role": "user", "content": content}
            yield {"type": "user", "message": message, "parent_tool_use_id": None}

    def _cancel(self) -> None:
        if self._talking is not None:
            self._talking.cancel()


def _build_key(name: str, arguments: Any) -> str:
    """Return the key of a call. The SDK does not tell the id of a call."""
    return json.dumps([name, arguments], sort_keys=True)


def _select_texts(content: str | Sequence[Block]) -> str | list[Block]:
    """Return the opening message for the CLI. It needs no images."""
    if isinstance(content, str):
        return content
    return [{"type": "text", "text": str(block["text"])} for block in content if "text" in block]


def _without_instance(server: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": server["type"], "name": server["name"]}
