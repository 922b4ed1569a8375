from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.agent.retry_policy import (
    MAX_RETRY_AFTER_S,
    MAX_TRIES,
    compute_delay_s,
    describe_reason,
)
from handoff_queue.shared.types.errors import (
    ContextEditRejected,
    ModelBusy,
    ModelRefused,
    ModelRejected,
    ModelUnreachable,
)

jitter = st.floats(0, 1, exclude_max=True)
retry_after = st.none() | st.floats(allow_nan=False)


@given(tries=st.integers(1, MAX_TRIES - 1), jitter=jitter, after=retry_after)
def test_a_delay_is_never_negative_and_never_longer_than_the_cap(
    tries: int, jitter: float, after: float | None
) -> None:
    delay = compute_delay_s(ModelBusy("x", retry_after_s=after), tries, jitter)
    assert delay is not None
    assert 0 <= delay <= MAX_RETRY_AFTER_S


@given(tries=st.integers(1, MAX_TRIES - 1), jitter=jitter, after=st.floats(0, MAX_RETRY_AFTER_S))
def test_the_server_is_never_called_again_before_its_retry_after(
    tries: int, jitter: float, after: float
) -> None:
    delay = compute_delay_s(ModelBusy("x", retry_after_s=after), tries, jitter)
    assert delay is not None
    assert delay >= after


@given(tries=st.integers(MAX_TRIES, 1_000_000), jitter=jitter)
def test_the_policy_gives_up_at_its_last_attempt(tries: int, jitter: float) -> None:
    assert compute_delay_s(ModelUnreachable("x"), tries, jitter) is None


def test_a_permanent_error_is_not_retried() -> None:
    assert compute_delay_s(ModelRejected("x"), 1, 0.5) is None
    assert compute_delay_s(ModelRefused("x"), 1, 0.5) is None


def test_delays_grow() -> None:
    delays = [compute_delay_s(ModelUnreachable("x"), tries, 0.5) for tries in range(1, MAX_TRIES)]
    assert delays == sorted(delays, key=lambda delay: delay or 0)
    assert len(set(delays)) == len(delays)


def test_a_retry_reason_is_short() -> None:
    assert describe_reason(ModelBusy("x", status=429)) == "rate limit"
    assert describe_reason(ModelBusy("x", status=529)) == "overloaded"
    assert describe_reason(ContextEditRejected("x", status=400)) == "context edit refused"
    assert describe_reason(ModelUnreachable("x", status=503)) == "server error 503"
    assert describe_reason(ModelUnreachable("x")) == "connection"
