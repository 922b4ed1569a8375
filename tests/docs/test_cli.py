"""docs/cli.md describes every command and option, and no page names an unknown command or option."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from handoff_queue.shared.text.durations import in_units
from handoff_queue.supervisor.cli import errors
from handoff_queue.supervisor.cli.commands import ENTRIES, load_command
from handoff_queue.supervisor.cli.main import app
from handoff_queue.supervisor.cli.submit import SubmissionLine
from handoff_queue.supervisor.client.report import JobResult
from tests.docs.pages import DOCS, ROOT, blocks, coded, rows, sections, spans, text_of

PAGE = text_of("cli")
SECTIONS = {
    heading.removeprefix("handoff "): body
    for heading, body in sections(PAGE).items()
    if heading.startswith("handoff ")
}
GROUP: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = {name: load_command(name) for name in ENTRIES}
HELP = {"-h", "--help"}
PLANNED = DOCS / "roadmap.md"
"""The page about commands that do not exist yet."""


def options_of(command: Any) -> set[str]:
    return {name for one in command.params if one.param_type_name == "option" for name in one.opts}


def options_in(text: str) -> set[str]:
    return {name for row in rows(text) for name in re.findall(r"`(--?[a-z][a-z-]*)`", row[0])}


def documents() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "chaos" / "RESULTS.md",
        *sorted((ROOT / "examples").glob("*.md")),
        *(path for path in sorted(DOCS.rglob("*.md")) if path != PLANNED),
    ]


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert list(SECTIONS) == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_has_exactly_the_options_of_its_command(name: str) -> None:
    assert options_in(SECTIONS[name]) == options_of(COMMANDS[name]) - HELP


def test_the_options_of_handoff_itself_are_there() -> None:
    assert options_in(PAGE.partition("## ")[0]) == options_of(GROUP) - HELP


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_has_an_example_and_says_how_the_command_ends(name: str) -> None:
    assert any(
        line.startswith(f"$ handoff {name}")
        for block in blocks(SECTIONS[name], "console")
        for line in block.splitlines()
    )
    ends = next(line for line in SECTIONS[name].splitlines() if line.startswith("Exit codes: "))
    known = {coded(row[0]) for row in rows(sections(PAGE)["Exit codes"])}
    assert set(re.findall(r"(?:^|[:;] )(\d+) ", ends)) <= known


def test_the_exit_codes_are_those_of_the_command_line() -> None:
    listed = {int(row[0]) for row in rows(sections(PAGE)["Exit codes"])}

    assert listed == {
        errors.OK, errors.FAILED, errors.BAD_INPUT, errors.NO_REDIS, errors.NOT_ENDED, errors.PARTIAL, errors.DEFECT,
        errors.INTERRUPTED,
    }  # fmt: skip


def test_defaults_that_a_section_names_are_the_commands_own() -> None:
    for name, command in COMMANDS.items():
        for row in rows(SECTIONS[name]):
            if said := re.search(r"; `?([\w.]+)`? by default\.", row[1]):
                option = next(one for one in command.params if coded(row[0]) in one.opts)
                assert option.default is None or said[1] in shown(option)


def shown(option: Any) -> set[str]:
    """Return the texts that stand for the default of an option."""
    if option.metavar == "TIME":
        return {in_units(option.default)}
    if isinstance(option.default, float):
        return {f"{option.default:g}"}
    return {str(option.default), str(Path(str(option.default)))}


def test_the_keys_of_json_output_and_of_a_file_of_jobs_are_all_named() -> None:
    said = SECTIONS["run"].partition("The object of `--json` has the keys")[2].partition(":\n")[0]
    assert re.findall(r"`(\w+)`", said) == [
        key for key, field in JobResult.model_fields.items() if not field.exclude
    ]
    assert all(f"`{key}`" in SECTIONS["submit"] for key in SubmissionLine.model_fields)


def test_no_document_names_a_command_or_an_option_that_does_not_exist() -> None:
    wrong = [
        f"{path.name}: {span}: {problem}"
        for path in documents()
        for span in spans(path.read_text())
        if (problem := wrong_with(span))
    ]

    assert not wrong


def wrong_with(span: str) -> str | None:
    """Return the fault of a piece of code that is one of our commands, or None."""
    typed = re.search(r"(?:^|\s)handoff\s(.*)$", span)
    if not typed or span.startswith(("docker", "celery")):
        return None
    words = shlex.split(re.split(r"\s[|>&]\s", typed[1].replace("...", ""))[0], comments=True)
    if not words or words[0] == "COMMAND":
        return None
    if words[0].startswith("-"):
        return None if {words[0]} <= options_of(GROUP) | HELP else f"no option {words[0]}"
    if words[0] not in COMMANDS:
        return f"no command {words[0]}"
    named = {word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)}
    unknown = named - options_of(COMMANDS[words[0]]) - HELP
    return f"no option {', '.join(sorted(unknown))}" if unknown else None


@pytest.mark.parametrize(
    ("span", "is_right"),
    [
        ('handoff run "a -b" --docs notes', True),
        ("handoff run --no-such-thing", False),
        ("handoff fly", False),
        ("HANDOFF_DEBUG=1 handoff list -n 3 | less", True),
        ("pip install handoff-queue", True),
    ],
)
def test_a_wrong_command_is_seen(span: str, is_right: bool) -> None:
    assert (wrong_with(span) is None) == is_right
