"""Every version of a persistent map behaves like a dict, and reports its changes."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.supervisor.lifecycle.persistent_map import (
    MIN_LAYER,
    PersistentMap,
    to_persistent_map,
)

KEYS = st.integers(0, 2 * MIN_LAYER)
"""Few enough keys that changes and removals meet, but more than a top layer holds."""
CHANGES = st.one_of(st.dictionaries(KEYS, st.integers(), max_size=3), KEYS)
"""Items to add, or a key to remove."""


def versions(
    first: dict[int, int], changes: list[dict[int, int] | int]
) -> list[tuple[PersistentMap[int, int], dict[int, int]]]:
    """Return each version of the map with the dict that it must equal."""
    pairs = [(PersistentMap(first), dict(first))]
    for change in changes:
        now, expected = pairs[-1]
        if isinstance(change, dict):
            pairs.append((now | change, expected | change))
        else:
            pairs.append(
                (
                    now.without(change),
                    {key: value for key, value in expected.items() if key != change},
                )
            )
    return pairs


@given(st.dictionaries(KEYS, st.integers()), st.lists(CHANGES, max_size=60))
def test_every_version_equals_a_dict_and_stays_unchanged(
    first: dict[int, int], changes: list[dict[int, int] | int]
) -> None:
    for version, expected in versions(first, changes):
        assert [*version.items()] == [*expected.items()]
        assert (len(version), bool(version), [*version], [*version.values()]) == (
            len(expected),
            bool(expected),
            [*expected],
            [*expected.values()],
        )
        assert version == expected
        assert all(
            (key in version, version.get(key)) == (key in expected, expected.get(key))
            for key in range(2 * MIN_LAYER + 1)
        )


@given(st.dictionaries(KEYS, st.integers()), st.lists(CHANGES, max_size=40), st.data())
def test_a_version_knows_its_differences_from_another_version(
    first: dict[int, int], changes: list[dict[int, int] | int], data: st.DataObject
) -> None:
    pairs = versions(first, changes)
    first_drawn, second_drawn = (data.draw(st.integers(0, len(pairs) - 1)) for _ in range(2))
    (before, was), (now, expected) = pairs[first_drawn], pairs[second_drawn]

    changed = now.find_changed_keys(before)

    differ = {key for key in was.keys() | expected.keys() if was.get(key) != expected.get(key)}
    assert {*changed} >= differ
    assert len({*changed}) == len(changed)
    assert {*changed} <= was.keys() | expected.keys(), "a key that came and went has not changed"
    if first_drawn <= second_drawn:
        new = [key for key in expected if key not in was]
        assert [key for key in changed if key in new] == new, "new keys come in their order"


def test_a_missing_key_cannot_be_read_or_removed() -> None:
    some = PersistentMap({1: "a"}).without(1)

    with pytest.raises(KeyError):
        some[1]
    assert some.without(1) is some
    assert to_persistent_map(some) is some


def test_a_change_costs_almost_nothing_in_a_large_map() -> None:
    """The cost is the size of the layer that a version does not share."""
    many = PersistentMap(dict.fromkeys(range(10_000)))

    layer_sizes = [sys.getsizeof((many := many | {n: "new"})._layer) for n in range(100)]

    assert sum(layer_sizes) / len(layer_sizes) < sys.getsizeof(dict.fromkeys(range(10_000))) / 50
