"""Functions of the operator that a setting names as `module:name`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from handoff_queue.shared.types.errors import UserError


def import_function(place: str, setting: str) -> Callable[..., object]:
    """Import the function that a setting names.

    Args:
        place: the function, as `module:name`.
        setting: variable of the environment, for the error message.

    Raises:
        UserError: there is no such module, or no such function in it.
    """
    module, _, name = place.partition(":")
    try:
        function = getattr(import_module(module), name)
    except Exception as error:  # noqa: BLE001 (the code of an operator)
        raise UserError(
            f"{setting}: {place} cannot be imported ({type(error).__name__}): write"
            " module:function, and put the module on the import path of this process"
        ) from None
    if not callable(function):
        raise UserError(f"{setting}: {place} is not a function: name a function as module:function")
    return function  # type: ignore[no-any-return]
