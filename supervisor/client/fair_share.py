"""Share the rate limits of providers between roles. Pure.

The parts of all roles grow together from 0 until a limit is full. The roles that use the full
limit stop there, and the others continue. The result is max-min fair: a role could only get
more from a role that has no more itself (progressive filling; Bertsekas and Gallager, "Data
Networks", 1992, 6.5.2).
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
    """Return the part at which this limit is full while the parts of the open roles grow.
    Above 1: the limit never fills.
    """
    asked = sum(wants[role].get(limit, 0.0) for role in growing)
    taken = sum(
        parts[role] * its.get(limit, 0.0) for role, its in wants.items() if role not in growing
    )
    if asked > 0:
        return max(0.0, most - taken) / asked
    return float("inf")
