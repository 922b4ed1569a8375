"""Similarity of two short texts by their words, and steps that repeat earlier steps.

The measure of two texts (`compute_likeness`) is containment: the part of the shorter text that the
other text contains, in single words (A. Broder, "On the resemblance and containment of
documents", 1997). Rewording keeps the important words and changes their order, so the order
does not count. Words lose their endings. Words of grammar and general words of requests are
left out.

Names and figures must agree: to compare A and to compare B, or 2023 and 2024, are two requests. Two
texts with one sentence pattern and a few different words are also two requests. Examples are "a
source for the storage claim" and "a source for the filtering claim".

A step repeats an earlier step of the same specialist if both tasks have the same word stems in the
same order (`find_repeats_of_earlier`). Articles and politeness do not count. A reworded repeat is
not found; the limit on rounds stops it. `docs/decisions/0023-measured-mechanisms.md` has the
figures of stricter and looser measures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from handoff_queue.shared.text.word_forms import find_stem, has_digit
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Repeat
from handoff_queue.shared.types.step import Step

SAME_FROM = 0.6
"""Least likeness of two texts that ask for the same. In the pairs of
tests/supervisor/text/test_task_similarity.py, reworded requests have at least 0.75, and other
requests about the same work have at most 0.5.
"""
_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_TASK_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*[+#]*|[€$£¥%]")
_POLITE = re.compile(
    r"\b(?:please|kindly|(?:once )?again|once more|(?:could|can|would|will) you)\b", re.IGNORECASE
)
_ARTICLES = frozenset(("a", "an", "the"))
_GRAMMAR = frozenset(
    (
        "a an the and or but nor not no of in on at to for from by with without into about as is"
        " are was were be been being it its this that these those there their they them he she you"
        " your we our i my which who whom what when where how why than then so too very can could"
        " may might must shall should will would do does did has have had if any some all each"
        " every both more most still yet also again just only one once please need needs needed"
        " want wants ask asks say says said give gives given make makes made answer text result"
        " step work task part"
    ).split()
)


def compute_likeness(first: str, second: str) -> float:
    """Return the part of the shorter text's words that the other text contains, 0 to 1.

    The likeness is 0 if the names differ, or if the texts have one sentence pattern. Of two
    texts without significant words it is 1.
    """
    if find_names(first) != find_names(second):
        return 0.0
    if _have_same_pattern(find_stems(first), find_stems(second)):
        return 0.0
    first_words, second_words = frozenset(find_stems(first)), frozenset(find_stems(second))
    shorter = min(len(first_words), len(second_words))
    if shorter:
        return len(first_words & second_words) / shorter
    return float(first_words == second_words)


def asks_the_same(first: str, second: str) -> bool:
    """Return whether two texts ask for the same."""
    return compute_likeness(first, second) >= SAME_FROM


def find_task_stems(task: str) -> tuple[str, ...]:
    """Return the word stems of a task in order, without articles and politeness. Two tasks
    with the same words in the same order ask for the same work.
    """
    stems: list[str] = []
    for word in _TASK_WORD.findall(_POLITE.sub(" ", task).casefold()):
        if word not in _ARTICLES:
            stems.append(find_stem(word))
    return tuple(stems)


def find_stems(text: str) -> tuple[str, ...]:
    """Return the stems of the significant words in order."""
    words = (word.casefold() for word in _WORD.findall(text))
    return tuple(find_stem(word) for word in words if word not in _GRAMMAR)


def _have_same_pattern(first_words: tuple[str, ...], second_words: tuple[str, ...]) -> bool:
    """Return whether both are one sentence pattern. They have the same number of words, and more
    than half, but not all, are the same at the same place.
    """
    if len(first_words) != len(second_words):
        return False
    equal_words = 0
    for our_word, their_word in zip(first_words, second_words, strict=True):
        if our_word == their_word:
            equal_words += 1
    return len(first_words) / 2 < equal_words < len(first_words)


def find_names(text: str) -> frozenset[str]:
    """Return figures, and words with a capital that does not begin a sentence, in small letters."""
    names: set[str] = set()
    end = 0  # place after the word before
    before = ""  # the last visible character before the word
    for match in _WORD.finditer(text):
        word = match[0]
        between = text[end : match.start()].rstrip()
        before = between[-1:] or before
        begins_sentence = not before or before in ".!?:"
        letters = word[1:] if begins_sentence else word
        has_capital = len(word) > 1 and any(letter.isupper() for letter in letters)
        if has_capital or has_digit(word):
            names.add(word.casefold())
        before, end = word[-1], match.end()
    return frozenset(names)


def find_repeats_of_earlier(new: Sequence[Step], earlier: Sequence[Step]) -> tuple[Repeat, ...]:
    """Return the new steps that repeat an earlier step of the same specialist, with the first
    such step.
    """
    first: dict[tuple[str, tuple[str, ...]], StepId] = {}
    for step in earlier:
        first.setdefault((step.specialist, find_task_stems(step.task)), step.id)
    repeats: list[Repeat] = []
    for step in new:
        earlier_id = first.get((step.specialist, find_task_stems(step.task)))
        if earlier_id is not None:
            repeats.append(Repeat(step=step.id, earlier=earlier_id))
    return tuple(repeats)


def find_repeats(steps: Sequence[Step]) -> tuple[Repeat, ...]:
    """Return the steps that repeat an earlier step of the same plan, with the same specialist
    and inputs.
    """
    first: dict[tuple[str, frozenset[StepId], tuple[str, ...]], StepId] = {}
    repeats: list[Repeat] = []
    for step in steps:
        key = (step.specialist, frozenset(step.depends_on), find_task_stems(step.task))
        earlier_id = first.setdefault(key, step.id)
        if earlier_id != step.id:
            repeats.append(Repeat(step=step.id, earlier=earlier_id))
    return tuple(repeats)
