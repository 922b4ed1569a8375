"""The pages of settings and variables name every variable that a process reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from annotated_types import Ge, Gt, Le

from docs.generator.settings import GROUPS, describe_kind, format_number, get_variable
from handoff_queue.shared.settings.settings import Settings
from tests.bounds import bounds_of
from tests.docs.pages import DOCS, ROOT, rows, sections, spans, text_of

PAGE = text_of("reference/configuration")
OTHERS = {
    name
    for row in rows(sections(PAGE)["Other variables"])
    for name in re.findall(r"[A-Z_]+", row[0])
}
SETTINGS = {get_variable(name): name for name in Settings.model_fields}
NAMED = re.compile(r"\b(?:HANDOFF|ANTHROPIC|FLOWER)_[A-Z][A-Z_]*[A-Z]\b")


def test_every_setting_is_in_one_group_of_the_page() -> None:
    grouped = [name for group in GROUPS.values() for name in group]

    assert sorted(grouped) == sorted(Settings.model_fields)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_page_has_the_bounds_of_a_setting(name: str) -> None:
    unit = describe_kind(name)
    for bound in bounds_of(Settings.model_fields[name]):
        if isinstance(bound, Gt):
            assert f"> {format_number(bound.gt)}" in unit
        if isinstance(bound, Ge):
            assert f"≥ {format_number(bound.ge)}" in unit
        if isinstance(bound, Le):
            assert f"≤ {format_number(bound.le)}" in unit
    assert ("seconds" in unit) == name.endswith("_s")


def test_variables_that_are_not_settings_are_read_somewhere() -> None:
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

    assert not {(path, name) for path, name in named if name not in {*SETTINGS, *OTHERS}}


def test_every_variable_of_the_environment_file_is_on_the_page() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    named = {match[1] for line in lines if (match := re.match(r"(?:# )?([A-Z_]+)=", line))}

    assert named <= {*SETTINGS, *OTHERS}


def test_the_settings_accept_each_example_value(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [
        match for span in spans(PAGE) if (match := re.fullmatch(r"(HANDOFF_[A-Z_]+)=(.+)", span))
    ]

    assert examples
    for match in examples:
        monkeypatch.setenv(match[1], match[2])
        assert getattr(Settings(), SETTINGS[match[1]])
