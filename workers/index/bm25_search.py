"""Finds and ranks passages by bm25. Words in headings and paths count more. If nothing
matches, a second and a third query are tried.
"""

from __future__ import annotations

import difflib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from handoff_queue.workers.index.query_builder import any_beginning_with, any_of, words_of
from handoff_queue.workers.index.writer import ORDINAL_BITS

_HEADING_WEIGHT = 3.0
_PATH_BOOST = 0.5
"""Share that is added to the score if the path of the document has all words of the query.
With fewer words the share is smaller.
"""
_CANDIDATES = 100
"""Best passages by bm25. The boost for the path applies only to these."""
_MIN_SHARE = 0.25
"""Least share of the best score that a passage needs. A passage below it has only words that
most passages have.
"""
_MAX_OF_ONE_DOCUMENT = 3
"""Passages of one document in a result, if other documents have enough passages."""
_FREQUENT = 2_000
"""Passages with a word that make it frequent. A frequent word alone is not a match, unless the
other words find too few passages.
"""
_FUZZY_VOCABULARY = 5_000
"""Words with the same first two characters to which a misspelt word is compared."""

_MATCHES = f"""
    SELECT rowid, bm25(words, {_HEADING_WEIGHT}, 1.0) AS score FROM words
    WHERE words MATCH ? AND (rowid >> {ORDINAL_BITS}) IN (SELECT value FROM json_each(?))
    ORDER BY score LIMIT {_CANDIDATES}
"""  # noqa: S608 - constants only


@dataclass(frozen=True, slots=True)
class PassageMatch:
    """A passage and its score. A higher score is better."""

    document: int
    start: int
    end: int
    snippet: str
    score: float


def find_passages(
    connection: sqlite3.Connection, query: str, paths: Mapping[int, str], ids_json: str, limit: int
) -> list[PassageMatch]:
    """Return at most `limit` passages of some documents, the best first.

    Args:
        query: any text.
        paths: path of each document by its id.
        ids_json: the ids of these documents as a JSON list.
    """
    words = words_of(query)
    for enough, expression in _expressions(connection, words, limit):
        candidates: list[tuple[int, float]] = []
        if expression:
            candidates = connection.execute(_MATCHES, (expression, ids_json)).fetchall()
        if len(candidates) >= enough:
            ranked = _ranked(candidates, words, paths)
            return _shown(connection, _varied(_without_junk(ranked), limit))
    return []


def _expressions(
    connection: sqlite3.Connection, words: Sequence[str], limit: int
) -> Iterator[tuple[int, str]]:
    """Yield the queries in turn: for the words themselves, for words with the same beginning,
    and for words with a similar spelling. Each query comes with the number of matches that
    makes the later queries unnecessary.
    """
    rare = [word for word in words if not _is_frequent(connection, word)]
    if rare and len(rare) < len(words):
        yield limit, f"({any_of(rare)}) AND ({any_of(words)})"
    yield 1, any_of(words)
    yield 1, any_beginning_with(words)
    similar: list[str] = []
    for word in words:
        similar += _spelt_like(connection, word)
    yield 1, any_of(similar)


def _is_frequent(connection: sqlite3.Connection, word: str) -> bool:
    """Return whether at least `_FREQUENT` passages have the word. The ranking of these
    passages would take most of the time, although the word says little.
    """
    query = f"SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT {_FREQUENT})"  # noqa: S608 - a constant
    return bool(connection.execute(query, (any_of([word]),)).fetchone()[0] >= _FREQUENT)


def _spelt_like(connection: sqlite3.Connection, word: str) -> list[str]:
    """Return at most three words of the index with a similar spelling and the same first two
    characters.
    """
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
    """Return the passages with their scores, the best first. The score grows with the number
    of words in the path. Passages with the same score are ordered by path and place, so that
    the same search always gives the same result.

    Args:
        candidates: ids of passages with their bm25, where a lower value is better.
    """
    scored: list[tuple[int, float]] = []
    for number, bm25 in candidates:
        path_words = words_of(paths[number >> ORDINAL_BITS])
        share = sum(word in path_words for word in words) / len(words)
        scored.append((number, -bm25 * (1 + _PATH_BOOST * share)))
    return sorted(
        scored,
        key=lambda passage: (-passage[1], paths[passage[0] >> ORDINAL_BITS], passage[0]),
    )


def _without_junk(ranked: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the passages with at least `_MIN_SHARE` of the best score."""
    least = _MIN_SHARE * ranked[0][1]
    return [passage for passage in ranked if passage[1] >= least]


def _varied(ranked: list[tuple[int, float]], limit: int) -> list[tuple[int, float]]:
    """Return `limit` passages in the order of their rank, at most `_MAX_OF_ONE_DOCUMENT` of
    one document if the other documents have enough.
    """
    taken: list[int] = []
    spare: list[int] = []
    count: dict[int, int] = {}
    for position, (number, _) in enumerate(ranked):
        document = number >> ORDINAL_BITS
        count[document] = count.get(document, 0) + 1
        if count[document] <= _MAX_OF_ONE_DOCUMENT:
            taken.append(position)
        else:
            spare.append(position)
    return [ranked[position] for position in sorted((taken + spare)[:limit])]


def _shown(connection: sqlite3.Connection, ranked: list[tuple[int, float]]) -> list[PassageMatch]:
    marks = ",".join("?" * len(ranked))
    rows = connection.execute(
        f"SELECT id, first, last, snippet FROM passages WHERE id IN ({marks})",  # noqa: S608 - question marks only
        [number for number, _ in ranked],
    )
    spans: dict[int, tuple[int, int, str]] = {}
    for number, start, end, snippet in rows:
        spans[number] = (start, end, snippet)
    matches: list[PassageMatch] = []
    for number, score in ranked:
        rounded = float(f"{score:.4g}")
        matches.append(PassageMatch(number >> ORDINAL_BITS, *spans[number], score=rounded))
    return matches
