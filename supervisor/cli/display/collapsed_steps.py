"""Copies of a repeated step, told as one: a job of thousands of steps has an account that fits a screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from handoff_queue.supervisor.text.copy_names import source_of

MOST_ROWS = 40
"""A tree that is higher than the screen cannot be drawn in place."""

_One = TypeVar("_One")


@dataclass(frozen=True)
class Copies(Generic[_One]):
    """Those of one step, in their order."""

    first: str
    last: str
    all: tuple[_One, ...]

    @property
    def name(self) -> str:
        return f"{self.first} to {self.last}"


def folded(things: Sequence[_One], name_of: Callable[[_One], str]) -> Iterator[_One | Copies[_One]]:
    """Each thing; where there are more than fit a screen, all that belong to copies of one step as one, in the place of its first."""
    if len(things) <= MOST_ROWS:
        yield from things
        return
    alike: dict[str, list[_One]] = {}
    for thing in things:
        name = name_of(thing)
        alike.setdefault(source_of(name) or name, []).append(thing)
    for some in alike.values():
        if len(some) > 1 and source_of(name_of(some[0])):
            found = sorted(map(name_of, some), key=lambda name: (len(name), name))
            yield Copies(found[0], found[-1], tuple(some))
        else:
            yield from some


def names(all_of_them: Sequence[str]) -> str:
    """`a, page_0001 to page_2000`."""
    return ", ".join(one if isinstance(one, str) else one.name for one in folded(all_of_them, str))


def outcomes(states: Sequence[str]) -> str:
    """`1,999 ok, 1 failed`."""
    return ", ".join(f"{count:,} {state}" for state, count in Counter(states).most_common())
