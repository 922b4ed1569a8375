"""What good work is measured by where code cannot tell: criteria in words, each with a score and its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator

from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.ids import NameField, StepIdField
from handoff_queue.shared.types.message import Message

LOWEST, HIGHEST = 1, 5
"""Of a score. Five steps: few enough that each has a meaning which two judges share."""
MOST_CRITERIA = 12
Meaning = Annotated[str, StringConstraints(min_length=3, max_length=500)]
Why = Annotated[str, StringConstraints(max_length=1_000)]


class Criterion(Message):
    """One question that work is held against."""

    name: NameField
    means: Meaning
    """What is good by it."""


class Rubric(Message):
    """Each criterion is scored by itself."""

    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1, max_length=MOST_CRITERIA)]

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        if len(set(self.names)) != len(self.names):
            raise ValueError("a criterion is named twice")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(criterion.name for criterion in self.criteria)

    @classmethod
    def of_fields(cls, means: Mapping[str, object]) -> Self:
        """As people write it, `name: what is good by it`.

        Raises:
            MalformedMessage: a name or a meaning cannot be used, or there are none, or too many.
        """
        if not 1 <= len(means) <= MOST_CRITERIA:
            raise MalformedMessage(f"Rubric: has 1 to {MOST_CRITERIA} criteria, not {len(means)}")
        criteria: list[JsonValue] = []
        for name, meaning in means.items():
            if not isinstance(meaning, str):
                raise MalformedMessage(f"Rubric: {name}: say in words what is good by it")
            criteria.append({"name": name, "means": meaning})
        return cls.of({"criteria": criteria})


class Score(Message):
    """What a reviewer gives for one criterion."""

    criterion: NameField
    score: Annotated[int, Field(ge=LOWEST, le=HIGHEST)]
    why: Why = ""
    step: StepIdField | None = None
    """Whose result it speaks of; None: the whole."""


DEFAULT_RUBRIC = Rubric.of_fields(
    {
        "accuracy": "Every statement of fact is carried by the source that it points to, figures, units, dates and names included.",
        "coverage": "Every part of the request is answered, and what could not be found is named.",
        "clarity": "The reader finds the answer at once, in the form that was asked for, each thing said once.",
    }
)
