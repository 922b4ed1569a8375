"""`web_search`: the web search of the provider, which runs within a model call on its servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from handoff_queue.shared.agent.tool import ANY_HOST, Tool

WEB_SEARCH = "web_search"
MAX_USES = 5
"""Most searches in one model call. Each search costs money."""
SERVER_TYPE = "web_search_20250305"
"""Version of the tool without code execution. Newer versions (…_20260209, …_20260318) filter
results by running code, which has its own price.
"""
_DESCRIPTION = (
    "Search the web. A result can be cited only after fetch_url has read the page. Runs on the"
    " model provider's side, so it needs a real model: it is not offered with the offline model."
)


def build_web_search_tool() -> Tool:
    """Return the declaration of the server-side tool. Workers run no code for it."""
    return Tool(
        name=WEB_SEARCH,
        description=_DESCRIPTION,
        input_schema={
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
            "additionalProperties": False,
        },
        run=None,
        server_param={"type": SERVER_TYPE, "name": WEB_SEARCH, "max_uses": MAX_USES},
        reads="public",
        sends=(ANY_HOST,),
    )


def limit_search_to_hosts(tool: Tool, hosts: Sequence[str]) -> Tool:
    """Return the tool with results from these hosts only. The provider includes the subdomains of
    each host.
    """
    allowed_hosts = sorted({host.removeprefix("*.") for host in hosts})
    return replace(
        tool, server_param={**(tool.server_param or {}), "allowed_domains": allowed_hosts}
    )
