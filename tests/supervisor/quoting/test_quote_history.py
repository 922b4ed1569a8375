"""A quote prices the calls that go through batches at half, and all other calls in full."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.cost_quote import Quote
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.shared.types.specialist import RunnerKind
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.quoting.quote_history import convert_quote, make_quote
from handoff_queue.supervisor.roles.role_events import make_plan_event
from tests.doubles.handoffs import a_spec
from tests.doubles.simulated_job import SimulatedJob

SAMPLE = '{"at": 1, "usd": 100, "ms": 1000, "waited_ms": 0, "turns": 1, "bucket": null, "saved": 0}'
CHECKER = "analyst"


@pytest.fixture
def store_with_samples(store: Store) -> Store:
    """Return a store in which each handoff of the past cost 100 micro-dollars."""
    names = [keys.history(name) for name in ("writer", CHILD_JOB_SPECIALIST, "assessor", CHECKER)]
    for name in names:
        store.connection.redis.lpush(name, SAMPLE)
        store.connection.redis.expire(name, 600)
    return store


def quote_of_one_step(
    store: Store, specialist: str = "writer", *, model: str = "anthropic", **spec: Any
) -> Quote:
    """Return the quote of a job with batches: one step, the assessor and the fact-checker."""
    served = a_spec(name="writer").model_copy(update=spec)
    store.presence.announce(Announcement(worker="w", specialists=(served,), slots=1, model=model))
    plan = Plan(steps=(Step(id=StepId("a"), specialist=specialist, task="Do it."),))
    job = SimulatedJob(is_batched=True, gates=Gates(fact_checker=CHECKER))
    job.advance()
    job.append(make_plan_event(plan, job.finish("planner"))[0])
    return make_quote(job.state, store)


def test_a_step_the_assessor_and_the_fact_checker_cost_half(
    store_with_samples: Store,
) -> None:
    quoted = convert_quote(quote_of_one_step(store_with_samples))

    assert quoted["cost"]["likely_usd"] == pytest.approx(150e-6)
    assert quoted["cost"]["half_price_usd"] == pytest.approx(150e-6)
    assert quoted["time"] is None
    assert quoted["time_without_batches"]["likely_s"] > 0
    assert quoted["deadline_s"] == JobLimits().max_seconds


def test_a_wait_for_a_person_before_the_quote_moves_the_quoted_deadline(
    store_with_samples: Store,
) -> None:
    plan = Plan(steps=(Step(id=StepId("a"), specialist="writer", task="Do it."),))
    job = SimulatedJob(is_batched=True, approvals=Approvals(what=(ApprovalOf.PLAN,)))
    job.advance()
    job.make_plan(plan)
    job.advance()
    job.now += 3_600
    job.reject("Use other words.")
    job.advance()
    job.make_plan(plan)

    quote = make_quote(job.state, store_with_samples)

    assert quote.deadline_s == JobLimits().max_seconds + 3_600


@pytest.mark.parametrize(
    "without",
    [
        {"model": "bedrock"},
        {"runner": RunnerKind.AGENT_SDK},
        {"celery_task": "their.task"},
        {"specialist": CHILD_JOB_SPECIALIST},
    ],
    ids=lambda without: next(iter(without)),
)
def test_a_step_whose_calls_are_never_in_batches_costs_the_full_price(
    store_with_samples: Store, without: dict[str, Any]
) -> None:
    quote = quote_of_one_step(store_with_samples, **without)

    assert quote.microusd
    assert (quote.microusd.likely, quote.half_price_microusd) == (200.0, 100.0)


@pytest.mark.parametrize(
    "false_figure", ['"usd": -9000000', '"ms": -9000000', '"saved": -200', '"server_tools": -200']
)
def test_a_negative_figure_of_a_worker_stops_no_quote(
    store_with_samples: Store, false_figure: str
) -> None:
    name = false_figure.partition(":")[0]
    kept = [part for part in SAMPLE[1:-1].split(", ") if not part.startswith(name)]
    false_sample = f"{{{', '.join([*kept, false_figure])}}}"
    before = quote_of_one_step(store_with_samples)
    store_with_samples.connection.redis.lpush(keys.history("writer"), *[false_sample] * 30)

    assert quote_of_one_step(store_with_samples) == before
