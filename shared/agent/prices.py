"""Prices of model calls by the package genai-prices. A price is in whole micro-dollars,
rounded up, or None if it is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

from pydantic_core import to_json

from handoff_queue.shared.settings.optional_packages import missing
from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.model import ModelCall
from handoff_queue.shared.types.usage import MICROUSD, Usage

HIDDEN_TOKENS = 2_000
"""Most hidden tokens that a provider adds to a request: its tool-use preamble (documented as
less than 700 tokens) and its instructions for structured outputs, with a margin.
"""
SERVER_TOOL_TOKENS = 30_000
"""Most input tokens that one use of a server-side tool adds to a call: a page of search results."""
WEB_SEARCH_MICROUSD = 10_000
"""Anthropic's price of one server-side search: 10 USD a thousand."""
_DEFAULT_SERVER_TOOL_USES = 5
_PROVIDERS = {
    "anthropic": "anthropic",
    "bedrock": "aws",
    "vertex": "google",
    "foundry": "anthropic",
}


@dataclass(frozen=True, slots=True)
class Prices:
    """The price list of one deployment."""

    provider: str = "anthropic"
    """Name of the provider in genai-prices."""
    price_as: str | None = None
    """Model whose price applies to model names that genai-prices does not know."""
    is_free: bool = False
    """True for the offline model, which has no price under any name."""

    def cost_microusd(self, usage: Usage, model: str) -> int | None:
        """Return the price of the tokens, rounded up, or None if it is unknown."""
        return self._of_tokens(
            model,
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
        )

    def priced(self, usage: Usage, model: str) -> Usage:
        """Return the reported usage with its whole cost: the price of the tokens plus the
        reported cost, which covers server-side searches. The cost is None if a part is
        unknown.
        """
        tokens = self.cost_microusd(usage, model)
        if tokens is None or usage.cost_microusd is None:
            cost = None
        else:
            cost = tokens + usage.cost_microusd
        if self.is_free:
            cost = 0
        if usage.cost_microusd == cost:
            return usage
        return usage.model_copy(update={"cost_microusd": cost})

    def worst(self, call: ModelCall, input_tokens: int) -> WorstCase:
        """Return the upper bound of a call. Its price is the higher one of two cases: the
        provider writes nothing to its cache, or the whole input.

        Args:
            input_tokens: upper bound of the input without server-side tools.
        """
        uses = server_tool_uses(call)
        most_input = input_tokens + uses * SERVER_TOOL_TOKENS
        most_output = call.max_output_tokens
        uncached = self._of_tokens(call.model, most_input, most_output, 0, 0)
        cached = self._of_tokens(call.model, most_input, most_output, 0, most_input)
        if uncached is None or cached is None:
            return WorstCase(most_input, most_output, None, call.model)
        surcharge = uses * WEB_SEARCH_MICROUSD
        if self.is_free:
            surcharge = 0
        most_microusd = max(uncached, cached) + surcharge
        return WorstCase(most_input, most_output, most_microusd, call.model)

    def _of_tokens(self, model: str, *tokens: int) -> int | None:
        if self.is_free or model == OFFLINE_MODEL:
            return 0
        cost = _cost(model, self.provider, *tokens)
        if cost is None and self.price_as:
            return _cost(self.price_as, self.provider, *tokens)
        return cost


def prices_from(settings: Settings) -> Prices:
    return Prices(_PROVIDERS[settings.model_provider], settings.price_as, settings.is_offline)


def request_bytes(call: ModelCall) -> int:
    """Return the UTF-8 bytes of all input of a call."""
    parts: tuple[Any, ...] = (call.system, call.messages, call.tools, call.output_schema)
    try:
        return len(to_json(parts, fallback=str))
    except ValueError:  # a lone surrogate
        return len(json.dumps(parts, ensure_ascii=False, default=str).encode("utf-8", "replace"))


def server_tool_uses(call: ModelCall) -> int:
    """Return how often a call may use server-side tools. Each use adds input of unknown size."""
    total = 0
    for tool in call.tools:
        if "input_schema" not in tool:
            total += _uses(tool)
    return total


def _uses(tool: Mapping[str, Any]) -> int:
    uses = tool.get("max_uses")
    if isinstance(uses, int):
        return uses
    return _DEFAULT_SERVER_TOOL_USES


@lru_cache(maxsize=1024)
def _cost(
    model: str, provider: str, into: int, out: int, cache_read: int, cache_write: int
) -> int | None:
    """Return the price in micro-dollars, or None if genai-prices does not know the model.

    Args:
        into: input tokens, including cached ones.
        out: output tokens.
        cache_read: input tokens that were read from the cache.
        cache_write: input tokens that were written to the cache.

    Raises:
        UserError: the package with the prices is not installed.
    """
    # Imported here: the package imports an HTTP client, and most clients ask for no price.
    try:
        from genai_prices import Usage as PricedUsage
        from genai_prices import calc_price
    except ModuleNotFoundError:
        raise UserError(missing("genai-prices", "a limit in money", "prices")) from None

    used = PricedUsage(
        input_tokens=into,
        output_tokens=out,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
    )
    try:
        price = calc_price(used, model, provider_id=provider)
    except (LookupError, ValueError):
        return None
    return int((Decimal(price.total_price) * MICROUSD).to_integral_value(ROUND_CEILING))
