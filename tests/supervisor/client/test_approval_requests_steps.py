"""Single steps and rows that wait for a person, and steps with conditions, on a real store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows import Items
from tests.doubles.webhook_server import WebhookServer
from tests.supervisor.shell import Shell, running_shell
from tests.supervisor.workflows.workflow_files import UNREVIEWED, make_workflow
from tests.waiting import wait_until


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url, "researcher", "writer") as supervisor:
        yield supervisor


LETTERS = (
    "id: a, specialist: researcher, task: Look.\n"
    "id: b, specialist: writer, task: Send it., approve: true\n"
    "id: c, specialist: writer, task: Send it., approve: true"
)


def job_asking_about_letters(shell: Shell, folder: Path) -> JobId:
    job_id = shell.jobs.submit(
        Request("Send it.", workflow=make_workflow(folder, LETTERS, UNREVIEWED))
    )
    shell.advance(job_id)
    return job_id


def test_single_steps_are_approved_and_rejected_by_their_ids(shell: Shell, tmp_path: Path) -> None:
    job_id = job_asking_about_letters(shell, tmp_path)

    shell.jobs.approve(job_id, steps=["c"])
    shell.advance(job_id)
    assert {event.step_id for event in shell.open(job_id)} == {"a", "c"}
    shell.jobs.reject(job_id, steps=["b"])
    shell.advance(job_id)
    shell.finish_all(job_id)

    result = shell.jobs.result(job_id)
    assert [approval["decision"] for approval in result.approvals] == ["approved", "rejected"]
    assert {event.step_id for event in shell.open(job_id)} == set()
    assert result.status is JobStatus.PARTIAL


@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_a_step_that_a_job_does_not_ask_about_is_refused(
    shell: Shell, tmp_path: Path, answer: str
) -> None:
    job_id = job_asking_about_letters(shell, tmp_path)

    with pytest.raises(UserError) as refused:
        getattr(shell.jobs, answer)(job_id, steps=["a"])

    assert str(refused.value) == f"{job_id} does not ask about step a: it asks about b, c"
    assert shell.jobs.info(job_id).approval == "step"


def test_an_approval_of_a_plan_names_no_single_steps(shell: Shell) -> None:
    approvals = Approvals(what=(ApprovalOf.PLAN,))
    job_id = shell.jobs.submit(Request("Compare them", approvals=approvals))
    shell.advance(job_id)

    with pytest.raises(UserError, match="waits for an approval of its plan, not of steps"):
        shell.jobs.approve(job_id, steps=["a"])


DRAFTS = (
    "id: draft, specialist: writer, task: 'Write to {name}.', for_each: rows, approve: true\n"
    "id: note, specialist: writer, task: Note it., approve: true"
)
CUSTOMERS = [{"no": f"A-{n}", "name": name} for n, name in enumerate(("Ann", "Bob", "Cy"), 1)]


def job_asking_about_drafts(shell: Shell, folder: Path) -> JobId:
    head = f"{UNREVIEWED}key: no\n"
    request = Request(
        "Write.", workflow=make_workflow(folder, DRAFTS, head), items=Items(rows=tuple(CUSTOMERS))
    )
    job_id = shell.jobs.submit(request)
    shell.advance(job_id)
    return job_id


def test_single_rows_are_approved_and_rejected_by_their_keys(shell: Shell, tmp_path: Path) -> None:
    job_id = job_asking_about_drafts(shell, tmp_path)

    shell.jobs.approve(job_id, steps=["draft"], rows=["A-2"])
    shell.advance(job_id)
    assert {event.step_id for event in shell.open(job_id)} == {"draft_0002"}
    shell.jobs.reject(job_id, rows=["A-1"])
    shell.advance(job_id)
    shell.jobs.approve(job_id, steps=["draft", "note"])
    shell.advance(job_id)

    assert {event.step_id for event in shell.open(job_id)} == {"draft_0002", "draft_0003", "note"}
    shell.finish_all(job_id)
    assert [row.status for row in shell.jobs.rows(job_id)] == ["failed", "ok", "ok"]


@pytest.mark.parametrize(
    ("steps", "rows", "why"),
    [
        (["draft"], ["A-9"], "has no row 'A-9' among these steps (known: A-1, A-2, A-3)"),
        (["note"], ["A-1"], "has no row 'A-1' among these steps (known: none)"),
        (["drafts"], [], "does not ask about step drafts: it asks about draft_0001, draft_0002"),
    ],
)
def test_a_row_that_a_job_does_not_have_is_refused(
    shell: Shell, tmp_path: Path, steps: list[str], rows: list[str], why: str
) -> None:
    job_id = job_asking_about_drafts(shell, tmp_path)

    with pytest.raises(UserError) as refused:
        shell.jobs.approve(job_id, steps=steps, rows=rows)

    assert why in str(refused.value)


CONDITIONAL = (
    "id: draft, specialist: writer, task: 'Write to {name}.', for_each: rows,"
    " when: 'item.no != \"A-2\"'\n"
    "id: send, specialist: writer, task: 'Send it to {name}.', for_each: rows, depends_on: draft,"
    " when: draft.output.x == 1"
)


def test_rows_whose_condition_is_not_met_are_skipped_with_the_reason(
    shell: Shell, tmp_path: Path
) -> None:
    head = f"{UNREVIEWED}key: no\n"
    steps = make_workflow(tmp_path, CONDITIONAL, head)
    job_id = shell.jobs.submit(
        Request("Write.", workflow=steps, items=Items(rows=tuple(CUSTOMERS)))
    )
    shell.advance(job_id)
    drafts = shell.open(job_id)
    for event, x in zip(drafts, (1, 2), strict=True):
        shell.do(job_id, event, output={"x": x})
    shell.advance(job_id)
    shell.finish_all(job_id)

    rows = shell.jobs.rows(job_id)
    assert [row.status for row in rows] == ["ok", "skipped", "skipped"]
    assert rows[1].why == "the steps that it depends on were skipped"
    assert rows[2].why == ("its condition is not met: draft.output.x == 1 (draft.output.x is 2)")
    assert shell.jobs.result(job_id).status is JobStatus.OK


def test_a_plan_with_conditions_stays_unchanged_in_an_edit(shell: Shell, tmp_path: Path) -> None:
    steps = make_workflow(tmp_path, CONDITIONAL, f"{UNREVIEWED}key: no\n")
    job_id = shell.jobs.submit(
        Request(
            "Write.",
            workflow=steps,
            items=Items(rows=tuple(CUSTOMERS)),
            approvals=Approvals(what=(ApprovalOf.PLAN,)),
        )
    )
    shell.advance(job_id)
    before = shell.jobs.result(job_id).plan
    assert before is not None
    shell.jobs.approve(job_id, plan=before)
    shell.advance(job_id)
    after = shell.jobs.result(job_id).plan
    assert after is not None

    assert after["steps"] == before["steps"]
    assert after["steps"][3]["when"] == {
        "text": "draft.output.x == 1",
        "steps": {"draft": "draft_0001"},
        "item": None,
    }


def test_the_webhook_names_the_steps_that_a_job_asks_about(shell: Shell, tmp_path: Path) -> None:
    steps = make_workflow(tmp_path, LETTERS, UNREVIEWED)
    with WebhookServer() as hook:
        job_id = shell.jobs.submit(Request("Send it.", workflow=steps, webhook_url=hook.url))
        shell.advance(job_id)
        (post,) = wait_until(lambda: hook.posts, expected="the webhook")

    assert json.loads(post.body) == {
        "job_id": job_id,
        "status": "waiting",
        "version": shell.store.journal.read(job_id)[-1].version,
        "approval": "step",
        "reminder": 0,
        "steps": ["b", "c"],
    }
