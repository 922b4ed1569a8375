"""Words without their endings: Snowball's English stemmer."""

from __future__ import annotations

from functools import lru_cache

import snowballstemmer


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """filter, filters, filtering and filtered have one stem. A stemmer of its own each time: they keep state, and threads are many."""
    stemmed: str = snowballstemmer.stemmer("english").stemWord(word.lower())
    return stemmed
