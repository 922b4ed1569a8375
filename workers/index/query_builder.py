"""Builds FTS5 queries from words. Words are quoted, so that no word is an operator. Any word may
match.
"""

from __future__ import annotations

from collections.abc import Iterable

from handoff_queue.shared.text.search_words import separate_cjk


def build_prefix_queries(words: Iterable[str]) -> list[str]:
    """Return queries for passages with a word that begins like one of the words. The beginning
    is two thirds of a word, and at least four characters. Shorter words are left out.
    """
    prefixes: list[str] = []
    for word in words:
        if len(word) >= 4:
            prefix = word[: max(4, len(word) * 2 // 3)]
            prefixes.append(f"{build_phrase_query(prefix)} *")
    return prefixes


def build_phrase_query(word: str) -> str:
    """Return a query for passages with the word."""
    return '"' + separate_cjk(word).strip().replace('"', '""') + '"'
