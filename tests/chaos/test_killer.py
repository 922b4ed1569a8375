"""The seed fixes the order of the faults, independent of their targets."""

from __future__ import annotations

from itertools import islice

from handoff_queue.chaos.killer import SHARES, order_of


def test_a_seed_has_one_order_of_faults_and_another_seed_has_another() -> None:
    def order(seed: int) -> list[tuple[str, float]]:
        return [(one.fault, one.pause_s) for one in islice(order_of(seed), 60)]

    assert order(7) == order(7)
    assert order(7) != order(8)
    assert {fault for fault, _ in order(7)} <= set(SHARES)


def test_the_chance_within_a_fault_does_not_influence_later_faults() -> None:
    calm, busy = order_of(7), order_of(7)

    for _ in range(60):
        one, other = next(calm), next(busy)
        assert (one.fault, one.pause_s) == (other.fault, other.pause_s)
        for _ in range(40):  # A fault draws a number for each connection that it may cut.
            other.dice.random()
