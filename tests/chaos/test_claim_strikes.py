"""A handoff may be given up only if each of its last three claims was struck by its own fault."""

from __future__ import annotations

from handoff_queue.chaos.faults import EVERYBODY, Fault, Strike
from handoff_queue.chaos.unwanted_calls import SeenClaim, count_strikes

CLAIMS = (
    SeenClaim("worker1", 1, 10.0),
    SeenClaim("worker2", 2, 14.0),
    SeenClaim("worker3", 3, 18.0),
    SeenClaim("worker1", 4, 22.0),
)
FINISHED_AT = 22.1


def kill(process: str, at: float) -> Strike:
    return Strike(Fault.KILL_WORKER, process, at)


KILLS = (kill("worker1", 10.2), kill("worker2", 14.2), kill("worker3", 18.2))


def test_three_claims_with_a_strike_each_count_as_three() -> None:
    assert count_strikes(CLAIMS, KILLS, FINISHED_AT) == 3


def test_a_strike_counts_although_its_claim_was_first_seen_later() -> None:
    assert (
        count_strikes(
            CLAIMS,
            (kill("worker1", 9.9), kill("worker2", 13.9), kill("worker3", 17.9)),
            FINISHED_AT,
        )
        == 3
    )


def test_a_claim_without_a_strike_does_not_count() -> None:
    assert count_strikes(CLAIMS, KILLS[:2], FINISHED_AT) == 2
    assert count_strikes(CLAIMS, (*KILLS[:2], kill("worker4", 18.2)), FINISHED_AT) == 2, (
        "the strike hit another process"
    )
    assert count_strikes(CLAIMS, (*KILLS[:2], kill("worker3", 10.2)), FINISHED_AT) == 2, (
        "the strike came before the claim"
    )
    assert (
        count_strikes(CLAIMS, (*KILLS[:2], Strike(Fault.TWICE, EVERYBODY, 18.2)), FINISHED_AT) == 2
    ), "a duplicate message stops no process"
    assert count_strikes(CLAIMS, (), FINISHED_AT) == 0


def test_one_strike_counts_for_one_claim_only() -> None:
    claims = (
        SeenClaim("worker1", 1, 10.0),
        SeenClaim("worker1", 2, 10.4),
        SeenClaim("worker1", 3, 10.8),
    )

    assert count_strikes(claims, (Strike(Fault.KILL_REDIS, EVERYBODY, 10.5),), FINISHED_AT) == 1


def test_a_claim_that_was_released_does_not_count_as_one_of_three() -> None:
    first, *rest = CLAIMS
    released = SeenClaim("worker5", 2, 12.0)

    assert count_strikes((first, released, *rest), KILLS, FINISHED_AT) == 3
    assert (
        count_strikes((first, released, *rest), (kill("worker5", 12.1), *KILLS[1:]), FINISHED_AT)
        == 2
    )


def test_claims_before_the_latest_progress_do_not_count() -> None:
    claims = (SeenClaim("worker1", 1, 2.0), SeenClaim("worker2", 2, 6.0), *CLAIMS)

    assert (
        count_strikes(claims, (kill("worker1", 2.2), kill("worker2", 6.2), *KILLS[:1]), FINISHED_AT)
        == 1
    )


def test_an_unseen_claim_has_no_strike() -> None:
    assert count_strikes((), KILLS, FINISHED_AT) == 0
