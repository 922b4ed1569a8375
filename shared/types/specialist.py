"""A specialist as data: its name, and the content of its Markdown file."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import NAME_PATTERN, NameField
from handoff_queue.shared.types.job_options import MOST_NAME_CHARS
from handoff_queue.shared.types.limits import Count, Dollars, OutputTokens, Seconds
from handoff_queue.shared.types.message import Message, OmitNone
from handoff_queue.shared.types.names import RESERVED


def check_specialist(name: str, where: str = "") -> None:
    """Check a specialist's name.

    Raises:
        UserError: no specialist can have this name.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise UserError(
            f"{where}{name!r:.80} is not a valid name of a specialist: `handoff specialists` lists"
            " the existing specialists"
        )
    if name in RESERVED:
        raise UserError(
            f"{where}{name} is a reserved name: `handoff specialists` lists the existing"
            " specialists"
        )


class Tier(StrEnum):
    """Tier of an agent that names no model. Each tier has a default model in the settings."""

    CAPABLE = "capable"
    CHEAP = "cheap"


TaskName = Annotated[
    str, StringConstraints(min_length=1, max_length=MOST_NAME_CHARS, pattern=r"^[\x21-\x7e]+$")
]
"""The name of a Celery task or queue: printable ASCII without spaces."""


Host = Annotated[str, StringConstraints(pattern=r"^(\*\.)?[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?$")]
"""A host in small letters. `*.example.org` stands for each subdomain."""


class SpecialistSpec(Message):
    """A specialist, or one of the supervisor's roles."""

    name: NameField
    """Name of the specialist and of its queue; its Celery task is `specialist.<name>`."""
    description: Annotated[str, StringConstraints(min_length=10, max_length=400)]
    """One line for the planner: the work that the specialist is for, and the work that it is
    not for.
    """
    capability: NameField | None = None
    """Specialists that declare the same capability can replace each other. None: no specialist
    can replace this one.
    """
    instructions: Annotated[str, StringConstraints(min_length=20, max_length=60_000)]
    """The body of the file: the system prompt."""
    model: str | None = None
    """A model's name; None: the default of its tier."""
    tier: Tier = Tier.CHEAP
    tools: tuple[str, ...] = ()
    """The only tools that it can call."""
    ask: Annotated[tuple[str, ...] | None, OmitNone] = None
    """Those of its tools of which each call needs a person's approval."""
    hosts: Annotated[tuple[Host, ...] | None, OmitNone] = None
    """The only hosts that `fetch_url` and `web_search` reach; None: all public hosts."""
    max_turns: Count = 8
    max_output_tokens: OutputTokens = 8_192
    """Output tokens of one model call."""
    max_usd: Dollars | None = None
    """The most that one handoff may cost."""
    max_seconds: Seconds | None = None
    """The longest that one handoff may take, from its first claim on."""
    output_schema: dict[str, Any] = Field(default_factory=lambda: {"type": "string"})
    """JSON Schema of `output` in its results. Outputs of type string are Markdown."""
    celery_task: Annotated[TaskName | None, OmitNone] = None
    """The task of the host's own Celery app that does the work instead of a model; None: a
    model does the work.
    """
    celery_queue: Annotated[TaskName | None, OmitNone] = None
    """The queue of that task. None: `celery`, the default queue of a Celery app."""
    repeatable: Annotated[bool | None, OmitNone] = None
    """False if that task is not safe to repeat. Then it counts as an effect, like a tool with
    effects.
    """

    @property
    def task_with_effect(self) -> str | None:
        """Return the Celery task if it is not safe to repeat, else None."""
        if self.repeatable is False:
            return self.celery_task
        return None


@lru_cache(maxsize=256)
def spec_from(text: str) -> SpecialistSpec:
    """Parse a text like `SpecialistSpec.from_json`, with a cache, because many handoffs have
    the same text.

    Raises:
        MalformedMessage: the text is not a specialist.
    """
    return SpecialistSpec.from_json(text)


_UNANNOUNCED = (
    "You are a careful specialist. Do the task as it is put, from the material that you are given."
)


def unannounced_spec(name: str) -> SpecialistSpec:
    """Return the spec that a job stores for a specialist which no live worker announces.

    The handoff waits in the queue of that name. A worker that takes it runs its own file
    instead.
    """
    return SpecialistSpec(
        name=name, description=f"{name}: no worker announces it", instructions=_UNANNOUNCED
    )
