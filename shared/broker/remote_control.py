"""Celery's remote control: the few commands that a worker obeys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kombu.pidbox import Node

from handoff_queue.shared.observability.logs import get_log

log = get_log(__name__)

REMOTE_CONTROL = ("ping", "active_queues", "stats", "registered", "enable_events")
"""Control commands that a worker obeys. `handoff doctor` and Flower need these commands, and no
command of these changes the work.
"""
_SENDER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The name of a sender of control commands, which is the beginning of its reply queue."""
_TASK_LISTS = ("active", "reserved", "scheduled", "revoked")
"""Control commands that get an empty list. Flower asks for these lists, and the arguments of the
tasks are the handoffs of all tenants.
"""


def build_control_commands(
    commands: Mapping[str, Callable[..., Any]],
) -> dict[str, Callable[..., Any]]:
    """Return a worker's control commands.

    Every program that reaches Redis can publish a command. Celery's other commands could stop all
    workers, change their queues, or revoke tasks, so the worker refuses these commands.

    Args:
        commands: the functions of Celery by the name of the command.
    """
    checked_commands: dict[str, Callable[..., Any]] = {}
    for name, command in commands.items():
        if name in REMOTE_CONTROL:
            checked_commands[name] = partial(_without_arguments, command)
        elif name in _TASK_LISTS:
            checked_commands[name] = _no_tasks
        else:
            checked_commands[name] = partial(_refuse, name)
    return checked_commands


def take_command(node: Any, body: Any, _message: Any = None) -> Any:
    """Run a control command, unless its sender wants to match the names of workers. A regular
    expression of an attacker would block this process without end.

    Args:
        _message: ignored. It has the sender's logical clock. With a clock of 4,300 digits, this
            process could not write its own clock. So it could send no event and no reply.
    """
    if body.get("pattern") is not None or body.get("matcher") is not None:
        log.warning("a control command was refused", command=str(body.get("method")))
        return None
    return Node.handle_message(node, body)


def send_reply(node: Any, data: Any, exchange: str, routing_key: str, ticket: str) -> None:
    """Send the reply to a control command, or log an address that is not a reply queue. With an
    address of its choice, an attacker would write into keys that only this process may write.
    """
    if exchange == node.mailbox.reply_exchange.name and _SENDER.fullmatch(routing_key):
        Node.reply(node, data, exchange, routing_key, ticket)
    else:
        log.warning(
            "a reply to a control command was refused",
            exchange=str(exchange),
            routing_key=str(routing_key),
        )


def _without_arguments(command: Callable[..., Any], state: Any, **_arguments: Any) -> Any:
    return command(state)


def _no_tasks(_state: Any, **_arguments: Any) -> list[Any]:
    return []


def _refuse(name: str, _state: Any, **_arguments: Any) -> dict[str, str]:
    log.warning("a control command was refused", command=name)
    return {"error": f"{name} is refused"}
