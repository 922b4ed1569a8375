"""Gates check an answer by code. A failed answer is sent back, or leaves with a note. The writers
of the answer know its gates and its rubric before they write.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobStatus, RetryRequested
from handoff_queue.shared.types.gates import REQUIREMENTS, Gates
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.plan import Plan, Synthesis
from handoff_queue.shared.types.review import Rubric
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.lifecycle.commands import CheckGates, EndJob, IssueRole
from handoff_queue.supervisor.lifecycle.gates import MAX_GATE_ROUNDS, find_vetoes, list_requirements
from handoff_queue.supervisor.lifecycle.handoffs import MAX_TASK_CHARS, build_step_handoff
from tests.doubles.handoffs import a_spec
from tests.doubles.simulated_job import SimulatedJob, a_plan

GATES = Gates(min_words=3)


def vetoes_against(text: str, **gates: Any) -> tuple[str, ...]:
    return find_vetoes(Gates(**gates), text, 0)


@pytest.mark.parametrize(
    ("gates", "good", "bad", "message"),
    [
        ({"min_words": 3}, "One two three.", "One two.", "2 words, at least 3"),
        ({"max_words": 2}, "One two.", "One two three.", "3 words, at most 2"),
        ({"sections": ("Risks",)}, "## RISKS\n\nNone.", "Risks: none.", 'no section "Risks"'),
        (
            {"forbidden": ("(?i)guarantee[sd]?",)},
            "It may work.",
            "We Guarantee it.",
            'It says "Guarantee"',
        ),
        (
            {"required": ("(?i)mit licen[cs]e",)},
            "The MIT License.",
            "A licence.",
            "nothing that fits '(?i)mit licen",
        ),
        (
            {"numbers": (16_000.0,)},
            "Up to 16,000 of them.",
            "Up to 1,600.",
            "The number 16,000 is missing",
        ),
        ({"cited": True}, None, "It is so.", "no sources"),
    ],
)
def test_each_gate_names_its_requirement(
    gates: dict[str, Any], good: str | None, bad: str, message: str
) -> None:
    assert good is None or vetoes_against(good, **gates) == ()
    (veto,) = vetoes_against(bad, **gates)
    assert message in veto


def test_patterns_of_a_gate_that_are_large_together_are_refused() -> None:
    """Each process that reads the job compiles them."""
    patterns = tuple(rf"\pL{{1,40}}{number}" for number in range(100))

    with pytest.raises(UserError, match="are too large together; use fewer patterns"):
        Gates(forbidden=patterns)


@pytest.mark.parametrize("text", ["## Caf\u00e9\n\nOpen.", "## Cafe\u0301\n\nOpen."])
@pytest.mark.parametrize("word", ["Caf\u00e9", "Cafe\u0301"])
def test_a_gate_reads_both_spellings_of_a_character(word: str, text: str) -> None:
    assert vetoes_against(text, sections=(word,), required=(word,)) == ()
    assert vetoes_against(text, forbidden=(word,)) != ()


@pytest.mark.parametrize(
    "text", ["16000", "16 000.", "(16,000)", "16k", "16 thousand", "1.6e4", "2019-16000", "$16,000"]
)
def test_a_number_is_found_in_every_notation(text: str) -> None:
    assert vetoes_against(f"So it is {text} of them [3].", numbers=(16_000.0,)) == ()


@pytest.mark.parametrize("text", ["160000", "16.000", "116,000", "[16000]", "sixteen"])
def test_another_number_or_the_number_of_a_source_does_not_match(text: str) -> None:
    assert vetoes_against(text.replace("16000]", "16]"), numbers=(16_000.0, 16.0)) != ()


@given(st.integers(0, 10**9))
def test_a_number_is_found_within_any_text(number: int) -> None:
    assert vetoes_against(f"It has {number:,} rows [1].", numbers=(float(number),)) == ()


def test_no_gates_veto_nothing() -> None:
    assert vetoes_against("") == ()


@given(st.text(max_size=200))
def test_a_pattern_that_would_freeze_another_engine_takes_no_time(text: str) -> None:
    assert len(vetoes_against("a" * 5_000 + text, forbidden=("(a+)+$",))) <= 1


@pytest.mark.parametrize(
    ("gates", "expected"),
    [({"numbers": (7.0,)}, 0), ({"sections": ("Risks",)}, 1), ({"min_words": 1}, 0)],
)
def test_a_run_of_blanks_takes_no_time(gates: dict[str, Any], expected: int) -> None:
    """A match in cubic time would take hours and hold the interpreter lock."""
    assert len(vetoes_against("# a" + " " * 100_000 + "x 7", **gates)) == expected


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        ("## Risks", True),
        ("# risks ##  ", True),
        ("#Risks", False),
        ("####### Risks", False),
        ("  # Risks", True),
    ],
)
def test_a_section_is_a_heading_of_markdown(text: str, is_there: bool) -> None:
    assert (vetoes_against(f"One.\n{text}\nTwo.", sections=("Risks",)) == ()) is is_there


@pytest.mark.parametrize("line", ["=====", "-----"])
def test_a_section_may_be_an_underlined_heading(line: str) -> None:
    assert vetoes_against(f"One.\n\nRisks\n{line}\n\nTwo.", sections=("Risks",)) == ()


@pytest.mark.parametrize("fence", ["```", "~~~", "````"])
def test_a_heading_in_a_code_block_is_not_a_section(fence: str) -> None:
    assert vetoes_against(f"One.\n\n{fence}\n# Risks\n{fence}\n\nTwo.", sections=("Risks",)) != ()


def test_an_answer_that_must_be_cited_gets_the_list_of_uncited_sentences() -> None:
    (veto,) = find_vetoes(
        Gates(cited=True),
        "Qdrant is in Rust [1]. It costs 5 EUR. It began in 2019. It has 30 users. And 40 fans.",
        1,
    )
    assert veto.startswith(
        '4 of its sentences state facts without a source: "It costs 5 EUR."; "It began in 2019.";'
        ' "It has 30 users."; and 1 more.'
    )


def test_the_figures_of_a_form_have_no_markers() -> None:
    assert find_vetoes(Gates(cited=True), '{"price": 50}', 1, is_form=True) == ()


@pytest.mark.parametrize(
    "gates",
    [
        {"forbidden": ("(?=x)",)},
        {"required": ("(?=x)",)},
        {"numbers": (float("nan"),)},
        {"min_words": 5, "max_words": 4},
        {"max_words": 0},
    ],
)
def test_impossible_gates_are_refused(gates: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"^Gates: "):
        Gates(**gates)


def finish_answer(job: SimulatedJob, output: str) -> None:
    """Finish the only step with this output."""
    job.finish("answer", output=output)
    job.advance()


def gated_job(limits: JobLimits | None = None) -> SimulatedJob:
    job = SimulatedJob(limits, mode=Mode.SINGLE, gates=GATES)
    job.advance()
    return job


def test_an_answer_that_passes_leaves_unchanged() -> None:
    job = gated_job()
    job.finish("answer", output="All in all, so.")

    assert [type(command) for command in job.advance()][-2:] == [CheckGates, EndJob]
    assert job.state.status is JobStatus.OK


def test_a_veto_goes_back_to_the_writer_as_feedback() -> None:
    job = gated_job()
    finish_answer(job, "No.")
    (feedback,) = job.handoffs["answer.2"].feedback

    assert feedback.author == "gate"
    assert "at least 3 are wanted" in feedback.text
    finish_answer(job, "All in all, so.")
    assert job.state.status is JobStatus.OK


def test_an_answer_that_stays_vetoed_leaves_as_partial_with_the_reason() -> None:
    job = gated_job()
    for _ in range(MAX_GATE_ROUNDS + 1):
        finish_answer(job, "No.")

    assert job.state.status is JobStatus.PARTIAL
    answer = assemble(job.state, JobStatus.PARTIAL, job.texts, None)
    assert answer.open_points == ("It has 1 word, at least 3 are wanted.",)


def test_without_time_an_answer_is_checked_and_not_sent_back() -> None:
    job = gated_job()
    job.finish("answer", output="No.")
    job.now = job.state.working_deadline
    job.advance()

    assert job.state.status is JobStatus.PARTIAL
    assert job.state.gate_rounds == 0


def test_a_synthesizer_rewrites_its_own_answer() -> None:
    job = SimulatedJob(gates=GATES)
    job.advance()
    job.make_plan(a_plan(Synthesis.RECONCILE, a="", b=""))
    job.advance()
    for step in "ab":
        job.finish(step)
    job.advance()
    job.review()
    job.advance()
    job.synthesize("No.")

    assert IssueRole(Role.SYNTHESIZER, 2) in job.advance()
    job.synthesize("All in all, so.")
    job.advance()
    assert job.state.status is JobStatus.OK


def test_a_retry_is_checked_again() -> None:
    job = gated_job()
    for _ in range(MAX_GATE_ROUNDS + 1):
        finish_answer(job, "No.")
    job.append(RetryRequested())
    job.advance()
    finish_answer(job, "All in all, so.")

    assert job.state.status is JobStatus.OK


WORDED_GATES = Gates(min_words=300, sections=("Risks",), forbidden=("(?i)tbd",), cited=True)


def a_job(plan: Plan, **submitted: Any) -> SimulatedJob:
    job = SimulatedJob(**submitted)
    job.advance()
    job.make_plan(plan)
    return job


def handoff_for(job: SimulatedJob, step_id: str, task: str = "Do it.") -> AgentHandoff:
    spec = a_spec()
    step = Step(id=StepId(step_id), specialist="researcher", task=task)
    return build_step_handoff(job.state, step, spec, spec.content_digest, job.texts, None)


def test_the_step_that_writes_the_answer_knows_the_gates() -> None:
    job = a_job(a_plan(a="", b="a"), gates=WORDED_GATES)
    assert handoff_for(job, "b").task_description == (
        f"Do it.\n\n{REQUIREMENTS}\n"
        "- It has at least 300 words.\n"
        '- It has a heading "Risks".\n'
        "- No part matches the pattern '(?i)tbd'.\n"
        "- Each statement of fact points to a claim with a source, and the quote is in the"
        " source letter by letter."
    )


def test_a_step_before_the_last_one_has_its_task_alone() -> None:
    job = a_job(a_plan(a="", b="a"), gates=WORDED_GATES)
    assert handoff_for(job, "a").task_description == "Do it."


def test_the_step_that_writes_the_answer_knows_the_users_rubric() -> None:
    rubric = Rubric.of_fields({"tone": "It is written for children."})
    job = a_job(a_plan(a=""), rubric=rubric)
    assert handoff_for(job, "a").task_description.endswith("- tone: It is written for children.")


def test_a_job_without_conditions_adds_nothing_to_a_task() -> None:
    assert handoff_for(a_job(a_plan(a="")), "a").task_description == "Do it."


def test_each_of_several_parts_knows_that_the_conditions_are_for_the_whole_answer() -> None:
    task = handoff_for(a_job(a_plan(a="", b=""), gates=WORDED_GATES), "a").task_description
    assert f"Your result is one of 2 parts of the answer. {REQUIREMENTS}\n" in task


def test_parts_that_a_synthesizer_compares_do_not_get_the_conditions() -> None:
    job = a_job(a_plan(Synthesis.RECONCILE, a="", b=""), gates=WORDED_GATES)
    assert handoff_for(job, "a").task_description == "Do it."


def test_numbers_that_check_the_findings_are_not_told() -> None:
    job = a_job(a_plan(a=""), gates=Gates(numbers=(16000.0,)))
    assert list_requirements(job.state) == ()


def test_a_long_task_keeps_its_conditions() -> None:
    job = a_job(a_plan(a=""), gates=WORDED_GATES)
    task = handoff_for(job, "a", "x" * 100_000).task_description
    assert len(task) <= MAX_TASK_CHARS
    assert REQUIREMENTS in task
