"""Prices of model calls by the package genai-prices. A price is in whole micro-dollars,
rounded up, or None if it is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import to_json

from handoff_queue.shared.settings.optional_packages import describe_missing_package
from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.model import ModelCall
from handoff_queue.shared.types.origins import CODE_EXECUTION
from handoff_queue.shared.types.usage import MICROUSD, Usage

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

HIDDEN_TOKENS = 2_000
"""Most hidden tokens that a provider adds to a request, with a margin. They are its tool-use
preamble (documented as less than 700 tokens) and its instructions for structured outputs.
"""
SERVER_TOOL_TOKENS = 30_000
"""Most input tokens that one use of a server-side tool adds to a call: a page of search results."""
WEB_SEARCH_MICROUSD = 10_000
"""Anthropic's price of one server-side search: 10 USD a thousand."""
CONTAINER_MICROUSD = 4_167
"""Anthropic's price of a container for code: 0.05 USD an hour, at least five minutes. Each reply
that ran code counts as five minutes, because no reply reports the time. The free hours of an
organisation are not subtracted.
"""
USUAL_WINDOW = 200_000
"""Context window in tokens of a model that genai-prices does not know."""
BATCH_SHARE = Decimal("0.5")
"""Price of all tokens of a batch, as a share of the price of a live call. Server-side searches
have the full price. Source: Anthropic's pricing of the Message Batches API, 2026-10-14.
"""
_DEFAULT_SERVER_TOOL_USES = 5
"""Uses in one call of a server-side tool whose definition has no `max_uses`."""
PROVIDERS = {
    "anthropic": "anthropic",
    "bedrock": "aws",
    "vertex": "google",
    "foundry": "anthropic",
}
"""Names of our providers -> names of the providers in genai-prices."""


@dataclass(frozen=True, slots=True)
class PromptLimits:
    """Input tokens of the longest requests to a model."""

    window: int | None = None
    """The context window; None: unknown."""
    price_step: int | None = None
    """The limit above which each request has a higher price; None: there is none, or unknown."""


class Tokens(NamedTuple):
    """The tokens of a call, by which its price depends on the cache."""

    input: int
    """Input tokens, including cached ones."""
    output: int
    cache_read: int = 0
    """Input tokens that were read from the cache."""
    cache_write: int = 0
    """Input tokens that were written to the cache."""
    cache_write_1h: int = 0
    """The part of `cache_write` that the cache keeps for an hour."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The price list of one deployment."""

    provider: str = "anthropic"
    """Name of the provider in genai-prices."""
    price_as: str | None = None
    """Model whose price applies to model names that genai-prices does not know."""
    is_free: bool = False
    """True for the offline model, which has no price under any name."""

    def compute_microusd(self, usage: Usage, model: str) -> int | None:
        """Return the price of the tokens, rounded up, or None if it is unknown."""
        tokens = Tokens(
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.cache_write_1h_tokens,
        )
        return self._compute_token_price(model, tokens)

    def has_price(self, model: str) -> bool:
        """Return whether the price of a model is known."""
        return self.compute_microusd(Usage(input_tokens=1, output_tokens=1), model) is not None

    def add_cost(self, usage: Usage, model: str) -> Usage:
        """Return the reported usage with its whole cost: the price of the tokens plus the
        reported cost, which covers server-side tools. The cost is None if a part is
        unknown. If the price is known, it also has what the cache saved and cost.
        """
        tokens = self.compute_microusd(usage, model)
        if tokens is None or usage.cost_microusd is None:
            cost = None
        else:
            cost = tokens + usage.cost_microusd
        if self.is_free:
            cost = 0
        changes = self._compute_cache_effect(usage, model, tokens)
        if cost and usage.cost_microusd:
            changes["server_tools_microusd"] = usage.cost_microusd
        if usage.cost_microusd == cost and not changes:
            return usage
        return usage.model_copy(update={"cost_microusd": cost, **changes})

    def add_batch_cost(self, usage: Usage, model: str) -> Usage:
        """Return the reported usage of a reply from a batch with its whole cost.
        It also has what the batch saved.
        """
        live = self.add_cost(usage, model)
        changes: dict[str, int] = {"batch_calls": 1}
        if live.cost_microusd and usage.cost_microusd is not None:
            saved_microusd = int((live.cost_microusd - usage.cost_microusd) * (1 - BATCH_SHARE))
            changes["batch_saved_microusd"] = saved_microusd
            changes["cost_microusd"] = live.cost_microusd - saved_microusd
            for name in ("cache_saved_microusd", "cache_surcharge_microusd"):
                changes[name] = int(getattr(live, name) * BATCH_SHARE)
        return live.model_copy(update=changes)

    def _compute_cache_effect(self, usage: Usage, model: str, cost: int | None) -> dict[str, int]:
        """Return the money that the cache saved and cost, as fields of a `Usage`.

        Args:
            cost: price of the tokens; None: unknown.
        """
        if not cost or not (usage.cache_read_tokens or usage.cache_write_tokens):
            return {}
        uncached = Tokens(usage.input_tokens, usage.output_tokens)
        only_read = uncached._replace(cache_read=usage.cache_read_tokens)
        uncached_microusd = self._compute_token_price(model, uncached)
        only_read_microusd = self._compute_token_price(model, only_read)
        if uncached_microusd is None or only_read_microusd is None:
            return {}
        return {
            "cache_saved_microusd": max(0, uncached_microusd - only_read_microusd),
            "cache_surcharge_microusd": max(0, cost - only_read_microusd),
        }

    def compute_worst_case(
        self, call: ModelCall, input_tokens: int, *, is_batched: bool = False
    ) -> WorstCase:
        """Return the upper bound of a call. Its price is the higher one of two cases: the
        provider writes nothing to its cache, or the whole input.

        Args:
            input_tokens: upper bound of the input without server-side tools.
            is_batched: True if the call goes into a batch, where only its tokens are cheaper.
        """
        uses = count_server_tool_uses(call)
        max_input = input_tokens + uses * SERVER_TOOL_TOKENS
        max_output = call.max_output_tokens
        uncached = Tokens(max_input, max_output)
        for_1h = max_input if call.caches_for_1h or call.caches_prefix_for_1h else 0
        cached = uncached._replace(cache_write=max_input, cache_write_1h=for_1h)
        uncached_microusd = self._compute_token_price(call.model, uncached)
        cached_microusd = self._compute_token_price(call.model, cached)
        if uncached_microusd is None or cached_microusd is None:
            return WorstCase(max_input, max_output, None, call.model, is_batched)
        surcharge = sum(map(_compute_surcharge, call.tools))
        if self.is_free:
            surcharge = 0
        tokens_microusd = max(uncached_microusd, cached_microusd)
        if is_batched:
            tokens_microusd -= int(tokens_microusd * (1 - BATCH_SHARE))
        most_microusd = tokens_microusd + surcharge
        return WorstCase(max_input, max_output, most_microusd, call.model, is_batched)

    def get_longest_prompt(self, model: str) -> int:
        """Return the input tokens of the longest request that the model reads at its base price.
        This is its context window, or the limit above which its price is higher.
        """
        limits = self.get_prompt_limits(model)
        known = [limit for limit in (limits.window, limits.price_step) if limit]
        return min(known, default=USUAL_WINDOW)

    def get_prompt_limits(self, model: str) -> PromptLimits:
        """Return the limits of the requests to a model, as far as genai-prices knows them.

        Raises:
            UserError: the package with the prices is not installed.
        """
        if self.is_free or model == OFFLINE_MODEL:
            return PromptLimits()
        limits = _find_prompt_limits(model, self.provider)
        if limits == PromptLimits() and self.price_as:
            return _find_prompt_limits(self.price_as, self.provider)
        return limits

    def _compute_token_price(self, model: str, tokens: Tokens) -> int | None:
        """Return the price in micro-dollars, or None if it is unknown."""
        if self.is_free or model == OFFLINE_MODEL:
            return 0
        cost = _compute_cost(model, self.provider, tokens)
        if cost is None and self.price_as:
            return _compute_cost(self.price_as, self.provider, tokens)
        return cost


def build_prices(settings: Settings) -> Prices:
    return Prices(PROVIDERS[settings.model_provider], settings.price_as, settings.is_offline)


def count_request_bytes(call: ModelCall) -> int:
    """Return the UTF-8 bytes of all input of a call."""
    return len(encode_json((call.system.text, call.messages, call.tools, call.output_schema)))


def encode_json(parts: tuple[Any, ...]) -> bytes:
    """Return parts of a request as JSON in UTF-8. A lone surrogate becomes `?`."""
    try:
        return to_json(parts, fallback=str)
    except ValueError:  # a lone surrogate
        return json.dumps(parts, ensure_ascii=False, default=str).encode("utf-8", "replace")


def count_server_tool_uses(call: ModelCall) -> int:
    """Return how often a call may use server-side tools. Each use adds input of unknown size."""
    total = 0
    for tool in call.tools:
        if "input_schema" not in tool:
            total += _get_max_uses(tool)
    return total


def _compute_surcharge(tool: Mapping[str, Any]) -> int:
    """Return the most micro-dollars that a server-side tool costs in one call besides tokens."""
    if "input_schema" in tool:
        return 0
    if tool.get("name") == CODE_EXECUTION:
        return CONTAINER_MICROUSD
    return _get_max_uses(tool) * WEB_SEARCH_MICROUSD


def _get_max_uses(tool: Mapping[str, Any]) -> int:
    uses = tool.get("max_uses")
    if isinstance(uses, int):
        return uses
    return _DEFAULT_SERVER_TOOL_USES


@lru_cache(maxsize=1024)
def _compute_cost(model: str, provider: str, tokens: Tokens) -> int | None:
    """Return the price in micro-dollars, or None if genai-prices does not know the model.

    Raises:
        UserError: the package with the prices is not installed.
    """
    price = _compute_price(
        model,
        provider,
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
        cache_write_1h_tokens=tokens.cache_write_1h,
    )
    if price is None:
        return None
    return int((Decimal(price.total_price) * MICROUSD).to_integral_value(ROUND_CEILING))


@lru_cache(maxsize=64)
def _find_prompt_limits(model: str, provider: str) -> PromptLimits:
    """Return the limits that genai-prices knows.

    Raises:
        UserError: the package with the prices is not installed.
    """
    price = _compute_price(model, provider, input_tokens=1)
    if price is None:
        return PromptLimits()
    steps = [tier.start for tier in getattr(price.model_price.input_mtok, "tiers", ())]
    return PromptLimits(price.model.context_window or None, min(steps, default=None))


def _compute_price(model: str, provider: str, **tokens: int) -> PriceCalculation | None:
    """Return the price of these tokens, or None if genai-prices does not know the model.

    Args:
        tokens: fields of the usage of genai-prices.

    Raises:
        UserError: the package with the prices is not installed.
    """
    # Imported here: the package imports an HTTP client, and most clients ask for no price.
    try:
        from genai_prices import Usage as PricedUsage
        from genai_prices import calc_price
    except ModuleNotFoundError:
        raise UserError(
            describe_missing_package("genai-prices", "a limit in money", "prices")
        ) from None
    try:
        return calc_price(PricedUsage(**tokens), model, provider_id=provider)
    except (LookupError, ValueError):
        return None
