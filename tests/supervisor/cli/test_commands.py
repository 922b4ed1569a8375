"""The list of commands is quick, complete, and agrees with the help of each command."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer

from docs.generator.commands import format_default
from handoff_queue.shared.text.times import DurationRange
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.commands import ENTRIES, Entry, load_command, print_main_help
from handoff_queue.supervisor.cli.request_options import (
    RequestOptions,
    build_limits,
    build_new_limits,
)

ROOT = Path(__file__).parents[3]
HEAVY = (
    "pydantic",
    "redis",
    "celery",
    "kombu",
    "yaml",
    "handoff_queue.shared.settings.settings",
    "handoff_queue.shared.types.events",
)
LOADED = f"""
import sys
from handoff_queue.supervisor.cli.main import app
try:
    app(["--help"])
except SystemExit:
    pass
print(*sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("name", ENTRIES)
def test_a_line_of_the_list_is_the_first_of_the_commands_own_help(name: str) -> None:
    first, _, _ = load_command(name).help.partition("\n\n")

    assert ENTRIES[name].line == " ".join(first.split())


@pytest.mark.slow
def test_the_list_is_shown_without_the_commands() -> None:
    process = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert all(re.search(rf" {name}\b", process.stdout) for name in ENTRIES)
    assert process.stderr.strip() == "", "what was imported although nobody has typed a command"


def printed_help(*arguments: str, **environment: str) -> str:
    """Return the output of `handoff` with these arguments, on a terminal of 80 columns."""
    process = subprocess.run(
        [sys.executable, "-m", "handoff_queue.supervisor.cli.main", *arguments],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return process.stdout


@pytest.mark.slow
def test_the_main_help_fits_on_one_screen_and_names_every_command() -> None:
    printed = printed_help("--help")
    lines = printed.splitlines()

    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert [name for name in ENTRIES if not re.search(rf" {name}\b", printed)] == []


@pytest.mark.slow
def test_the_main_help_describes_the_five_commands_for_a_newcomer() -> None:
    printed = printed_help("--help")
    lines = printed.splitlines()

    described = [name for name, entry in ENTRIES.items() if entry.line in printed]
    assert described == ["run", "up", "submit", "watch", "result"]
    assert lines[0].startswith("Usage: ")
    assert "`handoff help`" in lines[-1]


def test_long_groups_of_commands_continue_on_the_next_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    many = {f"command-{number}": Entry("", "", "Many") for number in range(20)}

    print_main_help({"run": Entry("", "Run a job.", "Start"), **many}, "Start")

    printed = capsys.readouterr().out
    assert [name for name in many if name not in printed] == []
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.slow
def test_the_help_command_describes_every_command_on_one_line() -> None:
    lines = printed_help("help").splitlines()

    assert max(map(len, lines)) <= 80
    for name, entry in ENTRIES.items():
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert line.endswith(f"  {entry.line}")
    assert "`handoff doctor`" in lines[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "pause", "help"])
def test_the_help_of_a_command_is_the_same_as_its_help_option(name: str) -> None:
    assert printed_help("help", name) == printed_help(name, "--help")


@pytest.mark.slow
def test_a_shell_completes_the_command_to_describe() -> None:
    typed = {"COMP_WORDS": "handoff help sch", "COMP_CWORD": "2"}

    assert printed_help(**typed, _HANDOFF_COMPLETE="complete_bash").split() == ["schedule"]


def test_each_type_of_an_option_has_its_own_name() -> None:
    names: list[str] = []
    for path in (ROOT / "supervisor" / "cli").glob("*.py"):
        names += re.findall(r"^(\w+) = Annotated\[", path.read_text(), re.MULTILINE)

    assert {"MaxTokens", "NewMaxTokens"} <= {*names}, "the search finds the types"
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_an_example_in_a_help_fits_on_one_line() -> None:
    examples = [
        line
        for name in ENTRIES
        for line in load_command(name).help.splitlines()
        if line.startswith("$ handoff ")
    ]

    assert len(examples) > len(ENTRIES) / 3
    assert [line for line in examples if len(line) > 78] == []


@pytest.mark.parametrize("name", ENTRIES)
def test_a_help_on_a_terminal_has_each_text_of_the_reference_with_its_brackets(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    command = load_command(name)

    with pytest.raises(SystemExit):
        command([name, "--help"], prog_name="handoff")

    printed = capsys.readouterr().out
    texts = command.help.splitlines()
    for option in [param for param in command.params if param.param_type_name == "option"]:
        texts.append(option.help)
        if shown := format_default(option).strip("`"):
            texts.append(f"[default: {shown}]")
    assert [text for text in texts if " ".join(text.split()) not in printed] == []


MAX_UNGROUPED = 8
"""Maximum number of options in one unpanelled list, without `--help`."""


@pytest.mark.parametrize("name", ENTRIES)
def test_the_options_of_a_long_list_are_in_panels(name: str) -> None:
    options = [
        parameter
        for parameter in load_command(name).params
        if parameter.param_type_name == "option"
    ]
    loose = [ungrouped.opts[0] for ungrouped in options if not ungrouped.rich_help_panel]

    assert len(loose) <= MAX_UNGROUPED
    if len(options) > MAX_UNGROUPED:
        panels = {option.rich_help_panel for option in options if option.rich_help_panel}
        assert len(panels) >= 2


def test_every_command_is_in_a_panel_of_at_most_eight() -> None:
    panels = Counter(entry.panel for entry in ENTRIES.values())

    assert "" not in panels
    assert max(panels.values()) <= MAX_UNGROUPED


BY_LIMITS = {
    "max_turns_per_handoff",
    "max_tokens",
    "max_usd",
    "max_rounds",
    "max_depth",
    "approve_above_usd",
    "min_usd",
}
"""Options whose bounds `supervisor.cli.request_options` or `amount` of `supervisor.cli.options`
checks, with the bounds of `shared.types.limits`.
"""


def numeric_options() -> Iterator[tuple[str, str, Any]]:
    """Yield the command, the parameter and the option, for each option that takes a number."""
    for name, entry in ENTRIES.items():
        module, _, function = entry.place.partition(":")
        command = getattr(import_module(f"handoff_queue.supervisor.cli.{module}"), function)
        hints = get_type_hints(inspect.unwrap(command), include_extras=True)
        hints |= {
            argument.name: argument.annotation
            for argument in inspect.signature(command).parameters.values()
            if not isinstance(argument.annotation, str)
        }
        for parameter, hint in hints.items():
            kind, *about = get_args(hint) or (None,)
            if {int, float} & {kind, *get_args(kind)} and about:
                yield name, parameter, about[0]


@pytest.mark.parametrize(("command", "parameter", "option"), list(numeric_options()))
def test_every_option_that_is_a_number_has_bounds(
    command: str, parameter: str, option: Any
) -> None:
    is_bounded = option.min is not None and option.max is not None
    is_bounded = is_bounded or isinstance(option.parser, DurationRange)

    assert is_bounded or parameter in BY_LIMITS


@pytest.mark.parametrize("value", [-1, 10**16, 9_300_000_000_000_000, 10**30])
@pytest.mark.parametrize(
    ("field", "option"),
    [
        ("max_turns_per_handoff", "--max-turns-per-handoff"),
        ("max_turns", "--max-turns"),
        ("max_tokens", "--max-tokens"),
        ("max_usd", "--max-usd"),
        ("max_rounds", "--max-rounds"),
        ("max_depth", "--max-depth"),
        ("timeout_s", "--timeout"),
    ],
)
def test_a_limit_outside_its_bounds_names_its_option(field: str, option: str, value: int) -> None:
    with pytest.raises(UserError, match=f"^{option}[^\n]*$"):
        build_limits(RequestOptions("x", **{field: value}))  # type: ignore[arg-type]


DURATIONS = [
    (name, option)
    for name in ENTRIES
    for option in load_command(name).params
    if option.param_type_name == "option" and option.metavar == "TIME"
]


@pytest.mark.parametrize(("command", "option"), DURATIONS, ids=str)
def test_every_option_that_is_a_duration_takes_units(command: str, option: Any) -> None:
    values = {"500ms": 0.5, "1m": 60.0} if option.name == "every" else {"1h30m": 5400, "90": 90}
    for text, seconds in values.items():
        assert parsed_parameters(command, f"{option.opts[0]}={text}")[option.name] == seconds


@pytest.mark.parametrize("value", ["10 minutes", "-1", "1m30", "400d"])
@pytest.mark.parametrize(("command", "option"), DURATIONS, ids=str)
def test_a_text_that_is_not_a_duration_is_refused_with_its_option(
    command: str, option: Any, value: str
) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        parsed_parameters(command, f"{option.opts[0]}={value}")

    line = refused.value.format_message()
    assert f"'{option.opts[0]}'" in line
    assert f"{value!r} is not a duration" in line or f"{value!r} is too long: at most" in line


def test_options_in_seconds_are_all_durations() -> None:
    assert {option.opts[0] for _, option in DURATIONS} == {
        "--timeout", "--approve-timeout", "--older-than", "--reconnect", "--wait", "--every",
        "--expires", "--deadline", "--newer-than",
    }  # fmt: skip
    assert not [
        (name, option.name)
        for name in ENTRIES
        for option in load_command(name).params
        if "second" in (option.help or "").lower()
    ]


def parsed_parameters(command: str, *options: str) -> dict[str, Any]:
    """Return the parsed parameters of a command. Each argument gets the value of a placeholder
    word.
    """
    arguments = [
        "j-0123456789ab"
        for parameter in load_command(command).params
        if parameter.param_type_name == "argument" and parameter.required
    ]
    return dict(load_command(command).make_context(command, [*arguments, *options]).params)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, 0.0])
def test_an_amount_that_the_budget_cannot_count_is_refused(value: float) -> None:
    with pytest.raises(UserError, match=r"^--max-usd"):
        build_new_limits(None, None, value)
    with pytest.raises(UserError, match=r"^--max-tokens"):
        build_new_limits(None, 10**30, None)


def test_turns_of_a_handoff_and_turns_of_a_job_have_options_of_their_own() -> None:
    limits = build_limits(RequestOptions("x", max_turns_per_handoff=3, max_turns=40))
    options = {
        name: {opt for parameter in load_command(name).params for opt in parameter.opts}
        for name in ENTRIES
    }

    assert (limits.max_turns_per_handoff, limits.max_turns) == (3, 40)
    assert build_new_limits(40, None, None).max_turns == 40
    assert "--max-turns" in options["retry"]
    assert "--max-turns-per-handoff" not in options["retry"]
    for name in ("run", "submit", "quote"):
        assert options[name] >= {"--max-turns-per-handoff", "--max-turns"}


@pytest.mark.parametrize("name", ENTRIES)
def test_the_help_of_a_command_shows_no_notation_of_types_defaults_and_bounds(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        load_command(name).make_context(name, ["--help"])

    shown = capsys.readouterr().out
    assert "Show this message" in shown
    assert re.findall(r"<(?:bool|str|path|list\[\w+\])>|default: \(.*|x[<>]=|[<>]=x", shown) == []


@pytest.mark.parametrize(
    ("option", "bounds"),
    [("--max-turns", "[1 to 10,000,000]"), ("--max-tokens", "[at least 1]")],
)
def test_the_help_shows_the_bounds_of_a_number_in_words(
    option: str, bounds: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(typer.Exit):
        load_command("run").make_context("run", ["--help"])

    lines = capsys.readouterr().out.splitlines()
    assert [bounds in line for line in lines if f"{option} " in line] == [True]
