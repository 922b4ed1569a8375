"""Characters of the names of steps, specialists and schedules."""

from __future__ import annotations

NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,47}$"
NAME_RULE = (
    "lower-case letters, digits, `-` and `_`, and begin with a letter (at most 48 characters)"
)
"""The pattern in words, after `must be`."""
