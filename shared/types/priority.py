"""Whose work goes first."""

from __future__ import annotations

from enum import StrEnum


class Priority(StrEnum):
    """The class of a job's messages, in every queue: none of a class is taken while one of a class above it waits."""

    INTERACTIVE = "interactive"
    """Somebody waits for the answer."""
    BATCH = "batch"
    """Nobody does; it is done with what the others leave."""
