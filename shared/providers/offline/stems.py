"""Words by their stems, so that a question and a document need not use the same form."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from handoff_queue.shared.providers.offline.sentences import words_of
from handoff_queue.shared.text.words import stem

_LONG_ENOUGH = 5
"""Letters of a stem from which one more makes no other word of it: weigh, weight."""


@lru_cache(maxsize=5_000)
def stems_of(text: str) -> frozenset[str]:
    """The stems of a text's words; of a word with hyphens also those of its parts."""
    words = words_of(text)
    return frozenset(stem(part) for word in words for part in (word, *word.split("-")) if part)


def has_stem(wanted: str, stems: Collection[str]) -> bool:
    """Whether one of the stems is the wanted one, or is one letter away from it at the end."""
    if wanted in stems or (len(wanted) > _LONG_ENOUGH and wanted[:-1] in stems):
        return True
    return len(wanted) >= _LONG_ENOUGH and any(each[:-1] == wanted for each in stems)
