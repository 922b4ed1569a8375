"""The answer from the results of steps: made by code wherever nothing must be reconciled, with
named gaps and numbered sources.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from handoff_queue.shared.types.answer import Answer, NumberedCitation
from handoff_queue.shared.types.events import AnswerMethod, JobStatus, PlanMade
from handoff_queue.shared.types.handoff import BlobRef, Claim, HandoffResult
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.origins import is_private, is_untrusted
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.supervisor.lifecycle.citation_numbers import (
    describe_code_citations,
    describe_rest,
    find_unproven_figures,
    number_citations,
    number_form,
    number_rest,
)
from handoff_queue.supervisor.lifecycle.claim_sources import (
    collect_claims_of_steps,
    list_source_payloads,
)
from handoff_queue.supervisor.lifecycle.conflict_resolution import (
    Dispute,
    build_dispute_notes,
    find_disputes,
    format_disputes,
    list_dispute_payloads,
    list_disputed_claims,
)
from handoff_queue.supervisor.lifecycle.gaps import (
    find_gaps,
    format_gap,
    format_gaps_section,
    to_finish,
)
from handoff_queue.supervisor.lifecycle.plan_graph import find_reachable
from handoff_queue.supervisor.lifecycle.replanning import explain_no_replanning
from handoff_queue.supervisor.lifecycle.result_texts import (
    ResultTexts,
    list_refs_with_texts,
)
from handoff_queue.supervisor.lifecycle.review_arbitration import (
    build_settled_point_notes,
    describe_revision,
    get_rulings,
    list_arbitration_payloads,
)
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.uncited_sentences import quote_sentences
from handoff_queue.supervisor.text.markdown import lower_headings
from handoff_queue.supervisor.text.sanitizing import clean_form, without_foreign_images

NOT_REVIEWED = "The answer was not reviewed"
NOT_CHECKED = "The facts of the answer were not checked"
CLEANED_FORM = (
    "Images of other hosts or HTML in the answer became plain text, so the answer may not match its"
    " JSON Schema."
)


def find_usable_sinks(state: JobState) -> tuple[StepId, ...]:
    """Return the steps whose results are the answer: the plan's sinks.

    The last usable steps before a failed sink replace it. A skipped sink is replaced only if
    there is no other sink.
    """
    usable = state.usable_steps
    skipped = tuple(step_id for step_id, step in state.steps.items() if step.is_skipped)
    if skipped:
        sinks = _find_final_steps(state, usable, (*usable, *skipped))
        if sinks:
            return sinks
    return _find_final_steps(state, usable, usable)


def _find_final_steps(
    state: JobState, usable: Sequence[StepId], builders: Sequence[StepId]
) -> tuple[StepId, ...]:
    """Return the usable steps on which no builder depends, directly or indirectly."""
    built_upon = find_reachable(builders, lambda step_id: state.steps[step_id].outline.depends_on)
    return tuple(step_id for step_id in usable if step_id not in built_upon)


def choose_method(state: JobState) -> AnswerMethod:
    """Return the method that makes the answer. A synthesizer is called only if results must be
    reconciled, or if the answer needs a form that no single step was asked for.

    Results that make their own claims from the same passage may contradict each other. In a
    workflow, the user has chosen: such results are reconciled only if the workflow says so.
    """
    sinks = find_usable_sinks(state)
    if not sinks:
        return AnswerMethod.NONE
    if len(sinks) == 1 and (state.submitted.answer_schema is None or sinks == state.sinks):
        return AnswerMethod.SINGLE_SINK
    if state.submitted.answer_schema is not None:
        return AnswerMethod.SYNTHESIZED
    if state.plan is not None and state.plan.synthesis is Synthesis.RECONCILE:
        return AnswerMethod.SYNTHESIZED
    if not is_plan_of_user(state) and _have_common_passage(state, sinks):
        return AnswerMethod.SYNTHESIZED
    return AnswerMethod.MERGED


def is_plan_of_user(state: JobState) -> bool:
    """Return whether a user wrote the plan as a workflow. A fork has the plan of its first job."""
    fork = state.submitted.fork
    return state.mode is Mode.PIPELINE and not (fork and fork.is_planned_by_agent)


def _have_common_passage(state: JobState, step_ids: Iterable[StepId]) -> bool:
    """Return whether two or more of the steps cite the same passage of a document."""
    cited: set[str] = set()
    for step_id in step_ids:
        passages = state.steps[step_id].passages
        if not cited.isdisjoint(passages):
            return True
        cited.update(passages)
    return False


def list_parts(state: JobState) -> tuple[BlobRef, ...]:
    """Return the results that are the parts of the answer."""
    return tuple(find_answer_sources(state).values())


def list_answer_payloads(state: JobState) -> tuple[BlobRef, ...]:
    """Return the results that are the parts of the answer, and the results that state the claims
    which the parts restate.
    """
    parts = find_answer_sources(state)
    return (*parts.values(), *list_source_payloads(state, [*parts.items()]))


def find_answer_sources(state: JobState) -> dict[StepId, BlobRef]:
    """Return the results that are the answer, by step."""
    if state.synthesis is not None:
        return {StepId(Role.SYNTHESIZER): state.synthesis}
    sources: dict[StepId, BlobRef] = {}
    for step_id in find_usable_sinks(state):
        result = state.steps[step_id].result
        if result:
            sources[step_id] = result
    return sources


def collect_answer_claims(state: JobState, texts: ResultTexts) -> dict[str, Claim]:
    """Return the claims of the parts of the answer by id.

    Args:
        texts: payloads of `list_answer_payloads(state)`.
    """
    return collect_claims_of_steps(state, [*find_answer_sources(state).items()], texts)


def list_results_for_answer(state: JobState) -> tuple[BlobRef, ...]:
    """Return the payloads whose texts an answer quotes, in addition to its parts."""
    payloads: list[BlobRef] = []
    for step in state.steps.values():
        if step.problem_result:
            payloads.append(step.problem_result)
    for patch in state.patches.made_now:
        if patch.problem:
            payloads.append(patch.result)
    payloads += list_dispute_payloads(state)
    payloads += list_arbitration_payloads(state)
    events = (
        state.routed,
        state.plan,
        state.last_round,
        state.synthesized,
        state.gated,
        state.fact_checks.outcome,
    )
    for event in events:
        if event:
            payloads += list_refs_with_texts(event)
    return tuple(payloads)


@dataclass(frozen=True, slots=True)
class AnswerContent:
    """Content of an answer, without the notes that code adds."""

    body: str
    """Text of the parts with their own markers; '' for a form."""
    text: str
    """`body` with numbered citations; for a form, `value` as text."""
    value: JsonValue
    """The form with numbered citations; None if the answer is not a form."""
    citations: tuple[NumberedCitation, ...]
    is_form: bool
    """True if the answer is the output of one result as it is: a JSON value, or a text that
    fills the requested JSON Schema.
    """
    notes: tuple[str, ...]
    """Notes of the results that are parts of the answer."""
    unproven: tuple[str, ...]
    """Claims with a figure that have no source which code has checked."""


def build_content(state: JobState, texts: ResultTexts) -> AnswerContent:
    """Return the content of the answer.

    Args:
        texts: payloads of `list_answer_payloads(state)`.
    """
    parts = texts.get_results(list_parts(state))
    claims = collect_answer_claims(state, texts)
    notes: dict[str, None] = {}
    for part in parts:
        notes |= dict.fromkeys(part.notes)
    is_form = _is_form(state, parts)
    if is_form:
        value, citations = number_form(parts[0].output, claims)
        notes |= dict.fromkeys(describe_code_citations(citations))
        unproven_sentences = find_unproven_figures(_as_text(parts[0].output), claims)
        return AnswerContent(
            "", _as_text(value), value, citations, is_form, tuple(notes), unproven_sentences
        )
    body = build_body(state, parts)
    text, cited = number_citations(body, claims)
    citations = number_rest(claims, cited)
    rest = citations[len(cited) :]
    if rest:
        notes[describe_rest(rest)] = None
    notes |= dict.fromkeys(describe_code_citations(citations))
    unproven_sentences = find_unproven_figures(body, claims)
    return AnswerContent(body, text, None, citations, is_form, tuple(notes), unproven_sentences)


def _is_form(state: JobState, parts: Sequence[HandoffResult]) -> bool:
    """Return whether the answer is the output of one result as it is (`AnswerContent.is_form`).

    With an answer schema, only a synthesizer and the plan's only sink were asked for the form.
    """
    if len(parts) != 1:
        return False
    if state.submitted.answer_schema is None:
        return not isinstance(parts[0].output, str)
    return state.synthesis is not None or find_usable_sinks(state) == state.sinks


def assemble(state: JobState, status: JobStatus, texts: ResultTexts, label: str | None) -> Answer:
    """Return the answer of a job that has ended.

    Args:
        texts: payloads of `list_answer_payloads(state)` and `list_results_for_answer(state)`.
        label: text that must accompany the answer everywhere; None: no text.
    """
    content = build_content(state, texts)
    disputes = find_disputes(state, texts)
    gaps = find_gaps(state, texts)
    open_points = (*_list_open_points(state, texts), *_build_figure_points(state, content.unproven))
    notes = _build_own_notes(state, texts)
    may_carry_data_out = is_private(state.origins) and is_untrusted(state.origins)
    value = content.value
    if content.is_form:  # a form has no place for sections
        form = texts.get_result(list_parts(state)[0])
        text, citations = content.text, content.citations
        if may_carry_data_out:
            value = clean_form(content.value)
        if value != content.value:
            text = _as_text(value)
            notes += (CLEANED_FORM,)
        notes += (*build_dispute_notes(disputes, form), *map(format_gap, gaps), *open_points)
    else:
        text, citations = _add_disputes(content, disputes)
        footer = f"_{label}_" if label else ""
        blocks = (text, format_gaps_section(gaps), format_open_points(open_points), footer)
        text = "\n\n".join(filter(None, blocks))
        if may_carry_data_out:
            text = without_foreign_images(text)
        if content.text and not citations:
            notes += _build_uncited_documents_note(state.submitted.document_count)
    if label:
        notes += (label,)
    method = AnswerMethod.NONE
    if state.synthesized:
        method = state.synthesized.method
    return Answer(
        status=status,
        text=text,
        value=None if isinstance(value, str) else value,
        citations=citations,
        gaps=gaps,
        to_finish_microusd=to_finish(state),
        open_points=open_points,
        notes=(*notes, *content.notes),
        method=method,
    )


def _add_disputes(
    content: AnswerContent, disputes: Sequence[Dispute]
) -> tuple[str, tuple[NumberedCitation, ...]]:
    """Return the text of an answer and the section with its disputes, and all citations."""
    claims = {claim.id: claim for claim in list_disputed_claims(disputes)}
    section, citations = number_citations(
        format_disputes(disputes, content.body), claims, content.citations
    )
    return f"{content.text}{section}", citations


def build_body(state: JobState, parts: list[HandoffResult]) -> str:
    """Return the text of the answer's parts, with their own markers. Several parts become
    sections with headings.
    """
    if len(parts) == 1:
        return _as_text(parts[0].output)
    sections = []
    headings = _build_headings(state, list(find_answer_sources(state)))
    for part, heading in zip(parts, headings, strict=True):
        text = _as_text(part.output).strip()
        sections.append(f"## {heading}\n\n{lower_headings(2, text)}")
    return "\n\n".join(sections)


def _build_headings(state: JobState, step_ids: list[StepId]) -> list[str]:
    """Return a heading for each step. Steps that share a title get their ids as well."""
    titles: list[str] = []
    for step_id in step_ids:
        step = state.steps.get(step_id)
        titles.append(step.outline.heading if step else step_id)
    uses = Counter(titles)
    headings: list[str] = []
    for step_id, title in zip(step_ids, titles, strict=True):
        if uses[title] > 1:
            headings.append(f"{title} ({step_id})")
        else:
            headings.append(title)
    return headings


def _as_text(output: JsonValue) -> str:
    if isinstance(output, str):
        return output
    return json.dumps(output, ensure_ascii=False, indent=2)


def _list_open_points(state: JobState, texts: ResultTexts) -> tuple[str, ...]:
    """Return the open points of the review, of the gates and of the fact-check, a sentence each."""
    points = [*_build_review_points(state, texts), *texts.get_vetoes(state.gated)]
    fact_check = state.fact_checks.outcome
    if fact_check and fact_check.wrong and fact_check.result:
        for objection in texts.get_objections(fact_check.result):
            points.append(f"The fact-checker: {objection}")
    return tuple(points)


def _build_figure_points(state: JobState, unproven_sentences: Sequence[str]) -> tuple[str, ...]:
    """Return the open point about figures without a checked source. The gate `cited` has its own
    objection to them.
    """
    gates = state.submitted.gates
    if not unproven_sentences or (gates and gates.cited):
        return ()
    subject = f"{len(unproven_sentences):,} statements with figures have"
    if len(unproven_sentences) == 1:
        subject = "1 statement with a figure has"
    quotes = quote_sentences(unproven_sentences)
    return (f"{subject} no source that could be checked: {quotes}.",)


def _build_review_points(state: JobState, texts: ResultTexts) -> tuple[str, ...]:
    verdict = texts.get_verdict(state.last_round)
    if verdict is None:
        return ()
    rulings = get_rulings(state, texts)
    points: list[str] = []
    for revision in verdict.revisions:
        point = describe_revision(state, revision, rulings.get(revision.step))
        if point:
            points.append(point)
    return (*points, *verdict.open_points)


def format_open_points(points: tuple[str, ...]) -> str:
    """Return the section with the open points; '' if there are none."""
    if not points:
        return ""
    lines = ["**Open points:**", ""]
    for point in points:
        lines.append(f"- {point}")
    return "\n".join(lines)


def _build_uncited_documents_note(document_count: int) -> tuple[str, ...]:
    """Return the note that an answer has no citation. Empty: the job has no documents."""
    if not document_count:
        return ()
    noun = "document" if document_count == 1 else "documents"
    return (f"The answer cites no source, although the job has {document_count:,} {noun}.",)


def build_plan_notes(plan: PlanMade | None, texts: ResultTexts) -> tuple[str, ...]:
    """Return the notes of the planner's result, or the note that the planner made no usable
    plan.
    """
    if plan and plan.noted:
        return tuple(f"The plan: {note}." for note in texts.get_result(plan.noted).notes)
    if plan is None or not plan.degraded:
        return ()
    why = _in_brackets(texts.explain(plan.degraded))
    return (f"No usable plan was made{why}: one specialist got the whole request.",)


def _build_own_notes(state: JobState, texts: ResultTexts) -> tuple[str, ...]:
    """Return the notes that code makes on the course of the job, a sentence each."""
    notes = list(build_plan_notes(state.plan, texts))
    routed = state.routed
    if routed and routed.problem:
        why = _in_brackets(texts.explain(routed.result))
        notes.append(f"A team got the job: {routed.problem}{why}.")
    notes += _list_replanner_failures(state, texts)
    why_unchanged = explain_no_replanning(state)
    if why_unchanged:
        notes.append(f"The plan was not changed any more: {why_unchanged}.")
    notes += _build_conflict_notes(state, texts)
    notes += build_settled_point_notes(state, texts)
    synthesized = state.synthesized
    if synthesized and synthesized.problem:
        why = _in_brackets(texts.explain(synthesized.result))
        notes.append(f"The results were put together by code: {synthesized.problem}{why}.")
    review = state.last_round
    if review is not None and review.repeats_earlier_revisions:
        notes.append(
            "The review asked for the same again, in other words: there was no further round."
        )
    if review is not None and review.decision is None:
        why = _in_brackets(texts.explain(review.result))
        notes.append(f"{NOT_REVIEWED}: {review.problem}{why}.")
    fact_check = state.fact_checks.outcome
    if fact_check and fact_check.problem:
        why = _in_brackets(texts.explain_missing_fact_check(fact_check))
        notes.append(f"{NOT_CHECKED}: {fact_check.problem}{why}.")
    return tuple(notes)


def _list_replanner_failures(state: JobState, texts: ResultTexts) -> list[str]:
    """Return a note for each different reason why the replanner failed."""
    notes: dict[str, None] = {}
    for patch in state.patches.made_now:
        if patch.problem and texts.get_patch(patch.result) is None:
            why = _in_brackets(texts.explain(patch.result))
            note = f"The plan was not changed after the results: the replanner failed{why}."
            notes[note] = None
    return list(notes)


def _build_conflict_notes(state: JobState, texts: ResultTexts) -> list[str]:
    """Return the notes on a judge that failed, and on claims that were not compared."""
    notes = []
    judged = state.judged
    if judged and judged.problem:
        why = _in_brackets(texts.explain(judged.result))
        notes.append(f"No contradiction was settled: {judged.problem}{why}.")
    if state.conflicts and state.conflicts.left_out:
        notes.append(
            f"{state.conflicts.left_out} claims were not compared, because there are too many."
        )
    return notes


def _in_brackets(why: str | None) -> str:
    if why:
        return f" ({why})"
    return ""
