"""Setup of a handoff's run and the consequences of its result. Specialists and roles implement both
differently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from handoff_queue.shared.agent.answer_format import AnswerFormat
from handoff_queue.shared.agent.checkpoint_store import CheckpointStore
from handoff_queue.shared.agent.prompt import ENVELOPE_RULES, LoadedPayloads
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.runtime.payload_cache import JobDocuments
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.events import Event
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
from handoff_queue.shared.types.rate_limits import Expected
from handoff_queue.shared.types.specialist import SpecialistSpec


class Runner(Protocol):
    """Does the work of one handoff under a claim. `shared.agent.loop.Agent` is one."""

    @property
    def model_name(self) -> str | None:
        """The model that is asked for. None: no model runs."""
        ...

    def first_call(self) -> tuple[WorstCase | None, Expected | None]:
        """Return the most that the first model call can use, and its share of the rate limits."""
        ...

    def run(self, turns: CheckpointStore, ends_at: float | None) -> HandoffResult:
        """Return the result. `ends_at`: Unix time in seconds at which the claim must end.

        Raises:
            Interrupted: the claim is gone; nothing more may be written.
            StoreError: checkpoints cannot be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """Everything that a handoff's run needs except the model. It differs between specialists and
    roles.
    """

    reading: AnswerFormat
    tools: tuple[Tool, ...] = ()
    answer_rules: str = ENVELOPE_RULES
    streams_draft: bool = False
    runner: Runner | None = None
    """Does the work in place of an agent. None: an agent does it."""


@dataclass(frozen=True, slots=True)
class Consequences:
    """Events that follow from a result, and are stored in the same step as the result."""

    events: tuple[Event, ...] = ()
    payloads: tuple[str, ...] = ()


Fit = Callable[[AgentHandoff, SpecialistSpec, LoadedPayloads, JobDocuments], AgentSetup]
Conclude = Callable[[AgentHandoff, HandoffResult], Consequences]


def nothing_follows(_handoff: AgentHandoff, _result: HandoffResult) -> Consequences:
    return Consequences()
