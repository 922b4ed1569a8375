"""A step of a plan: its task, its dependencies and its join."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveInt,
    StringConstraints,
)

from handoff_queue.shared.text.times import convert_whole_seconds
from handoff_queue.shared.types.condition_syntax import When
from handoff_queue.shared.types.handoff import DEFAULT_FALLBACK, Text
from handoff_queue.shared.types.ids import NameField, StepIdField
from handoff_queue.shared.types.message import Message, OmitNone

MAX_RESULTS = 1_000_000
"""Bound of the numbers of a join. No plan has as many steps."""
MAX_WITHIN_S = 30 * 86_400
"""Bound of a join's `within_s`: 30 days."""


def _parse_digits(value: object) -> object:
    """Return the number in a text of digits, and any other value unchanged. A plan that a
    person has edited has texts instead of numbers.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value


_Count = Annotated[int, Field(ge=1, le=MAX_RESULTS), BeforeValidator(_parse_digits)]


class Join(Message):
    """The results that a step needs before it begins, if it does not need all. Dependencies
    that have not ended by then are abandoned.
    """

    enough: _Count | None = None
    """Number of usable results with which the step begins at once; None: all."""
    at_least: _Count = 1
    """Least number of usable results. If fewer are possible, the step is abandoned."""
    within_s: (
        Annotated[int, Field(ge=1, le=MAX_WITHIN_S), BeforeValidator(convert_whole_seconds)] | None
    ) = None
    """Seconds, counted from the start of the first dependency. After this time the step begins
    with the results that exist.
    """
    must: tuple[StepIdField, ...] = ()
    """Dependencies that the step waits for without a time limit. If one fails, the step is
    abandoned.
    """


HIDDEN_TITLE = "(encrypted)"
"""The title of jobs and steps of a tenant whose texts are encrypted."""
TITLE_CHARS = 80
"""Characters of the longest title of a job or a step: one line of a terminal."""


AFTER_REVIEW: Final = "review"
"""Value of `Step.after`."""


class OnFailure(StrEnum):
    """Action after the specialist of a step has failed."""

    DROP = "drop"
    """The job continues without the step, and the answer names the gap."""
    RETRY = "retry"
    """Try again with the error in the context, then another specialist of the same capability,
    then the generalist. Then drop the step.
    """
    ASK = "ask"
    """Like `retry`, but ask a person before the step is dropped."""


def _validate_title(title: str) -> str:
    """Return the title. Raise ValueError if it is blank or has line breaks."""
    if len(title.splitlines()) != 1 or not title.strip():
        raise ValueError("must be one line with at least one visible character")
    return title


Title = Annotated[
    str, StringConstraints(min_length=1, max_length=TITLE_CHARS), AfterValidator(_validate_title)
]


class ItemRef(Message):
    """The item of one copy of a repeated step."""

    step: str
    """Name of the repeated step in the workflow."""
    each: str
    """Kind of the items: `files`, `lines` or `rows`."""
    n: Annotated[PositiveInt, Field(strict=False)]
    """Place of the item, from 1."""
    key: str
    """Name of the item: its field in the key column, its path or line, or its number."""


class Step(Message):
    """A piece of work for one specialist. It becomes an AgentHandoff when all steps in
    `depends_on` are done.
    """

    id: StepIdField
    specialist: NameField
    task: Text
    """The whole task for the specialist, apart from the results of `depends_on`: objective,
    output, boundaries.
    """
    depends_on: tuple[StepIdField, ...] = ()
    fallback: Annotated[str, StringConstraints(min_length=1, max_length=4_000)] = DEFAULT_FALLBACK
    """Instruction for a task that cannot be done as stated."""
    on_failure: OnFailure = OnFailure.DROP
    """Action after the specialist has failed."""
    after: Annotated[Literal["review"] | None, OmitNone] = None
    """`review`: the step begins when a review has passed the results of the steps before it."""
    approve: Annotated[bool | None, OmitNone, Field(strict=False)] = None
    """True if a person must approve before the step begins."""
    when: Annotated[When | None, OmitNone] = None
    """Condition on which the step begins; None: it begins in any case."""
    row: Annotated[ItemRef | None, OmitNone] = None
    """Item of a repeated step; None for other steps."""
    contract_of: Annotated[NameField | None, OmitNone] = None
    """The specialist that the step was first planned for; None: `specialist`. Another
    specialist that does the step uses the output schema and the limits of the first one.
    """
    join: Join | None = None
    """Results of `depends_on` that the step needs. None: the step begins when all have ended,
    and at least one has a usable result.
    """
    title: Annotated[Title | None, OmitNone] = None
    """Heading of the step's result in a merged answer; None: the step id."""
