"""Contradictions between claims, and between claims and known facts. Pure.

Only claims with a subject, an attribute and a value are compared. A table of facts may have
several rows on one subject (a price for each year, each author of a book). A claim that agrees
with one possible row passes, and so does a claim without a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.gates import FactTable, KnownFact
from handoff_queue.shared.types.handoff import Claim
from handoff_queue.shared.types.review import ClaimConflict, Conflicts
from handoff_queue.supervisor.text.claim_subject import ClaimSubject, is_same, parse_subject
from handoff_queue.supervisor.text.claim_values import (
    ClaimValue,
    read_value,
    values_agree,
    values_contradict,
)
from handoff_queue.supervisor.text.periods import Period, are_apart, parse_periods


@dataclass(frozen=True, slots=True)
class Statement:
    """The parts of a claim or of a fact."""

    subject: ClaimSubject
    value: ClaimValue
    periods: tuple[Period, ...]


def build_statement(claim: Claim | KnownFact) -> Statement:
    """Return the parts of a claim or of a fact. A part that is missing is read as an empty text."""
    attribute = claim.attribute or ""
    periods: tuple[Period, ...] = ()
    if claim.date:
        periods = parse_periods(claim.date)
    return Statement(
        subject=parse_subject(claim.subject or "", attribute),
        value=read_value(claim.value or "", claim.unit, attribute),
        periods=periods,
    )


def may_share_time(first: Statement, second: Statement) -> bool:
    """Return whether both may mean the same time. A statement without a time may mean any
    time. For an amount that adds up, such as revenue, a quarter and its year are different
    times.
    """
    if not (first.periods and second.periods):
        return True
    if first.subject.adds_up:
        return bool(set(first.periods) & set(second.periods))
    return not are_apart(first.periods, second.periods)


def are_contradictory(first: Statement, second: Statement) -> bool:
    """Return whether the statements give different values for the same thing and time."""
    return (
        may_share_time(first, second)
        and is_same(first.subject, second.subject)
        and values_contradict(first.value, second.value)
    )


MAX_STATEMENTS = 500
"""Most compared statements of a job, from the first on. So many similar statements take about
a second.
"""


def find_claim_conflicts(claims: Iterable[Claim]) -> tuple[Conflicts, int]:
    """Return the conflicts among these claims, in order, and the number of claims beyond the
    limit.

    A conflict holds all claims that contradict each other, directly or through other claims.
    Claims with the same id count once.
    """
    known: dict[str, Claim] = {}
    for claim in claims:
        if claim.is_comparable:
            known.setdefault(claim.id, claim)
    by_parts: dict[tuple[str | None, ...], list[Claim]] = {}
    for claim in known.values():
        parts = (claim.subject, claim.attribute, claim.value, claim.unit, claim.date)
        by_parts.setdefault(parts, []).append(claim)
    equal_claims = list(by_parts.values())[:MAX_STATEMENTS]
    compared = sum(len(claims_of_statement) for claims_of_statement in equal_claims)
    groups = _group_statements(
        [build_statement(claims_of_statement[0]) for claims_of_statement in equal_claims]
    )
    conflicts: list[ClaimConflict] = []
    for number, group in enumerate(groups, start=1):
        members: list[Claim] = []
        for index in group:
            members += equal_claims[index]
        conflicts.append(ClaimConflict(id=f"k{number}", claims=tuple(members)))
    return Conflicts(conflicts=tuple(conflicts)), len(known) - compared


def contradicts(first: Claim, second: Claim) -> bool:
    """Return whether two claims cannot both be right, as far as code can decide."""
    return are_contradictory(build_statement(first), build_statement(second))


def _group_statements(statements: Sequence[Statement]) -> list[list[int]]:
    """Return groups of statements that contradict each other, directly or through other
    statements, as indices. Only statements with the same head are compared.
    """
    group_of: list[list[int]] = [[index] for index in range(len(statements))]
    by_head: dict[str, list[int]] = {}
    for index, statement in enumerate(statements):
        earlier = by_head.setdefault(statement.subject.head, [])
        for before in earlier:
            if group_of[before] is group_of[index]:
                continue
            if are_contradictory(statements[before], statement):
                joined = sorted(group_of[before] + group_of[index])
                for member in joined:
                    group_of[member] = joined
        earlier.append(index)
    groups: list[list[int]] = []
    for index, group in enumerate(group_of):
        is_first_member = group[0] == index
        if is_first_member and len(group) > 1:
            groups.append(group)
    return groups


MAX_CLAIMS = 200
"""Most claims of one answer that are compared with the facts."""
MAX_CLAIMS_IN_VETO = 20
"""Most claims in one veto: as many as one attempt can correct."""
MAX_FACTS_A_SENTENCE = 3
"""Most facts that one sentence holds against a claim."""
_MAX_SHOWN_CHARS = 300
"""Most characters of a claim in a line."""


def find_fact_contradictions(claims: Iterable[Claim], table: FactTable) -> tuple[str, ...]:
    """Return a sentence for each claim that contradicts the facts, with the claim, the facts
    and their sources. A further sentence counts the claims beyond a limit.
    """
    by_id = {claim.id: claim for claim in claims if claim.is_comparable}
    comparable = list(by_id.values())
    wrong: list[str] = []
    for claim, facts in find_contradicted_claims(comparable[:MAX_CLAIMS], table):
        wrong.append(_format_sentence(claim, facts))
    sentences = wrong[:MAX_CLAIMS_IN_VETO]
    if len(wrong) > MAX_CLAIMS_IN_VETO:
        rest = format_count(len(wrong) - MAX_CLAIMS_IN_VETO, "more claim")
        sentences.append(f"And {rest} like these.")
    if len(comparable) > MAX_CLAIMS:
        rest = format_count(len(comparable) - MAX_CLAIMS, "claim")
        sentences.append(f"It has {rest} more than can be compared with the facts.")
    return tuple(sentences)


def find_contradicted_claims(
    claims: Iterable[Claim], table: FactTable
) -> Iterator[tuple[Claim, tuple[KnownFact, ...]]]:
    """Yield each claim that contradicts facts and agrees with no fact, with the contradicted
    facts.
    """
    comparable = [claim for claim in claims if claim.is_comparable]
    if not comparable:
        return
    by_subject = _group_by_subject(table.facts)
    statements: dict[KnownFact, Statement] = {}
    for claim in comparable:
        statement = build_statement(claim)
        against: list[KnownFact] = []
        is_confirmed = False
        for fact in _iterate_facts(statement.subject, by_subject):
            if fact not in statements:
                statements[fact] = build_statement(fact)
            if not may_share_time(statements[fact], statement):
                continue
            if values_contradict(statements[fact].value, statement.value):
                against.append(fact)
            elif values_agree(statements[fact].value, statement.value):
                is_confirmed = True
        if against and not is_confirmed:
            yield claim, tuple(against)


_FactsBySubject = Mapping[str, Mapping[ClaimSubject, Sequence[KnownFact]]]
"""Facts by the head of their subject, and then by the whole subject."""


def _iterate_facts(subject: ClaimSubject, by_subject: _FactsBySubject) -> Iterator[KnownFact]:
    """Yield the facts on a subject."""
    for other, facts in by_subject.get(subject.head, {}).items():
        if is_same(other, subject):
            yield from facts


def _group_by_subject(facts: Iterable[KnownFact]) -> _FactsBySubject:
    """Return the facts in groups. Their values are parsed only if a claim has the same subject."""
    by_head: dict[str, dict[ClaimSubject, list[KnownFact]]] = {}
    for fact in facts:
        subject = parse_subject(fact.subject, fact.attribute)
        by_head.setdefault(subject.head, {}).setdefault(subject, []).append(fact)
    return by_head


def _format_sentence(claim: Claim, facts: tuple[KnownFact, ...]) -> str:
    facts_in_words = "; ".join(map(_format_fact, facts[:MAX_FACTS_A_SENTENCE]))
    return f'"{_shorten(claim.text)}" ({claim.id}) contradicts the facts: {facts_in_words}.'


def _format_fact(fact: KnownFact) -> str:
    value = f"{fact.value} {fact.unit}" if fact.unit else fact.value
    date_text = ""
    if fact.date:
        date_text = f" ({_shorten(fact.date)})"
    return (
        f"{_shorten(fact.subject)}, {_shorten(fact.attribute)}: {_shorten(value)}{date_text}, from"
        f" {_shorten(fact.source)}"
    )


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= _MAX_SHOWN_CHARS:
        return line
    return f"{line[:_MAX_SHOWN_CHARS]}…"
