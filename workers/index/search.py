"""Finding and ranking passages: bm25, with headings and paths counting more, and a second and
third try when nothing fits.
"""

from __future__ import annotations

import difflib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from handoff_queue.workers.index.queries import any_beginning_with, any_of, words_of
from handoff_queue.workers.index.writer import ORDINAL_BITS

_HEADING_WEIGHT = 3.0
_PATH_BOOST = 0.5
"""A passage of a document whose path holds all words of the query scores this much more."""
_CANDIDATES = 100
"""Passages that bm25 proposes, out of which the paths choose."""
_MOST_OF_ONE_DOCUMENT = 3
"""Passages, as long as other documents have something to say too."""
_FREQUENT = 2_000
"""Passages with a word that make it add to the rank of others only, unless the others find too
little.
"""
_FUZZY_VOCABULARY = 5_000
"""Words with the same beginning that a misspelt one is compared to."""

_MATCHES = f"""
    SELECT rowid, bm25(words, {_HEADING_WEIGHT}, 1.0) AS score FROM words
    WHERE words MATCH ? AND (rowid >> {ORDINAL_BITS}) IN (SELECT value FROM json_each(?))
    ORDER BY score LIMIT {_CANDIDATES}
"""  # noqa: S608 - constants only


@dataclass(frozen=True, slots=True)
class PassageMatch:
    """A passage and how well it fits (higher is better)."""

    document: int
    start: int
    end: int
    snippet: str
    score: float


def best(
    connection: sqlite3.Connection, query: str, paths: Mapping[int, str], ids_json: str, limit: int
) -> list[PassageMatch]:
    """Return the best passages among the documents in `paths` (whose ids `ids_json` repeats), best
    first.
    """
    words = words_of(query)
    for enough, expression in _expressions(connection, words, limit):
        if expression:
            candidates = connection.execute(_MATCHES, (expression, ids_json)).fetchall()
        else:
            candidates = []
        if len(candidates) >= enough:
            ranked = _ranked([(number, -score) for number, score in candidates], words, paths)
            return _shown(connection, _varied(ranked, limit))
    return []


def _expressions(
    connection: sqlite3.Connection, words: Sequence[str], limit: int
) -> Iterator[tuple[int, str]]:
    """Yield the queries in turn: the typed words, words that begin alike, words that are spelt
    alike. With each comes the number of matches that makes the rest unnecessary.
    """
    frequent = {word for word in words if _is_frequent(connection, word)}
    telling = [word for word in words if word not in frequent]
    if frequent and telling:
        yield limit, f"({any_of(telling)}) AND ({any_of(words)})"
    yield 1, any_of(words)
    yield 1, any_beginning_with(words)
    yield 1, any_of([similar for word in words for similar in _spelt_like(connection, word)])


def _is_frequent(connection: sqlite3.Connection, word: str) -> bool:
    """Return whether many passages hold the word. Ranking them would take most of the time, and
    would separate them the least.
    """
    query = f"SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT {_FREQUENT})"  # noqa: S608 - a constant
    return bool(connection.execute(query, (any_of([word]),)).fetchone()[0] >= _FREQUENT)


def _spelt_like(connection: sqlite3.Connection, word: str) -> list[str]:
    if len(word) < 4:
        return []
    begin = word[:2]
    rows = connection.execute(
        "SELECT term FROM vocabulary WHERE term >= ? AND term < ? LIMIT ?",
        (begin, begin + "\U0010ffff", _FUZZY_VOCABULARY),
    )
    return difflib.get_close_matches(word, [term for (term,) in rows], n=3, cutoff=0.75)


def _ranked(
    candidates: list[tuple[int, float]], words: Sequence[str], paths: Mapping[int, str]
) -> list[tuple[int, float]]:
    """Return the candidates ranked with a boost for the path. Equal ranks are ordered by path and
    place, so that the same search always gives the same answer.
    """

    def boosted(number: int, score: float) -> float:
        named = words_of(paths[number >> ORDINAL_BITS])
        return score * (1 + _PATH_BOOST * sum(word in named for word in words) / len(words))

    scored = [(number, boosted(number, score)) for number, score in candidates]
    return sorted(
        scored,
        key=lambda candidate: (-candidate[1], paths[candidate[0] >> ORDINAL_BITS], candidate[0]),
    )


def _varied(ranked: list[tuple[int, float]], limit: int) -> list[tuple[int, float]]:
    """Return the first `limit` passages, from more than one document if others have some."""
    taken: list[int] = []
    spare: list[int] = []
    count: dict[int, int] = {}
    for position, (number, _) in enumerate(ranked):
        document = number >> ORDINAL_BITS
        count[document] = count.get(document, 0) + 1
        (taken if count[document] <= _MOST_OF_ONE_DOCUMENT else spare).append(position)
    return [ranked[position] for position in sorted((taken + spare)[:limit])]


def _shown(connection: sqlite3.Connection, ranked: list[tuple[int, float]]) -> list[PassageMatch]:
    marks = ",".join("?" * len(ranked))
    rows = connection.execute(
        f"SELECT id, first, last, snippet FROM passages WHERE id IN ({marks})",  # noqa: S608 - question marks only
        [number for number, _ in ranked],
    )
    spans = {number: (start, end, snippet) for number, start, end, snippet in rows}
    return [
        PassageMatch(number >> ORDINAL_BITS, *spans[number], score=float(f"{score:.4g}"))
        for number, score in ranked
    ]
