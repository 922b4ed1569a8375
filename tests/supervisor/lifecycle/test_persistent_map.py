"""A persistent map: every version behaves like a dict, and reports its differences from another
version.
"""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.supervisor.lifecycle.persistent_map import (
    LEAST_LAYER,
    PersistentMap,
    to_persistent_map,
)

KEYS = st.integers(0, 2 * LEAST_LAYER)
"""So few that they are changed, taken away and come back; more than lie on top of a ground."""
CHANGES = st.one_of(st.dictionaries(KEYS, st.integers(), max_size=3), KEYS)
"""Items that are put, or a key that is taken away."""


def versions(
    first: dict[int, int], changes: list[dict[int, int] | int]
) -> list[tuple[PersistentMap[int, int], dict[int, int]]]:
    """Each one, and the dict that it should be."""
    found = [(PersistentMap(first), dict(first))]
    for change in changes:
        now, like = found[-1]
        if isinstance(change, dict):
            found.append((now | change, like | change))
        else:
            found.append(
                (now.without(change), {key: value for key, value in like.items() if key != change})
            )
    return found


@given(st.dictionaries(KEYS, st.integers()), st.lists(CHANGES, max_size=60))
def test_every_version_equals_a_dict_and_stays_unchanged(
    first: dict[int, int], changes: list[dict[int, int] | int]
) -> None:
    for made, like in versions(first, changes):
        assert [*made.items()] == [*like.items()]
        assert (len(made), bool(made), [*made], [*made.values()]) == (
            len(like),
            bool(like),
            [*like],
            [*like.values()],
        )
        assert made == like
        assert all(
            (key in made, made.get(key)) == (key in like, like.get(key))
            for key in range(2 * LEAST_LAYER + 1)
        )


@given(st.dictionaries(KEYS, st.integers()), st.lists(CHANGES, max_size=40), st.data())
def test_a_version_knows_its_differences_from_another_version(
    first: dict[int, int], changes: list[dict[int, int] | int], data: st.DataObject
) -> None:
    found = versions(first, changes)
    first_drawn, second_drawn = (data.draw(st.integers(0, len(found) - 1)) for _ in range(2))
    (before, was), (now, like) = found[first_drawn], found[second_drawn]

    changed = now.changed_since(before)

    differ = {key for key in was.keys() | like.keys() if was.get(key) != like.get(key)}
    assert {*changed} >= differ
    assert len({*changed}) == len(changed)
    assert {*changed} <= was.keys() | like.keys(), "a key that came and went has not changed"
    if first_drawn <= second_drawn:
        new = [key for key in like if key not in was]
        assert [key for key in changed if key in new] == new, "new keys come in their order"


def test_a_missing_key_cannot_be_read_or_removed() -> None:
    some = PersistentMap({1: "a"}).without(1)

    with pytest.raises(KeyError):
        some[1]
    assert some.without(1) is some
    assert to_persistent_map(some) is some


def test_a_change_costs_almost_nothing_in_a_large_map() -> None:
    """Counted in bytes that a version does not share."""
    many = PersistentMap(dict.fromkeys(range(10_000)))

    own = [sys.getsizeof((many := many | {n: "new"})._layer) for n in range(100)]

    assert sum(own) / len(own) < sys.getsizeof(dict.fromkeys(range(10_000))) / 50
