"""The loop reports each rate limit and waits until its next call is allowed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.shared.providers.anthropic.rate_limit_headers import parse_rate_limits
from handoff_queue.shared.types.errors import (
    Cancelled,
    ContextEditRejected,
    Deferred,
    ModelRejected,
)
from handoff_queue.shared.types.handoff import ResultStatus, StopReason
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.rate_limits import NO_RATE_LIMITS, Allowance, RateLimits
from handoff_queue.testing import MessagesServer, error_reply, in_turn
from tests.doubles.agent_runs import Clock, Run, answer_reply, run_with_replies
from tests.doubles.handoffs import a_handoff
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.memory_rate_limiter import MemoryRateLimiter
from tests.doubles.served_model import model_at

HEADERS = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "49",
    "anthropic-ratelimit-output-tokens-limit": "8000",
    "anthropic-ratelimit-output-tokens-remaining": "7000",
}


def rate_limited_run(*replies: object, held_s: float = 0.0, **rest: object) -> Run:
    """Return a run under a rate limit, with its own clock. Its first call must wait `held_s`
    seconds.
    """
    clock = Clock()
    limiter = MemoryRateLimiter(
        now=clock.now,
        known=True,
        until=clock.now_s + held_s,
        why="rate limit",
        strikes=int(held_s > 0),
    )
    checkpoints = MemoryCheckpoints(limiter=limiter)
    return run_with_replies(
        *replies,  # type: ignore[arg-type]
        clock=clock,
        checkpoints=checkpoints,
        bucket="account:some-model",
        **rest,
    )


def test_headers_become_limits() -> None:
    assert parse_rate_limits(HEADERS) == RateLimits(
        requests=Allowance(50, 49), output_tokens=Allowance(8_000, 7_000)
    )


@pytest.mark.parametrize(
    "wrong",
    [{}, {"limit": "50"}, {"limit": "0", "remaining": "0"}, {"limit": "many", "remaining": "-1"}],
)
def test_invalid_rate_limit_headers_are_ignored(wrong: dict[str, str]) -> None:
    assert (
        parse_rate_limits(
            {f"anthropic-ratelimit-requests-{name}": value for name, value in wrong.items()}
        )
        == NO_RATE_LIMITS
    )


def test_the_servers_rate_limits_are_reported() -> None:
    run = rate_limited_run(answer_reply())
    with (
        MessagesServer(in_turn(replace(answer_reply(), headers=HEADERS))) as server,
        model_at(server.url) as run.model,
    ):
        run.go()
    assert run.checkpoints.limiter.requests == Allowance(50, 49)


def test_a_refusal_over_http_delays_the_bucket_for_the_time_that_the_server_names() -> None:
    run = rate_limited_run(answer_reply())
    with (
        MessagesServer(in_turn(error_reply(429, retry_after="7"), answer_reply())) as server,
        model_at(server.url) as run.model,
    ):
        result = run.go()
    assert (result.status, result.turns) == (ResultStatus.OK, 2)
    assert sum(run.clock.waited) == pytest.approx(7, abs=0.5)


def test_the_rate_limits_in_a_refusal_are_reported() -> None:
    run = rate_limited_run(answer_reply())
    refusal = error_reply(429, retry_after="7")
    with (
        MessagesServer(
            in_turn(replace(refusal, headers=refusal.headers | HEADERS), answer_reply())
        ) as server,
        model_at(server.url) as run.model,
    ):
        run.go()
    assert run.checkpoints.limiter.requests == Allowance(50, 49)


def test_a_wait_is_visible_and_counts_down() -> None:
    run = rate_limited_run(answer_reply(), held_s=12)
    assert run.go().status is ResultStatus.OK
    shown = list(
        dict.fromkeys(
            doing for doing, _ in run.checkpoints.heartbeats if doing.startswith("waiting")
        )
    )
    assert shown == [
        f"waiting {left} s: rate limit (claude-haiku-5-5)" for left in range(12, 0, -1)
    ]


def test_a_wait_ends_at_the_deadline() -> None:
    run = rate_limited_run(
        answer_reply(), held_s=15, handoff=a_handoff(limits=HandoffLimits(deadline=1_005.0))
    )
    assert run.go().stop_reason is StopReason.DEADLINE
    assert sum(run.clock.waited) == pytest.approx(5, abs=0.5)
    assert run.calls == []


def test_an_interruption_passes_through_a_wait_for_the_provider() -> None:
    run = rate_limited_run(answer_reply(), held_s=12)

    def cancel(doing: str) -> None:
        if doing == "waiting 9 s: rate limit (claude-haiku-5-5)":
            raise Cancelled("by the user")

    run.checkpoints.on_heartbeat = cancel
    with pytest.raises(Cancelled):
        run.go()


def test_a_refused_context_edit_delays_no_other_call() -> None:
    run = rate_limited_run(
        ContextEditRejected("trying without context clearing", status=400, retry_after_s=0),
        answer_reply(),
    )
    assert run.go().status is ResultStatus.OK
    assert run.checkpoints.limiter.strikes == 0


def test_a_rejected_call_delays_no_other_call() -> None:
    run = rate_limited_run(ModelRejected("the key was refused (401)", status=401))
    run.go()
    assert run.checkpoints.limiter.strikes == 0


def test_a_handoff_with_a_long_wait_is_deferred_and_returns_slightly_early() -> None:
    run = rate_limited_run(answer_reply(), held_s=100)
    with pytest.raises(Deferred) as deferred:
        run.go()
    assert deferred.value.seconds == pytest.approx(90)
    assert deferred.value.why == "rate limit (claude-haiku-5-5)"
    assert run.clock.waited == []


def test_a_handoff_is_deferred_for_at_most_its_time_or_two_minutes() -> None:
    for deadline, seconds in ((1_040.0, 40), (None, 120)):
        run = rate_limited_run(
            answer_reply(), held_s=600, handoff=a_handoff(limits=HandoffLimits(deadline=deadline))
        )
        with pytest.raises(Deferred) as deferred:
            run.go()
        assert deferred.value.seconds == pytest.approx(seconds)
