"""The report of an evaluation shows the measurements, and names each part that was not measured."""

from __future__ import annotations

from pathlib import Path

from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.cli.display.evaluation_report import (
    NEW_RUN,
    EvaluationReport,
    build_accounts,
    convert_report,
    describe_unmeasured_parts,
    format_report,
)
from handoff_queue.supervisor.evaluation.golden_set import GoldenCase
from handoff_queue.supervisor.evaluation.resource_use import ResourceUse
from handoff_queue.supervisor.evaluation.trials import EvaluationPlan, Trial, TrialOutcome, Variant

CASES = tuple(
    GoldenCase(id=f"c{n}", request="?", kind="look|up", gates=Gates(min_words=1)) for n in range(2)
)
WAYS = (Variant(Mode.SINGLE), Variant(Mode.TEAM, "some-model"))
PLAN = EvaluationPlan("nightly", CASES, WAYS)


def outcome(trial: Trial, *faults: str, is_cut: bool = False) -> TrialOutcome:
    usage = ResourceUse(1, 100, 10, 0.25, 2.0, 1.0)
    return TrialOutcome(trial, "j-0123456789ab", "ok", faults, usage, is_cut)


OUTCOMES = [
    outcome(trial, *(("It is wrong.",) if trial.case.id == "c1" else ())) for trial in PLAN.trials
]


def test_a_complete_evaluation_has_no_remark() -> None:
    assert describe_unmeasured_parts(EvaluationReport(PLAN, OUTCOMES)) == []


def test_each_part_that_the_budget_did_not_allow_is_named() -> None:
    report = EvaluationReport(
        PLAN,
        [outcome(PLAN.trials[0], is_cut=True)],
        PLAN.trials[1:],
        not_graded=2,
        max_microusd=1_000_000,
    )

    assert describe_unmeasured_parts(report) == [
        f"1 job ran out of budget and does not count: {NEW_RUN}",
        f"the budget has no room to grade 2 answers: {NEW_RUN}",
        (
            "the budget has no room for 3 jobs: c0 (team some-model), c1 (single), c1 (team"
            " some-model)"
        ),
    ]
    assert build_accounts(report) == [
        "nightly: $0.2500 of at most $1.0000, 110 tokens, of these the grader 0"
    ]


def test_each_variant_and_each_kind_of_case_has_a_row() -> None:
    rows, kinds, advice = format_report(EvaluationReport(PLAN, OUTCOMES)).split("\n\n")

    assert "| team some-model | 1 of 2 | 50% (9% to 91%)  |" in rows
    assert "| $0.2500   | 2.0         | 1.0 " in rows
    assert "| look\\|up | 1 of 2 | 1 of 2          |" in kinds
    assert advice == "Take single: no other mode passes more."


def test_the_json_report_has_the_same_measurements() -> None:
    report = convert_report(EvaluationReport(PLAN, OUTCOMES), Path("golden.jsonl"))

    assert (report["run"], report["golden"], report["cost_usd"]) == ("nightly", "golden.jsonl", 1.0)
    assert [(row["mode"], row["model"], row["passed"]) for row in report["rows"]] == [
        ("single", None, 1),
        ("team", "some-model", 1),
    ]
    assert [
        (trial["case"], trial["passed"], trial["faults"]) for trial in report["trials"][2:]
    ] == [("c1", False, ["It is wrong."])] * 2
