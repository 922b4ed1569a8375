"""`handoff specialists`: who is served by live workers, and what each may use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from shared.config import Settings, load_settings
from shared.wire.specialist import SpecialistSpec
from supervisor.cli.built_in import built_in_specialists
from supervisor.cli.errors import FAILED, OK, say
from supervisor.cli.options import AsJson, OwnSpecialists
from supervisor.cli.processes import with_own
from supervisor.cli.terminal import note, short, stdout, write_line

if TYPE_CHECKING:
    from shared.ledger.roles import Served


def specialists(
    lint: Annotated[bool, typer.Option("--lint", help="Warn of what will make them work badly; exit 1 if there is anything.")] = False,
    as_json: AsJson = False,
    own: OwnSpecialists = [],  # noqa: B006
) -> int:
    """Who is served by live workers, how busy they are, and what tools each may use.

    Without a broker, or with --specialists or --lint: the specialists that the files on this machine describe.
    """
    settings = with_own(load_settings(), own, [])
    if lint:
        return _lint(settings)
    served = _served(settings) if settings.redis_url is not None and not own else None
    specs = {name: one.spec for name, one in served.items()} if served is not None else _in_files(settings)
    if as_json:
        write_line(json.dumps([_as_json(spec, (served or {}).get(spec.name)) for spec in specs.values()], ensure_ascii=False))
    else:
        if served is None:
            note("from files; who is served by live workers is known with HANDOFF_REDIS_URL")
        _print(specs, served)
    if served is not None and not served:
        say("no worker serves any specialist on this broker: start one (`handoff worker --all`, or `handoff up`)")
        return FAILED
    return OK


def _served(settings: Settings) -> Mapping[str, Served]:
    from supervisor import client

    return client.connect(settings=settings).ledger.roles.served()


def _in_files(settings: Settings) -> dict[str, SpecialistSpec]:
    from shared.specialists import load_specialists

    return load_specialists(built_in_specialists(), *map(Path.expanduser, settings.specialists_dirs))


def _lint(settings: Settings) -> int:
    from shared.specialists.lint import lint

    specs = _in_files(settings)
    remarks = lint(specs.values())
    for remark in remarks:
        write_line(str(remark))
    note(f"{len(specs)} specialists, {len(remarks)} remarks")
    return FAILED if remarks else OK


def _print(specs: Mapping[str, SpecialistSpec], served: Mapping[str, Served] | None) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("specialist", no_wrap=True)
    if served is not None:
        for heading in ("workers", "slots", "queued"):
            table.add_column(heading, justify="right")
    table.add_column("tools")
    table.add_column("what it is for")
    for name, spec in specs.items():
        live = [] if served is None else [str(len(served[name].workers)), str(served[name].slots), str(served[name].queued)]
        table.add_row(name, *live, ", ".join(spec.tools) or "-", short(spec.description, 200))
    stdout().print(table)


def _as_json(spec: SpecialistSpec, live: Served | None) -> dict[str, Any]:
    shown = {"name": spec.name, "description": spec.description, "tools": spec.tools, "model": spec.model, "max_turns": spec.max_turns}
    if live is None:
        return shown
    return shown | {"workers": live.workers, "slots": live.slots, "queued": live.queued, "models": live.models}
