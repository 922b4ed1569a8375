"""The registry gives specialists their tools by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.agent.system_prompt import NO_SOURCES
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import InvalidTool
from handoff_queue.workers.index.index import DocumentIndex
from handoff_queue.workers.tools.registry import BUILT_IN, Registry, build_registry
from tests.doubles.handoffs import a_spec


def registry(tmp_path: Path, *tools_dirs: Path, offline: bool = True) -> Registry:
    settings = Settings(offline=offline, tools_dirs=tools_dirs)
    return build_registry(settings, DocumentIndex(tmp_path / "cache"))


def write_tool(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(
        f"def {name}() -> str:\n    'Says something.'\n    return 'said'\n"
    )
    return folder


def test_a_specialist_gets_its_named_tools_in_its_order(tmp_path: Path) -> None:
    tools = registry(tmp_path).get_tools(["now", "search_documents", "now"])

    assert [tool.name for tool in tools] == ["now", "search_documents"]


def test_an_unknown_tool_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidTool, match="unknown tool 'search_document': did you mean search_documents"
    ):
        registry(tmp_path).get_tools(["search_document"])


def test_the_rules_name_the_built_in_tools_whose_results_are_not_sources(tmp_path: Path) -> None:
    built_in = registry(tmp_path, offline=False)
    tools = built_in.get_tools([name for name in BUILT_IN if name in built_in.names])

    assert {tool.name for tool in tools if not tool.is_source} == {*NO_SOURCES}


def test_web_search_is_known_but_not_offered_by_the_offline_model(tmp_path: Path) -> None:
    offline = registry(tmp_path, offline=True)

    assert offline.get_tools(["web_search", "now"]) == offline.get_tools(["now"])
    assert "web_search" in offline.names
    assert "offline" in offline.not_offered["web_search"]


def test_code_of_the_provider_is_not_offered_by_the_offline_model(tmp_path: Path) -> None:
    offline = registry(tmp_path, offline=True)

    assert offline.get_tools(["code_execution", "now"]) == offline.get_tools(["now"])


def test_a_file_names_a_sandbox_and_not_its_tool(tmp_path: Path) -> None:
    assert not {"run_code", "code_execution"} & {*registry(tmp_path, offline=False).names}


def test_web_search_is_the_providers_own_with_a_real_model(tmp_path: Path) -> None:
    (tool,) = registry(tmp_path, offline=False).get_tools(["web_search"])

    assert tool.run is None
    assert tool.server_param == {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}


@pytest.mark.slow
def test_the_users_folders_add_tools(tmp_path: Path) -> None:
    folder = write_tool(tmp_path / "own", "greet")

    assert registry(tmp_path, folder).names == tuple(sorted([*BUILT_IN, "greet"]))


@pytest.mark.slow
def test_tools_of_folders_that_no_specialist_names_are_told(tmp_path: Path) -> None:
    folder = write_tool(write_tool(tmp_path / "own", "greet"), "wave").parent / "own"
    made = registry(tmp_path, folder)

    assert made.without_use([a_spec("now")]) == (
        "no specialist can call greet, wave: write `tools: [greet, wave]` into the file of a"
        " specialist (--specialists DIR)"
    )
    assert made.without_use([a_spec("greet"), a_spec("wave", "now")]) is None
    assert registry(tmp_path).without_use([a_spec()]) is None


@pytest.mark.slow
def test_a_built_in_name_is_reserved_even_where_it_is_not_offered(tmp_path: Path) -> None:
    for name in ("now", "web_search", "run_code", "code_execution"):
        with pytest.raises(InvalidTool, match=f"tool {name}: is the name of a built-in tool"):
            registry(tmp_path, write_tool(tmp_path / name, name))


@pytest.mark.slow
def test_two_folders_cannot_share_a_name(tmp_path: Path) -> None:
    first = write_tool(tmp_path / "first", "greet")
    second = write_tool(tmp_path / "second", "greet")

    with pytest.raises(InvalidTool, match="tool greet: is taken by another of your tools"):
        registry(tmp_path, first, second)


def test_every_built_in_tool_has_a_closed_schema_and_states_its_purpose(tmp_path: Path) -> None:
    for tool in registry(tmp_path, offline=False).get_tools(BUILT_IN):
        assert tool.input_schema["additionalProperties"] is False
        assert set(tool.input_schema["required"]) <= set(tool.input_schema["properties"])
        assert len(tool.description) > 20
