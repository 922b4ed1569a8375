"""Options that several commands share, such as the filters by status and tenant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.text.times import DurationRange
from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.job_options import MAX_WAIT_S, Mode, OnTimeout, Priority
from handoff_queue.shared.types.limits import (
    MAX_COUNT,
    MAX_DEPTH,
    MAX_SECONDS,
    MAX_SLOTS,
    MAX_USD,
    OnLimit,
)
from handoff_queue.shared.types.usage import to_microusd
from handoff_queue.supervisor.cli.display.file_errors import describe_file_problem

# Panels of options in the help of a command.
PLAN = "Plan"
SPECIALISTS = "Specialists and documents"
REVIEW = "Review"
BUDGET = "Budget"
APPROVALS = "Approvals"
OUTPUT = "Output"
ADVANCED = "Advanced"
FILTERS = "Filters"

ROW_FORMATS = (".jsonl", ".csv")
"""Suffixes of a file of rows."""
RequestText = Annotated[
    str | None,
    typer.Argument(metavar="REQUEST", help="The request in plain words. `-` reads it from stdin."),
]


Docs = Annotated[
    Path | None,
    typer.Option(
        "--docs",
        metavar="DIR",
        help="The folder or file to work from.",
    ),
]
StrictDocs = Annotated[
    bool,
    typer.Option(
        "--strict-docs",
        help="Refuse the job if a document cannot be read.",
        rich_help_panel=SPECIALISTS,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="The model of all agents of this job.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        metavar="K",
        help="The same key gives the same job, also when sent twice.",
        rich_help_panel=ADVANCED,
    ),
]
MaxTurnsPerHandoff = Annotated[
    int | None,
    typer.Option(
        "--max-turns-per-handoff",
        metavar="N",
        min=1,
        help="Turns of one handoff, at most.",
        rich_help_panel=BUDGET,
    ),
]
MaxTurns = Annotated[
    int | None,
    typer.Option(
        "--max-turns",
        metavar="N",
        min=1,
        max=MAX_COUNT,
        help="Turns of the whole job, at most. Default: 200, or 10 per workflow step.",
        rich_help_panel=BUDGET,
    ),
]
MaxUsd = Annotated[
    float | None,
    typer.Option(
        "--max-usd",
        metavar="X",
        help="Cost of the whole job in dollars, at most.",
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        metavar="N",
        min=1,
        help="Input and output tokens of the whole job, at most.",
        rich_help_panel=BUDGET,
    ),
]
MaxRounds = Annotated[
    int | None,
    typer.Option(
        "--max-rounds",
        metavar="N",
        min=0,
        max=10,
        help="Times that a review may send work back.",
        rich_help_panel=REVIEW,
    ),
]
MaxDepth = Annotated[
    int | None,
    typer.Option(
        "--max-depth",
        metavar="N",
        min=0,
        max=MAX_DEPTH,
        help="Levels of child jobs; 0: no child jobs. Default: 2.",
        rich_help_panel=ADVANCED,
    ),
]
Timeout = Annotated[
    int | None,
    typer.Option(
        "--timeout",
        metavar="TIME",
        parser=DurationRange(1, MAX_SECONDS, is_whole=True),
        help="End the job after this time with the work so far: 90s, 10m, 1h30m.",
    ),
]
OnLimitOption = Annotated[
    OnLimit | None,
    typer.Option(
        "--on-limit",
        metavar="ACTION",
        help="At a limit: stop, wrap-up (default) or ask.",
        rich_help_panel=BUDGET,
    ),
]
AnswerSchema = Annotated[
    Path | None,
    typer.Option(
        "--answer-schema",
        metavar="FILE",
        help="A JSON Schema for the answer.",
        rich_help_panel=OUTPUT,
    ),
]
OwnSpecialists = Annotated[
    list[Path],
    typer.Option(
        "--specialists",
        metavar="DIR",
        help="A folder with your own specialists. Repeatable.",
        rich_help_panel=SPECIALISTS,
    ),
]
OwnTools = Annotated[
    list[Path],
    typer.Option(
        "--tools",
        metavar="DIR",
        help="A folder with your own tools. Repeatable.",
        rich_help_panel=SPECIALISTS,
    ),
]
ModeOption = Annotated[
    Mode | None,
    typer.Option(
        "--mode",
        metavar="MODE",
        help="auto, single, pipeline, team or adaptive. Default: HANDOFF_MODE, or auto.",
    ),
]
PriorityOption = Annotated[
    Priority | None,
    typer.Option(
        "--priority",
        metavar="LEVEL",
        help="interactive or batch. Default: HANDOFF_PRIORITY, or interactive.",
        rich_help_panel=ADVANCED,
    ),
]
Deadline = Annotated[
    int | None,
    typer.Option(
        "--deadline",
        metavar="TIME",
        parser=DurationRange(1, MAX_SECONDS, is_whole=True),
        help="With --priority batch: answer within this time, by batches at half price: 6h.",
        rich_help_panel=ADVANCED,
    ),
]
TenantOption = Annotated[
    str,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="The tenant that the job belongs to.",
        rich_help_panel=ADVANCED,
    ),
]
WorkflowOption = Annotated[
    str | None,
    typer.Option(
        "--workflow",
        metavar="NAME",
        help="Run the steps of a workflow: its name, or a .yaml file.",
        rich_help_panel=PLAN,
    ),
]
ItemsOption = Annotated[
    Path | None,
    typer.Option(
        "--items",
        metavar="FILE",
        help="Lines, or rows of a .csv file, for the workflow.",
        rich_help_panel=PLAN,
    ),
]
GatesOption = Annotated[
    Path | None,
    typer.Option(
        "--gates",
        metavar="FILE",
        help="Checks of the answer (YAML).",
        rich_help_panel=REVIEW,
    ),
]
RubricOption = Annotated[
    Path | None,
    typer.Option(
        "--rubric",
        metavar="FILE",
        help="Criteria of the review (YAML).",
        rich_help_panel=REVIEW,
    ),
]
NoReview = Annotated[
    bool,
    typer.Option(
        "--no-review",
        help="Leave out the review of a team's results.",
        rich_help_panel=REVIEW,
    ),
]
After = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="JOB",
        help="Start with the results of this ended job.",
        rich_help_panel=PLAN,
    ),
]
AfterLast = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="last",
        help="Start each job with the results of the schedule's last job.",
        rich_help_panel=PLAN,
    ),
]
GraderModel = Annotated[
    str | None,
    typer.Option(
        "--grader-model",
        metavar="NAME",
        help="The model that scores. Default: HANDOFF_REVIEW_MODEL.",
        rich_help_panel=REVIEW,
    ),
]
_APPROVALS = ("plan", "research", "answer", "tools")


def _check_approval(text: str) -> str:
    if text not in _APPROVALS:
        raise typer.BadParameter(
            f"{text[:40]!r} cannot be approved: use plan, research, answer or tools"
        )
    return text


Approve = Annotated[
    list[str],
    typer.Option(
        "--approve",
        parser=_check_approval,
        metavar="WHAT",
        help="Wait for approval of the plan, the research, the answer or tool calls. Repeatable.",
        rich_help_panel=APPROVALS,
    ),
]
ApproveAboveUsd = Annotated[
    float | None,
    typer.Option(
        "--approve-above-usd",
        metavar="X",
        help="Wait for approval once the job has cost more.",
        rich_help_panel=APPROVALS,
    ),
]
ApproveTimeout = Annotated[
    int | None,
    typer.Option(
        "--approve-timeout",
        metavar="TIME",
        parser=DurationRange(1, MAX_WAIT_S, is_whole=True),
        help="Time that a question waits for an answer: 10m, 2h, 7d.",
        rich_help_panel=APPROVALS,
    ),
]
OnTimeoutOption = Annotated[
    OnTimeout | None,
    typer.Option(
        "--on-timeout",
        metavar="ACTION",
        help="Without an answer: go-on, stop (default) or remind.",
        rich_help_panel=APPROVALS,
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        "-c",
        "--concurrency",
        metavar="N",
        min=1,
        max=MAX_SLOTS,
        help="Handoffs that run at the same time, one thread each.",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print JSON on stdout, and everything else on stderr.",
        rich_help_panel=OUTPUT,
    ),
]
AllowPartial = Annotated[
    bool,
    typer.Option(
        "--allow-partial",
        help="Exit with 0 instead of 5 if the answer is partial.",
        rich_help_panel=OUTPUT,
    ),
]


def _check_rows_file(text: str) -> Path:
    target = Path(text)
    if target.suffix.lower() not in ROW_FORMATS:
        raise typer.BadParameter(f"{text} must end in {' or '.join(ROW_FORMATS)}")
    from handoff_queue.supervisor.cli.display.atomic_output import check_target

    try:
        check_target(target)  # the rows of a private run would be lost at its end
    except OSError as error:
        raise typer.BadParameter(describe_file_problem(error)) from error
    return target


RowsFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        parser=_check_rows_file,
        help="Write one row per item of a workflow: rows.jsonl or rows.csv.",
        rich_help_panel=OUTPUT,
    ),
]


Statuses = Annotated[
    list[str],
    typer.Option(
        "--status",
        metavar="STATUS",
        help="Only jobs with this status, or these: A,B. Repeatable.",
        rich_help_panel=FILTERS,
    ),
]


Tenant = Annotated[
    str | None,
    typer.Option(
        "--tenant", metavar="NAME", help="Only jobs of this tenant.", rich_help_panel=FILTERS
    ),
]


OlderThan = Annotated[
    float | None,
    typer.Option(
        "--older-than",
        metavar="TIME",
        parser=DurationRange(0, MAX_SECONDS),
        help="Only jobs older than this: 90s, 10m, 2h, 3d, 1w.",
        rich_help_panel=FILTERS,
    ),
]


NewerThan = Annotated[
    float | None,
    typer.Option(
        "--newer-than",
        metavar="TIME",
        parser=DurationRange(0, MAX_SECONDS),
        help="Only jobs newer than this: 90s, 10m, 2h, 3d, 1w.",
        rich_help_panel=FILTERS,
    ),
]


def filter_option(name: str, metavar: str, help: str) -> Any:  # noqa: A002 - the name in Typer
    """Return an option with a text that filters the list of jobs."""
    return typer.Option(f"--{name}", metavar=metavar, help=help, rich_help_panel=FILTERS)


def parse_statuses(texts: Sequence[str]) -> frozenset[JobStatus]:
    """Return the statuses that `--status` names.

    Raises:
        UserError: a text is not a status.
    """
    known = [status.value for status in JobStatus]
    statuses: set[JobStatus] = set()
    for text in texts:
        for part in text.split(","):
            name = part.strip().lower()
            if name not in known:
                hint = suggest_name(name, known)
                raise UserError(f"--status: {name[:40]!r} is not a job status: {hint}")
            statuses.add(JobStatus(name))
    return frozenset(statuses)


def build_filter(
    statuses: frozenset[JobStatus],
    now: float,
    *,
    older_than_s: float | None,
    newer_than_s: float | None = None,
    min_microusd: int | None = None,
    **texts: str | None,
) -> JobFilter:
    """Return the filter that the options describe.

    Args:
        now: Unix time in seconds.
        older_than_s: least seconds since the jobs were submitted.
        newer_than_s: most seconds since the jobs were submitted.
        texts: values of the fields of `JobFilter` that are texts; None: the option is not there.
    """
    from handoff_queue.supervisor.client.argument_types import check_tenant

    if texts.get("tenant") is not None:
        check_tenant(str(texts["tenant"]))
    text_fields = {name: str(text) for name, text in texts.items() if text is not None}
    return JobFilter(
        statuses=statuses,
        submitted_before=None if older_than_s is None else now - older_than_s,
        submitted_after=None if newer_than_s is None else now - newer_than_s,
        min_microusd=min_microusd,
        **text_fields,
    )


def list_given_options(context: typer.Context) -> list[str]:
    """Return the options that are on the command line, such as `--docs`, in the order of the
    help.
    """
    options: list[str] = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and parameter.param_type_name == "option":
            options.append(max(parameter.opts, key=len))
    return options


def convert_amount(option: str, usd: float | None) -> int | None:
    """Return the micro-dollars of an amount in dollars. None stays None.

    Raises:
        UserError: the amount is out of bounds. The message names the option.
    """
    if usd is not None and not 1e-6 <= usd <= MAX_USD:
        raise UserError(
            f"{option} must be an amount from 0.000001 to {MAX_USD:,} dollars, not {usd:g}"
        )
    return to_microusd(usd)
