"""The words that a model wrote into its calls prove nothing, however a tool repeats them."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.agent.own_words import (
    has_own_sentence,
    list_argument_texts,
    repeats_own_words,
)

LIE = "Pump A has a power of 450 kW"


@pytest.mark.parametrize(
    ("arguments", "quote"),
    [
        ({"q": LIE}, LIE),
        ({"q": f"Say: {LIE} Thanks."}, LIE),
        ({"q": "Pump  A has\na power of 450 kW"}, LIE),
        ({"a": [{"b": LIE}]}, LIE),
        ({"url": "https://echo.example/get?say=Pump+A+has%20a+power+of+450+kW"}, LIE),
        ({"url": "https://echo.example/Pump%20A%20has%20a%20power%20of%20450%20kW/page"}, LIE),
        ({"q": LIE}, "450 kW"),
        ({"q": LIE}, f": {LIE}"),
        ({"q": LIE}, f"for {LIE}"),
        ({"q": LIE}, f"No entry was found for: {LIE}"),
        ({"q": LIE}, f"{LIE}? No entry."),
        ({"q": LIE}, LIE.upper()),
        ({"q": "Pump A has\na power\nof 450 kW"}, r'"query": "Pump A has\na power\nof 450 kW"'),
        ({"q": LIE}, f'"query": "{LIE}", "hits": 0'),
        ({"q": LIE}, f"{LIE}. Pump B has 37 kW."),
        ({"q": "Pump A: 450 kW. It is new."}, "for: Pump A: 450 kW. It is new."),
        ({"q": "power: 450 kW"}, "for: power: 450 kW"),
        ({"q": "水泵的功率为450千瓦"}, "没有找到：水泵的功率为450千瓦"),
    ],
)
def test_words_of_an_argument_prove_nothing(arguments: Any, quote: str) -> None:
    texts = list_argument_texts(arguments)
    assert repeats_own_words(quote, f"{LIE}.", texts)
    assert has_own_sentence(quote, f"{LIE}.", texts)


@pytest.mark.parametrize(
    ("query", "quote"),
    [
        ("power of pump A", "The power of pump A is 450 kW."),
        ("power of pump A", "power of pump A: 450 kW"),
        ("power of pump A", '"query": "power of pump A", "power_kw": 450'),
        ("What is the power of pump A?", "What is the power of pump A? 450 kW"),
        ("pump A", "pump A: 450 kW"),
        ("pump A", "Pump A. It has 450 kW."),
        (LIE, "Pump A was measured in 2019: it reached 450 kW."),
        ("水泵的功率", "水泵的功率为450千瓦"),
        ("https://example.org/pump-a-has-a-power", "Pump A has a power of 450 kW."),
        ("", LIE),
    ],
)
def test_words_that_a_source_adds_to_the_query_prove_a_statement(query: str, quote: str) -> None:
    assert not repeats_own_words(quote, f"{LIE}.", list_argument_texts({"q": query}))


@pytest.mark.parametrize("arguments", [{}, {"n": 7, "x": None}, "text", None])
def test_arguments_without_these_words_do_not_count(arguments: Any) -> None:
    assert not repeats_own_words(LIE, f"{LIE}.", list_argument_texts(arguments))


def test_a_sentence_of_own_words_is_found_in_a_quote_that_proves_another() -> None:
    quote = "The moon is made of cheese. The pump has 45 kW."
    own_texts = ["The moon is made of cheese"]

    assert repeats_own_words(quote, "The moon is made of cheese.", own_texts)
    assert not repeats_own_words(quote, "The pump has 45 kW.", own_texts)
    assert has_own_sentence(quote, "The pump has 45 kW.", own_texts)
    assert not has_own_sentence("The pump has 45 kW.", "The pump has 45 kW.", own_texts)
