"""The reasons why a job waits when no process serves its next step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.pauses import Pause
from handoff_queue.shared.store.presence import Presence
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import HandoffIssued, JobEnded, JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.waiting_reasons import (
    WaitingReason,
    find_waiting_reasons,
    read_waiting_reasons,
    with_waiting,
)
from tests.doubles.handoffs import a_spec
from tests.doubles.jobs import a_job, expire_lease, granted_claim, issue

JOB = JobInfo(JobId("j-0123456789ab"), JobStatus.RUNNING, 3, "Compare", 101.0, cancelled=False)
QUEUED = replace(JOB, status=JobStatus.QUEUED)


def presence_of(*queues: str, **unclaimed: str) -> Presence:
    """Return the live queues and the unclaimed handoffs.

    `a_1="poet"` means that the handoff a.1 waits in the queue of the unserved specialist poet.
    """
    waiting = {
        HandoffId(name.replace("_", ".")): specialist for name, specialist in unclaimed.items()
    }
    return Presence(frozenset(queues), {JOB.job_id: waiting} if waiting else {})


def reasons_of(job: JobInfo, presence: Presence) -> list[str]:
    return [str(reason) for reason in find_waiting_reasons(job, presence)]


def test_with_every_specialist_served_nothing_is_missing() -> None:
    assert reasons_of(JOB, presence_of("supervisor", "researcher")) == []
    assert reasons_of(QUEUED, presence_of("supervisor", "researcher")) == []


def test_a_step_of_an_unserved_specialist_is_named_with_the_remedy() -> None:
    assert reasons_of(JOB, presence_of("supervisor", s2_1="poet")) == [
        "step s2 waits for a worker of `poet`: start one"
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("anlayst", " (did you mean `analyst`?)"), ("reviewer", ""), ("poet", "")],
)
def test_a_step_of_a_misspelled_specialist_names_the_intended_one(name: str, hint: str) -> None:
    presence = presence_of("supervisor", "analyst", "writer", s2_1=name)

    assert reasons_of(JOB, presence) == [f"step s2 waits for a worker of `{name}`{hint}: start one"]


def test_steps_that_wait_for_the_same_specialist_are_in_one_line() -> None:
    lines = reasons_of(JOB, presence_of("supervisor", b_1="poet", a_2="poet", c_1="clerk"))

    assert lines == [
        "step c waits for a worker of `clerk`: start one",
        "steps a, b wait for a worker of `poet`: start one",
    ]


def test_of_many_steps_a_few_are_named_in_natural_order_and_the_rest_counted() -> None:
    queues = frozenset({"supervisor"})
    lines = reasons_of(
        JOB,
        Presence(queues, {JOB.job_id: {HandoffId(f"s_{n}.1"): "poet" for n in range(1, 8_384)}}),
    )

    assert lines == [
        "steps s_1, s_2, s_3, s_4, s_5 and 8,378 more wait for a worker of `poet`: start one"
    ]


def test_a_step_of_a_paused_agent_gives_the_reason_and_the_remedy_with_or_without_workers() -> None:
    for queues in (("supervisor", "poet"), ("supervisor",)):
        presence = replace(
            presence_of(*queues, s2_1="poet"), paused={"poet": Pause(at=1.0, reason="it rhymes")}
        )
        assert reasons_of(JOB, presence) == [
            "step s2 waits for `poet`, which is paused (it rhymes): unpause it"
        ]


@pytest.mark.parametrize("job", [JOB, QUEUED])
def test_without_a_supervisor_every_job_waits_for_a_supervisor(job: JobInfo) -> None:
    assert reasons_of(job, presence_of("researcher")) == [
        "the job waits for a supervisor: start one"
    ]


def test_an_unplannable_job_waits_for_an_allowed_worker() -> None:
    only = replace(QUEUED, specialists=("poet", "clerk"))

    assert reasons_of(QUEUED, presence_of("supervisor")) == [
        "the job waits for a worker of any specialist: start one"
    ]
    assert reasons_of(only, presence_of("supervisor", "researcher")) == [
        "the job waits for a worker of `poet` or `clerk`: start one"
    ]
    assert reasons_of(only, presence_of("supervisor", "clerk")) == []


def test_an_unplannable_job_names_five_of_many_allowed_specialists() -> None:
    many = replace(QUEUED, specialists=tuple(f"poet{number}" for number in range(1_000)))

    (reason,) = reasons_of(many, presence_of("supervisor"))

    assert "`poet3` or `poet4` or 995 others: start" in reason


@pytest.mark.parametrize("status", [status for status in JobStatus if status.has_ended])
def test_an_ended_job_does_not_wait(status: JobStatus) -> None:
    assert reasons_of(replace(JOB, status=status), presence_of(a_1="poet")) == []


# Reasons on a real store


def serve(store: Store, *names: str) -> Announcement:
    announcement = Announcement(
        worker="w1",
        specialists=tuple(a_spec(name=name) for name in names),
        slots=1,
        model="offline",
    )
    store.presence.announce(announcement)
    store.presence.announce_supervisor("s1")
    return announcement


def missing_roles_of(store: Store, job_id: JobId) -> list[str]:
    """Return the job's missing roles with their steps, and check that the list of jobs shows the
    same.
    """
    (job,) = store.jobs.read([job_id])
    issued_ids = [
        recorded.event.handoff_id
        for recorded in store.journal.read(job_id)
        if isinstance(recorded.event, HandoffIssued)
    ]
    waiting_reasons = read_waiting_reasons(store, job, issued_ids)
    assert [info.waiting_for for info in with_waiting(store, [job])] == [
        "; ".join(map(str, waiting_reasons))
    ]
    return [f"{role.awaited}: {', '.join(role.steps)}" for role in waiting_reasons]


def claim_in_new_job(store: Store) -> HandoffClaim:
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1")
    return granted_claim(store, job_id, "a.1")


def test_a_claimed_handoff_does_not_wait_and_an_unclaimed_one_does_after_the_last_worker_left(
    store: Store,
) -> None:
    announced = serve(store, "researcher")
    claimed = claim_in_new_job(store)
    assert missing_roles_of(store, claimed.job_id) == []

    store.presence.withdraw(announced)

    assert missing_roles_of(store, claimed.job_id) == ["a worker of `researcher`: b"]


def test_a_handoff_of_a_dead_worker_waits_again_when_its_lease_is_over(store: Store) -> None:
    announced = serve(store, "researcher")
    claimed = claim_in_new_job(store)
    store.presence.withdraw(announced)

    expire_lease(store, claimed)
    store.due_work.sweep()
    store.due_work.mark_sent(claimed.job_id, [claimed.handoff_id])

    assert missing_roles_of(store, claimed.job_id) == ["a worker of `researcher`: a, b"]
    serve(store, "researcher")
    assert missing_roles_of(store, claimed.job_id) == []


def test_handoffs_of_other_jobs_are_not_counted(store: Store) -> None:
    serve(store, "writer")
    own_job, other = a_job(store), a_job(store)
    issue(store, other, "x.1")

    assert missing_roles_of(store, own_job) == []
    assert [job.waiting_for for job in with_waiting(store, store.jobs.read([own_job, other]))] == [
        "",
        "step x waits for a worker of `researcher`: start one",
    ]


def test_a_withdrawn_supervisor_is_missed(store: Store) -> None:
    serve(store, "researcher")
    claimed = claim_in_new_job(store)

    store.presence.withdraw_supervisor("s1")

    assert missing_roles_of(store, claimed.job_id) == ["a supervisor: "]


def test_every_method_of_the_client_reports_the_reason(redis_url: str) -> None:
    jobs = client.connect(redis_url, Settings(offline=True))
    job_id = jobs.submit(Request("Compare.", specialists=("poet",)))
    jobs.store.presence.announce_supervisor("s1")
    waits = "the job waits for a worker of `poet`: start one"

    assert jobs.info(job_id).waiting_for == waits
    assert [job.waiting_for for job in jobs.newest()] == [waits]
    assert jobs.result(job_id).notes == (waits,)

    jobs.store.journal.append(job_id, JobEnded(status=JobStatus.FAILED), {"status": "failed"})
    assert (jobs.info(job_id).waiting_for, jobs.result(job_id).notes) == ("", ())
    jobs.store.connection.close()


def test_a_job_that_is_retried_before_its_plan_waits_for_the_same_again(
    redis_url: str,
) -> None:
    jobs = client.connect(redis_url, Settings(offline=True))
    job_id = jobs.submit(Request("Compare."))
    jobs.store.presence.announce_supervisor("s1")
    before = jobs.info(job_id).waiting_for
    jobs.store.journal.append(job_id, JobEnded(status=JobStatus.FAILED), {"status": "failed"})

    jobs.retry(job_id)

    assert before
    assert jobs.info(job_id).waiting_for == before
    jobs.store.connection.close()


def test_if_the_search_was_cut_short_the_rest_is_a_lower_bound() -> None:
    some = WaitingReason(
        "a worker of `poet`", "start one", tuple(f"s_{n}" for n in range(1, 1_001)), are_all=False
    )

    assert (
        str(some)
        == "steps s_1, s_2, s_3, s_4, s_5 and at least 995 more wait for a worker of `poet`:"
        " start one"
    )
