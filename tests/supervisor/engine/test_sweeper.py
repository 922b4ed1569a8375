"""A sweeper announces its supervisor and sets the daily budgets."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.transport import list_library_scripts
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.daily_budgets import DailyCaps, read_caps
from handoff_queue.shared.store.redis.connection import load_script
from handoff_queue.shared.store.redis.script import Script, list_script_names
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.engine.sweeper import Sweeper
from tests.doubles.sweeping import sweeping
from tests.supervisor.shell import SETTINGS
from tests.waiting import wait_until

CAPS = DailyCaps(day_usd=300_000)


def sweeper_of(store: Store, caps: DailyCaps, name: str = "supervisor:1") -> Sweeper:
    app = make_app("test", store.connection.url, SETTINGS, (SUPERVISOR_QUEUE,))
    return Sweeper(store, Dispatcher(app), name, interval_s=60, keep_s=60, caps=caps)


def caps_in(store: Store) -> dict[str, int]:
    caps: dict[bytes, bytes] = store.connection.redis.hgetall(keys.CAPS)
    return {name.decode(): int(most) for name, most in caps.items() if name != b"since"}


def scripts_run(store: Store) -> int:
    stats: dict[str, Any] = store.connection.redis.info("commandstats")
    return sum(
        int(stats.get(name, {}).get("calls", 0)) for name in ("cmdstat_evalsha", "cmdstat_eval")
    )


def test_a_starting_supervisor_sets_the_daily_caps(store: Store) -> None:
    sweeper = sweeper_of(
        store, read_caps(Settings(offline=True, day_usd=0.5, tenant_day_tokens=10))
    )
    with sweeping(sweeper):
        wait_until(lambda: store.connection.redis.exists(keys.CAPS), expected="the caps")

    assert caps_in(store) == {"day_usd": 500_000, "tenant_day_tokens": 10}


def test_a_supervisor_loads_the_scripts_again_that_redis_has_lost(store: Store) -> None:
    """Workers may not load scripts."""
    app = make_app("test", store.connection.url, SETTINGS, (SUPERVISOR_QUEUE,))
    sweeper = Sweeper(store, Dispatcher(app), "supervisor:1", interval_s=0.05, keep_s=60)
    digests = [load_script(name).digest for name in list_script_names()]
    digests += [Script(text).digest for text in list_library_scripts()]
    redis = store.connection.redis
    with sweeping(sweeper):
        for _ in range(2):
            wait_until(lambda: all(redis.script_exists(*digests)), expected="all scripts")
            redis.script_flush()


def test_caps_that_redis_has_lost_are_restored_by_the_next_announcement(
    store: Store,
) -> None:
    sweeper = sweeper_of(store, CAPS)
    sweeper.announce()
    store.connection.redis.flushall()

    sweeper.announce()

    assert caps_in(store) == {"day_usd": 300_000}


@pytest.mark.parametrize(
    ("last", "wanted"), [(DailyCaps(day_tokens=7), {"day_tokens": 7}), (DailyCaps(), {})]
)
def test_the_caps_of_the_last_started_supervisor_hold_after_data_loss(
    store: Store, last: DailyCaps, wanted: dict[str, int]
) -> None:
    first, second = sweeper_of(store, CAPS), sweeper_of(store, last, "supervisor:2")
    first.announce()
    backup = store.connection.redis.dump(keys.CAPS)
    second.announce()
    first.announce()
    assert caps_in(store) == wanted

    store.connection.redis.restore(keys.CAPS, 0, backup, replace=True)
    for sweeper in (first, second, first):
        sweeper.announce()
    assert caps_in(store) == wanted

    store.connection.redis.flushall()
    for sweeper in (first, second, first):
        sweeper.announce()
    assert caps_in(store) == wanted


def test_existing_caps_cost_an_announcement_nothing(store: Store) -> None:
    sweeper = sweeper_of(store, CAPS)
    sweeper.announce()
    before = scripts_run(store)

    sweeper.announce()

    assert scripts_run(store) == before
