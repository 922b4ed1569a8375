"""The model call of one turn. Its worst cost is reserved first, its real cost is recorded after it,
and it can be cut at any moment.
"""

from __future__ import annotations

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
from handoff_queue.shared.types.presence import RateLimitWait
from handoff_queue.shared.types.rate_limits import Expected, RateLimits
from handoff_queue.shared.types.usage import NOTHING_USED, Usage

LEAST_OUTPUT_TOKENS = 256
"""A call that may write less than this is not worth its input."""
BYTES_PER_TOKEN = 3
"""Estimate for the handoff's own token limit before a first reply. English is nearer to 4, code and
other scripts nearer to 2 or 3. The job's budget is never estimated: it is reserved at the upper
bound.
"""
IMAGE_TOKENS = 5_000
"""The most that an image can cost: the Messages API scales larger ones down to fewer (its page
on vision).
"""
WAIT_SLICE_S = 0.25
ASK_AGAIN_S = 2.0
"""Seconds after which a waiting call asks for the rate limits again. Other calls may have given up,
or used less than they reserved.
"""
LONGEST_PARK_S = 120.0
"""The same limit for deferred handoffs, in seconds."""
DRAFT_EVERY_S = 0.4
"""Seconds between two readings of the draft. Each reading parses the whole unfinished JSON."""

SHORT_REPLY_CHARS = 20_000
"""Length of a final reply that is checkpointed together with its result if it quotes nothing. This
saves a round trip. A longer reply, or one with quotes, may take some time to read.
"""


class WriteCheckpoint(Protocol):
    """Writes checkpoints: a method of the agent that each turn receives. A turn that kept the agent
    would form a cycle, and the conversation would stay in memory until the garbage collector
    runs.
    """

    def __call__(self, *checkpoints: Checkpoint, may_wait: bool = False) -> None:
        """See `Turns.checkpoint`."""
        ...


class ModelTurns:
    """Makes the model calls of one handoff. The claim is part of `equipment`."""

    def __init__(
        self,
        limits: HandoffLimits,
        system: str,
        tools: tuple[Tool, ...],
        equipment: RunDependencies,
    ) -> None:
        self._limits = limits
        self._system = system
        self._tools = tuple(definition(tool) for tool in tools)
        self._schema = dict(equipment.reading.schema)
        self.equipment = equipment
        self._pulse = Pulse()
        self._shown = ("", -inf)
        self._rendered = (-1, 0)
        self._longest_turn_s = 0.0
        self.draft = ""
        """The text of a call that was cut: work that no checkpoint holds."""

    def is_last(self, talk: Conversation) -> bool:
        """Return whether the next turn must be the answer: by turns, by tokens, or by time."""
        if talk.turns + 1 >= self._limits.max_turns or talk.is_told_last:
            return True
        if not talk.turns:
            return False
        if self.equipment.left_s < 2 * self._longest_turn_s:
            return True
        return (
            self._tokens_left(talk)
            < 2 * self._expected_input(talk) + self._limits.max_output_tokens + LEAST_OUTPUT_TOKENS
        )

    def first(self, talk: Conversation) -> tuple[WorstCase | None, Expected | None]:
        """Return the bound and the expected share of the first call if they are known before the
        claim, so that one round trip reserves both.
        """
        if self.is_last(talk):
            return None, None
        try:
            call = self._call(talk, is_last=False)
        except LimitReached:
            return None, None
        return self.equipment.prices.worst(call, self._most_input(talk)), self._expected(talk, call)

    def turn(self, talk: Conversation, note: WriteCheckpoint, *, is_last: bool) -> None:
        """Make one call and checkpoint its reply through `note`. After a failed call, wait, so that
        the next turn can try again.

        Raises:
            LimitReached: tokens, deadline, or the job's budget.
            ModelError: another try would fail as well.
        """
        self._check_deadline()
        call = self._call(talk, is_last=is_last)
        worst = self.equipment.prices.worst(call, self._most_input(talk))
        self.equipment.turns.beat("thinking")
        self._reserve(worst, self._expected(talk, call))
        self._pulse, started = Pulse(), self.equipment.now()
        try:
            with telemetry().chat(call) as span:
                reply = self.equipment.model.reply(call, self._on_pulse)
                span.replied(reply)
        except ModelError as error:
            self._failed(talk, call, worst, error, note)
            return
        except LimitReached as limit:
            self.draft = self._pulse.text
            note(ModelCallFailed(error=str(limit), usage=self._settled(call, worst)))
            raise
        self._hear(reply.limits)
        self._longest_turn_s = max(self._longest_turn_s, self.equipment.now() - started)
        usage = self._used(reply, call, worst)
        content = with_valid_calls(reply.content, talk.ids)
        replied = ModelReplied(
            content=content, stop_reason=reply.stop_reason, usage=usage, model=reply.model
        )
        note(replied, may_wait=self._is_read_at_once(replied))

    def _is_read_at_once(self, reply: ModelReplied) -> bool:
        """Return whether the reply is most likely the last one, with a result within milliseconds."""
        text = text_of(reply.content)
        return (
            not calls_of(reply)
            and len(text) <= SHORT_REPLY_CHARS
            and not takes_time(self.equipment.reading, text)
        )

    def _reserve(self, worst: WorstCase, expected: Expected | None) -> None:
        """Wait until the call may be made. A long wait is spent without a slot, and ends a little
        early so that the call is not late.
        """
        rate_wait_s = self.equipment.rate_wait_s
        while (wait := self.equipment.turns.reserve(worst, expected)) is not None:
            if wait.seconds > rate_wait_s:
                raise Deferred(
                    max(
                        0.0,
                        min(wait.seconds - rate_wait_s / 2, LONGEST_PARK_S, self.equipment.left_s),
                    ),
                    wait.why,
                )
            self._wait(min(wait.seconds, ASK_AGAIN_S), wait.why, shown_s=wait.seconds)

    def _expected(self, talk: Conversation, call: ModelCall) -> Expected | None:
        lane = self.equipment.lane
        if lane is None:
            return None
        return Expected(lane, self._expected_input(talk), call.max_output_tokens)

    def _hear(self, limits: RateLimits | None) -> None:
        """Share the rate limits when the server has accepted the call, before the reply is
        complete.
        """
        if limits is not None and self._pulse.limits is None:
            self.equipment.turns.heard(limits)

    def _call(self, talk: Conversation, *, is_last: bool) -> ModelCall:
        room = self._tokens_left(talk) - self._expected_input(talk)
        if room < LEAST_OUTPUT_TOKENS:
            raise LimitReached(
                StopReason.MAX_TOKENS,
                f"{talk.replied_tokens} of {self._limits.max_tokens} tokens are used",
            )
        if talk.ids or not is_last:
            tools = self._tools
        else:
            tools = ()
        may_call_tools = not is_last
        if talk.ids and not tools:
            tools = tuple(_placeholder(name) for name in talk.called_names)
            may_call_tools = False
        return ModelCall(
            model=self.equipment.model_name,
            system=self._system,
            messages=talk.messages,
            max_output_tokens=min(self._limits.max_output_tokens, room),
            tools=tools,
            may_call_tools=may_call_tools,
            output_schema=self._schema,
            timeout_s=max(1.0, min(self.equipment.silence_s, self.equipment.left_s)),
            progress_s=self.equipment.progress_s,
        )

    def _failed(
        self,
        talk: Conversation,
        call: ModelCall,
        worst: WorstCase,
        error: ModelError,
        note: WriteCheckpoint,
    ) -> None:
        """Settle, then wait for the next try or give up."""
        has_begun = (
            self._pulse.usage.total_tokens > 0
        )  # overloaded in the middle of a stream: the part that arrived was paid
        if _is_unpaid(error) and not has_begun:
            usage = NOTHING_USED
        else:
            usage = self._settled(call, worst)
        is_refused = isinstance(error, ModelBusy)
        if isinstance(error, ModelBusy):
            self.equipment.turns.refused(reason_of(error), error.retry_after_s, error.limits)
        note(ModelCallFailed(error=str(error), usage=usage))
        delay = delay_s(error, talk.failures_in_a_row + 1, self.equipment.dice())
        if delay is None or talk.turns + 1 >= self._limits.max_turns:
            self.draft = self._pulse.text
            raise error
        if is_refused and self.equipment.lane is not None:
            return  # the next call waits with all others
        self._wait(delay, reason_of(error))

    def _used(self, reply: ModelReply, call: ModelCall, worst: WorstCase) -> Usage:
        """Return the usage of a reply as the server reports it. Without a report it is the upper
        bound, because unknown usage never counts as zero.
        """
        is_told = reply.usage.input_tokens > 0 and (
            reply.usage.output_tokens > 0 or not reply.content
        )
        if is_told:
            return self.equipment.prices.priced(reply.usage, call.model)
        return self._at_most(reply.usage, call, worst)

    def _settled(self, call: ModelCall, worst: WorstCase) -> Usage:
        """Return the usage of a call without a reply: the server's last report, or the upper bound.

        The arrived text is no bound: a token may be less than a character, and thinking may be
        hidden. Only the input is known from the beginning, unless the server's own tools add to it.
        """
        reported = self._pulse.usage
        if self._pulse.is_usage_final:
            return self.equipment.prices.priced(reported, call.model)
        return self._at_most(reported, call, worst)

    def _at_most(self, reported: Usage, call: ModelCall, worst: WorstCase) -> Usage:
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
        return self.equipment.prices.priced(most, call.model).of_a_cut_call()

    def _on_pulse(self, pulse: Pulse) -> None:
        self._hear(pulse.limits)
        self._pulse = pulse
        self.equipment.turns.beat(
            "thinking", self._draft_so_far(pulse.text) if self.equipment.streams_draft else None
        )
        self._check_deadline()

    def _draft_so_far(self, text: str) -> str:
        draft, at = self._shown
        now = self.equipment.now()
        if now - at >= DRAFT_EVERY_S:
            draft = draft_in(text)
            self._shown = (draft, now)
        return draft

    def _wait(self, seconds: float, why: str, shown_s: float | None = None) -> None:
        """Wait, and stop early if the call is no longer needed.

        Args:
            shown_s: seconds that the heartbeat reports, if the whole wait is longer.
        """
        until = self.equipment.now() + seconds
        more_s = (shown_s or seconds) - seconds
        while (left := until - self.equipment.now()) > 0:
            self.equipment.turns.beat(str(RateLimitWait(why, max(1, round(left + more_s)))))
            self._check_deadline()
            self.equipment.wait(min(left, WAIT_SLICE_S))

    def _check_deadline(self) -> None:
        if self.equipment.left_s <= 0:
            raise LimitReached(StopReason.DEADLINE, "the time for this step is over")

    def _tokens_left(self, talk: Conversation) -> int:
        return self._limits.max_tokens - talk.replied_tokens

    def _expected_input(self, talk: Conversation) -> int:
        """Return the expected input of the next call: the input of the last reply, and all later
        messages.
        """
        reply = talk.last_reply
        if reply is not None and reply.usage.input_tokens:
            return (
                reply.usage.input_tokens
                + reply.usage.output_tokens
                + _bytes_of(talk.since_reply) // BYTES_PER_TOKEN
            )
        return self._rendered_bytes(talk) // BYTES_PER_TOKEN

    def _most_input(self, talk: Conversation) -> int:
        """Return an upper bound of the input without a tokenizer.

        It is the reported input and output of the last call, and a token for each later byte.
        Before the first call it is the number of bytes of the request. Tokenizers of current models
        work on bytes, or fall back to bytes, so no token is shorter than one byte. For English this
        bound is about four times too high.
        """
        reply = talk.last_reply
        if reply is None or reply.usage.input_tokens == 0:
            return self._rendered_bytes(talk) + HIDDEN_TOKENS
        return (
            reply.usage.input_tokens
            + reply.usage.output_tokens
            + _bytes_of(talk.since_reply)
            + 500
            + 50 * len(talk.messages)
        )

    def _rendered_bytes(self, talk: Conversation) -> int:
        """Return the bytes of a request without a reply. The request may be large, so it is
        rendered once for all derived figures.
        """
        length = len(talk.checkpoints)
        if self._rendered[0] != length:
            call = ModelCall(
                "",
                self._system,
                talk.messages,
                max_output_tokens=1,
                tools=self._tools,
                output_schema=self._schema,
            )
            self._rendered = (length, request_bytes(call))
        return self._rendered[1]


def _placeholder(name: str) -> dict[str, Any]:
    """Define a tool that the model has invented. The API refuses calls in the messages of a request
    without tools.
    """
    return {
        "name": name,
        "description": "There is no such tool.",
        "input_schema": {"type": "object"},
    }


def _bytes_of(checkpoints: tuple[Checkpoint, ...]) -> int:
    """Return the bytes of all texts. An image counts as `IMAGE_TOKENS` bytes, for a byte is at
    most one token.
    """
    total = 0
    for item in checkpoints:
        if isinstance(item, ToolObserved | AgentPrompted):
            total += len(item.text.encode("utf-8", "replace"))
        if isinstance(item, ToolObserved) and item.images:
            total += IMAGE_TOKENS * len(item.images)
    return total


def _is_unpaid(error: ModelError) -> bool:
    """Return whether the call cost nothing: it was refused or never sent. A broken stream may have
    been paid, and so may a 5xx or a 408, because a gateway may send them for a complete answer.
    """
    return isinstance(error, ModelBusy | ModelRejected | NeverSent)
