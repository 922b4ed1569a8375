"""The client: accepted requests, one-line errors for refused requests, and the leftovers of a
deleted job.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import (
    BudgetSpent,
    Conflict,
    InvalidDocuments,
    LimitReached,
    StoreUnavailable,
    UnknownJob,
    UserError,
)
from handoff_queue.shared.types.events import JobEnded, JobStatus, RetryRequested, WebhookTried
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Priority
from handoff_queue.shared.types.limits import JobLimits, NewLimits
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.doubles.jobs import finish, granted_claim, issue, model_reply

NO_REDIS = "redis://127.0.0.1:1/0"


def end_job(jobs: Client, job_id: JobId, status: JobStatus = JobStatus.OK) -> None:
    jobs.store.journal.append(job_id, JobEnded(status=status), {"status": status.value})


def messages(jobs: Client, queue: str) -> int:
    return int(jobs.store.connection.redis.llen(queue))


def test_an_invalid_url_that_the_caller_passed_is_not_called_by_the_name_of_a_variable() -> None:
    with pytest.raises(UserError, match=r"^the Redis URL cannot be used: it must"):
        client.connect("http://x")


def test_an_invalid_url_of_the_environment_is_called_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", "http://x")
    with pytest.raises(UserError, match="HANDOFF_REDIS_URL"):
        client.connect()


@pytest.mark.parametrize(
    "call",
    [
        lambda jobs: jobs.submit(Request("Compare.")),
        lambda jobs: jobs.newest(),
        lambda jobs: client.connect_onlooker(jobs).newest(),
    ],
    ids=["submit", "newest", "onlooker"],
)
def test_an_error_of_the_connection_names_the_origin_of_the_url(
    call: Callable[[Client], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", NO_REDIS)
    with pytest.raises(StoreUnavailable, match="start it, or correct HANDOFF_REDIS_URL"):
        call(client.connect())
    with pytest.raises(StoreUnavailable, match="start it, or correct the Redis URL"):
        call(client.connect(NO_REDIS))


def test_a_wrong_password_that_the_caller_passed_is_looked_for_in_the_url(redis_url: str) -> None:
    jobs = client.connect("redis://:wrong@" + redis_url.split("@")[1])
    with pytest.raises(StoreUnavailable, match=r"password.* in the Redis URL$"):
        jobs.newest()


def test_a_job_is_accepted_and_announced_at_once(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare  things.\nNow."))

    info = jobs.info(job_id)
    assert (info.status, info.title, info.version) == (
        "queued",
        "Compare things. Now.",
        1,
    )
    assert messages(jobs, SUBMISSIONS_QUEUE) == 1
    assert [job.job_id for job in jobs.newest()] == [job_id]


@pytest.mark.parametrize("priority", Priority)
def test_a_job_without_a_priority_has_the_priority_of_the_settings(
    redis_url: str, priority: Priority
) -> None:
    jobs = client.connect(redis_url, Settings(offline=True, priority=priority))
    job_id = jobs.submit(Request("Compare."))

    assert jobs.store.connection.redis.hget(keys.job(job_id), "priority") == priority.value.encode()
    jobs.store.connection.close()


def test_the_jobs_budget_is_in_the_store_from_the_start(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare.", limits=JobLimits(max_turns=1)))
    issue(jobs.store, job_id, "a.1")
    claimed = granted_claim(jobs.store, job_id, "a.1")
    claimed.reserve(WorstCase(1, 1, 1))
    claimed.checkpoint(model_reply())

    with pytest.raises(LimitReached):
        claimed.reserve(WorstCase(1, 1, 1))


def test_the_same_key_gives_the_same_job_and_announces_it_once(jobs: Client) -> None:
    request = Request("Compare.", idempotency_key="k1")
    with ThreadPoolExecutor(8) as pool:
        job_ids = set(pool.map(lambda _: jobs.submit(request), range(16)))

    assert len(job_ids) == 1
    assert messages(jobs, SUBMISSIONS_QUEUE) == 1


def test_requests_with_one_key_that_differ_in_shared_runs_are_different_jobs(
    jobs: Client,
) -> None:
    jobs.submit(Request("Compare.", idempotency_key="k1"))

    with pytest.raises(UserError, match="the idempotency key was used for another request"):
        jobs.submit(Request("Compare.", idempotency_key="k1", shares_runs=False))


def test_a_spent_day_takes_no_new_job_and_names_the_time_of_its_renewal(jobs: Client) -> None:
    known = jobs.submit(Request("Compare.", idempotency_key="k1"))
    jobs.store.daily_budgets.set_caps(DailyCaps(day_tokens=100))
    issue(jobs.store, known, "a.1")
    claimed = granted_claim(jobs.store, known, "a.1")
    claimed.reserve(WorstCase(80, 20, 1))
    claimed.checkpoint(model_reply(80, 20, 1))

    with pytest.raises(
        BudgetSpent,
        match=(
            r"this installation for today is spent \(100 of 100 tokens\); there is more at"
            r" 00:00 UTC"
        ),
    ):
        jobs.submit(Request("Compare."))

    assert jobs.submit(Request("Compare.", idempotency_key="k1")) == known


def test_no_job_is_accepted_while_the_daily_budget_is_too_low(
    jobs: Client,
) -> None:
    jobs.store.daily_budgets.set_caps(DailyCaps(day_usd=100))
    failing = jobs.submit(Request("Compare."))
    issue(jobs.store, failing, "planner.1", role="planner", group=None)
    with pytest.raises(LimitReached):
        granted_claim(jobs.store, failing, "planner.1").reserve(WorstCase(80, 20, 101))

    with pytest.raises(
        BudgetSpent,
        match=(
            r"is spent \(\$0 of \$0.0001, and a call may need \$0.000101\); there is more at"
            r" 00:00 UTC"
        ),
    ):
        jobs.submit(Request("Compare."))

    jobs.store.daily_budgets.set_caps(DailyCaps(day_usd=101))
    jobs.submit(Request("Compare."))


def test_the_same_key_of_another_tenant_is_another_job(jobs: Client) -> None:
    own_job, other_job = (
        jobs.submit(Request("Compare.", idempotency_key="k1", tenant=tenant))
        for tenant in ("me", "you")
    )

    assert own_job != other_job


def test_a_key_that_was_used_for_another_request_is_refused(jobs: Client) -> None:
    jobs.submit(Request("Compare.", idempotency_key="k1"))

    with pytest.raises(Conflict, match="another request"):
        jobs.submit(Request("Compare something else.", idempotency_key="k1"))
    with pytest.raises(Conflict, match="another request"):
        list(jobs.submit_each([Request("Compare something else.", idempotency_key="k1")]))


def test_documents_may_be_given_as_bytes(jobs: Client, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("Order A-1042 was shipped.")
    documents = {"notes/a.md": b"Order A-1042 was shipped."}

    by_name = jobs.read_documents(Request("Where is it?", documents=documents))
    by_path = jobs.read_documents(Request("Where is it?", documents=tmp_path))

    assert by_name == by_path
    assert jobs.submit(Request("Where is it?", documents=documents))


def test_bytes_that_are_not_a_document_are_named_without_a_path_of_this_machine(
    jobs: Client,
) -> None:
    bad = {"a.md": b"text", "photo.bin": bytes(range(256)), "b.bin": bytes(range(256))}

    with pytest.raises(InvalidDocuments, match=r"files in documents .*photo\.bin") as refused:
        jobs.submit(Request("What is it?", documents=bad))
    assert "/" not in str(refused.value).replace("or/and", "")
    with pytest.raises(InvalidDocuments, match="documents holds no files"):
        jobs.submit(Request("What is it?", documents={}))
    with pytest.raises(InvalidDocuments, match=r"cannot be stored .*: give it another name"):
        jobs.submit(Request("What is it?", documents={"a": b"x", "a/b": b"y"}))


WRONG_TYPES: list[tuple[Callable[[Any], object], str]] = [
    (
        lambda jobs: jobs.submit("Compare"),
        r"the request must be of type Request, not str: write Request\('Compare'\)",
    ),
    (lambda jobs: jobs.submit(None), "the request must be of type Request, not NoneType"),
    (lambda jobs: list(jobs.submit_each([7])), "the request must be of type Request, not int"),
    (lambda jobs: jobs.first_clash(["Compare"]), "the request must be of type Request, not str"),
    (
        lambda jobs: jobs.add_schedule("daily", Request("x"), "0 9 * * *"),
        r"not str: write ScheduleOptions\('0 9 \* \* \*'\)",
    ),
    (lambda jobs: jobs.submit(Request("x", after=7)), "after must be of type str, not int"),  # type: ignore[arg-type]
    (lambda jobs: jobs.submit(Request("x", documents=[])), "not list$"),  # type: ignore[arg-type]
    (lambda jobs: jobs.pause(7), "agent must be of type str, not int"),
    (lambda jobs: jobs.pause("writer", 7), "reason must be of type str, not int"),
    (lambda _: client.connect(7), "the Redis URL must be of type str, not int"),  # type: ignore[arg-type]
    (lambda _: client.connect(""), "the Redis URL is empty: leave it out"),
]


@pytest.mark.parametrize(("call", "line"), WRONG_TYPES, ids=[line for _, line in WRONG_TYPES])
def test_an_argument_of_another_type_is_named(
    jobs: Client, call: Callable[[Any], object], line: str
) -> None:
    with pytest.raises(UserError, match=line):
        call(jobs)


def test_limits_of_a_retry_have_their_own_type(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))
    end_job(jobs, job_id)

    with pytest.raises(UserError, match="the limits must be of type NewLimits, not int"):
        jobs.retry(job_id, limits=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("wait_s", [float("nan"), float("inf"), -1.0, 1e300, "soon", None, True])
def test_a_wait_has_bounds(jobs: Client, wait_s: float) -> None:
    with pytest.raises(UserError, match="wait_s"):
        jobs.result(jobs.submit(Request("Compare.")), wait_s=wait_s)


def test_new_limits_that_were_set_without_validation_are_refused(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))
    end_job(jobs, job_id)

    with pytest.raises(UserError, match="max_turns"):
        jobs.retry(job_id, limits=NewLimits().model_copy(update={"max_turns": 10**30}))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"text": " \n"}, "empty"),
    ({"text": "x" * 100_001}, "put long texts into documents"),
    ({"text": "x", "answer_schema": {"type": "no such type"}}, "not a JSON Schema"),
    (
        {"text": "x", "answer_schema": {"$ref": "#/nope"}},
        "the answer schema refers to #/nope, which it does not have",
    ),
    (
        {"text": "x", "answer_schema": {"enum": {1, 2}}},
        "the answer schema must be a mapping of JSON values",
    ),
    (
        {"text": "x", "answer_schema": {"patternProperties": {f"x{n}": {} for n in range(300)}}},
        "the answer schema cannot be used: 300 different patterns are too many; use at most 100",
    ),
    ({"text": "x", "webhook_url": "ftp://example.org"}, "http"),
    ({"text": "What is \ud800?"}, "the request is not UTF-8 text"),
    ({"text": "x", "tenant": "\udcff"}, "the tenant is not UTF-8 text"),
    ({"text": "x", "idempotency_key": "\ud800"}, "the idempotency key is not"),
    ({"text": "x", "webhook_url": "http://example.org/\ud800"}, "the webhook is not"),
    ({"text": "x", "specialists": ("\ud800",)}, "a specialist's name is not"),
    ({"text": "x", "answer_schema": {"description": "\ud800"}}, "the answer schema is not UTF-8"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_an_impossible_command_is_refused_in_one_line_and_nothing_is_stored(
    jobs: Client, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as refused:
        jobs.submit(Request(**fields))

    assert "\n" not in str(refused.value)
    assert jobs.newest() == []


def test_without_redis_the_client_raises_an_error_that_names_redis() -> None:
    with pytest.raises(StoreUnavailable, match="start it, or correct"):
        client.connect("redis://127.0.0.1:1/0", Settings(offline=True)).submit(Request("x"))


@pytest.mark.parametrize("job_id", ["j-000000000000", "nonsense", "", "j-*"])
def test_an_unknown_job_is_an_error_in_every_method(jobs: Client, job_id: str) -> None:
    unknown = JobId(job_id)
    for ask in (
        jobs.info,
        jobs.result,
        jobs.cancel,
        jobs.retry,
        jobs.delete,
        lambda name: list(jobs.events(name)),
    ):
        with pytest.raises(UnknownJob):
            ask(unknown)


def test_events_arrive_in_order_and_end_with_the_job(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))
    end_job(jobs, job_id)

    assert [event.version for event in jobs.events(job_id)] == [1, 2]
    assert [event.version for event in jobs.events(job_id, after=1)] == [2]


def test_the_webhooks_events_after_the_end_delay_no_caller(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))
    end_job(jobs, job_id)
    jobs.store.journal.append(
        job_id, WebhookTried(attempt=1, delivered=False, under_way=True, end=2)
    )

    assert [recorded.event.type for recorded in jobs.events(job_id)] == [
        "job_submitted",
        "job_ended",
        "webhook_tried",
    ]
    assert jobs.wait(job_id, 60) is JobStatus.OK


def test_a_follower_of_a_retried_job_follows_it_to_its_last_end(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))
    end_job(jobs, job_id, JobStatus.FAILED)
    jobs.retry(job_id)
    end_job(jobs, job_id)

    kinds = [recorded.event.type for recorded in jobs.events(job_id)]
    assert kinds == ["job_submitted", "job_ended", "retry_requested", "job_ended"]


def test_waiting_for_an_endless_job_returns_in_time(jobs: Client) -> None:
    assert jobs.result(jobs.submit(Request("Compare.")), wait_s=0.05).status is JobStatus.QUEUED


def test_a_cancel_reaches_the_store_and_wakes_a_supervisor(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))

    assert jobs.cancel(job_id)
    assert jobs.info(job_id).cancelled
    assert messages(jobs, SUPERVISOR_QUEUE) == 1
    end_job(jobs, job_id, JobStatus.CANCELLED)
    assert not jobs.cancel(job_id)


def test_only_an_ended_job_can_be_retried_or_deleted(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))

    for method in (jobs.retry, jobs.delete):
        with pytest.raises(UserError, match="has not ended"):
            method(job_id)


def test_a_retry_from_an_unknown_step_names_the_known_steps(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))
    end_job(jobs, job_id)

    with pytest.raises(UserError, match="not planned yet"):
        jobs.retry(job_id, "nowhere")


def test_one_of_many_concurrent_retries_is_in_the_journal_and_sets_the_accounts(
    jobs: Client,
) -> None:
    job_id, start = (
        jobs.submit(Request("Compare.", limits=JobLimits(max_turns=1))),
        threading.Barrier(8),
    )
    end_job(jobs, job_id, JobStatus.PARTIAL)

    def retry(turns: int) -> int | None:
        start.wait()
        try:
            jobs.retry(job_id, limits=NewLimits(max_turns=turns))
        except UserError:
            return None
        return turns

    with ThreadPoolExecutor(8) as pool:
        (turns_of_retry,) = (turns for turns in pool.map(retry, range(10, 18)) if turns is not None)
    retries = [
        recorded.event
        for recorded in jobs.store.journal.read(job_id)
        if isinstance(recorded.event, RetryRequested)
    ]
    assert [event.max_turns for event in retries] == [turns_of_retry]
    assert (
        jobs.store.connection.redis.hget(keys.job(job_id), "max_turns")
        == str(turns_of_retry).encode()
    )


def test_a_retry_revokes_the_cancel(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))
    jobs.cancel(job_id)
    end_job(jobs, job_id, JobStatus.CANCELLED)
    jobs.retry(job_id)

    assert (jobs.info(job_id).status, jobs.info(job_id).cancelled) == ("queued", False)
    assert jobs.store.journal.read(job_id)[-1].event == RetryRequested(keeps_results=True)


def test_nothing_stays_of_a_deleted_job(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))
    issue(jobs.store, job_id, "a.1", "b.1")
    finish(granted_claim(jobs.store, job_id, "a.1"))
    end_job(jobs, job_id)

    jobs.delete(job_id)

    redis = jobs.store.connection.redis
    assert [name for name in redis.scan_iter() if job_id.encode() in name] == []
    assert redis.zscore("handoff:due", job_id) is None
    with pytest.raises(UnknownJob):
        jobs.info(job_id)


def test_a_report_is_one_json_object(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare."))

    report = json.loads(jobs.result(job_id).to_json())
    assert (report["job_id"], report["status"], report["answer"]) == (job_id, "queued", None)


def test_documents_given_as_text_are_refused_with_a_remedy(jobs: Client) -> None:
    with pytest.raises(UserError, match=r"not str: write Path\('docs'\)"):
        jobs.submit(Request("Compare.", documents="docs"))  # type: ignore[arg-type]


def test_a_retry_sets_the_new_limits_in_the_accounts(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare.", limits=JobLimits(max_turns=1)))
    end_job(jobs, job_id, JobStatus.PARTIAL)
    jobs.retry(job_id, limits=NewLimits(max_turns=7, max_microusd=9))

    assert jobs.store.connection.redis.hmget(keys.job(job_id), "max_turns", "max_usd") == [
        b"7",
        b"9",
    ]


def test_a_retry_needs_the_jobs_documents_and_keeps_them(jobs: Client, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("A fact.")
    job_id = jobs.submit(Request("Compare.", documents=tmp_path))
    end_job(jobs, job_id, JobStatus.PARTIAL)
    name, redis = keys.document(compute_digest("A fact.")), jobs.store.connection.redis
    redis.expire(name, 5)
    jobs.retry(job_id)
    assert redis.ttl(name) > Settings().retention_s

    end_job(jobs, job_id, JobStatus.PARTIAL)
    redis.delete(name)
    with pytest.raises(
        UserError,
        match=r"1 of the documents of .* are no longer stored: give them again in documents$",
    ):
        jobs.retry(job_id)
