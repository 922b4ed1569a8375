"""Slow receivers of webhooks hold no slot of a supervisor, and no delivery is lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.journal import Journal
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.events import (
    CancelRequested,
    EndTaskTried,
    Event,
    JobEnded,
    JobStatus,
    WebhookTried,
)
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, EndTask
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.engine.decision_maker import compute_seconds_until_next_try
from handoff_queue.supervisor.engine.deliveries import (
    MAX_FOR_ONE,
    MAX_THREADS,
    MAX_WAIT_S,
    NO_THREAD,
    Deliveries,
)
from handoff_queue.supervisor.engine.end_tasks import EndTasks
from handoff_queue.supervisor.engine.state_cache import StateCache
from handoff_queue.supervisor.engine.webhooks import Webhooks
from handoff_queue.supervisor.lifecycle.commands import AskApproval, DeliverWebhook, SendEndTask
from handoff_queue.supervisor.lifecycle.job_end import build_commands_after_end
from handoff_queue.supervisor.lifecycle.state import JobState, Question
from tests.doubles.jobs import a_job
from tests.doubles.webhook_server import WebhookServer
from tests.supervisor.shell import Shell
from tests.waiting import wait_until

SETTINGS = Settings(offline=True)
FIRST = DeliverWebhook(1)


@dataclass(slots=True)
class Clock:
    """A clock that the test sets, in seconds."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Sender:
    """Deliveries with one thread for each receiver, and a receiver that answers on demand."""

    store: Store
    redis_url: str
    clock: Clock = field(default_factory=Clock)
    answers: threading.Event = field(default_factory=threading.Event)
    end_tasks: EndTasks = field(init=False)
    deliveries: Deliveries = field(init=False)
    slow: WebhookServer = field(init=False)

    def __post_init__(self) -> None:
        app = make_app("supervisor", self.redis_url, SETTINGS, ())
        self.end_tasks = EndTasks(self.store, PayloadCache(self.store), app, None, ())
        self.deliveries = Deliveries(
            Webhooks(self.store, None, ("127.0.0.1",)),
            self.end_tasks,
            max_for_one=1,
            clock=self.clock,
        )
        self.slow = WebhookServer(200, answers_after=self.answers)

    def ended(self, url: str, tenant: str = "acme", payloads: Sequence[str] = ()) -> JobState:
        """Return an ended job with a webhook."""
        job_id = a_job(self.store)
        self.store.journal.append_unless_ended(job_id, CancelRequested(), payloads=payloads)
        self.store.journal.append(job_id, JobEnded(status=JobStatus.OK))
        state = StateCache(self.store.journal).load(job_id)
        assert state is not None
        changes = {"webhook_url": url, "tenant": tenant}
        return state.model_copy(update={"submitted": state.submitted.model_copy(update=changes)})

    def asking(self, url: str) -> JobState:
        """Return a job that waits for an answer, with a webhook."""
        question = Question(what=ApprovalOf.PLAN, version=1, at=0.0, until=1.0)
        return self.ended(url).model_copy(update={"question": question})

    def outcome(self, job_id: JobId) -> Event | None:
        """Return the outcome of a job's try, or None before that."""
        event = self.store.journal.read(job_id)[-1].event
        return None if isinstance(event, JobEnded) else event


def tries(shell: Shell, job_id: JobId) -> list[WebhookTried]:
    return [event for event in shell.events(job_id) if isinstance(event, WebhookTried)]


def evaluated_and_delivered(shell: Shell, job_ids: Sequence[JobId]) -> bool:
    """Evaluate the jobs whose webhook has no thread yet, as the sweeper does. Return whether all
    webhooks are delivered.
    """
    for job_id in job_ids:
        if not tries(shell, job_id):
            shell.advance(job_id)
    return all(any(tried.delivered for tried in tries(shell, job_id)) for job_id in job_ids)


@pytest.fixture
def sender(store: Store, redis_url: str) -> Iterator[Sender]:
    made = Sender(store, redis_url)
    with made.slow:
        yield made
        made.answers.set()
        made.deliveries.finish()


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    made = Shell(redis_url, make_app("supervisor", redis_url, SETTINGS, ()))
    yield made
    made.close()


def test_a_supervisor_evaluates_jobs_while_a_receiver_does_not_answer(shell: Shell) -> None:
    answers = threading.Event()
    with WebhookServer(200, answers_after=answers) as hook:
        job_id = shell.jobs.submit(Request("Compare.", webhook_url=hook.url))
        shell.jobs.cancel(job_id)

        shell.advance(job_id)

        last = shell.events(job_id)[-1]
        assert isinstance(last, WebhookTried)
        assert last.under_way
        answers.set()
        wait_until(lambda: shell.events(job_id)[-1] != last, expected="the outcome")

    delivered = shell.events(job_id)[-1]
    assert isinstance(delivered, WebhookTried)
    assert delivered.delivered


@pytest.mark.slow
def test_a_burst_of_webhooks_to_a_slow_receiver_counts_only_the_tries_that_were_sent(
    shell: Shell,
) -> None:
    answers = threading.Event()
    with WebhookServer(200, answers_after=answers) as hook:
        job_ids = [
            shell.jobs.submit(Request("Compare.", webhook_url=hook.url, tenant="acme"))
            for _ in range(MAX_FOR_ONE + 4)
        ]
        for job_id in job_ids:
            shell.jobs.cancel(job_id)
            shell.advance(job_id)
        wait_until(lambda: len(hook.posts) == MAX_FOR_ONE, expected="the posts that have a thread")

        waiting = [job_id for job_id in job_ids if not tries(shell, job_id)]
        assert len(waiting) == 4
        for _ in range(10):
            for job_id in waiting:
                shell.advance(job_id)
        assert [tries(shell, job_id) for job_id in waiting] == [[]] * 4
        answers.set()
        wait_until(lambda: evaluated_and_delivered(shell, job_ids), expected="all outcomes")
        assert len(hook.posts) == len(job_ids)

    for job_id in job_ids:
        assert [(tried.attempt, tried.under_way) for tried in tries(shell, job_id)] == [
            (1, True),
            (1, False),
        ]


def test_a_webhook_without_a_free_thread_is_due_again_after_two_seconds(
    shell: Shell,
) -> None:
    answers, redis = threading.Event(), shell.store.connection.redis
    with WebhookServer(200, answers_after=answers) as hook:
        job_ids = [
            shell.jobs.submit(Request("Compare.", webhook_url=hook.url))
            for _ in range(MAX_FOR_ONE + 1)
        ]
        for job_id in job_ids:
            shell.jobs.cancel(job_id)
            shell.advance(job_id)
        now_ms = shell.store.connection.now() * 1_000
        soon_ms = redis.zscore(keys.DUE, job_ids[-1])
        answers.set()

    assert soon_ms is not None
    assert now_ms < soon_ms <= now_ms + 2_100


@pytest.mark.parametrize(("waited_s", "again_s"), [(0.0, 2.0), (40.0, 10.0), (7_200.0, 30.0)])
def test_a_try_without_a_thread_looks_for_one_after_a_quarter_of_its_waiting_time(
    waited_s: float, again_s: float
) -> None:
    assert compute_seconds_until_next_try(waited_s) == again_s


def test_a_question_does_not_take_the_thread_that_a_try_has_reserved(sender: Sender) -> None:
    ended, asking = sender.ended(sender.slow.url), sender.asking(sender.slow.url)
    assert sender.deliveries.reserve(ended, FIRST)

    sender.deliveries.start(asking, AskApproval(ApprovalOf.PLAN, ""))

    assert sender.slow.posts == []
    sender.deliveries.start(ended, FIRST)
    wait_until(lambda: sender.slow.posts, expected="the post of the try")
    sender.answers.set()
    wait_until(lambda: len(sender.slow.posts) == 2, expected="the post of the question")
    assert [json.loads(post.body)["status"] for post in sender.slow.posts] == ["ok", "waiting"]


def test_a_reservation_is_kept_for_a_second_decision_and_ends_if_no_commit_uses_it(
    sender: Sender,
) -> None:
    first, second = sender.ended(sender.slow.url), sender.ended(sender.slow.url)
    assert sender.deliveries.reserve(first, FIRST)
    assert sender.deliveries.reserve(first, FIRST)
    assert not sender.deliveries.reserve(second, FIRST)

    sender.deliveries.release(first.job_id)

    assert sender.deliveries.reserve(second, FIRST)


def test_a_question_that_waits_for_a_reserved_thread_gets_it_if_no_commit_uses_it(
    sender: Sender,
) -> None:
    ended, asking = sender.ended(sender.slow.url), sender.asking(sender.slow.url)
    assert sender.deliveries.reserve(ended, FIRST)
    sender.deliveries.start(asking, AskApproval(ApprovalOf.PLAN, ""))

    sender.deliveries.release(ended.job_id)

    wait_until(lambda: sender.slow.posts, expected="the post of the question")


def test_jobs_whose_commits_fail_keep_no_threads_from_another_job(shell: Shell) -> None:
    def is_away(*_: object) -> NoReturn:
        raise StoreUnavailable("Redis cannot be reached")

    with WebhookServer(200) as hook:
        request = Request("Compare.", webhook_url=hook.url)
        *failing, last = [shell.jobs.submit(request) for _ in range(MAX_FOR_ONE + 1)]
        for job_id in (*failing, last):
            shell.jobs.cancel(job_id)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Journal, "commit", is_away)
            for job_id in failing:
                with pytest.raises(StoreUnavailable):
                    shell.advance(job_id)

        shell.advance(last)

        wait_until(lambda: len(tries(shell, last)) == 2, expected="the outcome of the last job")


def test_all_receivers_together_reserve_no_more_threads_than_a_supervisor_may_have(
    sender: Sender,
) -> None:
    states = [sender.ended(sender.slow.url, f"tenant-{n}") for n in range(MAX_THREADS + 1)]

    reserved = [sender.deliveries.reserve(state, FIRST) for state in states]

    assert reserved == [True] * MAX_THREADS + [False]


def test_end_tasks_and_webhooks_of_one_job_reserve_threads_of_their_own(sender: Sender) -> None:
    state, other = sender.ended(sender.slow.url), sender.ended(sender.slow.url)

    assert sender.deliveries.reserve(state, FIRST)
    assert sender.deliveries.reserve(state, SendEndTask(1))
    assert not sender.deliveries.reserve(other, SendEndTask(1))


def test_the_slow_receivers_of_a_tenant_do_not_delay_another_tenant(sender: Sender) -> None:
    first, second = sender.ended(sender.slow.url), sender.ended(sender.slow.url)
    with WebhookServer(200) as fast:
        other = sender.ended(fast.url, tenant="other")
        for state in (first, second, other):
            sender.deliveries.start(state, FIRST)

        wait_until(lambda: sender.outcome(other.job_id), expected="the webhook of the other tenant")

    assert sender.outcome(first.job_id) is None
    assert len(sender.slow.posts) <= 1


def test_jobs_without_a_tenant_share_the_threads_of_a_host(sender: Sender) -> None:
    slow = [sender.ended(sender.slow.url, tenant="default") for _ in range(2)]
    with WebhookServer(200) as fast:
        url = fast.url.replace("127.0.0.1", "localhost")
        other = sender.ended(url, tenant="default")
        for state in (*slow, other):
            sender.deliveries.start(state, FIRST)

        wait_until(lambda: sender.outcome(other.job_id), expected="the outcome of the other host")

    assert sender.outcome(slow[0].job_id) is None
    assert len(sender.slow.posts) <= 1


def test_all_deliveries_of_a_receiver_are_sent_one_after_another(sender: Sender) -> None:
    states = [sender.ended(sender.slow.url) for _ in range(3)]
    for state in states:
        sender.deliveries.start(state, FIRST)
    wait_until(lambda: sender.slow.posts, expected="the first post")
    assert len(sender.slow.posts) == 1

    sender.answers.set()

    wait_until(
        lambda: all(sender.outcome(state.job_id) for state in states), expected="the outcomes"
    )
    assert len(sender.slow.posts) == 3


@pytest.mark.parametrize(("waited_s", "fails"), [(MAX_WAIT_S + 0.1, True), (29.0, False)])
def test_a_delivery_that_waits_too_long_fails_unless_the_next_try_may_have_begun(
    sender: Sender, waited_s: float, fails: bool
) -> None:
    first, late, last = (sender.ended(sender.slow.url) for _ in range(3))
    sender.deliveries.start(first, FIRST)
    wait_until(lambda: sender.slow.posts, expected="the first post")
    sender.deliveries.start(late, FIRST)
    sender.clock.now = waited_s
    sender.deliveries.start(last, FIRST)

    sender.answers.set()

    wait_until(lambda: sender.outcome(last.job_id), expected="the outcome of the last")
    failed = WebhookTried(attempt=1, delivered=False, detail=NO_THREAD, end=late.ended_version)
    assert sender.outcome(late.job_id) == (failed if fails else None)
    assert len(sender.slow.posts) == 2


def test_the_tries_of_a_webhook_that_waits_behind_slow_receivers_are_spread_over_an_hour(
    sender: Sender,
) -> None:
    state = sender.ended("https://hooks.example/done")
    webhooks = Webhooks(sender.store, None)
    webhooks.record_failed_try(state, 5, NO_THREAD)

    after = StateCache(sender.store.journal).load(state.job_id)

    assert after is not None
    after = after.model_copy(update={"submitted": state.submitted})
    (tried,) = sender.store.journal.read(state.job_id)[-1:]
    assert build_commands_after_end(after, tried.at + 3_599) == ()
    assert build_commands_after_end(after, tried.at + 3_601) == (DeliverWebhook(6),)


def test_an_end_task_that_waited_too_long_is_a_failed_try(sender: Sender) -> None:
    task = EndTask(task="host.notify").to_json()
    state = sender.ended("", payloads=[task])
    submitted = state.submitted.model_copy(update={"on_end": make_ref(task)})
    state = state.model_copy(update={"submitted": submitted})

    sender.end_tasks.send(state, 6, not_sent=NO_THREAD)

    outcome = sender.outcome(state.job_id)
    assert isinstance(outcome, EndTaskTried)
    assert (outcome.delivered, outcome.detail) == (False, NO_THREAD)
    (letter,) = sender.store.dead_letters.list_newest()
    assert NO_THREAD in letter.reason


@pytest.mark.slow
def test_a_thread_that_cannot_start_takes_no_place(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    states = [sender.ended(sender.slow.url) for _ in range(MAX_THREADS + 1)]
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for state in states[1:]:
            sender.deliveries.start(state, FIRST)
    sender.answers.set()

    sender.deliveries.start(states[0], FIRST)

    wait_until(
        lambda: all(sender.outcome(state.job_id) for state in states), expected="the outcomes"
    )


def test_a_supervisor_that_shuts_down_waits_for_a_running_delivery_and_starts_no_other(
    sender: Sender,
) -> None:
    running, waiting = sender.ended(sender.slow.url), sender.ended(sender.slow.url)
    sender.deliveries.start(running, FIRST)
    wait_until(lambda: sender.slow.posts, expected="the post")
    sender.deliveries.start(waiting, FIRST)
    releases = threading.Timer(0.05, sender.answers.set)
    releases.start()

    sender.deliveries.finish()
    releases.join()

    assert sender.outcome(running.job_id) is not None
    assert sender.outcome(waiting.job_id) is None


def test_the_outcome_of_a_try_wakes_the_job(sender: Sender) -> None:
    state = sender.ended("http://127.0.0.1:1/hook")
    redis = sender.store.connection.redis
    redis.zadd(keys.DUE, {state.job_id: 10**15})

    sender.deliveries.start(state, FIRST)
    wait_until(lambda: sender.outcome(state.job_id), expected="the outcome")

    assert redis.zscore(keys.DUE, state.job_id) < 10**15


def test_a_fault_of_one_delivery_does_not_stop_the_next(sender: Sender) -> None:
    broken = sender.ended(sender.slow.url)
    sender.answers.set()
    sender.deliveries.start(broken.model_copy(update={"ended": None}), FIRST)
    following = sender.ended(sender.slow.url)
    sender.deliveries.start(following, FIRST)

    wait_until(lambda: sender.outcome(following.job_id), expected="the outcome of the next")


def test_an_end_task_whose_payload_is_lost_is_a_failed_try(sender: Sender) -> None:
    state = sender.ended("")
    submitted = state.submitted.model_copy(update={"on_end": make_ref("a task that is lost")})
    sender.deliveries.start(state.model_copy(update={"submitted": submitted}), SendEndTask(6))

    outcome = wait_until(lambda: sender.outcome(state.job_id), expected="the outcome")
    assert isinstance(outcome, EndTaskTried)
    assert "are gone" in outcome.detail
    (letter,) = wait_until(sender.store.dead_letters.list_newest, expected="the dead letter")
    assert "the task of the end" in letter.reason
