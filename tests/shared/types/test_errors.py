"""The tree of errors in the docstring of `shared/types/errors.py`."""

from __future__ import annotations

import re

from handoff_queue.shared.types import errors
from handoff_queue.shared.types.errors import HandoffError

ENTRY = re.compile(r"^(?P<indent>[│ ]*)[├└]── (?P<name>[A-Z]\w+)", re.MULTILINE)
LEVEL_CHARS = 4
"""Characters by which a level of the tree is indented."""


def parents_in_the_tree() -> dict[str, str]:
    """Return the parent of each error that the tree names."""
    parents: dict[str, str] = {}
    path = ["HandoffError"]
    for entry in ENTRY.finditer(errors.__doc__ or ""):
        level = len(entry["indent"]) // LEVEL_CHARS
        path = [*path[: level + 1], entry["name"]]
        parents[entry["name"]] = path[-2]
    return parents


def test_the_tree_names_each_error_below_its_base_class() -> None:
    parents = parents_in_the_tree()
    wrong: list[str] = []
    for name, kind in vars(errors).items():
        is_defined_here = isinstance(kind, type) and kind.__module__ == errors.__name__
        if not is_defined_here or not issubclass(kind, HandoffError) or kind is HandoffError:
            continue
        bases = [base.__name__ for base in kind.__bases__]
        if parents.get(name) not in bases:
            wrong.append(f"{name} is a {' and a '.join(bases)}")
    assert wrong == []
