"""Gates: the conditions that an answer must meet before the job ends with it.

Known facts are a table from the user, with which the claims of an answer are compared.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import (
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from handoff_queue.shared.types.handoff import Fact
from handoff_queue.shared.types.ids import NameField
from handoff_queue.shared.types.limits import MAX_COUNT, Count
from handoff_queue.shared.types.message import PublicMessage
from handoff_queue.shared.types.names import RESERVED
from handoff_queue.shared.types.regex_patterns import (
    MAX_PATTERNS,
    UnusablePattern,
    check_patterns,
)

MAX_FACTS = 2_000
"""Most facts of a table. Each claim of an answer is compared with all facts of the job, which
takes seconds at worst for 100 claims of one kind.
"""
MAX_LINES = MAX_PATTERNS
"""Most entries of a gate. Each process that reads the job compiles each pattern."""


class KnownFact(PublicMessage):
    """A known fact: subject, attribute and value, with the same parts as a claim."""

    subject: Fact
    attribute: Fact
    value: Fact
    unit: Fact | None = None
    date: Fact | None = None
    """Time for which the value is true. None: all times without a row of the same subject."""
    source: Fact
    """The user's source of the fact."""


class FactTable(PublicMessage):
    """The known facts of a job. The client reads the user's file once and stores this payload."""

    facts: Annotated[tuple[KnownFact, ...], Field(max_length=MAX_FACTS)] = ()


REQUIREMENTS = "The answer must meet these conditions:"
"""Heading of the conditions in a task."""

Line = Annotated[str, StringConstraints(min_length=1, max_length=200)]

Lines = Annotated[tuple[Line, ...], Field(max_length=MAX_LINES)]

Number = Annotated[float, Field(allow_inf_nan=False)]


class GatesFrom(StrEnum):
    """Origin of a job's gates. Gates of the job replace those of the workflow, which replace
    those of the settings.
    """

    JOB = "job"
    WORKFLOW = "workflow"
    SETTINGS = "settings"


class Gates(PublicMessage):
    """The checks of an answer. Each field is one check; an empty field is not checked."""

    min_words: Annotated[int, Field(ge=0, le=MAX_COUNT)] | None = None
    max_words: Count | None = None
    sections: Lines = ()
    """Headings that the answer must have, at any level. Upper and lower case count as equal."""
    forbidden: Lines = ()
    """RE2 patterns that must not match the answer. `(?i)` at the beginning ignores case."""
    required: Lines = ()
    """RE2 patterns that must match the answer."""
    numbers: Annotated[tuple[Number, ...], Field(max_length=MAX_LINES)] = ()
    """Values that the answer must contain in any notation: 16000 is also `16,000` and `16
    thousand`.
    """
    cited: bool = False
    """True if the answer must have sources, and each sentence with a figure or a claim must
    cite a source that the documents contain.
    """
    fact_checker: NameField | None = None
    """The specialist that checks the facts when the other checks pass; None: no specialist."""

    @field_validator("fact_checker")
    @classmethod
    def _validate_fact_checker(cls, name: str | None) -> str | None:
        if name in RESERVED:
            raise ValueError(f"{name} is reserved for the supervisor: use the name of a specialist")
        return name

    @field_validator("forbidden", "required")
    @classmethod
    def _validate_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        try:
            check_patterns(patterns)
        except UnusablePattern as error:
            raise ValueError(str(error)) from error
        return patterns

    @model_validator(mode="after")
    def _validate_word_limits(self) -> Self:
        if (
            self.min_words is not None
            and self.max_words is not None
            and self.min_words > self.max_words
        ):
            raise ValueError("min_words is more than max_words: no answer could pass")
        return self
