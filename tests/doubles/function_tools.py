"""Functions as tools that run in this process, and hosts of tools in files."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from handoff_queue.shared.agent.function_tools import build_function_tool
from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolOutput, build_call_context
from handoff_queue.shared.agent.tool_policy import PolicyRules
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.workers.tools.hosted_tools import host_tools
from handoff_queue.workers.tools.network_proxy import Network
from handoff_queue.workers.tools.tenant_credentials import Provider
from handoff_queue.workers.tools.tool_host import build_tool_limits
from handoff_queue.workers.tools.tool_host_protocol import ToolLimits


def tool_from(
    function: Callable[..., Any], *, name: str | None = None, repeatable: bool | None = None
) -> Tool:
    """Return a function as a tool that runs in this process."""
    tool = build_function_tool(function, name=name, repeatable=repeatable)

    def run(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        call_context = None
        if tool.reads_context:
            call_context = build_call_context(tool.name, arguments, context)
        return tool.call(arguments, call_context)

    return Tool(tool.name, tool.description, tool.input_schema, run, repeatable=tool.repeatable)


def write_tools(folder: Path, files: dict[str, str]) -> Path:
    """Write files of tools into a folder, and return the folder."""
    for name, text in files.items():
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


@contextmanager
def hosted(
    folder: Path,
    limits: ToolLimits | None = None,
    provider: Provider | None = None,
    rules: PolicyRules | None = None,
    network: Network | None = None,
) -> Iterator[dict[str, Tool]]:
    """Start a tool host for a folder of tools, and yield its tools by name.

    Args:
        limits: limits of the tools. None: the defaults of the settings.
        provider: returns the credentials of tenants.
        rules: the operator's policy. None: the default.
        network: access to hosts. None: public hosts.
    """
    hosted_tools = host_tools(
        (folder,),
        limits or build_tool_limits(Settings(offline=True)),
        provider,
        rules or PolicyRules(),
        network or Network(),
    )
    try:
        tools: dict[str, Tool] = {}
        for _, source in hosted_tools.sources:
            tools |= {tool.name: tool for tool in source}
        yield tools
    finally:
        hosted_tools.close()
