"""A worker announces a specialist that the installation does not know, so no Redis user may use its
queue. Only this queue is left out: the other queues, the pages and the sweeps go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.supervisor.client.fleet_statistics import read_stats
from handoff_queue.supervisor.client.pauses import check_pausable
from handoff_queue.supervisor.serve.metrics import StoreMetrics
from tests.doubles.handoffs import a_spec
from tests.doubles.jobs import a_job
from tests.hostile.redis_with_users import Server

UNKNOWN = "orders"
WAITING_JOB = JobId("j-0123456789ab")
READERS = ("client", "console", "observer", "supervisor")
"""Users of the processes that read all queues."""


@pytest.fixture
def announced(server: Server) -> Iterator[Server]:
    """Yield a Redis with the announcement of a worker, and a message to its unknown specialist."""
    with redis.Redis.from_url(server.address) as admin, server.store("worker-analyst") as worker:
        admin.flushdb()
        specs = (a_spec(name="analyst"), a_spec(name=UNKNOWN))
        worker.presence.announce(
            Announcement(worker="h:1", specialists=specs, slots=4, model="offline")
        )
        admin.hset(keys.QUEUES, mapping={UNKNOWN: 0, "analyst": 0})
        admin.hset(keys.PAUSED, UNKNOWN, "{}")
        admin.lpush("analyst", "{}")
        admin.zadd(f"{keys.WAITING}analyst", {f"{WAITING_JOB}/a.1": 1})
        yield server
        admin.flushdb()


def waits_in(store: Store) -> set[str]:
    return {backlog.queue for backlog in store.metrics.read_backlogs(["analyst", UNKNOWN])}


LOOKS: dict[str, Callable[[Store], set[str]]] = {
    "served": lambda store: set(store.presence.load_served_specialists()),
    "presence": lambda store: set(store.presence.read_presence().queues),
    "depths": lambda store: {depth.queue for depth in store.health.read_depths()},
    "load": lambda store: set(store.fleet_load.now().waiting),
    "metrics": waits_in,
    "paused": lambda store: set(store.metrics.count_paused_handoffs(["analyst", UNKNOWN])),
}
"""Look at all queues -> the names of the queues that it finds."""


@pytest.mark.parametrize("user", READERS)
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_at_all_queues_leaves_out_only_the_unknown_queue(
    announced: Server, look: str, user: str
) -> None:
    with announced.store(user) as store:
        queues = LOOKS[look](store)

    assert "analyst" in queues
    assert UNKNOWN not in queues


@pytest.mark.parametrize("user", READERS)
def test_a_job_that_waits_in_another_queue_has_its_reason(announced: Server, user: str) -> None:
    with redis.Redis.from_url(announced.address) as admin:
        admin.delete(keys.SERVING)
    with announced.store(user) as store:
        presence = store.presence.read_presence([WAITING_JOB])

    assert presence.unclaimed == {WAITING_JOB: {"a.1": "analyst"}}


def test_statistics_and_metrics_go_on(announced: Server) -> None:
    with announced.store("console") as store:
        stats = read_stats(store, store.fleet_load.now())
        families = list(StoreMetrics(store).collect())

    assert "analyst" in {agent.agent for agent in stats.agents}
    assert families


def test_the_unknown_specialist_cannot_be_paused(announced: Server) -> None:
    with (
        announced.store("console") as store,
        pytest.raises(UserError, match="no worker serves or has served 'orders'"),
    ):
        check_pausable(store, UNKNOWN)


def test_a_sweep_finds_the_due_jobs_and_the_lost_messages_of_other_queues(
    announced: Server,
) -> None:
    with announced.store("supervisor") as store:
        job_id = a_job(store)
        store.connection.redis.zadd(keys.DUE, {job_id: 1})

        assert job_id in store.due_work.sweep().due
        assert store.queue_repair.drop_orphans() == 0


def test_a_process_names_the_queue_that_it_leaves_out_once(
    announced: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with announced.store("supervisor") as store:
        for _ in range(3):
            store.presence.read_presence()
            store.health.read_depths()

        assert store.connection.queue_access.refused == (UNKNOWN,)
    assert len([text for text in caplog.messages if UNKNOWN in text]) == 1


def test_a_queue_is_used_as_soon_as_the_user_may_use_it(announced: Server) -> None:
    with announced.store("observer") as store, redis.Redis.from_url(announced.address) as admin:
        assert store.connection.queue_access.find_refused([UNKNOWN]) == {UNKNOWN}

        admin.execute_command("ACL", "SETUSER", "observer", f"%R~*{UNKNOWN}")
        try:
            assert store.connection.queue_access.find_refused([UNKNOWN]) == frozenset()
            assert store.connection.queue_access.refused == ()
        finally:
            admin.execute_command("ACL", "SETUSER", "observer", *["resetkeys", "clearselectors"])
            rules = announced.users.rules["observer"]
            admin.execute_command("ACL", "SETUSER", "observer", *rules)
