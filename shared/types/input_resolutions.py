"""What the planner says to steps that need something: the answer, who finds it out, or that it cannot be had."""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepIdField
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.plan import Step


class Resolution(Message):
    """One step's. Neither `answer` nor `by`: it is given up."""

    step: StepIdField
    answer: str | None = None
    by: Step | None = None
    """A new step that finds it out; it may be the same for several."""


class Resolutions(Message):
    """One for each step that asked, in the order in which they were named."""

    resolutions: tuple[Resolution, ...]
