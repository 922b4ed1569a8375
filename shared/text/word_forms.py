"""Plurals, word stems and suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache


def format_count(count: int, word: str) -> str:
    """Return a count with its word, such as `1 turn`, `2,310 tokens` or `3 processes`."""
    if word.endswith("s"):
        plural = f"{word}es"
    else:
        plural = f"{word}s"
    return f"{count:,} {word if count == 1 else plural}"


def with_article(noun: str) -> str:
    """Return a noun with `a` or `an`, by its first letter: `an int`, `a str`."""
    article = "an" if noun[:1].lower() in "aeiou" else "a"
    return f"{article} {noun}"


def has_digit(word: str) -> bool:
    """Return whether a word has a digit, also a raised one as in `m²`."""
    return any(character.isdigit() for character in word)


@lru_cache(maxsize=50_000)
def find_stem(word: str) -> str:
    """Return the English stem of a word: filter, filters, filtering and filtered have the same
    stem.

    A new stemmer is made for each word, because stemmers keep state and are not safe in
    threads.
    """
    import snowballstemmer  # most commands need no stems, and it takes 20 ms

    word_stem: str = snowballstemmer.stemmer("english").stemWord(word.lower())
    return word_stem


_ALIKE = 0.6
"""The least similarity of a suggestion, from 0 to 1: the default of difflib."""
_COMPARED_CHARS = 100
_COMPARED_NAMES = 2_000
"""difflib compares a few thousand short names in some 10 ms."""
_MAX_LISTED = 30
"""Most names in a line. The line gives the number of the other names."""


def close_names(
    name: str, known: Iterable[str], *, limit: int = 1, alike: float = _ALIKE
) -> list[str]:
    """Return the known names that are spelled like a name, the closest first.

    Upper and lower case count as equal, and so do `_` and `-`.

    Args:
        limit: most names to return.
        alike: least similarity of a name, from 0 to 1.
    """
    by_form: dict[str, str] = {}
    for candidate in list(dict.fromkeys(known))[:_COMPARED_NAMES]:
        by_form.setdefault(_normalize_name(candidate), candidate)
    forms = get_close_matches(_normalize_name(name), by_form, n=limit, cutoff=alike)
    names: list[str] = []
    for form in forms:
        names.append(by_form[form])
    return names


def suggest_name(name: str, known: Iterable[str], *, otherwise: str = "", limit: int = 1) -> str:
    """Return the end of an error message about an unknown name: `did you mean researcher?` if
    a known name is close, else `use one of a, b`.

    Args:
        otherwise: text before the list of names, as in `remove it (known: a, b)`.
        limit: most close names to suggest.
    """
    names = list(dict.fromkeys(known))
    close = close_names(name, names, limit=limit)
    if close:
        return f"did you mean {' or '.join(close)}?"
    if otherwise:
        return f"{otherwise} (known: {_join_names(names)})"
    if not names:
        return "there are none"
    return f"use one of {_join_names(names)}"


def _normalize_name(name: str) -> str:
    """Return the form in which names are compared: small letters, and `-` for `_`."""
    return name[:_COMPARED_CHARS].casefold().replace("_", "-")


def _join_names(names: Sequence[str]) -> str:
    """Return at most `_MAX_LISTED` names in one line, and the number of the others."""
    if len(names) <= _MAX_LISTED:
        return ", ".join(names) or "none"
    return f"{', '.join(names[:_MAX_LISTED])} and {len(names) - _MAX_LISTED:,} more"
