"""The words of texts and of queries, for the searches of documents and of notes.

Stop words of a query are dropped. Accents of Latin letters make no difference, and `_` is a border
between words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

MAX_WORDS = 24
"""Words of a text that a query searches. A long text then costs no more than a long question."""

_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff])")
"""A character of a script without spaces between words. Each becomes a word, in texts and in
queries, so that a phrase finds any run of characters.
"""
_ACCENTS = re.compile(r"(?<=[A-Za-z])[\u0300-\u036f]+")
"""Accents of a Latin letter, in a text of the normal form NFD. In other scripts a mark makes
another letter.
"""

_FREQUENT = """
    a about above after again all also am an and any are as at be because been before being below between both but by can could did do
    does doing down during each few for from further had has have having he her here hers him his how i if in into is it its itself just
    let me more most my no nor not of off on once only or other our ours out over own please same she should so some such tell than that
    the their theirs them then there these they this those through to too under until up us very was we were what when where which while
    who whom why will with would you your yours vs versus
"""  # noqa: E501 - lines of a text
_STOP_WORDS = frozenset(_FREQUENT.split())


def separate_cjk(text: str) -> str:
    """Return a text in which each character of a script without spaces is a separate word."""
    return _CJK.sub(r" \1 ", text)


def split_words(text: str) -> list[str]:
    """Return all words of a text in order, in small letters and without accents."""
    return [word.casefold() for word in _WORD.findall(_without_accents(text))]


def find_words(query: str) -> tuple[str, ...]:
    """Return the distinct words of a text in order, at most `MAX_WORDS`. Stop words are left
    out if there are other words.
    """
    words = list(dict.fromkeys(split_words(query)))
    return tuple((find_content_words(words) or words)[:MAX_WORDS])


def find_content_words(words: Iterable[str]) -> list[str]:
    """Return the words that are not stop words."""
    return [word for word in words if word not in _STOP_WORDS]


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed))
