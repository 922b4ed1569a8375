"""Patches to a running plan, and steps in them that repeat earlier ones.

Both tasks are brought to one form first (`supervisor.text.normalized_task`). Then the new one
is a repeat if it asks for nothing that the
earlier one was not asked for: all of its words are there, whatever their order, and what it
leaves out is one of several things, and narrows nothing that stays
(`supervisor.text.task_similarity`). Names and figures must be the same, in whatever spelling,
and so must words that turn a task round ("without", "a translation"), and what is negated. So
one other word makes it other work, also one that only means the
same: a repeat that is missed costs a step, which the limits hold; a fan-out that is taken for
one would lose its work.
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
"""A task with fewer that say anything repeats only one that has no others."""

MOST_READ = 50
"""Of those that have all words of a task, the shortest: what it asks for again is most of one
of them.
"""


def repeats_in(new: Sequence[Step], earlier: Sequence[Step]) -> tuple[Repeat, ...]:
    """The new steps that ask for what an earlier one of the same specialist was asked for; of
    several, for all of which, or most nearly.
    """
    asked, found = _Asked(), []
    who = {step.specialist for step in new}
    for step in earlier:
        if step.specialist in who:
            asked.add(step, step.specialist)
    for step in new:
        if (repeat := asked.repeat(step, step.specialist)) is not None:
            found.append(repeat)
    return tuple(found)


def twice_in(steps: Sequence[Step]) -> tuple[Repeat, ...]:
    """The steps that ask for what one before them in the same plan asks for, of the same
    specialist and with the same to go by.
    """
    asked, found = _Asked(), []
    for step in steps:
        kind = (step.specialist, frozenset(step.depends_on))
        if (repeat := asked.repeat(step, kind)) is None:
            asked.add(step, kind)
        else:
            found.append(repeat)
    return tuple(found)


class _Asked:
    """Steps by their kind (two of different kinds are never the same work) and their words:
    only those that have all words of another, as far as a glance shows, are read and compared
    with it.
    """

    def __init__(self) -> None:
        self._kinds: dict[Hashable, dict[str, list[Step]]] = {}
        """By each word, and by the empty one all."""
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
            (one for one in rarest if words <= self._roots[one.id]),
            key=lambda one: len(self._roots[one.id]),
        )
        alike = [
            (similarity_to_earlier_task(wording, self._wording(one)), one.id) for one in shortest
        ]
        most, of = max(alike, default=(0.0, StepId("")))
        return Repeat(step=new.id, earlier=of) if most > 0 else None

    def _wording(self, step: Step) -> NormalizedTask:
        if step.task not in self._wordings:
            self._wordings[step.task] = wording_of(step.task)
        return self._wordings[step.task]


def similarity_to_earlier_task(new: NormalizedTask, earlier: NormalizedTask) -> float:
    """0: the new task asks for something else. Or how much of the earlier one it asks for
    again; 1: all.
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
    return len(ours) / len(theirs) if theirs else float(new.text == earlier.text)


def is_other_work(new: NormalizedTask, earlier: NormalizedTask) -> bool:
    """Whether something sets them apart, however much they have in common."""
    if (
        not (new.names <= earlier.spelled and earlier.names <= new.spelled)
        or new.turns != earlier.turns
    ):
        return True
    if new.tenses and earlier.tenses and not new.tenses & earlier.tenses:
        return True
    if any(
        new.relations[one] != earlier.relations[one]
        for one in new.relations.keys() & earlier.relations.keys()
    ):
        return True
    told_apart = (
        (new.order, earlier.order),
        (new.rounds, earlier.rounds),
        (new.ways, earlier.ways),
    )
    return any(one and other and one != other for one, other in told_apart)


REPLANNER = "replanner"
FRUITLESS_ROUNDS = 2
"""Rounds of added steps in a row that brought nothing new, from which it goes in circles. One
may be a search that was worth it.
"""


class PatchHistory(Message):
    """What came in, what the replanner has seen of it, and what it made of that."""

    news: dict[HandoffId, str] = Field(default_factory=dict)
    """Results of steps that no patch speaks of yet, and the chords that they came with; '': none.
    """
    shown: tuple[HandoffId, ...] = ()
    """Those among them that the replanner thinks about."""
    proposal: BlobRef | None = None
    """The replanner's result, before anything is made of it."""
    made: tuple[PlanPatched, ...] = ()
    made_before: NonNegativeInt = 0
    """Of these: before the latest retry."""

    @property
    def made_now(self) -> tuple[PlanPatched, ...]:
        return self.made[self.made_before :]

    @property
    def changes(self) -> int:
        """How often the plan was changed since the submission or the latest retry."""
        return sum(one.plan is not None for one in self.made_now)

    @property
    def loop(self) -> PlanPatched | None:
        """The one that asked for nothing but what was asked for already."""
        return next((one for one in self.made_now if one.repeats and one.plan is None), None)

    @property
    def fruitless(self) -> tuple[StepId, ...]:
        """The steps that it has added in the latest rounds in a row which brought nothing new."""
        known = {step_id for one in self.made_now for step_id in one.nothing_new}
        rounds = [{step.id for step in one.added} for one in self.made_now if one.added]
        latest = list(takewhile(lambda added: added <= known, reversed(rounds)))
        return tuple(sorted(set().union(*latest))) if len(latest) >= FRUITLESS_ROUNDS else ()

    @property
    def is_final(self) -> bool:
        """The replanner is not asked again, because it said so or went in circles."""
        return (
            self.loop is not None
            or bool(self.fruitless)
            or any(one.is_final for one in self.made_now)
        )
