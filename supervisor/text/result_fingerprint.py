"""Fingerprint of a result: its content in the form in which results are compared. Pure.

Each word that can reverse a statement is part of the fingerprint: a figure, a name, a negation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cached_property

from handoff_queue.shared.types.citation_markers import MARKER
from handoff_queue.shared.types.handoff import Claim, HandoffResult
from handoff_queue.supervisor.text.claim_subject import ClaimSubject, is_same, matter_of
from handoff_queue.supervisor.text.task_similarity import find_names, stems_in

SHINGLE = 4
"""Words that follow one another."""
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)|\n")
_ROUND_A_WORD = "\"'“”‘’`*_()[]{},:;.!?|#"
_ARTICLES = frozenset(("", "a", "an", "the"))
_NOT = re.compile(r"(?<=\w)n['’]t\b|(?<=can)not\b", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]+")
_TURNS = frozenset(
    (
        "no not nor never none neither without except unless if only all any some every both more most less least must may might should "
        "can could will would was were had nicht kein keine keinen keinem keiner keines nie ohne"
    ).split()
)
_RELATIONS = frozenset("than from to into by before after as behind".split())
"""Words that relate their two sides, which cannot change places."""


class ResultFingerprint:
    """A result: each of its readings is made once, where it is asked for."""

    def __init__(self, result: HandoffResult) -> None:
        self.claims = result.claims
        if isinstance(result.output, str):
            output = result.output
        else:
            output = json.dumps(result.output, ensure_ascii=False)
        self.text = MARKER.sub(" ", output)
        """Text without markers, because markers name the step."""

    @cached_property
    def shingles(self) -> frozenset[tuple[str, ...]]:
        words = re.findall(r"\w+", self.text.casefold())
        return frozenset(zip(*(words[start:] for start in range(SHINGLE)), strict=False))

    @cached_property
    def sentences(self) -> frozenset[tuple[str, ...]]:
        """Return the words of each sentence in order, without articles."""
        return frozenset(filter(None, map(_words, _SENTENCE_END.split(self.text.casefold()))))

    @cached_property
    def whole(self) -> str:
        """Return the text together with the texts of its claims."""
        return "\n".join([self.text, *(claim.text for claim in self.claims)])

    @cached_property
    def marks(self) -> frozenset[str]:
        """Return its names and figures, and the words that can reverse a statement."""
        return find_names(self.whole) | (_letters(self.whole) & _TURNS)

    @cached_property
    def values(self) -> frozenset[tuple[str, ...]]:
        """Return the values of its claims, with unit and date."""
        values: set[tuple[str, ...]] = set()
        for claim in self.claims:
            if claim.is_comparable:
                values.add(_value(claim))
        return frozenset(values)

    @cached_property
    def stems(self) -> frozenset[str]:
        return frozenset(stems_in(self.whole))


class EarlierClaims:
    """Index of claims by content: a search for equal claims does not read all claims."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._valued: dict[tuple[str, ...], list[Claim]] = {}
        self._worded: list[tuple[frozenset[str], Claim]] = []
        self._matters: dict[tuple[str, ...], dict[str, dict[ClaimSubject, list[Claim]]]] = {}
        for claim in claims:
            if claim.is_comparable:
                self._valued.setdefault(_value(claim), []).append(claim)
            else:
                self._worded.append((frozenset(stems_in(claim.text)), claim))

    def like(self, claim: Claim) -> list[Claim]:
        """Return the claims with the same subject, attribute, value, unit and date. For a claim
        without such parts, return the claims with all of its words.
        """
        if claim.is_comparable:
            matter = _matter(claim)
            alike = self._of_value(_value(claim)).get(matter.head, {})
            return [
                candidate
                for other, claims in alike.items()
                if is_same(matter, other)
                for candidate in claims
            ]
        stems, sense = frozenset(stems_in(claim.text)), _sense(claim.text)
        return [
            candidate
            for theirs, candidate in self._worded
            if stems and stems <= theirs and sense == _sense(candidate.text)
        ]

    def _of_value(self, value: tuple[str, ...]) -> dict[str, dict[ClaimSubject, list[Claim]]]:
        if value not in self._matters:
            claims = self._matters[value] = {}
            for claim in self._valued.get(value, ()):
                matter = _matter(claim)
                claims.setdefault(matter.head, {}).setdefault(matter, []).append(claim)
        return self._matters[value]


def _sense(text: str) -> tuple[object, ...]:
    """Return the properties that two texts with the same words must share to mean the same: names,
    relations, and the order of the words where it matters.
    """
    words = _letters(text)
    return find_names(text), words & _TURNS, stems_in(text) if words & _RELATIONS else ()


def _matter(claim: Claim) -> ClaimSubject:
    return matter_of(claim.subject or "", claim.attribute or "")


def _value(claim: Claim) -> tuple[str, ...]:
    items: list[str] = []
    for part in (claim.value, claim.unit, claim.date):
        items.append(" ".join((part or "").casefold().split()))
    return tuple(items)


def _words(sentence: str) -> tuple[str, ...]:
    words: list[str] = []
    for word in (token.strip(_ROUND_A_WORD) for token in sentence.split()):
        if word not in _ARTICLES:
            words.append(word)
    return tuple(words)


def _letters(text: str) -> frozenset[str]:
    return frozenset(_LETTERS.findall(_NOT.sub(" not", text).casefold()))
