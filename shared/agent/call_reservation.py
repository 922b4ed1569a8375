"""The reservation of a model call in the budget and in the provider's rate limits, and the waits
before a call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from handoff_queue.shared.agent.call_builder import CallBuilder
from handoff_queue.shared.agent.conversation import Conversation
from handoff_queue.shared.agent.model_fallback import ModelChoice, ModelChoices
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import Deferred, LimitReached
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.model import ModelCall
from handoff_queue.shared.types.presence import HandoffWait
from handoff_queue.shared.types.rate_limits import ExpectedUsage, Wait

WAIT_SLICE_S = 0.25
"""Seconds between two heartbeats and deadline checks of a waiting call."""


ASK_AGAIN_S = 2.0
"""Seconds after which a waiting call asks for the rate limits again. Other calls may have
given up, or used less than they reserved.
"""
MAX_DEFERRAL_S = 120.0
"""Seconds after which a deferred handoff asks for the rate limits again."""


def check_deadline(dependencies: RunDependencies) -> None:
    """Check that the handoff has working time left.

    Raises:
        LimitReached: the working time is over.
    """
    if dependencies.left_s <= 0:
        raise LimitReached(StopReason.DEADLINE, "the time for this step is over")


def wait_for_call(
    dependencies: RunDependencies, seconds: float, why: str, shown_s: float | None = None
) -> None:
    """Wait before a model call, with heartbeats.

    Args:
        seconds: time to wait.
        why: short reason for the heartbeat.
        shown_s: seconds that the heartbeat shows first, if the whole wait is longer.

    Raises:
        Interrupted: this process must stop its work on the handoff.
        LimitReached: the working time is over.
    """
    until = dependencies.now() + seconds
    more_s = (shown_s or seconds) - seconds
    left_s = seconds
    while left_s > 0:
        handoff_wait = HandoffWait(why, max(1, round(left_s + more_s)))
        dependencies.checkpoints.heartbeat(str(handoff_wait))
        check_deadline(dependencies)
        dependencies.wait(min(left_s, WAIT_SLICE_S))
        left_s = until - dependencies.now()


@dataclass(frozen=True, slots=True)
class FirstCall:
    """The first model call of a handoff. The claim reserves it in the same round trip."""

    worst: WorstCase | None = None
    """Upper bound of the call. None: the call is not known yet, or no model is called."""
    expected: ExpectedUsage | None = None
    """Expected share of the rate limits. None: the call is not known, or has no rate limits."""


UNKNOWN_CALL = FirstCall()


@dataclass(frozen=True, slots=True)
class _Reservation:
    """The answer of the store to a request for a call of one model."""

    call: ModelCall
    worst: WorstCase
    wait: Wait | None
    """None: the call is reserved. Otherwise the wait for the provider's rate limits."""


class CallReservations:
    """Reserves the model calls of one handoff, and waits until one of its models may be called."""

    def __init__(self, builder: CallBuilder, choices: ModelChoices) -> None:
        self._builder = builder
        self._choices = choices

    @property
    def _dependencies(self) -> RunDependencies:
        return self._builder.dependencies

    def estimate_first_call(self, conversation: Conversation) -> FirstCall:
        """Return the first call. It is `UNKNOWN_CALL` if it exceeds the token limit."""
        choice = self._choices.choices[0]
        try:
            call = self._builder.call(conversation, choice, is_last=False)
        except LimitReached:
            return UNKNOWN_CALL
        joins_line = not self._choices.has_several  # another model may serve the call
        expected = self._compute_expected_usage(conversation, choice, call, joins_line=joins_line)
        return FirstCall(self._compute_worst_case(conversation, call), expected)

    def reserve_call(
        self,
        conversation: Conversation,
        *,
        is_last: bool,
        takes_messages: bool,
        is_batched: bool = False,
    ) -> tuple[ModelCall, WorstCase]:
        """Return the call of a turn and its reserved upper bound. If the budget is too small for
        the searches that the provider may run, the handoff goes on without them.

        Args:
            is_batched: True if the call goes into a batch, which has other rate limits.

        Raises:
            LimitReached: see `make_turn`.
        """

        def reserve(choice: ModelChoice, *, joins_line: bool) -> _Reservation:
            call = self._builder.call(conversation, choice, is_last=is_last, is_batched=is_batched)
            if is_batched:  # the next turn comes after more than five minutes
                has_next_turn = bool(call.tools) and call.may_call_tools
                call = replace(call, caches_for_1h=has_next_turn, caches_prefix_for_1h=False)
            worst = self._compute_worst_case(conversation, call, is_batched=is_batched)
            expected = None
            if not is_batched:
                expected = self._compute_expected_usage(
                    conversation, choice, call, joins_line=joins_line
                )
            wait = self._dependencies.checkpoints.reserve(
                worst,
                expected,
                takes_messages=takes_messages,
                is_last=is_last,
            )
            return _Reservation(call, worst, wait)

        while True:
            try:
                return self._admit(conversation, reserve)
            except LimitReached:
                if self._leave_out_unpriced(conversation):
                    continue
                if conversation.has_server_calls or not self._builder.drop_server_tools():
                    raise

    def _admit(
        self, conversation: Conversation, reserve: Callable[..., _Reservation]
    ) -> tuple[ModelCall, WorstCase]:
        """Wait until one of the models may be called, and return the reserved call.

        Args:
            reserve: asks for a reservation with a model.

        Raises:
            Deferred: the wait is longer than `rate_wait_s`. Its seconds are shorter than the wait,
                so that the call is not late.
            MessagesWaiting: see `CheckpointStore.reserve`.
        """
        rate_wait_s = self._dependencies.rate_wait_s
        while True:
            reservation = self._ask_models(conversation, reserve)
            wait = reservation.wait
            if wait is None:
                return reservation.call, reservation.worst
            why = add_model_name(wait.why, reservation.call)
            if wait.seconds > rate_wait_s:
                deferred_s = min(wait.seconds - rate_wait_s / 2, MAX_DEFERRAL_S)
                raise Deferred(max(0.0, min(deferred_s, self._dependencies.left_s)), why)
            wait_for_call(
                self._dependencies, min(wait.seconds, ASK_AGAIN_S), why, shown_s=wait.seconds
            )

    def _ask_models(
        self, conversation: Conversation, reserve: Callable[..., _Reservation]
    ) -> _Reservation:
        """Ask each usable model in turn. Return the reservation, or the wait of the first model
        that can serve the call within `ASK_AGAIN_S`, or else the shortest wait.

        Only the model with the shortest wait gets this handoff into its line of waiting calls. A
        place in another line would delay the calls of others.
        """
        choices = self._choices.list_usable(conversation, self._dependencies.now())
        if len(choices) == 1:
            return reserve(choices[0], joins_line=True)
        shortest_s = inf
        for choice in choices:
            reservation = reserve(choice, joins_line=False)
            if reservation.wait is None:
                return reservation
            if reservation.wait.seconds < shortest_s:
                shortest = choice
                shortest_s = reservation.wait.seconds
            if shortest_s <= ASK_AGAIN_S:
                break
        return reserve(shortest, joins_line=True)

    def _compute_worst_case(
        self, conversation: Conversation, call: ModelCall, *, is_batched: bool = False
    ) -> WorstCase:
        """Return the upper bound of a call. A live call has the price of the dearest model of the
        handoff. So the model that serves a turn does not change whether the budget allows the turn.
        After a kill, the call counts at the price of its own model.
        A model without a known price has no upper bound in money, and does not count for other
        models. A call in a batch has the price of its own model, because no other model serves it.
        """
        max_input = self._builder.estimate_max_input(conversation)
        worst = self._dependencies.prices.compute_worst_case(call, max_input, is_batched=is_batched)
        if is_batched or not self._choices.has_several or worst.microusd is None:
            return worst
        dearest = worst.microusd
        for choice in self._choices.choices:
            other = self._dependencies.prices.compute_worst_case(
                replace(call, model=choice.name), max_input
            )
            dearest = max(dearest, other.microusd or 0)
        return replace(worst, microusd=dearest, own_microusd=worst.microusd)

    def _leave_out_unpriced(self, conversation: Conversation) -> bool:
        """Leave out the models without a known price, because a limit in money may refuse them.
        Return whether a model was left out, and another one has a price.
        """
        unpriced_models: list[str] = []
        usable = self._choices.list_usable(conversation, self._dependencies.now())
        for choice in usable:
            if not self._dependencies.prices.has_price(choice.name):
                unpriced_models.append(choice.name)
        if not unpriced_models or len(unpriced_models) == len(usable):
            return False
        self._choices.leave_out(unpriced_models)
        return True

    def _compute_expected_usage(
        self, conversation: Conversation, choice: ModelChoice, call: ModelCall, *, joins_line: bool
    ) -> ExpectedUsage | None:
        if choice.bucket is None:
            return None
        return ExpectedUsage(
            choice.bucket,
            self._builder.estimate_input_tokens(conversation),
            call.max_output_tokens,
            joins_line=joins_line,
        )


def add_model_name(why: str, call: ModelCall) -> str:
    """Return the reason of a wait with the model that the wait is for."""
    return f"{why} ({call.model})"
