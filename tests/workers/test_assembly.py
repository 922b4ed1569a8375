"""A worker stops when asked, in every state, and is announced as long as it serves."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis
from celery.worker import state as worker_state

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.providers.anthropic.clients import model_from
from handoff_queue.shared.runtime.process import GENERATIONS, SWITCH_EVERY_S
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.workers.assembly import Worker, _Once
from handoff_queue.workers.index.index import DocumentIndex
from handoff_queue.workers.tools.registry import build_registry
from tests.doubles.handoffs import a_spec
from tests.waiting import wait_until


@pytest.fixture
def once(redis_url: str, tmp_path: Path) -> Iterator[_Once]:
    settings = Settings(lease_s=3_600, redis_url=redis_url, cache_dir=tmp_path)
    app = make_app("workers", redis_url, settings, ["researcher"])
    made = _Once(
        app,
        settings,
        {"researcher": a_spec()},
        build_registry(settings, DocumentIndex(tmp_path)),
        model_from,
    )
    looks = gc.get_threshold()
    yield made
    gc.set_threshold(*looks)
    made.stopping()
    if made._built is not None:
        made._built.process.leases.stop()


def consumer(once: _Once) -> SimpleNamespace:
    """The attributes of Celery's consumer that a pause of a role reads."""
    pool = SimpleNamespace(uses_semaphore=False)
    return SimpleNamespace(
        app=once._app, call_soon=lambda _settle: None, pool=pool, hostname="worker@here"
    )


def test_a_signal_during_the_build_of_the_worker_takes_effect_afterwards(once: _Once) -> None:
    """The handler runs on the thread that builds, which holds the lock."""

    def interrupted_while_building() -> None:
        with once._lock:
            once.stopping()

    building = threading.Thread(target=interrupted_while_building, daemon=True)
    building.start()
    building.join(10)

    assert not building.is_alive()
    assert once().process.drain.has_begun


def test_the_threads_of_a_worker_are_patient_about_the_interpreter_lock(
    once: _Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[float]()
    monkeypatch.setattr(sys, "setswitchinterval", asked.append)

    once()

    assert asked == [SWITCH_EVERY_S]


def test_the_garbage_collector_of_a_worker_runs_seldom(once: _Once) -> None:
    once()

    assert gc.get_threshold() == GENERATIONS


def test_a_worker_withdraws_its_announcement(once: _Once, store: Store) -> None:
    once.started(consumer(once))
    wait_until(store.presence.announcements, what="the announcement")

    once.stopping()
    wait_until(lambda: not store.presence.announcements(), what="the withdrawal")


def test_slots_that_are_lost_are_announced(
    once: _Once, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handoff_queue.workers.assembly.ANNOUNCED_FOR_S", 0.3)
    monkeypatch.setattr(worker_state, "active_requests", [SimpleNamespace(id="never-ends")])
    once.started(consumer(once))

    wait_until(
        lambda: [one for one in store.presence.announcements() if one.lost_slots == 1],
        what="the slot that is lost",
    )


@pytest.mark.parametrize("error", [SystemExit(1), ValueError("x")])
def test_no_exception_ends_the_announcements(
    once: _Once, store: Store, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    errors, build = [error], _Once.__call__

    def stumbles(self: _Once) -> Worker:
        if errors:
            raise errors.pop()
        return build(self)

    monkeypatch.setattr(_Once, "__call__", stumbles)
    once.started(consumer(once))

    wait_until(store.presence.announcements, what="the announcement")


def test_a_failed_announcement_is_repeated(
    once: _Once, store: Store, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handoff_queue.workers.assembly.ANNOUNCED_FOR_S", 0.3)
    with redis.Redis.from_url(redis_url) as admin:
        admin.set(keys.SERVING, "no sorted set", ex=60)
        once.started(consumer(once))
        wait_until(
            lambda: admin.keys(f"{keys.PREFIX}worker:*"),
            what="an announcement that went wrong half-way",
        )
        admin.delete(keys.SERVING)
        wait_until(store.presence.announcements, what="the announcement")
