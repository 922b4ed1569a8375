"""Redis comes back with older data under running processes: every job still ends once, and nothing is written over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos.messages_server import MessagesServer
from tests.e2e.fleet import SPECIALIST, Fleet, Script
from tests.e2e.test_redis_dies import over
from tests.running_system import SUPERVISOR, running_system

pytestmark = pytest.mark.slow

ORDER = ("planner", "a", "b", "assessor")
"""Who calls the model, one after the other."""
Copy = list[tuple[bytes, int, bytes]]


def copied(redis: Any) -> Copy:
    """All that Redis holds: keys, what is left of their time, and what is in them."""
    names = sorted(redis.scan_iter(count=1_000))
    pipe = redis.pipeline(transaction=True)
    for name in names:
        pipe.pttl(name)
        pipe.dump(name)
    answers = pipe.execute()
    return [(name, max(0, ttl), held) for name, ttl, held in zip(names, answers[::2], answers[1::2], strict=True) if held]


def go_back(redis: Any, copy: Copy) -> None:
    """To that, in one moment; and every connection is cut, as at a restart."""
    pipe = redis.pipeline(transaction=True)
    pipe.flushall()
    for name, ttl, held in copy:
        pipe.restore(name, ttl, held)
    pipe.execute()
    redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@pytest.mark.parametrize("back_to", ORDER[:-1])
def test_what_the_journal_no_longer_knows_is_done_again_and_the_job_ends_once(tmp_path: Path, back_to: str) -> None:
    script = Script()
    later = ORDER[ORDER.index(back_to) + 1]
    workers = (SUPERVISOR, ("w", "workers.app", SPECIALIST))
    with MessagesServer(script) as server, running_system(tmp_path, workers, over(server)) as system:
        fleet = Fleet(system, server, script, system.jobs())
        held = {who: script.hold("back", who) for who in (back_to, later)}
        job_id = fleet.submit("back", a="", b="a")
        assert held[back_to].arrived.wait(30)
        copy = copied(fleet.redis)
        held[back_to].go.set()
        assert held[later].arrived.wait(30)
        version = fleet.jobs.standing(job_id).version

        go_back(fleet.redis, copy)
        went_back_to = fleet.jobs.standing(job_id).version
        held[later].go.set()

        fleet.ends_well(job_id, within_s=60)
        assert went_back_to < version
        assert all(1 <= script.calls["back", who, 1] <= 2 for who in ORDER)
        assert script.calls["back", back_to, 1] == 2, "its answer was lost with the data"
        fleet.ends_well(fleet.submit("afterwards", a=""))
        fleet.jobs.ledger.connection.close()
