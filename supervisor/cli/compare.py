"""`handoff compare`: run one request in two modes, and recommend one mode. With two job ids, the
command prints both jobs side by side (`job_comparison.py`).

A grader sees both answers without the names of the modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handoff_queue.shared.settings.settings import Settings, load_settings
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.ids import is_job_id_prefix
from handoff_queue.shared.types.review import DEFAULT_RUBRIC, Rubric
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.cli.display.tables import format_table
from handoff_queue.supervisor.cli.display.terminal import (
    format_money,
    print_progress,
    shorten,
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
from handoff_queue.supervisor.cli.job_comparison import compare_jobs
from handoff_queue.supervisor.cli.options import (
    ADVANCED,
    REVIEW,
    AsJson,
    Docs,
    GatesOption,
    GraderModel,
    Model,
    RequestText,
    Timeout,
    convert_amount,
    list_given_options,
)
from handoff_queue.supervisor.cli.request_options import (
    read_gates_option,
    read_request_text,
    read_rubric,
)
from handoff_queue.supervisor.gates.gates_file import GateSet

if TYPE_CHECKING:
    from handoff_queue.supervisor.evaluation.answer_grader import PairwiseGrade
    from handoff_queue.supervisor.evaluation.comparison import ComparedAnswer, Comparison
    from handoff_queue.supervisor.evaluation.job_runner import EvaluationJob
    from handoff_queue.supervisor.evaluation.trials import Variant

AT_ONCE = 2
"""Jobs of a comparison that run at the same time: both."""


Other = Annotated[
    str | None,
    typer.Argument(metavar="JOB", help="With a job as REQUEST: the job to compare it with."),
]


def compare(
    context: typer.Context,
    request: RequestText = None,
    other: Other = None,
    docs: Docs = None,
    modes: Annotated[str, typer.Option(metavar="A,B", help="The two modes.")] = "single,team",
    model: Model = None,
    max_usd: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Cost of all jobs and scores in dollars, at most.",
        ),
    ] = None,
    timeout: Timeout = None,
    gates: GatesOption = None,
    rubric: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Criteria of the score (YAML).", rich_help_panel=REVIEW),
    ] = None,
    grader_model: GraderModel = None,
    no_grader: Annotated[
        bool,
        typer.Option(
            "--no-grader", help="Do not score. Only run the checks in code.", rich_help_panel=REVIEW
        ),
    ] = False,
    as_json: AsJson = False,
    workflow: PipelineWorkflow = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Start or continue the comparison with this name.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
) -> int:
    """Run one request in two modes and recommend one mode.

    handoff compare "Which licences allow resale?" --docs licences --max-usd 1

    With two jobs, such as a job and its fork, nothing runs: the command prints both side by
    side.

    handoff compare j-k5tq2wbz7x3mhd4n j-m3vfa6yc2pkq7e5t
    """
    if other is not None:
        _check_only_json(list_given_options(context))
        return compare_jobs(request or "", other, as_json=as_json)
    if request is not None and is_job_id_prefix(request):
        raise UserError(f"compare needs two jobs: name a second one after {request}")
    if no_grader and (grader_model is not None or rubric is not None):
        raise UserError("--no-grader excludes --grader-model and --rubric: leave one out")
    settings = load_settings()
    name = choose_run_name(run, "compare")
    options = ComparisonOptions(
        name=name,
        gates=_without_facts(read_gates_option(gates)),
        rubric=read_rubric(rubric) or DEFAULT_RUBRIC,
        grader_model=grader_model,
        is_graded=not no_grader,
        max_microusd=convert_amount("--max-usd", max_usd),
    )
    request_text = read_request_text(request, settings)
    variants = build_variants(modes, model)
    evaluation_jobs = _create_evaluation_jobs(
        request_text, docs, variants, workflow, timeout, name, settings
    )
    for _, job in evaluation_jobs:
        check_within(job.request, settings, max_usd)
    try:
        comparison = _run_comparison(evaluation_jobs, options, settings)
    except KeyboardInterrupt:
        return print_resume_hint(name)
    if as_json:
        write_as_json(convert_comparison(name, comparison))
    else:
        write_line(format_comparison(comparison))
    if comparison.first.is_unanswered or comparison.second.is_unanswered:
        return FAILED
    return OK


def _check_only_json(options: Sequence[str]) -> None:
    """Check that two jobs are compared with no option of a request.

    Raises:
        UserError: an option is given that changes nothing, such as --modes.
    """
    for option in options:
        if option != "--json":
            raise UserError(
                f"{option} is for a comparison of one request, and two jobs are compared as they"
                " are: leave it out"
            )


def _without_facts(gate_set: GateSet | None) -> Gates | None:
    """Return the gates that can check a finished answer, or None without gates.

    Raises:
        UserError: the gates have facts or a fact-checker.
    """
    if gate_set is not None and gate_set.facts is not None:
        raise UserError(
            "compare checks finished answers, and `facts` only works while a job runs: leave"
            " `facts` out of these gates"
        )
    if gate_set is not None and gate_set.gates.fact_checker:
        raise UserError(
            "a fact-checker checks an answer while its job runs: leave `fact_checker` out of these"
            " gates"
        )
    if gate_set:
        return gate_set.gates
    return None


@dataclass(frozen=True)
class ComparisonOptions:
    """Settings of a comparison."""

    name: str
    gates: Gates | None
    rubric: Rubric
    grader_model: str | None
    is_graded: bool
    max_microusd: int | None


def _create_evaluation_jobs(
    request: str,
    docs: Path | None,
    variants: Sequence[Variant],
    workflow: str | None,
    timeout_s: int | None,
    name: str,
    settings: Settings,
) -> list[tuple[Variant, EvaluationJob]]:
    """Return the jobs of the two variants.

    Raises:
        UserError: there are not two variants, or the documents or the workflow cannot be used.
    """
    from handoff_queue.supervisor.evaluation.job_runner import EvaluationJob

    if len(variants) != 2:
        raise UserError(
            f"--modes names {format_count(len(variants), 'mode')}, and compare needs two: `handoff"
            " eval` takes any number"
        )
    documents = None
    if docs:
        documents = read_documents(docs, settings)
    steps = read_workflow_for(variants, workflow)
    limits = build_job_limits(timeout_s, settings)
    evaluation_jobs: list[tuple[Variant, EvaluationJob]] = []
    for variant in variants:
        job_request = variant.build_request(request, documents, limits, steps)
        evaluation_jobs.append((variant, EvaluationJob(f"{name}: {variant.name}", job_request)))
    return evaluation_jobs


def _run_comparison(
    evaluation_jobs: Sequence[tuple[Variant, EvaluationJob]],
    options: ComparisonOptions,
    settings: Settings,
) -> Comparison:
    """Run both jobs on a whole system, and grade their answers if the options ask for it."""
    from handoff_queue.supervisor.cli.evaluation_system import create_grader, is_free, whole_system
    from handoff_queue.supervisor.evaluation.comparison import ComparisonRun
    from handoff_queue.supervisor.evaluation.job_runner import EvaluationBudget, JobRunner

    models = tuple(dict.fromkeys(variant.model for variant, _ in evaluation_jobs))
    with whole_system(settings, options.name, models) as (jobs, check):
        grader = None
        if options.is_graded:
            grader = create_grader(jobs, settings, options.grader_model)
        limit = None
        if options.max_microusd is not None:
            limit = format_money(to_usd(options.max_microusd))
        grader_calls = ""
        if grader:
            grader_calls = ", and two grader calls"
        costs = describe_worst_case(limit, is_free=is_free(jobs, models, grader))
        print_progress(f"{options.name}: two jobs{grader_calls}; it costs {costs}")
        runner = JobRunner(jobs, EvaluationBudget(options.max_microusd, AT_ONCE), check)
        _, first_job = evaluation_jobs[0]
        comparison_run = ComparisonRun(
            runner=runner,
            jobs=evaluation_jobs,
            request=first_job.request.text,
            gates=options.gates,
            rubric=options.rubric,
            grader=grader,
        )
        return comparison_run.run()


def format_comparison(comparison: Comparison) -> str:
    """Return the text of a comparison: a table, the verdicts of the grader and the advice."""
    rows = [["", comparison.first.name, comparison.second.name]]
    first_cells, second_cells = _build_cells(comparison.first), _build_cells(comparison.second)
    for label, first_cell in first_cells.items():
        rows.append([label, first_cell, second_cells[label]])
    grader_lines: list[str] = []
    for order, duel in zip(("in order", "swapped"), comparison.duels, strict=False):
        if duel:
            grader_lines.append(f"grader, {order}: {duel.better.value}: {shorten(duel.why, 200)}")
    usage = comparison.grader_usage
    if comparison.graded_by:
        grader_lines.append(f"grader: {usage.tokens:,} tokens, {format_money(usage.cost_usd)}")
    parts = [format_table(rows)]
    if grader_lines:
        parts.append("\n".join(grader_lines))
    return "\n\n".join([*parts, comparison.advice])


def convert_comparison(name: str, comparison: Comparison) -> dict[str, Any]:
    """Return the JSON of a comparison, with the keys of docs/how-to/evaluation.md."""
    return {
        "run": name,
        "first": asdict(comparison.first),
        "second": asdict(comparison.second),
        "better": comparison.better,
        "duels": [_convert_duel(duel) for duel in comparison.duels],
        "grader": asdict(comparison.grader_usage),
        "graded_by": list(comparison.graded_by),
        "advice": comparison.advice,
    }


def _convert_duel(duel: PairwiseGrade | None) -> dict[str, Any] | None:
    """Return the grader's statement about one order of the answers. None: it gave none."""
    from handoff_queue.supervisor.cli.display.evaluation_report import convert_scores

    if duel is None:
        return None
    return {
        "better": duel.better,
        "why": duel.why,
        "first": convert_scores(duel.first),
        "second": convert_scores(duel.second),
    }


def _format_checks(side: ComparedAnswer) -> str:
    if not side.faults:
        return "passed"
    more = ""
    if len(side.faults) > 1:
        more = f" (and {len(side.faults) - 1} more)"
    return shorten(side.faults[0], 60) + more


def _format_score(side: ComparedAnswer) -> str:
    if side.score is None:
        return "-"
    return f"{side.score:.2f}"


def _build_cells(side: ComparedAnswer) -> dict[str, str]:
    """Return the cells of one answer in the table, by the label of the row."""
    took = side.took
    return {
        "job": side.job_id,
        "status": side.status,
        "checks": _format_checks(side),
        "score (1 to 5)": _format_score(side),
        "turns": f"{took.turns:,}",
        "tokens": f"{took.input_tokens:,} + {took.output_tokens:,}",
        "cost": format_money(took.cost_usd),
        "wall time": f"{took.wall_s:.1f} s",
        "sequential time": f"{took.own_s:.1f} s",
    }
