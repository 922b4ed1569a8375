"""The usage of a model call: as the server reports it, or its upper bound. Unknown usage never
counts as zero. Pure.
"""

from __future__ import annotations

from handoff_queue.shared.agent.prices import SERVER_TOOL_TOKENS, Prices, count_server_tool_uses
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import (
    ModelBusy,
    ModelError,
    ModelRejected,
    NeverSent,
    ServerFailed,
)
from handoff_queue.shared.types.model import CallProgress, ModelCall, ModelReply
from handoff_queue.shared.types.usage import NOTHING_USED, Usage


def is_reported(reply: ModelReply) -> bool:
    """Return whether the server has reported the usage of a reply."""
    return reply.usage.input_tokens > 0 and (reply.usage.output_tokens > 0 or not reply.content)


def compute_reply_usage(
    reply: ModelReply, call: ModelCall, worst: WorstCase, prices: Prices
) -> Usage:
    """Return the usage of a reply as the server reports it, with its cost. Without a report,
    return the upper bound.
    """
    if is_reported(reply):
        return prices.add_cost(reply.usage, call.model)
    return _compute_upper_bound(reply.usage, call, worst, prices)


def compute_cut_call_usage(
    progress: CallProgress, call: ModelCall, worst: WorstCase, prices: Prices
) -> Usage:
    """Return the usage of a call without a reply: the server's final report, or the upper bound.

    The length of the arrived text is not a bound: a token may be less than a character, and
    thinking may be hidden.

    Args:
        progress: the last progress of the call.
    """
    if progress.is_usage_final:
        return prices.add_cost(progress.usage, call.model)
    return _compute_upper_bound(progress.usage, call, worst, prices)


def compute_failed_call_usage(
    error: ModelError, progress: CallProgress, call: ModelCall, worst: WorstCase, prices: Prices
) -> Usage:
    """Return the usage of a call that ended with an error.

    A call that was refused or never sent costs nothing. A call whose failure the Messages API
    itself reports in place of a reply costs nothing, too. A broken stream, another 5xx or a 408 may
    cost money: a gateway may send these for a complete answer. If a stream breaks off with an
    overload, the part that has arrived is paid.
    """
    has_begun = progress.usage.total_tokens > 0
    is_unpaid = isinstance(error, ModelBusy | ModelRejected | NeverSent | ServerFailed)
    if is_unpaid and not has_begun:
        return NOTHING_USED
    return compute_cut_call_usage(progress, call, worst, prices)


def _compute_upper_bound(
    reported_usage: Usage, call: ModelCall, worst: WorstCase, prices: Prices
) -> Usage:
    """Return the upper bound of the usage. The input is the reported one, unless it was not
    reported or the server's own tools may have added to it.

    The price belongs to the model of the call. `worst` may have the price of a dearer model.
    """
    uses = count_server_tool_uses(call)
    if reported_usage.input_tokens == 0 or uses:
        highest_cost = prices.compute_worst_case(
            call, worst.input_tokens - uses * SERVER_TOOL_TOKENS
        )
        upper_bound = Usage(
            input_tokens=worst.input_tokens,
            output_tokens=worst.output_tokens,
            cost_microusd=highest_cost.microusd,
        )
        return upper_bound.as_cut_call()
    upper_bound = reported_usage.model_copy(
        update={"output_tokens": max(worst.output_tokens, reported_usage.output_tokens)}
    )
    return prices.add_cost(upper_bound, call.model).as_cut_call()
