"""`web_search`: the provider's own search, run on its side of a model call."""

from __future__ import annotations

from handoff_queue.shared.agent.tool import Tool

MAX_USES = 5
"""Searches in one model call; each is paid."""
SERVER_TYPE = "web_search_20250305"
"""The plain form: no code execution needed. Newer ones (…_20260209, …_20260318) filter results
by running code, which is another price.
"""
_DESCRIPTION = (
    "Search the web. A result can be cited only after fetch_url has read the page. Runs on the model provider's side, so it needs a "
    "real model: it is not offered with the offline model."
)


def web_search_tool() -> Tool:
    """Return the declaration of the server-side tool, which has nothing to run here."""
    return Tool(
        name="web_search",
        description=_DESCRIPTION,
        input_schema={
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
            "additionalProperties": False,
        },
        run=None,
        server_param={"type": SERVER_TYPE, "name": "web_search", "max_uses": MAX_USES},
    )
