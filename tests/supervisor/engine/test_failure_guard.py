"""A job whose evaluations never complete is ended without a decision after several attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict
from handoff_queue.shared.store.claim_requests import MAX_FAILED_EVALUATIONS
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.job_evaluation_lease import FROZEN_AFTER_LEASES
from handoff_queue.shared.trust.key_files import find_private_key_file, make_keys, rotate_key
from handoff_queue.shared.types.errors import StoreUnavailable, UnusableSubmission
from handoff_queue.shared.types.events import (
    CancelRequested,
    JobEnded,
    JobStatus,
    RecordedEvent,
    WebhookTried,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.engine.failure_guard import MAX_CONFLICTS, MAX_FAILURES
from handoff_queue.supervisor.lifecycle.commands import Command
from handoff_queue.supervisor.lifecycle.decide import decide
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.state import JobState
from tests.doubles.jobs import expire_lease_of
from tests.doubles.sweep_states import add_unfinished_evaluations, count_unfinished_evaluations
from tests.supervisor.shell import SETTINGS, Shell, running_shell
from tests.waiting import wait_until

LONG_AGO = tuple(
    FROZEN_AFTER_LEASES * SETTINGS.lease_s * (MAX_FAILED_EVALUATIONS - n) + 60 - n
    for n in range(MAX_FAILED_EVALUATIONS)
)
PLANNER = HandoffId("planner.1")
SERVED = ("researcher", "analyst", "writer", "coder", "generalist", "reviewer")


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url, *SERVED) as supervisor:
        yield supervisor


def freeze(*_: Any, **__: Any) -> Any:
    """Stand for a call that freezes its process until the process is killed."""
    raise KeyboardInterrupt


def freeze_evaluations(shell: Shell, job_id: JobId) -> None:
    add_unfinished_evaluations(shell.store, job_id, *LONG_AGO)
    shell.advance(job_id)


def test_completed_evaluations_leave_no_record(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)  # routes, plans and issues, so roles run
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
    monkeypatch.setattr("handoff_queue.supervisor.engine.decision_maker.decide", freeze)

    with pytest.raises(KeyboardInterrupt):
        shell.advance(job_id)

    assert count_unfinished_evaluations(shell.store, job_id) == 1


def die_once_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every decision after the plan kill its process."""

    def decide_or_die(
        state: JobState, observations: Observations, now: float
    ) -> tuple[Command, ...]:
        return freeze() if state.plan else decide(state, observations, now)

    monkeypatch.setattr("handoff_queue.supervisor.engine.decision_maker.decide", decide_or_die)


def test_the_decision_on_a_roles_result_runs_under_the_roles_claim(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shell.submit()
    die_once_planned(monkeypatch)

    with pytest.raises(KeyboardInterrupt):
        shell.advance(job_id)

    assert shell.store.jobs.read_handoffs(job_id, [PLANNER])[PLANNER].state == "running"
    assert count_unfinished_evaluations(shell.store, job_id) == 0, "the claim shows it"


def test_a_lost_claim_leads_to_a_recorded_evaluation(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the unrelated handoff would be given up, and its call would be paid for each
    time.
    """
    job_id = shell.submit()
    die_once_planned(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        shell.advance(job_id)
    expire_lease_of(shell.store, job_id, PLANNER)

    with pytest.raises(KeyboardInterrupt):
        shell.advance(job_id, [PLANNER])

    assert shell.store.jobs.read_handoffs(job_id, [PLANNER])[PLANNER].state == "done"
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
    open_handoffs = shell.open(job_id)
    monkeypatch.setattr("handoff_queue.supervisor.engine.decision_maker.decide", freeze)

    freeze_evaluations(fresh := shell.another(), job_id)

    last = fresh.events(job_id)[-1]
    assert isinstance(last, JobEnded)
    assert last.status is JobStatus.FAILED
    assert "froze or died, 3 times in a row" in str(last.reason)
    assert fresh.jobs.info(job_id).status is JobStatus.FAILED
    assert (
        fresh.store.jobs.read_handoffs(job_id, [event.handoff_id for event in open_handoffs])[
            open_handoffs[0].handoff_id
        ].state
        == "dropped"
    )
    assert count_unfinished_evaluations(fresh.store, job_id) == 0


def test_names_of_lost_handoffs_that_are_not_names_end_no_job(shell: Shell) -> None:
    """A worker that was taken over may send them in a wake-up."""
    job_id = shell.submit()
    shell.advance(job_id)
    for _ in range(MAX_FAILURES):
        shell.advance(job_id, [HandoffId("\ud800"), HandoffId("other.1")])

    assert not [event for event in shell.events(job_id) if isinstance(event, JobEnded)]
    assert shell.store.dead_letters.list_newest() == []


def test_another_evaluation_does_the_remaining_work(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)

    freeze_evaluations(shell, job_id)

    wait_until(lambda: job_id in shell.store.due_work.sweep().due, expected="the job to be due")
    shell.advance(job_id)
    assert shell.store.connection.redis.zscore(keys.DUE, job_id) is None


def test_an_ended_job_with_unfinished_evaluations_is_left_alone(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    freeze_evaluations(shell, job_id)
    kinds = shell.kinds(job_id)

    freeze_evaluations(shell, job_id)

    assert shell.kinds(job_id) == kinds
    assert shell.store.connection.redis.zscore(keys.DUE, job_id) is None


def test_a_job_that_the_guard_ended_can_be_retried(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    freeze_evaluations(shell, job_id)
    shell.jobs.retry(job_id)

    shell.advance(job_id)

    assert shell.jobs.info(job_id).status is JobStatus.RUNNING
    assert shell.open(job_id)


def append_before_commits(shell: Shell, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Append a cancel request before each of the next `times` commits, so that they conflict."""
    commit, left = shell.store.journal.commit, [CancelRequested()] * times

    def later(order: Commit) -> list[RecordedEvent]:
        if left:
            shell.store.journal.append(order.job_id, left.pop())
        return commit(order)

    monkeypatch.setattr(shell.store.journal, "commit", later)


def test_writes_to_a_frozen_job_do_not_prevent_its_end(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    append_before_commits(shell, monkeypatch, 2)

    freeze_evaluations(shell, job_id)

    assert shell.jobs.info(job_id).status is JobStatus.FAILED
    assert count_unfinished_evaluations(shell.store, job_id) == 0


def test_the_end_of_a_frozen_job_is_reported_after_results_that_came_before_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is committed after the results of workers. The state must have their versions."""
    job_id = shell.jobs.submit(
        Request("Compare the pumps and the valves", webhook_url="http://127.0.0.1:9/hook")
    )
    shell.advance(job_id)
    commit, running = shell.store.journal.commit, list(shell.open(job_id)[:2])
    assert len(running) == 2

    def after_a_result(order: Commit) -> list[RecordedEvent]:
        if running:
            shell.do(job_id, running.pop())
        return commit(order)

    monkeypatch.setattr(shell.store.journal, "commit", after_a_result)
    freeze_evaluations(shell, job_id)
    shell.advance(job_id)

    assert any(isinstance(event, WebhookTried) for event in shell.events(job_id))


@pytest.mark.slow
def test_a_write_conflict_does_not_prevent_the_end_of_a_failing_job(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    monkeypatch.setattr("handoff_queue.supervisor.engine.decision_maker.decide", lambda *_: 1 / 0)
    for _ in range(MAX_FAILURES - 1):
        shell.advance(job_id)
    commit = shell.store.journal.commit
    conflicts = iter([True])

    def stale_once(order: Commit) -> list[RecordedEvent]:
        return commit(
            replace(order, expected=order.expected - 1) if next(conflicts, False) else order
        )

    monkeypatch.setattr(shell.store.journal, "commit", stale_once)
    shell.advance(job_id)

    assert shell.jobs.info(job_id).status is JobStatus.FAILED


def test_a_frozen_job_with_constant_writes_is_evaluated_again_later(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    append_before_commits(shell, monkeypatch, 2 * MAX_CONFLICTS)

    freeze_evaluations(shell, job_id)

    assert not shell.jobs.info(job_id).status.has_ended
    assert count_unfinished_evaluations(shell.store, job_id) == 0
    assert shell.store.connection.redis.zscore(keys.DUE, job_id) is not None


def test_a_frozen_job_that_this_version_cannot_read_becomes_a_dead_letter(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    shell.store.connection.redis.rpush(keys.log(job_id), '1 {"type": "of_tomorrow"}')

    freeze_evaluations(shell.another(), job_id)

    assert count_unfinished_evaluations(shell.store, job_id) == 0
    assert len(shell.store.dead_letters.list_newest()) == 1
    assert shell.store.connection.redis.zscore(keys.DUE, job_id) is not None


@pytest.fixture
def signed(redis_url: str, tmp_path: Path) -> Iterator[Shell]:
    """A supervisor that signs its events."""
    make_keys(tmp_path)
    key = find_private_key_file(tmp_path, "supervisor")
    settings = SETTINGS.model_copy(update={"keys": tmp_path, "signing_key": key})
    with running_shell(redis_url, settings=settings) as supervisor:
        yield supervisor


def lose_journal(shell: Shell, job_id: JobId) -> None:
    shell.store.connection.redis.delete(keys.log(job_id))


def lose_first_event(shell: Shell, job_id: JobId) -> None:
    shell.store.connection.redis.lpop(keys.log(job_id))


def lose_key(shell: Shell, job_id: JobId) -> None:
    for _ in range(2):
        rotate_key(cast("Path", shell.settings.keys), "supervisor")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fixture", "lose"),
    [
        ("shell", lose_journal),
        ("shell", lose_first_event),
        ("signed", lose_journal),
        ("signed", lose_key),
    ],
)
def test_a_job_that_has_lost_its_submission_ends_as_failed_and_so_do_its_handoffs(
    request: pytest.FixtureRequest, fixture: str, lose: Callable[[Shell, JobId], None]
) -> None:
    shell: Shell = request.getfixturevalue(fixture)
    job_id = shell.submit()
    shell.advance(job_id)
    issued = shell.open(job_id)
    lose(shell, job_id)

    with closing(shell.another()) as supervisor:
        for _ in range(MAX_FAILURES - 1):
            supervisor.advance(job_id)
        assert not supervisor.jobs.info(job_id).status.has_ended
        for _ in range(3):
            supervisor.advance(job_id)

        assert supervisor.jobs.info(job_id).status is JobStatus.FAILED
        assert shell.store.connection.redis.zscore(keys.DUE, job_id) is None
        claims = [supervisor.claim(job_id, event).verdict for event in issued]
        assert set(claims) <= {ClaimVerdict.CANCELLED}
        (letter,) = [
            letter
            for letter in shell.store.dead_letters.list_newest()
            if "cannot continue" in letter.reason
        ]
        assert "the submission of" in letter.reason
        with pytest.raises(UnusableSubmission):
            supervisor.jobs.result(job_id)
        supervisor.jobs.delete(job_id)


def test_a_message_about_a_deleted_job_has_no_effect(shell: Shell) -> None:
    job_id = shell.submit()
    shell.store.jobs.delete(job_id)

    shell.advance(job_id)

    assert shell.store.jobs.read([job_id]) == []
    assert shell.store.connection.redis.keys(f"{keys.job(job_id)}*") == []
    assert shell.store.dead_letters.list_newest() == []
