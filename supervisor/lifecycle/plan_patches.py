"""Patches to a running plan, and their steps that repeat earlier steps.

Both tasks are normalized first (`supervisor.text.normalized_task`). The new task is a repeat if it
asks for nothing new. The earlier task has all its words in any order, and the words that it leaves
out narrow nothing that stays (`supervisor.text.task_similarity`). Names and figures must be equal
in any spelling. Words that change a task ("without", "a translation") and negations must be equal,
too.

So one other word makes it other work, even a synonym. A missed repeat costs a step, which the
limits bound. A fan-out that is mistaken for a repeat would lose its work.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import nsmallest
from itertools import takewhile

from pydantic import Field, NonNegativeInt

from handoff_queue.shared.types.events import PlanPatched
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.plan import Repeat, Step
from handoff_queue.supervisor.text.normalized_task import (
    NormalizedTask,
    roots_in,
    stands_in_it,
    wording_of,
)
from handoff_queue.supervisor.text.task_similarity import narrows

LEAST_WORDS = 3
"""A task with fewer significant words repeats only a task with the same words."""

MOST_READ = 50
"""Compared earlier tasks: the shortest tasks that have all words of the new task. A repeat asks for
most of one such task.
"""


def repeats_in(new: Sequence[Step], earlier: Sequence[Step]) -> tuple[Repeat, ...]:
    """Return the new steps that repeat an earlier step of the same specialist, with the closest
    earlier steps.
    """
    asked, repeats = _Asked(), []
    who = {step.specialist for step in new}
    for step in earlier:
        if step.specialist in who:
            asked.add(step, step.specialist)
    for step in new:
        if (repeat := asked.repeat(step, step.specialist)) is not None:
            repeats.append(repeat)
    return tuple(repeats)


def twice_in(steps: Sequence[Step]) -> tuple[Repeat, ...]:
    """Return the steps that repeat an earlier step of the same plan, with the same specialist and
    inputs.
    """
    asked, repeats = _Asked(), []
    for step in steps:
        kind = (step.specialist, frozenset(step.depends_on))
        if (repeat := asked.repeat(step, kind)) is None:
            asked.add(step, kind)
        else:
            repeats.append(repeat)
    return tuple(repeats)


class _Asked:
    """Index of steps by kind and words. Steps of different kinds are never the same work. Only
    steps with all words of a new step are compared with it.
    """

    def __init__(self) -> None:
        self._kinds: dict[Hashable, dict[str, list[Step]]] = {}
        """Steps by each word; the empty word has all steps."""
        self._roots: dict[StepId, frozenset[str]] = {}
        self._wordings: dict[str, NormalizedTask] = {}

    def add(self, step: Step, kind: Hashable) -> None:
        by_word = self._kinds.setdefault(kind, {})
        self._roots[step.id] = roots_in(step.task)
        for root in ("", *self._roots[step.id]):
            by_word.setdefault(root, []).append(step)

    def repeat(self, new: Step, kind: Hashable) -> Repeat | None:
        if (by_word := self._kinds.get(kind)) is None:
            return None
        wording = self._wording(new)
        words = frozenset(filter(stands_in_it, wording.words))
        rarest = min((by_word.get(root, []) for root in ("", *words)), key=len)
        shortest = nsmallest(
            MOST_READ,
            (candidate for candidate in rarest if words <= self._roots[candidate.id]),
            key=lambda candidate: len(self._roots[candidate.id]),
        )
        alike = [
            (similarity_to_earlier_task(wording, self._wording(candidate)), candidate.id)
            for candidate in shortest
        ]
        most, of = max(alike, default=(0.0, StepId("")))
        if most > 0:
            return Repeat(step=new.id, earlier=of)
        return None

    def _wording(self, step: Step) -> NormalizedTask:
        if step.task not in self._wordings:
            self._wordings[step.task] = wording_of(step.task)
        return self._wordings[step.task]


def similarity_to_earlier_task(new: NormalizedTask, earlier: NormalizedTask) -> float:
    """Return 0 if the new task asks for something else, or else the part of the earlier task that
    it repeats, up to 1.
    """
    ours, theirs = {*new.words}, {*earlier.words}
    if (
        not ours <= theirs
        or (len(ours) < LEAST_WORDS and ours != theirs)
        or is_other_work(new, earlier)
    ):
        return 0.0
    if not narrows(ours, earlier.parts):
        return 0.0
    if theirs:
        return len(ours) / len(theirs)
    return float(new.text == earlier.text)


def is_other_work(new: NormalizedTask, earlier: NormalizedTask) -> bool:
    """Return whether a decisive word makes the tasks different work."""
    if (
        not (new.names <= earlier.spelled and earlier.names <= new.spelled)
        or new.turns != earlier.turns
    ):
        return True
    if new.tenses and earlier.tenses and not new.tenses & earlier.tenses:
        return True
    if any(
        new.relations[word] != earlier.relations[word]
        for word in new.relations.keys() & earlier.relations.keys()
    ):
        return True
    told_apart = (
        (new.order, earlier.order),
        (new.rounds, earlier.rounds),
        (new.ways, earlier.ways),
    )
    return any(word and other and word != other for word, other in told_apart)


REPLANNER = "replanner"
FRUITLESS_ROUNDS = 2
"""Rounds of added steps in a row that brought nothing new, from which it goes in circles. One
may be a search that was worth it.
"""


class PatchHistory(Message):
    """Results that arrived, results that the replanner saw, and its patches."""

    news: dict[HandoffId, str] = Field(default_factory=dict)
    """Results of steps that no patch speaks of yet, and the chords that they came with; '': none.
    """
    shown: tuple[HandoffId, ...] = ()
    """Handoffs that the replanner is thinking about."""
    proposal: BlobRef | None = None
    """The replanner's result before it is applied."""
    made: tuple[PlanPatched, ...] = ()
    made_before: NonNegativeInt = 0
    """Number of patches before the latest retry."""

    @property
    def made_now(self) -> tuple[PlanPatched, ...]:
        return self.made[self.made_before :]

    @property
    def changes(self) -> int:
        """Return the number of changes of the plan since the submission or the latest retry."""
        total = 0
        for patch in self.made_now:
            total += patch.plan is not None
        return total

    @property
    def loop(self) -> PlanPatched | None:
        """Return the patch that only repeated earlier requests, or None."""
        for patch in self.made_now:
            if patch.repeats and patch.plan is None:
                return patch
        return None

    @property
    def fruitless(self) -> tuple[StepId, ...]:
        """The steps that it has added in the latest rounds in a row which brought nothing new."""
        known = {step_id for patch in self.made_now for step_id in patch.nothing_new}
        rounds = [{step.id for step in patch.added} for patch in self.made_now if patch.added]
        latest = list(takewhile(lambda added: added <= known, reversed(rounds)))
        if len(latest) >= FRUITLESS_ROUNDS:
            return tuple(sorted(set().union(*latest)))
        return ()

    @property
    def is_final(self) -> bool:
        """The replanner is not asked again, because it said so or went in circles."""
        return (
            self.loop is not None
            or bool(self.fruitless)
            or any(patch.is_final for patch in self.made_now)
        )
