"""Citations of an answer: each place in a document has one number."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.handoff import Citation, Claim
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.supervisor.lifecycle.citation_numbers import number_citations
from handoff_queue.supervisor.lifecycle.result_texts import UNPROVEN


def citation_of(source: str, start: int = 0, text: str = "It is so.") -> Citation:
    return Citation(
        source=source, digest=compute_digest(source), start=start, end=start + len(text), quote=text
    )


def claim_of(claim_id: str, *sources: Citation, text: str = "It is so.") -> Claim:
    return Claim(id=claim_id, text=text, sources=sources)


def by_id(*claims: Claim) -> dict[str, Claim]:
    return {claim.id: claim for claim in claims}


def test_markers_become_numbers_in_the_order_of_the_text() -> None:
    claims = by_id(claim_of("a.c1", citation_of("one.md")), claim_of("b.c1", citation_of("two.md")))

    text, citations = number_citations("Second [b.c1], then first [a.c1].", claims)

    assert text == "Second [1], then first [2]."
    assert [(item.n, item.citation.source, item.step) for item in citations] == [
        (1, "two.md", "b"),
        (2, "one.md", "a"),
    ]


def test_a_place_in_a_document_has_one_number_for_all_steps() -> None:
    claims = by_id(claim_of("a.c1", citation_of("one.md")), claim_of("b.c7", citation_of("one.md")))

    text, citations = number_citations("So [a.c1] and so [b.c7] and so [a.c1].", claims)

    assert text == "So [1] and so [1] and so [1]."
    assert len(citations) == 1


def test_two_places_in_a_document_have_two_numbers() -> None:
    claims = by_id(
        claim_of("a.c1", citation_of("one.md", 0)), claim_of("a.c2", citation_of("one.md", 50))
    )

    assert number_citations("So [a.c1] and so [a.c2].", claims)[0] == "So [1] and so [2]."


def test_a_claim_with_several_sources_has_all_their_numbers() -> None:
    claims = by_id(claim_of("a.c1", citation_of("one.md"), citation_of("two.md")))

    assert number_citations("So [a.c1].", claims)[0] == "So [1][2]."


@pytest.mark.parametrize("marker", ["[a.c1, b.c1]", "[a.c1; b.c1]", "[a.c1,b.c1]"])
def test_a_marker_may_name_several_claims(marker: str) -> None:
    claims = by_id(
        claim_of("a.c1", citation_of("one.md")),
        claim_of("b.c1", citation_of("two.md"), citation_of("one.md")),
    )

    assert number_citations(f"So {marker}.", claims)[0] == "So [1][2]."


def test_a_marker_without_a_known_claim_is_marked_as_unproven() -> None:
    claims = by_id(claim_of("a.c1"))

    assert number_citations("So [a.c1] and so [x.c9].", claims) == (
        f"So {UNPROVEN} and so {UNPROVEN}.",
        (),
    )


def test_a_marker_with_one_known_claim_is_proven() -> None:
    assert (
        number_citations("So [x.c9, a.c1].", by_id(claim_of("a.c1", citation_of("one.md"))))[0]
        == "So [1]."
    )


@pytest.mark.parametrize(
    "text", ["An array[0] and [a link](b.md).", "[1] is not a marker, nor [c1], nor [a.b.c1]"]
)
def test_other_brackets_stay_unchanged(text: str) -> None:
    assert number_citations(text, {}) == (text, ())
