"""A specialist as data: its name, and the content of its Markdown file."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import NameField
from handoff_queue.shared.types.job_options import MAX_NAME_CHARS
from handoff_queue.shared.types.limits import (
    MAX_COUNT,
    Count,
    Dollars,
    OutputTokens,
    Seconds,
    Tokens,
)
from handoff_queue.shared.types.message import Message, OmitNone
from handoff_queue.shared.types.model import Effort, Thinking
from handoff_queue.shared.types.names import NAME_PATTERN, RESERVED


def check_specialist(name: str, where: str = "") -> None:
    """Check a specialist's name.

    Raises:
        UserError: no specialist can have this name.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise UserError(
            f"{where}{name!r:.80} is not a valid name: use the name of a specialist",
            command="handoff specialists",
        )
    if name in RESERVED:
        raise UserError(
            f"{where}{name!r} is reserved for the supervisor: use the name of a specialist",
            command="handoff specialists",
        )


class Tier(StrEnum):
    """Tier of an agent that names no model. Each tier has a default model in the settings."""

    CAPABLE = "capable"
    CHEAP = "cheap"


class RunnerKind(StrEnum):
    """A program that asks for the model calls of an agent, in place of our own loop alone."""

    AGENT_SDK = "agent-sdk"
    """The program of the Claude Agent SDK."""


TaskName = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARS, pattern=r"^[\x21-\x7e]+$")
]
"""The name of a Celery task or queue: printable ASCII without spaces."""


Host = Annotated[str, StringConstraints(pattern=r"^(\*\.)?[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?$")]
"""A host in small letters. `*.example.org` stands for each subdomain."""


ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^\S+$")]
"""The name of a model in a list of models."""


class ContextManager(StrEnum):
    """The side that clears old results and has summaries written."""

    OWN = "own"
    """The agent loop."""
    PROVIDER = "provider"
    """The provider of the model, where it can; else the agent loop."""


class ContextRules(Message):
    """How the requests of a specialist stay short: `context` of its file."""

    clear_tools_at: Tokens | None = None
    """Input tokens of a request from which on old results of tools are cleared. None: four fifths
    of the context window of the model, or of a lower limit above which its price is higher.
    """
    keep: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 3
    """Newest results that are not cleared."""
    compact_at: Annotated[Tokens | None, OmitNone] = None
    """Input tokens of a request from which on a summary replaces the earlier turns, if cleared
    results do not suffice. None: nine tenths of the same length, at most 200,000.
    """
    managed_by: Annotated[ContextManager | None, OmitNone] = None
    """The side that clears results and has summaries written; None: `own`."""

    @property
    def is_managed_by_provider(self) -> bool:
        """Return whether the provider clears results and writes summaries, where it can."""
        return self.managed_by is ContextManager.PROVIDER

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.compact_at and self.clear_tools_at and self.compact_at < self.clear_tools_at:
            raise ValueError(
                f"compact_at is {self.compact_at}, below clear_tools_at, which is"
                f" {self.clear_tools_at}; results are cleared first"
            )
        return self


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
    models: Annotated[tuple[ModelName, ...] | None, OmitNone, Field(min_length=2, max_length=4)] = (
        None
    )
    """Models in the order of preference, in place of `model`. A turn goes to the first model that
    can serve it soon. None: one model serves all turns.
    """
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
    effort: Annotated[Effort | None, OmitNone] = None
    """How much work its model puts into each reply; None: the default of the model."""
    thinking: Annotated[Thinking | None, OmitNone] = None
    """When its model thinks before it writes; None: the default of the model."""
    runner: Annotated[RunnerKind | None, OmitNone] = None
    """The program that asks for its model calls; None: our own loop does."""
    context: Annotated[ContextRules | None, OmitNone] = None
    """When results are cleared from its requests; None: the defaults."""
    share: Annotated[bool | None, OmitNone] = None
    """True if equal handoffs of one tenant wait for one run. None or False: each handoff runs."""
    claims: Annotated[bool | None, OmitNone] = None
    """False if its answer has no new claims. It still keeps the marks of other steps' claims."""
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
    def has_claims(self) -> bool:
        """Return whether its answer has new claims."""
        return self.claims is not False

    @property
    def task_with_effect(self) -> str | None:
        """Return the Celery task if it is not safe to repeat, else None."""
        if self.repeatable is False:
            return self.celery_task
        return None


@lru_cache(maxsize=256)
def parse_spec(text: str) -> SpecialistSpec:
    """Parse a text like `SpecialistSpec.from_json`, with a cache, because many handoffs have
    the same text.

    Raises:
        MalformedMessage: the text is not a specialist.
    """
    return SpecialistSpec.from_json(text)


_UNANNOUNCED = (
    "You are a careful specialist. Do the task as it is put, from the material that you are given."
)


def build_placeholder_spec(name: str) -> SpecialistSpec:
    """Return the spec that a job stores for a specialist which no live worker announces.

    The handoff waits in the queue of that name. A worker that takes it runs its own file
    instead.
    """
    return SpecialistSpec(
        name=name, description=f"{name}: no worker announces it", instructions=_UNANNOUNCED
    )
