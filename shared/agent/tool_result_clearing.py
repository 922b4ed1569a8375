"""Results of tools that requests no longer show: which results are cleared when the context is
large, and how the model reads one again.

A clearing changes the beginning of the next request, so the provider must read the whole request
again. Therefore many results are cleared at once, and seldom. The checkpoint `ContextCleared`
names them, so a resumed handoff sends the same request.

The provider may clear results itself, if the file of the specialist asks for it. The provider
reports how many results it has cleared. It clears the oldest first, so the loop knows which ones,
and stores them as a checkpoint with the reply. Later requests show the loop's notes in their place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.agent.conversation import Conversation, find_calls
from handoff_queue.shared.agent.opening_message import READ_RESULT, cut_part, read_result_schema
from handoff_queue.shared.agent.prices import USUAL_WINDOW
from handoff_queue.shared.agent.token_estimates import MIN_CLEARED_CHARS, estimate_tokens
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_calls import observe_result
from handoff_queue.shared.types.checkpoints import ContextCleared, ToolObserved
from handoff_queue.shared.types.context_edits import ContextEdit
from handoff_queue.shared.types.errors import ModelError, ModelRejected
from handoff_queue.shared.types.model import Block, ModelCall, ModelReply, ProviderClearing
from handoff_queue.shared.types.specialist import ContextRules

MAX_USUAL_CLEARING = 80_000
"""Input tokens from which on results are cleared if the file of the specialist has no rule. A
handoff has 100,000 tokens for each of its turns (`lifecycle/handoffs.py`), also with a window of
1,000,000 tokens.
"""
MIN_FREED = 8
"""A clearing frees at least the limit divided by this number. Otherwise each turn would clear a
little, and nothing would be read from the provider's cache.
"""
READ_CLEARED: dict[str, Any] = {
    "name": READ_RESULT,
    "description": "Shows a cleared result again, or reads on in the result of a step.",
    "input_schema": read_result_schema({"type": "string", "description": "its name, or the step"}),
}
"""Definition of `read_result` after a clearing."""
_TOO_LONG = re.compile(
    r"too (long|large)|context[ _-]?(window|length|size)|maximum context|too many tokens"
)


@dataclass(frozen=True, slots=True)
class ClearingRules:
    """When results are cleared, and how many stay."""

    at_tokens: int
    """Input tokens of a request from which on results are cleared."""
    keep: int
    """Newest results that stay, if they fit."""


def build_clearing_rules(context: ContextRules | None, longest_prompt: int) -> ClearingRules:
    """Return the rules of an agent.

    Args:
        context: rules of the specialist's file, if any.
        longest_prompt: see `Prices.get_longest_prompt`.
    """
    rules = context or ContextRules()
    usual = min(longest_prompt * 4 // 5, MAX_USUAL_CLEARING, rules.compact_at or longest_prompt)
    return ClearingRules(rules.clear_tools_at or usual, rules.keep)


USUAL_CLEARING = build_clearing_rules(None, USUAL_WINDOW)
"""Rules for a model whose context window is not known."""


def choose_results_to_clear(
    conversation: Conversation, expected_tokens: int, rules: ClearingRules
) -> ContextCleared | None:
    """Return the results to clear before the next call. None: the request is small enough, or
    a clearing would free too little.

    All results that the model has seen are cleared, except the newest ones. More are cleared
    only if the request would still be too long: the oldest first, and results that the model
    has not seen last. The newest result stays.

    Args:
        expected_tokens: expected input of the next call.
    """
    if expected_tokens < rules.at_tokens:
        return None
    unseen_ids = set[str]()
    for checkpoint in conversation.since_reply:
        if isinstance(checkpoint, ToolObserved):
            unseen_ids.add(checkpoint.tool_use_id)
    old: list[ToolObserved] = []
    new: list[ToolObserved] = []
    for observed in list_clearable_results(conversation):
        if observed.tool_use_id in unseen_ids:
            new.append(observed)
        else:
            old.append(observed)
    surplus = max(0, len(old) + len(new) - rules.keep)
    cleared_results = old[:surplus]
    freed_tokens = sum(map(estimate_tokens, cleared_results))
    for observed in [*old[surplus:], *new][:-1]:
        if expected_tokens - freed_tokens < rules.at_tokens:
            break
        cleared_results.append(observed)
        freed_tokens += estimate_tokens(observed)
    if freed_tokens < max(1, rules.at_tokens // MIN_FREED):
        return None
    return ContextCleared(
        tool_use_ids=tuple(item.tool_use_id for item in cleared_results), tokens=freed_tokens
    )


def list_clearable_results(conversation: Conversation) -> list[ToolObserved]:
    """Return the results that requests show and that are long enough, oldest first."""
    cleared_ids = conversation.cleared
    results: list[ToolObserved] = []
    for observed in conversation.observed:
        is_long = len(observed.text) >= MIN_CLEARED_CHARS or observed.images
        if is_long and not observed.is_error and observed.tool_use_id not in cleared_ids:
            results.append(observed)
    return results


def is_too_long(error: ModelError) -> bool:
    """Return whether a server has refused a request because of its length."""
    is_refused = isinstance(error, ModelRejected) and error.status in (400, 413, None)
    return is_refused and bool(_TOO_LONG.search(str(error).lower()))


def find_cleared_result(
    conversation: Conversation, call: Block, tool: Tool | None
) -> ToolObserved | None:
    """Return the result of a call that needs no tool: `read_result` for a cleared result, or a
    look-up whose result was cleared. None: the call must run.

    Args:
        tool: the called tool; None: the agent has no such tool.
    """
    cleared_ids = conversation.cleared
    if not cleared_ids:
        return None
    if call.get("name") == READ_RESULT:
        return _read_again(conversation, call, reads_steps=tool is not None)
    if tool is not None and tool.is_lookup:
        for earlier in conversation.find_results_of_equal_calls(call):
            if earlier.tool_use_id in cleared_ids:
                return earlier.model_copy(update={"tool_use_id": call["id"]})
    return None


def _read_again(
    conversation: Conversation, call: Block, *, reads_steps: bool
) -> ToolObserved | None:
    """Return the part of a cleared result that a call of `read_result` asks for.

    Args:
        reads_steps: True if the name may be a step. Then the result is None for a name that no
            result has.
    """
    arguments = call.get("input")
    if not isinstance(arguments, dict):
        arguments = {}
    wanted_name = str(arguments.get("result", "")).strip()
    offset = arguments.get("offset")
    names = conversation.call_names
    for observed in conversation.observed:
        if names.get(observed.tool_use_id) == wanted_name:
            return _cut_part(observed, call, offset)
    if reads_steps:
        return None
    return observe_result(call, f"no result has the name {wanted_name[:60]!r}", is_error=True)


def _cut_part(observed: ToolObserved, call: Block, offset: object) -> ToolObserved:
    """Return the part of a result from an offset on, as the result of a call."""
    last_offset = max(0, len(observed.text) - 1)
    if not isinstance(offset, int) or not 0 <= offset <= last_offset:
        return observe_result(call, f"offset must be from 0 to {last_offset}", is_error=True)
    text = cut_part(observed.text, offset)
    if observed.source:
        text = f"[source: {observed.source}]\n{text}"
    fields = {"origins": observed.origins, "images": observed.images}
    return observe_result(call, text).model_copy(update=fields)


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """What the provider may do to the requests of a handoff."""

    edits_of: Callable[[str], Collection[ContextEdit]]
    """Returns the edits that the provider offers for a model now."""
    longest_prompt: int
    """See `Prices.get_longest_prompt`. The loop clears results itself if a request could be
    longer.
    """

    def clears(self, models: Iterable[str]) -> bool:
        """Return whether the provider clears results for each of these models."""
        return all(ContextEdit.CLEARING in self.edits_of(model) for model in models)


def choose_provider_clearing(conversation: Conversation, rules: ClearingRules) -> ProviderClearing:
    """Return when the provider clears results from the next request. Results that the model has
    not seen stay, and so does the newest one.
    """
    unseen_results = sum(isinstance(item, ToolObserved) for item in conversation.since_reply)
    return ProviderClearing(
        at_tokens=rules.at_tokens,
        keep=max(1, rules.keep, unseen_results),
        at_least=max(1, rules.at_tokens // MIN_FREED),
    )


def find_results_cleared_by_provider(
    conversation: Conversation, call: ModelCall, reply: ModelReply
) -> ContextCleared | None:
    """Return the results that the provider has cleared from a request, or None. Short results and
    errors are left out: later requests show them again.

    Args:
        conversation: the conversation before the reply.
    """
    if not reply.cleared_calls or call.clearing is None:
        return None
    ids: list[str] = []
    for visible_reply in conversation.shown_replies:
        ids += [str(block["id"]) for block in find_calls(visible_reply)]
    most = max(0, len(ids) - call.clearing.keep)
    oldest = set(ids[: min(reply.cleared_calls, most)])
    cleared_ids: list[str] = []
    for observed in list_clearable_results(conversation):
        if observed.tool_use_id in oldest:
            cleared_ids.append(observed.tool_use_id)
    if not cleared_ids:
        return None
    return ContextCleared(
        tool_use_ids=tuple(cleared_ids), tokens=reply.cleared_tokens, by_provider=True
    )
