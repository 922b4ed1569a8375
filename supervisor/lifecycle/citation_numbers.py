"""Numbers of the citations in an answer: `[1]` in place of the marker of a claim. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from handoff_queue.shared.types.answer import NumberedCitation
from handoff_queue.shared.types.citation_markers import MARKER, map_texts
from handoff_queue.shared.types.handoff import Citation, Claim
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.origins import is_output_of_code
from handoff_queue.supervisor.lifecycle.result_texts import UNPROVEN, find_claim_ids_with_step
from handoff_queue.supervisor.lifecycle.uncited_sentences import has_figure

_Place = tuple[str, int, int]
"""Digest of a document, and the start and end of a quote in it."""
_Numbers = dict[_Place, NumberedCitation]


def number_citations(
    text: str, claims: Mapping[str, Claim], before: tuple[NumberedCitation, ...] = ()
) -> tuple[str, tuple[NumberedCitation, ...]]:
    """Return the text with `[n]` in place of `[step.c1]`, and the citations by number. Each
    place in a document gets one number, in the order of the text.

    Args:
        before: citations of the text above, which keep their numbers.
    """
    numbers = _index_by_place(before)
    text = _with_numbers(text, claims, numbers)
    return text, tuple(numbers.values())


def number_rest(
    claims: Mapping[str, Claim], before: tuple[NumberedCitation, ...]
) -> tuple[NumberedCitation, ...]:
    """Return the citations with the sources of all other claims, which no marker points to.

    Args:
        before: citations of the text, which keep their numbers.
    """
    numbers = _index_by_place(before)
    for claim in claims.values():
        for citation in claim.sources:
            _assign_number(numbers, claim.id, claim.text, citation)
    return tuple(numbers.values())


def describe_rest(rest: Sequence[NumberedCitation]) -> str:
    """Return the note on citations that no marker points to."""
    numbers = ", ".join(f"[{citation.n}]" for citation in rest)
    noun = "source"
    if len(rest) > 1:
        noun = "sources"
    return f"The answer does not say which of its statements rest on the {noun} {numbers}."


def describe_code_citations(citations: Sequence[NumberedCitation]) -> tuple[str, ...]:
    """Return the note on citations of the output of an agent's code; empty if there are none."""
    numbers = [f"[{item.n}]" for item in citations if is_output_of_code(item.citation.source)]
    if not numbers:
        return ()
    subject = f"The source {numbers[0]} is"
    if len(numbers) > 1:
        subject = f"The sources {', '.join(numbers)} are"
    return (f"{subject} the output of code that an agent wrote, and not a document.",)


def number_form(
    form: JsonValue, claims: Mapping[str, Claim]
) -> tuple[JsonValue, tuple[NumberedCitation, ...]]:
    """Return the form with numbered citations in all its texts, and the citations. The sources
    of its other claims, which have no marker, follow.
    """
    numbers: _Numbers = {}
    numbered_form = map_texts(form, lambda text: _with_numbers(text, claims, numbers))
    return numbered_form, number_rest(claims, tuple(numbers.values()))


def find_unproven_figures(text: str, claims: Mapping[str, Claim]) -> tuple[str, ...]:
    """Return the texts of the claims with a figure whose markers become `UNPROVEN`, each once
    and in one line.
    """
    figures: dict[str, None] = {}
    for marker in MARKER.finditer(text):
        marked_claims: list[Claim] = []
        for claim_id in find_claim_ids_with_step(marker):
            if claim_id in claims:
                marked_claims.append(claims[claim_id])
        if any(claim.sources for claim in marked_claims):
            continue
        for claim in marked_claims:
            if has_figure(claim.text) or re.search(r"\d", claim.value or ""):
                figures[" ".join(claim.text.split())] = None
    return tuple(figures)


def _index_by_place(citations: Sequence[NumberedCitation]) -> _Numbers:
    """Return the citations by their places in documents."""
    numbers: _Numbers = {}
    for numbered_citation in citations:
        numbers[_get_place(numbered_citation.citation)] = numbered_citation
    return numbers


def _get_place(citation: Citation) -> _Place:
    return citation.digest, citation.start, citation.end


def _with_numbers(text: str, claims: Mapping[str, Claim], numbers: _Numbers) -> str:
    """Return a text with numbers in place of markers. New citations are added to `numbers`."""
    return MARKER.sub(lambda match: _format_numbers(match, claims, numbers), text)


def _format_numbers(match: re.Match[str], claims: Mapping[str, Claim], numbers: _Numbers) -> str:
    """Return the numbers that replace a marker, or UNPROVEN if its claims have no source."""
    claim_ids = find_claim_ids_with_step(match)
    if not claim_ids:
        return match[0]
    marks: dict[str, None] = {}
    for claim_id in claim_ids:
        claim = claims.get(claim_id)
        if claim is None:
            continue
        for citation in claim.sources:
            number = _assign_number(numbers, claim_id, claim.text, citation)
            marks[f"[{number}]"] = None
    return "".join(marks) or UNPROVEN


def _assign_number(numbers: _Numbers, claim_id: str, claim: str, citation: Citation) -> int:
    """Return the number of a citation. A new citation is added to `numbers`."""
    place = _get_place(citation)
    if place not in numbers:
        step = None
        if "." in claim_id:
            step = StepId(claim_id.partition(".")[0])
        numbers[place] = NumberedCitation(
            n=len(numbers) + 1, claim=claim, citation=citation, step=step
        )
    return numbers[place].n
