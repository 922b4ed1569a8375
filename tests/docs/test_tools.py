"""The tools of docs/how-to/add-a-tool.md load and return the results that the page shows.

The page docs/reference/tools.md has the same limits as the code.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.agent import tool_calls
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.documents import reader_process as elsewhere
from handoff_queue.workers.tools import (
    fetch_url,
    read_document,
    search_documents,
    tool_host,
    tool_messages,
    tool_process,
    web_search,
)
from handoff_queue.workers.tools import tool_decorator as marks
from handoff_queue.workers.tools.registry import BUILT_IN
from handoff_queue.workers.tools.user_tools import ENTRY_POINT_GROUP
from tests.docs.pages import blocks, coded, rows, sections, text_of
from tests.doubles.function_tools import hosted, write_tools
from tests.workers.tools.contexts import ToolHarness

GUIDE = sections(text_of("how-to/add-a-tool"))
SECTIONS = sections(text_of("reference/tools"))
OWN_TOOLS = {"order_status", "remind_warehouse"}
"""The tools of the example."""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Tool]]:
    (text,) = blocks(GUIDE["Write the function"], "python")
    with hosted(write_tools(tmp_path_factory.mktemp("tools"), {"shop": text})) as tools:
        yield tools


def test_the_example_loads_as_two_tools(tools: dict[str, Tool]) -> None:
    assert set(tools) == OWN_TOOLS
    assert {name: tool.repeatable for name, tool in tools.items()} == {
        "order_status": True,
        "remind_warehouse": False,
    }
    assert tools["order_status"].description.startswith("The state of an order")
    assert tools["remind_warehouse"].input_schema["required"] == ["order_id"]
    assert (
        tools["order_status"].input_schema["properties"]["order_id"]["description"]
        == "As printed on the invoice, like A-1042."
    )


def test_the_example_says_that_its_secret_is_missing(
    tools: dict[str, Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_TOKEN", raising=False)

    assert ToolHarness().failure(tools["order_status"], order_id="A-1") == (
        "order_status is not set up: the worker's environment lacks SHOP_TOKEN"
    )


def test_every_built_in_tool_is_listed_with_its_limits() -> None:
    limits = {coded(row[0]): row[2] for row in rows(SECTIONS["Built-in tools"])}

    assert set(limits) == set(BUILT_IN)
    assert f"at most {search_documents.MOST_HITS}" in limits["search_documents"]
    assert f"{read_document.MOST_CHARS:,} characters" in limits["read_document"]
    assert f"{web_search.MAX_USES} searches" in limits["web_search"]
    for figure in (
        f"{fetch_url.MAX_BYTES:,} bytes",
        f"{fetch_url.MAX_SECONDS:g} seconds",
        f"{fetch_url.MAX_REDIRECTS} redirects",
    ):
        assert figure in limits["fetch_url"]
    assert f"{fetch_url.MOST_CHARS:,} characters" in limits["fetch_url"]


def test_the_figures_of_the_text_are_those_of_the_code() -> None:
    files, documents = (" ".join(SECTIONS[name].split()) for name in ("Tool files", "Documents"))

    assert f"{tool_calls.MOST_RESULT_CHARS:,} characters" in files
    assert f"`{ENTRY_POINT_GROUP}`" in files
    for figure in (
        f"{marks.DEFAULT_TIMEOUT_S:g} by default, at most {marks.LONGEST_TIMEOUT_S:,.0f}",
        f"may print {tool_process.MOST_OUTPUT_BYTES:,} bytes",
        f"return {tool_messages.MOST_RESULT_BYTES:,} bytes",
        "`, `".join(tool_host.VARIABLES[:-1]),
        f"{tool_calls.MOST_AT_ONCE} at a time. The first {tool_calls.MOST_CALLS} are run",
    ):
        assert figure in files
    assert f"{elsewhere.TIMEOUT_S} seconds a file" in documents
    assert f"{elsewhere.MEMORY_BYTES >> 30} GB" in documents
