"""Estimates and upper bounds of the input tokens of a conversation, without a tokenizer.

`CallBuilder` (`call_builder.py`) counts the bytes of the next request. `NextTurn` and
`CallReservations` use its estimates for limits, clearings and reservations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from handoff_queue.shared.agent.conversation import Conversation
from handoff_queue.shared.agent.prices import HIDDEN_TOKENS
from handoff_queue.shared.agent.request_messages import build_user_message_block
from handoff_queue.shared.types.checkpoints import (
    AgentPrompted,
    Checkpoint,
    ContextCleared,
    ToolObserved,
    UserPrompted,
)

BYTES_PER_TOKEN = 3
"""Estimate of the input for the handoff's own token limit and for rate limits. English has
about 4 bytes a token, code and other scripts 2 to 3. The job's budget uses an upper bound
instead.
"""
IMAGE_TOKENS = 5_000
"""Most tokens of one image. Source: the vision page of the Messages API, which scales larger
images down.
"""

MIN_CLEARED_CHARS = 400
"""Characters of the shortest result that is cleared. The note in its place has about 60."""
NOTE_BYTES = 200
"""Most bytes of the note in place of a cleared result, with the source of the result."""
READ_RESULT_BYTES = 1_000
"""Most bytes of the definition of `read_result`, which requests have after a clearing."""
_MARGIN_TOKENS, _MARGIN_TOKENS_A_MESSAGE = 500, 50
"""Tokens for the structure of a request and of each message, which no byte of a text shows."""


def estimate_input_tokens(conversation: Conversation, rendered_bytes: Callable[[], int]) -> int:
    """Return the expected input tokens of the next call: the tokens of the last reply, and an
    estimate of all later messages. After a clearing it is an estimate of the whole request.

    Args:
        rendered_bytes: returns the bytes of the next request. It is called only if no reply has
            reported its tokens since the last clearing.
    """
    reported_tokens = _get_reported_tokens(conversation)
    if reported_tokens is None:
        return rendered_bytes() // BYTES_PER_TOKEN
    return reported_tokens + count_bytes(conversation.since_reply) // BYTES_PER_TOKEN


def estimate_max_input(conversation: Conversation, rendered_bytes: Callable[[], int]) -> int:
    """Return an upper bound of the input tokens of the next call.

    The bound is the reported input and output of the last reply, and one token for each later byte.
    It has a margin for the structure of the messages. Without a report, or after a clearing, it is
    the number of bytes of the request and `HIDDEN_TOKENS`. Tokenizers of current models work on
    bytes, or fall back to bytes, so no token is shorter than one byte. For English, bytes are about
    four times too many.

    Args:
        rendered_bytes: see `estimate_input_tokens`.
    """
    reported_tokens = _get_reported_tokens(conversation)
    if reported_tokens is None:
        return rendered_bytes() + HIDDEN_TOKENS
    margin = _MARGIN_TOKENS + _MARGIN_TOKENS_A_MESSAGE * len(conversation.messages)
    later_bytes = count_bytes(conversation.since_reply) + _count_bytes_shown_again(conversation)
    return reported_tokens + later_bytes + margin


def estimate_tokens(observed: ToolObserved) -> int:
    """Return the estimated tokens of a result."""
    size = len(observed.text.encode("utf-8", "replace")) // BYTES_PER_TOKEN
    return size + IMAGE_TOKENS * len(observed.images or ())


def count_bytes(checkpoints: Sequence[Checkpoint]) -> int:
    """Return the bytes of all prompts, messages of users and tool results. An image counts as
    `IMAGE_TOKENS` bytes, because the upper bound takes one token for each byte. So do the notes
    that replace results which the provider has cleared.
    """
    total = 0
    for checkpoint in checkpoints:
        if isinstance(checkpoint, ContextCleared):
            total += READ_RESULT_BYTES + NOTE_BYTES * len(checkpoint.tool_use_ids)
        if isinstance(checkpoint, UserPrompted):
            total += len(build_user_message_block(checkpoint)["text"].encode("utf-8", "replace"))
        if isinstance(checkpoint, ToolObserved | AgentPrompted):
            total += len(checkpoint.text.encode("utf-8", "replace"))
        if isinstance(checkpoint, ToolObserved) and checkpoint.images:
            total += IMAGE_TOKENS * len(checkpoint.images)
    return total


def _count_bytes_shown_again(conversation: Conversation) -> int:
    """Return the bytes of short results and errors after a clearing by the provider. It may have
    cleared them, too, and the next request shows them again.
    """
    if not any(isinstance(item, ContextCleared) for item in conversation.since_reply):
        return 0
    total = 0
    for observed in conversation.observed:
        if observed.is_error or len(observed.text) < MIN_CLEARED_CHARS:
            total += len(observed.text.encode("utf-8", "replace"))
    return total


def _get_reported_tokens(conversation: Conversation) -> int | None:
    """Return the tokens of the last reply and of its input. None: the server has not reported them,
    or results were cleared later.
    """
    reply = conversation.last_reply
    if reply is None or not reply.usage.input_tokens or conversation.is_just_cleared:
        return None
    return reply.usage.input_tokens + reply.usage.output_tokens
