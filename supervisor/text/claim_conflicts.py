"""Claims that contradict each other, found by code: one attribute of one thing at one time, and values that can't both be right.

Only what claims say in parts (subject, attribute, value, unit, date) is compared. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from handoff_queue.shared.types.conflicts import Conflict, Conflicts
from handoff_queue.shared.types.handoff import Claim
from handoff_queue.supervisor.text.claim_statements import (
    Statement,
    can_not_both_be_right,
    statement_of,
)

MOST_STATEMENTS = 500
"""That are held against each other, the first of a job's: with as many, all of one kind, it takes about a second."""


def conflicts_in(claims: Iterable[Claim]) -> tuple[Conflicts, int]:
    """The conflicts among these claims, in their order, and how many claims were too many to be looked at. Claims that are drawn into the
    same dispute stand in one; a claim that another result carries on is one claim.
    """
    known: dict[str, Claim] = {}
    for claim in claims:
        if claim.is_comparable:
            known.setdefault(claim.id, claim)
    alike: dict[tuple[str | None, ...], list[Claim]] = {}
    for claim in known.values():
        alike.setdefault(
            (claim.subject, claim.attribute, claim.value, claim.unit, claim.date), []
        ).append(claim)
    statements = list(alike.values())[:MOST_STATEMENTS]
    groups = _groups([statement_of(same[0]) for same in statements])
    found = (
        Conflict(
            id=f"k{number}", claims=tuple(claim for index in group for claim in statements[index])
        )
        for number, group in enumerate(groups, start=1)
    )
    return Conflicts(conflicts=tuple(found)), len(known) - sum(map(len, statements))


def contradicts(one: Claim, other: Claim) -> bool:
    """Whether two claims can't both be right, as far as code can see."""
    return can_not_both_be_right(statement_of(one), statement_of(other))


def _groups(said: Sequence[Statement]) -> list[list[int]]:
    """What contradicts each other, directly or by way of others. Only what has the same head can."""
    group_of: list[list[int]] = [[index] for index in range(len(said))]
    by_head: dict[str, list[int]] = {}
    for index, one in enumerate(said):
        earlier = by_head.setdefault(one.matter.head, [])
        for before in earlier:
            if group_of[before] is not group_of[index] and can_not_both_be_right(said[before], one):
                joined = sorted(group_of[before] + group_of[index])
                for member in joined:
                    group_of[member] = joined
        earlier.append(index)
    return [group for index, group in enumerate(group_of) if len(group) > 1 and group[0] == index]
