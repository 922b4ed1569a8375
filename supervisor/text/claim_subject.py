"""Comparison of claim subjects: whether two claims state the same attribute of the same thing.
Pure.

Subject and attribute are read as one noun phrase, because models divide it differently: "Echo-2",
"battery capacity" is "Echo-2 battery", "capacity". The head, which is the last word, must be the
same. One phrase may have more words before the head ("storage capacity"). Names, figures, and words
that change the measure (read, maximum, net) must agree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from handoff_queue.shared.text.words import stem

_WORD = re.compile(r"[^\W_][\w+#]*(?:[.-][\w+#]+)*")
_GRAMMAR = frozenset(
    "a an the is are was were be its their his her it per which that has have does do s".split()
)
_TITLES = frozenset(
    "inc corp corporation ltd llc gmbh ag plc co company limited dr mr mrs ms prof".split()
)
_FILLERS = frozenset(
    "number count amount total value level location period date day year time current official annual yearly".split()
)
"""They add nothing to an attribute that has another word."""
_PHRASES = (
    (r"\bhead ?office\b|\bhq\b|\bheadquartered\b|\bbased\b", "headquarters"),
    (r"\bchief executive(?: officer)?\b", "ceo"),
    (r"\bchief financial officer\b", "cfo"),
    (r"\bchief technology officer\b", "cto"),
    (r"\brun ?time\b|\brunning time\b", "duration"),
    (r"\b(?:programming|implementation) language\b|\bwritten in\b|\bimplemented in\b", "language"),
    (r"\bopen[- ]source\b", "opensource"),
    (r"\bsupports? (?:for )?(\w+)", r"\1 support"),
    (r"\bdate of birth\b|\bbirthday\b|\bborn\b", "birth"),
    (r"\bdate of death\b|\bdied\b", "death"),
)
_SYNONYMS = {
    stem(word): stem(root)
    for root, words in {
        "employees": "headcount staff workforce",
        "population": "residents inhabitants",
        "licence": "license licensing",
        "weight": "mass",
        "height": "tall high",
        "length": "long",
        "revenue": "turnover",
        "price": "cost",
        "memory": "ram",
        "foundation": "founded founding established",
        "maximum": "max top highest",
        "minimum": "min lowest",
        "average": "avg mean",
        "participants": "subjects",
        "speed": "velocity",
        "release": "released",
        "capacity": "volume",
        "efficacy": "effectiveness",
    }.items()
    for word in (root, *words.split())
}
_MEASURES = frozenset(
    _SYNONYMS.get(stem(word), stem(word))
    for word in (
        "maximum minimum average median net gross peak idle read write monthly quarterly daily weekly hourly "
        "before after domestic foreign metropolitan metro greater urban rural "
        "male female training test first last new old north south east west upper lower"
    ).split()
)
"""Words that change the measure or the thing that they qualify."""
_FLOWS = frozenset(
    _SYNONYMS.get(stem(word), stem(word))
    for word in (
        "revenue sales profit income earnings loss expenses spending expenditure cashflow dividends investment production output yield "
        "consumption emissions generation exports imports visitors guests passengers attendance deliveries shipments orders bookings "
        "downloads installations registrations births deaths accidents incidents outages downtime rainfall precipitation growth"
    ).split()
)
"""Attributes that add up over time: a quarter has a share of its year's amount."""
_PER = re.compile(r"\s*\b(?:per|each|every)\s+(hour|day|week|month|quarter|year)\b", re.IGNORECASE)
_PERIODIC = {
    "hour": "hourly",
    "day": "daily",
    "week": "weekly",
    "month": "monthly",
    "quarter": "quarterly",
    "year": "yearly",
}


@dataclass(frozen=True, slots=True)
class ClaimSubject:
    """Subject and attribute of a claim as one noun phrase."""

    words: tuple[str, ...]
    """Stems, in order; the last is the head."""
    names: frozenset[str]
    """Words that the subject writes as names, and figures."""
    attribute: str

    @property
    def adds_up(self) -> bool:
        """Return whether a longer time has a larger amount."""
        return self.head in _FLOWS

    @property
    def head(self) -> str:
        if self.words:
            return self.words[-1]
        return ""


def matter_of(subject: str, attribute: str) -> ClaimSubject:
    subject = re.sub(r"\([^)]*\)", " ", subject)
    words = _words(_turned(_phrased(attribute)))
    kept = [
        word for word in words if word.casefold() not in _FILLERS and word.casefold() != "name"
    ] or [word for word in words if word.casefold() != "name"]
    about = [word for word in _words(_turned(_phrased(subject))) if word.casefold() not in _TITLES]
    names = frozenset(
        _stem(word) for word in about if any(char.isupper() or char.isdigit() for char in word)
    )
    return ClaimSubject(tuple(dict.fromkeys(map(_stem, (*about, *kept)))), names, attribute)


def is_same(first: ClaimSubject, second: ClaimSubject) -> bool:
    if not first.words or not second.words or first.head != second.head:
        return False
    named = first.names | second.names
    ours, theirs = ([word for word in matter.words if word in named] for matter in (first, second))
    if not _same_name(ours, theirs):
        return False
    before, behind = (frozenset(matter.words) - named for matter in (first, second))
    return (before <= behind or behind <= before) and not (before ^ behind) & _MEASURES


def _same_name(ours: list[str], theirs: list[str]) -> bool:
    """Return whether the names match: the same words, initials, or the last words of the other, as
    "Curie" for "Marie Curie".
    """
    if sorted(ours) == sorted(theirs):
        return True
    few, many = sorted((ours, theirs), key=len)
    if not few:
        return False
    if len(few) == 1 and few[0] == "".join(word[0] for word in many) and len(many) > 1:
        return True
    if len(few) == len(many) == 1:
        short, long = sorted((few[0], many[0]), key=len)
        return len(short) >= 6 and long.startswith(short) and len(long) - len(short) <= 3
    extra = many[: -len(few)]
    return many[-len(few) :] == few and not any(
        word in _MEASURES or any(map(str.isdigit, word)) for word in extra
    )


def _phrased(text: str) -> str:
    for pattern, phrase in _PHRASES:
        text = re.sub(pattern, phrase, text, flags=re.IGNORECASE)
    if match := _PER.search(text):  # "dose per day" -> "daily dose"
        text = f"{_PERIODIC[match[1].casefold()]} {text[: match.start()]}{text[match.end() :]}"
    return text


def _turned(text: str) -> str:
    """Return the phrase with its head last: "accuracy on the test set" -> "test set accuracy"."""
    first, *others = re.split(r"\s+(?:of|in|on|at|for|by)(?:\s+|$)", text)
    return " ".join([*reversed(others), first])


def _words(text: str) -> list[str]:
    words: list[str] = []
    for word in _WORD.findall(text):
        if word.casefold() not in _GRAMMAR:
            words.append(word)
    return words


def _stem(word: str) -> str:
    stemmed = stem(word.casefold())
    return _SYNONYMS.get(stemmed, stemmed)
