"""What is to be changed in a plan while it runs: steps that come on top, steps that are changed or dropped before they have begun."""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepIdField
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.plan import Step


class Repeat(Message):
    """Work that was asked for already, in whatever words: it is not run."""

    step: StepIdField
    """What it was to be called."""
    earlier: StepIdField
    """The step that was asked for the same before."""


class Patch(Message):
    """What the replanner wants. All of it empty: the plan stands."""

    add: tuple[Step, ...] = ()
    change: tuple[Step, ...] = ()
    """As they would be."""
    drop: tuple[StepIdField, ...] = ()
    finalize: bool = False
    """Nothing more is begun: the answer is made of what has been."""
    repeats: tuple[Repeat, ...] = ()
    """Left out of `add`, after the replanner was told."""
    why: str = ""
    """For people who look at the plan."""
