"""The model call of one turn. Its upper bound is reserved before the call, and its real usage
is stored after it. A limit or a lost claim can cut the call at any time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from handoff_queue.shared.agent.answer_format import is_slow_to_read
from handoff_queue.shared.agent.batch_calls import (
    BATCH_LOST,
    READING,
    BatchCalls,
    BatchLost,
    adopt_batch,
)
from handoff_queue.shared.agent.batch_rules import OpenBatch, find_open_batch
from handoff_queue.shared.agent.call_builder import CallBuilder
from handoff_queue.shared.agent.call_reservation import (
    UNKNOWN_CALL,
    WAIT_SLICE_S,
    CallReservations,
    FirstCall,
    add_model_name,
    check_deadline,
    wait_for_call,
)
from handoff_queue.shared.agent.call_usage import (
    compute_cut_call_usage,
    compute_failed_call_usage,
    compute_reply_usage,
    is_reported,
)
from handoff_queue.shared.agent.conversation import Conversation, find_calls, get_final_text
from handoff_queue.shared.agent.model_fallback import ModelChoice, ModelChoices
from handoff_queue.shared.agent.next_turn import NextTurn
from handoff_queue.shared.agent.prompt_cache_prefixes import MAX_WAIT_S
from handoff_queue.shared.agent.reply_progress import ReplyProgress
from handoff_queue.shared.agent.retry_policy import compute_delay_s, describe_reason
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.summary_messages import find_provider_block
from handoff_queue.shared.agent.tool_call_ids import with_valid_calls
from handoff_queue.shared.agent.tool_result_clearing import find_results_cleared_by_provider
from handoff_queue.shared.observability.telemetry import BatchedCallTimes, get_telemetry
from handoff_queue.shared.types.checkpoints import (
    BatchClosed,
    BatchCreated,
    Checkpoint,
    ContextCleared,
    ModelCallFailed,
    ModelReplied,
    WorstCase,
)
from handoff_queue.shared.types.errors import Cancelled, LimitReached, ModelBusy, ModelError
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.model import COMPACTION, CallProgress, ModelCall, ModelReply
from handoff_queue.shared.types.rate_limits import RateLimits
from handoff_queue.shared.types.usage import Usage

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
        self.next_turn = NextTurn(limits, builder, self._choices)
        self._reservations = CallReservations(builder, self._choices)
        self._call_progress = CallProgress()
        self.draft = ""
        """Text of the last call if it was cut or failed. No checkpoint has this text."""

    def use_claim(self, dependencies: RunDependencies) -> None:
        """Make the next calls under a claim, which is part of the dependencies."""
        self.dependencies = dependencies
        self._builder.dependencies = dependencies

    def estimate_first_call(self, conversation: Conversation) -> FirstCall:
        """Return the first call. It is `UNKNOWN_CALL` if the call is also the last one, goes into a
        batch, or exceeds the token limit.
        """
        if self.next_turn.is_last(conversation) or self.next_turn.may_send_batch(conversation):
            return UNKNOWN_CALL
        return self._reservations.estimate_first_call(conversation)

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
        check_deadline(self.dependencies)
        if self.next_turn.may_send_batch(conversation):
            self._send_batch(
                conversation, write_checkpoint, is_last=is_last, takes_messages=takes_messages
            )
            return
        prefix = self._await_prefix(conversation, is_last=is_last)
        try:
            self._progress.is_summary = conversation.is_summarizing
            self.dependencies.checkpoints.heartbeat(
                self._progress.describe_activity(CallProgress())
            )
            call, worst = self._reservations.reserve_call(
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
        started_at = self.dependencies.now()
        silence_s = max(1.0, min(self.dependencies.silence_s, self.dependencies.left_s))
        call = replace(call, timeout_s=silence_s)
        try:
            with get_telemetry().chat(call) as span:
                reply = self.dependencies.model.reply(call, self._on_progress)
                span.record_reply(reply)
            self._record_prefix(reply.usage)
        except ModelError as error:
            self._handle_failure(conversation, call, worst, error, write_checkpoint)
            return
        except LimitReached as limit:
            self.draft = self._call_progress.text
            usage = compute_cut_call_usage(
                self._call_progress, call, worst, self.dependencies.prices
            )
            write_checkpoint(self._build_failed_call_checkpoint(call.model, str(limit), usage))
            raise
        self._report_limits(reply.limits)
        self.next_turn.record_duration(self.dependencies.now() - started_at)
        usage = compute_reply_usage(reply, call, worst, self.dependencies.prices)
        if call.compaction is not None and find_provider_block(reply.content) is None:
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
        has_declined = reply.stop_reason == "refusal" and not conversation.is_summarizing
        if has_declined:
            fault = f"{model} declined to answer"
        elif reply.stop_reason == "refusal":
            reply = replace(reply, content=())
        elif _is_empty_again(conversation, reply):
            fault = f"{model} gave an empty answer twice"
        if fault and self._has_other(conversation, model):
            failed = self._build_failed_call_checkpoint(model, fault, usage, rules_out=True)
            if has_declined:
                failed = failed.model_copy(update={"declined": True})
            write_checkpoint(failed)
            return
        content = with_valid_calls(reply.content, conversation.ids)
        reply_checkpoint = ModelReplied(
            content=content,
            stop_reason=reply.stop_reason,
            usage=usage,
            model=reply.model,
            requested_model=self._get_recorded_model_name(model),
            batch_id=batch_id,
        )
        if cleared is not None:
            write_checkpoint(reply_checkpoint, cleared)
            return
        may_wait = not self._progress.is_summary and self._is_read_at_once(reply_checkpoint)
        write_checkpoint(reply_checkpoint, deferrable=may_wait)

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
        call, worst = self._reservations.reserve_call(
            conversation, is_last=is_last, takes_messages=takes_messages, is_batched=True
        )
        intended = batch_calls.build_intention(call, worst, conversation.checkpoints)
        write_checkpoint(intended)
        created = batch_calls.create(intended, call)
        try:
            write_checkpoint(created)
        except Cancelled:  # the store has no id of the batch, so no other process cancels it
            batch_calls.cancel(created)
            raise
        if isinstance(created, BatchCreated):
            raise batch_calls.build_deferral(created.at, f"batch {created.batch_id}")
        if not created.goes_live:
            raise batch_calls.build_deferral(intended.at, "a provider that takes a batch")

    def read_batch(self, conversation: Conversation, write_checkpoint: WriteCheckpoint) -> bool:
        """Store the reply of the batch that the last call is in, or the end of a batch without a
        reply. Return False if no call is in a batch.

        Raises:
            Deferred: the batch has not ended.
        """
        batch = find_open_batch(conversation.checkpoints)
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
                raise batch_calls.build_deferral_after(batch, error) from error
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
            usage = self.dependencies.prices.add_batch_cost(reply.usage, model)
        else:
            usage = batch.intended.most.as_cut_call()
        self._record_reply(conversation, model, reply, usage, write_checkpoint, created.batch_id)
        self._record_span(conversation, batch, created, reply)

    def _lose_batch(
        self, conversation: Conversation, batch: OpenBatch, write_checkpoint: WriteCheckpoint
    ) -> None:
        """Store that the batch of a call is given up. The call counts at its upper bound."""
        usage = batch.intended.most.as_cut_call()
        write_checkpoint(
            self._build_failed_call_checkpoint(batch.intended.model, BATCH_LOST, usage)
        )
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
        if not get_telemetry().is_on:
            return
        intended = batch.intended
        call = ModelCall(
            model=intended.model,
            system=self._builder.system,
            messages=conversation.build_messages_for(intended.model),
            max_output_tokens=intended.most.output_tokens,
            output_schema=self._builder.choose_output_schema(conversation),
        )
        batch_id = None if created is None else created.batch_id
        times = BatchedCallTimes(intended.at, self.dependencies.now())
        get_telemetry().export_batched_chat(call, batch_id, times, outcome)

    def _await_prefix(self, conversation: Conversation, *, is_last: bool) -> str | None:
        """Before the first call of a handoff, wait while another handoff is the first to send the
        same prefix. Then this call can read the prefix from the provider's cache.

        The wait ends as soon as that reply has begun or failed, and after `MAX_WAIT_S`. It comes
        before the reservation of the call, so a process that stops here is not charged.

        Return the prefix that this call will fill; others wait for it until this turn has ended.
        Return None if no other call waits.
        """
        if conversation.turns:
            return None
        now = self.dependencies.now
        choice = self._choices.list_usable(conversation, now())[0]
        prefix = self._builder.build_prefix(conversation, choice, is_last=is_last)
        if not prefix.is_worth_a_wait:
            return None
        until = now() + MAX_WAIT_S
        while not self.dependencies.caches.claim_prefix(prefix.name, now()):
            if now() >= until:
                return None
            wait_for_call(self.dependencies, WAIT_SLICE_S, FILLS_CACHE)
        return prefix.name

    def _record_prefix(self, usage: Usage) -> None:
        """Record that the provider has cached the prefix of the call."""
        prefix = self._builder.prefix.name
        self.dependencies.caches.record_reply_begun(prefix, self.dependencies.now(), usage)

    def _is_read_at_once(self, reply: ModelReplied) -> bool:
        """Return whether the reply is probably the answer, and can be read in milliseconds."""
        text = get_final_text(reply.content)
        return (
            not find_calls(reply)
            and len(text) <= SHORT_REPLY_CHARS
            and not is_slow_to_read(self.dependencies.answer_format, text)
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
        usage = compute_failed_call_usage(
            error, self._call_progress, call, worst, self.dependencies.prices
        )
        if isinstance(error, ModelBusy):
            self.dependencies.checkpoints.report_refusal(
                describe_reason(error), error.retry_after_s, error.limits
            )
        has_other = self._has_other(conversation, call.model)
        rules_out = has_other and not error.retryable
        write_checkpoint(
            self._build_failed_call_checkpoint(call.model, str(error), usage, rules_out=rules_out)
        )
        if rules_out:
            return
        tries = conversation.failures_in_a_row + 1
        delay = compute_delay_s(error, tries, self.dependencies.jitter())
        if delay is None or conversation.turns + 1 >= self._limits.max_turns:
            self.draft = self._call_progress.text
            raise error
        now = self.dependencies.now()
        if isinstance(error, ModelBusy) and self._choices.get_bucket(call.model) is not None:
            # `reserve` makes the next call wait together with all other calls
            next_is_last = conversation.turns + 2 >= self._limits.max_turns
            if error.retry_after_s is None or next_is_last:
                self._choices.avoid(call.model, now)
            return
        self._choices.avoid(call.model, now)
        if has_other and self._choices.has_healthy(conversation, now):
            return
        wait_for_call(self.dependencies, delay, add_model_name(describe_reason(error), call))

    def _has_other(self, conversation: Conversation, model: str) -> bool:
        """Return whether another model may serve the turn after a failed call of this model."""
        has_turns = conversation.turns + 1 < self._limits.max_turns
        return has_turns and self._choices.has_other(conversation, model)

    def _build_failed_call_checkpoint(
        self, model: str, error: str, usage: Usage, *, rules_out: bool = False
    ) -> ModelCallFailed:
        """Return the checkpoint of a call without a usable reply.

        Args:
            rules_out: True if the model serves no further turn of this handoff.
        """
        return ModelCallFailed(
            error=error,
            usage=usage,
            requested_model=self._get_recorded_model_name(model),
            rules_out=rules_out or None,
        )

    def _get_recorded_model_name(self, model: str) -> str | None:
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
            self._progress.describe_activity(progress), self._progress.draft(progress)
        )
        check_deadline(self.dependencies)


def _is_empty_again(conversation: Conversation, reply: ModelReply) -> bool:
    """Return whether the reply is an empty answer, and so was the last reply."""
    if reply.stop_reason != "end_turn" or get_final_text(reply.content).strip():
        return False
    has_calls = any(block.get("type") == "tool_use" for block in reply.content)
    return not has_calls and conversation.is_told_empty
