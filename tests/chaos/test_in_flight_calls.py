"""A model call is in flight until a process has had time to store its answer.

Each test checks records of one repeated call and of the faults near it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.chaos.expected_handoffs import OK
from handoff_queue.chaos.expected_outcomes import StoredJob
from handoff_queue.chaos.faults import ARRIVES_WITHIN_S, EVERYBODY, Fault, Strike, with_outages
from handoff_queue.chaos.invariants import RunRecords
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_jobs import CallKey, PlannedJob, PlannedStep
from handoff_queue.chaos.unwanted_calls import STORED_WITHIN_S
from handoff_queue.shared.store.redis.connection import RETRY_EVERY_S

KEY = CallKey("1-0", "a.1", 1)
FIRST_CALL = Call(KEY, "worker1", 100.0, out_at=101.0)
SOON, LATE = 101.0 + STORED_WITHIN_S / 2, 101.0 + STORED_WITHIN_S * 2
SECOND_CALL = Call(KEY, "worker2", 165.0, out_at=166.0)


def records(
    *strikes: Strike,
    calls: tuple[Call, ...] = (FIRST_CALL, SECOND_CALL),
    stored_at: float | None = None,
    finished_at: float = 170.0,
    seed: int = 1,
) -> RunRecords:
    job = PlannedJob("1-0", Shape.PARALLEL, (PlannedStep("a", "writer"),), seed)
    job_record = StoredJob("ok", (180.0,), {"a.1": (finished_at,)}, {"a.1": OK})
    return RunRecords(
        [job],
        calls,
        strikes,
        {"1-0": job_record},
        3.0,
        stored_at={} if stored_at is None else {KEY: stored_at},
    )


def kill(at: float, process: str = "worker1") -> Strike:
    return Strike(Fault.KILL_WORKER, process, at)


def is_excused(
    *strikes: Strike,
    calls: tuple[Call, ...] = (FIRST_CALL, SECOND_CALL),
    stored_at: float | None = None,
    finished_at: float = 170.0,
) -> bool:
    return not records(
        *strikes, calls=calls, stored_at=stored_at, finished_at=finished_at
    ).unexplained


@pytest.mark.parametrize(
    "strike",
    [
        kill(160.0),
        Strike(Fault.KILL_REDIS, EVERYBODY, 160.0),
        Strike(Fault.CUT, EVERYBODY, 160.0),
        Strike(Fault.END, "worker1", 160.0),
    ],
    ids=lambda strike: strike.fault.value,
)
def test_no_strike_excuses_the_repetition_of_a_call_that_was_answered_long_before(
    strike: Strike,
) -> None:
    records_of_run = records(strike)

    assert (records_of_run.unexplained, records_of_run.in_flight) == ([KEY], 0)


def test_a_call_is_in_flight_until_a_process_had_time_to_store_the_answer() -> None:
    assert is_excused(kill(100.5))
    assert is_excused(kill(SOON))
    assert not is_excused(kill(LATE))


def test_an_unanswered_call_is_in_flight() -> None:
    assert is_excused(kill(160.0), calls=(replace(FIRST_CALL, out_at=None), SECOND_CALL))


def test_an_answer_that_no_client_read_is_not_in_flight_after_it_was_sent() -> None:
    assert not is_excused(kill(SOON), calls=(replace(FIRST_CALL, was_heard=False), SECOND_CALL))
    assert is_excused(kill(100.5), calls=(replace(FIRST_CALL, was_heard=False), SECOND_CALL))


def test_a_killed_process_has_no_call_in_flight_although_the_server_still_answers() -> None:
    records_of_run = records(
        kill(100.1),
        Strike(Fault.STOP, "worker1", 100.8, lasts_s=4.0),
        calls=(replace(FIRST_CALL, was_heard=False), SECOND_CALL),
    )

    assert records_of_run.repeated_by == {Fault.KILL_WORKER: 1}, (
        "the restarted process of the same name never had the call"
    )


def test_a_call_of_a_stopped_process_is_in_flight_until_the_process_continues() -> None:
    stop = Strike(Fault.STOP, "worker1", 100.5, lasts_s=6.0)
    records_of_run = records(stop, kill(106.5 + STORED_WITHIN_S / 2))

    assert records_of_run.repeated_by == {Fault.KILL_WORKER: 1}, (
        "the process had no time to store the answer"
    )
    assert records(stop, kill(106.5 + STORED_WITHIN_S * 2)).repeated_by == {Fault.STOP: 1}
    assert not is_excused(replace(stop, at=LATE))


def test_a_call_answered_while_redis_is_away_is_in_flight_until_the_next_try() -> None:
    kill_of_redis = Strike(Fault.KILL_REDIS, EVERYBODY, 100.5)
    (outage,) = with_outages([kill_of_redis], [100.4, 100.52, 103.0, 103.1])
    recovered_at = 103.0 + RETRY_EVERY_S

    assert outage.outage_s == pytest.approx(recovered_at - 100.5)
    assert records(outage, kill(recovered_at + STORED_WITHIN_S / 2)).repeated_by == {
        Fault.KILL_WORKER: 1
    }
    assert records(outage, kill(recovered_at + STORED_WITHIN_S * 2)).repeated_by == {
        Fault.KILL_REDIS: 1
    }


def test_a_call_from_before_redis_answered_again_was_in_flight_and_later_calls_were_not() -> None:
    outages = with_outages([Strike(Fault.KILL_REDIS, EVERYBODY, 95.0)], [94.0, 98.0])
    end = 98.0 + RETRY_EVERY_S + ARRIVES_WITHIN_S

    assert is_excused(*outages, calls=(replace(FIRST_CALL, at=end - 0.1), SECOND_CALL))
    assert not is_excused(*outages, calls=(replace(FIRST_CALL, at=end + 0.1), SECOND_CALL))


def test_cut_connections_delay_a_process_only_until_the_next_try() -> None:
    cut, stop = with_outages(
        [Strike(Fault.CUT, EVERYBODY, 1.0), Strike(Fault.STOP, "worker1", 2.0, lasts_s=4.0)], []
    )

    assert (cut.outage_s, stop.outage_s) == (RETRY_EVERY_S, 0.0)


def test_a_stored_reply_is_not_paid_for_again_after_any_strike() -> None:
    assert is_excused(kill(SOON), stored_at=165.1)
    assert not is_excused(kill(SOON), stored_at=SOON + 0.01)
    assert not is_excused(kill(SOON), finished_at=SOON + 0.01)
    assert records(kill(SOON), stored_at=SOON - 0.01).in_flight == 0


def test_a_turn_with_a_successor_is_not_paid_for_again() -> None:
    later = Call(CallKey("1-0", "a.1", 2), "worker1", SOON + 0.1, out_at=SOON + 0.2)

    assert KEY in records(kill(SOON), calls=(FIRST_CALL, later, SECOND_CALL)).unexplained


def test_a_process_that_was_stopped_before_its_call_is_excused_for_later_writes() -> None:
    stopped = Strike(Fault.STOP, "worker2", 99.0, lasts_s=66.0)

    assert is_excused(stopped, stored_at=101.1)
    assert is_excused(kill(100.5), replace(stopped, at=100.6, lasts_s=64.0), stored_at=101.1), (
        "the kill excuses the call, and the stopped process did not see the write"
    )
    assert not is_excused(kill(100.5), replace(stopped, at=102.0, lasts_s=63.0), stored_at=101.1), (
        "the process was running at the time of the write"
    )


def test_a_planned_repetition_needs_no_explanation() -> None:
    seed = next(seed for seed in range(1_000) if records(seed=seed).jobs[0].draw_fault(KEY))
    refused, third_call = (
        replace(FIRST_CALL, at=99.0, out_at=99.1),
        replace(SECOND_CALL, at=167.0, out_at=168.0),
    )

    assert records(calls=(refused, FIRST_CALL), seed=seed).repeated == 0
    assert records(kill(99.05), calls=(refused, FIRST_CALL, third_call), seed=seed).unexplained == [
        KEY
    ]
    assert (
        records(kill(100.5), calls=(refused, FIRST_CALL, third_call), seed=seed).unexplained == []
    )


def test_each_call_in_flight_is_counted_once_and_a_process_between_calls_counts_none() -> None:
    other = Call(CallKey("1-0", "assessor.1", 1), "worker1", 100.2, out_at=101.0)

    assert records(kill(100.5), calls=(FIRST_CALL, other)).in_flight == 2
    assert (
        records(
            kill(100.5), Strike(Fault.KILL_REDIS, EVERYBODY, 100.6), calls=(FIRST_CALL, other)
        ).in_flight
        == 2
    )
    assert records(kill(LATE), calls=(FIRST_CALL, other)).in_flight == 0
    assert (
        records(Strike(Fault.DROP, "worker1", 100.5), calls=(FIRST_CALL, other)).in_flight == 1
    ), "one lost answer affects one call"
    assert records(Strike(Fault.TWICE, EVERYBODY, 100.5), calls=(FIRST_CALL, other)).in_flight == 0
