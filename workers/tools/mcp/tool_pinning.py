"""The pinning of MCP tools: a tool is called only if its definition is the one that a person has
accepted.
"""

from __future__ import annotations

from typing import Any

from mcp import Client
from mcp_types import PaginatedRequestParams, Tool

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.specialists.mcp_servers import AcceptedServer, Listing

MAX_PAGES = 50
"""Most pages of a server's list of tools."""
_FIELDS = {"name", "title", "description", "input_schema", "output_schema", "annotations"}
"""The fields of a tool that a person accepts."""


def check_pinned(server: AcceptedServer, listing: Listing, tool: str) -> None:
    """Check that the server lists the tool as a person has accepted it.

    Args:
        listing: the tools that the server lists now.

    Raises:
        ToolFailed: the tool has changed, or is gone.
    """
    name = f"{server.name}: {tool}"
    if tool not in listing:
        raise ToolFailed(f"{name} is not called: the server does not list it any more")
    if listing[tool] != server.listing[tool]:
        raise ToolFailed(
            f"{name} is not called: the server has changed its description or its schema, and no"
            " person has accepted the change (`handoff specialists --accept-mcp`)"
        )


async def fetch_listing(client: Client) -> Listing:
    """Return all tools of a server, in the form that a person accepts."""
    listing: dict[str, dict[str, Any]] = {}
    cursor = None
    for _ in range(MAX_PAGES):
        page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        for tool in page.tools:
            listing[tool.name] = _build_entry(tool)
        cursor = page.next_cursor
        if cursor is None:
            return listing
    raise OSError(f"its list of tools has more than {MAX_PAGES} pages")


def _build_entry(tool: Tool) -> dict[str, Any]:
    """Return the fields of a tool that a person accepts."""
    return tool.model_dump(by_alias=True, mode="json", exclude_none=True, include=_FIELDS)
