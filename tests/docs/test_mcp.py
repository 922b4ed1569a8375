"""The programs of the page about tools of MCP servers run, and the tables about MCP are complete.

`tests/e2e/test_docs_pages.py` types the commands of the page about the MCP server.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from handoff_queue.shared.specialists import load_servers, read_specialist
from handoff_queue.shared.specialists.mcp_servers import McpServer
from handoff_queue.shared.types.errors import InvalidSpecialist
from handoff_queue.supervisor.cli.mcp_acceptance import accept_mcp
from handoff_queue.supervisor.serve.mcp.tools import TOOLS
from handoff_queue.workers.tools.mcp.response_size_limit import MAX_BYTES
from handoff_queue.workers.tools.mcp.tools import make_mcp_tools
from tests.docs.pages import blocks, text_of
from tests.workers.tools.contexts import ToolHarness

PAGE = text_of("how-to/mcp-server")


@pytest.mark.slow
def test_the_specialist_of_the_page_calls_the_tool_of_the_server_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = text_of("how-to/mcp-tools")
    (server,), (specialist,) = blocks(page, "python"), blocks(page, "markdown")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (tmp_path / "weather.py").write_text(server)
    file = tmp_path / "meteorologist.md"
    file.write_text(specialist)

    with pytest.raises(InvalidSpecialist, match="no person has accepted these tools"):
        read_specialist(file)
    assert accept_mcp(file, is_sure=True) == 0
    spec = read_specialist(file)
    tools = make_mcp_tools(load_servers(tmp_path))
    answer = ToolHarness().call(tools.tools["weather__forecast"], place="Bonn")
    tools.close()

    assert spec.tools == ("weather__forecast",)
    assert answer == "Sunny in Bonn."
    assert tools.tools["weather__forecast"].repeatable


def test_the_reference_names_every_field_of_a_server() -> None:
    (section,) = re.findall(
        r"^## MCP servers\n(.+?)^## ", text_of("reference/specialist-files"), re.M | re.S
    )

    assert set(re.findall(r"^\| `(\w+)` \|", section, re.M)) == set(McpServer.model_fields)
    assert f"{MAX_BYTES:,} bytes" in section


def test_the_page_names_every_tool_and_its_access_level() -> None:
    named = {
        name: level
        for row in re.findall(r"^\| (`.+`) \| `(\w+)` \| ", PAGE, re.MULTILINE)
        for name, level in [(name, row[1]) for name in re.findall(r"`(\w+)`", row[0])]
    }

    assert named == {name: tool.level for name, tool in TOOLS.items()}
