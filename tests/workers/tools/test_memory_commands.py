"""The tool `memory` replies to a command as the SDK's own implementation of its interface does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import BetaAbstractMemoryTool, ToolError
from anthropic.tools import BetaLocalFilesystemMemoryTool

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.store.store import Store
from handoff_queue.workers.tools.memory import build_memory_tool
from handoff_queue.workers.tools.memory_commands import MAX_LISTED, MemoryCommands
from tests.doubles.jobs import a_job
from tests.workers.tools.contexts import ToolHarness
from tests.workers.tools.test_memory import EVIDENCE, GUIDE, harness_for, with_call

PATH = "/memories/qdrant/licence"
TEXT = "Qdrant is a database.\nIts licence is free.\nIts language is Rust.\nIts logo is red."
CREATE = {"command": "create", "path": PATH, "file_text": TEXT}
REPLACE = {"command": "str_replace", "path": PATH}
INSERT = {"command": "insert", "path": PATH}
RENAME = {"command": "rename", "old_path": PATH}
VIEW = {"command": "view", "path": PATH}
ABSENT = "/memories/qdrant/absent"
COMMANDS: dict[str, list[dict[str, Any]]] = {
    "create": [],
    "create-again": [CREATE],
    "view": [VIEW],
    "view-lines": [{**VIEW, "view_range": [2, 3]}],
    "view-to-the-end": [{**VIEW, "view_range": [3, -1]}],
    "view-from-the-top": [{**VIEW, "view_range": [0, 2]}],
    "view-no-lines": [{**VIEW, "view_range": [2, 0]}],
    "view-lines-outside": [{**VIEW, "view_range": [4, 9]}],
    "view-absent": [{"command": "view", "path": ABSENT}],
    "str_replace": [{**REPLACE, "old_str": "free", "new_str": "open"}],
    "str_replace-by-an-earlier-word": [{**REPLACE, "old_str": "red", "new_str": "Qdrant"}],
    "str_replace-by-nothing": [{**REPLACE, "old_str": " red", "new_str": ""}],
    "str_replace-absent": [{**REPLACE, "old_str": "MIT", "new_str": "open"}],
    "str_replace-twice": [{**REPLACE, "old_str": "Its", "new_str": "The"}],
    "str_replace-no-file": [{**REPLACE, "path": ABSENT, "old_str": "a", "new_str": "b"}],
    "insert-top": [{**INSERT, "insert_line": 0, "insert_text": "Notes:\n"}],
    "insert-end": [{**INSERT, "insert_line": 4, "insert_text": "The end."}],
    "insert-outside": [{**INSERT, "insert_line": 5, "insert_text": "The end."}],
    "insert-no-file": [{**INSERT, "path": ABSENT, "insert_line": 0, "insert_text": "x"}],
    "delete": [{"command": "delete", "path": PATH}],
    "delete-absent": [{"command": "delete", "path": ABSENT}],
    "delete-the-root": [{"command": "delete", "path": "/memories"}],
    "rename": [{**RENAME, "new_path": "/memories/qdrant/terms"}],
    "rename-onto-a-file": [{**RENAME, "new_path": PATH}],
    "rename-absent": [{**RENAME, "old_path": ABSENT, "new_path": "/memories/qdrant/terms"}],
    "rename-the-root": [{**RENAME, "old_path": "/memories", "new_path": ABSENT}],
}
"""Commands after `CREATE`, by a name."""


def reply_of_sdk(tool: BetaLocalFilesystemMemoryTool, command: dict[str, Any]) -> str:
    try:
        return str(tool.call(command))
    except ToolError as error:
        return str(error)


def reply(harness: ToolHarness, command: dict[str, Any]) -> str:
    try:
        return harness.call(build_memory_tool(), **command, **EVIDENCE)
    except ToolFailed as error:
        return str(error)


TEXTS = {
    "a-final-newline": f"{TEXT}\n",
    "two-final-newlines": f"{TEXT}\n\n",
    "a-line-separator": TEXT.replace("free.\n", "free.\u2028"),
    "a-carriage-return": TEXT.replace("\n", "\r\n"),
    "a-form-feed": f"{TEXT}\f",
}


@pytest.fixture
def harness(store: Store) -> ToolHarness:
    return harness_for(store, a_job(store, "acme"), {"guide.md": GUIDE})


@pytest.mark.parametrize("name", COMMANDS)
def test_a_reply_begins_with_that_of_the_sdks_own_tool(
    harness: ToolHarness, tmp_path: Path, name: str
) -> None:
    own = BetaLocalFilesystemMemoryTool(str(tmp_path))

    for command in (CREATE, *COMMANDS[name]):
        assert reply(harness, command).startswith(reply_of_sdk(own, command))


@pytest.mark.parametrize("name", TEXTS)
def test_the_lines_of_a_note_are_those_of_the_sdks_own_tool(
    harness: ToolHarness, tmp_path: Path, name: str
) -> None:
    own = BetaLocalFilesystemMemoryTool(str(tmp_path))
    commands = (
        {**CREATE, "file_text": TEXTS[name]},
        VIEW,
        {**REPLACE, "old_str": "Its", "new_str": "The"},
        {**REPLACE, "old_str": "Rust", "new_str": "Go"},
        {**INSERT, "insert_line": 9, "insert_text": "The end."},
        {**INSERT, "insert_line": 3, "insert_text": "The end.\n"},
        VIEW,
        {**VIEW, "view_range": [5, -1]},
    )

    for command in commands:
        assert reply(harness, command).startswith(reply_of_sdk(own, command))


def test_the_sizes_of_notes_have_the_form_of_the_sdk(harness: ToolHarness, tmp_path: Path) -> None:
    own = BetaLocalFilesystemMemoryTool(str(tmp_path))
    for size in (1, 1_023, 1_024, 1_536):
        created = {**CREATE, "path": f"/memories/sizes/{size}", "file_text": "x" * size}
        assert reply(harness, created) == reply_of_sdk(own, created)
    listing = {"command": "view", "path": "/memories/sizes"}

    assert reply(harness, listing).splitlines()[2:] == reply_of_sdk(own, listing).splitlines()[2:]


def test_the_list_of_notes_is_that_of_the_sdks_own_tool(
    harness: ToolHarness, tmp_path: Path
) -> None:
    """Sizes of directories depend on the file system."""
    own = BetaLocalFilesystemMemoryTool(str(tmp_path))
    for path in (PATH, "/memories/qdrant/language", "/memories/redis/licence"):
        created = {**CREATE, "path": path}
        assert reply(harness, created) == reply_of_sdk(own, created)

    for path in ("/memories", "/memories/qdrant"):
        listed = reply(harness, {"command": "view", "path": path}).splitlines()
        of_sdk = reply_of_sdk(own, {"command": "view", "path": path}).splitlines()
        assert listed[0] == of_sdk[0]
        assert [line.split("\t")[1] for line in listed[1:]] == [
            line.split("\t")[1] for line in of_sdk[1:]
        ]
        sizes = [line for line in listed[2:] if not line.endswith("/")]
        assert sizes == [line for line in of_sdk[2:] if not line.endswith("/")]


def test_the_commands_implement_the_interface_of_the_sdk() -> None:
    assert issubclass(MemoryCommands, BetaAbstractMemoryTool)
    definition = build_memory_tool().input_schema["properties"]
    assert definition["command"]["enum"] == [
        "search",
        "view",
        "create",
        "str_replace",
        "insert",
        "delete",
        "rename",
    ]


@pytest.mark.slow
def test_a_long_list_says_how_many_notes_it_leaves_out(harness: ToolHarness) -> None:
    for number in range(MAX_LISTED + 1):
        reply(harness, {**CREATE, "path": f"numbers/{number}"})

    listed = reply(harness, {"command": "view", "path": "/memories"}).splitlines()

    assert listed[-1] == "(100 of 101 files: view a directory, or search)"


@pytest.mark.parametrize("path", ["qdrant/licence", PATH, f"{PATH}.md", f"{PATH}.txt"])
def test_a_path_may_lack_its_root_or_have_a_suffix(harness: ToolHarness, path: str) -> None:
    assert reply(harness, {**CREATE, "path": path}) == f"File created successfully at: {PATH}"


def test_a_replacement_that_is_repeated_after_a_kill_has_the_same_reply(
    harness: ToolHarness,
) -> None:
    with_call(harness, "t1").call(build_memory_tool(), **CREATE, **EVIDENCE)
    change = {**REPLACE, "old_str": "free", "new_str": "free for all"}

    replies = [reply(with_call(harness, "t2"), change) for _ in range(2)]

    assert replies[0] == replies[1]
    assert replies[0].splitlines()[2] == "     2\tIts licence is free for all."
