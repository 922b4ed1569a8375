"""The folder of the built-in specialists. The code of the workers is not imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from handoff_queue.shared.types.errors import UserError


def built_in_specialists() -> Path:
    """Return the folder of the built-in specialists.

    Raises:
        UserError: the package of the workers is not installed.
    """
    spec = find_spec("handoff_queue.workers")  # finds the package and does not run it
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            "the package `handoff_queue.workers` is not installed here: install all of handoff-queue"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "specialists"
