"""JSON Schema validation that limits its own work, because no other thread can stop it.

The work is counted in steps. Each keyword, subschema and error takes one step or more. The
limit on processor time is for a single expensive step and for a slow machine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from typing import Any

import jsonschema

from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.patterns import match_cost, matches

MOST_STEPS = 200_000
"""Steps of one validation. 10,000 objects with five checked properties need about 150,000."""
MOST_CPU_S = 4.0
"""Processor seconds of one validation. 200,000 cheap steps take about 1 s on a laptop."""
MOST_MESSAGE_CHARS = 300
"""Longest message of an error. jsonschema writes the whole value into each message."""
_END_CHARS = 100
"""Characters that a cut message keeps of its end, which names the problem."""
_TEXT_UNITS_PER_STEP = 2_000
"""Cost of a pattern match (`match_cost`) that counts as one step. RE2 needs at most about 8 µs."""

_Errors = Iterator[jsonschema.ValidationError]
_Keyword = Callable[[Any, Any, Any, Any], Any]
_base: Mapping[str, _Keyword] = jsonschema.Draft202012Validator.VALIDATORS


class ValidationTooCostly(HandoffError):
    """A validation took more steps or more processor time than it may."""


class UnsupportedKeyword(HandoffError):
    """The schema has a keyword of `UNSUPPORTED`, whose work cannot be counted."""


class _Budget:
    """The remaining steps and processor time of one validation."""

    def __init__(self, steps: int, cpu_s: float) -> None:
        self._steps = steps
        self._deadline = time.thread_time() + cpu_s

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0 or time.thread_time() > self._deadline:
            raise ValidationTooCostly("too costly to check")


_budget: ContextVar[_Budget | None] = ContextVar("budget of the validation", default=None)


@contextmanager
def limit_validation(steps: int = MOST_STEPS, cpu_s: float = MOST_CPU_S) -> Iterator[None]:
    """Limit the work of all validations in the block together. Beyond the limit they raise
    `ValidationTooCostly`.
    """
    token = _budget.set(_Budget(steps, cpu_s))
    try:
        yield
    finally:
        _budget.reset(token)


def spend(steps: int = 1) -> None:
    """Take steps from the limit of the current `limit_validation` block, if there is one.

    Raises:
        ValidationTooCostly: the block has used up its steps or its processor time.
    """
    budget = _budget.get()
    if budget is not None:
        budget.spend(steps)


def shorten_message(message: str) -> str:
    """Return the message. If it has more than `MOST_MESSAGE_CHARS`, its middle is left out."""
    if len(message) <= MOST_MESSAGE_CHARS:
        return message
    gap = " ... "
    begin = message[: MOST_MESSAGE_CHARS - _END_CHARS - len(gap)]
    return begin + gap + message[-_END_CHARS:]


def _counted(keyword: _Keyword) -> _Keyword:
    """Return the keyword's check, which now also counts its steps and shortens its messages."""

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
        spend()
        for error in keyword(validator, value, instance, schema) or ():
            spend()
            error.message = shorten_message(error.message)
            error.args = (error.message,)
            yield error

    return check


def _evolve(validator: Any, **changes: Any) -> Any:
    """Return the validator of a subschema.

    jsonschema's own method changes to another class where the subschema has a `$schema`. That
    class counts nothing and matches patterns with Python's `re`.
    """
    spend()
    resolver = changes.get("_resolver", validator._resolver)
    return BoundedValidator(changes["schema"], _resolver=resolver)


def _matches(pattern: str, text: str) -> bool:
    spend(1 + match_cost(pattern, text) // _TEXT_UNITS_PER_STEP)
    return matches(pattern, text)


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> _Errors:
    if validator.is_type(instance, "string") and not _matches(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any
) -> _Errors:
    if not validator.is_type(instance, "object"):
        return
    for key, value in instance.items():
        for pattern, subschema in patterns.items():
            if _matches(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]
) -> _Errors:
    """Run jsonschema's own check. Properties that match a pattern count as known properties."""
    known = dict(schema.get("properties", {}))
    if validator.is_type(instance, "object"):
        for name in instance:
            if _matches_any(schema.get("patternProperties", ()), name):
                known[name] = True
    yield from _base["additionalProperties"](validator, allowed, instance, {"properties": known})


def _matches_any(patterns: Iterable[str], text: str) -> bool:
    return any(_matches(pattern, text) for pattern in patterns)


def _unique_items(validator: Any, is_wanted: bool, instance: Any, _schema: Any) -> _Errors:
    """Compare the items by their JSON text. jsonschema would compare every pair of items."""
    if not is_wanted or not validator.is_type(instance, "array"):
        return
    seen = set[str]()
    for item in instance:
        text = json.dumps(_with_integers(item), sort_keys=True)
        if text in seen:
            yield jsonschema.ValidationError(f"{instance!r} has non-unique elements")
            return
        seen.add(text)


def _with_integers(value: Any) -> Any:
    """Return the value with 1 in place of 1.0, because JSON Schema takes both as equal."""
    spend()
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _multiple_of(validator: Any, divisor: Any, instance: Any, schema: Any) -> _Errors:
    try:
        yield from _base["multipleOf"](validator, divisor, instance, schema)
    except OverflowError:  # an integer that no float can hold
        if (Fraction(instance) / Fraction(divisor)).denominator != 1:
            yield jsonschema.ValidationError(f"{instance!r} is not a multiple of {divisor}")


def _refused(name: str) -> _Keyword:
    def check(_validator: Any, _value: Any, _instance: Any, _schema: Any) -> _Errors:
        raise UnsupportedKeyword(name)

    return check


UNSUPPORTED = {
    "unevaluatedProperties": "additionalProperties",
    "unevaluatedItems": "items",
}
"""Unsupported keywords, each with the keyword to use instead.

For these, jsonschema searches all branches for the evaluated parts again. It has no hook that
could count this work.
"""

_KEYWORDS: dict[str, _Keyword] = {
    **_base,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "multipleOf": _multiple_of,
    **{name: _refused(name) for name in UNSUPPORTED},
}

BoundedValidator: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {name: _counted(keyword) for name, keyword in _KEYWORDS.items()},
)
BoundedValidator.evolve = _evolve
