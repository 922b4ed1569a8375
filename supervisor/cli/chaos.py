"""`handoff chaos`: test the promises under random faults, without Redis, a key or a network."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Annotated

import typer

from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.cli.display.terminal import print_message, write_line
from handoff_queue.supervisor.cli.errors import FAILED, OK
from handoff_queue.supervisor.cli.options import AsJson

if TYPE_CHECKING:
    from handoff_queue.chaos.job_generator import Draw

CHORDS = "chords"
"""Value of --only for the jobs that plain Celery chords support, too."""
FEATURES = "features"
"""Value of --only for the jobs with several models, batches, the Claude Agent SDK, requests that
the provider shortens, notes and forks.
"""


SIZE = "Size"
"""A panel of options in the help."""


def chaos(
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=100_000,
            help="Number of jobs.",
            show_default="50",
            rich_help_panel=SIZE,
        ),
    ] = None,
    kills: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=100_000,
            help="Number of SIGKILLs. Other faults come in between.",
            show_default="20",
            rich_help_panel=SIZE,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=2**53,
            help="Seed of the jobs and the faults. Default: random.",
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(metavar="N", min=2, max=32, help="Worker processes.", rich_help_panel=SIZE),
    ] = 4,
    supervisors: Annotated[
        int,
        typer.Option(
            metavar="N", min=2, max=32, help="Supervisor processes.", rich_help_panel=SIZE
        ),
    ] = 3,
    failpoints: Annotated[
        bool, typer.Option("--failpoints", help="Try every failpoint instead of random faults.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="MODES",
            help="Only jobs of these modes, comma-separated, or `chords` or `features`.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Kill processes while jobs run, and check every promise.

    The command starts a private Redis, supervisors, workers, two HTTP servers and a model
    server. It kills, stops and freezes processes at random, cuts connections and delivers
    messages twice. The jobs have all modes, with child jobs, joins, patches and approvals.
    Users submit jobs, answer questions and use schedules through the HTTP API.

      handoff chaos --kills 200

      handoff chaos --failpoints

      handoff chaos --only adaptive,pipeline
    """
    if failpoints and (jobs, kills) != (None, None):
        raise UserError("--failpoints tries each failpoint once: leave out --jobs and --kills")
    check_extra("serve", "handoff chaos")
    from handoff_queue.chaos import report, run
    from handoff_queue.chaos.fleet import Size

    if seed is None:
        run_seed = secrets.randbelow(1_000_000)
    else:
        run_seed = seed
    options = run.Options(
        run_seed,
        50 if jobs is None else jobs,
        20 if kills is None else kills,
        size=Size(workers, supervisors),
        draw=_draw(only),
    )
    print_message(f"seed {run_seed}")
    if failpoints:
        records = run.try_failpoints(options, print_message)
    else:
        records = run.run(options, print_message)
    if as_json:
        write_line(json.dumps(report.convert_to_json(records) | {"seed": run_seed}))
    else:
        write_line(report.format_table(records))
    if report.is_kept(records):
        return OK
    return FAILED


def _draw(only: str | None) -> Draw | None:
    """Return the generator of the jobs that --only allows, or None without --only.

    Raises:
        UserError: a word is not a mode.
    """
    from handoff_queue.chaos import job_generator as drawing

    if only is None:
        return None
    names = [name.strip() for name in only.split(",")]
    if names == [CHORDS]:
        return drawing.ONLY_CHORDS
    if names == [FEATURES]:
        return drawing.ONLY_FEATURES
    known = [mode.value for mode in Mode]
    unknown_names = [name for name in names if name not in known]
    if unknown_names:
        otherwise = f"name modes, or {CHORDS} or {FEATURES} alone"
        fix = suggest_name(unknown_names[0], known, otherwise=otherwise)
        raise UserError(f"--only {unknown_names[0]!r:.80} is not a mode: {fix}")
    return drawing.only([Mode(name) for name in names])
