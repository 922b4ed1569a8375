"""Whether a step asks for what another was asked for already, in whatever words. Pure.

Both tasks are brought to one form first (`supervisor.text.normalized_task`). Then the new one is a repeat if it asks for nothing that the
earlier one was not asked for: all of its words are there, whatever their order, and what it leaves out is one of several things, and
narrows nothing that stays (`supervisor.text.task_phrases`). Names and figures must be the same, in whatever spelling, and so must words that
turn a task round ("without", "a translation"), and what is negated. So one other word makes it other work, also one that only means the
same: a repeat that is missed costs a step, which the limits hold; a fan-out that is taken for one would lose its work.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import nsmallest

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Step
from handoff_queue.shared.types.plan_patch import Repeat
from handoff_queue.supervisor.text.normalized_task import (
    Wording,
    roots_in,
    stands_in_it,
    wording_of,
)
from handoff_queue.supervisor.text.task_phrases import narrows

LEAST_WORDS = 3
"""A task with fewer that say anything repeats only one that has no others."""

MOST_READ = 50
"""Of those that have all words of a task, the shortest: what it asks for again is most of one of them."""


def repeats_in(new: Sequence[Step], earlier: Sequence[Step]) -> tuple[Repeat, ...]:
    """The new steps that ask for what an earlier one of the same specialist was asked for; of several, for all of which, or most nearly."""
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
    """The steps that ask for what one before them in the same plan asks for, of the same specialist and with the same to go by."""
    asked, found = _Asked(), []
    for step in steps:
        kind = (step.specialist, frozenset(step.depends_on))
        if (repeat := asked.repeat(step, kind)) is None:
            asked.add(step, kind)
        else:
            found.append(repeat)
    return tuple(found)


class _Asked:
    """Steps by their kind (two of different kinds are never the same work) and their words: only those that have all words of another, as
    far as a glance shows, are read and compared with it.
    """

    def __init__(self) -> None:
        self._kinds: dict[Hashable, dict[str, list[Step]]] = {}
        """By each word, and by the empty one all."""
        self._roots: dict[StepId, frozenset[str]] = {}
        self._wordings: dict[str, Wording] = {}

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
        alike = [(asked_before(wording, self._wording(one)), one.id) for one in shortest]
        most, of = max(alike, default=(0.0, StepId("")))
        return Repeat(step=new.id, earlier=of) if most > 0 else None

    def _wording(self, step: Step) -> Wording:
        if step.task not in self._wordings:
            self._wordings[step.task] = wording_of(step.task)
        return self._wordings[step.task]


def asked_before(new: Wording, earlier: Wording) -> float:
    """0: the new task asks for something else. Or how much of the earlier one it asks for again; 1: all."""
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


def is_other_work(new: Wording, earlier: Wording) -> bool:
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
