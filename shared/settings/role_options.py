"""The effort and the thinking of roles, as a user writes them: `planner=high`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from handoff_queue.shared.types.model import Effort, Thinking
from handoff_queue.shared.types.names import Role

Level = TypeVar("Level", bound=StrEnum)


def check_role_efforts(values: Sequence[str]) -> Sequence[str]:
    """Return the values if each is `ROLE=EFFORT`.

    Raises:
        ValueError: a value has another form, or a role has two values.
    """
    parse_role_levels(values, Effort)
    return values


def check_role_thinking(values: Sequence[str]) -> Sequence[str]:
    """Return the values if each is `ROLE=THINKING`.

    Raises:
        ValueError: a value has another form, or a role has two values.
    """
    parse_role_levels(values, Thinking)
    return values


def parse_role_levels(values: Sequence[str], levels: type[Level]) -> dict[Role, Level]:
    """Return the roles with their levels.

    Args:
        values: texts `ROLE=LEVEL`.

    Raises:
        ValueError: a value has another form, or a role has two values.
    """
    level_by_role: dict[Role, Level] = {}
    for value in values:
        role, _, level = map(str.strip, value.partition("="))
        if role not in set(Role) or level not in set(levels):
            raise ValueError(
                f"must be ROLE={levels.__name__.upper()} with commas, with the roles"
                f" {', '.join(Role)} and the values {', '.join(levels)}"
            )
        if Role(role) in level_by_role:
            raise ValueError("must name each role once")
        level_by_role[Role(role)] = levels(level)
    return level_by_role
