"""A result counts in the verified usage of its job. It counts for a day only if it certainly
belongs to the day.
"""

from __future__ import annotations

from handoff_queue.shared.types.events import HandoffFinished
from handoff_queue.shared.types.handoff import ResultStatus, StopReason, ref
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.limits import MAX_COUNT, MAX_MICROUSD, MAX_TOKENS
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.verified_usage import DAY_S, MAX_VERIFIED, VerifiedUsage

NOON = 20_000.5 * DAY_S


def result(microusd: int | None = 7) -> HandoffFinished:
    return HandoffFinished(
        handoff_id=HandoffId("find.1"),
        status=ResultStatus.OK,
        result=ref("{}"),
        usage=Usage(input_tokens=10, output_tokens=2, cost_microusd=microusd),
        turns=1,
        stop_reason=StopReason.FINISHED,
        confidence=1.0,
    )


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
    usage = VerifiedUsage(busy_since=NOON).with_result(result(), NOON, is_open=True).after_retry()
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
