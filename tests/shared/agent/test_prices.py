from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.agent.prices import (
    CONTAINER_MICROUSD,
    WEB_SEARCH_MICROUSD,
    Prices,
    build_prices,
    count_request_bytes,
)
from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.shared.types.model import ModelCall, SystemPrompt
from handoff_queue.shared.types.usage import Usage

tokens = st.integers(0, 2_000_000)
PRICES = Prices()


def a_call(model: str = "claude-opus-5-5", system: str = "s", **rest: Any) -> ModelCall:
    return ModelCall(
        model=model, system=SystemPrompt(system), messages=(), max_output_tokens=1_000, **rest
    )


def test_a_known_model_has_its_price_in_micro_dollars() -> None:
    assert (
        PRICES.compute_microusd(
            Usage(input_tokens=1_000_000, output_tokens=1_000_000), "claude-opus-5-5"
        )
        == 24_000_000
    )


def test_a_fraction_is_rounded_up() -> None:
    assert PRICES.compute_microusd(Usage(input_tokens=1), "claude-haiku-5-5") == 1


def test_an_unknown_model_has_no_price() -> None:
    assert PRICES.compute_microusd(Usage(input_tokens=1), "llama-of-mine") is None


def test_an_unknown_model_can_have_the_price_of_another_model() -> None:
    assert (
        Prices(price_as="claude-opus-5-5").compute_microusd(
            Usage(input_tokens=1_000_000), "llama-of-mine"
        )
        == 4_000_000
    )


def test_the_offline_model_is_free() -> None:
    assert PRICES.compute_microusd(Usage(input_tokens=1), OFFLINE_MODEL) == 0
    assert build_prices(Settings(offline=True)).compute_worst_case(a_call(), 1_000).microusd == 0


def test_a_surcharge_is_added() -> None:
    assert (
        PRICES.add_cost(
            Usage(input_tokens=1_000_000, cost_microusd=10_000), "claude-opus-5-5"
        ).cost_microusd
        == 4_010_000
    )


@given(
    input_tokens=tokens,
    output_tokens=st.integers(0, 1_000),
    read=st.floats(0, 1),
    model=st.sampled_from(["claude-opus-5-5", "claude-haiku-5-5"]),
)
def test_the_worst_case_is_at_least_the_cost_of_a_call(
    input_tokens: int, output_tokens: int, read: float, model: str
) -> None:
    worst = PRICES.compute_worst_case(a_call(model), input_tokens)
    used = min(input_tokens, worst.input_tokens)
    cached = int(used * read)
    for parts in ({"cache_read_tokens": cached}, {"cache_write_tokens": cached}, {}):
        cost = PRICES.compute_microusd(
            Usage(input_tokens=used, output_tokens=output_tokens, **parts), model
        )
        assert cost is not None
        assert worst.microusd is not None
        assert cost <= worst.microusd


def test_tokens_that_the_cache_keeps_for_an_hour_cost_twice_the_input() -> None:
    million = {"input_tokens": 1_000_000, "cache_write_tokens": 1_000_000}
    for_5_minutes = PRICES.compute_microusd(Usage(**million), "claude-opus-5-5")
    half = PRICES.compute_microusd(
        Usage(**million, cache_write_1h_tokens=500_000), "claude-opus-5-5"
    )
    for_1_hour = PRICES.compute_microusd(
        Usage(**million, cache_write_1h_tokens=1_000_000), "claude-opus-5-5"
    )
    assert (for_5_minutes, half, for_1_hour) == (5_000_000, 6_500_000, 8_000_000)


@pytest.mark.parametrize(
    "call", [replace(a_call(), caches_for_1h=True), replace(a_call(), caches_prefix_for_1h=True)]
)
def test_the_worst_case_of_a_call_that_caches_for_an_hour_is_its_price(call: ModelCall) -> None:
    worst = PRICES.compute_worst_case(call, 1_000_000).microusd
    assert worst == 8_000_000 + 20_000


@pytest.mark.parametrize("caches_for_1h", [False, True])
def test_the_worst_case_of_a_call_in_a_batch_has_half_of_the_price_of_its_tokens(
    caches_for_1h: bool,
) -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    call = a_call(tools=(search,), caches_for_1h=caches_for_1h)
    live = PRICES.compute_worst_case(call, 1_000).microusd
    batched = PRICES.compute_worst_case(call, 1_000, is_batched=True).microusd
    searches = 2 * WEB_SEARCH_MICROUSD
    assert live is not None
    assert batched is not None
    assert abs(2 * (batched - searches) - (live - searches)) <= 1


def test_a_usage_has_the_money_that_the_cache_saved_and_cost() -> None:
    used = Usage(input_tokens=1_000_000, cache_read_tokens=600_000, cache_write_tokens=400_000)
    priced = PRICES.add_cost(used, "claude-opus-5-5")
    assert priced.cache_saved_microusd == 600_000 * 4 - 600_000 * 4 // 20
    assert priced.cache_surcharge_microusd == 400_000
    assert priced.cost_microusd == 4_000_000 - priced.cache_saved_microusd + 400_000
    assert PRICES.add_cost(used, "llama-of-mine").cache_saved_microusd == 0


def test_a_search_costs_the_same_in_a_batch_and_is_counted_apart() -> None:
    used = Usage(input_tokens=1_000_000, cost_microusd=30_000)
    live = PRICES.add_cost(used, "claude-opus-5-5")
    batched = PRICES.add_batch_cost(used, "claude-opus-5-5")

    assert (live.cost_microusd, live.server_tools_microusd) == (4_030_000, 30_000)
    assert (batched.cost_microusd, batched.server_tools_microusd) == (2_030_000, 30_000)
    assert PRICES.add_cost(used, "llama-of-mine").server_tools_microusd == 0


@given(st.text())
def test_no_token_is_less_than_a_byte(text: str) -> None:
    assert count_request_bytes(a_call(system=text)) >= len(text.encode("utf-8", "replace"))


def test_searches_by_the_server_are_part_of_the_worst_case() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    more, less = (
        PRICES.compute_worst_case(a_call(tools=(search,)), 1_000),
        PRICES.compute_worst_case(a_call(), 1_000),
    )
    assert more.input_tokens >= less.input_tokens + 60_000
    assert (more.microusd or 0) > (less.microusd or 0) + 20_000


def test_a_container_for_code_is_part_of_the_worst_case() -> None:
    code = {"type": "code_execution_20260521", "name": "code_execution"}
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    with_container = PRICES.compute_worst_case(a_call(tools=(code,)), 1_000).microusd
    without = PRICES.compute_worst_case(a_call(tools=(search,)), 1_000).microusd

    assert with_container is not None
    assert without is not None
    assert without - with_container == 5 * WEB_SEARCH_MICROUSD - CONTAINER_MICROUSD


def test_the_bytes_of_a_request_count_every_part() -> None:
    assert (
        count_request_bytes(a_call(tools=({"name": "x" * 100},)))
        > count_request_bytes(a_call()) + 100
    )
