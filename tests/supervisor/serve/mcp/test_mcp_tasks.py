"""Jobs as tasks of MCP, with a real MCP client on a real Redis. A shell plays the supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from mcp import MCPError

from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Approved,
    CancelRequested,
    JobEnded,
    JobStatus,
    RecordedEvent,
    Rejected,
)
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.doubles.jobs import a_job
from tests.mcp_client import (
    CreatedTask,
    Task,
    Tasks,
    cancel_task,
    connected,
    get_task,
    listen_until_the_end,
    until,
    update_task,
)
from tests.supervisor.serve.serving import serving
from tests.supervisor.shell import Shell
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

Then = Callable[[list[Task]], None]
MISSING_CAPABILITY, INVALID_PARAMS = -32_021, -32_602


@pytest.fixture
def url(app: FastAPI) -> Iterator[str]:
    with serving(app) as address:
        yield address


def get(url: str, job_id: str) -> Task:
    async def run() -> Task:
        async with connected(url) as client:
            return await get_task(client.session, job_id)

    return asyncio.run(run())


def answer(url: str, job_id: str, **responses: Any) -> None:
    """Send answers. A key is written with `_` in place of `-`."""
    given = {key.replace("_", "-"): response for key, response in responses.items()}

    async def run() -> None:
        async with connected(url) as client:
            await update_task(client.session, job_id, given)

    asyncio.run(run())


def code_of(url: str, job_id: str, token: str | None = None, *, tasks: bool = True) -> int:
    """Return the code of the error of `tasks/get`."""

    async def run() -> int:
        async with connected(url, token, tasks=tasks) as client:
            with pytest.raises(MCPError) as raised:
                await get_task(client.session, job_id)
            return raised.value.code

    return asyncio.run(run())


def ask(jobs: Client, job_id: Any, what: ApprovalOf = ApprovalOf.PLAN) -> int:
    """Let the job ask for an approval. Return the version of the question."""
    version = jobs.info(job_id).version + 1
    asked = ApprovalAsked(what=what, why="it is asked for", wait_s=600)
    fields = {f"approval:{version}": what.value, "asked_last": str(version), "asked_at": "1"}
    jobs.store.journal.append(job_id, asked, fields)
    return version


def answers(jobs: Client, job_id: Any) -> list[RecordedEvent]:
    return [
        recorded
        for recorded in jobs.events(job_id, follow=False)
        if isinstance(recorded.event, Approved | Rejected)
    ]


@pytest.mark.parametrize("tasks", [True, False])
def test_a_call_of_submit_is_a_task_for_clients_that_know_tasks(
    tasks: bool, url: str, jobs: Client
) -> None:
    async def run() -> Any:
        async with connected(url, tasks=tasks) as client:
            assert "io.modelcontextprotocol/tasks" in (client.server_capabilities.extensions or {})
            return await client.session.call_tool(
                "submit", {"text": "How does HNSW work?"}, allow_claimed=True
            )

    submitted = asyncio.run(run())
    (stored,) = jobs.newest()

    if tasks:
        assert isinstance(submitted, CreatedTask)
        assert (submitted.task_id, submitted.status) == (stored.job_id, "working")
    else:
        content = {"job_id": stored.job_id, "left_out": [], "unserved": []}
        assert submitted.structured_content == content


def test_an_invalid_submission_makes_no_task(url: str, jobs: Client) -> None:
    async def run() -> Any:
        async with connected(url) as client:
            return await client.call_tool("submit", {"text": ""})

    assert asyncio.run(run()).is_error
    assert jobs.newest() == []


@pytest.mark.parametrize(
    ("status", "task_status", "is_error"),
    [
        (JobStatus.OK, "completed", False),
        (JobStatus.PARTIAL, "completed", False),
        (JobStatus.FAILED, "completed", True),
        (JobStatus.CANCELLED, "cancelled", None),
    ],
)
def test_the_end_of_a_job_is_the_end_of_its_task(
    status: JobStatus, task_status: str, is_error: bool | None, url: str, jobs: Client
) -> None:
    job_id = a_job(jobs.store)
    before = get(url, job_id)
    jobs.store.journal.append(
        job_id, JobEnded(status=status, reason="so it is"), {"status": status.value}
    )
    after = get(url, job_id)

    assert (before.status, before.result) == ("working", None)
    assert after.status == task_status
    assert after.created_at == before.created_at <= after.last_updated_at
    if is_error is None:
        assert after.result is None
    else:
        assert after.result is not None
        assert after.result["isError"] is is_error
        assert after.result["structuredContent"]["job_id"] == job_id


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        ({"action": "accept", "content": {"decision": "approve"}}, Approved),
        ({"action": "accept", "content": {"decision": "reject", "note": "no"}}, Rejected),
        ({"action": "decline"}, Rejected),
    ],
)
def test_an_approval_is_an_input_request_of_the_task(
    response: dict[str, Any], kind: type, url: str, jobs: Client
) -> None:
    job_id = a_job(jobs.store)
    version = ask(jobs, job_id)
    asked = get(url, job_id)
    answer(url, job_id, **{f"approval_{version}": response})

    assert asked.status == "input_required"
    assert asked.input_requests is not None
    ((key, request),) = asked.input_requests.items()
    assert key == f"approval-{version}"
    assert request["params"]["message"].endswith("approve the plan? (it is asked for)")
    (recorded,) = answers(jobs, job_id)
    assert isinstance(recorded.event, kind)
    assert get(url, job_id).status == "working"


def test_two_questions_of_a_job_have_two_keys(url: str, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    first = ask(jobs, job_id)
    accept = {"action": "accept", "content": {"decision": "approve"}}
    answer(url, job_id, **{f"approval_{first}": accept})
    second = ask(jobs, job_id)
    answer(url, job_id, **{f"approval_{first}": accept})
    open_requests = get(url, job_id).input_requests

    assert open_requests is not None
    assert list(open_requests) == [f"approval-{second}"]
    assert len(answers(jobs, job_id)) == 1


def test_an_answer_to_an_earlier_question_leaves_the_newer_question_open(
    url: str, jobs: Client
) -> None:
    job_id = a_job(jobs.store)
    first = ask(jobs, job_id)
    second = ask(jobs, job_id)
    jobs.store.journal.append(job_id, Approved(asked=first), {f"approval:{first}": ""})

    open_requests = get(url, job_id).input_requests

    assert open_requests is not None
    assert list(open_requests) == [f"approval-{second}"]


def test_the_form_of_a_task_shows_the_plan(url: str, shell: Shell) -> None:
    job_id = shell.jobs.submit(
        Request("Compare Qdrant and Milvus", approvals=Approvals(what=(ApprovalOf.PLAN,)))
    )
    while not shell.jobs.info(job_id).approval:
        shell.advance(job_id)
    plan = shell.jobs.result(job_id).plan
    assert plan is not None

    asked = get(url, job_id)

    assert asked.input_requests is not None
    (request,) = asked.input_requests.values()
    for step in plan["steps"]:
        assert f"- {step['id']} ({step['specialist']})" in request["params"]["message"]
        assert step["task"] in request["params"]["message"]


@pytest.mark.parametrize("responses", [{}, {"another": {"action": "accept"}}])
def test_answers_to_nothing_are_ignored(responses: dict[str, Any], url: str, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    ask(jobs, job_id)
    answer(url, job_id, **responses)

    assert answers(jobs, job_id) == []


def test_a_closed_form_leaves_the_question_open(url: str, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    version = ask(jobs, job_id)
    answer(url, job_id, **{f"approval_{version}": {"action": "cancel"}})

    assert get(url, job_id).status == "input_required"


@pytest.mark.parametrize("content", [{}, {"decision": "perhaps"}, {"decision": 1}, None])
def test_an_answer_without_a_decision_is_refused(
    content: dict[str, Any] | None, url: str, jobs: Client
) -> None:
    job_id = a_job(jobs.store)
    version = ask(jobs, job_id)

    async def run() -> str:
        response = {"action": "accept", "content": content}
        async with connected(url) as client:
            with pytest.raises(MCPError) as raised:
                await update_task(client.session, job_id, {f"approval-{version}": response})
            return str(raised.value)

    assert "the answer must be" in asyncio.run(run())
    assert answers(jobs, job_id) == []


def test_a_cancelled_task_is_a_cancelled_job(url: str, jobs: Client) -> None:
    job_id = a_job(jobs.store)

    async def run() -> None:
        async with connected(url) as client:
            await cancel_task(client.session, job_id)

    asyncio.run(run())

    *_, last = jobs.events(job_id, follow=False)
    assert isinstance(last.event, CancelRequested)


def test_the_tenant_wall_holds_for_tasks(url: str, jobs: Client) -> None:
    foreign_job = a_job(jobs.store, "globex")
    _, token = jobs.store.api_tokens.create("a test", AccessLevel.OPERATE, "acme")

    assert code_of(url, foreign_job, token) == INVALID_PARAMS
    assert code_of(url, "j-000000000000", token) == INVALID_PARAMS
    assert code_of(url, "what?", token) == INVALID_PARAMS


def test_a_client_must_declare_the_extension(url: str, jobs: Client) -> None:
    assert code_of(url, a_job(jobs.store), tasks=False) == MISSING_CAPABILITY


def test_an_answer_needs_the_access_level_of_an_approval(url: str, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    version = ask(jobs, job_id)
    _, token = jobs.store.api_tokens.create("a test", AccessLevel.SUBMIT, None)

    async def run() -> str:
        async with connected(url, token) as client:
            with pytest.raises(MCPError) as raised:
                await update_task(
                    client.session, job_id, {f"approval-{version}": {"action": "decline"}}
                )
            return str(raised.value)

    assert "this needs operate" in asyncio.run(run())


def notifications(
    url: str, *job_ids: str, token: str | None = None, then: Then | None = None
) -> list[Task]:
    """Listen to the tasks of these jobs until the end of the stream. Return the notifications.

    `then`: runs in a thread after the first notification, with the list of all so far.
    """

    async def run() -> list[Task]:
        seen = Tasks()

        async def first() -> bool:
            return bool(seen.notified)

        async with connected(url, token, extension=seen) as client:
            listening = asyncio.create_task(
                listen_until_the_end(client.session, taskIds=list(job_ids))
            )
            if then is not None:
                await until(first)
                await asyncio.to_thread(then, seen.notified)
            (problem,) = await asyncio.gather(listening, return_exceptions=True)
        if problem is not None:
            raise problem
        return seen.notified

    return asyncio.run(run())


@pytest.mark.slow
def test_a_client_that_listens_gets_each_new_state_of_its_task(url: str, jobs: Client) -> None:
    job_id = a_job(jobs.store)

    def ask_and_end(seen: list[Task]) -> None:
        version = ask(jobs, job_id)
        wait_until(lambda: seen[-1].status == "input_required", expected="the question")
        jobs.approve(job_id, question=version)
        wait_until(lambda: seen[-1].status == "working", expected="the next state")
        jobs.store.journal.append(job_id, JobEnded(status=JobStatus.OK), {"status": "ok"})

    states = notifications(url, job_id, then=ask_and_end)

    assert [state.status for state in states] == [
        "working",
        "input_required",
        "working",
        "completed",
    ]
    assert {state.task_id for state in states} == {job_id}
    assert states[1].input_requests is not None
    assert states[-1].result == get(url, job_id).result


def test_the_stream_of_ended_tasks_has_their_state_and_ends(url: str, jobs: Client) -> None:
    ended = a_job(jobs.store)
    jobs.store.journal.append(ended, JobEnded(status=JobStatus.CANCELLED), {"status": "cancelled"})

    (state,) = notifications(url, ended)

    assert (state.task_id, state.status) == (ended, "cancelled")


def test_the_tenant_wall_holds_for_notifications(url: str, jobs: Client) -> None:
    own_job, foreign_job = a_job(jobs.store, "acme"), a_job(jobs.store, "globex")
    for job_id in (own_job, foreign_job):
        jobs.store.journal.append(job_id, JobEnded(status=JobStatus.OK), {"status": "ok"})
    _, token = jobs.store.api_tokens.create("a test", AccessLevel.READ, "acme")

    states = notifications(url, own_job, foreign_job, "j-000000000000", token=token)

    assert [state.task_id for state in states] == [own_job]


@pytest.mark.parametrize("task_ids", ["j-000000000000", [1], [f"j-{n:012x}" for n in range(101)]])
def test_a_wrong_list_of_tasks_is_refused(task_ids: Any, url: str, jobs: Client) -> None:
    async def run() -> int:
        async with connected(url) as client:
            with pytest.raises(MCPError) as raised:
                await listen_until_the_end(client.session, taskIds=task_ids)
            return raised.value.code

    assert asyncio.run(run()) == INVALID_PARAMS


def test_a_client_without_the_extension_cannot_listen_to_tasks(url: str, jobs: Client) -> None:
    async def run() -> int:
        async with connected(url, tasks=False) as client:
            with pytest.raises(MCPError) as raised:
                await listen_until_the_end(client.session, taskIds=[a_job(jobs.store)])
            return raised.value.code

    assert asyncio.run(run()) == MISSING_CAPABILITY


def test_a_revoked_token_ends_the_stream(url: str, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    token_id, token = jobs.store.api_tokens.create("a test", AccessLevel.READ, None)

    def revoke_and_go_on(_: list[Task]) -> None:
        jobs.store.api_tokens.revoke(token_id.id)
        ask(jobs, job_id)

    with pytest.raises(MCPError, match="revoked"):
        notifications(url, job_id, token=token, then=revoke_and_go_on)
