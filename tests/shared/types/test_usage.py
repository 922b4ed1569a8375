"""People see dollars. The accounts hold integer micro-dollars."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.usage import Usage, format_dollars, to_microusd, to_usd


@given(st.integers(0, 10**12))
def test_a_limits_text_is_exact_to_the_last_micro_dollar(amount: int) -> None:
    assert to_microusd(to_usd(amount)) == amount


def test_less_than_a_micro_dollar_is_not_rounded_up() -> None:
    assert (to_microusd(2.01), to_microusd(0.000_001_9), to_microusd(1e-6), to_microusd(5e-7)) == (
        2_010_000,
        1,
        1,
        0,
    )


def test_people_see_an_amount_without_an_exponent() -> None:
    amounts = (0, 20, 500_000, 2_000_000, 1_234_567_890_000)

    assert list(map(format_dollars, amounts)) == ["$0", "$0.00002", "$0.5", "$2", "$1234567.89"]


def test_unknown_stays_unknown() -> None:
    assert (to_microusd(None), to_usd(None)) == (None, None)


def test_the_sum_of_two_usages_has_the_sum_of_each_figure() -> None:
    names = list(Usage.model_fields)
    first = Usage(**{name: place for place, name in enumerate(names)})
    second = Usage(**dict.fromkeys(names, 1_000))

    assert {name: getattr(first + second, name) for name in names} == {
        name: 1_000 + place for place, name in enumerate(names)
    }
