"""Finds and ranks passages by bm25. Words in headings and paths count more. If nothing
matches, a second and a third query are tried.

The weight of a word depends only on the documents of the job. FTS5's own `bm25` counts the
documents of all jobs in the index. So the rank would depend on other jobs, and would tell what
their documents contain.
"""

from __future__ import annotations

import difflib
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple

from handoff_queue.shared.text.search_words import find_words, separate_cjk
from handoff_queue.workers.index.database import ORDINAL_BITS

_HEADING_WEIGHT = 3.0
"""Occurrences in the text that a word in the heading counts as."""
_SATURATION = 1.2
"""The parameter k1 of bm25, as in FTS5. A second occurrence counts less than the first one."""
_MIN_WEIGHT = 1e-6
"""Weight of a word that more than half of the passages have, as in FTS5."""
_PATH_BOOST = 0.5
"""Share that is added to the score if the path of the document has all words of the query.
With fewer words the share is smaller.
"""
_CANDIDATES = 100
"""Best passages by bm25. The boost for the path applies only to these."""
_MIN_SHARE = 0.35
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
_SIMILAR = 3
"""Similar words that are searched for a misspelt word."""
_SIMILAR_OF_ALL = 50
"""Similar words of the whole index. Many of these words may be in documents of other jobs only."""
_IN_SCOPE = f"(rowid >> {ORDINAL_BITS}) IN (SELECT id FROM temp.scope)"  # noqa: S608 - constants only
_COUNT = f"SELECT count(*) FROM words WHERE words MATCH ? AND {_IN_SCOPE}"  # noqa: S608 - constants only
_PASSAGES = f"""
    SELECT sum((
        SELECT count(*) FROM passages
        WHERE id >= value << {ORDINAL_BITS} AND id < (value + 1) << {ORDINAL_BITS}
    ))
    FROM json_each(?)
"""  # noqa: S608 - constants only


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


@dataclass(frozen=True, slots=True)
class Scope:
    """The indexed documents that a search covers."""

    paths: Mapping[int, str]
    """Path by the document's id in the index."""
    ids_json: str
    """The same ids as a JSON list, for SQL."""
    passages: int
    """Number of the passages of these documents."""


def count_passages(connection: sqlite3.Connection, ids_json: str) -> int:
    """Return the number of the passages of some documents.

    Args:
        ids_json: ids of the documents in the index, as a JSON list.
    """
    (count,) = connection.execute(_PASSAGES, (ids_json,)).fetchone()
    return int(count or 0)


@dataclass(frozen=True, slots=True)
class PassageMatch:
    """A passage and its score. A higher score is better."""

    document: int
    start: int
    end: int
    snippet: str
    score: float


class _ScoredPassage(NamedTuple):
    """A passage in the index, and its score. A higher score is better."""

    number: int
    """Id of the passage in the index."""
    score: float

    @property
    def document(self) -> int:
        """Return the id of the passage's document in the index."""
        return self.number >> ORDINAL_BITS


@dataclass(frozen=True, slots=True)
class _Phrase:
    """A part of a query, as an expression of FTS5."""

    text: str
    count: int
    """Passages of the scope that have it."""

    @property
    def is_frequent(self) -> bool:
        """Return whether the phrase says little, and its passages take long to rank."""
        return self.count >= _FREQUENT

    def compute_weight(self, scope: Scope) -> float:
        """Return the inverse document frequency of bm25."""
        ratio = (scope.passages - self.count + 0.5) / (self.count + 0.5)
        return max(_MIN_WEIGHT, math.log(ratio))


@dataclass(frozen=True, slots=True)
class _Query:
    """A query for passages that have one of its phrases."""

    phrases: list[_Phrase]
    enough: int = 1
    """Number of matches that makes the later queries unnecessary."""
    needs_rare_phrase: bool = False
    """True to leave out passages that have only frequent phrases."""


def find_passages(
    connection: sqlite3.Connection, query: str, scope: Scope, limit: int
) -> list[PassageMatch]:
    """Return at most `limit` passages of the documents of a scope, the best first.

    Args:
        query: any text.
    """
    words = find_words(query)
    _set_scope(connection, scope)
    for phrase_query in _iterate_queries(connection, words, limit):
        candidates = _find_candidates(connection, phrase_query, scope)
        if len(candidates) >= phrase_query.enough:
            ranked = _rank_passages(candidates, words, scope.paths)
            return _load_matches(connection, _limit_per_document(_without_junk(ranked), limit))
    return []


def _set_scope(connection: sqlite3.Connection, scope: Scope) -> None:
    """Store the ids of the documents in a table of this connection. A query reads them many
    times, and to parse the JSON of 10,000 ids takes longer than to look for a word.
    """
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS scope (id INTEGER PRIMARY KEY)")
    connection.execute("DELETE FROM temp.scope")
    connection.execute("INSERT INTO temp.scope SELECT value FROM json_each(?)", (scope.ids_json,))


def _iterate_queries(
    connection: sqlite3.Connection, words: Sequence[str], limit: int
) -> Iterator[_Query]:
    """Yield the queries in turn: for the words themselves, for words with the same beginning, and
    for words with a similar spelling.
    """
    phrases = _count_phrases(connection, map(build_phrase_query, words))
    rare = [phrase for phrase in phrases if not phrase.is_frequent]
    if rare and len(rare) < len(phrases):
        yield _Query(phrases, enough=limit, needs_rare_phrase=True)
    yield _Query(phrases)
    yield _Query(_count_phrases(connection, build_prefix_queries(words)))
    similar: list[str] = []
    for word in words:
        similar += _find_similar_words(connection, word)
    yield _Query(_count_phrases(connection, similar))


def _count_phrases(connection: sqlite3.Connection, phrases: Iterable[str]) -> list[_Phrase]:
    """Return the phrases that passages of the scope have, each once."""
    counted_phrases: list[_Phrase] = []
    for phrase in dict.fromkeys(phrases):
        (count,) = connection.execute(_COUNT, (phrase,)).fetchone()
        if count:
            counted_phrases.append(_Phrase(phrase, count))
    return counted_phrases


def _find_candidates(
    connection: sqlite3.Connection, phrase_query: _Query, scope: Scope
) -> list[_ScoredPassage]:
    """Return the best passages by bm25.

    Each phrase counts once in the text of a passage and once in its heading. All passages count as
    equally long, because they have about the same length.
    """
    if not phrase_query.phrases:
        return []
    parts: list[str] = []
    weights: list[str] = []
    parameters: dict[str, str | float] = {}
    for place, phrase in enumerate(phrase_query.phrases):
        parameters[f"text{place}"] = f"body : ({phrase.text})"
        parameters[f"heading{place}"] = f"heading : ({phrase.text})"
        parameters[f"weight{place}"] = phrase.compute_weight(scope)
        parameters[f"rare{place}"] = int(not phrase.is_frequent)
        weights.append(f"({place}, :weight{place}, :rare{place})")
        for column, share in (("text", 1.0), ("heading", _HEADING_WEIGHT)):
            parts.append(
                f"SELECT rowid AS passage, {place} AS phrase, {share} AS share FROM words"  # noqa: S608 - constants only
                f" WHERE words MATCH :{column}{place} AND {_IN_SCOPE}"
            )
    columns = f"weights(phrase, weight, is_rare) AS (VALUES {', '.join(weights)})"
    union = " UNION ALL ".join(parts)
    shares = f"SELECT passage, phrase, sum(share) AS share FROM ({union}) GROUP BY 1, 2"  # noqa: S608 - constants only
    score = f"sum(weight * share * {_SATURATION + 1} / (share + {_SATURATION}))"
    scores = f"SELECT passage, {score} AS score FROM shares JOIN weights USING (phrase)"  # noqa: S608 - constants only
    least = int(phrase_query.needs_rare_phrase)
    groups = f"GROUP BY passage HAVING max(is_rare) >= {least}"
    order = f"ORDER BY score DESC, passage LIMIT {_CANDIDATES}"
    query = f"WITH {columns}, shares AS ({shares}) {scores} {groups} {order}"
    return list(starmap(_ScoredPassage, connection.execute(query, parameters)))


def _find_similar_words(connection: sqlite3.Connection, word: str) -> list[str]:
    """Return at most three words of the scope with a similar spelling and the same first two
    characters.
    """
    if len(word) < 4:
        return []
    begin = word[:2]
    rows = connection.execute(
        "SELECT term FROM vocabulary WHERE term >= ? AND term < ? LIMIT ?",
        (begin, begin + "\U0010ffff", _FUZZY_VOCABULARY),
    )
    terms = [term for (term,) in rows]
    similar = difflib.get_close_matches(word, terms, n=_SIMILAR_OF_ALL, cutoff=0.75)
    counted_phrases = _count_phrases(connection, map(build_phrase_query, similar))
    return [phrase.text for phrase in counted_phrases[:_SIMILAR]]


def _rank_passages(
    candidates: Iterable[_ScoredPassage], words: Sequence[str], paths: Mapping[int, str]
) -> list[_ScoredPassage]:
    """Return the passages, the best first. The score grows with the number of words in the path.
    Passages with the same score are ordered by path and place, so that the same search always
    gives the same result.

    Args:
        candidates: passages with their bm25 as the score.
    """
    passages: list[_ScoredPassage] = []
    for passage in candidates:
        path_words = find_words(paths[passage.document])
        share = sum(word in path_words for word in words) / len(words)
        boosted_score = passage.score * (1 + _PATH_BOOST * share)
        # SQLite adds the weights in the order of the ids, which differs between hosts.
        passages.append(_ScoredPassage(passage.number, float(f"{boosted_score:.4g}")))
    return sorted(
        passages, key=lambda passage: (-passage.score, paths[passage.document], passage.number)
    )


def _without_junk(ranked: Sequence[_ScoredPassage]) -> list[_ScoredPassage]:
    """Return the passages with at least `_MIN_SHARE` of the best score."""
    least = _MIN_SHARE * ranked[0].score
    return [passage for passage in ranked if passage.score >= least]


def _limit_per_document(ranked: Sequence[_ScoredPassage], limit: int) -> list[_ScoredPassage]:
    """Return `limit` passages in the order of their rank, at most `_MAX_OF_ONE_DOCUMENT` of
    one document if the other documents have enough.
    """
    first_positions: list[int] = []
    spare_positions: list[int] = []
    counts: Counter[int] = Counter()
    for position, passage in enumerate(ranked):
        counts[passage.document] += 1
        if counts[passage.document] <= _MAX_OF_ONE_DOCUMENT:
            first_positions.append(position)
        else:
            spare_positions.append(position)
    return [ranked[position] for position in sorted((first_positions + spare_positions)[:limit])]


def _load_matches(
    connection: sqlite3.Connection, ranked: Sequence[_ScoredPassage]
) -> list[PassageMatch]:
    marks = ",".join("?" * len(ranked))
    rows = connection.execute(
        f"SELECT id, first, last, snippet FROM passages WHERE id IN ({marks})",  # noqa: S608 - question marks only
        [passage.number for passage in ranked],
    )
    spans: dict[int, tuple[int, int, str]] = {}
    for number, start, end, snippet in rows:
        spans[number] = (start, end, snippet)
    matches: list[PassageMatch] = []
    for passage in ranked:
        span = spans[passage.number]
        matches.append(PassageMatch(passage.document, *span, score=passage.score))
    return matches
