"""What stands while the gaps of an ended job are filled. The type; `supervisor.lifecycle.retry_reducer` says what follows from it."""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import Message


class Held(Message):
    """Whether it was worth its price is known only when what it builds on has ended."""

    steps: tuple[StepId, ...] = ()
    """Their results stand until a step that they build on has another one."""
    answer: bool = False
    """So does the answer, with its review, until any step has another result."""
    is_known_above: bool = False
    """The parent of this job has that answer."""

    @property
    def is_nothing(self) -> bool:
        return not (self.steps or self.answer or self.is_known_above)


NOTHING_HELD = Held()
