"""A person's answer on a real store: its checks, its record, and a waiting job's resources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import ApprovalAsked, Approved, JobStatus, WebhookTried
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, Mode, OnTimeout
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import Join
from handoff_queue.supervisor.client.request import Request, check_request
from handoff_queue.supervisor.engine.state_cache import StateCache
from handoff_queue.supervisor.engine.webhooks import Webhooks
from handoff_queue.supervisor.serve.approval_questions import select_open_questions
from tests.doubles.webhook_server import WebhookServer
from tests.refusals import refusal_of
from tests.supervisor.shell import SETTINGS, Shell, running_shell
from tests.supervisor.workflows.workflow_files import make_workflow
from tests.waiting import wait_until

OWN_STEP: JsonValue = {
    "id": "mine",
    "specialist": "writer",
    "task": "Write it.",
    "depends_on": [],
    "fallback": "-",
}


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url, "researcher", "writer") as supervisor:
        yield supervisor


def submit_with_approvals(
    shell: Shell,
    *questions: ApprovalOf,
    limits: JobLimits | None = None,
    webhook_url: str | None = None,
    **policy: Any,
) -> JobId:
    approvals = Approvals(what=questions, **policy)
    job_id = shell.jobs.submit(
        Request(
            "Compare Qdrant and Milvus",
            limits=limits or JobLimits(),
            approvals=approvals,
            webhook_url=webhook_url,
        )
    )
    shell.advance(job_id)
    return job_id


def end_and_deliver(shell: Shell, job_id: JobId) -> None:
    """Cancel the job, and wait until its webhook is delivered."""
    shell.jobs.cancel(job_id)
    shell.advance(job_id)
    wait_until(lambda: is_delivered(shell, job_id), expected="the outcome of the webhook")


def is_delivered(shell: Shell, job_id: JobId) -> bool:
    event = shell.store.journal.read(job_id)[-1].event
    return isinstance(event, WebhookTried) and event.delivered


def seconds_until_due(shell: Shell, job_id: JobId) -> float:
    score = shell.store.connection.redis.zscore(keys.DUE, job_id)
    assert score is not None
    return float(score) / 1000 - shell.store.connection.now()


def test_a_waiting_job_holds_no_resource_and_names_the_next_step(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN, timeout_s=3_600)

    assert shell.open(job_id) == []
    assert 3_590 < seconds_until_due(shell, job_id) <= 3_600
    waiting_for = shell.jobs.info(job_id).waiting_for
    assert "the job waits for an approval of its plan by a person since 20" in waiting_for
    assert waiting_for.endswith(": approve it or reject it")
    shell.jobs.approve(job_id)
    assert "approval" not in shell.jobs.info(job_id).waiting_for
    shell.advance(job_id)
    assert shell.open(job_id) != []


def test_a_job_is_waiting_from_the_question_to_the_answer(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN)

    asked_at = shell.jobs.info(job_id).asked_at
    assert asked_at is not None
    assert abs(asked_at - shell.store.journal.read(job_id)[-1].at) < 1
    assert statuses(shell, job_id) == {JobStatus.WAITING}
    assert shell.jobs.result(job_id).waiting_since == asked_at
    shell.jobs.approve(job_id)
    assert statuses(shell, job_id) == {JobStatus.RUNNING}
    assert shell.jobs.result(job_id).waiting_since is None


def test_a_job_that_is_cancelled_while_it_waits_stops_waiting(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN)

    shell.jobs.cancel(job_id)
    shell.advance(job_id)

    assert statuses(shell, job_id) == {JobStatus.CANCELLED}
    assert shell.jobs.info(job_id).asked_at is None
    assert shell.store.fleet_load.now().waiting_jobs == 0


def test_a_second_question_begins_a_new_wait(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN, ApprovalOf.ANSWER)
    shell.jobs.approve(job_id)
    shell.advance(job_id)
    shell.finish_all(job_id)

    info = shell.jobs.info(job_id)
    assert (info.status, info.approval) == (JobStatus.WAITING, "answer")
    assert info.asked_at is not None
    assert info.asked_at > shell.store.journal.read(job_id)[0].at
    assert "an approval of its answer by a person since" in info.waiting_for


def statuses(shell: Shell, job_id: JobId) -> set[JobStatus]:
    """Return every status that the client reports for the job."""
    info = shell.jobs.info(job_id)
    by_status = [
        status
        for status in JobStatus
        if job_id in shell.store.jobs.list_newest(9, JobFilter(frozenset({status})))
    ]
    return {
        info.status,
        shell.jobs.result(job_id).status,
        shell.jobs.outline(job_id).status,
        shell.jobs.newest(1)[0].status,
        *by_status,
    }


def test_the_jobs_documents_are_kept_as_long_as_it_may_wait(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.ANSWER)
    shell.finish_all(job_id)
    redis = shell.store.connection.redis
    needed_ms = 1000 * (SETTINGS.retention_s + 30 * 24 * 3_600 - 60)

    assert shell.jobs.info(job_id).approval == "answer"
    there = [name for name in redis.scan_iter("handoff:*") if job_id.encode() in name]
    assert len(there) > 4
    assert {name: redis.pttl(name) for name in there if redis.pttl(name) < needed_ms} == {}


def test_the_draft_is_readable_and_there_is_no_answer_before_the_approval(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.ANSWER)
    shell.finish_all(job_id)

    before = shell.jobs.result(job_id)
    shell.jobs.approve(job_id, "Good.")
    shell.advance(job_id)
    after = shell.jobs.result(job_id)

    assert (before.answer, before.approvals[0]["decision"]) == (None, None)
    assert after.answer == before.approvals[0]["draft"]
    assert (after.approvals[0]["decision"], after.approvals[0]["note"]) == ("approved", "Good.")


def test_a_job_that_ends_before_its_answer_was_approved_has_none(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.ANSWER)
    shell.finish_all(job_id)
    shell.jobs.cancel(job_id)
    shell.advance(job_id)

    result = shell.jobs.result(job_id)
    assert (result.status, result.answer) == (JobStatus.CANCELLED, None)


def job_asking_about_research(shell: Shell) -> JobId:
    job_id = submit_with_approvals(shell, ApprovalOf.RESEARCH, limits=JobLimits(max_rounds=0))
    shell.finish_all(job_id)
    assert shell.jobs.info(job_id).approval == "research"
    return job_id


def test_rejected_research_that_cannot_be_repeated_is_not_shown(shell: Shell) -> None:
    job_id = job_asking_about_research(shell)
    shell.jobs.reject(job_id, "Wrong.")
    shell.advance(job_id)

    result = shell.jobs.result(job_id)
    assert (result.status, result.answer, result.citations) == (JobStatus.FAILED, None, ())
    assert result.results, "what the steps have found is still there to look at"


def test_unapproved_research_of_a_stopped_job_is_not_shown(
    shell: Shell,
) -> None:
    job_id = job_asking_about_research(shell)
    shell.jobs.cancel(job_id)
    shell.advance(job_id)

    result = shell.jobs.result(job_id)
    assert (result.status, result.answer, result.citations) == (JobStatus.CANCELLED, None, ())


def test_a_note_is_stored_outside_the_journal_and_reaches_the_planner(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN)
    shell.jobs.reject(job_id, "Leave out Milvus: no cluster.")
    shell.advance(job_id)

    assert not any("cluster" in event.to_json() for event in shell.events(job_id))
    result = shell.jobs.result(job_id)
    assert [approval["decision"] for approval in result.approvals] == ["rejected", None]
    second = [handoff for handoff in result.handoffs if handoff["assigned_to"] == "planner"][1]
    assert "Leave out Milvus: no cluster." in second["task_description"]
    assert "The user has rejected the plans below" in second["task_description"]


def test_an_edited_plan_is_the_jobs_plan(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN)
    plan = shell.jobs.result(job_id).plan
    assert plan is not None
    shell.jobs.approve(job_id, plan={**plan, "steps": [OWN_STEP]})
    shell.advance(job_id)

    assert [event.step_id for event in shell.open(job_id)] == ["mine"]
    assert [step["id"] for step in (shell.jobs.result(job_id).plan or {})["steps"]] == ["mine"]


def test_a_plan_from_an_approval_is_stored_with_it(shell: Shell) -> None:
    edited, as_it_was = (
        submit_with_approvals(shell, ApprovalOf.PLAN),
        submit_with_approvals(shell, ApprovalOf.PLAN),
    )
    shell.jobs.approve(edited, plan={"steps": [OWN_STEP]})
    shell.jobs.approve(as_it_was)

    (answer,) = shell.jobs.result(edited).approvals
    assert (answer["decision"], [step["id"] for step in answer["own_plan"]["steps"]]) == (
        "approved",
        ["mine"],
    )
    assert shell.jobs.result(as_it_was).approvals[0]["own_plan"] is None


def test_the_joins_of_an_edited_plan_may_ask_for_a_share_like_those_of_a_workflow(
    shell: Shell,
) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN)
    looks: list[JsonValue] = [
        {"id": f"look_{n}", "specialist": "researcher", "task": "Look."} for n in range(4)
    ]
    write: dict[str, JsonValue] = {
        "specialist": "writer",
        "task": "Write.",
        "depends_on": [f"look_{n}" for n in range(4)],
    }
    join: JsonValue = {"enough": "60%", "at_least": "2", "within_s": "10m", "must": "look_0"}

    shell.jobs.approve(
        job_id,
        plan={
            "steps": [*looks, {**write, "id": "long", "join": join}, {**write, "id": "short"}],
            "join": {"enough": "50%"},
        },
    )

    plan = Plan.from_value(
        {
            name: value
            for name, value in (shell.jobs.result(job_id).plan or {}).items()
            if name in Plan.model_fields
        }
    )
    assert plan.by_id[StepId("long")].join == Join(
        enough=3, at_least=2, within_s=600, must=(StepId("look_0"),)
    )
    assert plan.join == Join(enough=1)


def test_the_users_own_plan_in_a_rejection_reaches_the_planner_and_is_shown(
    shell: Shell,
) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN)
    shell.jobs.reject(job_id, "Like this.", plan={"steps": [OWN_STEP]})
    shell.advance(job_id)

    result = shell.jobs.result(job_id)
    second = [handoff for handoff in result.handoffs if handoff["assigned_to"] == "planner"][1]
    assert (
        '"users_own_plan": {"steps": [{"id": "mine", "specialist": "writer", "task": "Write it."'
        in second["task_description"]
    )
    assert [
        (approval["decision"], bool(approval["own_plan"])) for approval in result.approvals
    ] == [
        ("rejected", True),
        (None, False),
    ]
    assert result.approvals[0]["own_plan"]["steps"][0]["id"] == "mine"
    assert not any("Write it." in event.to_json() for event in shell.events(job_id))


def test_the_users_own_plan_is_refused_if_no_planner_would_read_it_and_the_question_stays(
    shell: Shell,
) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN, limits=JobLimits(max_rounds=0))
    with pytest.raises(
        UserError,
        match=(
            f"^{job_id} cannot be planned again: approve the job with your plan,"
            " which then replaces the plan unchanged$"
        ),
    ):
        shell.jobs.reject(job_id, plan={"steps": [OWN_STEP]})
    assert shell.jobs.info(job_id).approval == "plan"


def test_only_a_plan_can_be_edited(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.ANSWER)
    shell.finish_all(job_id)

    with pytest.raises(
        UserError, match=f"^{job_id} waits for an approval of its answer: only a plan can be edited"
    ):
        shell.jobs.approve(job_id, plan={"steps": [OWN_STEP]})
    with pytest.raises(
        UserError, match=f"^{job_id} waits for an approval of its answer: only a plan can be edited"
    ):
        shell.jobs.reject(job_id, plan={"steps": [OWN_STEP]})
    assert shell.jobs.info(job_id).approval == "answer"


@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_each_error_in_a_plan_is_one_line(shell: Shell, answer: str) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN)
    steps: JsonValue = [
        {"id": "a", "specialist": "poet", "task": "Rhyme.", "depends_on": ["nobody"]},
        {"id": "b", "specialist": "writer"},
    ]

    with pytest.raises(UserError) as refused:
        getattr(shell.jobs, answer)(job_id, plan={"steps": steps, "wy": ""})

    assert str(refused.value).splitlines() == [
        "a plan has no field wy: did you mean why?",
        "step 2: task: is missing: add it",
        "step a depends on nobody, which is not a step",
        "step a: there is no specialist poet; use one of researcher, supervisor, writer",
    ]
    assert shell.jobs.info(job_id).approval == "plan"


def test_a_step_that_cannot_be_read_is_not_a_missing_step(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN)
    steps: JsonValue = [
        {"id": "a", "specialist": "researcher", "task": ""},
        "b",
        {"id": "c", "specialist": "writer", "task": "Write.", "depends_on": ["a"]},
    ]

    with pytest.raises(UserError) as refused:
        shell.jobs.approve(job_id, plan={"steps": steps})

    assert str(refused.value).splitlines() == [
        "step 1: task: must have at least 1 character, not ''",
        "step 2: must hold fields, not 'b': use id, specialist, task, depends_on, fallback,"
        " on_failure, after, approve, when, row, contract_of, join, ...",
    ]


def test_a_step_with_a_list_as_its_id_is_an_error_in_the_plan(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN)
    steps: JsonValue = [{"id": ["a"], "specialist": "writer", "task": "Write."}]

    with pytest.raises(UserError, match=r"^step 1: id: "):
        shell.jobs.approve(job_id, plan={"steps": steps})


def test_a_second_or_early_answer_is_refused(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.ANSWER)
    for answer in (shell.jobs.approve, shell.jobs.reject):
        with pytest.raises(
            UserError, match=f"^{job_id} does not wait for an approval: answer a job with"
        ):
            answer(job_id)
    shell.finish_all(job_id)
    with pytest.raises(UserError, match="has no step nonsense: its steps are "):
        shell.jobs.reject(job_id, "No.", ["nonsense"])
    shell.jobs.approve(job_id)
    with pytest.raises(UserError, match="does not wait for an approval"):
        shell.jobs.approve(job_id)


def test_the_question_of_a_job_that_has_ended_is_closed(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN)
    shell.jobs.cancel(job_id)
    shell.advance(job_id)

    (approval,) = shell.jobs.result(job_id).approvals

    assert (approval["decision"], approval["by"]) == ("closed", None)
    assert select_open_questions(shell.jobs.result(job_id)) == []


def test_an_answer_that_names_its_question_answers_no_later_question(shell: Shell) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN, ApprovalOf.ANSWER)
    asked = shell.jobs.result(job_id).approvals[0]["version"]
    shell.jobs.approve(job_id, question=asked)
    shell.advance(job_id)
    shell.finish_all(job_id)

    shell.jobs.approve(job_id, question=asked)
    with pytest.raises(
        UserError, match=f"{asked} any more: it was approved by .* another answer, so yours has"
    ):
        shell.jobs.reject(job_id, question=asked)
    with pytest.raises(UserError, match="does not ask question 1: answer its question"):
        shell.jobs.approve(job_id, question=1)
    plan, answer = shell.jobs.result(job_id).approvals
    assert (plan["decision"], answer["decision"]) == ("approved", None)


@pytest.mark.parametrize("by_timeout", [True, False])
def test_a_repeated_answer_has_no_effect_and_no_error_also_after_the_end(
    shell: Shell, by_timeout: bool
) -> None:
    job_id = submit_with_approvals(shell, ApprovalOf.PLAN)
    asked = shell.jobs.result(job_id).approvals[0]["version"]
    plan = shell.jobs.result(job_id).plan
    note = "Use two sources."
    if by_timeout:
        shell.store.journal.append(job_id, Approved(asked=asked, by="timeout"))
    else:
        shell.jobs.approve(job_id, note, plan, question=asked)
    shell.jobs.cancel(job_id)
    shell.advance(job_id)
    before = shell.store.journal.read(job_id)

    if by_timeout:
        with pytest.raises(UserError, match="was approved when the time for an answer ended"):
            shell.jobs.approve(job_id, note, plan, question=asked)
    else:
        shell.jobs.approve(job_id, note, plan, question=asked)
        with pytest.raises(UserError, match="with another answer"):
            shell.jobs.approve(job_id, "Use three sources.", plan, question=asked)

    assert shell.store.journal.read(job_id) == before


def test_the_webhook_is_notified_that_the_job_waits(shell: Shell) -> None:
    with WebhookServer(200) as hook:
        job_id = submit_with_approvals(shell, ApprovalOf.PLAN, webhook_url=hook.url)

        (post,) = wait_until(lambda: hook.posts, expected="the webhook")

    asked = shell.store.journal.read(job_id)[-1]
    assert isinstance(asked.event, ApprovalAsked)
    assert json.loads(post.body) == {
        "job_id": job_id,
        "status": "waiting",
        "version": asked.version,
        "approval": "plan",
        "reminder": 0,
    }


def test_each_later_webhook_of_a_job_has_a_higher_version(shell: Shell) -> None:
    with WebhookServer(200) as hook:
        job_id = submit_with_approvals(shell, ApprovalOf.PLAN, webhook_url=hook.url)
        wait_until(lambda: len(hook.posts) == 1, expected="the webhook about the plan")
        question = StateCache(shell.store.journal).load(job_id)
        assert question is not None
        end_and_deliver(shell, job_id)
        shell.jobs.retry(job_id)
        end_and_deliver(shell, job_id)
        Webhooks(shell.store, None, ("127.0.0.1",)).ask(question)

    bodies = [json.loads(post.body) for post in hook.posts]
    *in_order, late = bodies
    assert [body["status"] for body in bodies] == ["waiting", "cancelled", "cancelled", "waiting"]
    versions = [body["version"] for body in in_order]
    assert versions == sorted(set(versions))
    assert late["version"] < versions[-1]


@pytest.mark.parametrize(
    ("approvals", "message"),
    [
        (
            Approvals(what=(ApprovalOf.PLAN,), on_timeout=OnTimeout.GO_ON),
            "needs a time: set timeout_s",
        ),
        (Approvals(what=(ApprovalOf.COST,)), "set above_microusd"),
    ],
)
def test_a_contradictory_approval_policy_is_refused(approvals: Approvals, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_request(Request("Compare.", approvals=approvals), SETTINGS)


ONE_MINUTE_TIMEOUT = Approvals(timeout_s=60, on_timeout=OnTimeout.GO_ON)


@pytest.mark.parametrize("mode", [Mode.TEAM, Mode.ADAPTIVE, Mode.AUTO])
def test_an_end_of_questions_is_refused_because_no_model_can_ask(mode: Mode) -> None:
    with pytest.raises(UserError, match="needs an approval: add plan, research"):
        check_request(Request("Compare.", mode=mode, approvals=ONE_MINUTE_TIMEOUT), SETTINGS)


@pytest.mark.parametrize(
    "wanted", [{"what": (ApprovalOf.ANSWER,)}, {"above_microusd": 1_000_000}], ids=["what", "above"]
)
def test_questions_of_a_job_with_approvals_can_have_an_end(wanted: dict[str, Any]) -> None:
    request = Request("Compare.", approvals=Approvals(**wanted, timeout_s=60))

    assert refusal_of(check_request, request, SETTINGS) is None


def test_a_question_that_a_workflow_asks_when_a_step_fails_can_have_an_end(tmp_path: Path) -> None:
    asks = make_workflow(tmp_path, "id: a, specialist: writer, task: Write., on_failure: ask")

    request = Request("Compare.", workflow=asks, approvals=ONE_MINUTE_TIMEOUT)
    assert refusal_of(check_request, request, SETTINGS) is None


def test_an_end_of_questions_is_refused_if_nothing_can_be_asked(tmp_path: Path) -> None:
    silent = make_workflow(tmp_path, "id: a, specialist: writer, task: Write.")

    for request in (Request("Compare.", mode=Mode.SINGLE), Request("Compare.", workflow=silent)):
        with pytest.raises(UserError, match="needs an approval: add plan, research"):
            check_request(replace(request, approvals=ONE_MINUTE_TIMEOUT), SETTINGS)
