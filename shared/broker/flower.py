"""Checks of Flower's options before it starts, in place of its tracebacks; and the queues of
the whole fleet in Flower.

Flower itself lists the queues of the workers that answered its last inspection, and a person
starts an inspection by hand.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from flower.api.tasks import GetQueueLengths
from flower.urls import handlers
from flower.views.broker import BrokerView
from tornado.ioloop import IOLoop
from tornado.web import authenticated, url

from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.settings.placeholder_passwords import check_log_ins
from handoff_queue.shared.settings.ports import LARGEST, unusable_port
from handoff_queue.shared.settings.settings import load_settings, redis_url_of
from handoff_queue.shared.store.redis.connection import ONLOOKER_TIMEOUT_S
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.errors import HandoffError, UserError
from handoff_queue.shared.types.names import (
    ROLES_QUEUE,
    SUBMISSIONS_QUEUE,
    SUPERVISOR_QUEUE,
    UNROUTED_QUEUE,
)

log = log_of(__name__)

ALWAYS_THERE = frozenset({SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE, UNROUTED_QUEUE})


def list_all_queues() -> None:
    """Have the Broker page and `/api/queues/length` of this process list all queues of the
    fleet.
    """
    pages = {BrokerView: _BrokerView, GetQueueLengths: _GetQueueLengths}
    for place, handler in enumerate(handlers):
        if isinstance(handler, tuple):
            pattern, page, *more = handler
        else:
            pattern, page, *more = _parts(handler)
        if page in pages:
            handlers[place] = url(pattern, pages[page], *more)


def queues_of_the_fleet(store: Store) -> list[str]:
    """Return the names of the queues of our own roles, of each queue that a live process
    serves, and of each queue to which a handoff was ever published. They are sorted.

    Raises:
        HandoffError: Redis cannot be read.
    """
    published = {depth.queue for depth in store.health.depths()}
    return sorted(ALWAYS_THERE | store.presence.presence().queues | published)


@cache
def _store() -> Store:
    settings = load_settings()
    return open_store(redis_url_of(settings), settings, timeout_s=ONLOOKER_TIMEOUT_S)


def _read_queues() -> list[str]:
    """Return all queues of the fleet; none if Redis cannot be read."""
    try:
        return queues_of_the_fleet(_store())
    except HandoffError as error:
        log.warning("cannot read the queues", why=str(error))
        return []


def _parts(handler: Any) -> tuple[Any, ...]:
    return handler.regex.pattern, handler.handler_class, handler.kwargs, handler.name


class _AllQueues:
    """Mixin for a page of Flower that lists queues."""

    _queues: list[str]

    @authenticated
    async def get(self) -> None:
        self._queues = await IOLoop.current().run_in_executor(None, _read_queues)
        await super().get()  # type: ignore[misc]

    def get_active_queue_names(self) -> list[str]:
        """Return the names that `get` has read, or the names that Flower knows if Redis could
        not be read.
        """
        return self._queues or super().get_active_queue_names()  # type: ignore[misc]


class _BrokerView(_AllQueues, BrokerView):  # type: ignore[misc]
    """The Broker page."""


class _GetQueueLengths(_AllQueues, GetQueueLengths):  # type: ignore[misc]
    """`/api/queues/length`."""


def prepare_flower_command(module: str) -> None:
    """Prepare Flower, if this process is `celery -A MODULE flower`.

    Check its options, and have it list all queues.

    Raises:
        UserError: a variable, a log-in or the port cannot be used; names it.
    """
    before, is_flower, arguments = _split_at_flower(sys.argv)
    if is_flower and any(module in argument for argument in before):
        from handoff_queue.shared.broker.flower import list_all_queues  # imports Flower

        check_flower(arguments)
        list_all_queues()


def check_flower(arguments: Sequence[str]) -> None:
    """Check what Flower would read: variables, arguments and its configuration file.

    Raises:
        UserError: a variable, a log-in or the port cannot be used; names it.
    """
    from flower.command import apply_options
    from tornado.options import options

    _check_variables()
    try:
        apply_options("flower", list(arguments))
    except Exception as error:
        raise UserError(f"Flower cannot use one of its options: {error}") from error
    check_log_ins(options.basic_auth or ())
    if not options.unix_socket:
        _check_port(options.address, options.port)


def _split_at_flower(words: Sequence[str]) -> tuple[Sequence[str], bool, Sequence[str]]:
    """Return the words before `flower`, whether that word is there, and the words after it."""
    if "flower" not in words:
        return words, False, []
    place = words.index("flower")
    return words[:place], True, words[place + 1 :]


def _check_port(address: str, port: int) -> None:
    """Bind the sockets that Flower will bind, and close them.

    Raises:
        UserError: Flower cannot listen there.
    """
    from tornado.netutil import bind_sockets

    advice = "choose another for Flower with --port or FLOWER_PORT"
    if not 0 <= port <= LARGEST:
        raise UserError(f"port {port} cannot be used: the largest is {LARGEST}; {advice}")
    try:
        sockets = bind_sockets(port, address=address)
    except OSError as error:
        raise unusable_port(port, error, advice) from error
    for bound in sockets:
        bound.close()


def _check_variables() -> None:
    """Raise a UserError that names the first variable that Flower cannot read."""
    from flower.command import apply_env_options, is_flower_envvar

    variables = {name: os.environ.pop(name) for name in filter(is_flower_envvar, [*os.environ])}
    try:
        for name, value in variables.items():
            os.environ[name] = value
            try:
                apply_env_options()
            except Exception:  # noqa: BLE001 - the text of the error quotes the value
                raise UserError(
                    f"Flower cannot use the value of {name}: correct or unset it"
                ) from None
    finally:
        os.environ.update(variables)
