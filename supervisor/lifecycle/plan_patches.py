"""Patches to a running plan, and their steps that repeat earlier steps.

Both tasks are normalized first (`supervisor.text.normalized_task`). A new task is a repeat if it asks
for nothing new: the earlier task has all its words in any order, and the words that the new task
leaves out narrow none of its words (`supervisor.text.task_similarity`). Names and figures must be
equal in any spelling. Words that change a task ("without", "a translation") and negations must be
equal, too.

So one different word makes it different work, even a synonym. A missed repeat costs a step, and the
limits bound the number of steps. A fan-out that is mistaken for a repeat would lose its work.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import nsmallest

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
"""Most earlier tasks that a new task is compared with: the shortest tasks that have all its words. A
repeat asks for most of one such task.
"""


def repeats_in(new: Sequence[Step], earlier: Sequence[Step]) -> tuple[Repeat, ...]:
    """Return the new steps that repeat an earlier step of the same specialist, with the closest
    earlier steps.
    """
    index, repeats = _TaskIndex(), list[Repeat]()
    specialists = {step.specialist for step in new}
    for step in earlier:
        if step.specialist in specialists:
            index.add(step, step.specialist)
    for step in new:
        if (repeat := index.find_repeat(step, step.specialist)) is not None:
            repeats.append(repeat)
    return tuple(repeats)


def twice_in(steps: Sequence[Step]) -> tuple[Repeat, ...]:
    """Return the steps that repeat an earlier step of the same plan, with the same specialist and
    inputs.
    """
    index, repeats = _TaskIndex(), list[Repeat]()
    for step in steps:
        kind = (step.specialist, frozenset(step.depends_on))
        if (repeat := index.find_repeat(step, kind)) is None:
            index.add(step, kind)
        else:
            repeats.append(repeat)
    return tuple(repeats)


class _TaskIndex:
    """Index of steps by kind and words of their tasks. Steps of different kinds never repeat each
    other. Only steps with all words of a new step are compared with it.
    """

    def __init__(self) -> None:
        self._kinds: dict[Hashable, dict[str, list[Step]]] = {}
        """Steps of each kind, by each word; the empty word has all steps of the kind."""
        self._roots: dict[StepId, frozenset[str]] = {}
        """Words of each step's task, as roots."""
        self._wordings: dict[str, NormalizedTask] = {}

    def add(self, step: Step, kind: Hashable) -> None:
        by_word = self._kinds.setdefault(kind, {})
        self._roots[step.id] = roots_in(step.task)
        for root in ("", *self._roots[step.id]):
            by_word.setdefault(root, []).append(step)

    def find_repeat(self, new: Step, kind: Hashable) -> Repeat | None:
        """Return the closest earlier step of the same kind that the new step repeats, or None."""
        if (by_word := self._kinds.get(kind)) is None:
            return None
        wording = self._wording(new)
        words = frozenset(filter(stands_in_it, wording.words))
        with_rarest_word = by_word[""]
        for word in words:
            with_rarest_word = min(with_rarest_word, by_word.get(word, []), key=len)
        candidates = [step for step in with_rarest_word if words <= self._roots[step.id]]
        closest = (0.0, StepId(""))
        for candidate in nsmallest(MOST_READ, candidates, key=self._length):
            similarity = similarity_to_earlier_task(wording, self._wording(candidate))
            closest = max(closest, (similarity, candidate.id))
        similarity, earlier = closest
        if similarity > 0:
            return Repeat(step=new.id, earlier=earlier)
        return None

    def _length(self, step: Step) -> int:
        return len(self._roots[step.id])

    def _wording(self, step: Step) -> NormalizedTask:
        if step.task not in self._wordings:
            self._wordings[step.task] = wording_of(step.task)
        return self._wordings[step.task]


def similarity_to_earlier_task(new: NormalizedTask, earlier: NormalizedTask) -> float:
    """Return the part of the earlier task that the new task repeats, from 0 to 1. 0: the new task asks
    for something else.
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
    for word in new.relations.keys() & earlier.relations.keys():
        if new.relations[word] != earlier.relations[word]:
            return True
    return (
        _differ(new.order, earlier.order)
        or _differ(new.rounds, earlier.rounds)
        or _differ(new.ways, earlier.ways)
    )


def _differ(new: object, earlier: object) -> bool:
    """Return whether both tasks state a value, and not the same one."""
    return bool(new and earlier and new != earlier)


REPLANNER = "replanner"
FRUITLESS_ROUNDS = 2
"""Rounds of added steps in a row without anything new after which replanning ends. One such round may
be a search that was worth trying.
"""


class PatchHistory(Message):
    """Results that arrived, results that the replanner saw, and its patches."""

    news: dict[HandoffId, str] = Field(default_factory=dict)
    """Handoffs with results that no patch was based on yet, and their chords; '': no chord."""
    shown: tuple[HandoffId, ...] = ()
    """Handoffs whose results the replanner reads now."""
    proposal: BlobRef | None = None
    """The replanner's result, before its patch is applied."""
    made: tuple[PlanPatched, ...] = ()
    made_before: NonNegativeInt = 0
    """Number of patches before the latest retry."""

    @property
    def made_now(self) -> tuple[PlanPatched, ...]:
        """Return the patches since the submission or the latest retry."""
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
        """Return the steps of the latest rounds in a row that brought nothing new; empty below
        FRUITLESS_ROUNDS rounds.
        """
        nothing_new: set[StepId] = set()
        for patch in self.made_now:
            nothing_new.update(patch.nothing_new)
        fruitless: set[StepId] = set()
        rounds = 0
        for patch in reversed(self.made_now):
            added = {step.id for step in patch.added}
            if not added <= nothing_new:
                break
            fruitless |= added
            rounds += bool(added)
        if rounds >= FRUITLESS_ROUNDS:
            return tuple(sorted(fruitless))
        return ()

    @property
    def is_final(self) -> bool:
        """Return whether the replanner is not asked again, because it said so or went in circles."""
        is_finished = any(patch.is_final for patch in self.made_now)
        return is_finished or self.loop is not None or bool(self.fruitless)
