"""`handoff chaos`: the proof that anyone can run. It needs no Redis, no key and no network; it
starts all of them itself.
"""

from __future__ import annotations

import json
import secrets
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from handoff_queue.shared.text.words import suggestion
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.cli.display.terminal import say, write_line
from handoff_queue.supervisor.cli.errors import FAILED, OK
from handoff_queue.supervisor.cli.options import AsJson

if TYPE_CHECKING:
    from handoff_queue.chaos.job_generator import Draw

CHORDS = "chords"
"""Stands for the jobs that plain chords can do, too."""


SIZE = "Size"


class Control(StrEnum):
    """What is run instead of this system."""

    CELERY = "celery"


def chaos(
    jobs: Annotated[
        int, typer.Option(min=1, max=100_000, help="How many jobs.", rich_help_panel=SIZE)
    ] = 50,
    kills: Annotated[
        int,
        typer.Option(
            min=0,
            max=100_000,
            help="How often SIGKILL is sent; other faults come in between.",
            rich_help_panel=SIZE,
        ),
    ] = 20,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**53,
            help="What is run, and what is struck; a new one each time if not given.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=2, max=32, help="Worker processes.", rich_help_panel=SIZE)
    ] = 4,
    supervisors: Annotated[
        int, typer.Option(min=2, max=32, help="Supervisor processes.", rich_help_panel=SIZE)
    ] = 3,
    failpoints: Annotated[
        bool, typer.Option("--failpoints", help="Instead: every failpoint, one after the other.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            help="Jobs of these modes alone, comma-separated; `chords`: those of the control."
        ),
    ] = None,
    control: Annotated[
        Control | None,
        typer.Option(help="The same run, and all failpoints, on this instead: it must fail."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run jobs while processes are killed, and say what was kept of the promises.

    Starts a private Redis, supervisors, workers and a model's server. They are killed at
    random, stopped past their leases, frozen; connections are cut, messages delivered twice;
    the model is busy, or talks nonsense. The jobs are of all modes: teams of teams, joins,
    patches, approvals and the rest.

      handoff chaos --kills 200

      handoff chaos --failpoints

      handoff chaos --only adaptive,pipeline

      handoff chaos --control celery
    """
    from handoff_queue.chaos import report, run
    from handoff_queue.chaos.fleet import Size

    if control is not None:
        _check_control(only, failpoints=failpoints)
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    options = run.Options(chosen, jobs, kills, size=Size(workers, supervisors), draw=_draw(only))
    say(f"seed {chosen}")
    if control is not None:
        found = run.control(options, say)
        write_line(
            json.dumps(report.control_json(found) | {"seed": chosen})
            if as_json
            else report.control_table(found)
        )
        return OK if report.is_control_kept(found) else FAILED
    books = run.try_failpoints(options, say) if failpoints else run.run(options, say)
    write_line(
        json.dumps(report.json_of(books) | {"seed": chosen}) if as_json else report.table_of(books)
    )
    return OK if report.is_kept(books) else FAILED


def _check_control(only: str | None, *, failpoints: bool) -> None:
    """Raises: UserError: it is told what it does anyway, or what it cannot do."""
    if failpoints:
        raise UserError("the control goes through the failpoints anyway: leave out --failpoints")
    if only is not None:
        raise UserError(
            "the control gets the jobs of --only chords anyway, and knows no others: leave out --only"
        )


def _draw(only: str | None) -> Draw | None:
    """Raises: UserError: a word that is no mode."""
    from handoff_queue.chaos import job_generator as drawing

    if only is None:
        return None
    named = [name.strip() for name in only.split(",")]
    if named == [CHORDS]:
        return drawing.ONLY_CHORDS
    known = [mode.value for mode in Mode]
    if unknown := [name for name in named if name not in known]:
        fix = suggestion(unknown[0], known, otherwise=f"name modes, or {CHORDS} alone")
        raise UserError(f"--only {unknown[0]!r:.80} is not a mode: {fix}")
    return drawing.only([Mode(name) for name in named])
