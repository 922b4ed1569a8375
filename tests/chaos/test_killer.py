"""The seed determines the order of the faults, independent of their targets."""

from __future__ import annotations

from itertools import islice

from handoff_queue.chaos.killer import SHARES, draw_actions


def test_a_seed_has_one_order_of_faults_and_another_seed_has_another() -> None:
    def order(seed: int) -> list[tuple[str, float]]:
        return [(drawn.fault, drawn.pause_s) for drawn in islice(draw_actions(seed), 60)]

    assert order(7) == order(7)
    assert order(7) != order(8)
    assert {fault for fault, _ in order(7)} <= set(SHARES)


def test_random_choices_within_a_fault_do_not_change_later_faults() -> None:
    undisturbed, disturbed = draw_actions(7), draw_actions(7)

    for _ in range(60):
        expected, actual = next(undisturbed), next(disturbed)
        assert (expected.fault, expected.pause_s) == (actual.fault, actual.pause_s)
        for _ in range(40):  # A fault draws a number for each connection that it may cut.
            actual.dice.random()
