"""Copies of private texts in a call of a tool, plain or encoded, as in Base64. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from handoff_queue.shared.agent.common_words import COMMON_WORDS
from handoff_queue.shared.agent.hidden_text_decoders import DECODERS, list_turned_texts
from handoff_queue.shared.text.unicode_text import normalize, normalize_keeping_case

MAX_WORK = 200_000
"""Characters of all texts of one call that are searched. A call with more needs a person."""
MAX_SEARCHES = 100
"""Searches of one call in the private texts. A call with more needs a person."""
_MAX_DEPTH = 4
"""Most encodings inside each other that are decoded."""
_MIN_WORD_CHARS = 4
_MIN_CODED_WORD_CHARS = 5
_MIN_SHIFTED_WORD_CHARS = 6
"""Letters of the shortest word that counts in plain text, in a code, and in a code of letters. A
short word results from other letters by chance.
"""
_HEAD = 7
"""Letters of the shortest name inside other letters, and of the shortest word of a code of letters
that is not a name.
"""
_MAX_WORD_CHARS = 20
_MAX_PART_CHARS = 5
"""Letters of the longest part of a word that was cut into parts."""
_MIN_WORDS = 2
"""Words that are neither names nor common, and that make a query a copy."""
_WINDOW = 16
"""Letters and digits in a row that count without regard to spaces. This is about three words."""
_MIN_DIGITS = 4
_MIN_DIGITS_IN_QUERY = 3
_MIN_JOINED_DIGITS = 5
_MIN_DIGITS_INSIDE = 6
"""Digits of the shortest figure that counts in a path, in a query, joined from several numbers, and
inside of other digits.
"""
_MAX_DIGITS = 24
_MAX_JOINED = 64
"""Numbers of a decoded text that are joined with their neighbours."""
_MAX_DENSITY = 0.001
"""Share of all numbers of a length that may be figures of a private text. In a text with more, such
as a long table, a number that was joined from others does not count.
"""
_TOKEN = re.compile(r"[^\W_]+")
_DIGITS = re.compile(r"[0-9]+")
_FIGURE = re.compile(r"[0-9][0-9.,'\u00a0\u202f ]*[0-9]")
_YEAR = re.compile(r"(19|20)[0-9]{2}")
_BASES = (
    (re.compile(r"[01]{8,60}"), 2),
    (re.compile(r"0o[0-7]{4,20}"), 8),
    (re.compile(r"0x[0-9a-f]{3,16}|(?=.{0,11}[a-f])(?=.{0,11}[0-9])[0-9a-f]{3,12}"), 16),
    (re.compile(r"(?=.{0,8}[a-z])(?=.{0,8}[0-9])[0-9a-z]{3,9}"), 36),
)
"""Forms of a number in another base, and the base."""
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Group:
    """Parts of a call that belong together, such as the segments of a path."""

    parts: tuple[str, ...]
    is_free: bool
    """True if the caller chooses the words, as in a query. Then one private word is a copy."""
    is_joined_only: bool = False
    """True if the parts themselves are in other groups."""


@dataclass(frozen=True, slots=True)
class Index:
    """The words and the figures of a text."""

    words: frozenset[str]
    names: frozenset[str]
    """Words that the text never writes in small letters."""
    heads: frozenset[str]
    """The first letters of the names that count inside other letters."""
    figures: frozenset[str]
    """Digits of each number, without separators and leading zeros."""
    counts: Counter[int]
    """Figures by the number of their digits."""
    rows: frozenset[int]
    """The hash of each three words in a row."""
    windows: frozenset[int]
    """The hash of `_WINDOW` letters without spaces, from the start of each word."""
    spaced: str
    """All words, with a space before and after each."""

    def is_dense(self, digits: int) -> bool:
        """Return whether a number of this length is often equal to a figure by chance."""
        return self.counts[digits] > _MAX_DENSITY * float(10**digits)


@lru_cache(maxsize=64)
def build_index(text: str) -> Index:
    """Return the index of a text. Its memory is about thirty times the length of the text."""
    simple = normalize_keeping_case(text)
    tokens = _TOKEN.findall(simple)
    spaced_text = f" {' '.join(tokens).casefold()} "
    words = spaced_text.split()
    small_words = {token for token in set(tokens) if token == token.casefold()}
    names = frozenset(words) - small_words
    heads = [name[:_HEAD] for name in names if len(name) >= _HEAD]
    figures = frozenset(_iterate_figures(simple))
    rows_of_three = zip(words, words[1:], words[2:], strict=False)
    return Index(
        words=frozenset(words),
        names=names,
        heads=frozenset(heads),
        figures=figures,
        counts=Counter(map(len, figures)),
        rows=frozenset(map(hash, rows_of_three)),
        windows=frozenset(_iterate_windows(words)),
        spaced=spaced_text,
    )


def _iterate_figures(text: str) -> Iterator[str]:
    yield from map(_without_zeros, _DIGITS.findall(text))
    for figure in _FIGURE.findall(text):
        for part in (figure, *figure.split()):
            yield _without_zeros(re.sub(r"[^0-9]", "", part))


def _iterate_windows(words: Sequence[str]) -> Iterator[int]:
    letters = "".join(words)
    start = 0
    for word in words:
        if len(word) < _WINDOW:
            yield hash(letters[start : start + _WINDOW])
        start += len(word)


def _without_zeros(digits: str) -> str:
    return digits.lstrip("0")


def carries_private_text(
    groups: Iterable[Group], private: Sequence[str], public: Sequence[str]
) -> bool:
    """Return whether the parts of a call have a copy from a private text, which no public text has.

    A call that takes too much work counts as a copy.
    """
    facts = _Facts()
    try:
        for group in groups:
            facts.add_group(group)
        known = [build_index(text) for text in public]
        return any(facts.are_in(build_index(text), known) for text in private)
    except _TooMuchWork:
        return True


class _TooMuchWork(Exception):
    """The call is too long, or has too many codes."""


@dataclass(slots=True)
class _Facts:
    """The words and numbers of a call that may be copies."""

    work: int = 0
    """Characters that were searched."""
    searches: int = 0
    plain: set[str] = field(default_factory=set)
    """Words that the call has without a code."""
    words: set[str] = field(default_factory=set)
    """Words of queries."""
    coded: set[str] = field(default_factory=set)
    """Words of decoded texts."""
    hidden: set[str] = field(default_factory=set)
    """Words from shifted, reversed or picked letters."""
    numbers: set[str] = field(default_factory=set)
    made_numbers: set[str] = field(default_factory=set)
    """Numbers that were joined, decoded, or are inside of other digits. An ordinary URL has many,
    so one can be equal to a private figure by chance.
    """
    runs: dict[str, set[str]] = field(default_factory=dict)
    """The first letters of possible names, and each longer text that begins with these letters."""
    rows: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The hash of each three words in a row, and these words with the next one."""
    windows: dict[int, str] = field(default_factory=dict)
    """The hash of `_WINDOW` letters without spaces, and the letters as the call writes them."""
    split_words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Words that were cut into parts, and the parts."""
    searched: set[tuple[str, bool, bool]] = field(default_factory=set)
    """Texts of which the facts are known, whether they are free, and whether they are decoded."""
    decoded: dict[str, int] = field(default_factory=dict)
    """Texts that were decoded, and the number of codes that each was inside of."""

    def add_group(self, group: Group) -> None:
        """Add the parts one by one, in a row, and in reverse order.

        Raises:
            _TooMuchWork: the parts are too long.
        """
        parts = [part for part in group.parts if part]
        if not parts:
            return
        spaced_text = " ".join(parts)
        joined_text = "".join(parts)
        texts = {spaced_text, " ".join(reversed(parts))}
        if not group.is_joined_only:
            texts.update(parts)
        for text in texts:
            self._add(text, is_free=group.is_free, is_coded=False)
        codes = {
            *texts,
            spaced_text,
            joined_text,
            "".join(reversed(parts)),
            *list_turned_texts(spaced_text),
        }
        for code in sorted(codes.union(list_turned_texts(joined_text))):
            self._add_hidden(code, is_coded=code not in texts)

    def _add_hidden(self, text: str, *, is_coded: bool) -> None:
        """Add each text that is hidden in a text, and the text if it is decoded.

        Raises:
            _TooMuchWork: there are too many.
        """
        waiting = [(text, 0)]
        while waiting:
            code, depth = waiting.pop()
            if self.decoded.get(code, depth + 1) <= depth:
                continue
            self.decoded[code] = depth
            self._work(len(code))
            if is_coded or depth > 0:
                self._add(code, is_free=False, is_coded=True)
            if depth < _MAX_DEPTH:
                for decode in DECODERS:
                    waiting += [(decoded_text, depth + 1) for decoded_text in decode(code)]

    def _work(self, amount: int) -> None:
        self.work += amount
        if self.work > MAX_WORK:
            raise _TooMuchWork

    def _add(self, text: str, *, is_free: bool, is_coded: bool) -> None:
        text = normalize(text)
        key = (text, is_free, is_coded)
        if key in self.searched:
            return
        self.searched.add(key)
        self._work(len(text))
        tokens = _TOKEN.findall(text)
        if not is_coded:
            self.plain.update(tokens)
        self._add_words(tokens, is_free=is_free, is_coded=is_coded)
        fewest_digits = _choose_min_digits(text, is_free=is_free, is_coded=is_coded)
        self._add_figures(text, tokens, fewest_digits, is_coded=is_coded)
        self._add_windows(tokens)
        self._add_shifted_words(tokens)
        self._add_split_words(tokens)
        self._add_split_words(tokens[::-1])
        if not is_coded:
            self._add_places(tokens)
        if is_free:
            for token in tokens:
                self._add_run(re.sub(r"[0-9]", "", token))

    def _add_words(self, tokens: Sequence[str], *, is_free: bool, is_coded: bool) -> None:
        if is_coded:
            self.coded.update(token for token in tokens if len(token) >= _MIN_CODED_WORD_CHARS)
        elif is_free:
            self.words.update(token for token in tokens if len(token) >= _MIN_WORD_CHARS)
        self._add_rows(tokens)
        self._add_rows(tokens[::-1])

    def _add_rows(self, words: Sequence[str]) -> None:
        for start in range(len(words) - 2):
            row = tuple(words[start : start + 4])
            self.rows.setdefault(hash(row[:3]), row)

    def _add_figures(
        self, text: str, tokens: Sequence[str], fewest: int, *, is_coded: bool
    ) -> None:
        """Add the numbers, also joined with their neighbours, inside of others, and in bases.

        Args:
            fewest: digits of the shortest number that counts.
        """
        numbers = _DIGITS.findall(text)
        plain = self.made_numbers if is_coded else self.numbers
        _add_long((token for token in tokens if token.isdigit()), fewest, plain)
        _add_long(numbers, max(fewest, _MIN_DIGITS), self.made_numbers)
        near = numbers[:_MAX_JOINED] if is_coded else numbers
        _add_long(_join_adjacent_numbers(near), _MIN_DIGITS, self.made_numbers)
        if not is_coded or _FIGURE.fullmatch(text):
            for run in {*numbers, "".join(numbers)}:
                parts = _iterate_parts(run, _MIN_DIGITS_INSIDE, _MAX_DIGITS)
                _add_long(parts, _MIN_DIGITS_INSIDE, self.made_numbers)
        candidates = [*tokens]
        is_spelled_out = all(len(token) == 1 for token in tokens)
        if is_spelled_out:
            candidates.append("".join(tokens))
        for token in candidates:
            _add_long(_iterate_digits_in_base(token), _MIN_DIGITS, self.made_numbers)

    def _add_windows(self, tokens: Sequence[str]) -> None:
        spaced_text = " ".join(tokens)
        places = [place for place, character in enumerate(spaced_text) if character != " "]
        for first, last in zip(places, places[_WINDOW - 1 :], strict=False):
            row = spaced_text[first : last + 1]
            self.windows.setdefault(hash(row.replace(" ", "")), row)

    def _add_split_words(self, tokens: Sequence[str]) -> None:
        """Add the words that short parts in a row make."""
        for start in range(len(tokens)):
            word = ""
            for end in range(start, len(tokens)):
                word += tokens[end]
                if len(tokens[end]) > _MAX_PART_CHARS or len(word) > _MAX_WORD_CHARS:
                    break
                if end > start and len(word) >= _MIN_SHIFTED_WORD_CHARS:
                    self.split_words.setdefault(word, tuple(tokens[start : end + 1]))

    def _add_shifted_words(self, tokens: Sequence[str]) -> None:
        """Add the words that other letters stand for."""
        unique = " ".join({token for token in tokens if len(token) >= _MIN_SHIFTED_WORD_CHARS})
        for table in _TABLES:
            self.hidden.update(unique.translate(table).split())
        self.hidden.update(unique[::-1].split())

    def _add_places(self, tokens: Sequence[str]) -> None:
        """Add the words of the first letters, and of each second or third letter."""
        initials = "".join(token[0] for token in tokens)
        self.hidden.update(_iterate_parts(initials, _MIN_SHIFTED_WORD_CHARS, _MAX_WORD_CHARS))
        letters = "".join(tokens)
        for step in (2, 3):
            for start in range(step):
                self._add_run(letters[start::step])
        half = (len(letters) + 1) // 2
        pairs = zip(letters[:half], letters[half:] + " ", strict=False)
        self._add_run("".join(map("".join, pairs)).rstrip())

    def _add_run(self, letters: str) -> None:
        """Add a row of letters, and its parts that may be names."""
        self.hidden.add(letters)
        for start in range(len(letters) - _HEAD + 1):
            part = letters[start : start + _MAX_WORD_CHARS]
            self.runs.setdefault(part[:_HEAD], set()).add(part)

    def are_in(self, private: Index, public: Sequence[Index]) -> bool:
        """Return whether one of the facts is in a private text, and in no public text.

        Raises:
            _TooMuchWork: there are too many searches.
        """
        known = frozenset[str]().union(*(index.words for index in public))
        return (
            self._has_figure(private, public)
            or self._has_word(private, public)
            or self._has_hidden_word(private, known | self.plain)
            or self._has_cut_word(private, known)
            or self._has_row(private, public)
            or self._has_window(private, public)
        )

    def _has_figure(self, private: Index, public: Sequence[Index]) -> bool:
        figures = self.numbers & private.figures
        for figure in self.made_numbers & private.figures:
            if not private.is_dense(len(figure)):
                figures.add(figure)
        for figure in figures:
            is_round = len(figure.rstrip("0")) < 2
            is_public = any(figure in index.figures for index in public)
            if not is_round and not is_public and not _YEAR.fullmatch(figure):
                return True
        return False

    def _has_word(self, private: Index, public: Sequence[Index]) -> bool:
        """Return whether the facts have a rare name, or several rare words, of a private text that
        are in no public text.
        """
        rare_words: set[str] = set()
        for word in self.words & private.words:
            if _is_rare(word) and not any(word in index.words for index in public):
                rare_words.add(word)
        return len(rare_words) >= _MIN_WORDS or not rare_words.isdisjoint(private.names)

    def _has_hidden_word(self, private: Index, known: frozenset[str]) -> bool:
        coded_words = {word for word in (self.coded & private.words) - known if _is_rare(word)}
        inside = self.hidden & private.names
        inside |= {word for word in self.hidden & private.words if len(word) >= _HEAD}
        for head in self.runs.keys() & private.heads:
            for part in self.runs[head]:
                inside |= private.names.intersection(_iterate_parts(part, _HEAD, len(part)))
        return bool(coded_words) or any(_is_rare(word) for word in inside - known)

    def _has_cut_word(self, private: Index, known: frozenset[str]) -> bool:
        for word in self.split_words.keys() & private.words:
            words = [part in COMMON_WORDS or part in known for part in self.split_words[word]]
            if _is_rare(word) and word not in known and not all(words):
                return True
        return False

    def _has_row(self, private: Index, public: Sequence[Index]) -> bool:
        for key in self.rows.keys() & private.rows:
            row = self.rows[key]
            is_long = hash(row[1:]) in private.rows or any(map(_is_rare, row[:3]))
            if is_long and not any(key in index.rows for index in public):
                return True
        return False

    def _has_window(self, private: Index, public: Sequence[Index]) -> bool:
        for key in self.windows.keys() & private.windows:
            self.searches += 1
            if self.searches > MAX_SEARCHES:
                raise _TooMuchWork
            is_plain = f" {self.windows[key]}" in private.spaced
            if not is_plain and not any(key in index.windows for index in public):
                return True
        return False


def _is_rare(word: str) -> bool:
    """Return whether a word is long enough, no number, and not common."""
    return len(word) >= _MIN_WORD_CHARS and word not in COMMON_WORDS and not word.isdigit()


def _add_long(numbers: Iterable[str], fewest: int, known: set[str]) -> None:
    """Add the numbers that are long enough without leading zeros."""
    stripped_numbers = map(_without_zeros, numbers)
    known.update(number for number in stripped_numbers if fewest <= len(number) <= _MAX_DIGITS)


def _choose_min_digits(text: str, *, is_free: bool, is_coded: bool) -> int:
    """Return the least number of digits that a number needs to count as a copy. A decoded text
    that is nothing but a number was not decoded by chance.
    """
    if is_coded and not _FIGURE.fullmatch(text):
        return _MIN_JOINED_DIGITS
    return _MIN_DIGITS_IN_QUERY if is_free else _MIN_DIGITS


def _iterate_parts(run: str, shortest: int, longest: int) -> Iterator[str]:
    """Yield each part of a run of characters from a length to a length."""
    for start in range(len(run) - shortest + 1):
        for end in range(start + shortest, min(start + longest, len(run)) + 1):
            yield run[start:end]


def _join_adjacent_numbers(numbers: Sequence[str]) -> Iterator[str]:
    """Yield the digits of each row of numbers. A short row must have one digit a number."""
    for start in range(len(numbers)):
        digits = ""
        for count, number in enumerate(numbers[start:], 1):
            digits += number
            if len(digits) > _MAX_DIGITS:
                break
            if len(digits) >= _MIN_JOINED_DIGITS or count == len(digits):
                yield digits


def _iterate_digits_in_base(token: str) -> Iterator[str]:
    """Yield the decimal digits of a number in another base."""
    for form, base in _BASES:
        if form.fullmatch(token):
            yield str(int(token, base))


def _iterate_tables() -> Iterator[dict[int, str]]:
    """Yield the tables of Caesar's codes, Atbash, turned letters and digits as letters."""
    for shift in range(1, len(_ALPHABET)):
        shifted_alphabet = _ALPHABET[shift:] + _ALPHABET[:shift]
        yield {ord(a): b for a, b in zip(_ALPHABET, shifted_alphabet, strict=True)}
    yield {ord(a): b for a, b in zip(_ALPHABET, reversed(_ALPHABET), strict=True)}
    yield {ord(a): b for a, b in zip("nudpbqmw", "unpdqbwm", strict=True)}
    for letter in "il":
        yield {ord(a): b for a, b in zip("0123456789", f"o{letter}zeasgtbg", strict=True)}


_TABLES = tuple(_iterate_tables())
