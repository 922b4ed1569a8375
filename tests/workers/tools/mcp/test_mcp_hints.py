"""The hints of an MCP server lower no check, unless a person has accepted them. A missing hint
counts as the worst case, as MCP defines it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.agent.seen_texts import Seen
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_policy import CallVerdict, ToolPolicy
from handoff_queue.shared.specialists.mcp_servers import (
    AcceptedServer,
    McpServer,
    compute_listing_digest,
    get_listing_file,
    read_accepted_servers,
)
from handoff_queue.workers.tools.mcp.tools import make_mcp_tools

READS = {"readOnlyHint": True}
WRITES = {"readOnlyHint": False}
DESTROYS = {"destructiveHint": True}
ADDS = {"destructiveHint": False}
OPEN = {"openWorldHint": True}
CLOSED = {"openWorldHint": False}
HINTS: dict[str, tuple[dict[str, Any], tuple[bool, bool, bool]]] = {
    "none": ({}, (False, True, True)),
    "it reads": (READS, (True, False, True)),
    "it reads the open world": (READS | OPEN, (True, False, True)),
    "it reads a closed world": (READS | CLOSED, (True, False, False)),
    "it writes": (WRITES, (False, True, True)),
    "it writes in a closed world": (WRITES | CLOSED, (False, True, False)),
    "it adds": (ADDS, (False, False, True)),
    "it adds in a closed world": (ADDS | CLOSED, (False, False, False)),
    "a closed world": (CLOSED, (False, True, False)),
    "a text in place of a closed world": ({"openWorldHint": "false"}, (False, True, True)),
    "it destroys": (DESTROYS, (False, True, True)),
    "it is idempotent": ({"idempotentHint": True}, (True, True, True)),
    "it reads and destroys": (READS | DESTROYS, (False, True, True)),
    "it reads and destroys in a closed world": (READS | DESTROYS | CLOSED, (False, True, False)),
    "a text in place of true": ({"readOnlyHint": "true"}, (False, True, True)),
    "a number in place of true": ({"readOnlyHint": 1}, (False, True, True)),
    "an unknown hint": ({"safeHint": True}, (False, True, True)),
}
"""Hints -> whether the tool is repeatable, acts, and sends data out."""


def server_with(hints: dict[str, Any]) -> AcceptedServer:
    entry = {"name": "act", "inputSchema": {"type": "object"}, "annotations": hints}
    config = McpServer(command=("never-started",), tools=("act",))
    return AcceptedServer("desk", config, {"act": entry}, Path("clerk.md"))


def tool_with(hints: dict[str, Any]) -> Tool:
    return make_mcp_tools([server_with(hints)]).tools["desk__act"]


@pytest.mark.parametrize("kind", HINTS)
def test_hints_decide_the_effects_of_a_tool(kind: str) -> None:
    hints, expected = HINTS[kind]
    tool = tool_with(hints)

    assert (tool.repeatable, tool.acts, bool(tool.sends)) == expected


@pytest.mark.parametrize(
    ("hints", "verdict"),
    [
        ({}, CallVerdict.ASK),
        (READS | DESTROYS, CallVerdict.ASK),
        (READS, CallVerdict.ASK),
        (READS | CLOSED, CallVerdict.ALLOW),
    ],
)
def test_a_tool_without_hints_asks_a_person_after_its_first_result(
    hints: dict[str, Any], verdict: CallVerdict
) -> None:
    tool = tool_with(hints)
    decide = ToolPolicy().decide

    assert decide(tool, {}, Seen()).verdict is CallVerdict.ALLOW
    assert decide(tool, {}, Seen(tool.origins or ())).verdict is verdict


def test_a_hint_that_no_person_has_accepted_makes_no_tool(tmp_path: Path) -> None:
    file = tmp_path / "clerk.md"
    accepted = server_with({})
    config = accepted.config.model_copy(update={"digest": compute_listing_digest(accepted.listing)})
    get_listing_file(file).write_text(json.dumps({"desk": accepted.listing}))
    assert read_accepted_servers(file, {"desk": config})[0]

    get_listing_file(file).write_text(json.dumps({"desk": server_with(READS).listing}))
    servers, (fault,) = read_accepted_servers(file, {"desk": config})

    assert not servers
    assert "no person has accepted these tools" in fault
