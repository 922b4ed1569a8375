"""`handoff golden`: add an ended job to a golden set."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.connection import Job, connect_and_find_job
from handoff_queue.supervisor.cli.display.atomic_output import STDOUT, check_target, write_out
from handoff_queue.supervisor.cli.display.file_errors import describe_file_problem
from handoff_queue.supervisor.cli.display.terminal import write_line
from handoff_queue.supervisor.cli.errors import OK

if TYPE_CHECKING:
    from handoff_queue.supervisor.evaluation.golden_set import NewCase


class GoldenAction(StrEnum):
    """Actions of `handoff golden`."""

    ADD = "add"


def _check_golden_file(text: str) -> Path:
    """Return the file. Check it before the documents of the case are written."""
    target = Path(text)
    if target == STDOUT:
        raise typer.BadParameter("a golden set is a file: name one, such as golden.jsonl")
    try:
        check_target(target)
    except OSError as error:
        raise typer.BadParameter(describe_file_problem(error)) from error
    return target


def golden(
    action: Annotated[GoldenAction, typer.Argument(metavar="ACTION", help="add.")],  # noqa: ARG001
    job: Job,
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="FILE",
            parser=_check_golden_file,
            help="The golden set: one case in each line.",
        ),
    ] = Path("golden.jsonl"),
    name: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="The id of the case. Default: JOB.")
    ] = None,
) -> int:
    """Add an ended job to a golden set for `handoff eval`.

    The answer of the job becomes the reference, without gaps and open points. The request has the
    tasks that a fork has changed. A job with items or with --after is refused. The gates and the
    rubric of the job become the checks. For a job without gates, the check is that the answer cites
    a source, if the answer of the job does. A job without any check gets the default rubric. The
    documents are written to a folder next to the file, with the id as its name.

    handoff golden add j-k5tq2wbz7x3mhd4n --to golden.jsonl --id resale
    """
    from handoff_queue.supervisor.evaluation.golden_set import build_case, check_paths, read_golden

    jobs, job_id = connect_and_find_job(job)
    case = build_case(jobs.export(job_id, texts=True), name or job_id)
    before = ""
    if to.exists():
        if any(other.id == case.case.id for other in read_golden(to)):
            raise UserError(f"{to} has a case {case.case.id} already: choose another --id")
        before = to.read_text(encoding="utf-8")
    folder = to.parent / case.case.id
    check_paths(folder, case.documents)
    _write(to, before, case, folder)
    write_line(f"{case.case.id} is a case of {to}: `handoff eval {to}` runs it")
    return OK


def _write(to: Path, before: str, case: NewCase, folder: Path) -> None:
    """Write the documents first, so that a case in the file always has its documents.

    Raises:
        UserError: the folder exists already.
    """
    if case.documents:
        try:
            folder.mkdir(parents=True)
        except FileExistsError as error:
            raise UserError(
                f"{folder} exists already: choose another --id, or remove the folder"
            ) from error
    for path, text in case.documents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_out(folder / path, text)
    if before and not before.endswith("\n"):
        before += "\n"
    write_out(to, f"{before}{case.format_line()}\n")
