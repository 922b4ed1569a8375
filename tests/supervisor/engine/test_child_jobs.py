"""Each step of `supervisor` has one child job and gets one result, after every crash."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.types.budget_measures import SPENT_FIELDS
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
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.roles.role_events import make_plan_event
from tests.supervisor.shell import Shell
from tests.supervisor.workflows.workflow_files import make_workflow

TEAMS = """
    id: qdrant, specialist: supervisor, task: "Find out what Qdrant costs."
    id: milvus, specialist: supervisor, task: "Find out what Milvus costs."
    id: report, specialist: writer, task: "Compare {request}", depends_on: [qdrant, milvus]
"""


def submit(shell: Shell, folder: Path, limits: JobLimits | None = None) -> JobId:
    return shell.jobs.submit(
        Request(
            "Compare them.", workflow=make_workflow(folder, TEAMS), limits=limits or JobLimits()
        )
    )


def child_ids_of(shell: Shell, job_id: JobId) -> list[JobId]:
    return [
        event.child.job_id
        for event in shell.events(job_id)
        if isinstance(event, HandoffIssued) and event.child
    ]


def run_tree(shell: Shell, job_id: JobId, status: ResultStatus = ResultStatus.OK) -> JobStatus:
    """Run the job and its descendants to the end, and return the job's status.

    `status` is the status of every specialist's result.
    """
    for _ in range(40):
        shell.advance(job_id)
        for child in child_ids_of(shell, job_id):
            if shell.store.jobs.read([child]):
                run_tree(shell, child, status) if not shell.jobs.info(
                    child
                ).status.has_ended else shell.advance(child)
        for event in shell.open(job_id):
            shell.do(job_id, event, status)
        if shell.jobs.info(job_id).status.has_ended:
            shell.advance(job_id)
            return shell.jobs.info(job_id).status
    raise AssertionError(shell.kinds(job_id))


@pytest.mark.slow
def test_steps_of_sub_supervisors_are_jobs_and_their_answers_are_results(
    shell: Shell, tmp_path: Path
) -> None:
    job_id = submit(shell, tmp_path)

    assert run_tree(shell, job_id) is JobStatus.OK

    child_ids = child_ids_of(shell, job_id)
    assert len(child_ids) == len(set(child_ids)) == 2
    first = shell.events(child_ids[0])[0]
    assert isinstance(first, JobSubmitted)
    assert first.parent is not None
    assert (first.parent.job_id, first.parent.handoff_id, first.depth) == (job_id, "qdrant.1", 1)
    assert [shell.jobs.info(child).status for child in child_ids] == [
        JobStatus.OK,
        JobStatus.OK,
    ]
    assert shell.kinds(child_ids[0])[-1] == "parent_told"
    results = {result["step_id"]: result for result in shell.jobs.result(job_id).results}
    assert str(results["qdrant"]["output"]).startswith("What ")
    assert "offline" in str(results["qdrant"]["model"])


def tenant_and_priority(shell: Shell, job_id: JobId) -> list[bytes]:
    """Return the tenant and the priority, which determine the place of the job's messages."""
    values: list[bytes] = shell.store.connection.redis.hmget(keys.job(job_id), "tenant", "priority")
    return values


@pytest.mark.slow
def test_all_jobs_of_a_tree_and_their_follow_ups_have_one_tenant_and_priority(
    shell: Shell, tmp_path: Path
) -> None:
    request = Request(
        "Compare them.",
        workflow=make_workflow(tmp_path, TEAMS),
        tenant="ann",
        priority=Priority.BATCH,
    )
    job_id = shell.jobs.submit(request)
    assert run_tree(shell, job_id) is JobStatus.OK
    assert {
        (result.tenant, result.priority)
        for result in map(shell.jobs.result, (job_id, *child_ids_of(shell, job_id)))
    } == {("ann", Priority.BATCH)}
    assert [
        tenant_and_priority(shell, member) for member in (job_id, *child_ids_of(shell, job_id))
    ] == [[b"ann", b"batch"]] * 3

    after = [
        Request("Now as a table.", after=job_id, tenant="ann"),
        Request("Now as a table.", after=job_id, tenant="ann", priority=Priority.INTERACTIVE),
    ]
    assert [tenant_and_priority(shell, shell.jobs.submit(follow_up)) for follow_up in after] == [
        [b"ann", b"batch"],
        [b"ann", b"interactive"],
    ]


def test_a_job_counts_its_childrens_spending(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path)
    run_tree(shell, job_id)

    of_children = [shell.jobs.info(child).turns for child in child_ids_of(shell, job_id)]

    assert min(of_children) > 0
    assert shell.jobs.info(job_id).turns == sum(of_children) + 1, "and its own assessor's turn"
    handed_over = [
        handoff
        for handoff in shell.jobs.result(job_id).handoffs
        if handoff["assigned_to"] == "supervisor"
    ]
    assert [handoff["usage"]["turns"] for handoff in handed_over] == of_children


def test_a_failed_child_job_is_not_retried(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path)

    run_tree(shell, job_id, ResultStatus.FAILED)

    child_ids = [
        event
        for event in shell.events(job_id)
        if isinstance(event, HandoffIssued) and event.step_id == "qdrant"
    ]
    assert [event.assigned_to for event in child_ids] == ["supervisor", "generalist"]


def test_cancelling_a_job_cancels_its_descendants(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path)
    shell.advance(job_id)
    child = child_ids_of(shell, job_id)[0]
    shell.advance(child)

    shell.jobs.cancel(job_id)
    shell.advance(job_id)
    shell.advance(child)

    assert shell.jobs.info(child).status is JobStatus.CANCELLED
    assert CancelRequested(by=job_id) in shell.events(child)
    assert shell.open(child) == []
    assert shell.kinds(child)[-1] == "parent_told"
    assert "handoff_finished" not in shell.kinds(job_id)


def test_a_child_that_is_cancelled_alone_is_a_gap_of_its_parent(
    shell: Shell, tmp_path: Path
) -> None:
    job_id = submit(shell, tmp_path, JobLimits(max_rounds=0))
    shell.advance(job_id)
    child = child_ids_of(shell, job_id)[0]

    shell.jobs.cancel(child)
    assert run_tree(shell, job_id) is JobStatus.PARTIAL

    assert [gap["step"] for gap in shell.jobs.result(job_id).gaps] == ["qdrant"]


def test_another_supervisor_starts_children_after_a_crash_before_their_begin(
    shell: Shell, tmp_path: Path
) -> None:
    """The first supervisor dies after it recorded the handoff, so the handoff has no child job."""
    job_id = submit(shell, tmp_path)
    shell.dispatcher.dies_waking = True
    with pytest.raises(KeyboardInterrupt):
        shell.advance(job_id)
    started = [child for child in child_ids_of(shell, job_id) if shell.store.jobs.read([child])]
    shell.dispatcher.dies_waking = False
    assert len(started) == 1, "the second had no turn"

    shell.another().advance(job_id)

    assert all(shell.store.jobs.read([child]) for child in child_ids_of(shell, job_id))
    assert run_tree(shell, job_id) is JobStatus.OK
    assert all(
        sum(kind == "job_submitted" for kind in shell.kinds(child)) == 1
        for child in child_ids_of(shell, job_id)
    )


def test_a_crash_while_a_child_reports_gives_its_parent_one_result(
    shell: Shell, tmp_path: Path
) -> None:
    job_id = submit(shell, tmp_path)
    shell.advance(job_id)
    child = child_ids_of(shell, job_id)[0]
    shell.advance(child)
    while not shell.jobs.info(child).status.has_ended:
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


def lower_counters(shell: Shell, child: JobId) -> tuple[int, int]:
    """Set the counters of a child job to 0, as a worker can. Return its turns and output tokens."""
    info = shell.jobs.info(child)
    lowered = dict.fromkeys(SPENT_FIELDS, 0)
    shell.store.connection.redis.hset(keys.progress(child), mapping=lowered)
    return info.turns, info.usage.output_tokens


def run_child(shell: Shell, child: JobId, failing: str = "") -> None:
    """Run a child job to its end. Each handoff of the step `failing` fails."""
    for _ in range(9):
        shell.advance(child)
        for event in shell.open(child):
            status = ResultStatus.FAILED if event.step_id == failing else ResultStatus.OK
            shell.do(child, event, status)


def results_of_children(shell: Shell, job_id: JobId) -> list[HandoffFinished]:
    events = shell.events(job_id)
    issued = [event for event in events if isinstance(event, HandoffIssued)]
    of_children = [event.handoff_id for event in issued if event.child]
    finished = [event for event in events if isinstance(event, HandoffFinished)]
    return [event for event in finished if event.handoff_id in of_children]


def test_a_job_counts_the_results_of_its_child_if_a_worker_has_lowered_the_childs_counters(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker lowers them between the child's end and its report to the parent."""
    spent: list[tuple[int, int]] = []
    job_id = submit(shell, tmp_path)
    shell.advance(job_id)
    child = child_ids_of(shell, job_id)[0]
    monkeypatch.setattr(
        shell.dispatcher, "tell_ended", lambda _end: spent.append(lower_counters(shell, child))
    )

    run_child(shell, child)

    (finished,) = results_of_children(shell, job_id)
    assert min(spent[0]) > 0
    assert [(finished.turns, finished.usage.output_tokens)] == spent


@pytest.mark.slow
def test_a_job_counts_the_results_of_a_child_that_continues_with_lowered_counters(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker lowers them between the second end and the second report."""
    shell.serve("researcher", "writer")
    steps = 'id: team, specialist: supervisor, task: "Compare Qdrant and Milvus."'
    workflow = make_workflow(tmp_path, steps)
    job_id = shell.jobs.submit(Request("Go.", workflow=workflow, is_reviewed=False))
    shell.advance(job_id)
    (child,) = child_ids_of(shell, job_id)
    run_child(shell, child, failing="research_milvus")
    shell.advance(job_id)
    assert shell.jobs.info(job_id).status is JobStatus.PARTIAL, shell.kinds(job_id)
    (first,) = results_of_children(shell, job_id)
    shell.jobs.retry(job_id)
    shell.advance(job_id)
    assert child_ids_of(shell, job_id) == [child, child]
    spent: list[tuple[int, int]] = []
    monkeypatch.setattr(
        shell.dispatcher, "tell_ended", lambda _end: spent.append(lower_counters(shell, child))
    )

    run_child(shell, child)

    (_, second) = results_of_children(shell, job_id)
    assert min(second.turns, second.usage.output_tokens) > 0
    in_all = (first.turns + second.turns, first.usage.output_tokens + second.usage.output_tokens)
    assert [in_all] == spent


def test_a_child_cannot_be_retried_or_deleted_alone(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path)
    run_tree(shell, job_id, ResultStatus.FAILED)
    child = child_ids_of(shell, job_id)[0]

    with pytest.raises(
        UserError, match=f"{child} is a child job of {job_id}: retry the parent job"
    ):
        shell.jobs.retry(child)
    with pytest.raises(UserError, match=f"{child} is a child job of {job_id}: delete {job_id}"):
        shell.jobs.delete(child)


def test_deleting_a_job_deletes_its_descendants(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path)
    run_tree(shell, job_id)
    child_ids = child_ids_of(shell, job_id)

    shell.jobs.delete(job_id)

    assert shell.store.jobs.read([job_id, *child_ids]) == []
    left = [
        name.decode()
        for name in shell.store.connection.redis.scan_iter("handoff:*")
        if any(deleted in name.decode() for deleted in (job_id, *child_ids))
    ]
    assert left == []


def test_no_child_is_in_the_list_of_jobs(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path)
    run_tree(shell, job_id)

    assert [job.job_id for job in shell.jobs.newest()] == [job_id]


def test_a_workflow_with_sub_supervisors_is_refused_if_the_job_may_have_no_child(
    shell: Shell, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="step qdrant needs a child job, and max_depth"):
        submit(shell, tmp_path, JobLimits(max_depth=0))


def test_a_child_job_and_its_result_inherit_the_origins(shell: Shell, tmp_path: Path) -> None:
    steps = """
        id: read, specialist: writer, task: "Read the report."
        id: team, specialist: supervisor, task: "Look further.", depends_on: [read]
    """
    job_id = shell.jobs.submit(Request("Go.", workflow=make_workflow(tmp_path, steps)))
    assert run_tree(shell, job_id) is JobStatus.OK

    (child,) = child_ids_of(shell, job_id)
    begun = shell.events(child)[0]
    assert isinstance(begun, JobSubmitted)
    assert begun.origins == ("document", "model", "user"), "`read` has a result without origins"
    finished = [event for event in shell.events(job_id) if isinstance(event, HandoffFinished)]
    (of_team,) = [event for event in finished if event.handoff_id == "team.1"]
    assert of_team.origins == ("document", "model", "user")


def test_a_team_has_a_review_unless_the_team_that_made_its_step_has_none(
    shell: Shell, tmp_path: Path
) -> None:
    workflow = make_workflow(tmp_path, "id: team, specialist: supervisor, task: Look.")
    plan = Plan(steps=(Step(id=StepId("team"), specialist=CHILD_JOB_SPECIALIST, task="Look."),))
    event, text = make_plan_event(plan, is_reviewed=False)
    own = Request("Go.", mode=Mode.TEAM)
    reviewed: dict[str, bool] = {}
    for name, request in {
        "team": own,
        "team without a review": replace(own, is_reviewed=False),
        "workflow without a review": Request("Go.", workflow=workflow, is_reviewed=False),
    }.items():
        job_id = shell.jobs.submit(request)
        if request.workflow is None:
            commit = Commit(
                job_id=job_id,
                expected=1,
                events=[event],
                payloads=[text],
                due_at=time.time() + 3_600,
            )
            shell.store.journal.commit(commit)
        shell.advance(job_id)
        (child,) = child_ids_of(shell, job_id)
        submitted = shell.events(child)[0]
        assert isinstance(submitted, JobSubmitted)
        reviewed[name] = submitted.is_reviewed

    assert reviewed == {
        "team": True,
        "team without a review": False,
        "workflow without a review": True,
    }
