"""Comparison of claim subjects: whether two claims state the same attribute of the same thing.
Pure.

Subject and attribute are read as one noun phrase, because models divide it differently:
"Echo-2" and "battery capacity", or "Echo-2 battery" and "capacity". The head, which is the
last word, must be the same. One phrase may have more words before the head ("storage
capacity"). Names, figures, and words that change the measure (read, maximum, net) must agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from handoff_queue.shared.text.word_forms import find_stem, has_digit

_WORD = re.compile(r"[^\W_][\w+#]*(?:[.-][\w+#]+)*")
_GRAMMAR = frozenset(
    "a an the is are was were be its their his her it per which that has have does do s".split()
)
_TITLES = frozenset(
    "inc corp corporation ltd llc gmbh ag plc co company limited dr mr mrs ms prof".split()
)
_FILLERS = frozenset(
    "number count amount total value level location period date day year time current official"
    " annual yearly".split()
)
"""Words that add nothing to an attribute with other words."""
_NAME = frozenset(("name",))
"""A word that adds nothing to any attribute."""
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


def _index_roots_by_stem(words_by_root: Mapping[str, str]) -> dict[str, str]:
    """Return the stem of the root for the stem of each of its words."""
    roots: dict[str, str] = {}
    for root, words in words_by_root.items():
        for word in (root, *words.split()):
            roots[find_stem(word)] = find_stem(root)
    return roots


_SYNONYMS = _index_roots_by_stem(
    {
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
    }
)
_MEASURES = frozenset(
    _SYNONYMS.get(find_stem(word), find_stem(word))
    for word in (
        "maximum minimum average median net gross peak idle read write monthly quarterly daily"
        " weekly hourly before after domestic foreign metropolitan metro greater urban rural male"
        " female training test first last new old north south east west upper lower"
    ).split()
)
"""Words that change the measure or the thing that they qualify."""
_FLOWS = frozenset(
    _SYNONYMS.get(find_stem(word), find_stem(word))
    for word in (
        "revenue sales profit income earnings loss expenses spending expenditure cashflow dividends"
        " investment production output yield consumption emissions generation exports imports"
        " visitors guests passengers attendance deliveries shipments orders bookings downloads"
        " installations registrations births deaths accidents incidents outages downtime rainfall"
        " precipitation growth"
    ).split()
)
"""Attributes that add up over time: a quarter has a part of the amount of its year."""
_PER = re.compile(r" ?\b(?:per|each|every) (hour|day|week|month|quarter|year)\b", re.IGNORECASE)
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
    """Stems in order, each once. The last one is the head."""
    names: frozenset[str]
    """Stems of the subject's words with a capital letter or a digit."""
    attribute: str

    @property
    def adds_up(self) -> bool:
        """Return whether the attribute adds up over time, so that a year has more than its
        quarter.
        """
        return self.head in _FLOWS

    @property
    def head(self) -> str:
        if self.words:
            return self.words[-1]
        return ""


def parse_subject(subject: str, attribute: str) -> ClaimSubject:
    """Return the noun phrase of a subject and an attribute. Parentheses in the subject are
    left out.
    """
    subject = re.sub(r"\([^)]*\)", " ", subject)
    subject_words = _split_phrase(subject, _TITLES)
    attribute_words = _split_phrase(attribute, _FILLERS | _NAME)
    if not attribute_words:
        attribute_words = _split_phrase(attribute, _NAME)
    names = frozenset(_find_stem(word) for word in subject_words if _is_name(word))
    stems = dict.fromkeys(_find_stem(word) for word in (*subject_words, *attribute_words))
    return ClaimSubject(tuple(stems), names, attribute)


def _split_phrase(text: str, left_out: frozenset[str]) -> list[str]:
    """Return the words of a noun phrase with its head last, without grammar and these words."""
    words: list[str] = []
    for word in _split_words(_move_head_last(_replace_phrases(text))):
        if word.casefold() not in left_out:
            words.append(word)
    return words


def _is_name(word: str) -> bool:
    """Return whether a word has a capital letter or a digit."""
    return any(char.isupper() or char.isdigit() for char in word)


def is_same(first: ClaimSubject, second: ClaimSubject) -> bool:
    """Return whether both phrases mean the same attribute of the same thing."""
    if not first.words or not second.words or first.head != second.head:
        return False
    names = first.names | second.names
    first_words = [word for word in first.words if word in names]
    second_words = [word for word in second.words if word in names]
    if not _is_same_name(first_words, second_words):
        return False
    our_rest, their_rest = frozenset(first.words) - names, frozenset(second.words) - names
    is_narrower = our_rest <= their_rest or their_rest <= our_rest
    return is_narrower and not (our_rest ^ their_rest) & _MEASURES


def _is_same_name(first_words: list[str], second_words: list[str]) -> bool:
    """Return whether the names match.

    They match if they have the same words, or if one has the initials or the last words of the
    other ("Curie" for "Marie Curie"). One word may also be another word with up to three more
    letters.
    """
    if sorted(first_words) == sorted(second_words):
        return True
    few, many = sorted((first_words, second_words), key=len)
    if not few:
        return False
    if len(few) == len(many) == 1:
        short, long = sorted((few[0], many[0]), key=len)
        extra_letters = len(long) - len(short)
        return len(short) >= 6 and long.startswith(short) and extra_letters <= 3
    initials = "".join(word[0] for word in many)
    if few == [initials]:
        return True
    if many[-len(few) :] != few:
        return False
    extra_words = many[: -len(few)]
    return not any(word in _MEASURES or has_digit(word) for word in extra_words)


def _replace_phrases(text: str) -> str:
    text = " ".join(text.split())  # a long run of blanks would take quadratic time
    for pattern, phrase in _PHRASES:
        text = re.sub(pattern, phrase, text, flags=re.IGNORECASE)
    match = _PER.search(text)
    if match is None:
        return text
    without_period = text[: match.start()] + text[match.end() :]
    return f"{_PERIODIC[match[1].casefold()]} {without_period}"  # "dose per day" -> "daily dose"


def _move_head_last(text: str) -> str:
    """Return the phrase with its head last: "accuracy on the test set" -> "test set accuracy"."""
    first, *others = re.split(r" (?:of|in|on|at|for|by)(?: |$)", text)
    return " ".join([*reversed(others), first])


def _split_words(text: str) -> list[str]:
    words: list[str] = []
    for word in _WORD.findall(text):
        if word.casefold() not in _GRAMMAR:
            words.append(word)
    return words


def _find_stem(word: str) -> str:
    stemmed = find_stem(word.casefold())
    return _SYNONYMS.get(stemmed, stemmed)
