"""Celery's transport and result backend with failpoints. It is loaded only in processes that
have failpoints.

Points, in addition to the points of the store's scripts:

- `publish.part` around each message of a part of a job's chord.
- `publish.QUEUE` around each other message.
- `take` around the script that takes a message for an element of its queue.
- `chord.part` around a part's return to the backend, and for Celery's own backend `chord.size` and
  `chord.count` (only the script of a part's return).
- `ack` and `requeue` around the end of a message. Only this process sees an `ack`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Celery
from celery.backends.redis import RedisBackend
from kombu.transport import redis as redis_transport

from handoff_queue.shared.broker.chord_result_backend import StoreBackend
from handoff_queue.shared.broker.isolated_app import IsolatedConnection
from handoff_queue.shared.broker.transport import PersistentChannel, ProcessQoS, Transport
from handoff_queue.shared.observability.failpoints import AFTER, BEFORE, reach, run_between
from handoff_queue.shared.store.fair_queue import get_member

LOST: type[Exception] = redis_transport.redis.exceptions.ConnectionError


class _QoS(ProcessQoS):
    def ack(self, delivery_tag: str) -> None:
        acknowledge = super().ack
        run_between("ack", "", lambda: acknowledge(delivery_tag), LOST)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        reject = super().reject
        run_between(
            "requeue" if requeue else "ack", "", lambda: reject(delivery_tag, requeue=requeue), LOST
        )


class _Channel(PersistentChannel):
    QoS = _QoS

    def _take(self, queue: str, popped_message: Mapping[str, Any], connection: Any) -> bytes | None:
        take = super()._take
        return run_between("take", "", lambda: take(queue, popped_message, connection), LOST)

    def _ask(self, queues: Mapping[str, int], connection: Any) -> None:
        reach(f"take.{BEFORE}")
        super()._ask(queues, connection)

    def _read_answer(self, connection: Any) -> Any:
        answer = super()._read_answer(connection)
        reach(f"take.{AFTER}", LOST)
        return answer

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        put = super()._put
        is_part = get_member(message) is not None and message["headers"]["group"] is not None
        point = "part" if is_part else queue
        run_between("publish", point, lambda: put(queue, message, **kwargs), LOST)


class FailingTransport(Transport):
    """Transport for redis://."""

    Channel = _Channel


class _PartsReturn:
    """Failpoints in front of a result backend."""

    def on_chord_part_return(self, *part: Any, **rest: Any) -> None:
        backend: Any = super()
        part_returns = backend.on_chord_part_return
        run_between("chord", "part", lambda: part_returns(*part, **rest), LOST)


class FailingStoreBackend(_PartsReturn, StoreBackend):
    """Our result backend for redis://."""


class FailingBackend(_PartsReturn, RedisBackend):  # type: ignore[misc]
    """Celery's result backend for redis://, for plain chords."""

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        set_size = super().set_chord_size
        run_between("chord", "size", lambda: set_size(group_id, chord_size), LOST)

    @property
    def _chord_part_return_script(self) -> Any:
        script = super()._chord_part_return_script
        return lambda **call: run_between("chord", "count", lambda: script(**call), LOST)


class _FailingConnection(IsolatedConnection):
    transports: Mapping[str, type] = {"redis": FailingTransport}


def use_failpoints(app: Celery, backend: type[RedisBackend]) -> None:
    """Have this app's messages and results go through failpoints. Other apps are left alone."""
    app.amqp.Connection = _FailingConnection
    app.loader.override_backends = {"redis": f"{__name__}:{backend.__name__}"}
