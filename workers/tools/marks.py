"""`@tool(...)`: what a user's function can say about itself beyond its signature. A function without it is a tool as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def tool(
    *, secrets: Sequence[str] = (), repeatable: bool = True
) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """Mark a function: the environment variables that it reads (its secrets), and whether it may run again after a crash.

    It only sets two attributes, so `my_function.secrets = ["MY_TOKEN"]` and `my_function.repeatable = False` do the same.
    """

    def marked(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        vars(function).update(secrets=secrets, repeatable=repeatable)
        return function

    return marked


def secrets_of(function: Callable[..., object]) -> tuple[str, ...]:
    """The names of the environment variables that a function needs.

    Raises:
        ValueError: they are not names.
    """
    named = getattr(function, "secrets", ())
    names = (named,) if isinstance(named, str) else tuple(named)
    if not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise ValueError("its secrets must be names of environment variables")
    return names
