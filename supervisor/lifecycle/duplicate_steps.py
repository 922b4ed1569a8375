"""Steps of a plan or of a patch that repeat earlier steps.

A step repeats an earlier step of the same specialist if both tasks have the same word stems in
the same order, apart from articles and politeness. A reworded repeat is not found; the limit
on rounds stops it. `docs/decisions/0023-measured-mechanisms.md` has the figures of stricter and
looser measures.
"""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Repeat
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.text.task_similarity import task_words


def repeats_in(new: Sequence[Step], earlier: Sequence[Step]) -> tuple[Repeat, ...]:
    """Return the new steps that repeat an earlier step of the same specialist, with the first
    such step.
    """
    first: dict[tuple[str, tuple[str, ...]], StepId] = {}
    for step in earlier:
        first.setdefault((step.specialist, task_words(step.task)), step.id)
    repeats: list[Repeat] = []
    for step in new:
        earlier_id = first.get((step.specialist, task_words(step.task)))
        if earlier_id is not None:
            repeats.append(Repeat(step=step.id, earlier=earlier_id))
    return tuple(repeats)


def twice_in(steps: Sequence[Step]) -> tuple[Repeat, ...]:
    """Return the steps that repeat an earlier step of the same plan, with the same specialist
    and inputs.
    """
    first: dict[tuple[str, frozenset[StepId], tuple[str, ...]], StepId] = {}
    repeats: list[Repeat] = []
    for step in steps:
        key = (step.specialist, frozenset(step.depends_on), task_words(step.task))
        earlier_id = first.setdefault(key, step.id)
        if earlier_id != step.id:
            repeats.append(Repeat(step=step.id, earlier=earlier_id))
    return tuple(repeats)
