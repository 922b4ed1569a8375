"""The steps that there may be something to decide about: looked for once in a state, however often `decide` asks. Of thousands of steps,
most have been handed out, or have a result that nothing more follows from.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from shared.wire.ids import StepId
from supervisor.lifecycle.state import JobState, StepStatus

MOST_KEPT = 32
"""States whose overview a process remembers: as many as it decides on at once."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Each in the order of the plan."""

    next: tuple[StepId, ...]
    """Those that wait, and whose fan-in may stand: all that they depend on is settled, or they have a join."""
    in_need: tuple[StepId, ...]
    unusable: tuple[StepId, ...]
    """Settled, with nothing that can be built on."""
    are_settled: bool
    """All steps."""


_lock = threading.Lock()
_known: OrderedDict[int, tuple[JobState, Overview]] = OrderedDict()
"""By the identity of a state, which is kept with it, so that no other object gets that identity."""


def overview_of(state: JobState) -> Overview:
    with _lock:
        if (known := _known.get(id(state))) is not None:
            _known.move_to_end(id(state))
            return known[1]
    overview = _overview(state)
    with _lock:
        _known[id(state)] = (state, overview)
        while len(_known) > MOST_KEPT:
            _known.popitem(last=False)
    return overview


def _overview(state: JobState) -> Overview:
    steps = state.steps
    waiting, in_need, unusable, settled = list[StepId](), list[StepId](), list[StepId](), 0
    for step_id, step in steps.items():
        match step.status:
            case StepStatus.SETTLED:
                settled += 1
                if not step.usable:
                    unusable.append(step_id)
            case StepStatus.WAITING if step.outline.join or all(steps[one].status is StepStatus.SETTLED for one in step.outline.depends_on):
                waiting.append(step_id)
            case StepStatus.IN_NEED:
                in_need.append(step_id)
            case _:
                continue
    return Overview(tuple(waiting), tuple(in_need), tuple(unusable), settled == len(steps))
