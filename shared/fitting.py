"""What specialists and the supervisor's roles say of their handoffs: with what one is run, and what follows from its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shared.agent.prompt import ENVELOPE_RULES, Loaded
from shared.agent.reading import Reading
from shared.agent.tool import Tool
from shared.library import JobLibrary
from shared.wire.events import Event
from shared.wire.handoff import AgentHandoff, HandoffResult
from shared.wire.specialist import SpecialistSpec


@dataclass(frozen=True, slots=True)
class Fitting:
    """What a handoff is run with, apart from the model: differs between specialists and roles."""

    reading: Reading
    tools: tuple[Tool, ...] = ()
    answer_rules: str = ENVELOPE_RULES
    streams_draft: bool = False


@dataclass(frozen=True, slots=True)
class Consequences:
    """What follows in the journal from a result, in the same step as the result itself."""

    events: tuple[Event, ...] = ()
    payloads: tuple[str, ...] = ()


Fit = Callable[[AgentHandoff, SpecialistSpec, Loaded, JobLibrary], Fitting]
Conclude = Callable[[AgentHandoff, HandoffResult], Consequences]


def nothing_follows(_handoff: AgentHandoff, _result: HandoffResult) -> Consequences:
    return Consequences()
