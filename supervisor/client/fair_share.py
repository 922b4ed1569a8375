"""Share the rate limits of providers between roles. Pure.

The parts of all roles grow together from 0 until a limit is full. The roles that use the full
limit stop there, and the others continue. The result is max-min fair: a role could only get
more if a role with an equal or smaller part got less (progressive filling; Bertsekas and
Gallager, "Data Networks", 1992, 6.5.2).
"""

from __future__ import annotations

from collections.abc import Mapping

Limit = tuple[str, str]
"""A rate-limit bucket, and the limited quantity: requests, input tokens or output tokens."""


def fair_parts(
    wants: Mapping[str, Mapping[Limit, float]], allowed: Mapping[Limit, float]
) -> dict[str, float]:
    """Return the part of its wanted work, from 0 to 1, that each role gets.

    Args:
        wants: for each role, the usage of each limit in a second.
        allowed: the allowance of each known limit in a second.
    """
    growing, parts = set(wants), dict.fromkeys(wants, 1.0)
    while growing and allowed:
        full_at: list[tuple[float, Limit]] = []
        for limit, most in allowed.items():
            full_at.append((_part_when_full(limit, most, wants, growing, parts), limit))
        part, first_limit = min(full_at)
        if part >= 1.0:
            break
        for role in list(growing):
            if wants[role].get(first_limit):
                parts[role] = part
                growing.remove(role)
    return parts


def _part_when_full(
    limit: Limit,
    most: float,
    wants: Mapping[str, Mapping[Limit, float]],
    growing: set[str],
    parts: Mapping[str, float],
) -> float:
    """Return the part of the growing roles at which a limit is full. 1 or more: the limit does
    not fill.
    """
    asked = taken = 0.0
    for role, usage in wants.items():
        if role in growing:
            asked += usage.get(limit, 0.0)
        else:
            taken += parts[role] * usage.get(limit, 0.0)
    if asked > 0:
        return max(0.0, most - taken) / asked
    return float("inf")
