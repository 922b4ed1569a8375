"""What the planner says to steps that need something: the answer, or that it cannot be had."""

from __future__ import annotations

from shared.wire.ids import StepIdField
from shared.wire.message import Message


class Resolution(Message):
    """One step's. `answer` None: it is given up."""

    step: StepIdField
    answer: str | None = None


class Resolutions(Message):
    """One for each step that asked, in the order in which they were named."""

    resolutions: tuple[Resolution, ...]
