"""The draft of a handoff can be read while the handoff runs. Its key has the role."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import JobId
from tests.doubles.jobs import finish, granted_claim, redis_dump, version_of
from tests.shared.store.conftest import HANDOFF_ID


@pytest.mark.parametrize("over", ["finished", "dropped"])
def test_a_draft_is_kept_until_the_handoff_is_over(store: Store, job_id: JobId, over: str) -> None:
    running = granted_claim(store, job_id, HANDOFF_ID)
    running.heartbeat("thinking", "Hm, a draft")
    running.renew()
    holding = [name for name, value in redis_dump(store).items() if b"Hm, a draft" in value]

    assert store.payloads.draft(job_id, HANDOFF_ID) == "Hm, a draft"
    (key,) = holding
    assert key.decode() == keys.draft(job_id, "researcher", HANDOFF_ID)
    assert store.connection.redis.pttl(key) > 0
    if over == "finished":
        finish(running)
    else:
        due_at = store.connection.now() + 60
        store.journal.commit(
            Commit(
                job_id=job_id,
                expected=version_of(store, job_id),
                events=[],
                drop=[HANDOFF_ID],
                due_at=due_at,
            )
        )
    assert store.payloads.draft(job_id, HANDOFF_ID) == ""


def test_a_draft_is_sent_with_the_next_heartbeat_of_any_kind(store: Store, job_id: JobId) -> None:
    running = granted_claim(store, job_id, HANDOFF_ID)
    running.heartbeat("thinking", "Too early to leave by itself")
    assert store.payloads.draft(job_id, HANDOFF_ID) == ""

    store.connection.run_script_for_each("renew_lease", [running.build_renewal()])
    assert store.payloads.draft(job_id, HANDOFF_ID) == "Too early to leave by itself"
