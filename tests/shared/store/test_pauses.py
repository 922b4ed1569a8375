"""A paused agent gets no claims. Its handoffs wait, and continue when the agent is unpaused."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict, HandoffClaim
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import Paused
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import compute_digest
from tests.doubles.jobs import (
    a_job,
    accounts,
    claim,
    expire_lease,
    granted_claim,
    issue,
    issued_event,
    model_reply,
    text_of,
    version_of,
)
from tests.doubles.redis_faults import kill_redis
from tests.doubles.sweep_states import QUEUE, age_issued, publish

WORST = WorstCase(input_tokens=10, output_tokens=10, microusd=10)


@pytest.fixture
def job_id(store: Store) -> JobId:
    job_id = a_job(store)
    issue(store, job_id, "find.1", "look.1")
    return job_id


def state_of(
    store: Store, job_id: JobId, handoff_id: str = "find.1"
) -> tuple[str, int, bool, bool]:
    info = store.jobs.read_handoffs(job_id, [HandoffId(handoff_id)])[HandoffId(handoff_id)]
    return info.state, info.claims, info.waits, info.lost


def take_turn(claimed: HandoffClaim) -> None:
    claimed.checkpoint(model_reply())
    claimed.reserve(WORST)


def test_no_claim_is_granted_and_the_handoff_is_paused(store: Store, job_id: JobId) -> None:
    store.pauses.pause("researcher", "it cites nonsense")

    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.PAUSED
    assert state_of(store, job_id) == ("issued", 0, True, False)


def test_paused_handoffs_are_listed_with_the_oldest_first(store: Store, job_id: JobId) -> None:
    store.pauses.pause("researcher", "")
    for handoff_id in ("look.1", "find.1"):
        claim(store, job_id, handoff_id)
        store.connection.redis.zadd(
            keys.PAUSED_HANDOFFS + "researcher", {f"{job_id}/{handoff_id}": len(handoff_id) * 1_000}
        )
    store.connection.redis.zadd(keys.PAUSED_HANDOFFS + "researcher", {f"{job_id}/find.1": 5_000})

    paused, count = store.pauses.read_paused_handoffs(["writer", "researcher"], 1)

    assert ([(handoff.handoff_id, handoff.agent, handoff.since) for handoff in paused], count) == (
        [("find.1", "researcher", 5.0)],
        2,
    )
    assert len(store.pauses.read_paused_handoffs(["researcher"], 9)[0]) == 2
    assert store.pauses.read_paused_handoffs([], 9) == ([], 0)


def test_other_agents_continue(store: Store, job_id: JobId) -> None:
    store.pauses.pause("writer", "")

    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.GRANTED


def test_a_role_of_the_supervisor_is_refused_with_the_commit_that_issues_it(store: Store) -> None:
    job_id = a_job(store)
    store.pauses.pause("planner", "")
    event = issued_event("planner.1", "planner", None)
    request = ClaimRequest(job_id, event.handoff_id, compute_digest(text_of("planner.1")), "s1")

    recorded, claimed = store.claims.commit_and_claim(
        Commit(job_id=job_id, expected=version_of(store, job_id), events=[event]), request
    )

    assert [item.event for item in recorded] == [event]
    assert claimed.verdict is ClaimVerdict.PAUSED
    assert state_of(store, job_id, "planner.1") == ("issued", 0, True, False)


def test_a_running_handoff_finishes_its_turn_makes_no_other_and_has_not_been_claimed(
    store: Store, job_id: JobId
) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    claimed.reserve(WORST)
    store.pauses.pause("researcher", "")

    with pytest.raises(Paused):
        take_turn(claimed)

    assert state_of(store, job_id) == ("issued", 0, True, False)
    assert (accounts(store, job_id)["turns"], accounts(store, job_id)["reserved_turns"]) == (1, 0)
    store.pauses.unpause("researcher")
    assert len(granted_claim(store, job_id, "find.1").checkpoints) == 1


def test_the_old_claim_of_a_paused_handoff_cannot_write(store: Store, job_id: JobId) -> None:
    claimed, other = granted_claim(store, job_id, "find.1"), granted_claim(store, job_id, "look.1")
    store.pauses.pause("researcher", "")
    with pytest.raises(Paused):
        take_turn(claimed)
    store.pauses.unpause("researcher")

    assert claimed.connection.run_script("renew_lease", *claimed.build_renewal()) == b"lost"
    assert other.connection.run_script("renew_lease", *other.build_renewal()) == b"ok"


def test_a_sweep_finds_a_paused_handoff_only_after_the_pause(store: Store, job_id: JobId) -> None:
    store.pauses.pause("researcher", "")
    for handoff_id in ("find.1", "look.1"):
        claim(store, job_id, handoff_id)

    assert store.due_work.sweep().due == {}
    assert store.pauses.unpause("researcher") == 2
    assert {
        job: sorted(handoff_ids) for job, handoff_ids in store.due_work.sweep().due.items()
    } == {job_id: ["find.1", "look.1"]}
    assert store.due_work.sweep().due == {}
    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.GRANTED


def test_a_message_in_the_queue_of_a_paused_agent_is_not_published_again(
    store: Store, job_id: JobId
) -> None:
    store.pauses.pause("researcher", "")
    publish(store, "find.1", "look.1")
    age_issued(store, job_id, 3_600, "find.1", "look.1")

    assert store.due_work.sweep().due == {}
    store.connection.redis.delete(QUEUE)


def test_a_lapsed_claim_of_a_paused_agent_is_found_once_and_paused(
    store: Store, job_id: JobId
) -> None:
    expire_lease(store, granted_claim(store, job_id, "find.1"))
    store.pauses.pause("researcher", "")

    assert store.due_work.sweep().due == {job_id: ["find.1"]}
    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.PAUSED
    assert state_of(store, job_id) == ("issued", 1, True, False)
    assert store.due_work.sweep().due == {}


def test_a_dropped_paused_handoff_leaves_no_entry(store: Store, job_id: JobId) -> None:
    store.pauses.pause("researcher", "")
    claim(store, job_id, "find.1")
    dropped = [HandoffId("find.1")]
    store.journal.commit(
        Commit(
            job_id=job_id,
            expected=version_of(store, job_id),
            events=[CancelRequested()],
            drop=dropped,
        )
    )

    assert store.connection.redis.zcard(keys.PAUSED_HANDOFFS + "researcher") == 0
    assert store.pauses.unpause("researcher") == 0


def test_presence_names_paused_agents_their_reason_and_their_waiting_handoffs(
    store: Store, job_id: JobId
) -> None:
    store.pauses.pause("researcher", "it cites nonsense")
    claim(store, job_id, "find.1")

    for there in (
        store.presence.read_presence([job_id]),
        store.presence.read_presence(
            handoffs=[(job_id, HandoffId(i)) for i in ("find.1", "look.1")]
        ),
    ):
        assert there.unclaimed == {job_id: {"find.1": "researcher", "look.1": "researcher"}}
        assert there.paused["researcher"].reason == "it cites nonsense"


def test_an_agent_that_is_not_paused_cannot_be_resumed(store: Store) -> None:
    assert store.pauses.unpause("researcher") is None


@pytest.mark.slow
def test_a_pause_outlives_its_redis(tmp_path: Path, processes: Processes) -> None:
    store = open_store(PrivateRedis(processes, tmp_path, append_only=True).start(), Settings())
    store.pauses.pause("researcher", "it cites nonsense")

    kill_redis(processes)

    assert [pause.reason for pause in store.pauses.read_all().values()] == ["it cites nonsense"]
    store.connection.close()
