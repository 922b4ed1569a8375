"""The model call of one turn. Its upper bound is reserved before the call, and its real usage
is stored after it. A limit or a lost claim can cut the call at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from handoff_queue.shared.agent.answer_format import is_slow_to_read
from handoff_queue.shared.agent.batch_calls import (
    BATCH_LOST,
    READING,
    BatchCalls,
    BatchLost,
    adopt_batch,
)
from handoff_queue.shared.agent.batch_rules import OpenBatch, open_batch
from handoff_queue.shared.agent.call_builder import MIN_OUTPUT_TOKENS, CallBuilder
from handoff_queue.shared.agent.call_usage import (
    is_reported,
    usage_of_cut_call,
    usage_of_failed_call,
    usage_of_reply,
)
from handoff_queue.shared.agent.compaction import frees_enough
from handoff_queue.shared.agent.conversation import (
    Conversation,
    calls_of,
    error_of_decliner,
    text_of,
)
from handoff_queue.shared.agent.loop_prompts import EMPTY
from handoff_queue.shared.agent.model_fallback import ModelChoice, ModelChoices
from handoff_queue.shared.agent.prompt_cache_prefixes import MAX_WAIT_S
from handoff_queue.shared.agent.provider_context import find_results_cleared_by_provider
from handoff_queue.shared.agent.reply_progress import ReplyProgress
from handoff_queue.shared.agent.retry_policy import delay_s, reason_of
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.summary_messages import (
    AS_OUTPUT,
    SUMMARIZE,
    has_text_output,
    provider_block_in,
)
from handoff_queue.shared.agent.tool_call_ids import with_valid_calls
from handoff_queue.shared.agent.tool_result_clearing import (
    ClearingRules,
    results_to_clear,
)
from handoff_queue.shared.observability.telemetry import BatchedCallTimes, telemetry
from handoff_queue.shared.types.checkpoints import (
    AgentPrompted,
    BatchClosed,
    BatchCreated,
    Checkpoint,
    ContextCleared,
    ModelCallFailed,
    ModelReplied,
    WorstCase,
)
from handoff_queue.shared.types.errors import (
    Cancelled,
    Deferred,
    LimitReached,
    ModelBusy,
    ModelError,
)
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.model import COMPACTION, CallProgress, ModelCall, ModelReply
from handoff_queue.shared.types.presence import HandoffWait
from handoff_queue.shared.types.rate_limits import ExpectedUsage, RateLimits, Wait
from handoff_queue.shared.types.usage import Usage

MAX_REPEATED_CALLS = 3
"""Repeated calls that brought nothing new, after which the next turn must be the answer."""
MAX_CUT_CALLS = 2
"""Calls of tools that were cut off, after which the next turn must be the answer. Each call
costs the whole length limit of a reply.
"""
WAIT_SLICE_S = 0.25
"""Seconds between two heartbeats and deadline checks of a waiting call."""
ASK_AGAIN_S = 2.0
"""Seconds after which a waiting call asks for the rate limits again. Other calls may have
given up, or used less than they reserved.
"""
MAX_DEFERRAL_S = 120.0
"""Seconds after which a deferred handoff asks for the rate limits again."""
FILLS_CACHE = "another call fills the prompt cache"
"""Activity while a call with the same prefix has no reply yet."""

SHORT_REPLY_CHARS = 20_000
"""Longest final reply whose checkpoint may wait for the result, which saves a round trip. It
has no quotes. A longer reply, or a reply with quotes, may take some time to read.
"""


class WriteCheckpoint(Protocol):
    """The method of the agent that stores checkpoints. Each turn receives it as an argument.

    A reference to the agent would form a cycle: the conversation would stay in memory until
    the garbage collector runs.
    """

    def __call__(self, *checkpoints: Checkpoint, deferrable: bool = False) -> None:
        """See `CheckpointStore.checkpoint`."""
        ...


@dataclass(frozen=True, slots=True)
class _Reservation:
    """The answer of the store to a request for a call of one model."""

    call: ModelCall
    worst: WorstCase
    wait: Wait | None
    """None: the call is reserved. Otherwise the wait for the provider's rate limits."""


class ModelTurns:
    """Makes the model calls of one handoff. The claim is part of `dependencies`."""

    def __init__(
        self, limits: HandoffLimits, builder: CallBuilder, dependencies: RunDependencies
    ) -> None:
        self._limits = limits
        self._builder = builder
        self._progress = ReplyProgress(
            self._builder.schema, streams_draft=dependencies.streams_draft, now=dependencies.now
        )
        self.dependencies = dependencies
        first = ModelChoice(dependencies.model_name, dependencies.bucket)
        self._choices = ModelChoices((first, *dependencies.fallbacks))
        self._call_progress = CallProgress()
        self._longest_turn_s = 0.0
        self.draft = ""
        """Text of the last call if it was cut or failed. No checkpoint has this text."""

    def use_claim(self, dependencies: RunDependencies) -> None:
        """Make the next calls under a claim, which is part of the dependencies."""
        self.dependencies = dependencies
        self._builder.dependencies = dependencies

    def is_last(self, conversation: Conversation) -> bool:
        """Return whether the next turn must be the answer. The turns, the tokens or the time
        would not suffice for one more turn. Or the model only repeats its calls, or its calls are
        cut off.
        """
        if conversation.turns + 1 >= self._limits.max_turns or conversation.is_told_last:
            return True
        if conversation.repeated_calls >= MAX_REPEATED_CALLS:
            return True
        if conversation.cut_calls >= MAX_CUT_CALLS:
            return True
        if not conversation.turns:
            return False
        if self.dependencies.left_s < 2 * self._longest_turn_s:
            return True
        next_input = self._builder.estimate_input_tokens(conversation)
        two_turns = 2 * next_input + self._limits.max_output_tokens + MIN_OUTPUT_TOKENS
        return self._builder.tokens_left(conversation) < two_turns

    def choose_results_to_clear(
        self, conversation: Conversation, *, is_refused: bool = False
    ) -> ContextCleared | None:
        """Return the results to clear before the next call, or None.

        Args:
            is_refused: True if the server has refused the request because of its length.
        """
        expected_tokens = self._builder.estimate_input_tokens(conversation)
        rules = self.dependencies.clearing
        if is_refused:
            rules = ClearingRules(at_tokens=max(1, expected_tokens // 2), keep=0)
        return results_to_clear(conversation, expected_tokens, rules)

    def leaves_to_provider(self, conversation: Conversation, cleared: ContextCleared) -> bool:
        """Return whether the provider clears these results from the next request, by its own count
        of the tokens. The loop clears them if the request could be too long for the model, or if a
        summary is needed also after this clearing.
        """
        context = self.dependencies.provider_context
        if context is None or self._may_send_batch(conversation):
            return False
        expected_tokens = self._builder.estimate_input_tokens(conversation)
        if expected_tokens >= context.longest_prompt:
            return False
        if expected_tokens - cleared.tokens >= self.dependencies.compact_at:
            return False
        return context.clears(choice.name for choice in self._choices.choices)

    def is_summarized_first(self, conversation: Conversation, cleared: ContextCleared) -> bool:
        """Return whether a summary is needed also after this clearing. A clearing before it would
        only make the provider read the whole request again.

        A request that is a twentieth above the limit is cleared, because it may be too long for the
        model.
        """
        limit = self.dependencies.compact_at
        expected_tokens = self._builder.estimate_input_tokens(conversation)
        is_short = expected_tokens < limit + limit // 20
        is_enough = expected_tokens - cleared.tokens < limit
        return is_short and not is_enough and self.needs_summary(conversation)

    def needs_summary(self, conversation: Conversation) -> bool:
        """Return whether a summary must replace the earlier turns before the next call, and one
        more turn is left for it. An answer that is being fixed stays.
        """
        limit = self.dependencies.compact_at
        if conversation.is_just_cleared:  # the estimate of the whole request is high
            limit += limit // 9
        if self._builder.estimate_input_tokens(conversation) < limit or self.is_last(conversation):
            return False
        for checkpoint in conversation.since_reply:
            if isinstance(checkpoint, AgentPrompted):
                return False
        return frees_enough(conversation, limit)

    def summary_request(self) -> str:
        """Return the message that asks the model for a summary."""
        if has_text_output(self._builder.schema):
            return f"{SUMMARIZE}{AS_OUTPUT}"
        return SUMMARIZE

    def first_reservation(
        self, conversation: Conversation
    ) -> tuple[WorstCase | None, ExpectedUsage | None]:
        """Return the upper bound of the first call and its expected share of the rate limits,
        so that the claim can reserve both in one round trip.

        Both are None if the first call is also the last one, or exceeds the token limit.
        """
        if self.is_last(conversation) or self._may_send_batch(conversation):
            return None, None
        choice = self._choices.choices[0]
        try:
            call = self._builder.call(conversation, choice, is_last=False)
        except LimitReached:
            return None, None
        joins_line = not self._choices.has_several  # another model may serve the call
        expected = self._expected_usage(conversation, choice, call, joins_line=joins_line)
        return self._worst_case(conversation, call), expected

    def make_turn(
        self,
        conversation: Conversation,
        write_checkpoint: WriteCheckpoint,
        *,
        is_last: bool,
        takes_messages: bool,
    ) -> None:
        """Make one call and store its reply through `write_checkpoint`. After a failed call, wait,
        so that the next turn can try again.

        Raises:
            LimitReached: the tokens, the time, or the job's budget are used up.
            ModelError: another try would fail as well, or no try is left.
            Deferred: the call is in a batch, or the provider's rate limits need a longer wait than
                `rate_wait_s`.
            MessagesWaiting: no call was made, because users have sent messages.
        """
        self._check_deadline()
        if self._may_send_batch(conversation):
            self._send_batch(
                conversation, write_checkpoint, is_last=is_last, takes_messages=takes_messages
            )
            return
        prefix = self._await_prefix(conversation, is_last=is_last)
        try:
            self._progress.is_summary = conversation.is_summarizing
            self.dependencies.checkpoints.heartbeat(self._progress.activity(CallProgress()))
            call, worst = self._reserve_call(
                conversation, is_last=is_last, takes_messages=takes_messages
            )
            self._make_call(conversation, call, worst, write_checkpoint)
        finally:
            if prefix is not None:
                self.dependencies.caches.record_call_ended(prefix)

    def _make_call(
        self,
        conversation: Conversation,
        call: ModelCall,
        worst: WorstCase,
        write_checkpoint: WriteCheckpoint,
    ) -> None:
        """Make a reserved call, and store its reply or its failure. Raises as `make_turn`."""
        self._call_progress = CallProgress()
        self._progress.begin_reply()
        started = self.dependencies.now()
        silence_s = max(1.0, min(self.dependencies.silence_s, self.dependencies.left_s))
        call = replace(call, timeout_s=silence_s)
        try:
            with telemetry().chat(call) as span:
                reply = self.dependencies.model.reply(call, self._on_progress)
                span.record_reply(reply)
            self._record_prefix(reply.usage)
        except ModelError as error:
            self._handle_failure(conversation, call, worst, error, write_checkpoint)
            return
        except LimitReached as limit:
            self.draft = self._call_progress.text
            usage = usage_of_cut_call(self._call_progress, call, worst, self.dependencies.prices)
            write_checkpoint(self._failed_call_checkpoint(call.model, str(limit), usage))
            raise
        self._report_limits(reply.limits)
        self._longest_turn_s = max(self._longest_turn_s, self.dependencies.now() - started)
        usage = usage_of_reply(reply, call, worst, self.dependencies.prices)
        if call.compaction is not None and provider_block_in(reply.content) is None:
            # The provider has refused its own summary, or cut it off: not the work of the handoff.
            reply = replace(reply, content=(), stop_reason=COMPACTION)
        cleared = find_results_cleared_by_provider(conversation, call, reply)
        self._record_reply(
            conversation, call.model, reply, usage, write_checkpoint, cleared=cleared
        )

    def _record_reply(
        self,
        conversation: Conversation,
        model: str,
        reply: ModelReply,
        usage: Usage,
        write_checkpoint: WriteCheckpoint,
        batch_id: str | None = None,
        *,
        cleared: ContextCleared | None = None,
    ) -> None:
        """Store a reply of this model. If it declined to answer, or its answer is empty again, and
        another model may answer, store a failed call. A declined summary is an empty one: the model
        may answer later turns.

        Args:
            cleared: results that the provider has cleared from the request.
        """
        fault = ""
        if reply.stop_reason == "refusal" and conversation.is_summarizing:
            reply = replace(reply, content=())
        elif reply.stop_reason == "refusal":
            fault = error_of_decliner(model)
        elif _is_empty_again(conversation, reply):
            fault = f"{model} gave an empty answer twice"
        if fault and self._has_other(conversation, model):
            write_checkpoint(self._failed_call_checkpoint(model, fault, usage, rules_out=True))
            return
        content = with_valid_calls(reply.content, conversation.ids)
        replied = ModelReplied(
            content=content,
            stop_reason=reply.stop_reason,
            usage=usage,
            model=reply.model,
            requested_model=self._model_name_to_record(model),
            batch_id=batch_id,
        )
        if cleared is not None:
            write_checkpoint(replied, cleared)
            return
        may_wait = not self._progress.is_summary and self._is_read_at_once(replied)
        write_checkpoint(replied, deferrable=may_wait)

    def _may_send_batch(self, conversation: Conversation) -> bool:
        """Return whether the next call may go into a batch."""
        rules = self.dependencies.batches
        return rules is not None and rules.may_send(
            conversation.checkpoints, self.dependencies.now()
        )

    def _send_batch(
        self,
        conversation: Conversation,
        write_checkpoint: WriteCheckpoint,
        *,
        is_last: bool,
        takes_messages: bool,
    ) -> None:
        """Create a batch of the next call. Return only if it was not created, and the next try
        may be a live call.

        Raises:
            Deferred: the handoff waits for the batch.
            LimitReached, MessagesWaiting: see `make_turn`.
        """
        assert self.dependencies.batches is not None
        batch_calls = BatchCalls(self.dependencies.batches, self.dependencies)
        call, worst = self._reserve_call(
            conversation, is_last=is_last, takes_messages=takes_messages, is_batched=True
        )
        intended = batch_calls.intention(call, worst, conversation.checkpoints)
        write_checkpoint(intended)
        created = batch_calls.create(intended, call)
        try:
            write_checkpoint(created)
        except Cancelled:  # the store has no id of the batch, so no other process cancels it
            batch_calls.cancel(created)
            raise
        if isinstance(created, BatchCreated):
            raise batch_calls.deferral(created.at, f"batch {created.batch_id}")
        if not created.goes_live:
            raise batch_calls.deferral(intended.at, "a provider that takes a batch")

    def read_batch(self, conversation: Conversation, write_checkpoint: WriteCheckpoint) -> bool:
        """Store the reply of the batch that the last call is in, or the end of a batch without a
        reply. Return False if no call is in a batch.

        Raises:
            Deferred: the batch has not ended.
        """
        batch = open_batch(conversation.checkpoints)
        if batch is None:
            return False
        rules = self.dependencies.batches
        if rules is None:  # the worker has other settings than the worker that created the batch
            self._lose_batch(conversation, batch, write_checkpoint)
            return True
        batch_calls = BatchCalls(rules, self.dependencies)
        self.dependencies.checkpoints.heartbeat(READING)
        try:
            created = batch.created or adopt_batch(batch_calls, batch)
            if batch.created is None:
                write_checkpoint(created)
            if isinstance(created, BatchCreated):
                batch = replace(batch, created=created)
                self._record_batch(conversation, batch_calls, batch, created, write_checkpoint)
        except BatchLost:
            self._lose_batch(conversation, batch, write_checkpoint)
        except ModelError as error:
            if batch_calls.is_lost_after(error):
                self._lose_batch(conversation, batch, write_checkpoint)
            else:
                raise batch_calls.deferral_after(batch, error) from error
        return True

    def _record_batch(
        self,
        conversation: Conversation,
        batch_calls: BatchCalls,
        batch: OpenBatch,
        created: BatchCreated,
        write_checkpoint: WriteCheckpoint,
    ) -> None:
        """Store the reply in an ended batch, or the end of a batch without a reply."""
        reply = batch_calls.reply(batch, created)
        if isinstance(reply, BatchClosed):
            write_checkpoint(reply)
            self._record_span(conversation, batch, created, reply.why.partition(":")[0])
            return
        model = batch.intended.model
        if is_reported(reply):
            usage = self.dependencies.prices.usage_with_batch_cost(reply.usage, model)
        else:
            usage = batch.intended.most.as_cut_call()
        self._record_reply(conversation, model, reply, usage, write_checkpoint, created.batch_id)
        self._record_span(conversation, batch, created, reply)

    def _lose_batch(
        self, conversation: Conversation, batch: OpenBatch, write_checkpoint: WriteCheckpoint
    ) -> None:
        """Store that the batch of a call is given up. The call counts at its upper bound."""
        usage = batch.intended.most.as_cut_call()
        write_checkpoint(self._failed_call_checkpoint(batch.intended.model, BATCH_LOST, usage))
        self._record_span(conversation, batch, batch.created, BatchLost.__name__)

    def _record_span(
        self,
        conversation: Conversation,
        batch: OpenBatch,
        created: BatchCreated | None,
        outcome: ModelReply | str,
    ) -> None:
        """Export the span of a call in a batch, after the checkpoint of its end. A process that is
        killed between the two exports no span.

        Args:
            conversation: the conversation before the reply.
            outcome: the reply, or the kind of failure.
        """
        if not telemetry().is_on:
            return
        intended = batch.intended
        call = ModelCall(
            model=intended.model,
            system=self._builder.system,
            messages=conversation.messages_for(intended.model),
            max_output_tokens=intended.most.output_tokens,
            output_schema=self._builder.output_schema(conversation),
        )
        batch_id = None if created is None else created.batch_id
        times = BatchedCallTimes(intended.at, self.dependencies.now())
        telemetry().export_batched_chat(call, batch_id, times, outcome)

    def _await_prefix(self, conversation: Conversation, *, is_last: bool) -> str | None:
        """Before the first call of a handoff, wait while another handoff is the first to send the
        same prefix. Then this call can read the prefix from the provider's cache.

        The wait ends as soon as that reply has begun or failed, and after `MAX_WAIT_S`. It comes
        before the reservation of the call, so a process that stops here is not charged.

        Return the prefix, for which others may wait until this turn has ended. Return None if no
        other call waits.
        """
        if conversation.turns:
            return None
        now = self.dependencies.now
        choice = self._choices.usable(conversation, now())[0]
        self._builder.call(conversation, choice, is_last=is_last)  # computes the prefix
        prefix = self._builder.prefix
        if not prefix.is_worth_a_wait:
            return None
        until = now() + MAX_WAIT_S
        while not self.dependencies.caches.claim_prefix(prefix.name, now()):
            if now() >= until:
                return None
            self._wait(WAIT_SLICE_S, FILLS_CACHE)
        return prefix.name

    def _record_prefix(self, usage: Usage) -> None:
        """Record that the provider has cached the prefix of the call."""
        prefix = self._builder.prefix.name
        self.dependencies.caches.record_reply_begun(prefix, self.dependencies.now(), usage)

    def _reserve_call(
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
                call = replace(call, caches_for_1h=bool(call.tools) and call.may_call_tools)
            worst = replace(self._worst_case(conversation, call), is_batched=is_batched)
            expected = None
            if not is_batched:
                expected = self._expected_usage(conversation, choice, call, joins_line=joins_line)
            wait = self.dependencies.checkpoints.reserve(
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

    def _is_read_at_once(self, reply: ModelReplied) -> bool:
        """Return whether the reply is probably the answer, and can be read in milliseconds."""
        text = text_of(reply.content)
        return (
            not calls_of(reply)
            and len(text) <= SHORT_REPLY_CHARS
            and not is_slow_to_read(self.dependencies.answer_format, text)
        )

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
        rate_wait_s = self.dependencies.rate_wait_s
        while True:
            reservation = self._ask_models(conversation, reserve)
            wait = reservation.wait
            if wait is None:
                return reservation.call, reservation.worst
            why = _add_model_name(wait.why, reservation.call)
            if wait.seconds > rate_wait_s:
                deferred_s = min(wait.seconds - rate_wait_s / 2, MAX_DEFERRAL_S)
                raise Deferred(max(0.0, min(deferred_s, self.dependencies.left_s)), why)
            self._wait(min(wait.seconds, ASK_AGAIN_S), why, shown_s=wait.seconds)

    def _ask_models(
        self, conversation: Conversation, reserve: Callable[..., _Reservation]
    ) -> _Reservation:
        """Ask each usable model in turn. Return the reservation, or the wait of the first model
        that can serve the call within `ASK_AGAIN_S`, or else the shortest wait.

        Only the model with the shortest wait gets this handoff into its line of waiting calls. A
        place in another line would delay the calls of others.
        """
        choices = self._choices.usable(conversation, self.dependencies.now())
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

    def _worst_case(self, conversation: Conversation, call: ModelCall) -> WorstCase:
        """Return the upper bound of a call, at the price of the dearest model of the handoff.
        Whether the budget allows a turn does not depend on the model that serves the turn. A model
        without a known price has no upper bound in money, and does not count for other models.
        """
        max_input = self._builder.max_input(conversation)
        worst = self.dependencies.prices.worst(call, max_input)
        if not self._choices.has_several or worst.microusd is None:
            return worst
        dearest = worst.microusd
        for choice in self._choices.choices:
            other = self.dependencies.prices.worst(replace(call, model=choice.name), max_input)
            dearest = max(dearest, other.microusd or 0)
        return replace(worst, microusd=dearest)

    def _leave_out_unpriced(self, conversation: Conversation) -> bool:
        """Leave out the models without a known price, because a limit in money may refuse them.
        Return whether a model was left out, and another one has a price.
        """
        unpriced: list[str] = []
        usable = self._choices.usable(conversation, self.dependencies.now())
        for choice in usable:
            if not self.dependencies.prices.has_price(choice.name):
                unpriced.append(choice.name)
        if not unpriced or len(unpriced) == len(usable):
            return False
        self._choices.leave_out(unpriced)
        return True

    def _expected_usage(
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

    def _report_limits(self, limits: RateLimits | None) -> None:
        """Record the reported rate limits once for each call, as soon as the server has
        accepted the call.
        """
        if limits is not None and self._call_progress.limits is None:
            self.dependencies.checkpoints.report_limits(limits)

    def _handle_failure(
        self,
        conversation: Conversation,
        call: ModelCall,
        worst: WorstCase,
        error: ModelError,
        write_checkpoint: WriteCheckpoint,
    ) -> None:
        """Store the failed call with its usage. Then wait for the next try, or raise the error."""
        usage = usage_of_failed_call(
            error, self._call_progress, call, worst, self.dependencies.prices
        )
        is_rate_limited = False
        if isinstance(error, ModelBusy):
            is_rate_limited = True
            self.dependencies.checkpoints.report_refusal(
                reason_of(error), error.retry_after_s, error.limits
            )
        has_other = self._has_other(conversation, call.model)
        rules_out = has_other and not error.retryable
        write_checkpoint(
            self._failed_call_checkpoint(call.model, str(error), usage, rules_out=rules_out)
        )
        delay = delay_s(error, conversation.failures_in_a_row + 1, self.dependencies.jitter())
        if rules_out:
            return
        if delay is None or conversation.turns + 1 >= self._limits.max_turns:
            self.draft = self._call_progress.text
            raise error
        if is_rate_limited and self._choices.bucket_of(call.model) is not None:
            return  # `reserve` makes the next call wait together with all other calls
        now = self.dependencies.now()
        self._choices.avoid(call.model, now)
        if has_other and self._choices.has_healthy(conversation, now):
            return
        self._wait(delay, _add_model_name(reason_of(error), call))

    def _has_other(self, conversation: Conversation, model: str) -> bool:
        """Return whether another model may serve the turn after a failed call of this model."""
        has_turns = conversation.turns + 1 < self._limits.max_turns
        return has_turns and self._choices.has_other(conversation, model)

    def _failed_call_checkpoint(
        self, model: str, error: str, usage: Usage, *, rules_out: bool = False
    ) -> ModelCallFailed:
        """Return the checkpoint of a call without a usable reply.

        Args:
            rules_out: True if the model serves no further turn of this handoff.
        """
        return ModelCallFailed(
            error=error,
            usage=usage,
            requested_model=self._model_name_to_record(model),
            rules_out=rules_out or None,
        )

    def _model_name_to_record(self, model: str) -> str | None:
        """Return the name of the requested model, or None if the handoff has only one model."""
        if self._choices.has_several:
            return model
        return None

    def _on_progress(self, progress: CallProgress) -> None:
        self._report_limits(progress.limits)
        if progress.limits is not None and self._call_progress.limits is None:
            self._record_prefix(progress.usage)
        self._call_progress = progress
        self.dependencies.checkpoints.heartbeat(
            self._progress.activity(progress), self._progress.draft(progress)
        )
        self._check_deadline()

    def _wait(self, seconds: float, why: str, shown_s: float | None = None) -> None:
        """Wait with heartbeats.

        Args:
            seconds: time to wait.
            why: short reason for the heartbeat.
            shown_s: seconds that the heartbeat shows first, if the whole wait is longer.

        Raises:
            Interrupted: this process must stop its work on the handoff.
            LimitReached: the working time is over.
        """
        until = self.dependencies.now() + seconds
        more_s = (shown_s or seconds) - seconds
        left_s = seconds
        while left_s > 0:
            shown = HandoffWait(why, max(1, round(left_s + more_s)))
            self.dependencies.checkpoints.heartbeat(str(shown))
            self._check_deadline()
            self.dependencies.wait(min(left_s, WAIT_SLICE_S))
            left_s = until - self.dependencies.now()

    def _check_deadline(self) -> None:
        if self.dependencies.left_s <= 0:
            raise LimitReached(StopReason.DEADLINE, "the time for this step is over")


def _is_empty_again(conversation: Conversation, reply: ModelReply) -> bool:
    """Return whether the reply is an empty answer, and so was the last reply."""
    if reply.stop_reason != "end_turn" or text_of(reply.content).strip():
        return False
    has_calls = any(block.get("type") == "tool_use" for block in reply.content)
    return not has_calls and AgentPrompted(text=EMPTY) in conversation.since_reply


def _add_model_name(why: str, call: ModelCall) -> str:
    """Return the reason of a wait with the model that the wait is for."""
    return f"{why} ({call.model})"
