"""Registry of the tools of a worker by name: built-in tools, tools of installed packages, and
tools of the user's folders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from handoff_queue.shared.agent.opening_message import READ_RESULT
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.specialists.mcp_servers import AcceptedServer
from handoff_queue.shared.specialists.specialist_files import TOOL_OF_SANDBOX
from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.errors import InvalidTool
from handoff_queue.shared.types.origins import CODE_EXECUTION
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.workers.index.index import DocumentIndex
from handoff_queue.workers.tools.code_execution import build_code_execution_tool
from handoff_queue.workers.tools.current_time import now_tool
from handoff_queue.workers.tools.fetch_url import fetch_url_tool
from handoff_queue.workers.tools.hosted_tools import start_user_tools
from handoff_queue.workers.tools.mcp.tools import make_mcp_tools
from handoff_queue.workers.tools.memory import build_memory_tool
from handoff_queue.workers.tools.read_document import read_document_tool
from handoff_queue.workers.tools.run_code import build_run_code_tool
from handoff_queue.workers.tools.search_documents import build_search_documents_tool
from handoff_queue.workers.tools.tool_host_protocol import INSTALLED
from handoff_queue.workers.tools.web_search import build_web_search_tool

BUILT_IN = ("fetch_url", "memory", "now", "read_document", "search_documents", "web_search")
"""Tools that a specialist's file may name."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The tools of a worker. `workers.assembly` builds one registry for each process."""

    tools: Mapping[str, Tool]
    not_offered: Mapping[str, str]
    """Reason by name of each tool that this worker cannot offer. A specialist may name such a
    tool, and runs without it.
    """
    own_tools: tuple[str, ...] = ()
    """Names of the tools in the user's folders of tools."""
    close: Callable[[], None] = lambda: None
    """Ends the connections to MCP servers, and the processes of the user's tools."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of tools that a specialist's file may use."""
        return tuple(sorted({*self.tools, *self.not_offered} - {*TOOL_OF_SANDBOX.values()}))

    @property
    def effects(self) -> tuple[str, ...]:
        """Names of the tools that are not safe to repeat."""
        names: list[str] = []
        for tool in self.tools.values():
            if not tool.repeatable:
                names.append(tool.name)
        return tuple(sorted(names))

    def without_use(self, specs: Iterable[SpecialistSpec]) -> str | None:
        """Return a line about the tools in the user's folders that no specialist names, or None."""
        named_tools: set[str] = set()
        for spec in specs:
            named_tools.update(spec.tools)
        unused_tools = sorted({*self.own_tools} - named_tools)
        if not unused_tools:
            return None
        names = ", ".join(unused_tools)
        return (
            f"no specialist can call {names}: write `tools: [{names}]` into the file of a"
            " specialist (--specialists DIR)"
        )

    def get_tools(self, names: Iterable[str]) -> tuple[Tool, ...]:
        """Return the tools that a specialist names, in the same order. Tools of `not_offered`
        are left out.

        Raises:
            InvalidTool: there is no such tool.
        """
        chosen_tools: dict[str, Tool] = {}
        for name in names:
            if name in self.tools:
                chosen_tools[name] = self.tools[name]
            elif name not in self.not_offered:
                raise InvalidTool(self._describe_unknown_tool(name))
        return tuple(chosen_tools.values())

    def _describe_unknown_tool(self, name: str) -> str:
        hint = suggest_name(name, self.names, otherwise="add the folder of its file (--tools DIR)")
        return f"unknown tool {name[:64]!r}: {hint}"


def build_registry(
    settings: Settings, index: DocumentIndex, servers: Sequence[AcceptedServer] = ()
) -> Registry:
    """Return the registry of a worker with these settings.

    Args:
        servers: the MCP servers of its specialists.

    Raises:
        InvalidTool: a user's tool is invalid, or has the name of another tool.
    """
    built_in = (
        fetch_url_tool(),
        build_memory_tool(),
        now_tool(),
        read_document_tool(),
        build_run_code_tool(),
        build_code_execution_tool(),
        build_search_documents_tool(index),
        build_web_search_tool(),
    )
    tools = {tool.name: tool for tool in built_in}
    hosted = start_user_tools(settings)
    own_tools: list[str] = []
    for where, user_tools in hosted.sources:
        for tool in user_tools:
            if where != INSTALLED:
                own_tools.append(tool.name)
            if tool.name in tools or tool.name == READ_RESULT:
                hosted.close()
                raise InvalidTool(_describe_taken_name(where, tool.name))
            tools[tool.name] = tool
    not_offered: dict[str, str] = {}
    if settings.is_offline:
        del tools["web_search"]
        not_offered["web_search"] = "the offline model has no web search: set ANTHROPIC_API_KEY"
        del tools[CODE_EXECUTION]
        not_offered[CODE_EXECUTION] = "the offline model runs no code: set ANTHROPIC_API_KEY"
    from_servers = make_mcp_tools(servers)
    taken_names = sorted(tools.keys() & from_servers.tools.keys())
    if taken_names:
        hosted.close()
        raise InvalidTool(
            f"{taken_names[0]}: a tool and a tool of an MCP server have this name: rename one"
        )

    def close() -> None:
        hosted.close()
        from_servers.close()

    return Registry(
        tools | dict(from_servers.tools),
        not_offered | dict(from_servers.not_offered),
        tuple(own_tools),
        close,
    )


def _describe_taken_name(where: str, name: str) -> str:
    """Return the error of a user's tool whose name is taken."""
    problem = "is taken by another of your tools"
    if name in (*BUILT_IN, *TOOL_OF_SANDBOX.values(), READ_RESULT):
        problem = "is the name of a built-in tool"
    return f"{where}: tool {name}: {problem}: rename it"
