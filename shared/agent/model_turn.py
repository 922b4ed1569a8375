"""The model call of one turn. Its upper bound is reserved before the call, and its real usage
is stored after it. A limit or a lost claim can cut the call at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Protocol

from handoff_queue.shared.agent.answer_format import takes_time
from handoff_queue.shared.agent.conversation import (
    Conversation,
    calls_of,
    text_of,
    with_valid_calls,
)
from handoff_queue.shared.agent.json_answers import draft_in
from handoff_queue.shared.agent.prices import HIDDEN_TOKENS, request_bytes, server_tool_uses
from handoff_queue.shared.agent.retry_policy import delay_s, reason_of
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_calls import definition
from handoff_queue.shared.observability.telemetry import telemetry
from handoff_queue.shared.types.checkpoints import (
    AgentPrompted,
    Checkpoint,
    ModelCallFailed,
    ModelReplied,
    ToolObserved,
    WorstCase,
)
from handoff_queue.shared.types.errors import (
    Deferred,
    LimitReached,
    ModelBusy,
    ModelError,
    ModelRejected,
    NeverSent,
)
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.model import ModelCall, ModelReply, Pulse
from handoff_queue.shared.types.presence import HandoffWait
from handoff_queue.shared.types.rate_limits import ExpectedUsage, RateLimits, Wait
from handoff_queue.shared.types.usage import NOTHING_USED, Usage

LEAST_OUTPUT_TOKENS = 256
"""Least output tokens of a call. A shorter reply is not worth its input."""
BYTES_PER_TOKEN = 3
"""Estimate of the input for the handoff's own token limit and for rate limits. English has
about 4 bytes a token, code and other scripts 2 to 3. The job's budget uses an upper bound
instead.
"""
IMAGE_TOKENS = 5_000
"""Most tokens of one image. Source: the vision page of the Messages API, which scales larger
images down.
"""
WAIT_SLICE_S = 0.25
"""Seconds between two heartbeats and deadline checks of a waiting call."""
ASK_AGAIN_S = 2.0
"""Seconds after which a waiting call asks for the rate limits again. Other calls may have
given up, or used less than they reserved.
"""
LONGEST_DEFERRAL_S = 120.0
"""Seconds after which a deferred handoff asks for the rate limits again."""
DRAFT_EVERY_S = 0.4
"""Least seconds between two drafts of one reply. Each draft parses the whole unfinished JSON."""

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
        self,
        limits: HandoffLimits,
        system: str,
        tools: tuple[Tool, ...],
        dependencies: RunDependencies,
        is_offered: Callable[[Tool, Conversation], bool],
    ) -> None:
        """Prepare the calls.

        Args:
            is_offered: returns whether the model may know of a tool after a conversation.
        """
        self._limits = limits
        self._system = system
        self._tools = tuple((tool, definition(tool)) for tool in tools)
        self._is_offered = is_offered
        self._schema = dict(dependencies.answer_format.schema)
        self.dependencies = dependencies
        self._pulse = Pulse()
        self._shown = ("", -inf)
        self._rendered = (-1, 0)
        self._longest_turn_s = 0.0
        self.draft = ""
        """Text of the last call if it was cut or failed. No checkpoint has this text."""

    def is_last(self, conversation: Conversation) -> bool:
        """Return whether the next turn must be the answer, because the turns, the tokens or
        the time would not suffice for another turn after it.
        """
        if conversation.turns + 1 >= self._limits.max_turns or conversation.is_told_last:
            return True
        if not conversation.turns:
            return False
        if self.dependencies.left_s < 2 * self._longest_turn_s:
            return True
        return (
            self._tokens_left(conversation)
            < 2 * self._expected_input(conversation)
            + self._limits.max_output_tokens
            + LEAST_OUTPUT_TOKENS
        )

    def first(self, conversation: Conversation) -> tuple[WorstCase | None, ExpectedUsage | None]:
        """Return the upper bound of the first call and its expected share of the rate limits,
        so that the claim can reserve both in one round trip.

        Both are None if the first call is also the last one, or exceeds the token limit.
        """
        if self.is_last(conversation):
            return None, None
        try:
            call = self._call(conversation, is_last=False)
        except LimitReached:
            return None, None
        return self.dependencies.prices.worst(call, self._most_input(conversation)), self._expected(
            conversation, call
        )

    def turn(
        self,
        conversation: Conversation,
        note: WriteCheckpoint,
        *,
        is_last: bool,
        takes_messages: bool,
    ) -> None:
        """Make one call and store its reply through `note`. After a failed call, wait, so that
        the next turn can try again.

        Raises:
            LimitReached: the tokens, the time, or the job's budget are used up.
            ModelError: another try would fail as well, or no try is left.
            Deferred: the provider's rate limits need a longer wait than `rate_wait_s`.
            MessagesWaiting: no call was made, because users have sent messages.
        """
        self._check_deadline()
        call = self._call(conversation, is_last=is_last)
        worst = self.dependencies.prices.worst(call, self._most_input(conversation))
        self.dependencies.checkpoints.heartbeat("thinking")
        expected = self._expected(conversation, call)
        self._reserve(worst, expected, takes_messages=takes_messages, is_last=is_last)
        self._pulse, started = Pulse(), self.dependencies.now()
        try:
            with telemetry().chat(call) as span:
                reply = self.dependencies.model.reply(call, self._on_pulse)
                span.replied(reply)
        except ModelError as error:
            self._failed(conversation, call, worst, error, note)
            return
        except LimitReached as limit:
            self.draft = self._pulse.text
            note(ModelCallFailed(error=str(limit), usage=self._settled(call, worst)))
            raise
        self._report_limits(reply.limits)
        self._longest_turn_s = max(self._longest_turn_s, self.dependencies.now() - started)
        usage = self._used(reply, call, worst)
        content = with_valid_calls(reply.content, conversation.ids)
        replied = ModelReplied(
            content=content, stop_reason=reply.stop_reason, usage=usage, model=reply.model
        )
        note(replied, deferrable=self._is_read_at_once(replied))

    def _is_read_at_once(self, reply: ModelReplied) -> bool:
        """Return whether the reply is probably the answer, and can be read in milliseconds."""
        text = text_of(reply.content)
        return (
            not calls_of(reply)
            and len(text) <= SHORT_REPLY_CHARS
            and not takes_time(self.dependencies.answer_format, text)
        )

    def _reserve(
        self,
        worst: WorstCase,
        expected: ExpectedUsage | None,
        *,
        takes_messages: bool,
        is_last: bool,
    ) -> None:
        """Wait until the call may be made, and reserve it.

        Raises:
            Deferred: the wait is longer than `rate_wait_s`. Its seconds are shorter than the wait,
                so that the call is not late.
            MessagesWaiting: see `CheckpointStore.reserve`.
        """
        checkpoints, rate_wait_s = self.dependencies.checkpoints, self.dependencies.rate_wait_s

        def reserve() -> Wait | None:
            return checkpoints.reserve(
                worst, expected, takes_messages=takes_messages, is_last=is_last
            )

        while (wait := reserve()) is not None:
            if wait.seconds > rate_wait_s:
                deferred_s = min(wait.seconds - rate_wait_s / 2, LONGEST_DEFERRAL_S)
                raise Deferred(max(0.0, min(deferred_s, self.dependencies.left_s)), wait.why)
            self._wait(min(wait.seconds, ASK_AGAIN_S), wait.why, shown_s=wait.seconds)

    def _expected(self, conversation: Conversation, call: ModelCall) -> ExpectedUsage | None:
        bucket = self.dependencies.bucket
        if bucket is None:
            return None
        return ExpectedUsage(bucket, self._expected_input(conversation), call.max_output_tokens)

    def _report_limits(self, limits: RateLimits | None) -> None:
        """Record the reported rate limits once for each call, as soon as the server has
        accepted the call.
        """
        if limits is not None and self._pulse.limits is None:
            self.dependencies.checkpoints.report_limits(limits)

    def _call(self, conversation: Conversation, *, is_last: bool) -> ModelCall:
        room = self._tokens_left(conversation) - self._expected_input(conversation)
        if room < LEAST_OUTPUT_TOKENS:
            raise LimitReached(
                StopReason.MAX_TOKENS,
                f"{conversation.replied_tokens} of {self._limits.max_tokens} tokens are used",
            )
        tools: tuple[dict[str, object], ...] = ()
        if conversation.ids or not is_last:
            tools = self._offered(conversation)
        may_call_tools = not is_last
        if conversation.ids and not tools:
            tools = tuple(_placeholder(name) for name in conversation.called_names)
            may_call_tools = False
        return ModelCall(
            model=self.dependencies.model_name,
            system=self._system,
            messages=conversation.messages,
            max_output_tokens=min(self._limits.max_output_tokens, room),
            tools=tools,
            may_call_tools=may_call_tools,
            output_schema=self._schema,
            timeout_s=max(1.0, min(self.dependencies.silence_s, self.dependencies.left_s)),
            progress_s=self.dependencies.progress_s,
        )

    def _failed(
        self,
        conversation: Conversation,
        call: ModelCall,
        worst: WorstCase,
        error: ModelError,
        note: WriteCheckpoint,
    ) -> None:
        """Store the failed call with its usage. Then wait for the next try, or raise the error."""
        # A stream that breaks off with an overload: the part that has arrived is paid.
        has_begun = self._pulse.usage.total_tokens > 0
        if _is_unpaid(error) and not has_begun:
            usage = NOTHING_USED
        else:
            usage = self._settled(call, worst)
        is_refused = isinstance(error, ModelBusy)
        if isinstance(error, ModelBusy):
            self.dependencies.checkpoints.report_refusal(
                reason_of(error), error.retry_after_s, error.limits
            )
        note(ModelCallFailed(error=str(error), usage=usage))
        delay = delay_s(error, conversation.failures_in_a_row + 1, self.dependencies.jitter())
        if delay is None or conversation.turns + 1 >= self._limits.max_turns:
            self.draft = self._pulse.text
            raise error
        if is_refused and self.dependencies.bucket is not None:
            return  # `reserve` makes the next call wait together with all other calls
        self._wait(delay, reason_of(error))

    def _used(self, reply: ModelReply, call: ModelCall, worst: WorstCase) -> Usage:
        """Return the usage of a reply as the server reports it, with its cost. Without a
        report, return the upper bound, because unknown usage never counts as zero.
        """
        is_reported = reply.usage.input_tokens > 0 and (
            reply.usage.output_tokens > 0 or not reply.content
        )
        if is_reported:
            return self.dependencies.prices.priced(reply.usage, call.model)
        return self._at_most(reply.usage, call, worst)

    def _settled(self, call: ModelCall, worst: WorstCase) -> Usage:
        """Return the usage of a call without a reply: the server's final report, or the upper
        bound.

        The length of the arrived text is no bound: a token may be less than a character, and
        thinking may be hidden.
        """
        reported = self._pulse.usage
        if self._pulse.is_usage_final:
            return self.dependencies.prices.priced(reported, call.model)
        return self._at_most(reported, call, worst)

    def _at_most(self, reported: Usage, call: ModelCall, worst: WorstCase) -> Usage:
        """Return the upper bound of the usage. The input is the reported one, unless it was
        not reported or the server's own tools may have added to it.
        """
        if reported.input_tokens == 0 or server_tool_uses(call):
            most = Usage(
                input_tokens=worst.input_tokens,
                output_tokens=worst.output_tokens,
                cost_microusd=worst.microusd,
            )
            return most.of_a_cut_call()
        most = reported.model_copy(
            update={"output_tokens": max(worst.output_tokens, reported.output_tokens)}
        )
        return self.dependencies.prices.priced(most, call.model).of_a_cut_call()

    def _on_pulse(self, pulse: Pulse) -> None:
        self._report_limits(pulse.limits)
        self._pulse = pulse
        self.dependencies.checkpoints.heartbeat(
            "thinking", self._draft_so_far(pulse.text) if self.dependencies.streams_draft else None
        )
        self._check_deadline()

    def _draft_so_far(self, text: str) -> str:
        """Return the draft in the text so far. It is parsed again after `DRAFT_EVERY_S`."""
        draft, at = self._shown
        now = self.dependencies.now()
        if now - at >= DRAFT_EVERY_S:
            draft = draft_in(text)
            self._shown = (draft, now)
        return draft

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
        while (left := until - self.dependencies.now()) > 0:
            self.dependencies.checkpoints.heartbeat(
                str(HandoffWait(why, max(1, round(left + more_s))))
            )
            self._check_deadline()
            self.dependencies.wait(min(left, WAIT_SLICE_S))

    def _check_deadline(self) -> None:
        if self.dependencies.left_s <= 0:
            raise LimitReached(StopReason.DEADLINE, "the time for this step is over")

    def _tokens_left(self, conversation: Conversation) -> int:
        return self._limits.max_tokens - conversation.replied_tokens

    def _expected_input(self, conversation: Conversation) -> int:
        """Return the expected input tokens of the next call: the input and output of the last
        reply, and an estimate of all later messages.
        """
        reply = conversation.last_reply
        if reply is not None and reply.usage.input_tokens:
            return (
                reply.usage.input_tokens
                + reply.usage.output_tokens
                + _bytes_of(conversation.since_reply) // BYTES_PER_TOKEN
            )
        return self._rendered_bytes(conversation) // BYTES_PER_TOKEN

    def _offered(self, conversation: Conversation) -> tuple[dict[str, object], ...]:
        """Return the definitions of the tools that the model may know of now."""
        return tuple(
            defined for tool, defined in self._tools if self._is_offered(tool, conversation)
        )

    def _most_input(self, conversation: Conversation) -> int:
        """Return an upper bound of the input tokens without a tokenizer.

        The bound is the reported input and output of the last reply, one token for each later
        byte, and a margin for the structure of the messages. Without a report it is the number
        of bytes of the request and `HIDDEN_TOKENS`. Tokenizers of current models work on
        bytes, or fall back to bytes, so no token is shorter than one byte. For English, bytes
        are about four times too many.
        """
        reply = conversation.last_reply
        if reply is None or reply.usage.input_tokens == 0:
            return self._rendered_bytes(conversation) + HIDDEN_TOKENS
        return (
            reply.usage.input_tokens
            + reply.usage.output_tokens
            + _bytes_of(conversation.since_reply)
            + 500
            + 50 * len(conversation.messages)
        )

    def _rendered_bytes(self, conversation: Conversation) -> int:
        """Return the bytes of the next request. The figure is kept until the conversation
        grows, because a request may be large.
        """
        length = len(conversation.checkpoints)
        if self._rendered[0] != length:
            call = ModelCall(
                "",
                self._system,
                conversation.messages,
                max_output_tokens=1,
                tools=self._offered(conversation),
                output_schema=self._schema,
            )
            self._rendered = (length, request_bytes(call))
        return self._rendered[1]


def _placeholder(name: str) -> dict[str, Any]:
    """Return the definition of a tool that the model has invented. The API refuses a request
    whose messages contain calls and that defines no tools.
    """
    return {
        "name": name,
        "description": "There is no such tool.",
        "input_schema": {"type": "object"},
    }


def _bytes_of(checkpoints: tuple[Checkpoint, ...]) -> int:
    """Return the bytes of all prompts and tool results. An image counts as `IMAGE_TOKENS`
    bytes, because the upper bound takes one token for each byte.
    """
    total = 0
    for checkpoint in checkpoints:
        if isinstance(checkpoint, ToolObserved | AgentPrompted):
            total += len(checkpoint.text.encode("utf-8", "replace"))
        if isinstance(checkpoint, ToolObserved) and checkpoint.images:
            total += IMAGE_TOKENS * len(checkpoint.images)
    return total


def _is_unpaid(error: ModelError) -> bool:
    """Return whether the call cost nothing, because it was refused or never sent. A broken
    stream, a 5xx or a 408 may cost money: a gateway may send these for a complete answer.
    """
    return isinstance(error, ModelBusy | ModelRejected | NeverSent)
