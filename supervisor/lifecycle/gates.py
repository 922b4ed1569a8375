"""Gates are checks of an answer by code, which no model can influence. This module also writes the
gates and the rubric in words, for the writers of the answer. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from fractions import Fraction
from typing import NamedTuple

from handoff_queue.shared.text.unicode_text import to_nfc
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.events import GatesChecked
from handoff_queue.shared.types.gates import REQUIREMENTS, Gates
from handoff_queue.shared.types.handoff import BlobRef, HandoffResult, StopReason, make_ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.shared.types.regex_patterns import find_first, matches
from handoff_queue.supervisor.lifecycle.answer import (
    build_content,
    collect_answer_claims,
    list_answer_payloads,
)
from handoff_queue.supervisor.lifecycle.result_texts import (
    UNPROVEN,
    ResultTexts,
    build_result_by_code,
)
from handoff_queue.supervisor.lifecycle.routing import SINGLE_STEP_ID
from handoff_queue.supervisor.lifecycle.side_effects import find_sinks_to_redo
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.uncited_sentences import (
    find_uncited_sentences,
    quote_sentences,
)
from handoff_queue.supervisor.text.claim_conflicts import find_fact_contradictions
from handoff_queue.supervisor.text.markdown import iterate_headings
from handoff_queue.supervisor.text.quantities import iterate_numbers

MAX_GATE_ROUNDS = 2
"""Most times that the gates and the fact-checker send an answer back."""
_MARK = re.compile(r"\[\d{1,4}\]")
"""Marker of a source. Its number is not a figure of the answer."""
MAX_REQUIREMENT_CHARS = 8_000
"""Most characters of all requirements together in a task."""
_MAX_SHOWN_CHARS = 80
"""Most characters of a text that a veto quotes."""


def has_revision_left(state: JobState, now: float) -> bool:
    """Return whether time, budget and a round are left to improve an answer. In a reviewed
    job, a review or a person may have used all rounds.
    """
    has_round = (
        state.gate_rounds < MAX_GATE_ROUNDS
        and len(state.rounds_now) <= state.submitted.limits.max_rounds
        and (state.may_send_back or not state.is_reviewed)
    )
    return has_round and state.spent is None and now < state.working_deadline


class SendingBack(NamedTuple):
    """Whether an answer with faults is written again."""

    is_sent_back: bool
    steps: tuple[StepId, ...]
    """Steps to run again; empty if a synthesizer wrote the answer."""


def decide_sending_back(state: JobState, *, is_allowed: bool) -> SendingBack:
    """Return whether the answer is written again, and by which steps.

    Args:
        is_allowed: the result of `has_revision_left` when the check was decided.
    """
    if not is_allowed or state.synthesis is not None:
        return SendingBack(is_allowed, ())
    steps = find_sinks_to_redo(state)
    return SendingBack(bool(steps), steps)


def list_gate_payloads(state: JobState) -> tuple[BlobRef, ...]:
    """Return the payloads that `check_gates` reads."""
    facts = state.submitted.facts
    if facts:
        return (*list_answer_payloads(state), facts)
    return list_answer_payloads(state)


def check_gates(
    state: JobState, texts: ResultTexts, *, may_send_back: bool
) -> tuple[GatesChecked, HandoffResult | None]:
    """Return the event with the vetoes against the current answer, and the failed result with
    their texts; None if there are no vetoes.

    Args:
        texts: payloads of `list_gate_payloads(state)`.
    """
    gates = state.submitted.gates
    assert gates is not None
    content = build_content(state, texts)
    claims = collect_answer_claims(state, texts).values()
    claim_texts = [claim.text for claim in claims]
    source_count = len(content.citations)
    vetoes = find_vetoes(gates, content.text, source_count, claim_texts, is_form=content.is_form)
    if state.submitted.facts:
        vetoes += find_fact_contradictions(claims, texts.get_facts(state.submitted.facts))
    if not vetoes:
        return GatesChecked(), None
    error = "\n".join(vetoes)
    attempt = state.gate_rounds + 1
    result = build_result_by_code(state.job_id, SINGLE_STEP_ID, attempt, error, StopReason.FINISHED)
    sending_back = decide_sending_back(state, is_allowed=may_send_back)
    event = GatesChecked(
        vetoes=len(vetoes),
        result=make_ref(result.to_json()),
        is_sent_back=sending_back.is_sent_back,
        steps=sending_back.steps,
    )
    return event, result


def find_vetoes(
    gates: Gates, text: str, sources: int, claims: Collection[str] = (), *, is_form: bool = False
) -> tuple[str, ...]:
    """Return the vetoes against an answer, one sentence each.

    Args:
        text: the answer without the notes that code adds.
        sources: number of its sources.
        claims: texts of the claims of its parts.
        is_form: True for a JSON value, whose figures have no markers.
    """
    text = to_nfc(text)
    vetoes = [
        *_check_length(gates, text),
        *_check_sections(gates, text),
        *_check_forbidden(gates, text),
        *_check_required(gates, text),
        *_check_numbers(gates, text),
    ]
    if gates.cited:
        vetoes += _check_sources(text, sources)
    if gates.cited and sources and not is_form:
        vetoes += _check_sentences(text, sources, claims)
    return tuple(vetoes)


def _check_length(gates: Gates, text: str) -> Iterator[str]:
    words = len(text.split())
    if gates.min_words is not None and words < gates.min_words:
        yield f"It has {format_count(words, 'word')}, at least {gates.min_words:,} are wanted."
    if gates.max_words is not None and words > gates.max_words:
        yield f"It has {format_count(words, 'word')}, at most {gates.max_words:,} are wanted."


def _check_sections(gates: Gates, text: str) -> Iterator[str]:
    if not gates.sections:
        return
    headings = set(map(str.casefold, iterate_headings(text)))
    for section in gates.sections:
        if to_nfc(section).strip().casefold() not in headings:
            yield f'It has no section "{section}".'


def _check_forbidden(gates: Gates, text: str) -> Iterator[str]:
    for pattern in gates.forbidden:
        phrase = find_first(to_nfc(pattern), text)
        if phrase is not None:
            yield f'It says "{phrase[:_MAX_SHOWN_CHARS]}", which is forbidden.'


def _check_required(gates: Gates, text: str) -> Iterator[str]:
    for pattern in gates.required:
        if not matches(to_nfc(pattern), text):
            yield f"It says nothing that fits {pattern[:_MAX_SHOWN_CHARS]!r}."


def _check_numbers(gates: Gates, text: str) -> Iterator[str]:
    if not gates.numbers:
        return
    stated = set(iterate_numbers(_MARK.sub(" ", text)))
    for number in gates.numbers:
        if Fraction(str(number)) not in stated:
            yield f"The number {number:,.12g} is missing."


def _check_sources(text: str, sources: int) -> Iterator[str]:
    if not sources:
        yield "It has no sources."
        return
    unproven_count = text.count(UNPROVEN)
    if unproven_count:
        point = "points to a claim" if unproven_count == 1 else "point to claims"
        yield f"{unproven_count:,} of its statements {point} without a source."


def _check_sentences(text: str, sources: int, claims: Collection[str]) -> Iterator[str]:
    uncited = find_uncited_sentences(text, sources, claims)
    if not uncited:
        return
    verb = "states a fact" if len(uncited) == 1 else "state facts"
    quotes = quote_sentences(uncited)
    yield f"{len(uncited):,} of its sentences {verb} without a source: {quotes}."


def list_requirements(state: JobState) -> tuple[str, ...]:
    """Return the conditions of the user that the answer must meet, one in each line.

    The numbers of the gates and the known facts are left out, because they check the findings.
    """
    lines = list(_describe_gates(state.submitted.gates or Gates()))
    if state.submitted.rubric:
        for criterion in state.submitted.rubric.criteria:
            lines.append(f"{criterion.name}: {criterion.means}")
    return tuple(lines)


def with_requirements(state: JobState, step_id: StepId, task: str, max_chars: int) -> str:
    """Return the task of a step. The writers of the answer also get the requirements.

    Args:
        max_chars: most characters of the task.
    """
    requirements = list_requirements(state)
    if not requirements or step_id not in state.sinks:
        return task
    heading = REQUIREMENTS
    if len(state.sinks) > 1:
        if state.plan is not None and state.plan.synthesis is Synthesis.RECONCILE:
            return task  # the synthesizer writes the answer
        heading = f"Your result is one of {len(state.sinks)} parts of the answer. {REQUIREMENTS}"
    requirement_lines = "\n".join(f"- {line}" for line in requirements)[:MAX_REQUIREMENT_CHARS]
    above = task[: max_chars - len(heading) - len(requirement_lines) - 3]
    return f"{above}\n\n{heading}\n{requirement_lines}"


def _describe_gates(gates: Gates) -> Iterator[str]:
    if gates.min_words:
        yield f"It has at least {format_count(gates.min_words, 'word')}."
    if gates.max_words is not None:
        yield f"It has at most {format_count(gates.max_words, 'word')}."
    for section in gates.sections:
        yield f'It has a heading "{section}".'
    for pattern in gates.required:
        yield f"A part matches the pattern {pattern!r}."
    for pattern in gates.forbidden:
        yield f"No part matches the pattern {pattern!r}."
    if gates.cited:
        yield (
            "Each statement of fact points to a claim with a source, and the quote is in the"
            " source letter by letter."
        )
