"""Claims of an answer that contradict what its user knows for certain, found by code. Pure.

A table may have several rows on one matter (a price for each year, each author of a book): a claim that agrees with one of those that it
can mean is left alone, and so is one on which the table has nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from handoff_queue.shared.text.plurals import counted
from handoff_queue.shared.types.facts import FactTable, KnownFact
from handoff_queue.shared.types.handoff import Claim
from handoff_queue.supervisor.text.claim_statements import Statement, are_of_one_time, statement_of
from handoff_queue.supervisor.text.claim_subject import Matter, is_same, matter_of
from handoff_queue.supervisor.text.claim_values import agree, contradict

MOST_CLAIMS = 200
"""Of one answer, that are held against the facts."""
MOST_TOLD = 20
"""Claims in one veto: as many as somebody mends at once."""
MOST_FACTS_TOLD = 3
"""Against one claim."""
_MOST_SHOWN_CHARS = 300


def against_the_facts(claims: Iterable[Claim], table: FactTable) -> tuple[str, ...]:
    """A sentence for each claim that contradicts the facts: the claim, the fact, and where that is from."""
    known = list({claim.id: claim for claim in claims if claim.is_comparable}.values())
    wrong = [_sentence(claim, facts) for claim, facts in contradicted(known[:MOST_CLAIMS], table)]
    more = (
        [f"And {counted(rest, 'more claim')} like these."]
        if (rest := len(wrong) - MOST_TOLD) > 0
        else []
    )
    unread = (
        [f"It has {counted(rest, 'claim')} more than can be held against the facts."]
        if (rest := len(known) - MOST_CLAIMS) > 0
        else []
    )
    return (*wrong[:MOST_TOLD], *more, *unread)


def contradicted(
    claims: Iterable[Claim], table: FactTable
) -> Iterator[tuple[Claim, tuple[KnownFact, ...]]]:
    """Each claim that can't be right, with the facts that say so."""
    said = [(claim, statement_of(claim)) for claim in claims if claim.is_comparable]
    known = _by_matter(table.facts) if said else {}
    read: dict[KnownFact, Statement] = {}
    for claim, statement in said:
        facts = [
            fact
            for matter, facts in known.get(statement.matter.head, {}).items()
            if is_same(matter, statement.matter)
            for fact in facts
        ]
        read |= {fact: statement_of(fact) for fact in facts if fact not in read}
        same = [
            (fact, read[fact].value) for fact in facts if are_of_one_time(read[fact], statement)
        ]
        against = tuple(fact for fact, value in same if contradict(value, statement.value))
        if against and not any(agree(value, statement.value) for _, value in same):
            yield claim, against


def _by_matter(facts: Iterable[KnownFact]) -> dict[str, dict[Matter, list[KnownFact]]]:
    """By its head, and then by all of it. What they say of it is read when a claim speaks of the same."""
    found: dict[str, dict[Matter, list[KnownFact]]] = {}
    for fact in facts:
        matter = matter_of(fact.subject, fact.attribute)
        found.setdefault(matter.head, {}).setdefault(matter, []).append(fact)
    return found


def _sentence(claim: Claim, facts: tuple[KnownFact, ...]) -> str:
    told = "; ".join(map(_fact, facts[:MOST_FACTS_TOLD]))
    return f'"{_short(claim.text)}" ({claim.id}) contradicts the facts: {told}.'


def _fact(fact: KnownFact) -> str:
    value = f"{fact.value} {fact.unit}" if fact.unit else fact.value
    when = f" ({_short(fact.date)})" if fact.date else ""
    return f"{_short(fact.subject)}, {_short(fact.attribute)}: {_short(value)}{when}, from {_short(fact.source)}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_SHOWN_CHARS else f"{line[:_MOST_SHOWN_CHARS]}…"
