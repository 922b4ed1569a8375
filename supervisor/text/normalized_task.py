"""Normalized form of a task: its words, names and relations without its wording. Pure, and linear
in the text.

Words without meaning for the work are removed: polite phrases, words of grammar, the verb of the
request and its form. The number of the attempt is removed, too ("attempt 2:", "(third pass)", "once
more"). Words lose their endings, and synonyms of work become one word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from handoff_queue.shared.text.words import stem
from handoff_queue.supervisor.text.task_similarity import TaskPhrase, TaskPhrases

_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*[+#]*|[€$£¥%]")
_ENDS, _MARKS = frozenset(".!?:\n"), frozenset(".,;:!?()[]–—\n")
"""Marks that end a statement, and all marks."""
_NUMBERS = dict(
    zip(
        "two three four five six seven eight nine ten eleven twelve".split(),
        map(str, range(2, 13)),
        strict=True,
    )
)
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split()

# How often it was asked for, and how

_NTH = rf"(?:{'|'.join(_ORDINALS)}|\d{{1,3}}(?:st|nd|rd|th))"
_ATTEMPT = r"(?:attempt|try|retry|take|versuch|anlauf|time|round|pass|iteration|runde|durchgang)"
_COUNTER = (
    rf"(?:(?:this is |(?:in|on|for|as) )?(?:the |an? |our |my )?{_NTH} {_ATTEMPT}"
    rf"|{_ATTEMPT} (?:no\.? ?|nr\.? ?|number |# ?)?(?:\d{{1,3}}|{'|'.join(_NUMBERS)})(?: of \d{{1,3}})?)"
)
_SET_APART = re.compile(
    rf"^\s*[(\[]?({_COUNTER})[)\]]?(?:\s*[:.,;–—]|\s-|\s*[)\]])\s*|\s*[(\[]({_COUNTER})[)\]]|[,;:.?!–—-]\s*({_COUNTER})\s*[.!?]?\s*$",
    re.IGNORECASE,
)
_OF_THE_WORK_TOO = re.compile(r"round|pass|iteration|runde|durchgang", re.IGNORECASE)
"""The work itself may have some: two tasks that both count them are two, as funding round 2
and funding round 3 are.
"""
_MANNER = re.compile(
    r"\b(?:but )?this time\b|\b(?:once|one) (?:more|again)(?: time)?\b|\bin (?:more|greater|full) (?:depth|detail)\b"
    r"|\bmore (?=\w+ly\b|details?\b|information\b)"
    r"|\b(?:with|cite) (?:an? |the |its |their |your )?(?:source|citation)s?(?: for)?\b"
    r"|\b(?:source|citation)s? (?:for|of) (?=(?:every|each|all|any)\b)",
    re.IGNORECASE,
)
_PHRASAL = re.compile(
    r"(^[^\w(]*(?:(?:could|can|would|will) you )?|[.!?:\n]\s*)((?:(?:please|kindly) )*(?:find|work|figure|point|look|go|dig|read))"
    r" (?:out(?! of)|through|up|into|over|for|at)\b",
    re.IGNORECASE,
)
"""Verbs of requests with their particles. In other places the particle is a direction: prices go
up, and they go down.
"""
_NEGATION = re.compile(
    r"\b(?:(ca)n['’]?t|(wo)n['’]?t|(sha)n['’]?t|cannot|(\w+)n['’]t|(do|does|did|is|are|was|were|has|have)nt)\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"\bhow (much|many|long|often|far|old|fast|large|big|high)\b|\b(?:reasons? )?why\b",
    re.IGNORECASE,
)

# Words that say nothing of the work

_GRAMMAR = frozenset(
    (
        "a an the and or but of in on at to for from by with into about as is are was were be been being it its that this these those "
        "there their they them he she you your we our us i my me which what whose whom how if whether than then so too very can could "
        "might shall will would do does did has have had having any some all each every both also just please kindly now still yet "
        "behind because through out within between among regard regarding respect concerning terms let make sure such via per along"
    ).split()
)
_ASKING = frozenset(
    (
        "find finds look search seek investigate determine identify examine inspect explore analyse analyze gather collect obtain "
        "describe explain provide give say says tell see get ascertain discover retrieve handle handles again another anew afresh repeat "
        "repeated redo recheck reexamine erneut nochmal bitte thorough thoroughly carefully closely deeply properly really exactly "
        "precisely specifically explains gives detail details detailed information info facts overview markdown section bullet bullets "
        "cite cites cited statement statements"
    ).split()
)
"""Words with which one asks anybody for anything, and in what form."""
_ORDERS = {
    "find": (
        "research check study review read state name list note record report return present search extract work compute calculate go use "
        "outline detail figure look find investigate determine identify examine inspect explore analyse analyze gather collect obtain "
        "describe explain provide give tell see get show try establish discuss consult"
    ),
    "judge": "assess evaluate judge rate",
    "count": "count",
    "write": "write draft compose",
}
_ORDER_OF = {word: kind for kind, words in _ORDERS.items() for word in words.split()}
"""Verbs that only order the work, at the place of an order."""
_BEFORE_ORDERS = frozenset("and then to please kindly you also finally now or again".split())

# Words that mean the same here, and words that make it other work

_SAME = {
    stem(word): stem(words.split()[0])
    for words in (
        "price pricing cost costs fee fees charge charges",
        "licence license",
        "cause reason",
        "fault bug defect",
        "company firm",
        "employee staff personnel workforce",
        "customer client",
        "revenue turnover",
        "main key chief principal",
        "newest latest",
        "advantage benefit pro",
        "disadvantage drawback downside con",
        "competitor rival",
        "rule regulation",
        "risk hazard",
        "problem difficulty",
        "summary summarise summarize condense",
        "translation translate",
        "comparison compare contrast",
        "forecast predict prediction",
        "recommend suggest advise",
        "verify confirm validate",
        "dose dosage",
        "buy purchase",
        "quick fast",
        "big large",
        "small little",
    )
    for word in words.split()
}


@lru_cache(maxsize=50_000)
def _root(word: str) -> str:
    stemmed = stem(word)
    return _SAME.get(stemmed, stemmed)


_NEGATIONS = frozenset(
    map(
        _root,
        (
            "no not never none nor neither without except unless only solely exclusively nicht kein keine keinen keinem keiner keines "
            "ohne nie niemals"
        ).split(),
    )
)
_TURNS = _NEGATIONS | frozenset(
    map(_root, "against summary translation comparison forecast recommend verify".split())
)
"""Words that turn a task round: both must have the same, and the same must be negated."""
_TENSES = {
    word: tense
    for tense, words in {
        "past": "was were did had",
        "now": "is are does do has have",
        "later": "will",
    }.items()
    for word in words.split()
}
_RELATIONS = frozenset("from to into by than before after".split())
"""Words that relate their two sides, which cannot change places."""
_WAYS = frozenset("up down out into through over under off onto across around along past".split())
"""Directions. Two tasks that both have a direction must have the same one."""


@dataclass(frozen=True, slots=True)
class NormalizedTask:
    """A task, brought to one form."""

    text: str
    """The original text."""
    words: frozenset[str]
    """Words of its subject."""
    names: frozenset[str]
    """Figures, and words with a capital that does not begin a sentence."""
    spelled: frozenset[str]
    """All of its words, in small letters."""
    turns: frozenset[str]
    tenses: frozenset[str]
    relations: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Words of relation, with the words after them."""
    order: str | None = None
    """Kind of its first order; None: it only asks."""
    rounds: frozenset[str] = frozenset()
    """Counters that the work itself may have."""
    ways: frozenset[str] = frozenset()
    """Directions in it."""
    parts: tuple[TaskPhrase, ...] = ()
    """Its words without names, grouped by phrase."""


def wording_of(task: str) -> NormalizedTask:
    lines = "\n".join(" ".join(line.split()) for line in task.splitlines() if not line.isspace())
    plain, rounds = _without_counters(_MANNER.sub(" ", lines))
    text = _NEGATION.sub(_with_not, _PHRASAL.sub(r"\1\2", plain))
    text = _QUESTION.sub(
        lambda question: f" how{question[1].lower()} " if question[1] else " cause ", text
    )
    reading = _Reading()
    end = 0
    for match in _WORD.finditer(text):
        reading.take(_whose(match[0]), text[end : match.start()])
        end = match.end()
    return NormalizedTask(
        text=task,
        words=frozenset(reading.words),
        names=frozenset(reading.names),
        spelled=frozenset(reading.spelled),
        turns=frozenset(reading.turns),
        tenses=frozenset(_TENSES[word] for word in reading.spelled if word in _TENSES),
        relations={relation: frozenset(words) for relation, words in reading.relations.items()},
        order=reading.order,
        rounds=rounds,
        ways=frozenset(reading.spelled & _WAYS),
        parts=reading.parts.read(),
    )


def _whose(word: str) -> str:
    """Return the word without a possessive: company's, company’s: company."""
    return word.removesuffix("'s").removesuffix("’s")


def roots_in(task: str) -> frozenset[str]:
    """Return the words of the `NormalizedTask` that the text contains unchanged: a quick test which
    tasks are worth normalizing.
    """
    words = {_whose(word) for word in _WORD.findall(task.casefold())}
    return frozenset(word if word.isdigit() else _root(_NUMBERS.get(word, word)) for word in words)


def stands_in_it(root: str) -> bool:
    """Return whether a word of a `NormalizedTask` is in the text. Other words stand for a question
    ("why": a cause, "how long").
    """
    return root != _root("cause") and not root.startswith("how")


def _with_not(match: re.Match[str]) -> str:
    """Return can't, cannot as can not."""
    _, will, shall, other, do = match.groups()
    if will:
        verb = "will"
    elif shall:
        verb = "shall"
    else:
        verb = other or do or "can"
    return f"{verb} not"


def _without_counters(task: str) -> tuple[str, frozenset[str]]:
    counted = set[str]()

    def taken(match: re.Match[str]) -> str:
        counter = next(filter(None, match.groups()))
        if _OF_THE_WORK_TOO.search(counter):
            counted.add(counter.casefold())
        return " "

    return _SET_APART.sub(taken, task), frozenset(counted)


@dataclass(slots=True)
class _Reading:
    """A task as far as it was read, word by word."""

    words: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    spelled: set[str] = field(default_factory=set)
    turns: set[str] = field(default_factory=set)
    relations: dict[str, set[str]] = field(default_factory=dict)
    parts: TaskPhrases = field(default_factory=TaskPhrases)
    order: str | None = None
    _last: str = "."
    _relation: str | None = None

    def take(self, word: str, gap: str) -> None:
        """Take the next word, and the text before it."""
        small = _NUMBERS.get(word.casefold(), word.casefold())
        begins = not self.spelled or not _ENDS.isdisjoint(gap)
        kind = self._order_in(small, gap)
        self.order = self.order or kind
        self.parts.take(small, gap if self.spelled else "", is_order=kind is not None)
        self.spelled.add(small)
        self._last = small
        if small in _RELATIONS:
            self._relation = small
        if (root := _root(small)) in _TURNS:
            self.turns.add(root)
            if root in _NEGATIONS:
                self._relation = root
        elif kind is not None:
            self._relation = None
        elif small not in _GRAMMAR and small not in _ASKING:
            self._note(word, root, begins=begins)

    def _order_in(self, small: str, gap: str) -> str | None:
        may_be = not self.spelled or self._last in _BEFORE_ORDERS or not _MARKS.isdisjoint(gap)
        if may_be:
            return _ORDER_OF.get(small)
        return None

    def _note(self, word: str, root: str, *, begins: bool) -> None:
        self.words.add(root)
        if any(char.isdigit() or char in "+#€$£¥%" for char in word) or (
            len(word) > 1 and any(map(str.isupper, word[begins:]))
        ):
            self.names.add(word.casefold())
        self.parts.note(root, is_name=word.casefold() in self.names)
        if self._relation is not None:
            self.relations.setdefault(self._relation, set()).add(root)
            self._relation = None
