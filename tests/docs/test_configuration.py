"""docs/configuration.md says of every setting what shared/settings/settings.py says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from annotated_types import Ge, Gt, Le

from handoff_queue.shared.settings.settings import Settings
from tests.bounds import bounds_of
from tests.docs.pages import DOCS, ROOT, coded, rows, sections, spans, text_of

PAGE = text_of("configuration")
OTHERS = {coded(row[0]): row for row in rows(sections(PAGE)["Not settings of the system"])}
ROWS = {coded(row[0]): row for row in rows(PAGE) if coded(row[0]) not in OTHERS}
VARIABLES = {
    str(field.validation_alias or f"HANDOFF_{name.upper()}"): (name, field)
    for name, field in Settings.model_fields.items()
}
NAMED = re.compile(r"\b(?:HANDOFF|ANTHROPIC|FLOWER)_[A-Z][A-Z_]*[A-Z]\b")


def shown(default: Any) -> str:
    """A default as one would type it."""
    match default:
        case None:
            return "not set"
        case float():
            return f"{default:g}"
        case tuple():
            return json.dumps(list(default))
        case _:
            return str(default)


def number(bound: Any) -> str:
    return f"{bound:,f}".rstrip("0").rstrip(".")


def test_every_setting_is_on_the_page_and_nothing_else() -> None:
    assert sorted(ROWS) == sorted(VARIABLES)


@pytest.mark.parametrize("variable", sorted(VARIABLES))
def test_the_page_has_the_default(variable: str) -> None:
    assert coded(ROWS[variable][1]) == shown(VARIABLES[variable][1].default)


@pytest.mark.parametrize("variable", sorted(VARIABLES))
def test_the_page_has_the_range_and_the_choices(variable: str) -> None:
    name, field = VARIABLES[variable]
    unit = ROWS[variable][2]
    for bound in bounds_of(field):
        if isinstance(bound, Gt):
            assert f"> {number(bound.gt)}" in unit
        if isinstance(bound, Ge):
            assert f"≥ {number(bound.ge)}" in unit
        if isinstance(bound, Le):
            assert f"≤ {number(bound.le)}" in unit
    choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
    assert all(f"`{choice}`" in unit for choice in choices)
    assert ("seconds" in unit) == name.endswith("_s")


def test_variables_that_are_no_settings_are_read_somewhere() -> None:
    places = [
        *ROOT.glob("*.yml"),
        ROOT / "Dockerfile",
        *(ROOT / "shared").rglob("*.py"),
        *(ROOT / "supervisor").rglob("*.py"),
    ]
    read = "".join(path.read_text() for path in places)

    assert not {name for name in OTHERS if name not in read}


def documents() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / ".env.example",
        ROOT / "docker-compose.yml",
        *DOCS.rglob("*.md"),
    ]


def test_every_variable_that_is_named_anywhere_is_on_the_page() -> None:
    named = {(path.name, name) for path in documents() for name in NAMED.findall(path.read_text())}

    assert not {(path, name) for path, name in named if name not in ROWS and name not in OTHERS}


def test_every_variable_of_the_environment_file_is_on_the_page() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    named = {match[1] for line in lines if (match := re.match(r"(?:# )?([A-Z_]+)=", line))}

    assert named <= {*ROWS, *OTHERS}


def test_an_example_value_is_one_that_the_settings_take(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [
        match for span in spans(PAGE) if (match := re.fullmatch(r"(HANDOFF_[A-Z_]+)=(.+)", span))
    ]

    assert examples
    for match in examples:
        monkeypatch.setenv(match[1], match[2])
        assert getattr(Settings(), VARIABLES[match[1]][0])
