"""The generated pages of the reference are current and leave out nothing that is public."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import handoff_queue
from docs.generator import field_types, python_api
from docs.generator.__main__ import PAGES, REFERENCE, build_page
from docs.generator.markdown import (
    build_table,
    convert_docstring,
    format_annotation,
    read_attribute_docstrings,
)
from docs.generator.redis_keys import iterate_constants, iterate_functions
from handoff_queue import JobResult, Limits, NewLimits, Request, testing, types
from handoff_queue.shared.settings.settings import Settings
from tests.docs.pages import blocks, coded, rows


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_current(name: str) -> None:
    assert (REFERENCE / name).read_text() == build_page(name), (
        "run `make docs` and commit the pages"
    )


def test_every_public_name_is_in_one_group_of_the_page() -> None:
    grouped = [name for group in python_api.GROUPS.values() for name in group]
    for_tests = [name for group in python_api.TEST_GROUPS.values() for name in group]

    assert sorted(grouped) == sorted(handoff_queue.__all__)
    assert sorted(for_tests) == sorted(testing.__all__)
    of_fields = [name for group in field_types.group_types().values() for name in group]
    assert sorted(of_fields) == sorted(types.__all__)


@pytest.mark.parametrize("kind", [Request, Limits, NewLimits, JobResult, Settings])
def test_every_field_has_a_description(kind: Any) -> None:
    names = (
        [field.name for field in dataclasses.fields(kind)]
        if dataclasses.is_dataclass(kind)
        else [name for name, field in kind.model_fields.items() if not field.exclude]
    )

    assert not set(names) - set(read_attribute_docstrings(kind))


def test_every_redis_key_has_a_type_and_a_meaning() -> None:
    described = [*iterate_constants(), *iterate_functions()]

    assert len(described) > 20
    assert all(meaning for _, _, meaning in described)
    without_kind = [key for key, kind, _ in described if not kind]
    assert without_kind == ["`handoff:nothing`", "`handoff:write_check`"]


def test_a_docstring_becomes_markdown() -> None:
    text = convert_docstring("""Return a job.

        Raises:
            UnknownJob, UserError: there is no such job, or the id is
                wrong.
        """)

    assert text == (
        "Return a job.\n\nRaises:\n\n"
        "- `UnknownJob`, `UserError`: there is no such job, or the id is\n  wrong."
    )


def test_a_type_is_written_without_modules_and_metadata() -> None:
    assert format_annotation(
        "Annotated[collections.abc.Sequence[str], Field(max_length=3)] | None"
    ) == ("Sequence[str] | None")


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    (row,) = rows(build_table(["Type"], [["`str | None`"]]))

    assert coded(row[0]) == "str | None"


def test_a_command_shows_its_usage_and_its_examples() -> None:
    page = (REFERENCE / "commands.md").read_text()

    assert "handoff run [OPTIONS] [REQUEST]\n" in blocks(page, "text")
    assert any("--kills 200" in block for block in blocks(page, "console"))
