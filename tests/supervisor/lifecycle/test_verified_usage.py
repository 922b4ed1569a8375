"""A result counts in the verified usage of its job. It counts for a day only if it certainly
belongs to the day.
"""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.types.events import Child, HandoffFinished, HandoffIssued
from handoff_queue.shared.types.handoff import ResultStatus, StopReason, make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.limits import MAX_COUNT, MAX_MICROUSD, MAX_TOKENS, JobLimits
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.verified_usage import (
    DAY_S,
    MAX_MICROUSD_PER_TOKEN,
    MAX_VERIFIED,
    UNKNOWN_MAX_TOKENS,
    VerifiedUsage,
    clamp_to_limits,
)
from tests.doubles.jobs import issued_event
from tests.doubles.simulated_job import a_plan, planned

MOST = 10**15
FALSE = Usage(input_tokens=MOST, output_tokens=MOST, cost_microusd=MOST)
NOON = 20_000.5 * DAY_S


def result(microusd: int | None = 7) -> HandoffFinished:
    return HandoffFinished(
        handoff_id=HandoffId("find.1"),
        status=ResultStatus.OK,
        result=make_ref("{}"),
        usage=Usage(input_tokens=10, output_tokens=2, cost_microusd=microusd),
        turns=1,
        stop_reason=StopReason.FINISHED,
        confidence=1.0,
    )


def an_issued_handoff(group: str | None = "g1", **changes: Any) -> HandoffIssued:
    return issued_event("find.1", group=group).model_copy(update=changes)


def test_a_false_result_counts_at_most_twice_the_limits_of_its_job() -> None:
    limits = JobLimits(max_turns=20, max_tokens=1_000, max_microusd=500)
    job = planned(a_plan(a=""), limits=limits)
    before = job.state.verified_usage.job

    job.finish("a", usage=FALSE, turns=MOST)

    after = job.state.verified_usage.job
    more = tuple(later - earlier for earlier, later in zip(before, after, strict=True))
    assert more == (40, 2_000, 2_000, 1_000)


def test_a_false_result_counts_at_most_twice_the_limits_of_its_handoff() -> None:
    issued = an_issued_handoff(max_tokens=1_000, max_microusd=500)
    without_money = an_issued_handoff(max_tokens=1_000)
    event = result().model_copy(update={"usage": FALSE})

    usage = clamp_to_limits(event, issued, JobLimits()).usage
    unlimited = clamp_to_limits(event, without_money, JobLimits()).usage

    assert (usage.input_tokens, usage.output_tokens, usage.cost_microusd) == (2_000, 2_000, 1_000)
    assert unlimited.cost_microusd == 2_000 * MAX_MICROUSD_PER_TOKEN


@pytest.mark.parametrize(
    "issued",
    [None, an_issued_handoff()],
    ids=["an abandoned handoff", "a handoff of an earlier version"],
)
def test_a_false_result_of_a_handoff_with_unknown_limits_is_bounded(
    issued: HandoffIssued | None,
) -> None:
    event = result().model_copy(update={"usage": FALSE})

    usage = clamp_to_limits(event, issued, JobLimits()).usage

    assert usage.input_tokens == 2 * UNKNOWN_MAX_TOKENS


@pytest.mark.parametrize(
    "issued",
    [
        an_issued_handoff(max_tokens=6, max_microusd=4),
        an_issued_handoff(group=None),
        an_issued_handoff(
            group=None, child=Child(job_id=JobId("j-0123456789ab"), limits=JobLimits())
        ),
    ],
    ids=["last call above the limit", "role", "child job"],
)
def test_a_right_result_counts_as_it_is(issued: HandoffIssued) -> None:
    event = result()
    if issued.group is None:  # a supervisor has signed it
        event = event.model_copy(update={"usage": FALSE, "turns": MOST})

    assert clamp_to_limits(event, issued, JobLimits()) is event


def test_a_result_of_a_handoff_that_began_on_the_same_day_counts_today() -> None:
    usage = VerifiedUsage(busy_since=NOON).with_result(result(), NOON + 60, is_open=True)

    assert (usage.job, usage.day, usage.today) == ((1, 10, 2, 7), 20_000, (1, 10, 2, 7))


def test_a_result_of_a_handoff_that_may_have_begun_before_midnight_does_not_count_today() -> None:
    usage = VerifiedUsage(busy_since=NOON).with_result(result(), NOON + DAY_S, is_open=True)

    assert (usage.job, usage.today) == ((1, 10, 2, 7), (0, 0, 0, 0))


def test_a_result_of_an_abandoned_handoff_does_not_count_today() -> None:
    usage = VerifiedUsage(busy_since=NOON).with_result(result(), NOON, is_open=False)

    assert (usage.job, usage.today) == ((1, 10, 2, 7), (0, 0, 0, 0))


def test_after_a_retry_only_handoffs_that_began_later_count_for_it() -> None:
    usage = VerifiedUsage(busy_since=NOON).with_result(result(), NOON, is_open=True).restart()
    late = usage.with_result(result(), NOON, is_open=False)
    new = late.with_result(result(), NOON, is_open=True)

    assert (late.since_retry, new.since_retry) == ((0, 0, 0, 0), (1, 10, 2, 7))
    assert new.job == (3, 30, 6, 21)


def test_an_unknown_price_hides_no_known_price() -> None:
    usage = VerifiedUsage(busy_since=NOON)
    for microusd in (7, None, 7):
        usage = usage.with_result(result(microusd), NOON, is_open=True)

    assert usage.job[-1] == 14


def test_sums_never_exceed_the_largest_limit() -> None:
    usage = VerifiedUsage(busy_since=NOON)
    for microusd in (10**300, 1, 2**63):
        usage = usage.with_result(result(microusd), NOON, is_open=True)

    assert usage.job == usage.today == (3, 30, 6, MAX_VERIFIED)
    assert max(MAX_TOKENS, MAX_MICROUSD, MAX_COUNT) == MAX_VERIFIED


def test_a_new_day_begins_with_nothing() -> None:
    usage = VerifiedUsage(busy_since=NOON).with_result(result(), NOON, is_open=True)
    next_day = usage.model_copy(update={"busy_since": NOON + DAY_S})

    assert next_day.with_result(result(), NOON + DAY_S, is_open=True).today == (1, 10, 2, 7)
