"""Which part of what it has to do each role can do, where providers' limits are shared. Pure.

The parts of all roles grow together, from nothing to all, until a limit is full: who takes of
that one stops there, and the others go on.
So nobody could have more but from one who has no more: max-min fairness, by progressive
filling (Bertsekas and Gallager, "Data Networks", 1992, 6.5.2).
"""

from __future__ import annotations

from collections.abc import Mapping

Limit = tuple[str, str]
"""A lane's name, and what is limited there: requests, input or output (tokens)."""


def fair_parts(
    wants: Mapping[str, Mapping[Limit, float]], allowed: Mapping[Limit, float]
) -> dict[str, float]:
    """The part of each role, from 0 to 1.

    `wants`: what all that a role has to do takes of limits, a second; `allowed`: of those that
    are known, all that may be taken, a second.
    """
    growing, parts = set(wants), dict.fromkeys(wants, 1.0)
    while growing:
        full = {
            limit: _until(limit, most, wants, growing, parts) for limit, most in allowed.items()
        }
        part, first = min(((part, limit) for limit, part in full.items()), default=(1.0, None))
        if first is None or part >= 1.0:
            break
        for role in [role for role in growing if wants[role].get(first)]:
            parts[role] = part
            growing.remove(role)
    return parts


def _until(
    limit: Limit,
    most: float,
    wants: Mapping[str, Mapping[Limit, float]],
    growing: set[str],
    parts: Mapping[str, float],
) -> float:
    """The part at which this limit is full, if those that still grow go on together; above 1:
    it never is.
    """
    asked = sum(wants[role].get(limit, 0.0) for role in growing)
    taken = sum(
        parts[role] * its.get(limit, 0.0) for role, its in wants.items() if role not in growing
    )
    return max(0.0, most - taken) / asked if asked > 0 else float("inf")
