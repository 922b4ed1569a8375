"""Who gets a step where several can do it: the plan's specialist, or another of the same capability whose queue is shorter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.lifecycle.observations import Seen
from handoff_queue.supervisor.lifecycle.state import JobState


def assigned(state: JobState, steps: Sequence[StepId], seen: Seen) -> dict[StepId, str]:
    """Those of these steps that somebody else gets. One that was tried before stays with whom it is."""
    given, found = Counter[str](), dict[StepId, str]()

    def busy(name: str) -> float:
        load = seen.loads[name]
        return (load.queued + given[name]) / max(1, load.slots)

    for step_id in steps:
        step = state.steps[step_id]
        own = step.specialist
        if own in seen.loads and step.attempt == 0:
            chosen = min((own, *seen.able(own)), key=busy)  # with equals, the plan's own
            given[chosen] += 1
            if chosen != own:
                found[step_id] = chosen
    return found
