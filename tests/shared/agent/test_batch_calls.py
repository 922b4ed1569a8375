"""Calls go through batches of the provider while there is time. A handoff waits for a batch without
a slot, and pays for no call twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from handoff_queue.shared.agent.batch_rules import BatchRules
from handoff_queue.shared.agent.model_fallback import ModelChoice
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.types.checkpoints import (
    BatchCreated,
    BatchIntended,
    Checkpoint,
    ModelCallFailed,
    ModelReplied,
)
from handoff_queue.shared.types.errors import (
    Cancelled,
    Deferred,
    ModelBusy,
    ModelError,
    ModelRejected,
    ModelUnreachable,
    NeverSent,
)
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.model import ModelCall, SystemPrompt
from handoff_queue.testing import Reply, tool_call_reply
from tests.doubles.agent_runs import Clock, Run, answer_reply
from tests.doubles.handoffs import a_handoff, a_tool
from tests.doubles.memory_batches import MemoryBatches
from tests.doubles.memory_checkpoints import MemoryCheckpoints

MODEL = "claude-haiku-5-5"
STRANGER = ModelCall(MODEL, SystemPrompt(""), (), 1)
"""A call of another program with the same account."""


class ProcessKilled(BaseException):
    """Stand for the death of the process by SIGKILL."""


def kill() -> None:
    raise ProcessKilled


def reply_to(call: ModelCall) -> Reply:
    """Ask for one look-up, and then answer."""
    if any(message["role"] == "assistant" for message in call.messages):
        return answer_reply()
    return tool_call_reply(("look", {"q": "a"}))


@dataclass(slots=True)
class Handoff:
    """A handoff whose calls may go into batches. Each run is a new claim in a new process."""

    slack_s: float = 3_600.0
    deadline_s: float = 4_000.0
    max_turns: int = 8
    clock: Clock = field(default_factory=Clock)
    checkpoints: MemoryCheckpoints = field(default_factory=MemoryCheckpoints)
    batches: MemoryBatches = field(init=False)
    live_calls: list[ModelCall] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    on_checkpoint: Callable[[Checkpoint], None] = lambda _checkpoint: None
    """Called before each checkpoint is stored. An exception is a crash at that point."""
    fallbacks: tuple[ModelChoice, ...] = ()
    until: float = field(init=False)

    def __post_init__(self) -> None:
        self.batches = MemoryBatches(reply_to, self.clock.now)
        self.until = self.clock.now() + self.slack_s

    def run(self) -> HandoffResult:
        """Run the handoff under a new claim, until its end or until it is deferred."""
        self.checkpoints.on_checkpoint = self.on_checkpoint
        run = Run(
            reply_to,
            handoff=a_handoff(
                limits=HandoffLimits(deadline=1_000.0 + self.deadline_s, max_turns=self.max_turns)
            ),
            tools=(a_tool("look", lambda arguments: f"found {arguments['q']}"),),
            checkpoints=self.checkpoints,
            clock=self.clock,
            fallbacks=self.fallbacks,
            batches=BatchRules(self.batches, self.until),
        )
        try:
            return run.go()
        finally:
            self.live_calls += run.calls
            self.checkpoints = self.checkpoints.reopened()

    def finish(self) -> HandoffResult:
        """Run the handoff again after each deferral, until it has a result."""
        for _ in range(1_000):
            try:
                return self.run()
            except Deferred as deferred:
                self.waits.append(deferred.why)
                self.clock.now_s += deferred.seconds
        raise AssertionError("the handoff does not end")

    def stored(self, kind: type) -> list[Any]:
        return [
            item for item in self.checkpoints.load_earlier_checkpoints() if isinstance(item, kind)
        ]


def test_each_turn_is_a_batch_and_no_call_is_live() -> None:
    handoff = Handoff()
    result = handoff.finish()
    assert result.status is ResultStatus.OK
    assert (len(handoff.batches.paid), handoff.live_calls) == (2, [])
    assert result.turns == 2


def test_a_request_in_a_batch_is_cached_for_an_hour_if_another_turn_may_follow() -> None:
    handoff = Handoff()
    handoff.finish()
    first, second = (batch.call for batch in handoff.batches.batches)
    assert (first.caches_for_1h, second.caches_for_1h) == (True, True)
    alone = Handoff(max_turns=1)
    alone.finish()
    (only,) = (batch.call for batch in alone.batches.batches)
    assert not only.caches_for_1h


def test_a_handoff_waits_for_its_batch_without_a_claim_and_says_which() -> None:
    handoff = Handoff()
    with pytest.raises(Deferred) as deferred:
        handoff.run()
    assert deferred.value.why == "waits for batch msgbatch_0 since 1970-01-01 00:16:40 UTC"
    assert deferred.value.seconds == 15


def test_the_waits_for_an_old_batch_are_longer() -> None:
    handoff = Handoff(slack_s=80_000, deadline_s=86_000)
    handoff.batches.duration_s = 7_200
    assert handoff.finish().status is ResultStatus.OK
    assert 20 < len(handoff.waits) < 100, "two batches of two hours"


def test_a_reply_from_a_batch_costs_half() -> None:
    live, batched = Handoff(slack_s=0), Handoff()
    usual, cheap = live.finish().usage, batched.finish().usage
    assert usual.cost_microusd is not None
    assert cheap.cost_microusd is not None
    assert cheap.cost_microusd == usual.cost_microusd - cheap.batch_saved_microusd
    assert abs(2 * cheap.cost_microusd - usual.cost_microusd) <= 2, "rounded up for each call"
    assert cheap.batch_calls == 2


def test_the_price_of_a_batch_is_the_price_of_the_list() -> None:
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price

    from handoff_queue.shared.types.usage import Usage

    used = Usage(
        input_tokens=90_000,
        output_tokens=10_000,
        cache_read_tokens=40_000,
        cache_write_tokens=20_000,
    )
    listed = calc_price(
        PricedUsage(
            input_tokens=90_000,
            output_tokens=10_000,
            cache_read_tokens=40_000,
            cache_write_tokens=20_000,
        ),
        MODEL,
        provider_id="anthropic",
        price_context={"processing": "batch"},
    )
    our_price = Prices().add_batch_cost(used, MODEL).cost_microusd
    assert our_price == pytest.approx(float(listed.total_price) * 1_000_000, abs=1)


def test_a_call_in_a_batch_is_reserved_at_the_price_of_its_own_model() -> None:
    alone, with_dearer = Handoff(), Handoff(fallbacks=(ModelChoice("claude-opus-5-5"),))
    for handoff in (alone, with_dearer):
        with pytest.raises(Deferred):
            handoff.run()
    ((own,), (same,)) = (alone.stored(BatchIntended), with_dearer.stored(BatchIntended))
    assert own.most.cost_microusd == same.most.cost_microusd


@pytest.mark.parametrize("survived", range(7))
def test_a_kill_at_any_checkpoint_pays_no_call_twice(survived: int) -> None:
    handoff = Handoff()

    def die(_checkpoint: Checkpoint) -> None:
        if len(handoff.checkpoints.saved) == survived:
            raise ProcessKilled

    handoff.on_checkpoint = die
    with pytest.raises(ProcessKilled):
        handoff.finish()
    handoff.on_checkpoint = lambda _: None
    assert handoff.finish().status is ResultStatus.OK
    assert (len(handoff.batches.batches), len(handoff.batches.paid)) == (2, 2)
    assert handoff.live_calls == []


@pytest.mark.parametrize("point", ["before_create", "after_create"])
def test_a_kill_around_the_creation_pays_no_call_twice(point: str) -> None:
    handoff = Handoff()
    setattr(handoff.batches, point, kill)
    with pytest.raises(ProcessKilled):
        handoff.run()
    setattr(handoff.batches, point, lambda: None)
    assert handoff.finish().status is ResultStatus.OK
    assert (len(handoff.batches.batches), len(handoff.batches.paid)) == (2, 2)
    assert handoff.live_calls == []


@pytest.mark.parametrize("is_created", [True, False])
def test_an_unclear_answer_to_the_creation_pays_no_call_twice(is_created: bool) -> None:
    handoff = Handoff()

    def fail() -> None:
        raise ModelUnreachable("the connection broke")

    setattr(handoff.batches, "after_create" if is_created else "before_create", fail)
    with pytest.raises(Deferred):
        handoff.run()
    handoff.batches.before_create = handoff.batches.after_create = lambda: None
    assert handoff.finish().status is ResultStatus.OK
    assert (len(handoff.batches.batches), len(handoff.batches.paid)) == (2, 2)


def test_batches_of_other_programs_are_not_adopted() -> None:
    handoff = Handoff()
    handoff.batches.add("another-program", STRANGER)
    handoff.batches.after_create = kill
    with pytest.raises(ProcessKilled):
        handoff.run()
    handoff.batches.after_create = lambda: None
    handoff.batches.add("another-program", STRANGER)
    assert handoff.finish().status is ResultStatus.OK
    created = [item.batch_id for item in handoff.stored(BatchCreated)]
    assert created == ["msgbatch_1", "msgbatch_3"]


def test_no_batch_is_created_while_an_unknown_batch_may_have_the_call() -> None:
    handoff = Handoff()
    handoff.batches.before_create = kill
    handoff.batches.duration_s = 600
    with pytest.raises(ProcessKilled):
        handoff.run()
    handoff.batches.add("another-program", STRANGER)
    with pytest.raises(Deferred, match="a batch of unknown id"):
        handoff.run()
    assert len(handoff.batches.batches) == 1


def test_a_live_call_follows_when_the_slack_ends_and_the_batch_is_cancelled() -> None:
    handoff = Handoff(slack_s=100)
    handoff.batches.duration_s = 5_000
    result = handoff.finish()
    assert result.status is ResultStatus.OK
    assert handoff.batches.batches[0].is_cancelled
    assert (handoff.batches.paid, len(handoff.live_calls)) == ([], 2)
    assert result.turns == 2, "a batch without a reply is not a turn"
    assert result.usage.batch_calls == 0


def test_the_reply_of_a_cancelled_batch_is_used() -> None:
    handoff = Handoff(slack_s=100)
    handoff.batches.duration_s, handoff.batches.keeps_replies = 5_000, True
    result = handoff.finish()
    assert result.status is ResultStatus.OK
    assert (len(handoff.batches.paid), len(handoff.live_calls)) == (1, 1)


def test_a_cancelled_batch_that_never_ends_counts_at_its_upper_bound() -> None:
    handoff = Handoff(slack_s=100, deadline_s=600)
    handoff.batches.duration_s, handoff.batches.cancel_s = 50_000, 50_000
    result = handoff.finish()
    assert result.status is ResultStatus.OK
    (lost,) = handoff.stored(ModelCallFailed)
    assert lost.usage.cut_calls == 1
    assert lost.usage.cost_microusd > 0
    assert handoff.clock.now() < 1_000 + 600


@pytest.mark.parametrize("why", ["errored: overloaded", "expired", "canceled"])
def test_a_batch_without_a_reply_costs_nothing_and_its_turn_goes_live(why: str) -> None:
    handoff = Handoff()
    handoff.batches.script = lambda _call: why
    result = handoff.finish()
    assert result.status is ResultStatus.OK
    assert (len(handoff.batches.batches), len(handoff.live_calls)) == (2, 2)
    turns = [len(batch.call.messages) for batch in handoff.batches.batches]
    assert turns == [1, 3], "each turn has one batch"
    assert result.usage.cost_microusd == sum(
        reply.usage.cost_microusd for reply in handoff.stored(ModelReplied)
    )


@pytest.mark.parametrize("error", [ModelBusy("rate limit", status=429), NeverSent("no network")])
def test_a_batch_that_the_provider_does_not_take_now_is_created_later(error: ModelError) -> None:
    handoff = Handoff()
    handoff.batches.before_create = raising_once(error)
    assert handoff.finish().status is ResultStatus.OK
    assert (len(handoff.batches.paid), handoff.live_calls) == (2, [])


def test_a_batch_of_a_handoff_that_is_dropped_while_it_is_created_is_cancelled() -> None:
    handoff = Handoff()

    def drop(checkpoint: Checkpoint) -> None:
        if isinstance(checkpoint, BatchCreated):
            raise Cancelled("its job was cancelled")

    handoff.on_checkpoint = drop
    with pytest.raises(Cancelled):
        handoff.run()
    assert handoff.batches.batches[0].is_cancelled


def test_a_server_without_batches_gets_live_calls() -> None:
    handoff = Handoff()

    def refuse() -> None:
        raise ModelRejected("not found", status=404)

    handoff.batches.before_create = refuse
    assert handoff.finish().status is ResultStatus.OK
    assert (handoff.batches.batches, len(handoff.live_calls)) == ([], 2)


def test_a_question_without_an_answer_is_asked_again() -> None:
    handoff = Handoff()
    with pytest.raises(Deferred):
        handoff.run()
    handoff.batches.errors = [ModelUnreachable("no answer"), ModelBusy("busy")]
    assert handoff.finish().status is ResultStatus.OK
    assert (len(handoff.batches.paid), handoff.live_calls) == (2, [])


def raising_once(error: ModelError) -> Callable[[], None]:
    left = [error]

    def before() -> None:
        if left:
            raise left.pop()

    return before
