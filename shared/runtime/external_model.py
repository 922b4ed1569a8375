"""An agent whose model runs in a separate process, such as the CLI of the Claude Agent SDK."""

from __future__ import annotations

from typing import Protocol

from handoff_queue.shared.agent.checkpoint_store import CheckpointStore
from handoff_queue.shared.agent.loop import Agent
from handoff_queue.shared.agent.prompt import Opening
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
from handoff_queue.shared.types.model import Model
from handoff_queue.shared.types.specialist import SpecialistSpec


class ExternalModel(Model, Protocol):
    """A model with a process that asks for each call. Each handoff has its own."""

    added_bytes: int
    """Most bytes that the process adds to a request."""

    def close(self) -> None:
        """End the process. A later call starts it again."""
        ...


class AgentWithExternalModel(Agent):
    """An agent that ends the process of its model after each run."""

    def __init__(
        self,
        handoff: AgentHandoff,
        spec: SpecialistSpec,
        opening: Opening,
        dependencies: RunDependencies,
        model: ExternalModel,
    ) -> None:
        super().__init__(handoff, spec, opening, dependencies)
        self._model = model

    def run(self, checkpoints: CheckpointStore, ends_at: float | None) -> HandoffResult:
        try:
            return super().run(checkpoints, ends_at)
        finally:
            self._model.close()
