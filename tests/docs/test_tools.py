"""The tools of docs/how-to/add-a-tool.md load and return the results that the page shows.

The page docs/reference/tools.md has the same limits as the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from handoff_queue.shared.agent import tool_calls
from handoff_queue.shared.agent.seen_texts import Seen, SeenText
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_policy import CallVerdict, PolicyRules, ToolPolicy
from handoff_queue.shared.documents import extraction as elsewhere
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.specialists.policy_file import read_rules
from handoff_queue.shared.types.limits import MAX_TOOL_TIMEOUT_S
from handoff_queue.workers.index.index import DocumentIndex
from handoff_queue.workers.tools import (
    fetch_url,
    read_document,
    search_documents,
    tool_call_process,
    tool_host,
    tool_host_protocol,
    web_search,
)
from handoff_queue.workers.tools import tool_decorator as marks
from handoff_queue.workers.tools.registry import BUILT_IN, build_registry
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
    (text,) = blocks(GUIDE["Give a tool a secret"], "python")
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


def test_the_first_policy_of_the_page_is_the_default(tmp_path: Path) -> None:
    default, _ = policies(tmp_path)
    assert default == PolicyRules()


def test_the_second_policy_of_the_page_has_the_described_effect(tmp_path: Path) -> None:
    _, rules = policies(tmp_path)
    policy = ToolPolicy(rules)
    seen = Seen().add(SeenText("Secret", ("document",)))
    rates = Tool("rates", "", {}, None, sends=("rates.example",))
    other = Tool("other", "", {}, None, sends=("rates.example",))
    order = Tool("order", "", {}, None, acts=True)

    assert policy.decide(rates, {}, seen).verdict is CallVerdict.ALLOW
    assert policy.decide(other, {}, seen).verdict is CallVerdict.ASK
    assert policy.decide(order, {}, Seen()).verdict is CallVerdict.REFUSE


def policies(folder: Path) -> list[PolicyRules]:
    """Return the policies of the page."""
    rules: list[PolicyRules] = []
    for number, text in enumerate(blocks(SECTIONS["The policy of tools"], "yaml")):
        file = folder / f"{number}.yaml"
        file.write_text(text)
        rules.append(read_rules(file))
    return rules


def test_the_declarations_of_the_built_in_tools_are_those_of_the_page(tmp_path: Path) -> None:
    settings = Settings(offline=False, anthropic_api_key=SecretStr("k"), cache_dir=tmp_path)
    registry = build_registry(settings, DocumentIndex(tmp_path))
    table = rows(SECTIONS["The policy of tools"])
    declared = {row[0]: row[1:] for row in table if len(row) == 3}
    for names, (reads, sends) in declared.items():
        for name in re.findall(r"`(\w+)`", names):
            tool = registry.tools[name]
            assert sends == ("any host" if tool.sends else "nothing")
            origins = {
                "private": ("document",),
                "notes, which are private": ("tool memory",),
                "public": ("web",),
                "nothing": (),
            }
            assert tool.result_origins == origins[reads]
    registry.close()


def test_every_built_in_tool_is_listed_with_its_limits() -> None:
    limits = {coded(row[0]): row[2] for row in rows(SECTIONS["Built-in tools"])}

    assert set(limits) == set(BUILT_IN)
    assert f"at most {search_documents.MAX_HITS}" in limits["search_documents"]
    assert f"{read_document.MAX_CHARS:,} characters" in limits["read_document"]
    assert f"{web_search.MAX_USES} searches" in limits["web_search"]
    for figure in (
        f"{fetch_url.MAX_BYTES:,} bytes",
        f"{fetch_url.MAX_SECONDS:g} seconds",
        f"{fetch_url.MAX_REDIRECTS} redirects",
    ):
        assert figure in limits["fetch_url"]
    assert f"{read_document.MAX_CHARS:,} characters" in limits["fetch_url"]


@pytest.mark.slow
def test_the_figures_of_the_text_are_those_of_the_code() -> None:
    files, documents = (" ".join(SECTIONS[name].split()) for name in ("Tool files", "Documents"))

    assert f"{tool_calls.MAX_RESULT_CHARS:,} characters" in files
    assert f"`{ENTRY_POINT_GROUP}`" in files
    for figure in (
        f"{marks.DEFAULT_TIMEOUT_S:g} by default, at most {MAX_TOOL_TIMEOUT_S:,.0f}",
        f"may print {tool_call_process.MAX_OUTPUT_BYTES:,} bytes",
        f"return {tool_host_protocol.MAX_RESULT_BYTES:,} bytes",
        "`, `".join(tool_host.VARIABLES[:-1]),
        f"{tool_calls.MAX_AT_ONCE} at a time. The first {tool_calls.MAX_CALLS} are run",
    ):
        assert figure in files
    assert f"{elsewhere.TIMEOUT_S} seconds a file" in documents
    assert f"{elsewhere.MEMORY_BYTES >> 30} GB" in documents
