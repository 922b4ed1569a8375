"""What the judge says of points on which a writer and the assessor can't agree."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import StringConstraints

from handoff_queue.shared.types.ids import StepIdField
from handoff_queue.shared.types.message import Message


class Side(StrEnum):
    """Who is right."""

    WRITER = "writer"
    """The point falls: the result is as it should be."""
    REVIEWER = "reviewer"
    """The point stands."""
    NEITHER = "undecided"
    """What is shown does not settle it."""


class Ruling(Message):
    """Of one point. A round has at most one for each step."""

    step: StepIdField
    right: Side
    why: Annotated[str, StringConstraints(max_length=4_000)] = ""


class Rulings(Message):
    """One for each point that the judge was shown."""

    rulings: tuple[Ruling, ...] = ()
