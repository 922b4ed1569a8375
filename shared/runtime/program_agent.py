"""An agent whose model calls a program asks for."""

from __future__ import annotations

from typing import Protocol

from handoff_queue.shared.agent.checkpoint_store import CheckpointStore
from handoff_queue.shared.agent.loop import Agent
from handoff_queue.shared.agent.prompt import Opening
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
from handoff_queue.shared.types.model import Model
from handoff_queue.shared.types.specialist import SpecialistSpec


class ModelProgram(Model, Protocol):
    """A model with a program that asks for its calls. Each handoff has its own."""

    added_bytes: int
    """Most bytes that the program adds to a request."""

    def close(self) -> None:
        """End the program. A later call starts it again."""
        ...


class ProgramAgent(Agent):
    """An agent that ends the program with each run."""

    def __init__(
        self,
        handoff: AgentHandoff,
        spec: SpecialistSpec,
        opening: Opening,
        dependencies: RunDependencies,
        program: ModelProgram,
    ) -> None:
        super().__init__(handoff, spec, opening, dependencies)
        self._program = program

    def run(self, checkpoints: CheckpointStore, ends_at: float | None) -> HandoffResult:
        try:
            return super().run(checkpoints, ends_at)
        finally:
            self._program.close()
