"""Normalized form of a task: its words, names and relations, independent of its wording. Pure, and
linear in the length of the text.

Words without meaning for the work are removed: polite phrases, words of grammar, the verb of the
request, and the form of the answer. The number of the attempt is removed, too ("attempt 2:", "(third
pass)", "once more"). Words lose their endings, and synonyms become one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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

# The number of the attempt, and the manner of the work

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
"""Counters that may belong to the work itself. Funding round 2 and funding round 3 are two tasks."""
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

# Words that say nothing about the work

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
"""General words of requests, and of the form of an answer."""
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


def _kind_of_each_word(words_by_kind: Mapping[str, str]) -> dict[str, str]:
    """Return the kind of each word in space-separated words by kind."""
    kinds: dict[str, str] = {}
    for kind, words in words_by_kind.items():
        kinds |= dict.fromkeys(words.split(), kind)
    return kinds


_ORDER_OF = _kind_of_each_word(_ORDERS)
"""Verbs that only order the work, at the place of an order, with their kinds."""
_BEFORE_ORDERS = frozenset("and then to please kindly you also finally now or again".split())

# Words that mean the same here, and words that make it other work


def _first_of_synonyms(synonyms: Iterable[str]) -> dict[str, str]:
    """Return the stem of the first word for the stem of each word in space-separated synonyms."""
    firsts: dict[str, str] = {}
    for words in synonyms:
        first, *others = map(stem, words.split())
        firsts |= dict.fromkeys((first, *others), first)
    return firsts


_SAME = _first_of_synonyms(
    (
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
)


@lru_cache(maxsize=50_000)
def _root(word: str) -> str:
    """Return the stem of a word, or of the first of its synonyms."""
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
"""Words that make it other work. Two tasks for the same work have the same of these words."""
_TENSES = _kind_of_each_word(
    {
        "past": "was were did had",
        "now": "is are does do has have",
        "later": "will",
    }
)
_RELATIONS = frozenset("from to into by than before after".split())
"""Words that relate two things, which cannot change places."""
_WAYS = frozenset("up down out into through over under off onto across around along past".split())
"""Directions. Two tasks that both have a direction must have the same one."""


@dataclass(frozen=True, slots=True)
class NormalizedTask:
    """A task in its normalized form."""

    text: str
    """The original text."""
    words: frozenset[str]
    """Roots of the words that describe the work."""
    names: frozenset[str]
    """Figures, and words with a capital that does not begin a sentence, in small letters."""
    spelled: frozenset[str]
    """All words in small letters."""
    turns: frozenset[str]
    """Roots of the negations and of other words that make it other work."""
    tenses: frozenset[str]
    """`past`, `now` and `later`, by its verbs."""
    relations: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Negations and words of relation, with the roots of the words after them."""
    order: str | None = None
    """Kind of the first order; None: there is no order."""
    rounds: frozenset[str] = frozenset()
    """Counters that may belong to the work itself."""
    ways: frozenset[str] = frozenset()
    """Directions."""
    parts: tuple[TaskPhrase, ...] = ()
    """Phrases with the roots of their words, without names."""


def wording_of(task: str) -> NormalizedTask:
    """Return the normalized form of a task."""
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
    """Return a word without the possessive ending: `company's` -> `company`."""
    return word.removesuffix("'s").removesuffix("’s")


def roots_in(task: str) -> frozenset[str]:
    """Return the roots of all words in a text.

    They include the `NormalizedTask.words` for which `stands_in_it` is true. A comparison of the roots
    is fast, and finds the tasks that are worth normalizing.
    """
    words = {_whose(word) for word in _WORD.findall(task.casefold())}
    return frozenset(word if word.isdigit() else _root(_NUMBERS.get(word, word)) for word in words)


def stands_in_it(root: str) -> bool:
    """Return whether a root in `NormalizedTask.words` comes from one word of the text. Other roots may
    stand for a question: `cause` for "why", `howlong` for "how long".
    """
    return root != _root("cause") and not root.startswith("how")


def _with_not(match: re.Match[str]) -> str:
    """Return the verb of a contraction and `not`: `can't` -> `can not`, `won't` -> `will not`."""
    _, will, shall, other, do = match.groups()
    if will:
        verb = "will"
    elif shall:
        verb = "shall"
    else:
        verb = other or do or "can"
    return f"{verb} not"


def _without_counters(task: str) -> tuple[str, frozenset[str]]:
    """Return the task without the number of the attempt, and the counters that may belong to the work
    itself.
    """
    counted = set[str]()

    def taken(match: re.Match[str]) -> str:
        counter = next(filter(None, match.groups()))
        if _OF_THE_WORK_TOO.search(counter):
            counted.add(counter.casefold())
        return " "

    return _SET_APART.sub(taken, task), frozenset(counted)


@dataclass(slots=True)
class _Reading:
    """The parts of a `NormalizedTask`, up to the current word."""

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
        """Return the kind of an order. None: the word is no such verb, or is not at the place of one."""
        may_be = not self.spelled or self._last in _BEFORE_ORDERS or not _MARKS.isdisjoint(gap)
        if may_be:
            return _ORDER_OF.get(small)
        return None

    def _note(self, word: str, root: str, *, begins: bool) -> None:
        """Add a word that describes the work. `begins`: it begins a sentence."""
        self.words.add(root)
        if any(char.isdigit() or char in "+#€$£¥%" for char in word) or (
            len(word) > 1 and any(map(str.isupper, word[begins:]))
        ):
            self.names.add(word.casefold())
        self.parts.note(root, is_name=word.casefold() in self.names)
        if self._relation is not None:
            self.relations.setdefault(self._relation, set()).add(root)
            self._relation = None
