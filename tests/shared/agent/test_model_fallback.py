"""A handoff with several models calls the first model that can serve a turn soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from handoff_queue.shared.agent.model_fallback import ModelChoice
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.types.checkpoints import ModelCallFailed, ModelReplied
from handoff_queue.shared.types.errors import (
    Deferred,
    ModelBusy,
    ModelError,
    ModelRejected,
    ModelUnreachable,
)
from handoff_queue.shared.types.handoff import ResultStatus, StopReason
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.model import ModelCall
from handoff_queue.testing import Reply, text_reply
from tests.doubles.agent_runs import Clock, Run, answer_reply
from tests.doubles.handoffs import a_handoff
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.memory_rate_limiter import MemoryRateLimiter

FIRST, SECOND = "claude-haiku-5-5", "claude-sonnet-5-5"
"""The model of `Run`, and a dearer one."""
Script = Callable[[ModelCall], Reply | ModelError]


def two_models(script: Script, *, held_s: tuple[float, float] = (0, 0), **rest: Any) -> Run:
    """Return a run with two models, each under its own rate limits.

    Args:
        held_s: seconds that the first call of each model must wait.
    """
    clock = Clock()
    limiters: dict[str, MemoryRateLimiter] = {}
    for name, seconds in zip((FIRST, SECOND), held_s, strict=True):
        limiters[name] = MemoryRateLimiter(
            now=clock.now,
            known=True,
            until=clock.now_s + seconds,
            why="rate limit",
            strikes=int(seconds > 0),
        )
    return Run(
        script,
        clock=clock,
        checkpoints=MemoryCheckpoints(limiters=limiters),
        bucket=FIRST,
        fallbacks=(ModelChoice(SECOND, SECOND),),
        **rest,
    )


def by_model(**replies: Reply | ModelError) -> Script:
    """Return a script that always gives the first or the second model's reply."""
    return lambda call: replies["first" if call.model == FIRST else "second"]


def models_called(run: Run) -> list[str]:
    return [call.model for call in run.calls]


def failed_calls(run: Run) -> list[ModelCallFailed]:
    checkpoints = run.checkpoints.load_earlier_checkpoints()
    return [each for each in checkpoints if isinstance(each, ModelCallFailed)]


def test_a_model_that_can_serve_the_turn_is_the_only_one_called() -> None:
    run = two_models(by_model(first=answer_reply()))
    assert run.go().status is ResultStatus.OK
    assert models_called(run) == [FIRST]


def test_a_turn_goes_to_the_next_model_while_the_rate_limits_of_the_first_refuse_it() -> None:
    run = two_models(by_model(second=answer_reply()), held_s=(12, 0))
    result = run.go()
    assert (result.status, models_called(run)) == (ResultStatus.OK, [SECOND])
    assert run.clock.waited == []


def test_a_short_wait_for_the_first_model_is_not_a_reason_to_change_the_model() -> None:
    run = two_models(by_model(first=answer_reply()), held_s=(1.5, 0))
    assert run.go().status is ResultStatus.OK
    assert models_called(run) == [FIRST]


def test_a_call_waits_for_the_model_with_the_shortest_wait() -> None:
    run = two_models(by_model(second=answer_reply()), held_s=(15, 6))
    assert run.go().status is ResultStatus.OK
    assert models_called(run) == [SECOND]
    assert sum(run.clock.waited) == pytest.approx(6, abs=0.5)


def test_the_claim_takes_no_place_in_the_line_of_a_model_that_may_not_serve_the_call() -> None:
    alone = Run(by_model(), bucket=FIRST)
    of_one = alone.agent().estimate_first_call().expected
    of_several = two_models(by_model()).agent().estimate_first_call().expected

    assert of_one is not None
    assert of_several is not None
    assert (of_one.joins_line, of_several.joins_line) == (True, False)


def test_a_handoff_is_deferred_only_if_every_model_needs_a_long_wait() -> None:
    run = two_models(by_model(), held_s=(500, 40))
    with pytest.raises(Deferred) as deferred:
        run.go()
    assert deferred.value.seconds == pytest.approx(30)


def test_a_refusal_of_the_provider_sends_the_next_turn_to_the_next_model() -> None:
    run = two_models(
        by_model(first=ModelBusy("slow down", status=429), second=answer_reply()), held_s=(0, 0)
    )
    run.checkpoints.limiters[FIRST].strikes = 3  # the provider is refused for longer each time
    result = run.go()
    assert (result.status, models_called(run)) == (ResultStatus.OK, [FIRST, SECOND])
    assert run.clock.waited == []


@pytest.mark.parametrize("status", [429, 529])
def test_a_busy_model_that_names_no_time_costs_one_turn_and_the_next_model_serves_the_next(
    status: int,
) -> None:
    run = two_models(by_model(first=ModelBusy("busy", status=status), second=answer_reply()))
    assert run.go().status is ResultStatus.OK
    assert models_called(run) == [FIRST, SECOND]
    assert run.clock.waited == []


def test_a_busy_model_that_names_a_short_time_is_called_again() -> None:
    busy = ModelBusy("busy", status=429, retry_after_s=1)
    replies: Iterator[Reply | ModelError] = iter([busy, answer_reply()])
    run = two_models(lambda _call: next(replies))
    assert run.go().status is ResultStatus.OK
    assert models_called(run) == [FIRST, FIRST]


def test_the_last_turn_goes_to_a_model_that_is_not_busy() -> None:
    busy = ModelBusy("busy", status=429, retry_after_s=1)
    run = two_models(
        by_model(first=busy, second=answer_reply()),
        handoff=a_handoff(limits=HandoffLimits(max_turns=2)),
    )
    assert run.go().status is ResultStatus.OK
    assert models_called(run) == [FIRST, SECOND]


def test_a_busy_model_is_called_again_if_the_next_model_needs_a_long_wait() -> None:
    replies: Iterator[Reply | ModelError] = iter([ModelBusy("busy", status=529), answer_reply()])
    run = two_models(lambda _call: next(replies), held_s=(0, 30))
    assert run.go().status is ResultStatus.OK
    assert models_called(run) == [FIRST, FIRST]


def test_a_failing_server_sends_the_next_call_to_the_next_model_without_a_wait() -> None:
    run = two_models(
        by_model(first=ModelUnreachable("internal error", status=500), second=answer_reply())
    )
    result = run.go()
    assert (result.status, models_called(run)) == (ResultStatus.OK, [FIRST, SECOND])
    assert run.clock.waited == []


def test_if_every_model_fails_the_call_waits_before_its_next_try() -> None:
    failure = ModelUnreachable("internal error", status=500)
    run = two_models(by_model(first=failure, second=failure))
    assert run.go().stop_reason is StopReason.MODEL_ERROR
    assert models_called(run)[:3] == [FIRST, SECOND, FIRST]
    assert run.clock.waited


def test_an_unknown_model_is_left_out() -> None:
    run = two_models(
        by_model(first=ModelRejected("no such model", status=404), second=answer_reply())
    )
    assert run.go().status is ResultStatus.OK
    assert models_called(run) == [FIRST, SECOND]


def test_a_model_that_declines_to_answer_is_replaced_by_the_next_model() -> None:
    run = two_models(
        by_model(first=text_reply("No.", stop_reason="refusal"), second=answer_reply())
    )
    result = run.go()
    assert (result.status, result.model) == (ResultStatus.OK, SECOND)
    assert models_called(run) == [FIRST, SECOND]


def test_a_model_whose_answer_is_empty_twice_in_a_row_is_replaced_by_the_next_model() -> None:
    run = two_models(by_model(first=Reply(), second=answer_reply()))
    result = run.go()
    assert (result.status, result.model) == (ResultStatus.OK, SECOND)
    assert models_called(run) == [FIRST, FIRST, SECOND]


def test_a_handoff_to_which_every_model_gives_an_empty_answer_fails() -> None:
    run = two_models(by_model(first=Reply(), second=Reply()))
    assert run.go().stop_reason is StopReason.INVALID_OUTPUT
    assert models_called(run) == [FIRST, FIRST, SECOND]


def test_a_handoff_that_every_model_declines_ends_as_refused() -> None:
    refusal = text_reply("No.", stop_reason="refusal")
    run = two_models(by_model(first=refusal, second=refusal))
    result = run.go()

    assert result.stop_reason is StopReason.REFUSED
    assert models_called(run) == [FIRST, SECOND]
    assert result.error == (
        f"{FIRST} and {SECOND} declined to answer: change the task, or use another model for the"
        " job or in the specialist's file; the model wrote: No."
    )


def test_a_result_names_a_model_whose_refusal_was_paid() -> None:
    refusal = text_reply("No.", stop_reason="refusal")
    replaced = two_models(by_model(first=refusal, second=answer_reply())).go()
    every = two_models(by_model(first=refusal, second=refusal)).go()

    assert replaced.replies_by_model == {FIRST: 1, SECOND: 1}
    assert every.replies_by_model == {FIRST: 1, SECOND: 1}


def test_a_model_that_gave_no_reply_is_not_among_the_replies() -> None:
    failure = ModelRejected("no such model", status=404)

    assert two_models(by_model(first=failure, second=answer_reply())).go().replies_by_model is None


def test_a_resumed_handoff_does_not_pay_for_the_same_refusal_again() -> None:
    refusal = text_reply("No.", stop_reason="refusal")
    run = two_models(by_model(first=refusal, second=answer_reply()))

    def crash(checkpoint: object) -> None:
        if isinstance(checkpoint, ModelReplied):
            raise MemoryError

    run.checkpoints.on_checkpoint = crash
    run.go()
    again = two_models(by_model(second=answer_reply()))
    again.checkpoints.saved = run.checkpoints.saved

    assert again.go().status is ResultStatus.OK
    assert models_called(again) == [SECOND]


def test_each_turn_is_reserved_at_the_price_of_the_dearest_model() -> None:
    alone = Run(by_model(first=answer_reply()))
    alone.go()
    run = two_models(by_model(first=answer_reply()))
    run.go()

    (cheap,), (reserved,) = alone.checkpoints.reserved, run.checkpoints.reserved
    assert cheap.microusd is not None
    assert reserved.microusd is not None
    assert reserved.microusd > cheap.microusd
    assert (reserved.model, reserved.own_microusd) == (FIRST, cheap.microusd)


@pytest.mark.parametrize("names", [(FIRST, "my-alias"), ("my-alias", FIRST)])
def test_a_limit_in_money_leaves_out_the_models_without_a_known_price(
    names: tuple[str, str],
) -> None:
    run = Run(
        lambda _call: answer_reply(),
        model_name=names[0],
        fallbacks=(ModelChoice(names[1]),),
        checkpoints=MemoryCheckpoints(is_limited_in_money=True),
    )
    assert run.go().status is ResultStatus.OK
    assert models_called(run) == [FIRST]


def test_a_model_without_a_known_price_serves_turns_if_no_limit_is_in_money() -> None:
    run = Run(lambda _call: answer_reply(), model_name="my-alias", fallbacks=(ModelChoice(FIRST),))
    assert run.go().status is ResultStatus.OK
    assert models_called(run) == ["my-alias"]


def test_a_limit_in_money_ends_a_handoff_whose_models_have_no_known_price() -> None:
    run = Run(
        lambda _call: answer_reply(),
        model_name="my-alias",
        fallbacks=(ModelChoice("other-alias"),),
        checkpoints=MemoryCheckpoints(is_limited_in_money=True),
    )
    assert run.go().stop_reason is StopReason.JOB_BUDGET
    assert not run.calls


def test_a_turn_is_paid_at_the_price_of_the_model_that_served_it() -> None:
    run = two_models(by_model(second=answer_reply()), held_s=(12, 0))
    usage = run.go().usage
    assert usage.cost_microusd == Prices().compute_microusd(usage, SECOND)


def test_a_call_that_was_cut_counts_at_the_price_of_its_own_model() -> None:
    failures = by_model(first=ModelUnreachable("cut"), second=answer_reply())
    alone = Run(by_model(first=ModelUnreachable("cut")))
    alone.go()

    run = two_models(failures)
    run.go()

    (cut,) = failed_calls(run)
    assert cut.usage.cut_calls == 1
    assert cut.usage.cost_microusd == alone.checkpoints.reserved[0].microusd


def test_the_result_says_how_many_replies_each_model_wrote() -> None:
    invalid = text_reply("Done.")
    run = two_models(lambda call: invalid if call.model == FIRST else answer_reply())
    run.checkpoints.on_checkpoint = lambda checkpoint: hold_first(run, checkpoint)

    result = run.go()

    assert result.replies_by_model == {FIRST: 1, SECOND: 1}
    assert result.model == SECOND


def hold_first(run: Run, checkpoint: object) -> None:
    """Let the rate limits refuse the first model after its first reply."""
    if isinstance(checkpoint, ModelReplied):
        run.checkpoints.limiters[FIRST].until = run.clock.now_s + 60


def test_a_model_does_not_get_the_thinking_of_another_model() -> None:
    thinking = {"type": "thinking", "thinking": "Let me see.", "signature": "of the first"}
    first = Reply(blocks=(thinking, {"type": "text", "text": "Done."}))
    run = two_models(lambda call: first if call.model == FIRST else answer_reply())
    run.checkpoints.on_checkpoint = lambda checkpoint: hold_first(run, checkpoint)

    run.go()

    sent = [message for message in run.calls[1].messages if message["role"] == "assistant"]
    assert [block["type"] for block in sent[0]["content"]] == ["text"]


def test_the_checkpoints_of_a_handoff_with_one_model_do_not_name_the_requested_model() -> None:
    run = Run(by_model(first=answer_reply()))
    run.go()
    assert "requested_model" not in run.checkpoints.saved[0]


def test_a_failed_call_names_the_requested_model() -> None:
    run = two_models(
        by_model(first=ModelRejected("no such model", status=404), second=answer_reply())
    )
    run.go()
    failed = run.checkpoints.load_earlier_checkpoints()[0]
    assert isinstance(failed, ModelCallFailed)
    assert (failed.requested_model, failed.rules_out) == (FIRST, True)
