"""Words without their endings: Snowball's English stemmer."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """filter, filters, filtering and filtered have one stem. A stemmer of its own each time: they keep state, and threads are many."""
    import snowballstemmer  # here, because it brings thirty languages along, and who only shows a job compares no words

    stemmed: str = snowballstemmer.stemmer("english").stemWord(word.lower())
    return stemmed
