"""Warnings about specialists that will probably work badly, for example two specialists that a
planner cannot tell apart, or instructions without an output format. Pure. A warning never
stops a specialist from running.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from math import log, sqrt

from handoff_queue.shared.text.markdown_sections import split_sections
from handoff_queue.shared.types.specialist import SpecialistSpec

OVERLAP = 0.25
"""Cosine of two descriptions (TF-IDF over the set, without their "not for" part) from which a
planner cannot tell them apart. Measured: built-in specialists and four specialists of other
fields reach at most 0.16; eight rewordings of built-in specialists have 0.34 to 0.74
(tests/shared/specialists/test_lint.py).
"""
MAX_DESCRIPTION_CHARS = 320
"""Characters. The planner reads all descriptions for each job."""
MAX_INSTRUCTIONS_CHARS = 8_000
"""Characters, about 2,000 tokens. They are paid at every turn of every handoff."""


class LintRule(StrEnum):
    """Name of a check, which is at the end of its warning."""

    OVERLAP = "overlap"
    NO_BOUNDARY = "no-boundary"
    LONG_DESCRIPTION = "long-description"
    LONG_INSTRUCTIONS = "long-instructions"
    MISSING_SECTION = "missing-section"
    TOOL_NOT_GRANTED = "tool-not-granted"
    TOOL_NOT_USED = "tool-not-used"


@dataclass(frozen=True, slots=True)
class LintWarning:
    """A likely mistake in one specialist. An overlap of two specialists is reported once, for
    the first by name.
    """

    specialist: str
    rule: LintRule
    message: str

    def __str__(self) -> str:
        return f"{self.specialist}: {self.message} [{self.rule}]"


def lint(specs: Iterable[SpecialistSpec]) -> list[LintWarning]:
    """Return all warnings about a set of specialists that serve together, by name."""
    ordered_specs = sorted(specs, key=lambda spec: spec.name)
    warnings: list[LintWarning] = []
    for spec in ordered_specs:
        for check in _CHECKS:
            warnings.extend(check(spec))
    warnings.extend(_find_overlaps(ordered_specs))
    return sorted(warnings, key=lambda warning: (warning.specialist, warning.rule))


def compute_similarity(descriptions: Sequence[str]) -> dict[tuple[int, int], float]:
    """Return the cosine of the TF-IDF vectors of each pair of descriptions, from 0 to 1. Rare
    words weigh most.
    """
    bags = list(map(_find_description_stems, descriptions))
    document_counts: Counter[str] = Counter()
    for bag in bags:
        document_counts.update(bag)
    weights: dict[str, float] = {}
    for word, count in document_counts.items():
        weights[word] = log((1 + len(bags)) / (1 + count)) + 1
    norms: list[float] = []
    for bag in bags:
        norms.append(sqrt(_sum_squared_weights(bag, weights)) or 1.0)
    cosines: dict[tuple[int, int], float] = {}
    for a, b in combinations(range(len(bags)), 2):
        cosines[a, b] = _sum_squared_weights(bags[a] & bags[b], weights) / (norms[a] * norms[b])
    return cosines


def _sum_squared_weights(words: Iterable[str], weights: Mapping[str, float]) -> float:
    """Return the sum of the squared weights of these words."""
    return sum(weights[word] ** 2 for word in words)


def _find_overlaps(specs: Sequence[SpecialistSpec]) -> Iterator[LintWarning]:
    """Yield a warning for each pair of specialists with similar descriptions."""
    for (a, b), cosine in compute_similarity([spec.description for spec in specs]).items():
        if cosine < OVERLAP:
            continue
        first = specs[a]
        second = specs[b]
        words = _find_description_stems(first.description) & _find_description_stems(
            second.description
        )
        message = (
            f"its description overlaps with {second.name}'s ({cosine:.2f}; both say:"
            f" {', '.join(sorted(words))}); describe the work that only this one does"
        )
        yield LintWarning(first.name, LintRule.OVERLAP, message)


def _check_boundary(spec: SpecialistSpec) -> Iterator[LintWarning]:
    if not _NOT_FOR.search(spec.description):
        message = "its description excludes no work; add `Not for ...: that is NAME`"
        yield LintWarning(spec.name, LintRule.NO_BOUNDARY, message)


def _check_lengths(spec: SpecialistSpec) -> Iterator[LintWarning]:
    if len(spec.description) > MAX_DESCRIPTION_CHARS:
        message = (
            f"its description has {len(spec.description)} characters, {MAX_DESCRIPTION_CHARS} are"
            " enough for a planner to choose by"
        )
        yield LintWarning(spec.name, LintRule.LONG_DESCRIPTION, message)
    if len(spec.instructions) > MAX_INSTRUCTIONS_CHARS:
        message = (
            f"its instructions have {len(spec.instructions):,} characters, paid at every turn;"
            f" {MAX_INSTRUCTIONS_CHARS:,} should do"
        )
        yield LintWarning(spec.name, LintRule.LONG_INSTRUCTIONS, message)


def _check_sections(spec: SpecialistSpec) -> Iterator[LintWarning]:
    if spec.celery_task is not None:  # no model reads the instructions
        return
    headings = "\n".join(split_sections(spec.instructions)).lower()
    for name, words in _WANTED_SECTIONS.items():
        if not re.search(words, headings):
            yield LintWarning(
                spec.name, LintRule.MISSING_SECTION, f"no section says {name}; add one (`## ...`)"
            )


def _check_tools(spec: SpecialistSpec) -> Iterator[LintWarning]:
    mentioned_tools = set(re.findall(r"`([a-z][a-z0-9]*(?:_[a-z0-9]+)+|now)`", spec.instructions))
    for tool in sorted(mentioned_tools & _KNOWN_TOOLS - set(spec.tools)):
        yield LintWarning(
            spec.name,
            LintRule.TOOL_NOT_GRANTED,
            f"is told to use `{tool}`, but its tools do not name it; add or drop it",
        )
    search = _SEARCHES.search(spec.instructions)
    if search is not None and not spec.tools and not mentioned_tools:
        message = (
            f"is told to {search.group(0).lower()!r}, but has no tools; name them in `tools` or"
            " drop it"
        )
        yield LintWarning(spec.name, LintRule.TOOL_NOT_GRANTED, message)
    for tool in spec.tools:
        if tool not in spec.instructions:
            message = (
                f"may use {tool}, but its instructions never say when; say it or take the tool away"
            )
            yield LintWarning(spec.name, LintRule.TOOL_NOT_USED, message)


_CHECKS = (_check_boundary, _check_lengths, _check_sections, _check_tools)
_KNOWN_TOOLS = frozenset({"search_documents", "read_document", "web_search", "fetch_url", "now"})
"""The built-in tools. Other words in backticks need not be tools."""
_NOT_FOR = re.compile(r"\bnot (?:for|to)\b", re.IGNORECASE)
_SEARCHES = re.compile(
    r"(?<!not )(?<!never )\b(?:search|look up|browse|fetch|query)"
    r" (?:for|the|through|it|them|all|each|every)\b",
    re.IGNORECASE,
)
_WANTED_SECTIONS = {
    "what good looks like": r"\bgood\b|quality|standard|done",
    "how to work": r"\bhow\b|\bwork|process|steps|method",
    "what to do when it cannot be done": r"cannot|can't|can not|fail|missing|stuck",
    "what the output must be": r"output|answer|format|result",
}
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "about above after all also and any are been before both but can each for from has have how"
        " into its more most nor not one only other out over own same should some such than that"
        " the their them then there these they this those through use used uses using what when"
        " where which while who will with without work works you your given gives task something",
    )
)


def _select_claimed_work(description: str) -> str:
    """Return the part of a description that claims work. The part that excludes work begins
    with "not for" or "not to".
    """
    return _NOT_FOR.split(description, maxsplit=1)[0]


def _find_description_stems(description: str) -> frozenset[str]:
    """Return the stems of the words that claim work in a description, without stop words."""
    stems: set[str] = set()
    for word in re.findall(r"[^\W\d_]{3,}", _select_claimed_work(description).lower()):
        if word not in _STOP_WORDS:
            stems.add(_find_rough_stem(word))
    return frozenset(stems)


def _find_rough_stem(word: str) -> str:
    """Return a rough stem, so that `compares` matches `comparing`. The stems of
    `shared.text.word_forms` would give unrelated specialists a cosine of up to 0.20 instead of
    0.16, too close to `OVERLAP`.
    """
    for ending in ("ings", "ing", "ies", "es", "ed", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
