"""`handoff specialists`: list the specialists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from handoff_queue.shared.settings.folders import expand_folder
from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.settings.settings import Settings, load_settings
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.cli.connection import NO_WORKERS, create_client
from handoff_queue.supervisor.cli.display.terminal import (
    get_stdout,
    print_message,
    print_progress,
    write_as_json,
    write_line,
)
from handoff_queue.supervisor.cli.errors import FAILED, OK
from handoff_queue.supervisor.cli.options import AsJson, OwnSpecialists, OwnTools
from handoff_queue.supervisor.cli.supervisor_and_worker import (
    check_own,
    with_own,
)
from handoff_queue.supervisor.client.json_forms import convert_specialist
from handoff_queue.supervisor.text.sanitizing import flatten_to_line

if TYPE_CHECKING:
    from handoff_queue.shared.store.presence import ServedSpecialist

TABLE_COLUMNS = 120
"""Least width of a table. A narrower table has no room for the descriptions."""


def specialists(
    lint: Annotated[
        bool,
        typer.Option(
            "--lint", help="Check the specialist files. Exits with 1 if there is a remark."
        ),
    ] = False,
    accept_mcp: Annotated[
        Path | None,
        typer.Option(
            "--accept-mcp",
            metavar="FILE",
            help="Show the tools of the MCP servers of this specialist's file, and accept them.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Accept the tools without a question.")
    ] = False,
    own_folders: OwnSpecialists = [],  # noqa: B006
    tools: OwnTools = [],  # noqa: B006
    as_json: AsJson = False,
) -> int:
    """List the specialists with their workers, load and tools.

    Without a broker, or with --specialists, --tools or --lint, the command lists the specialists
    of the files on this machine.
    """
    _check_options(
        accept_mcp, lint=lint, yes=yes, as_json=as_json, own_folders=own_folders, tools=tools
    )
    if accept_mcp is not None:
        from handoff_queue.supervisor.cli.mcp_acceptance import accept_mcp as accept

        return accept(accept_mcp, is_sure=yes)
    settings = with_own(load_settings(), own_folders, tools)
    if lint:
        return _lint(settings)
    if settings.redis_url is None or own_folders or tools:
        specs, _ = _read_files(settings)
        if not as_json:
            print_progress(
                "from files; set HANDOFF_REDIS_URL to list the specialists of live workers"
            )
        _print(specs, None, as_json=as_json)
        return OK
    store = create_client(settings).store
    served = store.presence.load_served_specialists()
    live_specs = {name: specialist.spec for name, specialist in served.items()}
    _print(live_specs, served, as_json=as_json)
    if not served:
        print_message(store.health.find_refusal() or NO_WORKERS)
        return FAILED
    return OK


def _print(
    specs: Mapping[str, SpecialistSpec],
    served: Mapping[str, ServedSpecialist] | None,
    *,
    as_json: bool,
) -> None:
    """Print the specialists.

    Args:
        served: the specialists with their live workers. None: the specialists come from files.
    """
    if as_json:
        live = served or {}
        write_as_json([convert_specialist(spec, live.get(spec.name)) for spec in specs.values()])
    else:
        console = get_stdout()
        console.print(build_specialists_view(specs, served, console.width))


def _check_options(
    accept_mcp: Path | None,
    *,
    lint: bool,
    yes: bool,
    as_json: bool,
    own_folders: Sequence[Path],
    tools: Sequence[Path],
) -> None:
    """Refuse the options that the command would ignore.

    Raises:
        UserError: the message names the options.
    """
    if accept_mcp is not None and (lint or as_json or own_folders or tools):
        raise UserError("with --accept-mcp FILE, the command takes --yes only: leave the rest out")
    if yes and accept_mcp is None:
        raise UserError("--yes is for --accept-mcp FILE: leave it out")
    if lint and as_json:
        raise UserError("--lint prints one remark a line and no JSON: leave out --json")


def _read_files(settings: Settings) -> tuple[dict[str, SpecialistSpec], list[str]]:
    """Return the specialists of the files, and the printed messages about tools.

    Raises:
        UserError: a file or the policy is not valid, or a file names a tool that no worker here
            would have.
    """
    from handoff_queue.shared.specialists import find_specialists_folder, load_specialists
    from handoff_queue.shared.specialists.policy_file import read_rules

    folders = [find_specialists_folder()]
    for folder in settings.specialists_dirs:
        folders.append(expand_folder(folder, "--specialists"))
    specs = load_specialists(*folders)
    read_rules(settings.policy_file)
    return specs, check_own(settings)


def _lint(settings: Settings) -> int:
    from handoff_queue.shared.specialists.lint import lint

    specs, messages = _read_files(settings)
    remarks = lint(specs.values())
    for remark in remarks:
        write_line(str(remark))
    for line in iterate_runner_notes(specs.values()):
        print_progress(line)
    count = len(remarks) + len(messages)
    print_progress(f"{len(specs)} specialists, {format_count(count, 'remark')}")
    if count:
        return FAILED
    return OK


def iterate_runner_notes(specs: Iterable[SpecialistSpec]) -> Iterator[str]:
    """Yield a line for each specialist whose runner is not installed here. This is not a fault of
    the file, because a worker may run on another machine.
    """
    for spec in specs:
        if spec.runner is not None:
            try:
                check_extra(spec.runner, f"{spec.name}: runner: {spec.runner}", spec.runner)
            except UserError as error:
                yield f"{error} on the machine of its worker"


def build_specialists_view(
    specs: Mapping[str, SpecialistSpec], served: Mapping[str, ServedSpecialist] | None, columns: int
) -> RenderableType:
    """Return a table of the specialists, or paragraphs on a narrow screen.

    The descriptions are complete, as the planner sees them.

    Args:
        served: the specialists with their live workers. None: the specialists come from files.
        columns: width of the screen in characters.
    """
    if columns >= TABLE_COLUMNS:
        return _build_table(specs, served)
    return _build_paragraphs(specs, served)


def _build_table(
    specs: Mapping[str, SpecialistSpec], served: Mapping[str, ServedSpecialist] | None
) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("specialist", no_wrap=True)
    if served is not None:
        for heading in ("workers", "slots", "queued"):
            table.add_column(heading, justify="right")
    table.add_column("tools")
    table.add_column("description")
    for name, spec in specs.items():
        load: tuple[int, ...] = ()
        if served is not None:
            load = (len(served[name].workers), served[name].slots, served[name].queued)
        table.add_row(
            name + _pause_suffix(name, served),
            *map(str, load),
            ", ".join(spec.tools) or "-",
            flatten_to_line(spec.description),
        )
    return table


def _build_paragraphs(
    specs: Mapping[str, SpecialistSpec], served: Mapping[str, ServedSpecialist] | None
) -> RenderableType:
    parts: list[RenderableType] = []
    for name, spec in specs.items():
        parts.append(Text(name + _pause_suffix(name, served), style="bold"))
        if served is not None:
            live = served[name]
            workers = format_count(len(live.workers), "worker")
            slots = format_count(live.slots, "slot")
            parts.append(_indent_text(f"{workers}, {slots}, {live.queued} queued"))
        if spec.celery_task is None:
            parts.append(_indent_text(f"tools: {', '.join(spec.tools) or '-'}"))
        else:
            parts.append(_indent_text(f"Celery task: {spec.celery_task}"))
        parts.append(_indent_text(flatten_to_line(spec.description)))
    return Group(*parts)


def _pause_suffix(name: str, served: Mapping[str, ServedSpecialist] | None) -> str:
    if served is not None and served[name].paused:
        return " (paused)"
    return ""


def _indent_text(text: str) -> RenderableType:
    return Padding(Text(text), (0, 0, 0, 2), expand=False)
