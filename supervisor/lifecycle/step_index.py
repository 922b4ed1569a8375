"""What is asked of all steps and handoffs, kept in the state. The type; `supervisor.lifecycle.step_index_update` folds it on."""

from __future__ import annotations

from dataclasses import dataclass, field

from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.supervisor.lifecycle.persistent_map import Layers


@dataclass(frozen=True)
class Overview:
    """Of thousands of steps, most have been handed out, or have a result that nothing more follows from: these are the others."""

    next: tuple[StepId, ...] = ()
    """Those that wait, and whose fan-in may stand: all that they depend on is settled, or they have a join. In the plan's order, as all."""
    in_need: tuple[StepId, ...] = ()
    unusable: tuple[StepId, ...] = ()
    """Settled, with nothing that can be built on."""
    unsettled: int = 0
    """Steps."""
    waits_for: Layers[StepId, int] = field(default_factory=Layers)
    """How many of the steps that it depends on are not settled."""
    written: int = 0
    """Bytes of the results that there are."""
    unwritten: int = 0
    """Steps without a result."""
    apart: tuple[HandoffId, ...] = ()
    """Open handoffs that are in no chord: of roles, and of child jobs. In the order in which they were issued."""

    @property
    def are_settled(self) -> bool:
        """All steps."""
        return self.unsettled == 0
