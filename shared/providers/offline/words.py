"""The words of a text, and their stems."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from handoff_queue.shared.text.word_forms import find_stem

_CJK = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff])")
"""A character of a script without spaces between words. It counts as a word."""
_WORD = re.compile(r"[^\W_]+(?:[.'’+#-]+[^\W_]+)*[+#]*")
_STOP_WORDS = frozenset(
    """a about above after again against all also am an and any are as at be because been before
    being below between both but by can could did do does during each explain describe find for from
    further give had has have he her here him his how i if in into is it its itself just kind let
    like list long may me mean means more most much must my name need needs no not of off on one
    only or other our out over own please question say she should show so some such summarise
    summarize tell than that the their them then there these they thing this those through to too
    under until up us use used using very was way we were what when where which while who whom whose
    why will with work works would you your document documents file files""".split()
)


def split_words(text: str) -> list[str]:
    """Return the words in lower case. A word may hold dots, hyphens and pluses: `c++`, `1.0`."""
    return _WORD.findall(_CJK.sub(r" \1 ", text.casefold()))


def find_content_words(text: str) -> list[str]:
    """Return the words that are not stop words, each once, in order."""
    words: list[str] = []
    for word in dict.fromkeys(split_words(text)):
        if word not in _STOP_WORDS:
            words.append(word)
    return words


@lru_cache(maxsize=5_000)
def find_stems(text: str) -> frozenset[str]:
    """Return the stems of the words and, for a word with hyphens, the stems of its parts."""
    stems: set[str] = set()
    for word in split_words(text):
        stems.add(find_stem(word))
        for part in word.split("-"):
            if part:
                stems.add(find_stem(part))
    return frozenset(stems)


def find_content_stems(text: str) -> frozenset[str]:
    """Return the stems of the words that are not stop words."""
    return frozenset(map(find_stem, find_content_words(text)))


def mentions(name: str, text: str) -> bool:
    """Return whether a text has every word of a name, in any case and also with a final `s`."""
    return all(_has_word(word, text) for word in name.split())


def mentions_any(names: Iterable[str], text: str) -> bool:
    """Return whether a text mentions at least one of the names."""
    return any(mentions(name, text) for name in names)


def _has_word(word: str, text: str) -> bool:
    if not word.isascii():
        return word.casefold() in text.casefold()
    pattern = rf"(?<![\w-]){re.escape(word)}(?:s|'s|’s)?(?![\w-])"
    return re.search(pattern, text, re.IGNORECASE) is not None


def join_with_and(items: list[str] | tuple[str, ...]) -> str:
    """Return `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
