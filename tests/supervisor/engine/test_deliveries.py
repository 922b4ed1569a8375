"""Slow receivers of webhooks hold no slot of a supervisor, and no delivery is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import (
    CancelRequested,
    EndTaskTried,
    Event,
    JobEnded,
    JobStatus,
    WebhookTried,
)
from handoff_queue.shared.types.handoff import ref
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import EndTask
from handoff_queue.supervisor.client.client import Request
from handoff_queue.supervisor.engine.deliveries import (
    MOST_THREADS,
    MOST_WAIT_S,
    NO_THREAD,
    Deliveries,
)
from handoff_queue.supervisor.engine.end_tasks import EndTasks
from handoff_queue.supervisor.engine.state_cache import StateCache
from handoff_queue.supervisor.engine.webhooks import Webhooks
from handoff_queue.supervisor.lifecycle.commands import DeliverWebhook, SendEndTask
from handoff_queue.supervisor.lifecycle.job_end import after_the_end
from handoff_queue.supervisor.lifecycle.state import JobState
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
            most_for_one=1,
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

    def outcome(self, job_id: JobId) -> Event | None:
        """Return the outcome of a job's try, or None before that."""
        event = self.store.journal.read(job_id)[-1].event
        return None if isinstance(event, JobEnded) else event


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


@pytest.mark.parametrize(("waited_s", "fails"), [(MOST_WAIT_S + 0.1, True), (29.0, False)])
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
    webhooks.not_delivered(state, 5, NO_THREAD)

    after = StateCache(sender.store.journal).load(state.job_id)

    assert after is not None
    after = after.model_copy(update={"submitted": state.submitted})
    (tried,) = sender.store.journal.read(state.job_id)[-1:]
    assert after_the_end(after, tried.at + 3_599) == ()
    assert after_the_end(after, tried.at + 3_601) == (DeliverWebhook(6),)


def test_an_end_task_that_waited_too_long_is_a_failed_try(sender: Sender) -> None:
    task = EndTask(task="host.notify").to_json()
    state = sender.ended("", payloads=[task])
    submitted = state.submitted.model_copy(update={"on_end": ref(task)})
    state = state.model_copy(update={"submitted": submitted})

    sender.end_tasks.send(state, 6, not_sent=NO_THREAD)

    outcome = sender.outcome(state.job_id)
    assert isinstance(outcome, EndTaskTried)
    assert (outcome.delivered, outcome.detail) == (False, NO_THREAD)
    (letter,) = sender.store.dead_letters.newest()
    assert NO_THREAD in letter.reason


def test_a_thread_that_cannot_start_takes_no_place(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    states = [sender.ended(sender.slow.url) for _ in range(MOST_THREADS + 1)]
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
    submitted = state.submitted.model_copy(update={"on_end": ref("a task that is lost")})
    sender.deliveries.start(state.model_copy(update={"submitted": submitted}), SendEndTask(6))

    outcome = wait_until(lambda: sender.outcome(state.job_id), expected="the outcome")
    assert isinstance(outcome, EndTaskTried)
    assert "are gone" in outcome.detail
    (letter,) = wait_until(sender.store.dead_letters.newest, expected="the dead letter")
    assert "the task of the end" in letter.reason
