"""Changes to Flower: it lists the queues of the whole fleet, and checks the events that it keeps.
Its options are checked before it starts, in place of its tracebacks.

Flower itself lists the queues of the workers that answered its last inspection, and a person
starts an inspection by hand.

Every program that reaches Redis can publish an event. Flower stores the fields of an event as they
are. A field of another type, or a text that is not UTF-8, ends each page that shows it with status
500. Long texts and many names fill the memory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from celery.events.receiver import EventReceiver
from flower.api.tasks import GetQueueLengths
from flower.command import apply_env_options, apply_options, is_flower_envvar
from flower.events import Events, PrometheusMetrics
from flower.inspector import Inspector
from flower.urls import handlers
from flower.views.broker import BrokerView
from tornado.ioloop import IOLoop
from tornado.netutil import bind_sockets
from tornado.options import options
from tornado.web import authenticated, url

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.settings.placeholder_passwords import check_log_ins
from handoff_queue.shared.settings.ports import MAX_PORT, build_unusable_port_error
from handoff_queue.shared.settings.settings import get_redis_url, load_settings
from handoff_queue.shared.store.redis.connection import ONLOOKER_TIMEOUT_S
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.errors import HandoffError, UserError
from handoff_queue.shared.types.names import (
    ROLES_QUEUE,
    SUBMISSIONS_QUEUE,
    SUPERVISOR_QUEUE,
    UNROUTED_QUEUE,
)

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
"""Addresses that only programs of this machine reach."""
PERMANENT_QUEUES = frozenset({SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE, UNROUTED_QUEUE})
_KINDS = frozenset({
    "task-failed", "task-received", "task-rejected", "task-retried", "task-revoked", "task-sent",
    "task-started", "task-succeeded", "worker-heartbeat", "worker-offline", "worker-online",
})  # fmt: skip
"""The types of the events that Celery sends."""
_TEXTS = frozenset({
    "args", "eta", "exception", "exchange", "expires", "hostname", "kwargs", "name", "parent_id",
    "queue", "result", "root_id", "routing_key", "sw_ident", "sw_sys", "sw_ver", "traceback",
    "type", "uuid",
})  # fmt: skip
_NUMBERS = frozenset({
    "active", "expired", "failed", "freq", "local_received", "pid", "processed", "received",
    "rejected", "requeue", "retries", "retried", "revoked", "runtime", "sent", "signum", "started",
    "succeeded", "terminated", "timestamp", "utcoffset",
})  # fmt: skip
MAX_CHARS = 500
"""Characters of the longest text of an event. Events of this project have at most 100. Flower keeps
20,000 tasks, each with about 20 texts, and has two copies of the texts that it searches.
"""
MAX_NAMES = 5_000
"""Names of tasks, and names of processes with a type of event, that Flower keeps without end."""
MAX_SERIES = 20_000
"""Combinations of process, type and task for which Flower has metrics. It keeps them without end.
"""
MAX_REPLY_CHARS = 100_000
"""Characters of the longest reply to a control command. Replies of this project have about 5,000.
"""
_QUEUE = frozenset({
    "alias", "auto_delete", "binding_arguments", "durable", "exclusive", "name", "no_ack",
    "queue_arguments", "routing_key",
})  # fmt: skip
"""Fields of a queue that the page of a worker shows."""
MAX_NUMBER = 4e9
"""The largest number of an event. It is a time in Unix seconds in the year 2096."""
MAX_CLOCK = 10**15
"""The largest logical clock of an event. It counts messages and events."""

log = get_log(__name__)


def list_all_queues() -> None:
    """Have the Broker page and `/api/queues/length` of this process list all queues of the
    fleet.
    """
    pages = {BrokerView: _BrokerView, GetQueueLengths: _GetQueueLengths}
    for place, handler in enumerate(handlers):
        if isinstance(handler, tuple):
            pattern, page, *more = handler
        else:
            pattern, page, *more = _list_parts(handler)
        if page in pages:
            handlers[place] = url(pattern, pages[page], *more)


def list_queues(store: Store) -> list[str]:
    """Return the names of the queues to show. They are the queues of our own roles, of live
    processes, and of each handoff that was ever published. They are sorted. A queue whose
    length the user of Flower may not read is left out.

    Raises:
        HandoffError: Redis cannot be read.
    """
    queues = (
        PERMANENT_QUEUES | store.presence.list_served_queues() | {*store.health.list_used_queues()}
    )
    return store.health.filter_readable_queues(queues)


@cache
def _open_store() -> Store:
    settings = load_settings()
    return open_store(get_redis_url(settings), settings, timeout_s=ONLOOKER_TIMEOUT_S)


def _read_queues() -> list[str]:
    """Return all queues of the fleet; none if Redis cannot be read."""
    try:
        return list_queues(_open_store())
    except HandoffError as error:
        log.warning("cannot read the queues", why=str(error))
        return []


def _list_parts(handler: Any) -> tuple[Any, ...]:
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


def check_events() -> None:
    """Have Flower keep only the usable part of each event, and a bounded number of names."""
    keep = Events.on_event
    names: set[tuple[str, ...]] = set()

    def on_event(self: Any, event: Any) -> None:
        clean = select_usable_event(event)
        if clean is None:
            return
        new: list[tuple[str, ...]] = [(clean["hostname"], clean["type"])]
        if "name" in clean:
            new.append((clean["name"],))
        if _add(names, new, MAX_NAMES):
            keep(self, clean)

    Events.on_event = on_event
    read_event = EventReceiver.event_from_message

    def event_from_message(self: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
        return read_event(self, with_usable_clock(body), *args, **kwargs)

    EventReceiver.event_from_message = event_from_message
    count = PrometheusMetrics.observe_task
    series: set[tuple[str, ...]] = set()

    def observe_task(self: Any, worker: str, event: Any, task: Any) -> None:
        name = event.get("name") or task.name or ""
        if _add(series, [(worker, event["type"], name)], MAX_SERIES):
            count(self, worker, event, task)

    PrometheusMetrics.observe_task = observe_task


def _add(known: set[tuple[str, ...]], entries: list[tuple[str, ...]], most: int) -> bool:
    """Add entries to a set. Return False, and add nothing, if the set would have too many."""
    new = set(entries) - known
    if len(known) + len(new) > most:
        return False
    known.update(entries)
    return True


def check_replies() -> None:
    """Have Flower keep only the usable replies to its control commands."""
    keep = Inspector._on_update

    def on_update(self: Any, worker: Any, method: str, reply: Any) -> None:
        is_known = worker in self.workers
        has_room = is_known or len(self.workers) < MAX_NAMES
        if has_room and _is_usable("hostname", worker) and is_usable_reply(method, reply):
            keep(self, worker, method, reply)

    Inspector._on_update = on_update


def is_usable_reply(method: str, reply: Any) -> bool:
    """Return whether the page of a worker can show a reply to a control command. Our processes have
    no tasks in their replies, and refuse to tell their configuration.
    """
    if not _is_short_json(reply):
        return False
    if method == "stats":
        return _is_usable_statistics(reply)
    if method == "active_queues":
        return _is_list_of(reply, dict) and all(queue.keys() >= _QUEUE for queue in reply)
    if method == "registered":
        return _is_list_of(reply, str)
    return reply in ([], {}) or (method == "conf" and _is_dict_of(reply, str))


def _is_usable_statistics(reply: Any) -> bool:
    if not isinstance(reply, dict) or not _is_dict_of(reply.get("total"), int):
        return False
    consumer = reply.get("consumer") or reply
    optional = [reply.get(name) or {} for name in ("rusage", "autoscaler")]
    if not all(isinstance(table, dict) for table in (consumer, reply.get("pool"), *optional)):
        return False
    numbers = [*optional[0].values(), reply.get("uptime") or 0]
    return isinstance(consumer.get("broker"), dict) and all(map(_is_number, numbers))


def _is_short_json(value: object) -> bool:
    """Return whether a value has the size of a real reply, and is UTF-8."""
    text = json.dumps(value, ensure_ascii=False)
    return len(text) <= MAX_REPLY_CHARS and _is_writable(text)


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(entry, kind) for entry in value)


def _is_dict_of(value: Any, kind: type) -> bool:
    return isinstance(value, dict) and all(isinstance(entry, kind) for entry in value.values())


def with_usable_clock(event: Any) -> Any:
    """Return an event without a clock that Flower could not write. Flower takes over the clock of
    each event, and sends its own clock with each control command.
    """
    if isinstance(event, dict) and "clock" in event and not _is_clock(event["clock"]):
        return {name: value for name, value in event.items() if name != "clock"}
    return event


def select_usable_event(event: object) -> dict[str, Any] | None:
    """Return the known fields of an event whose values have the type that Celery sends. Return
    None if a field that Flower needs is missing.
    """
    if not isinstance(event, Mapping):
        return None
    clean: dict[str, Any] = {}
    for name, value in event.items():
        if _is_usable(name, value):
            clean[name] = value
    needed = {"type", "hostname", "timestamp", "local_received", "clock"}
    if str(clean.get("type")).startswith("task-"):
        needed.add("uuid")
    if not needed <= clean.keys() or clean["type"] not in _KINDS:
        return None
    return clean


def _is_usable(name: object, value: object) -> bool:
    """Return whether a field is known and its value has the right type."""
    if name in _TEXTS:
        return isinstance(value, str) and len(value) <= MAX_CHARS and _is_writable(value)
    if name in _NUMBERS:
        return _is_number(value)
    if name == "clock":
        return _is_clock(value)
    if name == "loadavg":
        return isinstance(value, list | tuple) and all(map(_is_number, value))
    return False


def _is_writable(text: str) -> bool:
    """Return whether a page can contain a text. JSON can contain half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_clock(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= MAX_CLOCK


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= MAX_NUMBER


def prepare_flower_command(module: str) -> None:
    """Prepare Flower, if this process, whose command names Flower, is `celery -A MODULE flower`.

    Check its options, and have it list all queues, and check all events and replies.

    Raises:
        UserError: a variable, an option, a log-in or the port cannot be used; names it.
    """
    place = sys.argv.index("flower")
    if not any(module in argument for argument in sys.argv[:place]):
        return
    check_flower(sys.argv[place + 1 :])
    list_all_queues()
    check_events()
    check_replies()


def check_flower(arguments: Sequence[str]) -> None:
    """Check what Flower would read: variables, arguments and its configuration file.

    Raises:
        UserError: a variable, an option, a log-in or the port cannot be used; names it.
    """
    _check_variables()
    try:
        apply_options("flower", list(arguments))
    except Exception as error:
        raise UserError(f"Flower cannot use one of its options: {error}") from error
    check_log_ins(options.basic_auth or ())
    _check_file_of_tasks()
    if not options.unix_socket:
        _check_port(options.address, options.port)
        _check_that_strangers_log_in(options.address)


def _check_file_of_tasks() -> None:
    """Raise a UserError if Flower keeps its tasks in a folder that does not exist."""
    folder = Path(options.db).absolute().parent
    if options.persistent and not folder.is_dir():
        raise UserError(
            f"Flower cannot keep its tasks: the folder {folder} does not exist; make it, or name"
            " another file (--db or FLOWER_DB)"
        )


def _check_that_strangers_log_in(address: str) -> None:
    """Raise a UserError if other machines reach the pages, and nothing asks for a log-in."""
    if options.basic_auth or options.auth or address in _LOOPBACK:
        return
    raise UserError(
        "every machine could read the pages of Flower: set FLOWER_BASIC_AUTH to user:password, or"
        " let Flower listen on this machine only (--address=127.0.0.1)"
    )


def _check_port(address: str, port: int) -> None:
    """Bind the sockets that Flower will bind, and close them.

    Raises:
        UserError: Flower cannot listen there.
    """
    advice = "choose another for Flower (--port or FLOWER_PORT)"
    if not 0 <= port <= MAX_PORT:
        raise UserError(f"port {port} cannot be used: the largest is {MAX_PORT}; {advice}")
    try:
        sockets = bind_sockets(port, address=address)
    except OSError as error:
        raise build_unusable_port_error(port, error, advice) from error
    for bound in sockets:
        bound.close()


def _check_variables() -> None:
    """Raise a UserError that names the first variable that Flower cannot read."""
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
