"""A child job runs a handoff of its parent, counts at every level, and reports once."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import Cancelled, LeaseLost, VersionConflict
from handoff_queue.shared.types.events import CancelRequested, HandoffFinished, JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from tests.doubles.jobs import (
    a_job,
    accounts,
    finish,
    finish_with,
    granted_claim,
    handoff_key,
    issue,
    issue_to_a_child,
    model_reply,
    nothing_reserved,
    redis_dump,
    reservation_answer,
    reservation_verdict,
    result_of,
    version_of,
)

TEAM, ONE = HandoffId("team.1"), HandoffId("find.1")
CALL = WorstCase(100, 50, 10)


def job_tree(store: Store, **limits: int) -> tuple[JobId, JobId, JobId]:
    """Return a job, its child and its grandchild. The grandchild has an issued handoff.

    `limits` are those of the first job.
    """
    job_id = a_job(store, **limits)
    issue_to_a_child(store, job_id, TEAM)
    child = a_job(store, "default", (job_id, TEAM))
    issue_to_a_child(store, child, TEAM)
    grandchild = a_job(store, "default", (child, TEAM))
    issue(store, grandchild, ONE)
    return job_id, child, grandchild


def drop_handoffs(
    store: Store, job_id: JobId, *handoff_ids: HandoffId, status: str = "cancelled"
) -> None:
    version = version_of(store, job_id)
    fields = {"status": status}
    store.journal.commit(
        Commit(
            job_id=job_id,
            expected=version,
            events=[CancelRequested()],
            fields=fields,
            drop=handoff_ids,
        )
    )


def test_a_handoff_gets_one_child_after_any_number_of_begins(store: Store) -> None:
    job_id = a_job(store)
    issue_to_a_child(store, job_id, TEAM)
    a_job(store, "default", (job_id, TEAM))
    before = redis_dump(store)

    with pytest.raises(VersionConflict):
        a_job(store, "default", (job_id, TEAM))
    assert redis_dump(store) == before


@pytest.mark.parametrize("ending", ["dropped", "done", "cancelled", "deleted"])
def test_no_child_begins_for_an_unwanted_handoff(store: Store, ending: str) -> None:
    job_id = a_job(store)
    child = issue_to_a_child(store, job_id, TEAM)
    match ending:
        case "dropped":
            drop_handoffs(store, job_id, TEAM)
        case "done":
            store.connection.redis.hset(handoff_key(store, job_id, TEAM), "state", "done")
        case "cancelled":
            store.journal.append(job_id, CancelRequested(), {"cancelled": 1})
        case "deleted":
            store.connection.redis.delete(keys.job(job_id))
    before = redis_dump(store)

    with pytest.raises(VersionConflict):
        a_job(store, "default", (job_id, TEAM))
    assert redis_dump(store) == before
    assert store.jobs.read([child]) == []


def test_a_childs_spending_counts_at_every_level_above_it(store: Store) -> None:
    tree = job_tree(store)
    claimed = granted_claim(store, tree[2], ONE)

    claimed.reserve(CALL)
    assert [accounts(store, job_id)["reserved_turns"] for job_id in tree] == [1, 1, 1]
    claimed.checkpoint(model_reply(80, 20, 7))

    assert [accounts(store, job_id) for job_id in tree] == [accounts(store, tree[2])] * 3
    assert accounts(store, tree[0])["usd"] == 7
    of_handoffs = (
        store.jobs.read_handoffs(tree[0], [TEAM])[TEAM],
        store.jobs.read_handoffs(tree[1], [TEAM])[TEAM],
    )
    assert [
        (account.turns, account.input_tokens, account.cost_microusd) for account in of_handoffs
    ] == [
        (1, 80, 7),
        (1, 80, 7),
    ]


def test_no_child_spends_more_than_its_ancestors_have(store: Store) -> None:
    _, _, grandchild = job_tree(store, max_turns=1)
    claimed = granted_claim(store, grandchild, ONE)

    claimed.reserve(CALL)
    claimed.checkpoint(model_reply(80, 20, 7))

    assert reservation_answer(claimed, CALL) == [b"limit", b"ancestor", b"max_turns"]


def test_a_jobs_closing_reserve_is_kept_from_its_children(store: Store) -> None:
    job_id, _, grandchild = job_tree(store, max_turns=2, keep_turns=1)
    issue(store, job_id, "assessor.1", role="assessor", group=None)
    claimed = granted_claim(store, grandchild, ONE)
    claimed.reserve(CALL)
    claimed.checkpoint(model_reply(80, 20, 7))

    assert reservation_verdict(claimed, CALL) == b"max_turns"
    assert reservation_verdict(granted_claim(store, job_id, "assessor.1"), CALL) == b"ok"


def test_a_cancel_reaches_the_calls_of_all_children_within_a_turn(store: Store) -> None:
    job_id, _, grandchild = job_tree(store)
    claimed = granted_claim(store, grandchild, ONE)

    store.journal.append(job_id, CancelRequested(), {"cancelled": 1})

    with pytest.raises(Cancelled):
        claimed.renew()
    with pytest.raises(Cancelled):
        claimed.reserve(CALL)


def test_a_child_is_cancelled_with_its_dropped_handoff(store: Store) -> None:
    job_id, child, grandchild = job_tree(store)
    store.journal.set_due(child, None, version_of(store, child), "supervisor")

    drop_handoffs(store, job_id, TEAM)

    last_event = store.journal.read(child)[-1].event
    assert last_event == CancelRequested(by=job_id)
    assert store.jobs.read([child])[0].cancelled
    assert child in store.due_work.sweep().due, (
        "its supervisor is woken, and drops the grandchild in its turn"
    )
    assert not store.jobs.read([grandchild])[0].cancelled


def test_an_ended_child_is_not_changed(store: Store) -> None:
    job_id, child, _ = job_tree(store)
    drop_handoffs(store, child, TEAM, status=JobStatus.FAILED)
    version = version_of(store, child)

    drop_handoffs(store, job_id, TEAM)

    assert version_of(store, child) == version


def test_the_end_of_a_child_is_reported_to_its_parent_once(store: Store) -> None:
    job_id, child, _ = job_tree(store)
    claimed = store.claims.open_claim_of_child(job_id, TEAM, child)
    result = result_of(claimed)

    first = finish_with(claimed, result)
    again = finish_with(store.claims.open_claim_of_child(job_id, TEAM, child), result)

    assert first == again
    assert (
        sum(isinstance(recorded.event, HandoffFinished) for recorded in store.journal.read(job_id))
        == 1
    )
    with pytest.raises(LeaseLost):
        finish_with(store.claims.open_claim_of_child(job_id, TEAM, JobId("j-0123456789ab")), result)


def test_a_call_in_flight_of_a_dropped_grandchild_is_booked_at_every_level(store: Store) -> None:
    tree = job_tree(store)
    granted_claim(store, tree[2], ONE).reserve(CALL)

    drop_handoffs(store, tree[0], TEAM)
    drop_handoffs(store, tree[1], TEAM)
    drop_handoffs(store, tree[2], ONE)

    assert all(nothing_reserved(store, job_id) for job_id in tree)
    assert [accounts(store, job_id)["cut_calls"] for job_id in tree] == [1, 1, 1]


def test_a_child_lives_as_long_as_its_parent_and_is_in_no_list(store: Store) -> None:
    tree = job_tree(store)
    redis = store.connection.redis
    for job_id in tree[1:]:
        redis.expire(keys.job(job_id), 60)

    drop_handoffs(store, tree[0])

    assert all(redis.pttl(keys.job(job_id)) > 60_000 for job_id in tree)
    assert store.jobs.list_newest(10) == [tree[0]]
    parent, child, grandchild = store.jobs.read(tree)
    assert (parent.parent, child.parent, grandchild.parent) == (None, tree[0], tree[1])
    assert child.submitted_at > 0


def test_a_deleted_parent_does_not_come_back_with_its_childs_spending(
    store: Store,
) -> None:
    job_id, child, grandchild = job_tree(store)
    claimed = granted_claim(store, grandchild, ONE)
    claimed.reserve(CALL)

    store.jobs.delete(job_id)
    assert finish(claimed) is not None

    assert store.jobs.read([job_id]) == []
    assert accounts(store, child)["turns"] == 1
