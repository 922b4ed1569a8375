"""Words that the model wrote into the arguments of its calls. A tool or a page can return them, so
they prove nothing. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from handoff_queue.shared.agent.seen_texts import get_host, iterate_leaves, iterate_url_parts
from handoff_queue.shared.text.search_words import (
    find_content_words,
    separate_cjk,
    split_words,
)
from handoff_queue.shared.text.unicode_text import remove_invisible
from handoff_queue.shared.text.word_forms import find_stem

MIN_RUN = 4
"""Words in a row of an argument that count as the model's own. A whole argument may be shorter."""
MIN_RUN_OF_ARGUMENT = 2
"""Words of the shortest argument that counts as a whole. Most shorter ones are names."""
_SENTENCE_END = re.compile(r"""(?<=[.!?])["')\]]*\s+|[。！？\n]|\\n""")
_ESCAPE = re.compile(r'\\[nrt"]')
"""White space and quotation marks of a text inside JSON."""


def list_argument_texts(arguments: Any) -> list[str]:
    """Return the texts in the arguments of a call. A URL has its decoded parts with several words.
    Its other parts are names of pages.
    """
    texts: list[str] = []
    for leaf in iterate_leaves(arguments):
        if get_host(leaf) is None:
            texts.append(leaf)
        else:
            texts += list_url_texts(leaf)
    return texts


def list_url_texts(url: str) -> list[str]:
    """Return the decoded parts of a URL that have several words."""
    texts: list[str] = []
    for part in iterate_url_parts(url):
        if " " in part or not part.isascii():
            texts.append(part)
    return texts


def repeats_own_words(quote: str, statement: str, own_texts: Sequence[str]) -> bool:
    """Return whether a quote proves nothing for a statement, because it repeats the model's words.

    The rest of the quote must have a word of the statement that the model did not write. So "The
    power of pump A is 450 kW" proves a power of 450 kW after a search for "power of pump A". "No
    entry for: pump A has a power of 450 kW" proves nothing.

    Args:
        own_texts: see `list_argument_texts`.
    """
    words = _split(quote)
    if len(words) < MIN_RUN and any(_has_phrase(words, text) for text in own_texts):
        return True
    own_words, rest = _separate_own_words(words, own_texts)
    stated = set(map(find_stem, find_content_words(_split(statement))))
    added = set(map(find_stem, find_content_words(rest))) - set(map(find_stem, own_words))
    return bool(own_words) and stated.isdisjoint(added)


def has_own_sentence(quote: str, statement: str, own_texts: Sequence[str]) -> bool:
    """Return whether a quote or one of its sentences proves nothing for a statement, or has more
    words of the model than others. A reader of the quote could cite the model's words alone.
    """
    for part in (quote, *filter(str.strip, _SENTENCE_END.split(quote))):
        own_words, rest = _separate_own_words(_split(part), own_texts)
        if len(own_words) > len(rest) or repeats_own_words(part, statement, own_texts):
            return True
    return False


def find_own_passages(text: str, own_texts: Sequence[str]) -> tuple[str, ...]:
    """Return the passages of a result of a tool that the model wrote into calls. Agents that cite
    the result later have not seen these calls.
    """
    passages: dict[str, None] = {}
    passage: list[str] = []
    for word, is_own in _mark_own_words(_split_words(text), own_texts):
        if is_own:
            passage.append(word)
        elif passage:
            passages[" ".join(passage)] = None
            passage = []
    if passage:
        passages[" ".join(passage)] = None
    return tuple(passages)


def _separate_own_words(
    words: Sequence[str], own_texts: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return the words that are in a run of the model's own words, and the others."""
    own_words: list[str] = []
    rest: list[str] = []
    for word, is_own in _mark_own_words(words, own_texts):
        if is_own:
            own_words.append(word)
        else:
            rest.append(word)
    return own_words, rest


def _mark_own_words(words: Sequence[str], own_texts: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield each word, and whether it is in a run of the model's own words."""
    own_runs = frozenset[tuple[str, ...]]().union(*map(_collect_runs, own_texts))
    own_end = 0
    for start, word in enumerate(words):
        for end in range(start + MIN_RUN_OF_ARGUMENT, start + MIN_RUN + 1):
            if tuple(words[start:end]) in own_runs:
                own_end = max(own_end, end)
        yield word, start < own_end


@lru_cache(maxsize=1_024)
def _collect_runs(text: str) -> frozenset[tuple[str, ...]]:
    """Return each run of `MIN_RUN` words of a text. A shorter text is one run."""
    words = _split(text)
    if len(words) < MIN_RUN:
        return frozenset([words] if len(words) >= MIN_RUN_OF_ARGUMENT else [])
    return frozenset(words[start : start + MIN_RUN] for start in range(len(words) - MIN_RUN + 1))


def _has_phrase(words: Sequence[str], text: str) -> bool:
    """Return whether a text has these words in a row."""
    return f" {' '.join(words)} " in f" {' '.join(_split(text))} "


@lru_cache(maxsize=1_024)
def _split(text: str) -> tuple[str, ...]:
    """See `_split_words`. It is cached, because many quotes are compared with the same texts."""
    return _split_words(text)


def _split_words(text: str) -> tuple[str, ...]:
    """Return the words of a text as they are compared, in small letters."""
    plain = remove_invisible(unicodedata.normalize("NFKC", _ESCAPE.sub(" ", text)))
    return tuple(split_words(separate_cjk(plain)))
