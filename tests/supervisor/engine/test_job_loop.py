"""`advance(job)` is idempotent: repeated, late and concurrent evaluations give the same job."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from handoff_queue.shared.broker.attempt_outcome import AttemptEnd
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.due_work import LOST_AFTER_S
from handoff_queue.shared.types.events import HandoffFinished, HandoffIssued, JobStatus
from handoff_queue.shared.types.handoff import AgentHandoff, ResultStatus
from handoff_queue.shared.types.ids import HandoffId, JobId, create_job_id
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.engine.role_runner import RoleRunner
from handoff_queue.supervisor.engine.sweeper import Sweeper
from tests.doubles.handoffs import a_spec
from tests.doubles.sweep_states import delete_messages
from tests.doubles.sweeping import sweeping
from tests.supervisor.shell import Shell, running_shell
from tests.waiting import wait_until

SERVED = ("researcher", "writer", "generalist")


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url, *SERVED) as supervisor:
        yield supervisor


def queued_messages(shell: Shell) -> int:
    return sum(int(shell.store.connection.redis.llen(name)) for name in SERVED)


def run_to_end(shell: Shell, job_id: JobId, status: ResultStatus = ResultStatus.OK) -> JobStatus:
    for _ in range(40):
        shell.advance(job_id)
        for event in shell.open(job_id):
            shell.do(job_id, event, status)
        if "job_ended" in shell.kinds(job_id):
            return shell.jobs.info(job_id).status
    raise AssertionError(shell.kinds(job_id))


def test_the_first_evaluation_plans_and_publishes_ready_steps(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)

    assert shell.kinds(job_id)[:4] == [
        "job_submitted",
        "handoff_issued",
        "handoff_finished",
        "plan_made",
    ]
    assert len(shell.open(job_id)) == queued_messages(shell) >= 2


def test_a_second_evaluation_changes_nothing(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    before = shell.kinds(job_id), queued_messages(shell)
    for _ in range(3):
        shell.advance(job_id)
        shell.another().advance(job_id)

    assert (shell.kinds(job_id), queued_messages(shell)) == before


def test_concurrent_supervisors_plan_once_and_publish_once(shell: Shell) -> None:
    job_id, start = shell.submit(), threading.Barrier(6)
    others = [shell, *(shell.another() for _ in range(5))]

    def advance(supervisor: Shell) -> None:
        start.wait()
        supervisor.advance(job_id)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(advance, others))

    issued = Counter(
        event.handoff_id for event in shell.events(job_id) if isinstance(event, HandoffIssued)
    )
    assert set(issued.values()) == {1}
    assert shell.kinds(job_id).count("plan_made") == 1
    assert len(shell.open(job_id)) == queued_messages(shell)
    for supervisor in others[1:]:
        supervisor.close()


def test_a_job_runs_from_its_request_to_its_end(shell: Shell) -> None:
    job_id = shell.submit()

    assert run_to_end(shell, job_id).has_ended
    assert shell.kinds(job_id).count("job_ended") == 1
    assert shell.store.connection.redis.zscore(keys.DUE, job_id) is None
    assert shell.store.connection.redis.zrange(keys.DUE, 0, -1) == []


def test_a_job_whose_steps_all_fail_ends_with_the_reason(shell: Shell) -> None:
    job_id = shell.submit()

    assert run_to_end(shell, job_id, ResultStatus.FAILED) is JobStatus.FAILED
    assert "it broke" in str(shell.jobs.result(job_id).notes)


def test_a_retry_uses_the_specialist_that_workers_announce_after_its_repair(shell: Shell) -> None:
    job_id = shell.submit()
    run_to_end(shell, job_id, ResultStatus.FAILED)
    issued = [event for event in shell.events(job_id) if isinstance(event, HandoffIssued)]
    name = next(event.assigned_to for event in issued if event.group)
    broken = {event.specialist for event in issued if event.assigned_to == name}
    repaired = a_spec(name=name).model_copy(update={"max_turns": 3})
    shell.announce(repaired)

    shell.jobs.retry(job_id)
    with closing(shell.another()) as supervisor:  # it has read no announcement before
        supervisor.advance(job_id)

    again = {event.specialist for event in shell.open(job_id) if event.assigned_to == name}
    assert len(broken) == 1
    assert again == {repaired.content_digest}


def test_every_handoff_has_exactly_the_results_of_its_dependencies(shell: Shell) -> None:
    job_id = shell.submit()
    run_to_end(shell, job_id)

    issued = [
        event for event in shell.events(job_id) if isinstance(event, HandoffIssued) and event.group
    ]
    texts = shell.store.payloads.get(job_id, [event.handoff.digest for event in issued])
    handoffs = [AgentHandoff.from_json(text) for text in texts.values()]
    assert any(handoff.depends_on for handoff in handoffs)
    assert all(
        [item.step_id for item in handoff.context] == list(handoff.depends_on)
        for handoff in handoffs
    )


def test_a_deleted_job_is_no_longer_evaluated(shell: Shell) -> None:
    job_id = create_job_id()
    shell.store.connection.redis.zadd(keys.DUE, {job_id: 1})
    shell.advance(job_id)

    assert shell.store.connection.redis.zscore(keys.DUE, job_id) is None


def test_without_workers_a_job_waits_and_is_evaluated_again_soon(shell: Shell) -> None:
    shell.leave()
    job_id = shell.submit()
    shell.advance(job_id)

    assert shell.kinds(job_id) == ["job_submitted"]
    due_ms = shell.store.connection.redis.zscore(keys.DUE, job_id)
    assert due_ms / 1000 - shell.store.connection.now() < 3


def test_messages_that_a_dying_supervisor_never_sent_are_sent_by_another(shell: Shell) -> None:
    job_id = shell.submit()
    shell.dispatcher.dies = True
    with pytest.raises(KeyboardInterrupt):
        shell.advance(job_id)
    assert queued_messages(shell) == 0
    open_handoffs = shell.open(job_id)
    age_messages(shell)

    other = shell.another()
    suspects = other.store.due_work.sweep().due
    assert set(suspects[job_id]) == {event.handoff_id for event in open_handoffs}
    other.advance(job_id, suspects[job_id])

    assert queued_messages(shell) == len(open_handoffs)
    assert run_to_end(other, job_id).has_ended
    other.close()


def age_messages(shell: Shell) -> None:
    """Move the publication of all unclaimed messages into the past, so that they count as lost."""
    redis = shell.store.connection.redis
    for name in (*redis.keys(keys.WAITING + "*"), *redis.keys(keys.OUT + "*")):
        for member in redis.zrange(name, 0, -1):
            redis.zincrby(name, -(LOST_AFTER_S + 2) * 1000, member)


def test_the_sweeper_wakes_a_supervisor_with_the_suspect_handoffs(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    delete_messages(shell.store, *SERVED)
    age_messages(shell)
    sweeper = Sweeper(shell.store, shell.dispatcher, "supervisor:1", interval_s=60, keep_s=60)

    assert sweeper.sweep() == 1
    assert sweeper.sweep() == 0
    assert shell.store.connection.redis.llen(SUPERVISOR_QUEUE) == 1


def test_a_job_that_was_never_announced_is_found_by_the_sweeper(shell: Shell) -> None:
    job_id = shell.submit()
    delete_messages(shell.store, SUBMISSIONS_QUEUE)
    age_messages(shell)
    sweeper = Sweeper(shell.store, shell.dispatcher, "supervisor:1", interval_s=0.01, keep_s=60)
    with sweeping(sweeper):
        wait_until(
            lambda: shell.store.connection.redis.llen(SUBMISSIONS_QUEUE) == 1,
            expected="an announcement",
        )
    assert shell.store.connection.redis.zscore(keys.WAITING + SUBMISSIONS_QUEUE, job_id)
    shell.advance(job_id)
    assert shell.store.connection.redis.zscore(keys.WAITING + SUBMISSIONS_QUEUE, job_id) is None


def test_untaken_wake_ups_are_sent_once(shell: Shell) -> None:
    shell.leave()
    job_ids = [shell.submit() for _ in range(20)]
    for job_id in job_ids:
        shell.advance(job_id)
    delete_messages(shell.store, SUBMISSIONS_QUEUE)
    sweeper = Sweeper(shell.store, shell.dispatcher, "supervisor:1", interval_s=60, keep_s=60)
    for _ in range(5):
        shell.store.connection.redis.zadd(keys.DUE, dict.fromkeys(job_ids, 1))
        sweeper.sweep()
        age_messages(shell)

    assert shell.store.connection.redis.llen(SUBMISSIONS_QUEUE) == len(job_ids)
    assert shell.store.connection.redis.llen(SUPERVISOR_QUEUE) == 0


def occupy_slots(shell: Shell) -> ExitStack:
    """Occupy all role slots of this supervisor."""
    taken = ExitStack()
    while not shell.role_runner.is_full:
        taken.enter_context(shell.role_runner.slot())
    return taken


def test_a_role_without_a_slot_goes_to_the_roles_queue_once_in_many_evaluations(
    shell: Shell,
) -> None:
    job_id, redis = shell.submit(), shell.store.connection.redis
    with occupy_slots(shell):
        for _ in range(3):
            shell.advance(job_id)
        shell.another().advance(job_id)
        assert redis.llen(ROLES_QUEUE) == 1

        delete_messages(shell.store, ROLES_QUEUE)
        age_messages(shell)
        assert shell.store.due_work.sweep().due == {job_id: [HandoffId("planner.1")]}
        for _ in range(3):
            shell.advance(job_id)
        assert redis.llen(ROLES_QUEUE) == 1
    assert "plan_made" not in shell.kinds(job_id)


def test_a_role_from_the_roles_queue_takes_a_slot_or_goes_back(shell: Shell) -> None:
    job_id = shell.submit()
    with occupy_slots(shell):
        shell.advance(job_id)
        (event,) = [event for event in shell.events(job_id) if isinstance(event, HandoffIssued)]
        text = shell.store.payloads.get(job_id, [event.handoff.digest])[event.handoff.digest]
        handoff = AgentHandoff.from_json(text)
        assert shell.advance.run_queued_role(handoff, text).end is AttemptEnd.HANDED_BACK
    assert not shell.role_runner.is_full

    assert shell.advance.run_queued_role(handoff, text).end is AttemptEnd.FINISHED
    assert "plan_made" in shell.kinds(job_id)
    assert not shell.store.connection.redis.exists(keys.WAITING + ROLES_QUEUE)


def test_a_supervisor_without_a_slot_waits_briefly(shell: Shell) -> None:
    """This runner may wait up to a minute. The default is a few milliseconds."""
    patient = RoleRunner(shell.attempts, 1, slot_wait_s=60)
    with ThreadPoolExecutor(1) as others:
        with patient.slot():
            waiting = others.submit(patient.slot().__enter__)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
        assert waiting.result(timeout=30) is True


def test_a_role_released_at_a_drain_is_run_by_another_supervisor_at_once(
    shell: Shell,
) -> None:
    job_id, other = shell.submit(), shell.another()
    shell.drain.begin(0.0)
    shell.advance(job_id)
    assert "plan_made" not in shell.kinds(job_id)

    assert shell.store.connection.redis.llen(SUPERVISOR_QUEUE) == 1
    other.advance(job_id)
    assert "plan_made" in shell.kinds(job_id)
    other.close()


def test_the_decisions_book_the_usage_of_the_results(shell: Shell) -> None:
    job_id = shell.submit()
    run_to_end(shell, job_id)

    turns = 0
    for event in shell.events(job_id):
        if isinstance(event, HandoffFinished):
            turns += event.turns
    verified = shell.store.connection.redis.hget(keys.job(job_id), "verified_turns")
    assert int(verified) == turns > 0


def test_the_event_of_a_handoff_has_its_limits(shell: Shell) -> None:
    job_id = shell.submit()
    run_to_end(shell, job_id)

    for event in shell.events(job_id):
        if isinstance(event, HandoffIssued):
            text = shell.store.payloads.get(job_id, [event.handoff.digest])[event.handoff.digest]
            limits = AgentHandoff.from_json(text).limits
            assert (event.max_tokens, event.deadline) == (limits.max_tokens, limits.deadline)
