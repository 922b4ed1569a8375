"""Similarity of two tasks, by their phrases and by their words.

A request for "the licence and the price" includes a request for "the licence". A request for "the
maximum dose" does not include a request for every dose. So a narrower request may leave out a whole
item of a list, but no word that narrows the rest (`narrows`).

The measure of two texts (`likeness`) is containment (A. Broder, "On the resemblance and containment of documents", 1997) over
single words: the part of the shorter text that the other text contains. Single words are used
because rewording keeps the important words and changes their order. Words lose their endings. Words
of grammar and general words of requests are left out.

Names and figures must agree: to compare A and to compare B, or 2023 and 2024, are two requests. Two
texts with one sentence pattern and a few different words are also two requests: "a source for the
storage claim", "a source for the filtering claim".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from handoff_queue.shared.text.words import stem

_PREPOSITIONS = frozenset(
    "of in on at to for from with by about as into within among between per via regarding respect concerning".split()
)
_ENDS, _BREAKS = frozenset(".!?;\n"), frozenset(",:()[]–—")
"""Marks at the end of a sentence, and marks within a sentence."""
_AND = frozenset("and or und oder & plus".split())
_OF_THEIR_OWN = frozenset("leave say do".split())
"""Verbs that begin a new sentence without a request."""


class TaskPhrase(NamedTuple):
    """Words between two prepositions, conjunctions or marks."""

    words: frozenset[str]
    is_listed: bool
    """True if the phrase is an item of a list: a sentence with another request, or items joined by
    "and".
    """
    follows: bool
    """True if the phrase belongs to the previous one."""
    is_named: bool = False
    """True if the phrase has names."""


def narrows(kept: Collection[str], parts: tuple[TaskPhrase, ...]) -> bool:
    """Return whether a task that keeps only some words of another task is a narrower request.

    Args:
        kept: the kept words. A word that belongs to two phrases keeps neither phrase.
        parts: the phrases of the other task.
    """
    count = Counter[str]()
    for part in parts:
        count.update(part.words)
    is_out = is_mixed = False
    for part in parts:
        gone = part.words.difference(kept)
        own = {word for word in part.words.intersection(kept) if count[word] == 1}
        may_go = part.is_listed or (part.follows and is_out)
        if (gone and (own or not may_go)) or (own and part.follows and is_mixed):
            return False
        is_out = may_go and not own and not part.is_named
        is_mixed = bool(gone) and gone != part.words
    return True


@dataclass(slots=True)
class _Open:
    """A phrase that may get more words."""

    words: set[str] = field(default_factory=set)
    is_listed: bool = False
    follows: bool = False
    is_named: bool = False
    leads: bool = False
    """True if the phrase begins a sentence with a preposition. In "in small towns, ..." it is not an item
    of a list.
    """


@dataclass(slots=True)
class TaskPhrases:
    """Phrases of a task, up to the current word."""

    _parts: list[_Open] = field(default_factory=lambda: [_Open()])
    _is_first: bool = True
    """True before the first word."""
    _listed_from: int | None = None
    """Index of the first phrase before a comma. The phrases from there are a list if "and" follows."""

    def take(self, small: str, gap: str, *, is_order: bool) -> None:
        """Take the next word, in small letters, and the text before it."""
        begins = not _ENDS.isdisjoint(gap)
        if begins:
            self._opens(is_listed=(is_order and small != "use") or small in _OF_THEIR_OWN)
            self._listed_from = None
        elif "," in gap and not is_order:
            if self._listed_from is None:
                self._listed_from = len(self._parts) - 1
            self._opens(follows=True)
        elif not _BREAKS.isdisjoint(gap):
            self._opens(follows=True)
            self._listed_from = None
        if small in _AND:
            self._joins()
        elif small in _PREPOSITIONS:
            self._leads_on(begins=begins or self._is_first)
        self._is_first = False

    def note(self, root: str, *, is_name: bool) -> None:
        """Add the root of a word that describes the work to the current phrase."""
        if is_name:
            self._parts[-1].is_named = True
        else:
            self._parts[-1].words.add(root)

    def read(self) -> tuple[TaskPhrase, ...]:
        """Return the phrases so far."""
        phrases: list[TaskPhrase] = []
        for part in self._parts:
            words = frozenset(part.words)
            phrases.append(TaskPhrase(words, part.is_listed, part.follows, part.is_named))
        return tuple(phrases)

    @property
    def _is_filled(self) -> bool:
        return bool(self._parts[-1].words) or self._parts[-1].is_named

    def _opens(self, *, is_listed: bool = False, follows: bool = False) -> None:
        if self._is_filled:
            self._parts.append(_Open())
        self._parts[-1].is_listed, self._parts[-1].follows = is_listed, follows

    def _joins(self) -> None:
        if self._listed_from is None:
            first = len(self._parts) - 1
        else:
            first = self._listed_from
        self._opens(is_listed=True)
        for part in self._parts[first:]:
            part.is_listed = part.is_listed or not part.leads
        self._listed_from = None

    def _leads_on(self, *, begins: bool) -> None:
        if self._is_filled:
            self._opens(follows=True)
            self._listed_from = None
        elif begins:
            self._parts[-1].leads = True


SAME_FROM = 0.6
"""Least likeness of two texts that ask for the same. In the pairs of
tests/supervisor/text/test_task_similarity.py, reworded requests have at least 0.75, and other requests
about the same work have at most 0.5.
"""
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


def likeness(first: str, second: str) -> float:
    """Return the part of the shorter text's words that the other text contains, 0 to 1.

    The likeness is 0 if the names differ, or if the texts have one sentence pattern. Of two texts
    without significant words it is 1.
    """
    if find_names(first) != find_names(second):
        return 0.0
    if _is_one_pattern(stems_in(first), stems_in(second)):
        return 0.0
    ours, theirs = frozenset(stems_in(first)), frozenset(stems_in(second))
    shorter = min(len(ours), len(theirs))
    if shorter:
        return len(ours & theirs) / shorter
    return float(ours == theirs)


def asks_the_same(first: str, second: str) -> bool:
    """Return whether two texts ask for the same."""
    return likeness(first, second) >= SAME_FROM


def stems_in(text: str) -> tuple[str, ...]:
    """Return the stems of the significant words in order."""
    words = (word.casefold() for word in _WORD.findall(text))
    return tuple(stem(word) for word in words if word not in _GRAMMAR)


def _is_one_pattern(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """Return whether both are one sentence pattern: the same number of words, of which more than half,
    but not all, are the same at the same place.
    """
    alike = 0
    for our_word, their_word in zip(ours, theirs, strict=False):
        alike += our_word == their_word
    return len(ours) == len(theirs) != alike and 2 * alike > len(ours)


def find_names(text: str) -> frozenset[str]:
    """Return figures, and words with a capital that does not begin a sentence, in small letters."""
    names, last, end = set(), "", 0
    for match in _WORD.finditer(text):
        word, last = match[0], text[end : match.start()].rstrip()[-1:] or last
        begins = not last or last in ".!?:"
        last, end = word[-1], match.end()
        if word.islower() and word.isalpha():
            continue
        if any(map(str.isdigit, word)) or (
            any(map(str.isupper, word[1:] if begins else word)) and len(word) > 1
        ):
            names.add(word.casefold())
    return frozenset(names)
