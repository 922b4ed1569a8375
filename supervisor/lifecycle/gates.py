"""Whether an answer may leave: checks by code, which no model can talk round. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shared.patterns import first_of
from shared.wire.answer import NumberedCitation
from shared.wire.events import GatesChecked
from shared.wire.gates import Gates
from shared.wire.handoff import HandoffResult, StopReason, ref
from supervisor.lifecycle.answering import content_of, usable_sinks
from supervisor.lifecycle.beginning import WHOLE
from supervisor.lifecycle.stand_ins import failed_by_code
from supervisor.lifecycle.state import JobState
from supervisor.lifecycle.words import UNPROVEN, Words

MOST_GATE_ROUNDS = 2
"""Times that a veto sends an answer back."""
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
_MOST_SHOWN_CHARS = 80


def may_send_back(state: JobState, now: float) -> bool:
    """Whether there is time, money and a round left to mend an answer."""
    has_round = state.gate_rounds < MOST_GATE_ROUNDS and len(state.rounds_now) <= state.submitted.limits.max_rounds
    has_round = has_round and (state.may_send_back or not state.is_reviewed)  # a person may have used it
    return has_round and state.spent is None and now < state.working_deadline


def checked(state: JobState, words: Words, *, may_send_back: bool) -> tuple[GatesChecked, HandoffResult | None]:
    """What code finds in the answer that there would be, and the result that says it. `words`: of `parts_of(state)`."""
    gates = state.submitted.gates
    assert gates is not None
    content = content_of(state, words)
    vetoes = vetoes_of(gates, content.text, content.citations)
    if not vetoes:
        return GatesChecked(), None
    found = failed_by_code(state.job_id, WHOLE, state.gate_rounds + 1, "\n".join(vetoes), StopReason.FINISHED)
    steps = usable_sinks(state) if may_send_back and state.synthesis is None else ()
    return GatesChecked(vetoes=len(vetoes), result=ref(found.to_json()), is_sent_back=may_send_back, steps=steps), found


def vetoes_of(gates: Gates, text: str, citations: Sequence[NumberedCitation]) -> tuple[str, ...]:
    """What is wrong with an answer, a sentence each. `text`: as it would leave, without what code adds below it."""
    return (*_length(gates, text), *_sections(gates, text), *_forbidden(gates, text), *_sources(gates, text, citations))


def _length(gates: Gates, text: str) -> Iterator[str]:
    words = len(text.split())
    if gates.min_words is not None and words < gates.min_words:
        yield f"It has {words} words, at least {gates.min_words} are wanted."
    if gates.max_words is not None and words > gates.max_words:
        yield f"It has {words} words, at most {gates.max_words} are wanted."


def _sections(gates: Gates, text: str) -> Iterator[str]:
    there = {heading.casefold() for heading in _HEADING.findall(text)}
    for section in gates.sections:
        if section.strip().casefold() not in there:
            yield f'It has no section "{section}": write a heading of these words.'


def _forbidden(gates: Gates, text: str) -> Iterator[str]:
    for pattern in gates.forbidden:
        if (phrase := first_of(pattern, text)) is not None:
            yield f'It says "{phrase[:_MOST_SHOWN_CHARS]}", which must not stand in it.'


def _sources(gates: Gates, text: str, citations: Sequence[NumberedCitation]) -> Iterator[str]:
    if not gates.cited:
        return
    if not citations:
        yield "It has no sources: every statement of fact needs one."
    elif unproven := text.count(UNPROVEN):
        yield f"{unproven} of its statements point to claims without a source: give a verbatim quote for each, or drop it."
