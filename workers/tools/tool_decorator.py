"""`@tool(...)`: properties of a user's function that its signature does not show. A function
without the decorator is a tool as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, overload

from handoff_queue.shared.agent.tool import ANY_HOST, CallContext, Reads, ToolFailed
from handoff_queue.shared.text.word_forms import with_article
from handoff_queue.shared.types.limits import MAX_TOOL_TIMEOUT_S

__all__ = ["CallContext", "ToolFailed", "tool"]

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

DEFAULT_TIMEOUT_S = 300.0
"""Seconds after which a call of a user's tool has failed, unless the tool sets `timeout_s`."""
HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?")


@overload
def tool(function: Callable[Parameters, Returned], /) -> Callable[Parameters, Returned]: ...


@overload
def tool(
    *,
    secrets: Sequence[str] = (),
    credentials: Sequence[str] = (),
    repeatable: bool = True,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    reads: Reads = "private",
    acts: bool = False,
    sends: Sequence[str] = (),
    network: Literal["all", "none"] | Sequence[str] = "all",
) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]: ...


def tool(
    function: Callable[Parameters, Returned] | None = None,
    /,
    *,
    secrets: Sequence[str] = (),
    credentials: Sequence[str] = (),
    repeatable: bool = True,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    reads: Reads = "private",
    acts: bool = False,
    sends: Sequence[str] = (),
    network: Literal["all", "none"] | Sequence[str] = "all",
) -> (
    Callable[Parameters, Returned]
    | Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]
):
    """Set properties of a user's tool. The decorator only sets attributes of the same names,
    so `my_function.timeout_s = 10` below the function does the same. `@tool` without parentheses
    is `@tool()`.

    Args:
        function: the function of `@tool` without parentheses.
        secrets: names of environment variables that the tool reads. Their values are removed from
            its output.
        credentials: names of credentials of the job's tenant. A call has each as an environment
            variable of this name. Their values are removed from its output, too.
        repeatable: False if the tool must not run again after a crash.
        timeout_s: seconds after which a call has failed.
        reads: `public` if the results hold only data that everybody may see.
        acts: True if a call changes something outside of the job, such as an order or a message.
        sends: hosts that get data of the call; `*`: the model chooses the host.
        network: `none`: a call reaches no network. A list of hosts: a call reaches only these,
            through a proxy. `all`: a call reaches all networks of the worker.

    Raises:
        TypeError: the decorated object has no attributes that can be set.
    """

    def mark_function(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        try:
            vars(function).update(
                secrets=secrets,
                credentials=credentials,
                repeatable=repeatable,
                timeout_s=timeout_s,
                reads=reads,
                acts=acts,
                sends=sends,
                network=network,
            )
        except TypeError:
            raise TypeError(
                f"@tool cannot mark {with_article(type(function).__name__)}; mark a function"
            ) from None
        return function

    if function is None:
        return mark_function
    return mark_function(function)


def is_tool(value: object) -> bool:
    """Return whether `tool` has marked an object. Three of its attributes prove it."""
    return {"secrets", "repeatable", "timeout_s"} <= getattr(value, "__dict__", {}).keys()


def get_declarations(function: Callable[..., object]) -> dict[str, Any]:
    """Return what a function declares for the policy of tools.

    Raises:
        ValueError: a declaration is invalid.
    """
    reads = getattr(function, "reads", "private")
    if reads not in ("private", "public"):
        raise ValueError("its reads must be 'private' or 'public'")
    acts = getattr(function, "acts", False)
    if not isinstance(acts, bool):
        raise ValueError("its acts must be True or False")
    sends = getattr(function, "sends", ())
    if isinstance(sends, str):
        sends = (sends,)
    hosts = tuple(sends)
    for host in hosts:
        is_host = isinstance(host, str) and HOST.fullmatch(host)
        if not is_host and host != ANY_HOST:
            raise ValueError(f"its sends must be hosts such as example.org, not {host!r:.80}")
    return {"reads": reads, "acts": acts, "sends": hosts}


def get_network(function: Callable[..., object]) -> tuple[str, ...] | None:
    """Return the only hosts that a function may reach. None: all networks.

    Raises:
        ValueError: the declaration is invalid.
    """
    network = getattr(function, "network", "all")
    if network == "all":
        return None
    if network == "none":
        return ()
    hosts = () if isinstance(network, str) else tuple(network)
    if not hosts:
        raise ValueError("its network must be 'all', 'none' or a list of hosts")
    for host in hosts:
        if not isinstance(host, str) or not HOST.fullmatch(host):
            raise ValueError(f"its network must have hosts such as example.org, not {host!r:.80}")
    return hosts


def get_secrets(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of the environment variables that a function needs.

    Raises:
        ValueError: the names are invalid.
    """
    return _read_names(function, "secrets")


def get_credentials(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of the tenant's credentials that a function needs.

    Raises:
        ValueError: the names are invalid, or are names of its secrets.
    """
    names = _read_names(function, "credentials")
    if both := sorted({*names} & {*get_secrets(function)}):
        raise ValueError(f"{both[0]} is in its secrets and in its credentials")
    return names


def _read_names(function: Callable[..., object], attribute: str) -> tuple[str, ...]:
    value = getattr(function, attribute, ())
    if isinstance(value, str):
        value = (value,)
    names = tuple(value)
    if not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise ValueError(f"its {attribute} must be names of environment variables")
    return names


def get_timeout(function: Callable[..., object]) -> float:
    """Return the number of seconds after which a call of the function has failed.

    Raises:
        ValueError: its `timeout_s` is not a number above 0 and up to `MAX_TOOL_TIMEOUT_S`.
    """
    timeout_s = getattr(function, "timeout_s", DEFAULT_TIMEOUT_S)
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if not is_number or not 0 < timeout_s <= MAX_TOOL_TIMEOUT_S:
        limit = f"{MAX_TOOL_TIMEOUT_S:g}"
        raise ValueError(f"its timeout_s must be a number of seconds above 0 and up to {limit}")
    return float(timeout_s)
