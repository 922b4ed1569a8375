"""Replies to Celery's control commands, as `handoff doctor` and Flower collect them.

Each worker sees the commands and may write to the queues of the replies. `kombu` waits as long as
replies come, and keeps those to other commands.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from celery.app.control import Control
from kombu import Consumer
from kombu.pidbox import Mailbox

MAX_COLLECT_S = 5.0
"""Seconds after which no more replies to a command are read. The processes of a large fleet reply
within one second.
"""


class BoundedMailbox(Mailbox):  # type: ignore[misc]
    """A mailbox that reads replies for a bounded time."""

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
