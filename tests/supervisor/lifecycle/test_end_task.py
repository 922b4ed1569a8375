"""The host's task is sent when the job has ended: at once, again after a failure, and once
more for the end of a retry.
"""

from __future__ import annotations

from handoff_queue.shared.types.events import EndTaskTried, RetryRequested
from handoff_queue.shared.types.handoff import ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.lifecycle.commands import DeliverWebhook, SendEndTask
from handoff_queue.supervisor.lifecycle.job_end import (
    WEBHOOK_BACKOFF_S,
    WEBHOOK_GIVEN_UP_AFTER_S,
    next_due,
)
from tests.doubles.life import LEASE_S, Life, done

URL = "https://example.org/hook"


def ended(webhook_url: str | None = None) -> Life:
    """Return a job that has ended, with a task to send."""
    life = Life(on_end=ref("a task"), webhook_url=webhook_url)
    life.goes_on()
    life.plans(a="")
    life.goes_on()
    done(life, "a")
    life.judges()
    life.goes_on()
    return life


def tried(life: Life, attempt: int, *, delivered: bool) -> None:
    life.happens(EndTaskTried(attempt=attempt, delivered=delivered, end=life.state.ended_version))


def test_the_task_is_sent_at_once_and_once() -> None:
    life = ended()

    assert life.done == [SendEndTask(1)]
    assert life.decides() == ()
    tried(life, 1, delivered=True)
    assert life.decides() == ()
    assert next_due(life.state, life.now, LEASE_S) is None


def test_a_task_that_could_not_be_sent_is_tried_again_with_growing_pauses_and_then_left() -> None:
    life = ended()
    for attempt, pause_s in enumerate(WEBHOOK_BACKOFF_S[1:], start=1):
        tried(life, attempt, delivered=False)
        assert next_due(life.state, life.now, LEASE_S) == life.now + pause_s
        life.now += pause_s
        assert life.goes_on() == [SendEndTask(attempt + 1)]
    tried(life, len(WEBHOOK_BACKOFF_S), delivered=False)

    assert next_due(life.state, life.now, LEASE_S) is None


def test_a_try_whose_supervisor_died_is_made_again() -> None:
    life = ended()
    life.now += WEBHOOK_GIVEN_UP_AFTER_S

    assert life.goes_on() == [SendEndTask(2)]


def test_the_last_try_is_made_again_too_if_its_supervisor_died() -> None:
    life = ended()
    for attempt, pause_s in enumerate(WEBHOOK_BACKOFF_S[1:], start=1):
        tried(life, attempt, delivered=False)
        life.now += pause_s
        life.goes_on()
    life.now += WEBHOOK_GIVEN_UP_AFTER_S

    assert life.goes_on() == [SendEndTask(len(WEBHOOK_BACKOFF_S) + 1)]


def test_a_webhook_and_a_task_do_not_wait_for_each_other() -> None:
    life = ended(URL)

    assert life.done == [SendEndTask(1), DeliverWebhook(1)]
    tried(life, 1, delivered=True)
    assert next_due(life.state, life.now, LEASE_S) == life.now + WEBHOOK_GIVEN_UP_AFTER_S


def test_the_end_of_a_retry_is_sent_anew_and_an_old_try_says_nothing_of_it() -> None:
    life = ended()
    before = life.state.ended_version
    life.happens(RetryRequested(from_step=StepId("a")))
    life.happens(EndTaskTried(attempt=1, delivered=True, end=before))
    life.goes_on()
    done(life, "a")
    life.judges()
    life.goes_on()

    assert life.done == [SendEndTask(1), SendEndTask(1)]
    assert life.state.ended_version != before
