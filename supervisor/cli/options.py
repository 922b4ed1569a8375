"""Options that several commands take, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from handoff_queue.shared.text.durations import DurationRange
from handoff_queue.shared.types.job_options import MOST_WAIT_S, Mode, OnTimeout, Priority
from handoff_queue.shared.types.limits import (
    MOST_COUNT,
    MOST_DEPTH,
    MOST_SECONDS,
    MOST_SLOTS,
    OnLimit,
)

# Panels of options in the help of a command.
DOCUMENTS = "Documents"
CONTINUE = "Continue earlier work"
SPECIALISTS = "Specialists and mode"
QUALITY = "Review and gates"
BUDGET = "Budget"
APPROVAL = "Approval"
QUEUE = "Queue and notification"
OUTPUT = "Output"
FILTERS = "Filters"

ROW_FORMATS = (".jsonl", ".csv")
"""What a file of rows can be, by the end of its name."""
RequestText = Annotated[
    str | None,
    typer.Argument(
        metavar="REQUEST", help="What you want, in plain words; `-` reads it from stdin."
    ),
]


def _folder(text: str) -> Path:
    """`Path("")` is the current folder: an unset variable must not upload it."""
    if not text.strip():
        raise typer.BadParameter("it is empty: name a folder, or a dot for this one")
    return Path(text)


Docs = Annotated[
    Path | None,
    typer.Option(
        "--docs",
        metavar="DIR",
        parser=_folder,
        help="A folder (or file) to work from.",
        rich_help_panel=DOCUMENTS,
    ),
]
StrictDocs = Annotated[
    bool,
    typer.Option(
        "--strict-docs",
        help="Refuse the job if a document cannot be read.",
        rich_help_panel=DOCUMENTS,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="The model of every agent of this job.",
        rich_help_panel=SPECIALISTS,
    ),
]
MaxTurns = Annotated[
    int | None,
    typer.Option(
        "--max-turns",
        metavar="N",
        min=1,
        help="The most turns of one handoff.",
        rich_help_panel=BUDGET,
    ),
]
MaxJobTurns = Annotated[
    int | None,
    typer.Option(
        "--max-job-turns",
        metavar="N",
        min=1,
        max=MOST_COUNT,
        help="The most turns of the whole job. Default: 200, or 10 for each step of a long workflow.",
        rich_help_panel=BUDGET,
    ),
]
MaxUsd = Annotated[
    float | None,
    typer.Option(
        "--max-usd", metavar="X", help="The most that the job may cost.", rich_help_panel=BUDGET
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        metavar="N",
        min=1,
        help="The most input and output tokens of the whole job.",
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
        help="How often a review may send work back.",
        rich_help_panel=BUDGET,
    ),
]
MaxDepth = Annotated[
    int | None,
    typer.Option(
        "--max-depth",
        metavar="N",
        min=0,
        max=MOST_DEPTH,
        help="How deep sub-supervisors may go; 0: none. Default: 2.",
        rich_help_panel=BUDGET,
    ),
]
Timeout = Annotated[
    int | None,
    typer.Option(
        "--timeout",
        metavar="TIME",
        parser=DurationRange(1, MOST_SECONDS, is_whole=True),
        help="The job ends after this time with what it has: 90, 90s, 10m, 1h30m.",
        rich_help_panel=BUDGET,
    ),
]
OnLimitOption = Annotated[
    OnLimit | None,
    typer.Option(
        "--on-limit",
        help="What happens when turns, tokens or money are spent. Default: wrap-up.",
        rich_help_panel=BUDGET,
    ),
]
AnswerSchema = Annotated[
    Path | None,
    typer.Option(
        "--answer-schema",
        metavar="FILE",
        help="A JSON Schema that the answer must match.",
        rich_help_panel=OUTPUT,
    ),
]
OwnSpecialists = Annotated[
    list[Path],
    typer.Option(
        "--specialists",
        metavar="DIR",
        help="A folder of your own specialists; may be repeated.",
        rich_help_panel=SPECIALISTS,
    ),
]
OwnTools = Annotated[
    list[Path],
    typer.Option(
        "--tools",
        metavar="DIR",
        help="A folder of your own tools; may be repeated.",
        rich_help_panel=SPECIALISTS,
    ),
]
ModeOption = Annotated[
    Mode | None,
    typer.Option(
        "--mode",
        help="How the job is supervised. Default: auto, or HANDOFF_MODE.",
        rich_help_panel=SPECIALISTS,
    ),
]
PriorityOption = Annotated[
    Priority | None,
    typer.Option(
        "--priority",
        help="Whether it goes ahead of batch jobs. Default: interactive, or HANDOFF_PRIORITY.",
        rich_help_panel=QUEUE,
    ),
]
TenantOption = Annotated[
    str,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="Whose job it is: tenants take turns, and have days' budgets.",
        rich_help_panel=QUEUE,
    ),
]
WorkflowOption = Annotated[
    str | None,
    typer.Option(
        "--workflow",
        metavar="NAME",
        help="Run the steps of this workflow (or .yaml file) instead of a planner's.",
        rich_help_panel=SPECIALISTS,
    ),
]
ItemsOption = Annotated[
    Path | None,
    typer.Option(
        "--items",
        metavar="FILE",
        help="Lines, or rows of a .csv, that a workflow's steps are done for.",
        rich_help_panel=SPECIALISTS,
    ),
]
GatesOption = Annotated[
    Path | None,
    typer.Option(
        "--gates",
        metavar="FILE",
        help="What the answer has to be before it leaves (YAML).",
        rich_help_panel=QUALITY,
    ),
]
RubricOption = Annotated[
    Path | None,
    typer.Option(
        "--rubric",
        metavar="FILE",
        help="What the reviewer measures by (YAML); has the work reviewed in every mode.",
        rich_help_panel=QUALITY,
    ),
]
After = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="JOB",
        help="Follow on this ended job: begin with what it knows, and pay for none of it.",
        rich_help_panel=CONTINUE,
    ),
]
JudgeModel = Annotated[
    str | None,
    typer.Option(
        "--judge-model",
        metavar="NAME",
        help="The model that judges. Default: HANDOFF_REVIEWER_MODEL, or the capable one.",
        rich_help_panel=QUALITY,
    ),
]
_WHATS = ("plan", "research", "answer")


def _what(text: str) -> str:
    if text not in _WHATS:
        raise typer.BadParameter(
            f"{text[:40]!r} is nothing to approve of: plan, research or answer"
        )
    return text


Approve = Annotated[
    list[str],
    typer.Option(
        "--approve",
        metavar="|".join(_WHATS),
        parser=_what,
        help="Wait for your approval of it; may be repeated.",
        rich_help_panel=APPROVAL,
    ),
]
ApproveAboveUsd = Annotated[
    float | None,
    typer.Option(
        "--approve-above-usd",
        metavar="X",
        help="Wait for your approval once the job has cost more than this.",
        rich_help_panel=APPROVAL,
    ),
]
ApproveTimeout = Annotated[
    int | None,
    typer.Option(
        "--approve-timeout",
        metavar="TIME",
        parser=DurationRange(1, MOST_WAIT_S, is_whole=True),
        help="How long each question waits for an answer: 90s, 10m, 2h, 7d.",
        rich_help_panel=APPROVAL,
    ),
]
OnTimeoutOption = Annotated[
    OnTimeout | None,
    typer.Option(
        "--on-timeout",
        help="What happens when nobody answers. Default: stop.",
        rich_help_panel=APPROVAL,
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        "-c",
        "--concurrency",
        metavar="N",
        min=1,
        max=MOST_SLOTS,
        help="Handoffs (threads) at once.",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json", help="JSON on stdout, everything else on stderr.", rich_help_panel=OUTPUT
    ),
]
AllowPartial = Annotated[
    bool,
    typer.Option(
        "--allow-partial",
        help="Exit with 0, not 5, when the job's status is partial.",
        rich_help_panel=OUTPUT,
    ),
]


def _rows_file(text: str) -> Path:
    target = Path(text)
    if target.suffix.lower() not in ROW_FORMATS:
        raise typer.BadParameter(f"{text} must end in {' or '.join(ROW_FORMATS)}")
    return target


RowsFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        parser=_rows_file,
        help="Write a row for each item of a workflow: rows.jsonl or rows.csv.",
        rich_help_panel=OUTPUT,
    ),
]
