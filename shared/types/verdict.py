"""What the assessor made of a round of results: PASS, or REVISE naming the steps to do again and what is wrong with them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import StringConstraints, model_validator

from handoff_queue.shared.types.ids import StepId, StepIdField
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.rubric import Score

Point = Annotated[str, StringConstraints(min_length=1, max_length=4_000)]


class Decision(StrEnum):
    PASS = "PASS"  # noqa: S105 (not a password)
    """The results answer the request; what is left open stands in `open_points`."""
    REVISE = "REVISE"
    """The steps in `revisions` run again, with the problem in their context."""


class Revision(Message):
    """One step to do again."""

    step: StepIdField
    problem: Point
    """What is wrong and what would be right, for the specialist that did it."""


class Verdict(Message):
    """The outcome of one round."""

    verdict: Decision
    revisions: tuple[Revision, ...] = ()
    open_points: tuple[Point, ...] = ()
    """What the reader of the answer must know and no further round is worth. Printed with the answer."""
    scores: tuple[Score, ...] = ()
    """By the job's rubric. None: of a version that gave none, or the assessor left them out."""

    @model_validator(mode="after")
    def _revises_exactly_when_it_says_so(self) -> Self:
        if (self.verdict is Decision.REVISE) != bool(self.revisions):
            raise ValueError("REVISE names at least one step, PASS names none")
        if len(self.steps) != len(self.revisions):
            raise ValueError("a step is named twice: put all of its problems into one revision")
        return self

    @property
    def steps(self) -> frozenset[StepId]:
        """The steps to do again."""
        return frozenset(revision.step for revision in self.revisions)
