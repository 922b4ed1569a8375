"""docs/reference/command-line.md says what the commands do, and no document names a command or
an option that does not exist.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

from handoff_queue.shared.settings.optional_packages import PACKAGES as EXTRAS
from handoff_queue.shared.types.errors import INTERRUPTED
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.supervisor.cli import errors
from handoff_queue.supervisor.cli.commands import ENTRIES, load_command
from handoff_queue.supervisor.cli.main import app
from handoff_queue.supervisor.cli.request_options import JobOptions
from handoff_queue.supervisor.cli.submit import SubmissionLine
from tests.docs.pages import DOCS, ROOT, coded, rows, sections, spans, text_of

SECTIONS = sections(text_of("reference/command-line"))
GROUP: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = {name: load_command(name) for name in ENTRIES}
HELP = {"-h", "--help"}
PLANNED = DOCS / "roadmap.md"
"""A page that names planned commands."""


def options_of(command: Any) -> set[str]:
    return {
        name
        for parameter in command.params
        if parameter.param_type_name == "option"
        for name in parameter.opts
    }


def documents() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "chaos" / "RESULTS.md",
        *sorted((ROOT / "examples").glob("*.md")),
        *(path for path in sorted(DOCS.rglob("*.md")) if path != PLANNED),
    ]


def test_the_exit_codes_are_those_of_the_command_line() -> None:
    listed = {int(row[0]) for row in rows(SECTIONS["Exit codes"])}

    assert listed == {
        errors.OK, errors.FAILED, errors.BAD_INPUT, errors.NO_REDIS, errors.NOT_ENDED,
        errors.PARTIAL, errors.INTERNAL_ERROR,
        INTERRUPTED,
    }  # fmt: skip


def test_every_status_of_a_job_is_listed() -> None:
    listed = [coded(row[0]) for row in rows(SECTIONS["Statuses of a job"])]

    assert sorted(listed) == sorted(JobStatus)


def test_every_field_of_a_file_of_jobs_is_named() -> None:
    named = spans(SECTIONS["Many jobs in one file"])

    assert set(SubmissionLine.model_fields) <= set(named)


def test_a_line_of_a_file_of_jobs_has_a_field_for_each_option_of_a_job() -> None:
    assert {option.name for option in fields(JobOptions)} <= set(SubmissionLine.model_fields)


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "how-to" / "console.md"])
def test_the_first_pages_of_a_user_say_how_to_submit_many_jobs(page: Path) -> None:
    assert "handoff submit --file" in page.read_text()
    assert "command-line.md#many-jobs-in-one-file" in page.read_text()


def test_no_document_names_a_command_or_an_option_that_does_not_exist() -> None:
    wrong = [
        f"{path.name}: {span}: {problem}"
        for path in documents()
        for span in spans(path.read_text())
        if (problem := wrong_with(span))
    ]

    assert not wrong


def wrong_with(span: str) -> str | None:
    """Return the error in a piece of code that calls `handoff`, or None."""
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


def test_the_extras_of_a_page_have_the_packages_of_its_commands() -> None:
    """Supervisors and workers run in another environment, so only the command line is checked."""
    lacking: list[str] = []
    for page in (*DOCS.glob("get-started/*.md"), *DOCS.glob("how-to/*.md")):
        text = page.read_text()
        named = re.search(r"pip install '/path/to/the/clone\[([a-z,-]+)\]'", text)
        if named is None or "$ handoff " not in text:
            continue
        packages = {package for extra in named[1].split(",") for package in EXTRAS.get(extra, ())}
        if named[1] != "all" and not packages.issuperset(EXTRAS["cli"]):
            lacking.append(f"{page.name}: [{named[1]}]")
    assert lacking == []
