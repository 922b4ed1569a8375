"""What a fan-in waits for: all that is planned, so many of it, or what is there by a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field

from handoff_queue.shared.text.durations import whole_seconds_in
from handoff_queue.shared.types.ids import StepId, StepIdField
from handoff_queue.shared.types.message import Message

MOST_RESULTS = 1_000_000
"""More than any plan has steps."""
MOST_WITHIN_S = 30 * 86_400
"""Longer than jobs are kept: a job's own time ends it before."""


def _typed(value: object) -> object:
    """A plan that a person has edited holds texts."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


_Count = Annotated[int, Field(ge=1, le=MOST_RESULTS), BeforeValidator(_typed)]


class Join(Message):
    """What is needed before it goes on, where that is not everything. What is late then is given up."""

    enough: _Count | None = None
    """So many usable results do: it goes on the moment that they are in. None: all."""
    at_least: _Count = 1
    """With fewer than these it does not go on; where fewer can come, it is given up."""
    within_s: (
        Annotated[int, Field(ge=1, le=MOST_WITHIN_S), BeforeValidator(whole_seconds_in)] | None
    ) = None
    """Seconds, from when the first of them began. Then it goes on with what is there."""
    must: tuple[StepIdField, ...] = ()
    """These are waited for, however late; without one of them it is given up."""


def join_problems(join: Join | None, waits_for: Sequence[StepId]) -> list[str]:
    """What makes no sense about it, each in one clause."""
    if join is None:
        return []
    if not waits_for:
        return ["waits for nothing: give the step something to depend on, or leave the join out"]
    most = max(join.enough or 1, join.at_least)
    found = (
        [f"needs {most} results of {len(waits_for)}: ask for fewer"]
        if most > len(waits_for)
        else []
    )
    if join.enough and join.at_least > join.enough:
        found.append(
            f"has enough with {join.enough} and needs at least {join.at_least}: one of them is wrong"
        )
    known, others = set(waits_for), ", ".join(waits_for)
    return found + [
        f"must have {one}, which it does not wait for (it does for {others:.300})"
        for one in join.must
        if one not in known
    ]
