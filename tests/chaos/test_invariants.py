"""For every invariant of a chaos run, there are records that break it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from handoff_queue.chaos.expected_handoffs import OK, Ended
from handoff_queue.chaos.expected_outcomes import SPENT, TOO_MANY_CLAIMS, StoredJob
from handoff_queue.chaos.faults import EVERYBODY, Fault, Strike
from handoff_queue.chaos.invariants import RunRecords
from handoff_queue.chaos.job_generator import TIGHT_STEPS
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_jobs import EXTERNAL, CallKey, PlannedJob, PlannedStep
from handoff_queue.chaos.report import convert_to_json, find_broken_promises, format_table, is_kept
from handoff_queue.chaos.unwanted_calls import SeenClaim
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.engine.failure_guard import FROZE

JOB = PlannedJob("1-0", Shape.PARALLEL, (PlannedStep("a", "writer", turns=2),), seed=1)
FINISHED = {"planner.1": (1.5,), "a.1": (9.0,), "assessor.1": (19.0,)}
RESULTS = dict.fromkeys(FINISHED, OK)
SUCCESS = StoredJob("ok", (20.0,), FINISHED, RESULTS)
KILLED = Ended("failed", TOO_MANY_CLAIMS)
CUT = Ended("partial", StopReason.JOB_BUDGET.value)
CALLS = (("planner.1", 1, 1.0), ("a.1", 1, 2.0), ("a.1", 2, 3.0), ("assessor.1", 1, 18.0))


PAID = Usage(input_tokens=4_000, output_tokens=6_000, cost_microusd=3_500)


def call(handoff: str, turn: int, at: float, process: str = "worker1") -> Call:
    return Call(CallKey("1-0", handoff, turn), process, at, usage=PAID, out_at=at + 0.9)


def records(
    *more: Call,
    strikes: Sequence[Strike] = (),
    job_record: StoredJob = SUCCESS,
    jobs: Sequence[PlannedJob] = (JOB,),
    left_behind: Sequence[str] = (),
    not_reached: Sequence[str] | None = None,
    not_happened: Sequence[str] = (),
) -> RunRecords:
    job_records: Mapping[str, StoredJob] = {"1-0": job_record}
    return RunRecords(
        jobs,
        [*(call(*values) for values in CALLS), *more],
        strikes,
        job_records,
        3.0,
        left_behind,
        not_reached,
        not_happened,
    )


def kill(at: float, process: str = "worker1") -> Strike:
    return Strike(Fault.KILL_WORKER, process, at)


def test_without_faults_nothing_is_repeated_and_every_promise_is_kept() -> None:
    records_of_run = records()

    assert (
        records_of_run.call_count,
        records_of_run.needed,
        records_of_run.repeated,
        records_of_run.in_flight,
    ) == (4, 4, 0, 0)
    assert is_kept(records_of_run)
    assert convert_to_json(records_of_run)["kept"] is True


def test_a_call_in_flight_at_a_kill_may_be_repeated_once() -> None:
    records_of_run = records(call("a.1", 2, 6.0, "worker2"), strikes=[kill(3.5)])

    assert (records_of_run.repeated, records_of_run.in_flight, records_of_run.unexplained) == (
        1,
        1,
        [],
    )
    assert records_of_run.longest_recovery_s == 2.5
    assert is_kept(records_of_run)


def test_the_recovery_of_a_handoff_of_the_claude_agent_sdk_has_no_promised_time() -> None:
    job = replace(JOB, steps=(PlannedStep("a", EXTERNAL, turns=2),))
    late = call("a.1", 2, 30.0, "worker2")
    record = replace(SUCCESS, ended_at=(40.0,), finished_at={**FINISHED, "a.1": (31.0,)})

    own = records(late, strikes=[kill(3.5)], job_record=record)
    external = records(late, strikes=[kill(3.5)], job_record=record, jobs=(job,))

    assert own.longest_recovery_s == 26.5
    assert external.longest_recovery_s is None
    assert external.longest_joint_recovery_s == 26.5
    assert "longest recovery" in find_broken_promises(own)
    assert "longest recovery" not in find_broken_promises(external)


def test_a_call_is_in_flight_also_if_the_server_reads_it_shortly_after_the_kill() -> None:
    assert is_kept(records(call("a.1", 2, 6.0, "worker2"), strikes=[kill(2.9)]))


@pytest.mark.parametrize(
    ("strikes", "repeated"),
    [
        ([], call("a.1", 2, 6.0)),
        ([kill(3.5, "worker2")], call("a.1", 2, 6.0)),
        ([kill(3.8)], call("a.1", 1, 6.0)),
        ([kill(1.2)], call("a.1", 2, 6.0)),
        ([Strike(Fault.TWICE, EVERYBODY, 3.5)], call("a.1", 2, 6.0)),
    ],
    ids=[
        "no strike",
        "a strike on another process",
        "a strike after the turn",
        "a strike before the turn",
        "a duplicate message",
    ],
)
def test_a_repeated_call_that_no_strike_explains_is_a_broken_promise(
    strikes: list[Strike], repeated: Call
) -> None:
    assert "calls repeated that were not in flight" in find_broken_promises(
        records(repeated, strikes=strikes)
    )


def test_a_process_that_was_stopped_before_its_call_is_excused_only_just_after_its_stop() -> None:
    def unexplained(stopped_at: float, lasts_s: float, process: str = "worker2") -> bool:
        strike = Strike(Fault.STOP, process, stopped_at, lasts_s=lasts_s)
        return bool(records(call("a.1", 2, 6.0, "worker2"), strikes=[strike]).unexplained)

    assert not unexplained(2.5, 3.4), "the process has just continued"
    assert unexplained(2.5, 2.9), "the process has run for a while"
    assert unexplained(3.1, 2.8), "the process was running at the first call"
    assert unexplained(2.5, 3.4, "worker3"), "another process was stopped"


def test_two_repetitions_need_two_strikes() -> None:
    repetitions = (call("a.1", 2, 5.0, "worker2"), call("a.1", 2, 6.0, "worker3"))

    assert "calls repeated that were not in flight" in find_broken_promises(
        records(*repetitions, strikes=[kill(3.5)])
    )
    assert is_kept(records(*repetitions, strikes=[kill(3.5), kill(5.2, "worker2")]))


@pytest.mark.parametrize(
    ("job_record", "broken"),
    [
        (StoredJob("running"), "jobs lost"),
        (StoredJob("ok", (20.0, 21.0), FINISHED, RESULTS), "jobs that ended twice"),
        (
            StoredJob("ok", (20.0,), {**FINISHED, "a.1": (9.0, 10.0)}, RESULTS),
            "handoffs with two results",
        ),
        (
            StoredJob("partial", (20.0,), FINISHED, RESULTS, why="an internal error"),
            "jobs that ended otherwise than planned",
        ),
        (
            StoredJob("ok", (20.0,), {"planner.1": (1.5,)}, {"planner.1": OK}),
            "jobs that ended otherwise than planned",
        ),
    ],
)
def test_a_wrong_end_of_a_job_is_a_broken_promise(job_record: StoredJob, broken: str) -> None:
    assert find_broken_promises(records(job_record=job_record)) == [broken]


@pytest.mark.parametrize("shape", [Shape.TIGHT, Shape.TIGHT_TOKENS, Shape.TIGHT_MONEY])
def test_a_payment_over_a_budget_is_an_overrun_in_every_unit(
    shape: Shape,
) -> None:
    tight = PlannedJob(
        "1-0", shape, tuple(PlannedStep(name, "writer") for name in TIGHT_STEPS), seed=1
    )
    within = [
        call("planner.1", 1, 1.0),
        call("a.1", 1, 2.0),
        call("b.1", 1, 2.0),
        call("assessor.1", 1, 18.0),
    ]
    more = [call(f"{name}.1", 1, 4.0) for name in TIGHT_STEPS[2:8]]
    job_record = StoredJob(
        "partial",
        (20.0,),
        FINISHED,
        {**RESULTS, "b.1": OK, **{f"{name}.1": CUT for name in TIGHT_STEPS[2:]}},
        SPENT,
    )

    assert find_broken_promises(RunRecords([tight], within, [], {"1-0": job_record}, 3.0)) == []
    assert find_broken_promises(
        RunRecords([tight], [*within, *more], [], {"1-0": job_record}, 3.0)
    ) == ["jobs over their budget, by the server's usage counts"]


def test_a_recovery_is_late_five_seconds_after_its_lease_without_another_strike() -> None:
    late, soon = call("a.1", 2, 12.0, "worker2"), call("a.1", 2, 8.9, "worker2")
    job_record = StoredJob("ok", (20.0,), {"planner.1": (1.5,)}, RESULTS)

    assert find_broken_promises(records(late, strikes=[kill(3.5)], job_record=job_record)) == [
        "longest recovery"
    ]
    assert find_broken_promises(records(soon, strikes=[kill(3.5)], job_record=job_record)) == []


def test_the_promise_fails_if_every_recovery_was_struck_again() -> None:
    second_strike = Strike(Fault.KILL_REDIS, EVERYBODY, 5.0)

    records_of_run = records(
        call("a.1", 2, 12.0, "worker2"),
        strikes=[kill(3.5), second_strike],
        job_record=StoredJob("ok", (11.9,), {}, RESULTS),
    )
    by_both = records(
        call("a.1", 2, 6.0, "worker2"),
        strikes=[kill(3.5), Strike(Fault.KILL_WORKER, "worker9", 4.0)],
    )

    assert records_of_run.longest_joint_recovery_s == pytest.approx(8.4)
    assert find_broken_promises(by_both) == ["longest recovery"]
    assert "| longest recovery | not measured |" in format_table(by_both)
    assert "| longest recovery | not measured | 8 s | kept |" in format_table(records())


@pytest.mark.parametrize(
    ("fault", "lasts_s"),
    [(Fault.KILL_WORKER, 0.0), (Fault.STOP, 2.0)],
    ids=["killed during its call", "continued and called"],
)
def test_a_call_in_flight_of_the_struck_process_is_not_a_recovery(
    fault: Fault, lasts_s: float
) -> None:
    strike = Strike(fault, "worker1", 3.5, lasts_s=lasts_s)
    own_call = call("a.1", 3, 3.6 + lasts_s)
    job_record = StoredJob("ok", (20.0,), {"planner.1": (1.5,)}, RESULTS)

    records_of_run = records(
        own_call, call("a.1", 3, 6.6, "worker2"), strikes=[strike], job_record=job_record
    )

    assert records_of_run.longest_recovery_s == pytest.approx(3.1)


def test_leftovers_in_redis_and_untried_faults_are_reported() -> None:
    assert find_broken_promises(records(left_behind=["handoff:due: j-1"])) == ["keys left behind"]
    assert find_broken_promises(
        records(not_reached=["kill at script.turn.before of a worker"])
    ) == ["failpoints that no process reached"]
    assert "| failpoints that no process reached | 0 |" in format_table(records(not_reached=[]))


def test_a_run_without_failpoints_reports_no_failpoints() -> None:
    assert "failpoints" not in format_table(records())


def test_a_fault_that_could_not_happen_is_reported_and_breaks_nothing() -> None:
    records_of_run = records(not_happened=["frozen at a failpoint"])

    assert "| did not happen | frozen at a failpoint |" in format_table(records_of_run)
    assert convert_to_json(records_of_run)["did_not_happen"] == ["frozen at a failpoint"]
    assert is_kept(records_of_run)


def test_a_request_that_the_api_would_refuse_breaks_a_promise() -> None:
    records_of_run = replace(records(), refused_requests=["messages.2: unexpected `tool_use_id`"])

    assert find_broken_promises(records_of_run) == ["requests that the Messages API would refuse"]
    assert "messages.2: unexpected `tool_use_id`" in format_table(records_of_run)


def test_repeated_calls_are_reported_by_the_struck_process() -> None:
    repeated = (call("a.1", 2, 6.0, "worker2"), call("a.1", 2, 9.0, "worker3"))

    records_of_run = records(
        *repeated, strikes=[kill(3.5), Strike(Fault.KILL_REDIS, EVERYBODY, 6.2)]
    )

    assert records_of_run.repeated_by == {Fault.KILL_WORKER: 1, Fault.KILL_REDIS: 1}
    assert "| calls repeated, by fault | 1 x worker killed, 1 x Redis killed |" in format_table(
        records_of_run
    )
    assert convert_to_json(records_of_run)["calls_repeated_by"] == {
        "kill_worker": 1,
        "kill_redis": 1,
    }


def test_a_call_outside_every_plan_is_a_repeated_call() -> None:
    assert find_broken_promises(records(call("b.1", 1, 4.0))) == [
        "calls repeated",
        "calls repeated that were not in flight",
    ]
    assert find_broken_promises(records(call("a.1", 3, 4.0))) == [
        "calls repeated",
        "calls repeated that were not in flight",
    ]
    assert "calls repeated that were not in flight" in find_broken_promises(
        records(call("answer.1", 1, 4.0))
    )


def test_a_plan_made_by_code_needs_one_call_and_three_kills_of_the_planner() -> None:
    results = {"planner.1": KILLED, "answer.1": OK, "assessor.1": OK}
    job_record = StoredJob("partial", (20.0,), {}, results)
    calls = [call("planner.1", 1, 1.0), call("answer.1", 1, 2.0), call("assessor.1", 1, 3.0)]

    kills = [kill(1.2, "worker1"), kill(1.5, "worker2"), kill(1.8, "worker3")]
    claims_seen = {
        ("1-0", "planner.1"): [
            SeenClaim(f"worker{count}", count, 0.9 + 0.3 * count) for count in (1, 2, 3)
        ]
    }

    once = RunRecords([JOB], calls, kills, {"1-0": job_record}, 3.0, claims_seen=claims_seen)
    twice = RunRecords(
        [JOB],
        [*calls, call("answer.1", 1, 4.0)],
        kills,
        {"1-0": job_record},
        3.0,
        claims_seen=claims_seen,
    )

    assert ([*once.spoilt], once.repeated, once.unexplained) == ([], 0, [])
    assert (
        replace(once, strikes=kills[:2])
        .spoilt["1-0"]
        .startswith("planner.1: given up, though only 2 of its claims were struck")
    )
    assert "calls repeated that were not in flight" in find_broken_promises(twice)


def test_an_abandoned_job_has_as_many_strikes_as_the_limit() -> None:
    job_record = StoredJob(
        "failed", (20.0,), {"planner.1": (1.5,)}, {"planner.1": OK}, reason=f"{FROZE}: see the log"
    )
    strikes = [Strike(Fault.KILL_SUPERVISOR, "supervisor1", at) for at in (3.0, 7.0, 11.0)]

    assert "jobs that ended otherwise than planned" in find_broken_promises(
        records(strikes=strikes[:2], job_record=job_record)
    )
    assert "jobs that ended otherwise than planned" not in find_broken_promises(
        records(strikes=strikes, job_record=job_record)
    )
    assert "jobs that ended otherwise than planned" in find_broken_promises(
        records(strikes=strikes, job_record=replace(job_record, status="ok"))
    )
