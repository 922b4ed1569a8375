"""`handoff eval`: run a golden set in several modes, and score the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from handoff_queue.shared.settings.settings import Settings, load_settings
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.errors import StoreError, UserError
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.cli.display.terminal import (
    format_money,
    print_message,
    print_progress,
    write_as_json,
    write_line,
)
from handoff_queue.supervisor.cli.errors import FAILED, OK
from handoff_queue.supervisor.cli.evaluation_options import (
    PipelineWorkflow,
    build_job_limits,
    build_variants,
    check_within,
    choose_run_name,
    describe_worst_case,
    print_resume_hint,
    read_documents,
    read_workflow_for,
)
from handoff_queue.supervisor.cli.options import (
    ADVANCED,
    REVIEW,
    AsJson,
    Deadline,
    GraderModel,
    PriorityOption,
    Timeout,
    convert_amount,
)
from handoff_queue.supervisor.cli.request_options import check_times

if TYPE_CHECKING:
    from handoff_queue.shared.documents.folder import FolderReading
    from handoff_queue.supervisor.cli.display.evaluation_report import EvaluationReport
    from handoff_queue.supervisor.client.client import Client
    from handoff_queue.supervisor.evaluation.golden_set import GoldenCase
    from handoff_queue.supervisor.evaluation.trials import EvaluationPlan, TrialOutcome

MAX_TRIALS = 10_000
"""Most trials of one evaluation."""


def evaluate(
    golden: Annotated[
        Path,
        typer.Argument(
            metavar="GOLDEN",
            help="File of requests and expected answers: one JSON object per line.",
        ),
    ],
    modes: Annotated[str, typer.Option(metavar="A,B", help="The modes to try.")] = "single,team",
    models: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="The models to try. Default: the models of the workers.",
        ),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=100, help="Runs of each request in each mode."),
    ] = 1,
    max_usd: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Cost of all jobs and scores in dollars, at most.",
        ),
    ] = None,
    timeout: Timeout = None,
    grader_model: GraderModel = None,
    no_grader: Annotated[
        bool,
        typer.Option(
            "--no-grader", help="Do not score. Only run the checks in code.", rich_help_panel=REVIEW
        ),
    ] = False,
    min_pass_rate: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            min=0,
            max=1,
            help="Exit with 1 if a mode passes less often.",
            rich_help_panel=REVIEW,
        ),
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            min=1,
            max=5,
            help="Exit with 1 if a mode scores less.",
            rich_help_panel=REVIEW,
        ),
    ] = None,
    as_json: AsJson = False,
    workflow: PipelineWorkflow = None,
    priority: PriorityOption = None,
    deadline: Deadline = None,
    at_once: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=64,
            help="Jobs that run at the same time.",
            rich_help_panel=ADVANCED,
        ),
    ] = 4,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Start or continue the evaluation with this name.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
) -> int:
    """Run a set of requests in several modes and score the answers.

    handoff eval examples/golden.jsonl --modes single,team --max-usd 5
    """
    from handoff_queue.supervisor.cli.display.evaluation_report import convert_report, format_report
    from handoff_queue.supervisor.evaluation.golden_set import read_golden
    from handoff_queue.supervisor.evaluation.trials import EvaluationPlan

    settings = load_settings()
    name = choose_run_name(run, "eval")
    cases = read_golden(golden)
    check_times(timeout, deadline)
    limits = build_job_limits(timeout, settings)
    variants = build_variants(modes, models)
    plan = EvaluationPlan(
        name=name,
        cases=cases,
        variants=variants,
        repeat=repeat,
        workflow=read_workflow_for(variants, workflow),
        documents=_read_documents(cases, settings),
        limits=limits,
        priority=priority,
        deadline_s=deadline,
    )
    _check(plan, settings, max_usd)
    _check_grader(cases, is_graded=not no_grader, grader_model=grader_model, min_score=min_score)
    options = EvaluationOptions(
        at_once=at_once,
        max_microusd=convert_amount("--max-usd", max_usd),
        grader_model=grader_model,
        is_graded=not no_grader,
        golden=golden.name,
    )
    try:
        report = _run_trials(plan, options, settings)
    except KeyboardInterrupt:
        return print_resume_hint(name)
    if as_json:
        write_as_json(convert_report(report, golden))
    else:
        write_line(format_report(report))
    return _exit_code(report, min_pass_rate, min_score)


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of an evaluation."""

    at_once: int
    max_microusd: int | None
    grader_model: str | None
    is_graded: bool
    golden: str
    """Name of the file with the requests."""


def _exit_code(
    report: EvaluationReport, min_pass_rate: float | None, min_score: float | None
) -> int:
    """Print the cost and the problems. Return 1 if there is a problem, or else 0."""
    from handoff_queue.supervisor.cli.display.evaluation_report import (
        build_accounts,
        describe_unmeasured_parts,
    )
    from handoff_queue.supervisor.evaluation.summary import find_shortfalls

    for line in build_accounts(report):
        print_progress(line)
    problems = [
        *find_shortfalls(report.rows, min_pass_rate, min_score),
        *describe_unmeasured_parts(report),
    ]
    for problem in problems:
        print_message(problem)
    if problems:
        return FAILED
    return OK


def _run_trials(
    plan: EvaluationPlan, options: EvaluationOptions, settings: Settings
) -> EvaluationReport:
    """Run all trials and print a line for each. Return the outcomes in the order of the plan."""
    from handoff_queue.supervisor.cli.display.evaluation_report import (
        EvaluationReport,
        format_outcome,
    )
    from handoff_queue.supervisor.cli.evaluation_system import create_grader, is_free, whole_system
    from handoff_queue.supervisor.evaluation.job_runner import EvaluationBudget, JobRunner
    from handoff_queue.supervisor.evaluation.trials import Evaluation

    models = tuple(variant.model for variant in plan.variants)
    with whole_system(settings, plan.name, models) as (jobs, check):
        grader = None
        if options.is_graded:
            grader = create_grader(jobs, settings, options.grader_model)
        budget = EvaluationBudget(options.max_microusd, options.at_once)
        runner = JobRunner(jobs, budget, check)
        evaluation = Evaluation(replace(plan, grader=grader), runner)
        _announce(evaluation.plan, options, is_free=is_free(jobs, models, grader))
        outcomes: list[TrialOutcome] = []
        trials = plan.trials
        for outcome in evaluation.iterate_outcomes():
            outcomes.append(outcome)
            print_progress(f"{len(outcomes)}/{len(trials)}  {format_outcome(outcome)}")
        places = {trial: place for place, trial in enumerate(trials)}
        outcomes.sort(key=lambda outcome: places[outcome.trial])
        report = EvaluationReport(
            evaluation.plan,
            outcomes,
            evaluation.not_run,
            evaluation.not_graded,
            options.max_microusd,
        )
        _store_summary(jobs, report, options.golden)
    return report


def _store_summary(jobs: Client, report: EvaluationReport, golden: str) -> None:
    """Store the figures for the console. Without Redis, print a line: the results are not lost."""
    from handoff_queue.supervisor.evaluation.history import build_summary

    try:
        now = jobs.store.connection.now()
        summary = build_summary(
            report.plan.name, golden, report.rows, report.usage.cost_usd, len(report.not_run), now
        )
        jobs.store.evaluations.add(summary)
    except StoreError as error:
        print_message(f"the console does not show this evaluation: {error}")


def _announce(plan: EvaluationPlan, options: EvaluationOptions, *, is_free: bool) -> None:
    """Print the number of jobs and their highest cost before the first job starts."""
    grader_calls = ""
    if plan.grades:
        grader_calls = f", and at most {plan.grades} grader calls"
    requests = format_count(len(plan.cases), "request")
    modes = format_count(len(plan.variants), "mode")
    times = format_count(plan.repeat, "time")
    count = format_count(len(plan.trials), "job")
    print_progress(
        f"{plan.name}: {requests}, {modes}, {times} each: {count}{grader_calls};"
        f" {options.at_once} at once"
    )
    limit = None
    if options.max_microusd is not None:
        limit = format_money(to_usd(options.max_microusd))
    print_progress(f"{plan.name}: it costs {describe_worst_case(limit, is_free=is_free)}")


def _read_documents(cases: Sequence[GoldenCase], settings: Settings) -> dict[str, FolderReading]:
    """Return the documents of the cases, by folder.

    Raises:
        UserError: documents cannot be read. The message names the case.
    """
    documents: dict[str, FolderReading] = {}
    for case in cases:
        if case.docs and case.docs not in documents:
            try:
                documents[case.docs] = read_documents(Path(case.docs), settings)
            except UserError as error:
                raise UserError(f"{case.id}: {error.line}") from error
    return documents


def _check_grader(
    cases: Sequence[GoldenCase],
    *,
    is_graded: bool,
    grader_model: str | None,
    min_score: float | None,
) -> None:
    """Check the options of the grader.

    Raises:
        UserError: an option needs a grader and there is none, or no case has a rubric.
    """
    if not is_graded and grader_model is not None:
        raise UserError("--no-grader and --grader-model exclude each other: leave one out")
    if min_score is not None and not is_graded:
        raise UserError("--min-score needs a grader: leave out --no-grader or --min-score")
    if min_score is not None and all(case.rubric is None for case in cases):
        raise UserError(
            "--min-score needs a grader, and no request has a rubric: write a rubric, or leave out"
            " --min-score"
        )


def _check(plan: EvaluationPlan, settings: Settings, max_usd: float | None) -> None:
    """Check the evaluation before anything starts.

    Raises:
        UserError: there are too many trials, or a request cannot be used. The message names its
            case.
    """
    count = len(plan.cases) * len(plan.variants) * plan.repeat
    if count > MAX_TRIALS:
        raise UserError(
            f"{count:,} jobs are too many for one run, at most {MAX_TRIALS:,}: take fewer modes,"
            " models or repeats"
        )
    for trial in plan.first_trials:
        try:
            check_within(plan.build_job(trial).request, settings, max_usd)
        except UserError as error:
            raise UserError(f"{trial.case.id}: {error.line}") from error
