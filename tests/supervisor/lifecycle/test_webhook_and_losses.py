"""The webhook and the task after a job's end, and losses before it."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import WebhookTried
from handoff_queue.supervisor.lifecycle.commands import (
    DeliverWebhook,
)
from handoff_queue.supervisor.lifecycle.job_end import (
    WEBHOOK_BACKOFF_S,
    WEBHOOK_GIVEN_UP_AFTER_S,
    next_due,
)
from handoff_queue.supervisor.lifecycle.observations import ObservedHandoff
from tests.doubles.life import BEGIN, LEASE_S, Life, done, planned
from tests.doubles.orders import again, run

# Webhook


def with_webhook() -> Life:
    life = Life(webhook_url="https://example.org/hook")
    life.goes_on()
    life.plans(a="")
    life.goes_on()
    return life


def test_the_end_is_told_to_the_webhook_at_once_and_once() -> None:
    life = with_webhook()
    done(life, "a")
    life.judges()

    assert life.goes_on()[-1] == DeliverWebhook(1)
    assert life.decides() == ()
    life.happens(WebhookTried(attempt=1, delivered=True))
    assert life.decides() == ()
    assert next_due(life.state, life.now, LEASE_S) is None


def test_a_webhook_that_fails_is_tried_again_with_growing_pauses_and_then_left() -> None:
    life = with_webhook()
    done(life, "a")
    life.judges()
    life.goes_on()
    for attempt, pause_s in enumerate(WEBHOOK_BACKOFF_S[1:], start=1):
        life.happens(WebhookTried(attempt=attempt, delivered=False))
        assert next_due(life.state, life.now, LEASE_S) == life.now + pause_s
        life.now += pause_s - 0.1
        assert life.decides() == ()
        life.now += 0.1
        assert life.goes_on() == [DeliverWebhook(attempt + 1)]
    life.happens(WebhookTried(attempt=len(WEBHOOK_BACKOFF_S), delivered=False))

    assert next_due(life.state, life.now, LEASE_S) is None


def test_a_try_whose_supervisor_died_is_made_again() -> None:
    life = with_webhook()
    done(life, "a")
    life.judges()
    life.goes_on()
    life.now += WEBHOOK_GIVEN_UP_AFTER_S

    assert life.goes_on() == [DeliverWebhook(2)]


# Lost messages and processes


def test_a_lost_message_and_one_whose_worker_died_are_published_again() -> None:
    life = planned(a="", b="", c="")
    seen = life.seen(
        a_1=ObservedHandoff("issued", lost=True),
        b_1=ObservedHandoff("running", lease_until=life.now - 1),
        c_1=ObservedHandoff("issued"),
    )

    assert life.decides(seen) == (again("a.1", "b.1"),)


def test_what_runs_waits_or_has_ended_is_left_alone() -> None:
    life = planned(a="", b="")
    seen = life.seen(
        a_1=ObservedHandoff("running", lease_until=life.now + 5),
        b_1=ObservedHandoff("issued"),
        z_1=ObservedHandoff("running"),
    )

    assert life.decides(seen) == ()


def test_a_role_that_waits_in_a_queue_is_left_there_until_it_is_lost() -> None:
    life = Life()
    life.goes_on()

    assert life.decides(life.seen(planner_1=ObservedHandoff("issued", queued=True))) == ()
    assert life.decides(life.seen(planner_1=ObservedHandoff("issued", queued=True, lost=True))) == (
        run("planner.1"),
    )


@pytest.mark.parametrize(
    "standing", [ObservedHandoff("issued"), ObservedHandoff("running", lease_until=BEGIN - 1)]
)
def test_a_role_that_nobody_works_on_is_run(standing: ObservedHandoff) -> None:
    life = Life()
    life.goes_on()

    assert life.decides(life.seen(planner_1=standing)) == (run("planner.1"),)


def test_messages_go_out_before_a_role_is_run_because_that_takes_as_long_as_its_model() -> None:
    life = planned(a="", b="")
    life.finishes("a", "needs_input")
    life.goes_on()
    seen = life.seen(planner_2=ObservedHandoff("issued"), b_1=ObservedHandoff("issued", lost=True))

    assert life.decides(seen) == (again("b.1"), run("planner.2"))


def test_a_job_is_looked_at_again_by_its_deadline_and_sooner_while_a_role_is_at_work() -> None:
    life = Life()
    life.roles = frozenset()
    assert next_due(life.state, life.now, LEASE_S) == life.now + 2
    assert next_due(life.state, life.now + 40, LEASE_S) == life.now + 50
    assert next_due(life.state, life.now + 300, LEASE_S) == life.now + 330
    life = Life()
    life.goes_on()
    assert next_due(life.state, life.now, LEASE_S) == life.now + LEASE_S
    life.plans(a="")
    life.goes_on()
    assert next_due(life.state, life.now, LEASE_S) == life.state.deadline
