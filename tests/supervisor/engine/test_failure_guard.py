"""A job freezes its supervisors: no evaluation completes. After several in a row, a path without
any decision ends the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claims import MAX_LOOKS
from handoff_queue.shared.store.frozen_process import FROZEN_AFTER_LEASES
from handoff_queue.shared.store.journal import Commit
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.events import CancelRequested, JobEnded, JobStatus, Recorded
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.engine.failure_guard import MOST_CONFLICTS, MOST_STUMBLES
from handoff_queue.supervisor.lifecycle.commands import Command
from handoff_queue.supervisor.lifecycle.decide import decide
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.state import JobState
from tests.doubles.jobs import expire_lease_of
from tests.doubles.sweep_states import add_unfinished_evaluations, count_unfinished_evaluations
from tests.supervisor.shell import SETTINGS, Shell
from tests.waiting import wait_until

LONG_AGO = tuple(
    FROZEN_AFTER_LEASES * SETTINGS.lease_s * (MAX_LOOKS - n) + 60 - n for n in range(MAX_LOOKS)
)
PLANNER = HandoffId("planner.1")
SERVED = ("researcher", "analyst", "writer", "coder", "generalist", "reviewer")


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    made = Shell(
        redis_url,
        make_app("test", redis_url, SETTINGS, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)),
    )
    made.serve(*SERVED)
    yield made
    made.close()


def never_comes_back(*_: Any, **__: Any) -> Any:
    """Stands for a call that freezes its process, which is ended then."""
    raise KeyboardInterrupt


def froze(shell: Shell, job_id: JobId) -> None:
    add_unfinished_evaluations(shell.store, job_id, *LONG_AGO)
    shell.advance(job_id)


def test_completed_evaluations_leave_no_record(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)  # routes, plans, issues: roles run in it
    after_the_plan = count_unfinished_evaluations(shell.store, job_id)
    for event in shell.open(job_id):
        shell.do(job_id, event)
    shell.advance(job_id)
    for event in shell.open(job_id):
        shell.do(job_id, event)
    shell.advance(job_id)

    assert (after_the_plan, count_unfinished_evaluations(shell.store, job_id)) == (0, 0)


def test_an_evaluation_that_dies_during_the_decision_stays_recorded(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shell.submit()
    monkeypatch.setattr("handoff_queue.supervisor.engine.decisions.decide", never_comes_back)

    with pytest.raises(KeyboardInterrupt):
        shell.advance(job_id)

    assert count_unfinished_evaluations(shell.store, job_id) == 1


def dies_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every decision after the plan kill the process."""

    def decide_or_die(state: JobState, seen: Observations, now: float) -> tuple[Command, ...]:
        return never_comes_back() if state.plan else decide(state, seen, now)

    monkeypatch.setattr("handoff_queue.supervisor.engine.decisions.decide", decide_or_die)


def test_the_decision_on_a_roles_result_runs_under_the_roles_claim(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shell.submit()
    dies_of_a_plan(monkeypatch)

    with pytest.raises(KeyboardInterrupt):
        shell.advance(job_id)

    assert shell.store.jobs.handoffs(job_id, [PLANNER])[PLANNER].state == "running"
    assert count_unfinished_evaluations(shell.store, job_id) == 0, "the claim shows it"


def test_a_lost_claim_leads_to_a_recorded_evaluation(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a handoff that has nothing to do with it would be given up, and its call paid for
    each time.
    """
    job_id = shell.submit()
    dies_of_a_plan(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        shell.advance(job_id)
    expire_lease_of(shell.store, job_id, PLANNER)

    with pytest.raises(KeyboardInterrupt):
        shell.advance(job_id, [PLANNER])

    assert shell.store.jobs.handoffs(job_id, [PLANNER])[PLANNER].state == "done"
    assert count_unfinished_evaluations(shell.store, job_id) == 1


def test_an_evaluation_with_a_short_outage_of_redis_does_not_stay_recorded(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shell.submit()

    def is_away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("for a moment")

    monkeypatch.setattr(shell.store.journal, "set_due", is_away)
    monkeypatch.setattr(shell.store.claims, "commit_and_claim", is_away)
    with pytest.raises(StoreUnavailable):
        shell.advance(job_id)

    assert count_unfinished_evaluations(shell.store, job_id) == 0


def test_too_many_unfinished_evaluations_end_the_job_without_a_decision(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    out = shell.open(job_id)
    monkeypatch.setattr("handoff_queue.supervisor.engine.decisions.decide", never_comes_back)

    froze(fresh := shell.another(), job_id)

    last = fresh.events(job_id)[-1]
    assert isinstance(last, JobEnded)
    assert last.status is JobStatus.FAILED
    assert "froze or died, 3 times in a row" in str(last.reason)
    assert fresh.jobs.standing(job_id).status is JobStatus.FAILED
    assert (
        fresh.store.jobs.handoffs(job_id, [event.handoff_id for event in out])[
            out[0].handoff_id
        ].state
        == "dropped"
    )
    assert count_unfinished_evaluations(fresh.store, job_id) == 0


def test_another_evaluation_does_the_remaining_work(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)

    froze(shell, job_id)

    wait_until(lambda: job_id in shell.store.jobs.sweep().due, what="the job to be due")
    shell.advance(job_id)
    assert shell.store.connection.redis.zscore(keys.DUE, job_id) is None


def test_an_ended_job_with_unfinished_evaluations_is_left_alone(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    froze(shell, job_id)
    kinds = shell.kinds(job_id)

    froze(shell, job_id)

    assert shell.kinds(job_id) == kinds
    assert shell.store.connection.redis.zscore(keys.DUE, job_id) is None


def test_a_job_that_was_ended_so_can_be_tried_again(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    froze(shell, job_id)
    shell.jobs.retry(job_id)

    shell.advance(job_id)

    assert shell.jobs.standing(job_id).status is JobStatus.RUNNING
    assert shell.open(job_id)


def written_meanwhile(shell: Shell, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let a user request the cancelling this often between the read of the journal and the commit
    of the end.
    """
    commit, left = shell.store.journal.commit, [CancelRequested()] * times

    def later(order: Commit) -> list[Recorded]:
        if left:
            shell.store.journal.append(order.job_id, left.pop())
        return commit(order)

    monkeypatch.setattr(shell.store.journal, "commit", later)


def test_writes_to_a_frozen_job_do_not_prevent_its_end(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    written_meanwhile(shell, monkeypatch, 2)

    froze(shell, job_id)

    assert shell.jobs.standing(job_id).status is JobStatus.FAILED
    assert count_unfinished_evaluations(shell.store, job_id) == 0


@pytest.mark.slow
def test_the_same_of_a_job_at_which_our_code_fails(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    monkeypatch.setattr("handoff_queue.supervisor.engine.decisions.decide", lambda *_: 1 / 0)
    for _ in range(MOST_STUMBLES - 1):
        shell.advance(job_id)
    commit = shell.store.journal.commit
    conflicts = iter([True])

    def stale_once(order: Commit) -> list[Recorded]:
        return commit(
            replace(order, expected=order.expected - 1) if next(conflicts, False) else order
        )

    monkeypatch.setattr(shell.store.journal, "commit", stale_once)
    shell.advance(job_id)

    assert shell.jobs.standing(job_id).status is JobStatus.FAILED


def test_a_frozen_job_with_constant_writes_is_evaluated_again_later(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    written_meanwhile(shell, monkeypatch, 2 * MOST_CONFLICTS)

    froze(shell, job_id)

    assert not shell.jobs.standing(job_id).status.ended
    assert count_unfinished_evaluations(shell.store, job_id) == 0
    assert shell.store.connection.redis.zscore(keys.DUE, job_id) is not None


def test_a_frozen_job_that_this_version_cannot_read_becomes_a_dead_letter(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    shell.store.connection.redis.xadd(
        keys.log(job_id),
        {"e": '{"type": "of_tomorrow"}', "t": 1},
        id=f"{len(shell.events(job_id)) + 1}-0",
    )

    froze(shell.another(), job_id)

    assert count_unfinished_evaluations(shell.store, job_id) == 0
    assert len(shell.store.dead_letters.newest()) == 1
    assert shell.store.connection.redis.zscore(keys.DUE, job_id) is not None
