"""The advice names the better mode, or no difference if chance may explain it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.evaluation.answer_grader import Preference
from handoff_queue.supervisor.evaluation.comparison import ComparedAnswer, advise_on_answers
from handoff_queue.supervisor.evaluation.golden_set import GoldenCase
from handoff_queue.supervisor.evaluation.resource_use import ResourceUse
from handoff_queue.supervisor.evaluation.summary import (
    SummaryRow,
    build_row,
    find_shortfalls,
    group_by_kind,
)
from handoff_queue.supervisor.evaluation.summary import advise_on_variants as advice_on_rows
from handoff_queue.supervisor.evaluation.trials import Trial, TrialOutcome, Variant

SINGLE, TEAM = Variant(Mode.SINGLE), Variant(Mode.TEAM)
FAULTS = ("It has no sources.",)


def compared_answer(
    name: str,
    tokens: int = 100,
    *,
    cost_usd: float | None = None,
    faults: tuple[str, ...] = (),
    is_cut: bool = False,
) -> ComparedAnswer:
    return ComparedAnswer(
        name, "ok", faults, ResourceUse(input_tokens=tokens, cost_usd=cost_usd), is_cut=is_cut
    )


NO_DIFFERENCE = "no difference was found that holds in both orders"
BETTER = "its answer was found better in both orders"


@pytest.mark.parametrize(
    ("first", "second", "better", "advice"),
    [
        (
            compared_answer("single"),
            compared_answer("team", 500),
            Preference.NEITHER,
            f"Take single: {NO_DIFFERENCE}, and team takes 5.0 times the tokens.",
        ),
        (
            compared_answer("single"),
            compared_answer("team", 500),
            Preference.SECOND,
            f"Take team: {BETTER}, at 5.0 times the tokens.",
        ),
        (
            compared_answer("single"),
            compared_answer("team", 500),
            Preference.FIRST,
            f"Take single: {BETTER}, and team takes 5.0 times the tokens.",
        ),
        (
            compared_answer("single", faults=FAULTS),
            compared_answer("team", 500),
            Preference.FIRST,
            (
                "Take team: its answer passes, and the answer of single does not, at 5.0 times the"
                " tokens."
            ),
        ),
        (
            compared_answer("single", faults=FAULTS),
            compared_answer("team", faults=FAULTS),
            None,
            "Take neither as it is: single does not pass (It has no sources), nor does team.",
        ),
        (
            compared_answer("single"),
            compared_answer("team"),
            None,
            "Take either: both pass, and more was not graded, at the same price.",
        ),
        (
            compared_answer("single", is_cut=True),
            compared_answer("team"),
            Preference.SECOND,
            "Nothing can be said: single ran out of budget.",
        ),
        (
            compared_answer("single", 900, cost_usd=0.01),
            compared_answer("team", 100, cost_usd=0.03),
            Preference.NEITHER,
            f"Take single: {NO_DIFFERENCE}, and team takes 3.0 times the money.",
        ),
        (
            compared_answer("single", 0),
            compared_answer("team", 100),
            Preference.NEITHER,
            f"Take single: {NO_DIFFERENCE}, and team takes many times the tokens.",
        ),
    ],
)
def test_advice_on_two_answers_names_the_better_one(
    first: ComparedAnswer, second: ComparedAnswer, better: Preference | None, advice: str
) -> None:
    assert advise_on_answers(first, second, better) == advice


SIDES = st.builds(
    compared_answer,
    st.just("x"),
    st.integers(0, 1_000),
    cost_usd=st.none() | st.floats(0, 9),
    faults=st.sampled_from([(), FAULTS]),
    is_cut=st.booleans(),
)


@given(SIDES, SIDES, st.none() | st.sampled_from(Preference))
def test_the_order_of_two_answers_makes_no_difference(
    first: ComparedAnswer, other: ComparedAnswer, better: Preference | None
) -> None:
    a, b = (
        ComparedAnswer("a", first.status, first.faults, first.took, is_cut=first.is_cut),
        ComparedAnswer("b", other.status, other.faults, other.took, is_cut=other.is_cut),
    )
    there, back = (
        advise_on_answers(a, b, better),
        advise_on_answers(b, a, better.mirrored if better else None),
    )
    assert there.split(":")[0] == back.split(":")[0]


# Advice on many trials


def outcomes(
    variant: Variant, passed: int, of: int, tokens: int, kind: str = "lookup"
) -> list[TrialOutcome]:
    return [
        TrialOutcome(
            Trial(
                GoldenCase(id=f"c{n}", request="?", kind=kind, gates=Gates(min_words=1)), variant, 1
            ),
            f"j-{n:012d}",
            "ok",
            () if n < passed else FAULTS,
            ResourceUse(input_tokens=tokens),
        )
        for n in range(of)
    ]


def rows(*figures: tuple[Variant, int, int, int]) -> list[SummaryRow]:
    return [
        build_row(variant, outcomes(variant, passed, of, tokens))
        for variant, passed, of, tokens in figures
    ]


def test_of_modes_within_chance_the_cheaper_is_advised() -> None:
    advice = advice_on_rows(rows((SINGLE, 18, 20, 100), (TEAM, 20, 20, 450)))
    assert (
        advice
        == "Take single: team passes more, but not beyond chance (95 %), and takes 4.5 times the"
        " tokens."
    )


def test_a_mode_that_is_better_beyond_chance_is_advised_at_any_cost() -> None:
    assert (
        advice_on_rows(rows((SINGLE, 5, 40, 100), (TEAM, 38, 40, 900)))
        == "Take team: it passes 95%, more than every other mode beyond chance (95 %)."
    )


def test_a_mode_that_is_both_best_and_cheapest_is_advised() -> None:
    advice = advice_on_rows(rows((SINGLE, 20, 20, 100), (TEAM, 19, 20, 300)))
    assert advice == "Take single: no other mode passes more, and team takes 3.0 times the tokens."


def test_if_no_mode_passes_no_mode_is_advised() -> None:
    assert (
        advice_on_rows(rows((SINGLE, 0, 20, 100), (TEAM, 0, 20, 450)))
        == "Take no mode: each mode fails every request."
    )


def test_a_single_mode_needs_no_advice() -> None:
    assert advice_on_rows(rows((SINGLE, 1, 2, 3))) is None
    assert advice_on_rows([*rows((SINGLE, 1, 2, 3)), build_row(TEAM, [])]) is None


def test_a_case_that_ran_out_of_money_counts_for_neither_mode() -> None:
    cut = [
        TrialOutcome(outcome.trial, outcome.job_id, "partial", FAULTS, outcome.usage, is_cut=True)
        for outcome in outcomes(SINGLE, 0, 3, 10)
    ]
    row = build_row(SINGLE, [*outcomes(SINGLE, 2, 2, 10), *cut])
    assert (row.passed, row.trials, row.cut, row.usage.tokens) == (2, 2, 3, 50)
    assert group_by_kind([*outcomes(SINGLE, 2, 2, 10), *cut]) == {"lookup": {SINGLE: (2, 2)}}


def test_a_threshold_names_each_mode_that_misses_it_and_unmeasured_modes_miss_it() -> None:
    measured = [*rows((SINGLE, 18, 20, 1), (TEAM, 20, 20, 1)), build_row(Variant(Mode.AUTO), [])]
    assert find_shortfalls(measured, 0.95, None) == [
        "single passes 90.0%, at least 95.0% is wanted",
        "auto was not measured, at least 95.0% is wanted",
    ]
    assert find_shortfalls(measured[:2], 0.9, None) == []
    assert find_shortfalls(measured[:1], None, 3.0) == [
        "single was not scored, at least 3.00 is wanted"
    ]
