"""The specialist of docs/how-to/add-a-specialist.md loads, and the tables of
docs/reference/specialist-files.md are those of the code.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.specialists import (
    lint,
    load_specialists,
    read_specialist,
    specialist_files,
)
from handoff_queue.shared.specialists.specialist_files import FIELDS
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.names import RESERVED
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.workers.specialists import BUILT_IN
from handoff_queue.workers.tools.registry import BUILT_IN as BUILT_IN_TOOLS
from tests.docs.pages import blocks, coded, rows, sections, text_of
from tests.docs.test_tools import OWN_TOOLS

GUIDE = sections(text_of("how-to/add-a-specialist"))
SECTIONS = sections(text_of("reference/specialist-files"))


@pytest.fixture
def example(tmp_path: Path) -> Path:
    (text,) = blocks(GUIDE["Write the file"], "markdown")
    path = tmp_path / "orders.md"
    path.write_text(text)
    return path


def column(heading: str, place: int = 0) -> list[str]:
    return [coded(row[place]) for row in rows(SECTIONS[heading])]


def test_the_example_is_a_specialist_with_the_tool_of_the_other_page(example: Path) -> None:
    spec = read_specialist(example, tools={*BUILT_IN_TOOLS, *OWN_TOOLS})

    assert spec.name == "orders"
    assert set(spec.tools) & OWN_TOOLS
    assert spec.output_schema["required"] == ["summary", "orders"]


def test_the_example_causes_no_warning_next_to_the_built_in_specialists(example: Path) -> None:
    together = load_specialists(BUILT_IN, example.parent)

    assert "orders" in together
    assert lint.lint(together.values()) == []


def test_the_fields_and_their_defaults_are_the_readers() -> None:
    listed = {coded(row[0]): coded(row[1]) for row in rows(SECTIONS["Front matter"])}
    fields = SpecialistSpec.model_fields

    assert set(listed) == set(FIELDS)
    for name in ("tier", "max_turns", "max_output_tokens"):
        assert listed[name] == str(fields[name].default)
    assert {name for name in fields.keys() & FIELDS if fields[name].is_required()} == {
        name for name, default in listed.items() if default == "required"
    }
    assert f"{specialist_files.MAX_FILE_BYTES:,} bytes" in SECTIONS["Front matter"]


def test_every_reserved_name_is_named() -> None:
    assert all(f"`{name}`" in SECTIONS["Front matter"] for name in RESERVED)


def test_every_rule_of_the_lint_is_there_with_its_figures() -> None:
    assert column("Lint") == [rule.value for rule in lint.LintRule]
    assert f"{lint.MAX_DESCRIPTION_CHARS} characters" in SECTIONS["Lint"]
    assert f"{lint.MAX_INSTRUCTIONS_CHARS:,} characters" in SECTIONS["Lint"]


def test_every_built_in_specialist_and_every_status_is_listed() -> None:
    assert sorted(column("Built-in specialists")) == sorted(load_specialists(BUILT_IN))
    assert set(column("Results")) == {status.value for status in ResultStatus}
