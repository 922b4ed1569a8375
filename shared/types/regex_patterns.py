"""Patterns of JSON Schemas and gates. RE2 runs them in time linear in the text. Python's `re`
may need exponential time for a hostile pattern or text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from handoff_queue.shared.types.errors import HandoffError

MAX_PATTERNS = 100
"""Most different patterns of a schema, and most entries of a gate."""
MAX_INSTRUCTIONS = 1_000_000
"""Most instructions of the compiled patterns of a schema or a gate together. RE2 needs about 0.4 s
for so many on a laptop. `\\pL{1,50}` has 60,000, and an ordinary pattern less than 1,000.
"""
_VALUES = ("const", "enum", "default", "examples")
"""Keywords whose content is not a schema."""
_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose content is a mapping of a name to a schema. The name is not a keyword."""
_MAX_SHOWN_CHARS = 80
"""Most characters of a pattern in an error."""


class UnusablePattern(HandoffError, ValueError):
    """RE2 does not accept a pattern, or there are too many patterns. The message has the value and
    how to fix it.
    """


def matches(pattern: str, text: str) -> bool:
    """Return whether the pattern matches at any position of the text.

    Raises:
        UnusablePattern: the pattern is not a regular expression, or needs lookahead, lookbehind or
            back-references, which RE2 does not have.
    """
    return _compile_pattern(pattern).search(text) is not None


def estimate_match_cost(pattern: str, text: str) -> int:
    """Return the characters of the text times the instructions of the compiled pattern. The
    longest time that RE2 can need is proportional to this figure.

    Raises:
        UnusablePattern: see `matches`.
    """
    return len(text) * int(_compile_pattern(pattern).programsize)


def find_first(pattern: str, text: str) -> str | None:
    """Return the first match of the pattern, or None.

    Raises:
        UnusablePattern: see `matches`.
    """
    match = _compile_pattern(pattern).search(text)
    if match is None:
        return None
    return str(match.group())


def check_patterns(patterns: Collection[str]) -> None:
    """Check the patterns of a schema or a gate.

    Raises:
        UnusablePattern: see `matches`; or the patterns are more than `MAX_PATTERNS`, or larger
            than `MAX_INSTRUCTIONS`.
    """
    different = dict.fromkeys(patterns)
    if len(different) > MAX_PATTERNS:
        raise UnusablePattern(
            f"{len(different):,} different patterns are too many; use at most {MAX_PATTERNS}"
        )
    instructions = 0
    for pattern in different:
        instructions += int(_compile_pattern(pattern).programsize)
        if instructions > MAX_INSTRUCTIONS:
            raise UnusablePattern(
                f"the pattern {_shorten(pattern)!r} and the patterns before it are too large"
                " together; use fewer patterns, or fewer repetitions of large character classes"
            )


def check_schema_patterns(schema: Any) -> None:
    """Check all patterns of a JSON Schema.

    Raises:
        UnusablePattern: see `check_patterns`.
    """
    patterns: list[str] = []
    for part in _iterate_schemas(schema):
        pattern = part.get("pattern")
        if isinstance(pattern, str):
            patterns.append(pattern)
        several = part.get("patternProperties")
        if isinstance(several, Mapping):
            patterns += several
    check_patterns(patterns)


def _iterate_schemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas in it."""
    if isinstance(schema, Mapping):
        yield schema
        for key, value in schema.items():
            if key in _SCHEMAS_BY_NAME and isinstance(value, Mapping):
                yield from _iterate_schemas(list(value.values()))
            elif key not in _VALUES:
                yield from _iterate_schemas(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _iterate_schemas(item)


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
        raise UnusablePattern(
            f"the pattern {_shorten(pattern)!r} is not a regular expression of RE2:"
            f" {_explain_error(error)}; correct it"
        ) from error


def _shorten(pattern: str) -> str:
    if len(pattern) <= _MAX_SHOWN_CHARS:
        return pattern
    return f"{pattern[:_MAX_SHOWN_CHARS]}..."


def _explain_error(error: Exception) -> str:
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
