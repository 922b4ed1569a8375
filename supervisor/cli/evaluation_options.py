"""Options that `handoff eval` and `handoff compare` share: modes, models, a workflow and limits."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.errors import INTERRUPTED, UserError
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.cli.display.terminal import print_message
from handoff_queue.supervisor.cli.options import ADVANCED
from handoff_queue.supervisor.cli.request_options import (
    RequestOptions,
    build_limits,
    print_left_out_files,
)

if TYPE_CHECKING:
    from handoff_queue.shared.documents.folder import FolderReading
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.supervisor.client.request import Request
    from handoff_queue.supervisor.evaluation.trials import Variant
    from handoff_queue.supervisor.workflows import Workflow

PIPELINE = "brief"
"""The workflow of mode `pipeline` without `--workflow`."""
MAX_WAYS = 50
"""Most variants of one evaluation."""


def build_variants(modes: str, models: str | None) -> tuple[Variant, ...]:
    """Return each mode with each model.

    Raises:
        UserError: a name occurs twice or does not exist, or there are too many variants.
    """
    from handoff_queue.supervisor.evaluation.trials import Variant

    chosen_modes = [_parse_mode(name) for name in _parse_names(modes, "--modes")]
    chosen_models: tuple[str | None, ...] = (None,)
    if models is not None:
        chosen_models = _parse_names(models, "--models")
    variants: list[Variant] = []
    for mode in chosen_modes:
        for model in chosen_models:
            variants.append(Variant(mode, model))
    if len(variants) > MAX_WAYS:
        raise UserError(
            f"{len(variants)} combinations of mode and model are too many, at most {MAX_WAYS}:"
            " take fewer modes or models"
        )
    return tuple(variants)


PipelineWorkflow = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The workflow of mode pipeline.",
        show_default=PIPELINE,
        rich_help_panel=ADVANCED,
    ),
]


def read_workflow_for(variants: Sequence[Variant], name: str | None) -> Workflow | None:
    """Return the workflow for mode `pipeline`, or None without this mode.

    Raises:
        UserError: the workflow does not exist or is not valid, or no mode runs it.
    """
    from handoff_queue.supervisor.workflows import read_workflow

    if any(variant.mode is Mode.PIPELINE for variant in variants):
        return read_workflow(name or PIPELINE)
    if name is not None:
        raise UserError("--workflow is for the mode pipeline: add it to --modes, or leave it out")
    return None


def print_resume_hint(run: str) -> int:
    """Print how to continue after Ctrl-C. Return the exit code."""
    print_message(f"interrupted: the same command with --run {run} continues here")
    return INTERRUPTED


def choose_run_name(name: str | None, kind: str) -> str:
    """Return the name of a run. Without a name: `kind-` and six random hexadecimal digits.

    Raises:
        UserError: the name could not be the name of a file.
    """
    if name is None:
        return f"{kind}-{secrets.token_hex(3)}"
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,47}", name):
        raise UserError(
            f"--run {name[:60]!r} is not a name: use small letters, digits, - and _, at most 48, a"
            " letter first"
        )
    return name


def build_job_limits(timeout_s: int | None, settings: Settings) -> JobLimits:
    """Return the limits of each job.

    Raises:
        UserError: `timeout_s` is out of bounds.
    """
    return build_limits(RequestOptions("", timeout_s=timeout_s), settings.max_depth)


def read_documents(place: Path, settings: Settings) -> FolderReading:
    """Return the documents of a case. Print a line for each file that is left out.

    Raises:
        UserError: see `Client.read_documents`.
    """
    from handoff_queue.supervisor.client.client import connect
    from handoff_queue.supervisor.client.request import Request

    request = Request("-", documents=place, strict_documents=False)
    reading = connect(settings=settings).read_documents(request)
    print_left_out_files(reading)
    return reading


def check_within(request: Request, settings: Settings, max_usd: float | None) -> None:
    """Check a request of an evaluation without Redis, before anything starts.

    With --max-usd each job will get a limit of its cost, so the prices of its models must be
    known. The amount does not matter here.

    Raises:
        UserError: see `check_request` and `plan_of`.
    """
    from handoff_queue.supervisor.client.request import check_request
    from handoff_queue.supervisor.client.submission import build_plan

    max_microusd = None
    if max_usd is not None:
        max_microusd = 1
    limits = request.limits.model_copy(update={"max_microusd": max_microusd})
    check_request(replace(request, limits=limits), settings)
    build_plan(request)


def describe_worst_case(limit: str | None, *, is_free: bool) -> str:
    """Return the highest cost in words.

    Args:
        limit: the limit of --max-usd, as a text; None: there is no limit.
    """
    if is_free:
        return "nothing: the offline model answers"
    if limit:
        return f"at most {limit}"
    return "as much as its jobs need: set a limit with --max-usd"


def _parse_names(text: str, option: str) -> tuple[str, ...]:
    """Return the names of a comma-separated text.

    Raises:
        UserError: a name is empty or occurs twice.
    """
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise UserError(f"{option} {text[:60]!r} has an empty name: write names as in A,B")
    if len(set(names)) != len(names):
        raise UserError(f"{option} {text[:60]!r} names a value twice: write each name once")
    return names


def _parse_mode(name: str) -> Mode:
    try:
        return Mode(name)
    except ValueError as error:
        fix = suggest_name(name, Mode)
        raise UserError(f"--modes: {name[:40]!r} is not a mode: {fix}") from error
