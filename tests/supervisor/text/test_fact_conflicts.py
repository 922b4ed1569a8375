"""Claims are compared with the user's facts. A contradiction is reported with its claim, fact and
source.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.gates import Gates, KnownFact
from handoff_queue.shared.types.handoff import Claim, make_ref
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.lifecycle.gates import MAX_GATE_ROUNDS, check_gates
from handoff_queue.supervisor.text.claim_conflicts import (
    MAX_CLAIMS,
    MAX_CLAIMS_IN_VETO,
    contradicts,
    find_fact_contradictions,
)
from tests.doubles.conflicting_claims import a_claim
from tests.doubles.facts import a_fact, a_table
from tests.doubles.simulated_job import SimulatedJob, a_plan

TABLE = a_table(a_fact("330", "m", date="2022"))


def is_vetoed(claim: Claim, *facts: KnownFact) -> bool:
    return bool(find_fact_contradictions([claim], a_table(*facts)))


def test_a_veto_names_the_claim_the_fact_and_its_source() -> None:
    (veto,) = find_fact_contradictions([a_claim("a.c1", "324", "m")], TABLE)

    assert (
        veto
        == '"Eiffel Tower: height: 324 m." (a.c1) contradicts the facts: Eiffel Tower, height: 330'
        " m (2022), from survey.pdf."
    )


@pytest.mark.parametrize(
    ("claim", "wrong"),
    [
        (a_claim("a.c1", "330", "metres"), False),
        (a_claim("a.c1", "0.33", "km"), False),
        (a_claim("a.c1", "1,083", "ft"), False),
        (a_claim("a.c1", "about 325", "m"), False),
        (a_claim("a.c1", "0.3", "km"), True),
        (a_claim("a.c1", "between 310 and 320", "m"), True),
        (a_claim("a.c1", "324", "m", date="March 2022"), True),
        (a_claim("a.c1", "312", "m", date="1889"), False),
        (a_claim("a.c1", "324", "m", subject="Tower of Pisa"), False),
        (a_claim("a.c1", "324", "m", attribute="width"), False),
        (a_claim("a.c1", "324", "t"), False),
    ],
)
def test_facts_use_the_same_units_dates_and_wordings_as_contradictions_between_claims(
    claim: Claim, wrong: bool
) -> None:
    assert is_vetoed(claim, *TABLE.facts) is wrong


@pytest.mark.parametrize(
    ("attribute", "value", "wrong"),
    [
        ("departure time", "15:30", True),
        ("departure time", "2:30 pm", False),
        ("departure", "13:00", True),
    ],
)
def test_a_time_of_day_is_compared_with_a_fact(attribute: str, value: str, wrong: bool) -> None:
    fact = a_fact("14:30", None, "Flight 12", "departure")
    assert is_vetoed(a_claim("a.c1", value, None, "Flight 12", attribute), fact) is wrong


def test_another_value_is_not_an_error_if_the_table_has_some_of_many_values() -> None:
    assert not is_vetoed(
        a_claim("a.c1", "Munich", None, "Acme", "offices"),
        a_fact("Berlin", None, "Acme", "offices"),
    )


def test_a_claim_that_agrees_with_one_of_the_facts_that_it_can_mean_is_left_alone() -> None:
    years = [a_fact("5", "USD", "Pro", "price", "2022"), a_fact("6", "USD", "Pro", "price", "2023")]
    claim = a_claim("a.c1", "6", "USD", "Pro", "price").model_copy(update={"date": None})

    assert not is_vetoed(claim, *years)
    assert is_vetoed(claim.model_copy(update={"value": "7"}), *years)
    assert is_vetoed(claim.model_copy(update={"date": "2022"}), *years)


def test_a_fact_in_another_currency_does_not_confirm_a_claim() -> None:
    prices = [a_fact("10", "USD", "Pro", "price"), a_fact("15", "EUR", "Pro", "price")]

    assert is_vetoed(a_claim("a.c1", "15", "USD", "Pro", "price"), *prices)


values = st.sampled_from(
    [
        "330",
        "324",
        "about 327",
        "1,083",
        "tall",
        "yes",
        "no",
        "2022",
        "at least 300",
        "Gustave Eiffel",
    ]
)
units = st.sampled_from([None, "m", "ft", "t"])
dates = st.sampled_from(["2022", "2023", "1889"])


@given(values, units, dates, values, units, dates)
def test_a_fact_vetoes_exactly_the_claims_that_the_same_claim_would_contradict(
    value: str, unit: str | None, date: str, other: str, other_unit: str | None, other_date: str
) -> None:
    claim, beside = (
        a_claim("a.c1", value, unit, date=date),
        a_claim("b.c1", other, other_unit, date=other_date),
    )

    assert is_vetoed(claim, a_fact(other, other_unit, date=other_date)) is contradicts(
        claim, beside
    )


@given(values, units, dates, st.lists(st.builds(a_fact, values, units, date=dates), max_size=4))
def test_a_claim_that_repeats_a_fact_is_never_vetoed(
    value: str, unit: str | None, date: str, others: list[KnownFact]
) -> None:
    assert not is_vetoed(
        a_claim("a.c1", value, unit, date=date), a_fact(value, unit, date=date), *others
    )


@given(st.lists(st.builds(a_fact, values, units, date=dates), max_size=4), values, units)
def test_a_claim_outside_the_table_is_not_vetoed(
    facts: list[KnownFact], value: str, unit: str | None
) -> None:
    assert not is_vetoed(a_claim("a.c1", value, unit, subject="Golden Gate Bridge"), *facts)


def test_facts_or_contradictions_over_the_limit_are_counted() -> None:
    claims = [a_claim(f"a.c{n}", "324", "m") for n in range(1, MAX_CLAIMS + 2)]
    vetoes = find_fact_contradictions(claims, TABLE)

    assert len(vetoes) == MAX_CLAIMS_IN_VETO + 2
    assert vetoes[-2:] == (
        f"And {MAX_CLAIMS - MAX_CLAIMS_IN_VETO} more claims like these.",
        "It has 1 claim more than can be compared with the facts.",
    )


def job_with_facts(**submitted: Any) -> SimulatedJob:
    table = TABLE.to_json()
    job = SimulatedJob(gates=Gates(), facts=make_ref(table), **submitted)
    job.payloads[make_ref(table).digest] = table
    job.advance()
    return job


def finish_answer(job: SimulatedJob, metres: str) -> None:
    job.finish(
        "answer", output="It is that high [answer.c1].", claims=(a_claim("answer.c1", metres, "m"),)
    )
    job.advance()


def test_a_contradicted_answer_returns_to_its_writer_and_leaves_when_it_is_corrected() -> None:
    job = job_with_facts(mode=Mode.SINGLE)
    finish_answer(job, "324")
    (feedback,) = job.handoffs["answer.2"].feedback

    assert feedback.author == "gate"
    assert "height: 330 m (2022), from survey.pdf" in feedback.text
    finish_answer(job, "330")
    assert job.state.status is JobStatus.OK


def test_an_uncorrected_contradiction_leaves_as_an_open_point() -> None:
    job = job_with_facts(mode=Mode.SINGLE)
    for _ in range(MAX_GATE_ROUNDS + 1):
        finish_answer(job, "324")

    assert job.state.status is JobStatus.PARTIAL
    (point,) = assemble(job.state, JobStatus.PARTIAL, job.texts, None).open_points
    assert "(answer.c1) contradicts the facts" in point


def test_a_result_hides_no_contradiction_of_another_step() -> None:
    """A worker that was taken over may write a claim with the name of a step of another role."""
    job = job_with_facts(mode=Mode.PIPELINE, workflow=a_plan(a="", b=""))
    job.finish("a", output="So high [a.c1].", claims=(a_claim("a.c1", "324", "m"),))
    job.finish("b", output="Higher [b.c1].", claims=(a_claim("a.c1", "330", "m"),))
    _, vetoes = check_gates(job.state, job.texts, may_send_back=False)

    assert "(a.c1) contradicts the facts" in str(vetoes)
