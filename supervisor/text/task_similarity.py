"""Whether two texts ask for the same, in whatever words. Pure.

The measure is containment (A. Broder, "On the resemblance and containment of documents", 1997): how much of the shorter text stands in
the other one, over single words, because who rewords keeps the words that matter and changes their order. Words lose their endings;
words of grammar, and those with which one asks for anything at all, are left out. Names and figures must agree: who asks to compare A and
to compare B, or for 2023 and for 2024, asks for two things. So does who puts another word into the same sentence: "a source for the
storage claim", "a source for the filtering claim".
"""

from __future__ import annotations

import re

from handoff_queue.shared.text.stems import stem

SAME_FROM = 0.6
"""Containment from which two texts ask for the same. Measured on the pairs of tests/supervisor/text/test_task_similarity.py: reworded demands
reach 0.75 and more, other demands on the same piece of work 0.5 at most."""
_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_GRAMMAR = frozenset(
    (
        "a an the and or but nor not no of in on at to for from by with without into about as is are was were be been being it its "
        "this that these those there their they them he she you your we our i my which who whom what when where how why than then so "
        "too very can could may might must shall should will would do does did has have had if any some all each every both more most "
        "still yet also again just only one once please need needs needed want wants ask asks say says said give gives given make "
        "makes made answer text result step work task part"
    ).split()
)


def likeness(one: str, other: str) -> float:
    """0: nothing in common, or they name different things. 1: the shorter one stands in the other."""
    if named(one) != named(other):
        return 0.0
    if _is_one_pattern(stems_in(one), stems_in(other)):
        return 0.0
    ours, theirs = frozenset(stems_in(one)), frozenset(stems_in(other))
    shorter = min(len(ours), len(theirs))
    return len(ours & theirs) / shorter if shorter else float(ours == theirs)


def asks_the_same(one: str, other: str) -> bool:
    return likeness(one, other) >= SAME_FROM


def stems_in(text: str) -> tuple[str, ...]:
    words = (word.casefold() for word in _WORD.findall(text))
    return tuple(stem(word) for word in words if word not in _GRAMMAR)


def _is_one_pattern(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """Whether they are one sentence, filled in with different words."""
    alike = sum(one == other for one, other in zip(ours, theirs, strict=False))
    return len(ours) == len(theirs) != alike and 2 * alike > len(ours)


def named(text: str) -> frozenset[str]:
    """Figures, and words with a capital that does not begin a sentence."""
    found, last, end = set(), "", 0
    for match in _WORD.finditer(text):
        word, last = match[0], text[end : match.start()].rstrip()[-1:] or last
        begins = not last or last in ".!?:"
        last, end = word[-1], match.end()
        if word.islower() and word.isalpha():
            continue
        if any(map(str.isdigit, word)) or (
            any(map(str.isupper, word[1:] if begins else word)) and len(word) > 1
        ):
            found.add(word.casefold())
    return frozenset(found)
