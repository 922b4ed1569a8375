"""What a claim, or a fact, says of what and when, read once; and whether two of them can both be right. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from handoff_queue.shared.types.facts import KnownFact
from handoff_queue.shared.types.handoff import Claim
from handoff_queue.supervisor.text.claim_subject import Matter, is_same, matter_of
from handoff_queue.supervisor.text.claim_values import Value, contradict, read_value
from handoff_queue.supervisor.text.periods import Period, are_apart, periods_of


@dataclass(frozen=True, slots=True)
class Statement:
    """A claim's parts, or a fact's."""

    matter: Matter
    value: Value
    when: tuple[Period, ...]


def statement_of(said: Claim | KnownFact) -> Statement:
    subject, attribute, value = said.subject or "", said.attribute or "", said.value or ""
    when = periods_of(said.date) if said.date else ()
    return Statement(matter_of(subject, attribute), read_value(value, said.unit, attribute), when)


def are_of_one_time(one: Statement, other: Statement) -> bool:
    """Whether they can mean the same time: one that names none can mean any. Of what adds up, a quarter is another time than its year."""
    if not (one.when and other.when):
        return True
    if one.matter.adds_up:
        return bool(set(one.when) & set(other.when))
    return not are_apart(one.when, other.when)


def can_not_both_be_right(one: Statement, other: Statement) -> bool:
    return (
        are_of_one_time(one, other)
        and is_same(one.matter, other.matter)
        and contradict(one.value, other.value)
    )
