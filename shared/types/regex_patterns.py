"""Patterns of JSON Schemas and gates. RE2 runs them in time linear in the text. Python's `re`
may need exponential time for a hostile pattern or text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from handoff_queue.shared.types.errors import HandoffError

_VALUES = ("const", "enum", "default", "examples")
"""Keywords whose content is not a schema. A property with such a name is skipped, too; a fault
in its schema shows when a value is checked.
"""
_MAX_SHOWN_CHARS = 80


class UnusablePattern(HandoffError, ValueError):
    """RE2 does not accept a pattern. The message has the pattern and how to fix it."""


def matches(pattern: str, text: str) -> bool:
    """Return whether the pattern matches at any position of the text.

    Raises:
        UnusablePattern: the pattern is not a regular expression, or needs lookahead, lookbehind or
            back-references, which RE2 does not have.
    """
    return _compile_pattern(pattern).search(text) is not None


def match_cost(pattern: str, text: str) -> int:
    """Return the characters of the text times the instructions of the compiled pattern. The
    longest time that RE2 can need is proportional to this figure.

    Raises:
        UnusablePattern: see `matches`.
    """
    return len(text) * int(_compile_pattern(pattern).programsize)


def first_of(pattern: str, text: str) -> str | None:
    """Return the first match of the pattern, or None.

    Raises:
        UnusablePattern: see `matches`.
    """
    match = _compile_pattern(pattern).search(text)
    if match is None:
        return None
    return str(match.group())


def check_patterns(schema: Any) -> None:
    """Check all patterns of a JSON Schema.

    Raises:
        UnusablePattern: see `matches`.
    """
    for part in _objects_in(schema, but_below=_VALUES):
        patterns = [part.get("pattern")]
        several = part.get("patternProperties")
        if isinstance(several, Mapping):
            patterns += several
        for pattern in patterns:
            if isinstance(pattern, str):
                _compile_pattern(pattern)


def _objects_in(schema: Any, but_below: tuple[str, ...] = ()) -> Iterator[Mapping[str, Any]]:
    """Yield all objects of a schema, except those below the keywords `but_below`."""
    if isinstance(schema, Mapping):
        yield schema
        for key, value in schema.items():
            if key not in but_below:
                yield from _objects_in(value, but_below)
    elif isinstance(schema, list):
        for item in schema:
            yield from _objects_in(item, but_below)


@lru_cache(maxsize=256)
def _compile_pattern(pattern: str) -> Any:
    """Return the compiled pattern, from a cache.

    Raises:
        UnusablePattern: see `matches`.
    """
    # imported here: the message types check patterns, but a reader of jobs has no pattern to check
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        if len(pattern) <= _MAX_SHOWN_CHARS:
            excerpt = pattern
        else:
            excerpt = f"{pattern[:_MAX_SHOWN_CHARS]}..."
        raise UnusablePattern(
            f"the pattern {excerpt!r} is not one of RE2's ({_reason(error)}); write it plainer"
        ) from error


def _reason(error: Exception) -> str:
    """Return RE2's reason as a text that says how to fix the pattern."""
    if error.args and isinstance(error.args[0], bytes):
        message = str(error.args[0], "utf-8", "replace")
    else:
        message = str(error)
    if message.startswith(("invalid repetition size", "pattern too large")):
        return "it repeats more than 1,000 times, repetitions in one another multiplied"
    if message.startswith(("invalid perl operator", "invalid escape sequence")):
        return "no looking ahead or back, no back-references"
    return message[:_MAX_SHOWN_CHARS]
