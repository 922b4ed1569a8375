"""The tools of MCP servers as tools of the agent. Their results are untrusted text."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from handoff_queue.shared.agent.json_schema_validation import BrokenSchema, find_problem
from handoff_queue.shared.agent.tool import (
    ANY_HOST,
    Image,
    Tool,
    ToolContext,
    ToolFailed,
    ToolOutput,
)
from handoff_queue.shared.agent.tool_return_values import MAX_IMAGES_A_RESULT, parse_image
from handoff_queue.shared.settings.optional_packages import describe_missing_package
from handoff_queue.shared.specialists.mcp_servers import AcceptedServer
from handoff_queue.shared.types.origins import build_mcp_origin
from handoff_queue.workers.tools.hosted_tools import without_secrets

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from handoff_queue.workers.tools.mcp.connections import McpConnections

_AFTER_TIMEOUT_S = 10.0
"""Seconds that the worker waits for the result of a call whose own time is over."""


@dataclass(frozen=True, slots=True)
class McpTools:
    """The tools of all MCP servers of a worker."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    not_offered: Mapping[str, str] = field(default_factory=dict)
    """Reason by name of each tool that this worker cannot offer."""
    close: Callable[[], None] = lambda: None
    """Ends the connections."""


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of a tool, for the policy of tools."""

    is_repeatable: bool
    acts: bool
    sends: bool


def derive_effects(hints: Mapping[str, Any]) -> Effects:
    """Return the effects of a tool with these accepted hints.

    A missing hint has the default of MCP, which is the worst case. Of two hints that contradict
    each other, the worse one counts.

    Args:
        hints: the `annotations` of the tool.
    """
    is_destructive = hints.get("destructiveHint")
    is_read_only = hints.get("readOnlyHint") is True and is_destructive is not True
    return Effects(
        is_repeatable=is_read_only or hints.get("idempotentHint") is True,
        acts=not is_read_only and is_destructive is not False,
        sends=hints.get("openWorldHint") is not False,
    )


def make_mcp_tools(servers: Iterable[AcceptedServer]) -> McpTools:
    """Return the tools of MCP servers. No connection is opened before the first call."""
    servers = list(servers)
    if not servers:
        return McpTools()
    if find_spec("mcp") is None:
        why = describe_missing_package("mcp", "a tool of an MCP server", "mcp")
        not_offered: dict[str, str] = {}
        for server in servers:
            not_offered |= dict.fromkeys(server.tools, why)
        return McpTools(not_offered=not_offered)
    connections = _LazyConnections()
    tools: dict[str, Tool] = {}
    for server in servers:
        for name, own_name in server.tools.items():
            tools[name] = _build_tool(connections, server, name, own_name)
    return McpTools(tools, close=connections.close)


class _LazyConnections:
    """The connections, whose package takes a second to import, from the first call on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: McpConnections | None = None

    def call(self, server: AcceptedServer, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        with self._lock:
            if self._connections is None:
                from handoff_queue.workers.tools.mcp.connections import McpConnections

                self._connections = McpConnections()
            connections = self._connections
        return connections.call(server, tool, arguments)

    def close(self) -> None:
        with self._lock:
            if self._connections is not None:
                self._connections.close()


def _build_tool(
    connections: _LazyConnections, server: AcceptedServer, name: str, own_name: str
) -> Tool:
    """Return a tool of a server, as a person has accepted it."""
    definition = server.listing[own_name]
    effects = derive_effects(definition.get("annotations", {}))
    secrets = server.config.variables

    def run(arguments: dict[str, Any], _: ToolContext) -> ToolOutput:
        try:
            result = connections.call(server, own_name, arguments)
            output = _convert_output(name, result, definition.get("outputSchema"))
        except ToolFailed as error:
            raise ToolFailed(without_secrets(str(error), secrets)) from None
        return ToolOutput(without_secrets(output.text, secrets), output.images)

    return Tool(
        name=name,
        description=str(definition.get("description") or definition.get("title") or own_name),
        input_schema=definition["inputSchema"],
        run=run,
        repeatable=effects.is_repeatable,
        is_source=True,
        timeout_s=server.config.timeout_s + _AFTER_TIMEOUT_S,
        acts=effects.acts,
        sends=(ANY_HOST,) if effects.sends else (),
        origins=(build_mcp_origin(server.name),),
    )


def _convert_output(
    name: str, result: CallToolResult, schema: Mapping[str, Any] | None
) -> ToolOutput:
    """Return the text and the images of a result.

    Raises:
        ToolFailed: the server says that the call failed, or the result does not match its schema.
    """
    texts: list[str] = []
    images: list[Image] = []
    for content in result.content:
        match content.type:
            case "text":
                texts.append(content.text)
            case "image":
                texts.append(_add_image(content.data, images))
            case "resource_link":
                texts.append(f"[a resource: {content.uri}]")
            case "resource" if (text := getattr(content.resource, "text", None)) is not None:
                texts.append(text)
            case _:
                texts.append(f"[{content.type}: left out]")
    text = "\n".join(texts)
    if result.is_error:
        raise ToolFailed(f"{name}: {text}" if text else f"{name} failed")
    if schema is not None:
        _check_structure(name, result.structured_content, schema)
    if result.structured_content is not None and not texts:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    return ToolOutput(text, tuple(images))


def _add_image(data: str, images: list[Image]) -> str:
    """Add an image to a list, and return the label that stands for it in the text.

    Raises:
        ToolFailed: the image is broken or too large.
    """
    if len(images) == MAX_IMAGES_A_RESULT:
        return "[an image: left out]"
    try:
        decoded = b64decode(data, validate=True)
    except ValueError:  # no base64, or no ASCII
        decoded = b""
    image = parse_image(decoded)
    if image is None:
        return "[an image of an unknown kind: left out]"
    images.append(image)
    return f"[image {len(images)}]"


def _check_structure(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    try:
        problem = find_problem(value, schema)
    except BrokenSchema as error:
        problem = str(error)
    if problem:
        raise ToolFailed(f"{name}: the result does not match its schema: {problem}")
