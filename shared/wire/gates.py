"""What an answer has to be before it leaves, as far as code can tell."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import NonNegativeInt, PositiveInt, StringConstraints, field_validator, model_validator

from shared.patterns import UnusablePattern, matches
from shared.wire.message import Message

Line = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Gates(Message):
    """Each is a check of its own; what is left out is not checked."""

    min_words: NonNegativeInt | None = None
    max_words: PositiveInt | None = None
    sections: tuple[Line, ...] = ()
    """Headings that must be there, in any case and at any level."""
    forbidden: tuple[Line, ...] = ()
    """Patterns of RE2 that may stand nowhere; `(?i)` before one makes it blind to case."""
    cited: bool = False
    """There are sources, and every statement that points to one has one that code has found."""

    @field_validator("forbidden")
    @classmethod
    def _can_be_run(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                matches(pattern, "")
            except UnusablePattern as error:
                raise ValueError(str(error)) from error
        return patterns

    @model_validator(mode="after")
    def _can_be_passed(self) -> Self:
        if self.min_words is not None and self.max_words is not None and self.min_words > self.max_words:
            raise ValueError("min_words is more than max_words: no answer could pass")
        return self
