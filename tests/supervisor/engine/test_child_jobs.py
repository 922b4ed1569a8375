"""Child jobs: each step of a sub-supervisor has one job, and its parent gets one result, after
every crash.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import (
    CancelRequested,
    HandoffFinished,
    HandoffIssued,
    JobStatus,
    JobSubmitted,
    ParentTold,
)
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Priority
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.request import Request
from tests.supervisor.shell import Shell
from tests.supervisor.workflows.writing import workflow

TEAMS = """
    id: qdrant, specialist: supervisor, task: "Find out what Qdrant costs."
    id: milvus, specialist: supervisor, task: "Find out what Milvus costs."
    id: report, specialist: writer, task: "Compare {request}", depends_on: [qdrant, milvus]
"""


def submit(shell: Shell, folder: Path, limits: JobLimits | None = None) -> JobId:
    return shell.jobs.submit(
        Request("Compare them.", workflow=workflow(folder, TEAMS), limits=limits or JobLimits())
    )


def children(shell: Shell, job_id: JobId) -> list[JobId]:
    return [
        event.child.job_id
        for event in shell.events(job_id)
        if isinstance(event, HandoffIssued) and event.child
    ]


def run_all(shell: Shell, job_id: JobId, status: ResultStatus = ResultStatus.OK) -> JobStatus:
    """The job and all below it, to the end. `status`: of every handoff of an agent."""
    for _ in range(40):
        shell.advance(job_id)
        for child in children(shell, job_id):
            if shell.store.jobs.standings([child]):
                run_all(shell, child, status) if not shell.jobs.standing(
                    child
                ).status.ended else shell.advance(child)
        for event in shell.open(job_id):
            shell.do(job_id, event, status)
        if shell.jobs.standing(job_id).status.ended:
            shell.advance(job_id)
            return shell.jobs.standing(job_id).status
    raise AssertionError(shell.kinds(job_id))


def test_steps_of_sub_supervisors_are_jobs_and_their_answers_are_results(
    shell: Shell, tmp_path: Path
) -> None:
    job_id = submit(shell, tmp_path)

    assert run_all(shell, job_id) is JobStatus.OK

    made = children(shell, job_id)
    assert len(made) == len(set(made)) == 2
    first = shell.events(made[0])[0]
    assert isinstance(first, JobSubmitted)
    assert first.parent is not None
    assert (first.parent.job_id, first.parent.handoff_id, first.depth) == (job_id, "qdrant.1", 1)
    assert [shell.jobs.standing(child).status for child in made] == [JobStatus.OK, JobStatus.OK]
    assert shell.kinds(made[0])[-1] == "parent_told"
    results = {one["step_id"]: one for one in shell.jobs.result(job_id).results}
    assert str(results["qdrant"]["output"]).startswith("What ")
    assert "offline" in str(results["qdrant"]["model"])


def whose(shell: Shell, job_id: JobId) -> list[bytes]:
    """What its messages get their places in queues by."""
    found: list[bytes] = shell.store.connection.redis.hmget(keys.job(job_id), "tenant", "priority")
    return found


def test_all_jobs_of_a_tree_and_their_follow_ups_have_one_tenant_and_priority(
    shell: Shell, tmp_path: Path
) -> None:
    asked = Request(
        "Compare them.", workflow=workflow(tmp_path, TEAMS), tenant="ann", priority=Priority.BATCH
    )
    job_id = shell.jobs.submit(asked)
    assert run_all(shell, job_id) is JobStatus.OK
    assert {
        (one.tenant, one.priority)
        for one in map(shell.jobs.result, (job_id, *children(shell, job_id)))
    } == {("ann", Priority.BATCH)}
    assert [whose(shell, one) for one in (job_id, *children(shell, job_id))] == [
        [b"ann", b"batch"]
    ] * 3

    after = [
        Request("Now as a table.", after=job_id),
        Request("Now as a table.", after=job_id, priority=Priority.INTERACTIVE),
    ]
    assert [whose(shell, shell.jobs.submit(one)) for one in after] == [
        [b"default", b"batch"],
        [b"default", b"interactive"],
    ]


def test_a_job_counts_its_childrens_spending(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path)
    run_all(shell, job_id)

    of_children = [shell.jobs.standing(child).turns for child in children(shell, job_id)]

    assert min(of_children) > 0
    assert shell.jobs.standing(job_id).turns == sum(of_children) + 1, "and its own assessor's turn"
    handed_over = [
        one for one in shell.jobs.result(job_id).handoffs if one["assigned_to"] == "supervisor"
    ]
    assert [one["usage"]["turns"] for one in handed_over] == of_children


def test_a_child_that_fails_is_not_tried_again_as_itself(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path)

    run_all(shell, job_id, ResultStatus.FAILED)

    made = [
        event
        for event in shell.events(job_id)
        if isinstance(event, HandoffIssued) and event.step_id == "qdrant"
    ]
    assert [event.assigned_to for event in made] == ["supervisor", "generalist"]


def test_cancelling_a_job_cancels_its_descendants(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path)
    shell.advance(job_id)
    child = children(shell, job_id)[0]
    shell.advance(child)

    shell.jobs.cancel(job_id)
    shell.advance(job_id)
    shell.advance(child)

    assert shell.jobs.standing(child).status is JobStatus.CANCELLED
    assert CancelRequested(by=job_id) in shell.events(child)
    assert shell.open(child) == []
    assert shell.kinds(child)[-1] == "parent_told"
    assert "handoff_finished" not in shell.kinds(job_id)


def test_a_child_that_is_cancelled_by_itself_is_a_gap_of_its_parent(
    shell: Shell, tmp_path: Path
) -> None:
    job_id = submit(shell, tmp_path, JobLimits(max_rounds=0))
    shell.advance(job_id)
    child = children(shell, job_id)[0]

    shell.jobs.cancel(child)
    assert run_all(shell, job_id) is JobStatus.PARTIAL

    assert [gap["step"] for gap in shell.jobs.result(job_id).gaps] == ["qdrant"]


def test_another_supervisor_starts_children_after_a_crash_before_their_begin(
    shell: Shell, tmp_path: Path
) -> None:
    """A second evaluation finds the handoff without its job: the first supervisor recorded the
    handoff and then died.
    """
    job_id = submit(shell, tmp_path)
    shell.dispatcher.dies_waking = True
    with pytest.raises(KeyboardInterrupt):
        shell.advance(job_id)
    begun = [child for child in children(shell, job_id) if shell.store.jobs.standings([child])]
    shell.dispatcher.dies_waking = False
    assert len(begun) == 1, "the second had no turn"

    shell.another().advance(job_id)

    assert all(shell.store.jobs.standings([child]) for child in children(shell, job_id))
    assert run_all(shell, job_id) is JobStatus.OK
    assert all(
        sum(kind == "job_submitted" for kind in shell.kinds(child)) == 1
        for child in children(shell, job_id)
    )


def test_a_crash_while_a_child_reports_gives_its_parent_one_result(
    shell: Shell, tmp_path: Path
) -> None:
    job_id = submit(shell, tmp_path)
    shell.advance(job_id)
    child = children(shell, job_id)[0]
    shell.advance(child)
    while not shell.jobs.standing(child).status.ended:
        for event in shell.open(child):
            shell.do(child, event)
        shell.dispatcher.dies_waking = True
        try:
            shell.advance(child)
        except KeyboardInterrupt:
            assert shell.kinds(child)[-1] == "job_ended"
        shell.dispatcher.dies_waking = False

    shell.another().advance(child)
    shell.another().advance(child)

    assert shell.kinds(child)[-1] == "parent_told"
    assert sum(isinstance(event, ParentTold) for event in shell.events(child)) == 1
    assert sum(isinstance(event, HandoffFinished) for event in shell.events(job_id)) == 1


def test_a_child_cannot_be_retried_or_deleted_alone(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path)
    run_all(shell, job_id, ResultStatus.FAILED)
    child = children(shell, job_id)[0]

    with pytest.raises(UserError, match=f"{child} does a step of {job_id}: retry that job"):
        shell.jobs.retry(child)
    with pytest.raises(UserError, match=f"{child} does a step of {job_id}: delete that job"):
        shell.jobs.delete(child)


def test_deleting_a_job_deletes_its_descendants(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path)
    run_all(shell, job_id)
    made = children(shell, job_id)

    shell.jobs.delete(job_id)

    assert shell.store.jobs.standings([job_id, *made]) == []
    left = [
        name.decode()
        for name in shell.store.connection.redis.scan_iter("handoff:*")
        if any(one in name.decode() for one in (job_id, *made))
    ]
    assert left == []


def test_no_child_is_in_the_list_of_jobs(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path)
    run_all(shell, job_id)

    assert [one.job_id for one in shell.jobs.newest()] == [job_id]


def test_a_workflow_with_sub_supervisors_is_refused_if_the_job_may_have_no_child(
    shell: Shell, tmp_path: Path
) -> None:
    with pytest.raises(
        UserError, match="step qdrant is given to a sub-supervisor, and --max-depth 0 allows none"
    ):
        submit(shell, tmp_path, JobLimits(max_depth=0))
