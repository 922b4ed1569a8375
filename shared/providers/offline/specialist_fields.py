"""Which specialist's field a request lies in: its words held against their descriptions, and
against words of the same trades.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import log

from handoff_queue.shared.providers.offline.aspects import content_words
from handoff_queue.shared.providers.offline.stems import has_stem
from handoff_queue.shared.text.words import stem

_NOT_THEIRS = re.compile(
    r"\b(?:Not for|Never|It cannot|Only when|General information|Executes nothing)\b.*", re.DOTALL
)
"""From where on a description says what it is not for."""
_TELLING, _HINTING = 1.3, 0.6
"""Weights of a trade's words beside those of a description itself, of which one that nobody
else has weighs 2.
"""
_ENOUGH = 1.1
"""The weight from which a request is said to lie in a field: one telling word, or two that
hint at it.
"""
_WHATEVER = frozenset(
    stem(word)
    for word in """every help need read right rule trade want use add alone already answer ask beginning below call carry cause
        change come condition day description draw end explain fall file finish first follow found give go good hold keep last length list
        look make model name new next note number odd off outline outside own page part people period piece plan process put question
        reader report request result run running say set show side small start step still strength subject suit sure take task tell
        text thing time together topic turn two version whole word write year""".split()
)
"""Stems that say nothing about a field, even where a description has them."""
_TRADES: tuple[tuple[str, str, str], ...] = (
    (
        "statutes contracts licences legal law",
        """law lawful unlawful lawsuit legal sue court clause liable liability gdpr copyright trademark comply compliance jurisdiction
        obligation statute contract licence license warranty infringe regulation""",
        "agreement lease landlord tenant permit consent notice terminate privacy allow forbid sign",
    ),
    (
        "clinical drugs medical health guidelines",
        """patient dose dosage symptom disease treatment diabetes cancer asthma vaccine therapy vitamin fracture pregnancy medicine
        clinical clinic medication antibiotic insulin infection surgery diagnosis ibuprofen aspirin hormone vaccination allergy""",
        "trial evidence guideline drug blood kidney liver heart pain pill doctor children adults side effects treat study health hospital",
    ),
    (
        "accounts valuation budgets prices money",
        """revenue profit debt cash invoice valuation budget dividend interest turnover expense forecast margin loan mortgage""",
        """cost cheaper cheap pay salary tax euro dollar usd eur afford balance quarter quarterly price account loss income spend buy
        gross operating month monthly""",
    ),
    (
        "software hardware protocols architecture",
        """tcp udp tls http latency algorithm encryption throughput kernel compiler postgres mysql redis kafka architecture protocol
        concurrency""",
        """index database memory cache server api cpu packet connection pool slow fast cloud service scale network user bandwidth disk
        query storage software key cluster leader replication lock thread""",
    ),
    (
        "functions scripts queries source code",
        "python javascript typescript bash sql refactor regex unit-test implement",
        "java rust function class program script code go query tests git",
    ),
    (
        "deployment monitoring incidents backup migration",
        "runbook rollback downtime rollout roll-out on-call outage failover backup deployment migration incident",
        "restore upgrade migrate deploy alert checklist maintenance night procedure server hardware database service",
    ),
    (
        "defects findings severity draft",
        "review critique proofread flaw defect",
        "mistake bug wrong weak error inspect examine draft essay security",
    ),
    ("quoted facts web", "quote", "source research investigate history cite"),
    (
        "calculations rankings trade-offs comparisons",
        "calculate",
        "rank growth average correlation conclusion trend",
    ),
    ("article letter tone", "article", "letter tone warm polite friendly newsletter"),
)
"""Words by which a description shows its trade (two of them); those that tell it in a request,
and those that only hint at it.
"""
_SHOWN_BY = 2


@dataclass(frozen=True)
class Field:
    """What a specialist is there for."""

    name: str
    description: str = ""
    has_tools: bool = True
    """Without tools nobody can look into a document."""

    @cached_property
    def own(self) -> frozenset[str]:
        """The stems of its name and its description."""
        said = re.sub(r"\([^)]*\)", " ", _NOT_THEIRS.sub("", self.description))
        return _stems(f"{re.sub('[_-]', ' ', self.name)} {said}")

    @cached_property
    def telling(self) -> frozenset[str]:
        return frozenset().union(*(telling for telling, _ in self._trades))

    @cached_property
    def hinting(self) -> frozenset[str]:
        return frozenset().union(*(hinting for _, hinting in self._trades))

    @cached_property
    def _trades(self) -> list[tuple[frozenset[str], frozenset[str]]]:
        return [
            (told, hinted)
            for marks, told, hinted in _trades()
            if sum(has_stem(mark, self.own) for mark in marks) >= _SHOWN_BY
        ]


def fields_in(brief: str, names: Sequence[str]) -> tuple[Field, ...]:
    """Those of `names`, with what the lists above a request say of them: an item a line, as JSON."""
    said: dict[str, Field] = {}
    for line in brief.splitlines():
        try:
            item = json.loads(line) if line.startswith("{") else {}
        except ValueError:  # the end of a list that was cut
            continue
        if "name" in item:
            said[str(item["name"])] = Field(
                str(item["name"]), str(item.get("description", "")), bool(item.get("tools", True))
            )
    return tuple(said.get(name, Field(name)) for name in names)


def best(text: str, fields: Iterable[Field]) -> Field | None:
    """The field that a text lies in most surely; None: in none for sure. The first by name of
    several.
    """
    known = sorted(fields, key=lambda field: field.name)
    count = Counter(word for field in known for word in field.own)
    asked = _stems(text)
    scored = [
        (sum(_weight(word, field, count, len(known)) for word in asked), field) for field in known
    ]
    score, field = max(scored, key=lambda each: each[0], default=(0.0, None))
    return field if score >= _ENOUGH else None


def _weight(word: str, field: Field, count: Counter[str], among: int) -> float:
    """How much a word speaks for a field: a word of its description the more, the fewer of the
    others have it.
    """
    own = (
        2 * log((1 + among) / max(1, count[word])) / log(1 + among)
        if has_stem(word, field.own)
        else 0.0
    )
    return max(
        own, _TELLING if word in field.telling else _HINTING if word in field.hinting else 0.0
    )


def _stems(text: str) -> frozenset[str]:
    return (
        frozenset(
            stem(part) for word in content_words(text) for part in (word, *word.split("-")) if part
        )
        - _WHATEVER
    )


@lru_cache(maxsize=1)
def _trades() -> tuple[tuple[frozenset[str], frozenset[str], frozenset[str]], ...]:
    return tuple(
        (_stems(marks), _stems(telling), _stems(hinting)) for marks, telling, hinting in _TRADES
    )
