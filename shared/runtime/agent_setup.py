"""The set-up of a handoff's run, and the consequences of its result. Workers and supervisors
provide different functions for both (`Fit`, `Conclude`).
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
    """Object that does the work of one handoff under a claim, such as `shared.agent.loop.Agent`."""

    @property
    def model_name(self) -> str | None:
        """Return the name of the model, or None if no model runs."""
        ...

    def first_call(self) -> tuple[WorstCase | None, Expected | None]:
        """Return the worst case of the first model call, and its expected share of the rate
        limits. Each is None if it does not apply.
        """
        ...

    def run(self, checkpoints: CheckpointStore, ends_at: float | None) -> HandoffResult:
        """Do the work, and return the result.

        Args:
            checkpoints: the claim, which stores the checkpoints.
            ends_at: Unix time in seconds at which the work must end; None: no limit.

        Raises:
            Interrupted: the claim is lost; nothing more may be written.
            StoreError: checkpoints cannot be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """The parts of a handoff's run, except the model, that differ between specialists and roles."""

    answer_format: AnswerFormat
    """Format in which the answer is read."""
    tools: tuple[Tool, ...] = ()
    answer_rules: str = ENVELOPE_RULES
    """Rules of the answer, which become part of the prompt."""
    streams_draft: bool = False
    """True if heartbeats send the text of the answer while the model writes it."""
    runner: Runner | None = None
    """Runner in place of an agent; None: an agent does the work."""


@dataclass(frozen=True, slots=True)
class Consequences:
    """Events that follow from a result. The store writes them in the same step as the result."""

    events: tuple[Event, ...] = ()
    payloads: tuple[str, ...] = ()
    """Texts that the events refer to by digest."""


Fit = Callable[[AgentHandoff, SpecialistSpec, LoadedPayloads, JobDocuments], AgentSetup]
"""Function that sets up the run of a handoff."""
Conclude = Callable[[AgentHandoff, HandoffResult], Consequences]
"""Function that returns the consequences of a result."""


def nothing_follows(_handoff: AgentHandoff, _result: HandoffResult) -> Consequences:
    """Return no consequences."""
    return Consequences()
