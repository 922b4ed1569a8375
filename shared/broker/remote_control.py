"""Celery's remote control: the few commands that a worker obeys, and the replies that `handoff
doctor` and Flower collect.

Each worker sees the commands and may write to the queues of the replies. `kombu` waits as long as
replies come, and keeps those to other commands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any

from celery.app.control import Control
from kombu import Consumer
from kombu.pidbox import Mailbox, Node

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
MAX_COLLECT_S = 5.0
"""Seconds after which no more replies to a command are read. The processes of a large fleet reply
within one second.
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


class BoundedMailbox(Mailbox):  # type: ignore[misc]
    """A mailbox that sends no arguments, and reads replies for a bounded time."""

    def _publish(self, command: str, _: Any, *rest: Any, **options: Any) -> None:
        """Send a command without its arguments. No worker uses the arguments, and a task that a
        person revokes in Flower would tell all workers the id of its job.
        """
        super()._publish(command, {}, *rest, **options)

    def _collect(
        self,
        ticket: str,
        limit: int | None = None,
        timeout: float = 1,
        callback: Callable[[Any], None] | None = None,
        channel: Any = None,
        accept: Any = None,
    ) -> list[Any]:
        """Return the replies to one command. Others are dropped. The clock of a reply is ignored,
        because a number of 4,300 digits could not be sent again.

        Args:
            ticket: name of the command.
            limit: most replies; None: all.
            timeout: seconds to wait for the first and for each further reply.
        """
        replies: list[Any] = []

        def take(body: Any, message: Any) -> None:
            if message.headers.get("ticket") == ticket:
                if callback is not None:
                    callback(body)
                replies.append(body)

        queue = self.reply_queue
        channel = channel or self.connection.default_channel
        consumer = Consumer(
            channel, [queue], accept=accept or self.accept, no_ack=True, callbacks=[take]
        )
        end = monotonic() + max(MAX_COLLECT_S, timeout)
        try:
            with consumer:
                while monotonic() < end and (not limit or len(replies) < limit):
                    try:
                        self.connection.drain_events(timeout=timeout)
                    except TimeoutError:
                        break
        finally:
            channel.after_reply_message_received(queue.name)
        return replies


class BoundedControl(Control):  # type: ignore[misc]
    """Celery's control commands with this mailbox."""

    Mailbox = BoundedMailbox
