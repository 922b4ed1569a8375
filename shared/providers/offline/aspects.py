"""Aspects that people ask for, and the words by which documents speak of them: a small
thesaurus, and stems for the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from handoff_queue.shared.providers.offline.sentences import words_of
from handoff_queue.shared.providers.offline.stems import has_stem, stems_of
from handoff_queue.shared.text.words import stem

_STRONG_WEIGHT, _WEAK_WEIGHT = 2.0, 1.0

_AMOUNT = r"\d[\d.,]*\s?"

# name: (words that name the aspect, words that hint at it); each a regular expression that
# starts at a word
_THESAURUS: dict[str, tuple[str, str]] = {
    "filtering": (r"filter\w*", r"predicates?|where clauses?|metadata|payloads?|conditions?"),
    "persistence": (
        r"persist\w*|durab\w*|write-ahead|wal\b|survives?|transaction logs?|translog",
        r"snapshots?|backups?|crash\w*|on disk|to disk|recover\w*|checkpoint\w*|object storage",
    ),
    "licence": (r"licen[cs]\w*", r"apache|mit\b|bsd\b|agpl\w*|sspl|open[- ]source"),
    "language": (
        r"written in|implemented in|programming languages?",
        r"rust\b|go\b|java\b|c\+\+|python\b",
    ),
    "index types": (r"ind(?:ex|exes|ices)\b", r"hnsw|ivf\w*|diskann|quanti[sz]\w*|inverted|flat\b"),
    "scaling": (
        r"scal(?:e|es|ing|ability|able)\b|shards?\b|sharding|distributes",
        r"replica\w*|distribut(?:ed|ion|ing)|clusters?\b|horizontal\w*",
    ),
    "deployment": (
        r"deploy\w*|self-host\w*",
        r"docker|kubernetes|embedded|in-process|managed|cloud|single binary|container\w*|helm",
    ),
    "interfaces": (r"apis?\b|interfaces?|clients?\b", r"grpc|rest\b|http\w*|graphql|sdks?"),
    "hybrid search": (r"hybrid", r"bm25|full-text|keywords?|sparse|rerank\w*|fusion"),
    "consistency": (
        r"consisten\w*|transactions?|transactional",
        r"acid\b|isolation|mvcc|rollback\w*",
    ),
    "performance": (
        r"latency|throughput|performance|faster|fast\b",
        r"speed\w*|recall|queries per second",
    ),
    "memory": (r"memory|ram\b", r"compress\w*|quanti[sz]\w*|disk"),
    "cost": (
        rf"pric\w*|[$€£]\s?\d|{_AMOUNT}(?:dollars?|euros?|usd|eur)\b",
        r"costs?\b|cheap\w*|expensive|free\b|sells for",
    ),
    "weight": (
        rf"weigh\w*|{_AMOUNT}(?:kg|g|grams?|kilograms?|kilos?|lbs?|pounds?|ounces)\b",
        r"heav(?:y|ier)\b|light(?:er|est|weight)?\b",
    ),
    "security": (
        r"secur\w*|authenticat\w*|encrypt\w*",
        r"tls\b|access control|passwords?|permissions?",
    ),
}
_ASKED_BY = {
    "licence": r"licen[cs]\w*",
    "persistence": r"persist\w*|durab\w*|crash\w*|wal\b|backups?",
    "filtering": r"filter\w*",
    "language": r"(?:programming )?languages?|written in",
    "index types": r"ind(?:ex|exes|ices|exing)\b",
    "scaling": r"scal(?:e|es|ing|ability|able)\b|shard\w*|replicat\w*",
    "deployment": r"deploy\w*|self-host\w*|hosting",
    "interfaces": r"apis?\b|interfaces?",
    "hybrid search": r"hybrid\w*",
    "consistency": r"consisten\w*|transaction\w*",
    "performance": r"performan\w*|latency|throughput|speed\b",
    "memory": r"memory|ram\b",
    "cost": r"costs?\b|pric\w*|how (?:much|expensive|cheap)",
    "weight": r"weigh\w*|(?:how|too) (?:heavy|light)",
    "security": r"secur\w*|encrypt\w*|authenticat\w*",
}
_STOP_WORDS = frozenset(
    [
        "a",
        "about",
        "above",
        "after",
        "all",
        "also",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "because",
        "been",
        "being",
        "both",
        "but",
        "by",
        "can",
        "could",
        "did",
        "do",
        "does",
        "each",
        "explain",
        "find",
        "for",
        "from",
        "give",
        "had",
        "has",
        "have",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "kind",
        "like",
        "may",
        "me",
        "mean",
        "means",
        "more",
        "most",
        "much",
        "must",
        "need",
        "needs",
        "no",
        "not",
        "of",
        "on",
        "one",
        "only",
        "or",
        "other",
        "our",
        "out",
        "over",
        "please",
        "say",
        "should",
        "so",
        "some",
        "such",
        "tell",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "thing",
        "this",
        "those",
        "to",
        "too",
        "under",
        "up",
        "us",
        "use",
        "used",
        "using",
        "very",
        "was",
        "way",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "while",
        "who",
        "why",
        "will",
        "with",
        "work",
        "works",
        "would",
        "you",
        "your",
        "describe",
        "summarise",
        "summarize",
        "question",
        "documents",
        "document",
    ]
)


@dataclass(frozen=True, slots=True)
class Aspect:
    """One aspect as it was asked for, and how to recognise it."""

    label: str
    key: str
    strong: re.Pattern[str] | None
    weak: re.Pattern[str] | None
    stems: tuple[str, ...] = ()
    """Of the phrase's own words, where the thesaurus does not know it."""

    def score(self, text: str) -> float:
        """How much a text speaks of this aspect; 0.0: not at all."""
        strong = len({found.lower() for found in self.strong.findall(text)}) if self.strong else 0
        strong += sum(has_stem(each, stems_of(text)) for each in self.stems)
        weak = len({found.lower() for found in self.weak.findall(text)}) if self.weak else 0
        return _STRONG_WEIGHT * min(strong, 2) + _WEAK_WEIGHT * min(weak, 3)


@lru_cache(maxsize=512)
def aspect(label: str) -> Aspect:
    """The aspect that a phrase names: out of the thesaurus, or by the phrase's own words."""
    for key, pattern in _ASKED_BY.items():
        if re.search(rf"\b(?:{pattern})", label, re.IGNORECASE):
            strong, weak = _THESAURUS[key]
            return Aspect(label, key, _words(strong), _words(weak))
    stems = tuple(stem(word) for word in content_words(label)) or (label.lower(),)
    return Aspect(label, label.lower(), None, None, stems)


def known_aspects(text: str) -> list[Aspect]:
    """The thesaurus's aspects that a request speaks of, in its order."""
    found = [
        (match.start(), key)
        for key, pattern in _ASKED_BY.items()
        if (match := _words(pattern).search(text))
    ]
    return [aspect(key) for _, key in sorted(found)]


def all_aspects() -> list[Aspect]:
    """Every aspect of the thesaurus, the ones that people ask for first."""
    return [aspect(key) for key in _THESAURUS]


def content_words(text: str) -> list[str]:
    """The words that carry meaning, once each, in order."""
    return list(
        dict.fromkeys(
            word
            for word in words_of(text)
            if word not in _STOP_WORDS and (len(word) > 1 or word.isdigit())
        )
    )


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{pattern})", re.IGNORECASE)
