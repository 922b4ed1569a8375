"""Growth of the time of regular expressions with the length of a text.

A pattern that needs quadratic time holds the interpreter lock, and so stops all jobs of a process.
The texts come from the characters and the words of the pattern itself. They are long runs of one
character, of two characters or of the beginning of a match. Some have an end that does not fit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from re import _constants as codes
from re import _parser as parser
from typing import Any

SIZES = (25, 50, 100, 200, 400, 1_600)
"""Characters. A pattern is not measured at the next size once its time has grown too fast, because
exponential time would not end.
"""
MAX_GROWTH = 2.2
"""Times that the time may grow in relation to the length. It is 1 for linear time, and 4 for
quadratic time from one size to a size four times larger.
"""
MIN_S = 1e-5
"""Shorter times are too inexact for a ratio."""
TRIES = 4
CHECKS = 3
"""Number of measurements that must all show the growth. Other programs can disturb one."""
MEASURABLE_S = 0.02
"""A time of which other programs disturb only a small part."""
MAX_SIZE = 400_000
"""Characters of the longest text."""
MAX_TEXTS = 150
MAX_CHARS, MAX_WORDS = 16, 24
MISFIT = "\0"
_PROBES = [*map(chr, range(32, 127)), *"\n\t\r\0\x1bé\u0661\u4e2d\u200b\u00a0\u2014。"]
_REPEATS = {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}
_MANY = 8
"""Least upper bound of a repetition that is tried as a run."""
_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    codes.CATEGORY_DIGIT: str.isdigit,
    codes.CATEGORY_NOT_DIGIT: lambda char: not char.isdigit(),
    codes.CATEGORY_SPACE: str.isspace,
    codes.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    codes.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    codes.CATEGORY_NOT_WORD: lambda char: not (char.isalnum() or char == "_"),
}


@dataclass(frozen=True)
class Repetition:
    """A text of any length: `first`, then `unit` again and again, then `last`."""

    first: str
    unit: str
    last: str = ""
    second: str = ""
    """If given, the second half of the text repeats it."""

    def text(self, size: int) -> str:
        """Return a text of about `size` characters."""
        if self.second:
            half = size // 2
            return self.unit * (half // len(self.unit) + 1) + self.second * half
        return self.first + self.unit * max(1, size // len(self.unit)) + self.last


def fast_growing(pattern: re.Pattern[Any], *, is_search: bool) -> Repetition | None:
    """Return a text for which the time grows clearly faster than its length, or None.

    Args:
        is_search: False: the code uses only `match` and `fullmatch` of the pattern.
    """
    for repetition in _repetitions(pattern):
        before = 0.0
        for number, size in enumerate(SIZES):
            seconds = _seconds(pattern, repetition, size, is_search=is_search)
            smaller = SIZES[number - 1] if number else 0
            limit = MAX_GROWTH * max(before, MIN_S) * size / max(smaller, 1)
            if number and seconds > limit:
                # Other programs often disturb a single measurement of a short time.
                seconds = _measure_shortest(pattern, repetition, size, is_search=is_search)
                before = _measure_shortest(pattern, repetition, smaller, is_search=is_search)
                limit = MAX_GROWTH * max(before, MIN_S) * size / smaller
                checks = (_grows(pattern, repetition, size, is_search) for _ in range(CHECKS))
                if seconds > limit and all(checks):
                    return repetition
            before = seconds
    return None


def _grows(pattern: re.Pattern[Any], repetition: Repetition, size: int, is_search: bool) -> bool:
    """Return whether the time is too long in relation to the time for a quarter of the text.

    The size is doubled until the time can be measured, because other programs disturb the
    measurement of a short time.
    """
    large = size
    while large < MAX_SIZE:
        if _seconds(pattern, repetition, large, is_search=is_search) >= MEASURABLE_S:
            break
        large *= 2
    small_s = _measure_shortest(pattern, repetition, large // 4, is_search=is_search)
    large_s = _measure_shortest(pattern, repetition, large, is_search=is_search)
    return large_s > MAX_GROWTH * 4 * max(small_s, MIN_S)


def _measure_shortest(
    pattern: re.Pattern[Any], repetition: Repetition, size: int, *, is_search: bool
) -> float:
    return min(_seconds(pattern, repetition, size, is_search=is_search) for _ in range(TRIES))


def _seconds(
    pattern: re.Pattern[Any], repetition: Repetition, size: int, *, is_search: bool
) -> float:
    text: Any = repetition.text(size)
    if isinstance(pattern.pattern, bytes):
        text = text.encode()
    began = time.thread_time()
    if is_search:
        for _ in pattern.finditer(text):
            pass
    else:
        pattern.match(text)
        pattern.fullmatch(text)
    return time.thread_time() - began


@dataclass
class _Parts:
    """Characters and words of a pattern."""

    sets: list[frozenset[str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    runs: list[tuple[str, str]] = field(default_factory=list)
    """A repetition: the beginning of a match before it, and its shortest text."""

    def read(self, sequence: Any, before: str) -> None:
        for code, value in sequence:
            if code in (codes.IN, codes.LITERAL):
                self.sets.append(frozenset(_chars(code, value)))
            elif code is codes.BRANCH:
                for branch in value[1]:
                    self.read(branch, before)
            elif code is codes.SUBPATTERN:
                self.read(value[3], before)
            elif code is codes.ATOMIC_GROUP:
                self.read(value, before)
            elif code in (codes.ASSERT, codes.ASSERT_NOT):
                self.read(value[1], before)
            elif code in _REPEATS:
                body = _shortest(value[2])
                if value[1] >= _MANY and body:
                    self.runs.append((before, body))
                self.words += [before, before + body]
                self.read(value[2], before)
            before += _shortest([(code, value)])
        self.words.append(before)


def _chars(code: Any, value: Any) -> list[str]:
    """Return the probes that a class or a literal fits."""
    if code is codes.LITERAL:
        return [chr(value)]
    is_negated = value[0][0] is codes.NEGATE
    chars = [char for char in _PROBES if _is_in(char, value) != is_negated]
    if not chars:
        chars = [chr(item if code is codes.LITERAL else item[0]) for code, item in value[:1]]
    return chars


def _is_in(char: str, items: Any) -> bool:
    for code, value in items:
        if (
            (code is codes.LITERAL and ord(char) == value)
            or (code is codes.RANGE and value[0] <= ord(char) <= value[1])
            or (code is codes.CATEGORY and _CATEGORIES[value](char))
        ):
            return True
    return False


def _shortest(sequence: Any) -> str:
    """Return a short text that a sequence fits, if its assertions do."""
    text = ""
    for code, value in sequence:
        if code in (codes.LITERAL, codes.IN):
            chars = _chars(code, value)
            text += "a" if "a" in chars else chars[0]
        elif code in (codes.ANY, codes.NOT_LITERAL):
            text += "a"
        elif code is codes.BRANCH:
            text += _shortest(value[1][0])
        elif code is codes.SUBPATTERN:
            text += _shortest(value[3])
        elif code is codes.ATOMIC_GROUP:
            text += _shortest(value)
        elif code in _REPEATS:
            text += _shortest(value[2]) * min(value[0], 16)
    return text


def _repetitions(pattern: re.Pattern[Any]) -> Iterator[Repetition]:
    source: Any = pattern.pattern
    flags = pattern.flags & ~re.UNICODE if isinstance(source, bytes) else pattern.flags
    parts = _Parts()
    parts.read(parser.parse(source, flags), "")
    chars = _alphabet(parts.sets)
    words = [word for word in dict.fromkeys(parts.words) if 0 < len(word) < 60][:MAX_WORDS]
    repetitions = [Repetition("", char) for char in chars]
    for before, body in dict.fromkeys(parts.runs):
        repetitions += [Repetition(before, body, last) for last in ("", MISFIT)]
        repetitions += [Repetition(before, char, MISFIT) for char in chars[:4]]
    repetitions += [Repetition("", word) for word in words]
    repetitions += [Repetition("", word + char) for word in words for char in chars[:2]]
    repetitions += [Repetition("", word, second=char) for word in words[:6] for char in chars[:4]]
    repetitions += [Repetition("", first + second) for first in chars[:8] for second in chars[:8]]
    yield from list(dict.fromkeys(repetitions))[:MAX_TEXTS]


def _alphabet(sets: list[frozenset[str]]) -> list[str]:
    """Return one character for each combination of classes, and the signs of the pattern."""
    classes = list(dict.fromkeys(chars for chars in sets if len(chars) > 1))
    literals = [char for chars in sets if len(chars) == 1 for char in chars]
    kinds: dict[tuple[bool, ...], str] = {}
    for char in [" ", "a", "1", *_PROBES]:
        kinds.setdefault(tuple(char in chars for chars in classes), char)
    signs = [char for char in literals if not char.isalnum()]
    return list(dict.fromkeys([" ", *kinds.values(), *signs, *literals, "\n"]))[:MAX_CHARS]
