"""The user's tools as a worker offers them: with a check of their secrets, in the processes of a
tool host. The worker never runs the code of a user.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handoff_queue.shared.agent.tool import (
    Tool,
    ToolContext,
    ToolFailed,
    ToolOutput,
    build_call_context,
)
from handoff_queue.shared.agent.tool_policy import PolicyRules
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.specialists.policy_file import read_rules
from handoff_queue.shared.types.errors import InvalidTool
from handoff_queue.workers.tools.network_proxy import CallNetwork, Network
from handoff_queue.workers.tools.tenant_credentials import (
    Provider,
    get_credentials,
    load_provider,
    without_values,
)
from handoff_queue.workers.tools.tool_call_process import run_in_process
from handoff_queue.workers.tools.tool_host import ToolHost, build_tool_limits, clean_output
from handoff_queue.workers.tools.tool_host_protocol import (
    CallRequest,
    NetworkAccess,
    ToolDefinition,
    ToolLimits,
)
from handoff_queue.workers.tools.user_tools import read_entry_points

_DEFAULT_RULES = PolicyRules()
_PUBLIC = Network()


@dataclass(frozen=True, slots=True)
class HostedTools:
    """The user's tools of a worker."""

    sources: tuple[tuple[str, tuple[Tool, ...]], ...] = ()
    """Each folder of tools, or "an installed package", with its tools."""
    close: Callable[[], None] = lambda: None
    """Ends the tool host and all calls."""


def start_user_tools(settings: Settings) -> HostedTools:
    """Start a tool host, and return its tools. Without files of tools there is no host.

    Raises:
        InvalidTool: a tool cannot be loaded.
    """
    if not settings.tools_dirs and not read_entry_points():
        return HostedTools()
    return host_tools(
        settings.tools_dirs,
        build_tool_limits(settings),
        load_provider(settings),
        read_rules(settings.policy_file),
    )


def host_tools(
    folders: tuple[Path, ...],
    limits: ToolLimits,
    provider: Provider | None = None,
    rules: PolicyRules = _DEFAULT_RULES,
    network: Network = _PUBLIC,
) -> HostedTools:
    """Start a host for these folders and the installed packages, and return its tools.

    Args:
        provider: returns the credentials of tenants.
        rules: the operator's policy.
        network: the access to the hosts of tools with a limited network.

    Raises:
        InvalidTool: a tool cannot be loaded, or its network cannot be limited.
    """
    host = ToolHost(folders, limits, may_limit_networks=bool(rules.networks))
    sources: list[tuple[str, tuple[Tool, ...]]] = []
    try:
        loaded = host.wait_for_tools()
        for source in loaded.sources:
            tools: list[Tool] = []
            for definition in source.tools:
                reached = CallNetwork(_get_host_lists(definition, rules), network)
                if loaded.border_fault and reached.access is not NetworkAccess.ALL:
                    raise InvalidTool(
                        _build_unlimited_network_error(definition.name, loaded.border_fault)
                    )
                tools.append(_build_tool(host, limits, definition, provider, reached))
            sources.append((source.place, tuple(tools)))
    except BaseException:
        host.close()
        raise
    if not any(tools for _, tools in sources):
        host.close()
    return HostedTools(tuple(sources), host.close)


def _get_host_lists(definition: ToolDefinition, rules: PolicyRules) -> tuple[tuple[str, ...], ...]:
    """Return the lists of hosts of a tool: its own list, and the list of the operator. Each must
    allow a host.
    """
    lists = (definition.network, rules.get_hosts(definition.name))
    return tuple(hosts for hosts in lists if hosts is not None)


def _build_unlimited_network_error(name: str, fault: str) -> str:
    why = clean_output(fault.encode())
    return (
        f"tool {name}: its network is limited, but this machine cannot limit it ({why}):"
        " allow user namespaces and use Linux 5.19 or newer, or remove the limit"
    )


def _build_tool(
    host: ToolHost,
    limits: ToolLimits,
    definition: ToolDefinition,
    provider: Provider | None,
    network: CallNetwork,
) -> Tool:
    """Return a tool that checks its secrets and runs in the host. The values of the secrets and of
    the credentials are removed from its text and from its errors.
    """

    def run(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        secrets = read_variables(definition.name, definition.secrets)
        if definition.credentials:
            secrets |= get_credentials(
                provider, definition.name, context.tenant(), definition.credentials
            )
        call_context = None
        if definition.reads_context:  # it costs a read from the store
            call_context = build_call_context(definition.name, arguments, context)
        request = CallRequest(arguments=arguments, context=call_context, secrets=secrets)
        try:
            output = run_in_process(
                host, limits, definition.name, request, context.is_abandoned, network
            )
        except ToolFailed as error:
            raise ToolFailed(without_values(str(error), secrets)) from None
        return ToolOutput(without_values(output.text, secrets), output.images)

    return Tool(
        name=definition.name,
        description=definition.description,
        input_schema=definition.input_schema,
        run=run,
        repeatable=definition.repeatable,
        is_source=True,
        timeout_s=definition.timeout_s,
        ends_when_abandoned=True,
        reads=definition.reads,
        acts=definition.acts,
        sends=definition.sends,
    )


def read_variables(subject: str, names: Iterable[str]) -> dict[str, str]:
    """Return the values of variables of the worker's environment by name.

    Args:
        subject: the tool or the server that needs them.

    Raises:
        ToolFailed: a variable is not set, or is empty.
    """
    values = {name: os.environ.get(name, "") for name in names}
    missing = [name for name, value in values.items() if not value]
    if missing:
        raise ToolFailed(
            f"{subject} is not set up: the worker's environment lacks {', '.join(missing)}"
        )
    return values


def without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """Return the text with the name of each variable of the environment in place of its value."""
    return without_values(text, {name: os.environ.get(name, "") for name in secrets})
