"""The copies of a step with `for_each` in a list of a command: many copies are one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from handoff_queue.shared.types.ids import find_step_of_copy

MAX_ROWS = 40
"""Most rows of a tree. A tree that is higher than the screen cannot be redrawn in place."""

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class StepCopies(Generic[_Item]):
    """The copies of one step, in order."""

    first: str
    last: str
    all: tuple[_Item, ...]

    @property
    def name(self) -> str:
        return f"{self.first} to {self.last}"


def collapse_steps(
    items: Sequence[_Item], name_of: Callable[[_Item], str]
) -> Iterator[_Item | StepCopies[_Item]]:
    """Yield the items. If there are more than `MAX_ROWS`, the copies of one step are one
    item.

    Args:
        name_of: returns the name of the step that an item belongs to.
    """
    if len(items) <= MAX_ROWS:
        yield from items
        return
    by_step: dict[str, list[_Item]] = {}
    for item in items:
        name = name_of(item)
        by_step.setdefault(find_step_of_copy(name) or name, []).append(item)
    for same_step in by_step.values():
        if len(same_step) > 1 and find_step_of_copy(name_of(same_step[0])):
            copies = sorted(map(name_of, same_step), key=lambda name: (len(name), name))
            yield StepCopies(copies[0], copies[-1], tuple(same_step))
        else:
            yield from same_step


def format_names(all_of_them: Sequence[str]) -> str:
    """Return names as a short text: `a, page_0001 to page_2000`."""
    parts: list[str] = []
    for item in collapse_steps(all_of_them, str):
        if isinstance(item, StepCopies):
            parts.append(item.name)
        else:
            parts.append(item)
    return ", ".join(parts)


def format_outcomes(states: Sequence[str]) -> str:
    """Return the count of each state: `1,999 ok, 1 failed`."""
    return ", ".join(f"{count:,} {state}" for state, count in Counter(states).most_common())
