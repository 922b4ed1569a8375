"""`handoff chaos`: the proof that anyone can run. It needs no Redis, no key and no network; it starts all of them itself."""

from __future__ import annotations

import json
import secrets
from enum import StrEnum
from typing import Annotated

import typer

from shared.wire.errors import UserError
from supervisor.cli.errors import FAILED, OK, say
from supervisor.cli.options import AsJson
from supervisor.cli.terminal import write_line


class Control(StrEnum):
    """What is run instead of this system."""

    CELERY = "celery"


def chaos(
    jobs: Annotated[int, typer.Option(min=1, help="How many jobs.")] = 50,
    kills: Annotated[int, typer.Option(min=0, help="How often SIGKILL is sent; other faults come in between.")] = 20,
    seed: Annotated[int | None, typer.Option(min=0, help="What is run, and what is struck; a new one each time if not given.")] = None,
    workers: Annotated[int, typer.Option(min=2, max=32, help="Worker processes.")] = 4,
    supervisors: Annotated[int, typer.Option(min=2, max=32, help="Supervisor processes.")] = 3,
    failpoints: Annotated[bool, typer.Option("--failpoints", help="Instead: every failpoint, one after the other.")] = False,
    control: Annotated[Control | None, typer.Option(help="Instead: the holes of plain chords, in plain Celery and here.")] = None,
    as_json: AsJson = False,
) -> int:
    """Run jobs while processes are killed, and say what was kept of the promises.

    Starts a private Redis, supervisors, workers and a model's server. They are killed at random, stopped past their leases, frozen;
    connections are cut, messages delivered twice; the model is busy, or talks nonsense.

      handoff chaos --kills 200

      handoff chaos --failpoints

      handoff chaos --control celery
    """
    from chaos import report, run
    from chaos.fleet import Size

    if failpoints and control is not None:
        raise UserError("--failpoints and --control are two different runs: choose one")
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    if control is not None:
        found = run.try_holes(say)
        write_line(json.dumps(report.holes_json(found)) if as_json else report.holes_table(found))
        return OK if all(one.calm and one.was_hit and one.ended for outcomes in found.values() for one in outcomes.values()) else FAILED
    options = run.Options(chosen, jobs, kills, Size(workers, supervisors))
    say(f"seed {chosen}")
    books = run.try_failpoints(options, say) if failpoints else run.run(options, say)
    write_line(json.dumps(report.json_of(books) | {"seed": chosen}) if as_json else report.table_of(books))
    return OK if report.is_kept(books) else FAILED
