"""The output of a review: verdicts, rubric scores and rulings on conflicts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator

from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.handoff import Claim, ClaimId
from handoff_queue.shared.types.ids import NameField, StepId, StepIdField
from handoff_queue.shared.types.message import Message, PublicMessage

LOWEST, HIGHEST = 1, 5
"""Range of a score. Two readers can agree on the meaning of each of five scores."""
MAX_CRITERIA = 12
Meaning = Annotated[str, StringConstraints(min_length=3, max_length=500)]
MAX_WHY_CHARS = 1_000
"""Most characters of the reason that a role gives for a score, a verdict or a ruling."""
Why = Annotated[str, StringConstraints(max_length=MAX_WHY_CHARS)]


class Criterion(PublicMessage):
    """A criterion that work is judged by."""

    name: NameField
    means: Meaning
    """Description of a good answer by this criterion."""


class Rubric(PublicMessage):
    """A list of criteria, each with its own score."""

    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1, max_length=MAX_CRITERIA)]

    @model_validator(mode="after")
    def _validate_unique_names(self) -> Self:
        if len(set(self.names)) != len(self.names):
            raise ValueError("a criterion is named twice")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the criteria."""
        return tuple(criterion.name for criterion in self.criteria)

    @classmethod
    def of_fields(cls, means: Mapping[str, object]) -> Self:
        """Return a rubric from a mapping of name to meaning.

        Raises:
            HandoffError: a name or a meaning is invalid, or there are no criteria or too many.
        """
        if not 1 <= len(means) <= MAX_CRITERIA:
            raise MalformedMessage(f"Rubric: has 1 to {MAX_CRITERIA} criteria, not {len(means)}")
        criteria: list[JsonValue] = []
        for name, meaning in means.items():
            if not isinstance(meaning, str):
                raise MalformedMessage(
                    f"Rubric: {name}: must be a text that describes a good answer, not"
                    f" {meaning!r:.40}"
                )
            criteria.append({"name": name, "means": meaning})
        return cls.from_value({"criteria": criteria})


class Score(Message):
    """A score for one criterion."""

    criterion: NameField
    score: Annotated[int, Field(ge=LOWEST, le=HIGHEST)]
    why: Why = ""
    step: StepIdField | None = None
    """Step whose result the score is about; None: the whole work."""


DEFAULT_RUBRIC = Rubric.of_fields(
    {
        "accuracy": (
            "Every statement of fact is carried by the source that it points to, figures, units,"
            " dates and names included."
        ),
        "coverage": "Every part of the request is answered, and the answer names every gap.",
        "clarity": (
            "The reader finds the answer at once, in the form that was asked for, each thing said"
            " once."
        ),
    }
)


Point = Annotated[str, StringConstraints(min_length=1, max_length=4_000)]


class Decision(StrEnum):
    """The decision of a review."""

    PASS = "PASS"  # noqa: S105 (not a password)
    """The results answer the request. `open_points` has the remaining remarks."""
    REVISE = "REVISE"
    """The steps in `revisions` run again, with the problem in their context."""


class Revision(Message):
    """A step to run again."""

    step: StepIdField
    problem: Point
    """The fault and the right result, for the specialist that did the step."""


class Verdict(Message):
    """The outcome of one review round."""

    verdict: Decision
    revisions: tuple[Revision, ...] = ()
    open_points: tuple[Point, ...] = ()
    """Points that the reader of the answer must know, but that justify no further round. They
    are printed with the answer.
    """
    scores: tuple[Score, ...] = ()
    """Scores by the job's rubric. Empty if the assessor left them out."""

    @model_validator(mode="after")
    def _validate_revisions(self) -> Self:
        if (self.verdict is Decision.REVISE) != bool(self.revisions):
            raise ValueError("REVISE names at least one step, PASS names none")
        if len(self.steps) != len(self.revisions):
            raise ValueError("a step is named twice: put all of its problems into one revision")
        return self

    @property
    def steps(self) -> frozenset[StepId]:
        """Return the steps to run again."""
        return frozenset(revision.step for revision in self.revisions)


ConflictId = Annotated[str, StringConstraints(pattern=r"^k[0-9]{1,4}$")]


class ClaimConflict(Message):
    """Claims that cannot all be true, with their evidence."""

    id: ConflictId
    claims: Annotated[tuple[Claim, ...], Field(min_length=2)]


class Conflicts(Message):
    """The conflicts that code has found between the claims of one round."""

    conflicts: tuple[ClaimConflict, ...] = ()


class Settlement(Message):
    """The judge's settlement of one conflict."""

    conflict: ConflictId
    stands: tuple[ClaimId, ...] = ()
    """The claims that stand; the other claims of the conflict do not. All claims: they do not
    contradict each other. No claim: the conflict stays disputed.
    """
    why: Annotated[str, StringConstraints(max_length=4_000)] = ""


class Settlements(Message):
    """A settlement for each conflict that the judge saw."""

    settlements: tuple[Settlement, ...] = ()


class Side(StrEnum):
    """The side that is right."""

    WRITER = "writer"
    """The assessor's point is wrong: the result is correct."""
    ASSESSOR = "assessor"
    """The assessor's point is right."""
    NEITHER = "undecided"
    """The evidence does not settle the point."""


class Ruling(Message):
    """The judge's ruling on one point. A round has at most one ruling for each step."""

    step: StepIdField
    right: Side
    why: Annotated[str, StringConstraints(max_length=4_000)] = ""


class Rulings(Message):
    """A ruling for each point that the judge saw."""

    rulings: tuple[Ruling, ...] = ()
