"""Checks of the arguments that a program passes to the Python client."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import wraps
from typing import Any, TypeVar

from pydantic import BaseModel

from handoff_queue.shared.text.unicode_text import has_lone_surrogate
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.limits import MAX_SECONDS
from handoff_queue.shared.types.message import describe_value, get_public_name

Class = TypeVar("Class", bound=type)
MAX_NUMBER = 2**53
"""The largest whole number of an argument: Redis's Lua holds larger ones only as fractions."""
MAX_TENANT_CHARS = 100
"""Most characters of a tenant's name. The name is part of a key, and a column of lists."""
_OWN_CHECKS = ("Actor", "AccessLevel", "JsonValue", "NewLimits", "Request", "ScheduleOptions")
"""Types that the methods check, because the advice depends on the argument."""


def check_arguments(cls: Class) -> Class:
    """Make each public method of a class check its arguments against their annotations.

    An annotation is a text, because the modules of many types are imported later. A wrong
    argument raises UserError.
    """
    for name, value in list(vars(cls).items()):
        if inspect.isfunction(value) and not name.startswith("_"):
            setattr(cls, name, _with_checks(value))
    return cls


def _with_checks(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @wraps(method)
    def call_with_checks(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name != "self":
                _check_argument(name, value, signature.parameters[name].annotation)
        return method(*args, **kwargs)

    return call_with_checks


def _check_argument(name: str, value: object, annotation: str) -> None:
    """Raise UserError if an argument does not have the type of its annotation."""
    parts = annotation.split(" | ")
    if value is None and "None" in parts:
        return
    kind, _, inner = parts[0].rstrip("]").partition("[")
    if kind in _CHECKS:
        _CHECKS[kind](name, value)
        if name == "tenant":
            check_tenant(str(value))
    elif kind in ("Sequence", "Iterable"):
        _check_list(name, value, kind, inner)
    elif kind not in {*_OWN_CHECKS, *(base.__name__ for base in type(value).__mro__)}:
        raise UserError(f"{name} must be of type {kind}, not {get_public_name(type(value))}")


def _check_list(name: str, value: object, kind: str, inner: str) -> None:
    """Raise UserError if a value is not a list.

    Args:
        kind: `Sequence` or `Iterable`.
        inner: the annotation of an item, such as `str`.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise UserError(f"{name} must be a list, not {_describe(value)}")
    if kind == "Iterable":
        return
    if not isinstance(value, Sequence):
        raise UserError(f"{name} must be a list, not {_describe(value)}")
    for item in value:
        if inner == "str":
            _check_text(f"each of {name}", item)
        elif inner == "HandoffId":
            check_type(f"each of {name}", item, str)


def _check_id(name: str, value: object) -> None:
    """Raise UserError if an id is not UTF-8. The methods do not know an id of another type."""
    if isinstance(value, str):
        _check_text(name, value)


def _check_text(name: str, value: object) -> None:
    """Raise UserError if a value is not a text that can be encoded."""
    if not isinstance(value, str):
        raise UserError(f"{name} must be of type str, not {get_public_name(type(value))}")
    if has_lone_surrogate(value):
        raise UserError(f"{name} is not UTF-8 text: it holds half a character (a lone surrogate)")


def _check_number(name: str, value: object) -> None:
    """Raise UserError if a value is not a whole number from 0 to `MAX_NUMBER`."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not (is_number and 0 <= value <= MAX_NUMBER):  # type: ignore[operator]
        raise UserError(
            f"{name} must be a whole number from 0 to {MAX_NUMBER:,}, not {_describe(value)}"
        )


def _check_seconds(name: str, value: object) -> None:
    """Raise UserError if a value is not a finite number. The methods check its bounds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value)):  # type: ignore[arg-type]
        raise UserError(f"{name} must be a number of seconds, not {_describe(value)}")


def _check_flag(name: str, value: object) -> None:
    check_type(name, value, bool)


_CHECKS: dict[str, Callable[[str, object], None]] = {
    "str": _check_text,
    "JobId": _check_id,
    "int": _check_number,
    "float": _check_seconds,
    "bool": _check_flag,
}


def _describe(value: object) -> str:
    """Return a wrong number for an error, or the public name of the type of another value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return get_public_name(type(value))
    return describe_value(value) or "a longer number"


def check_type(name: str, value: object, kind: type, hint: str = "") -> None:
    """Raise UserError if a value is not of a type.

    Args:
        hint: what to write instead.
    """
    if isinstance(value, kind):
        return
    public, wrong = get_public_name(kind), get_public_name(type(value))
    if issubclass(kind, Enum):
        wrong = f"{value!r:.60}"
        hint = f"use one of {', '.join(f'{public}.{member.name}' for member in kind)}"
    elif issubclass(kind, BaseModel) and isinstance(value, Mapping):
        hint = f"write {public}(...) with these fields"
    advice = ""
    if hint:
        advice = f": {hint}"
    raise UserError(f"{name} must be of type {public}, not {wrong}{advice}")


def check_tenant(tenant: str) -> None:
    """Raise UserError if a tenant cannot have this name.

    No job has an empty tenant, so that the name of a tenant never stands for all tenants.
    """
    if not tenant.strip():
        raise UserError("the tenant is empty: name a tenant, or leave it out")
    if len(tenant) > MAX_TENANT_CHARS or not tenant.isprintable():
        raise UserError(
            f"the tenant's name must be one line of at most {MAX_TENANT_CHARS} characters, not"
            f" {tenant!r:.80}"
        )


def check_wait_s(wait_s: object) -> None:
    """Raise UserError if a time to wait is not a number of seconds within its bounds."""
    is_number = isinstance(wait_s, int | float) and not isinstance(wait_s, bool)
    if not (is_number and 0 <= wait_s <= MAX_SECONDS):  # type: ignore[operator]
        raise UserError(
            f"wait_s must be a number from 0 to {MAX_SECONDS:,} seconds, not {wait_s!r:.60}"
        )
