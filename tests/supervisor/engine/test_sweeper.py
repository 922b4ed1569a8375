"""What a sweeper says of its supervisor: that it is there, and what may be spent in a day."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.daily_budget import DailyCaps, caps_from
from handoff_queue.shared.store.store import Ledger
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from handoff_queue.supervisor.client.dispatch import Dispatcher
from handoff_queue.supervisor.engine.sweeper import Sweeper
from tests.supervisor.shell import SETTINGS
from tests.waiting import wait_until

CAPS = DailyCaps(day_usd=300_000)


def a_sweeper(ledger: Ledger, caps: DailyCaps, name: str = "supervisor:1") -> Sweeper:
    app = make_app("test", ledger.connection.url, SETTINGS, (SUPERVISOR_QUEUE,))
    return Sweeper(ledger, Dispatcher(app), name, interval_s=60, keep_s=60, caps=caps)


def caps_in(ledger: Ledger) -> dict[str, int]:
    found: dict[bytes, bytes] = ledger.connection.redis.hgetall(keys.CAPS)
    return {name.decode(): int(most) for name, most in found.items() if name != b"since"}


def scripts_run(ledger: Ledger) -> int:
    stats: dict[str, Any] = ledger.connection.redis.info("commandstats")
    return sum(
        int(stats.get(name, {}).get("calls", 0)) for name in ("cmdstat_evalsha", "cmdstat_eval")
    )


def test_a_supervisor_that_starts_says_what_may_be_spent_in_a_day(ledger: Ledger) -> None:
    sweeper = a_sweeper(
        ledger, caps_from(Settings(offline=True, day_usd=0.5, tenant_day_tokens=10))
    )
    sweeper.start()
    wait_until(lambda: ledger.connection.redis.exists(keys.CAPS), what="the caps")
    sweeper.stop()

    assert caps_in(ledger) == {"day_usd": 500_000, "tenant_day_tokens": 10}


def test_caps_that_redis_has_lost_are_there_again_after_the_next_announcement(
    ledger: Ledger,
) -> None:
    sweeper = a_sweeper(ledger, CAPS)
    sweeper.announce()
    ledger.connection.redis.flushall()

    sweeper.announce()

    assert caps_in(ledger) == {"day_usd": 300_000}


@pytest.mark.parametrize(
    ("last", "wanted"), [(DailyCaps(day_tokens=7), {"day_tokens": 7}), (DailyCaps(), {})]
)
def test_whatever_redis_loses_the_caps_of_the_supervisor_that_started_last_hold(
    ledger: Ledger, last: DailyCaps, wanted: dict[str, int]
) -> None:
    first, second = a_sweeper(ledger, CAPS), a_sweeper(ledger, last, "supervisor:2")
    first.announce()
    backup = ledger.connection.redis.dump(keys.CAPS)
    second.announce()
    first.announce()
    assert caps_in(ledger) == wanted

    ledger.connection.redis.restore(keys.CAPS, 0, backup, replace=True)
    for one in (first, second, first):
        one.announce()
    assert caps_in(ledger) == wanted

    ledger.connection.redis.flushall()
    for one in (first, second, first):
        one.announce()
    assert caps_in(ledger) == wanted


def test_caps_that_are_there_cost_an_announcement_nothing(ledger: Ledger) -> None:
    sweeper = a_sweeper(ledger, CAPS)
    sweeper.announce()
    before = scripts_run(ledger)

    sweeper.announce()

    assert scripts_run(ledger) == before
