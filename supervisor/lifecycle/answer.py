"""The answer from the results of steps: made by code wherever nothing must be reconciled, with
named gaps and numbered sources.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from handoff_queue.shared.types.answer import Answer, NumberedCitation
from handoff_queue.shared.types.citation_markers import MARKER, in_every_text
from handoff_queue.shared.types.events import AnswerMethod, JobStatus, PlanMade
from handoff_queue.shared.types.handoff import BlobRef, Citation, Claim, HandoffResult
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.supervisor.lifecycle.arbitration import (
    payloads_for_arbitration,
    rulings_of,
    settled_notes,
    standing,
)
from handoff_queue.supervisor.lifecycle.disputes import (
    beside,
    disputes_of,
    payloads_for_disputes,
    section,
)
from handoff_queue.supervisor.lifecycle.gaps import gap_line, gap_text, gaps_of, to_finish
from handoff_queue.supervisor.lifecycle.replanning import reason_for_no_replanning
from handoff_queue.supervisor.lifecycle.result_texts import UNPROVEN, ResultTexts, sources_of_words
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.text.markdown import below

NOT_REVIEWED = "The answer was not reviewed"
NOT_CHECKED = "The facts of the answer were not checked"


def usable_sinks(state: JobState) -> tuple[StepId, ...]:
    """Return the steps whose results are the answer: the plan's sinks.

    The last usable steps before a failed sink replace it. A skipped sink is replaced only if there
    is no other sink.
    """
    usable = [step_id for step_id, step in state.steps.items() if step.usable]
    skipped = [step_id for step_id, step in state.steps.items() if step.is_skipped]
    if skipped:
        sinks = _not_built_upon(state, usable, (*usable, *skipped))
    else:
        sinks = ()
    return sinks or _not_built_upon(state, usable, usable)


def _not_built_upon(
    state: JobState, usable: Sequence[StepId], builders: Sequence[StepId]
) -> tuple[StepId, ...]:
    """Return the usable steps that no other step builds on, directly or not."""
    built_upon, frontier = set[StepId](), list(builders)
    while frontier:
        for dependency in state.steps[frontier.pop()].outline.depends_on:
            if dependency not in built_upon:
                built_upon.add(dependency)
                frontier.append(dependency)
    step_ids: list[StepId] = []
    for step_id in usable:
        if step_id not in built_upon:
            step_ids.append(step_id)
    return tuple(step_ids)


def choose_method(state: JobState) -> AnswerMethod:
    """Return the method that makes the answer. A synthesizer is called only if results must be
    reconciled, or if the answer needs a form that no single step was asked for.
    """
    sinks = usable_sinks(state)
    if not sinks:
        return AnswerMethod.NONE
    if len(sinks) == 1 and (state.submitted.answer_schema is None or sinks == state.sinks):
        return AnswerMethod.SINGLE_SINK
    if state.submitted.answer_schema is not None:
        return AnswerMethod.SYNTHESIZED
    reconcile = state.plan is not None and state.plan.synthesis is Synthesis.RECONCILE
    if reconcile:
        return AnswerMethod.SYNTHESIZED
    return AnswerMethod.MERGED


def parts_of(state: JobState) -> tuple[BlobRef, ...]:
    """Return the results that are the parts of the answer."""
    return tuple(sources_of_answer(state).values())


def sources_of_answer(state: JobState) -> dict[StepId, BlobRef]:
    """Return the results that are the answer, by step."""
    if state.synthesis is not None:
        return {StepId("synthesizer"): state.synthesis}
    sources: dict[StepId, BlobRef] = {}
    for step_id in usable_sinks(state):
        if ref := state.steps[step_id].result:
            sources[step_id] = ref
    return sources


def results_for_answer(state: JobState) -> tuple[BlobRef, ...]:
    """Return the results whose texts an answer quotes, in addition to its parts."""
    troubles = (step.trouble for step in state.steps.values() if step.trouble)
    events = (
        state.routed,
        state.plan,
        state.last_round,
        state.synthesised,
        state.gated,
        state.fact_checks.said,
    )
    patches = (patch.result for patch in state.patches.made_now if patch.problem)
    return (
        *troubles,
        *patches,
        *payloads_for_disputes(state),
        *payloads_for_arbitration(state),
        *(ref for event in events if event for ref in sources_of_words(event)),
    )


@dataclass(frozen=True, slots=True)
class AnswerContent:
    """Content of an answer, without the notes that code adds."""

    body: str
    """Text of the parts with their own markers; '' for a form."""
    text: str
    value: JsonValue
    citations: tuple[NumberedCitation, ...]
    is_form: bool
    notes: tuple[str, ...]
    """Notes of the results that are parts of the answer."""


def content_of(state: JobState, words: ResultTexts) -> AnswerContent:
    """Return the content of the answer.

    Args:
        words: texts of `parts_of(state)`.
    """
    parts: list[HandoffResult] = []
    for ref in parts_of(state):
        parts.append(words.result(ref))
    claims = {claim.id: claim for part in parts for claim in part.claims}
    has_the_form = (
        state.synthesis is not None
        or state.submitted.answer_schema is None
        or usable_sinks(state) == state.sinks
    )
    is_form = (
        len(parts) == 1
        and has_the_form
        and (state.submitted.answer_schema is not None or not isinstance(parts[0].output, str))
    )
    value, citations = _numbered(parts[0].output, claims) if is_form else (None, ())
    body = "" if is_form else body_of(state, parts)
    text, citations = (_as_text(value), citations) if is_form else number_citations(body, claims)
    return AnswerContent(
        body,
        text,
        value,
        citations,
        is_form,
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def assemble(state: JobState, status: JobStatus, words: ResultTexts, label: str | None) -> Answer:
    """Return the answer of a job that has ended.

    Args:
        words: texts of `parts_of(state)` and `results_for_answer(state)`.
        label: text that must accompany the answer everywhere.
    """
    content, disputes = content_of(state, words), disputes_of(state, words)
    gaps, open_points = gaps_of(state, words), _open_points(state, words)
    parts: list[HandoffResult] = []
    for ref in parts_of(state):
        parts.append(words.result(ref))
    text, citations = content.text, content.citations
    aside: tuple[str, ...] = ()
    if content.is_form:  # a form has no place for notes
        aside = (*beside(disputes, parts[0]), *map(gap_line, gaps), *open_points)
    else:
        claims: dict[str, Claim] = {}
        for dispute in disputes:
            for claim in dispute.conflict.claims:
                claims[claim.id] = claim
        disputed, citations = number_citations(section(disputes, content.body), claims, citations)
        footer = ""
        if label:
            footer = f"_{label}_"
        text = "\n\n".join(
            block
            for block in (f"{text}{disputed}", gap_text(gaps), open_text(open_points), footer)
            if block
        )
    return Answer(
        status=status,
        text=text,
        value=None if isinstance(content.value, str) else content.value,
        citations=citations,
        gaps=gaps,
        to_finish_microusd=to_finish(state),
        open_points=open_points,
        notes=(*_own_notes(state, words), *aside, *((label,) if label else ()), *content.notes),
        method=state.synthesised.method if state.synthesised else AnswerMethod.NONE,
    )


def number_citations(
    text: str, claims: Mapping[str, Claim], before: tuple[NumberedCitation, ...] = ()
) -> tuple[str, tuple[NumberedCitation, ...]]:
    """Replace `[step.c1]` by `[n]`, with one number for each place in a document, in the order of
    the text.

    Args:
        before: citations of the text above.
    """
    numbers: _Numbers = {
        (numbered.citation.digest, numbered.citation.start, numbered.citation.end): numbered
        for numbered in before
    }
    return MARKER.sub(lambda match: _numbers_of(match, claims, numbers), text), tuple(
        numbers.values()
    )


def _numbered(
    form: JsonValue, claims: Mapping[str, Claim]
) -> tuple[JsonValue, tuple[NumberedCitation, ...]]:
    """Number the citations in all texts of a form. Sources of its figures, which have no marker,
    follow.
    """
    numbers: _Numbers = {}

    numbered = in_every_text(
        form, lambda text: MARKER.sub(lambda match: _numbers_of(match, claims, numbers), text)
    )
    for claim in claims.values():
        for citation in claim.sources:
            _number(numbers, claim.id, claim.text, citation)
    return numbered, tuple(numbers.values())


_Numbers = dict[tuple[str, int, int], NumberedCitation]


def _numbers_of(match: re.Match[str], claims: Mapping[str, Claim], numbers: _Numbers) -> str:
    """Return the numbers that replace a marker."""
    numbered: dict[int, None] = {}
    claim_ids = re.split(r"\s*[,;]\s*", match[1])
    if not any(
        "." in claim_id for claim_id in claim_ids
    ):  # a result's markers are all qualified: this is something else
        return match[0]
    for claim_id in claim_ids:
        claim = claims.get(claim_id)
        for citation in claim.sources if claim else ():
            numbered[_number(numbers, claim_id, claim.text if claim else "", citation)] = None
    return "".join(f"[{n}]" for n in numbered) or UNPROVEN


def _number(numbers: _Numbers, claim_id: str, claim: str, citation: Citation) -> int:
    place = (citation.digest, citation.start, citation.end)
    if place not in numbers:
        step = None
        if "." in claim_id:
            step = StepId(claim_id.partition(".")[0])
        numbers[place] = NumberedCitation(
            n=len(numbers) + 1, claim=claim, citation=citation, step=step
        )
    return numbers[place].n


def body_of(state: JobState, parts: list[HandoffResult]) -> str:
    """Return the text of the answer's parts, with their own markers."""
    if len(parts) == 1:
        return _as_text(parts[0].output)
    sections = []
    headings = _headings(state, [part.step_id for part in parts])
    for part, heading in zip(parts, headings, strict=True):
        text = _as_text(part.output).strip()
        sections.append(f"## {heading}\n\n{below(2, text)}")
    return "\n\n".join(sections)


def _headings(state: JobState, step_ids: list[StepId]) -> list[str]:
    """Return a heading for each step. Steps that share a title get their ids as well."""
    titles = [
        state.steps[step_id].outline.heading if step_id in state.steps else step_id
        for step_id in step_ids
    ]
    uses = Counter(titles)
    return [
        f"{title} ({step_id})" if uses[title] > 1 else title
        for step_id, title in zip(step_ids, titles, strict=True)
    ]


def _as_text(output: JsonValue) -> str:
    if isinstance(output, str):
        return output
    return json.dumps(output, ensure_ascii=False, indent=2)


def _open_points(state: JobState, words: ResultTexts) -> tuple[str, ...]:
    checked = state.fact_checks.said
    if checked and checked.wrong and checked.result:
        wrong = words.objections(checked.result)
    else:
        wrong = ()
    return (
        *_of_the_review(state, words),
        *words.vetoes(state.gated),
        *(f"The fact-checker: {statement}" for statement in wrong),
    )


def _of_the_review(state: JobState, words: ResultTexts) -> tuple[str, ...]:
    last = None
    if state.last_round:
        last = words.verdict(state.last_round)
    if last is None:
        return ()
    rulings = rulings_of(state, words)
    points = (standing(state, item, rulings.get(item.step)) for item in last.revisions)
    return (*(point for point in points if point), *last.open_points)


def open_text(points: tuple[str, ...]) -> str:
    if points:
        return "\n".join(["**Open points:**", "", *(f"- {point}" for point in points)])
    return ""


def of_the_plan(plan: PlanMade | None, words: ResultTexts) -> tuple[str, ...]:
    """Return the notes on a plan that failed or that code changed, for jobs with and without an
    answer.
    """
    if plan and plan.noted:
        lines: list[str] = []
        for note in words.result(plan.noted).notes:
            lines.append(f"The plan: {note}.")
        return tuple(lines)
    if plan is None or not plan.degraded:
        return ()
    return (
        f"No usable plan was made{_in_brackets(words.why(plan.degraded))}: one specialist got the whole request.",
    )


def _own_notes(state: JobState, words: ResultTexts) -> tuple[str, ...]:
    notes = list(of_the_plan(state.plan, words))
    if state.routed and state.routed.problem:
        notes.append(
            f"A team got the job: {state.routed.problem}{_in_brackets(words.why(state.routed.result))}."
        )
    failed: list[str | None] = []
    for patch in state.patches.made_now:
        if patch.problem and words.patch(patch.result) is None:
            failed.append(words.why(patch.result))
    notes += dict.fromkeys(
        f"The plan was not changed after the results: the replanner failed{_in_brackets(why)}."
        for why in failed
    )
    if why := reason_for_no_replanning(state):
        notes.append(f"The plan was not changed any more: {why}.")
    notes += [*_unsettled(state, words), *settled_notes(state, words)]
    made, last = state.synthesised, state.last_round
    if made and made.problem:
        notes.append(
            f"The results were put together by code: {made.problem}{_in_brackets(words.why(made.result))}."
        )
    if last is not None and last.goes_in_circles:
        notes.append(
            "The review asked for the same again, in other words: there was no further round."
        )
    if last is not None and last.decision is None:
        notes.append(f"{NOT_REVIEWED}: {last.problem}{_in_brackets(words.why(last.result))}.")
    if (checked := state.fact_checks.said) and checked.problem:
        notes.append(
            f"{NOT_CHECKED}: {checked.problem}{_in_brackets(words.why_unchecked(checked))}."
        )
    return tuple(notes)


def _unsettled(state: JobState, words: ResultTexts) -> list[str]:
    """Return notes on contradictions that the judge did not settle."""
    notes = []
    if state.judged and state.judged.problem:
        notes.append(
            f"No contradiction was settled: {state.judged.problem}{_in_brackets(words.why(state.judged.result))}."
        )
    if state.conflicts and state.conflicts.left_out:
        notes.append(
            f"{state.conflicts.left_out} claims were not compared, because there are too many."
        )
    return notes


def _in_brackets(why: str | None) -> str:
    if why:
        return f" ({why})"
    return ""
