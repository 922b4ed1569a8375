"""Builds FTS5 queries from any text. Words are quoted, so that no word is an operator. Stop
words are dropped, and any other word may match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_WORDS = 24
"""Words of a text that a query searches. A long text then costs no more than a long question."""

_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff])")
"""A character of a script without spaces between words. Each becomes a word, in texts and in
queries, so that a phrase finds any run of characters.
"""

_FREQUENT = """
    a about above after again all also am an and any are as at be because been before being below between both but by can could did do
    does doing down during each few for from further had has have having he her here hers him his how i if in into is it its itself just
    let me more most my no nor not of off on once only or other our ours out over own please same she should so some such tell than that
    the their theirs them then there these they this those through to too under until up us very was we were what when where which while
    who whom why will with would you your yours vs versus
"""  # noqa: E501 - lines of a text
_STOP_WORDS = frozenset(_FREQUENT.split())


def index_text(text: str) -> str:
    """Return the form of a text that is indexed."""
    return _CJK.sub(r" \1 ", text)


def words_of(query: str) -> tuple[str, ...]:
    """Return the distinct words of a text in order, at most `MAX_WORDS`. Stop words are left
    out if there are other words.
    """
    all_words = [word.casefold() for word in _WORD.findall(query)]
    words = list(dict.fromkeys(all_words))
    content_words = [word for word in words if word not in _STOP_WORDS]
    return tuple((content_words or words)[:MAX_WORDS])


def beginnings_of(words: Iterable[str]) -> list[str]:
    """Return queries for passages with a word that begins like one of the words. The beginning
    is two thirds of a word, and at least four characters. Shorter words are left out.
    """
    prefixes: list[str] = []
    for word in words:
        if len(word) >= 4:
            prefix = word[: max(4, len(word) * 2 // 3)]
            prefixes.append(f"{phrase_of(prefix)} *")
    return prefixes


def phrase_of(word: str) -> str:
    """Return a query for passages with the word."""
    return '"' + index_text(word).strip().replace('"', '""') + '"'
