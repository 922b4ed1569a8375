"""For every promise about handoffs with several models, there are records that break it."""

from __future__ import annotations

from dataclasses import replace

from handoff_queue.chaos.expected_handoffs import OK
from handoff_queue.chaos.expected_outcomes import StoredJob
from handoff_queue.chaos.faults import Fault, Strike
from handoff_queue.chaos.features import (
    LOST,
    TOO_LOW,
    SeenReservation,
    SwitchRecords,
    WrittenResult,
)
from handoff_queue.chaos.fleet import OWN_SPECIALISTS
from handoff_queue.chaos.invariants import RunRecords
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_server import Call, ChaosModel
from handoff_queue.chaos.planned_jobs import (
    SWITCHED_MODELS,
    SWITCHING,
    CallKey,
    ModelRefusal,
    PlannedJob,
    PlannedStep,
    compute_price,
)
from handoff_queue.shared.specialists.specialist_files import load_specialists
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.usage import Usage

FIRST, SECOND = SWITCHED_MODELS
STEP = PlannedStep("a", SWITCHING, turns=2)
JOB = PlannedJob("1-0", Shape.SWITCHED, (STEP,), seed=1, mode=Mode.PIPELINE)
RESULT = WrittenResult("1-0", "a.1", 2, SECOND, {FIRST: 1, SECOND: 1}, f"Written by {SECOND}.")


def call(turn: int, at: float, model: str, *writers: str, is_refused: bool = False) -> Call:
    key = CallKey("1-0", "a.1", turn)
    return Call(
        key,
        "worker1",
        at,
        out_at=at + 0.5,
        model=model,
        writers=writers,
        is_refused=is_refused,
    )


CALLS = (
    call(1, 1.0, FIRST),
    call(2, 2.0, FIRST, FIRST, is_refused=True),
    call(2, 3.0, SECOND, FIRST),
)


def breaches(*calls: Call, result: WrittenResult = RESULT) -> list[str]:
    return SwitchRecords(calls, [result], []).find_breaches()[LOST]


def test_a_switch_in_the_middle_of_a_handoff_breaks_no_promise() -> None:
    assert breaches(*CALLS) == []


def test_a_result_that_names_the_wrong_model_is_a_breach() -> None:
    assert breaches(*CALLS, result=replace(RESULT, model=FIRST))
    assert breaches(*CALLS, result=replace(RESULT, replies_by_model=None))
    assert breaches(*CALLS, result=replace(RESULT, replies_by_model={FIRST: 1, SECOND: 2}))


def test_a_result_may_name_the_refusal_of_a_model() -> None:
    assert breaches(*CALLS, result=replace(RESULT, replies_by_model={FIRST: 2, SECOND: 1})) == []
    assert breaches(*CALLS, result=replace(RESULT, replies_by_model={FIRST: 3, SECOND: 1}))
    assert breaches(*CALLS, result=replace(RESULT, replies_by_model={FIRST: 2}))


def test_a_reply_that_the_next_call_lacks_is_a_breach() -> None:
    lost = replace(CALLS[2], writers=())
    assert breaches(*CALLS[:2], lost)


def test_a_stored_reply_that_changes_is_a_breach() -> None:
    again = call(1, 1.5, SECOND)
    assert breaches(CALLS[0], again, CALLS[1], call(2, 3.0, SECOND, SECOND))


def test_a_reply_under_the_name_of_a_model_that_did_not_write_it_is_a_breach() -> None:
    assert breaches(CALLS[0], call(2, 3.0, SECOND, SECOND))


def test_a_reservation_at_the_price_of_the_cheap_model_is_a_breach() -> None:
    tokens = Usage(input_tokens=4_000, output_tokens=8_000)
    cheap, dear = [
        SeenReservation("1-0", "a.1", 4_000, 8_000, compute_price(tokens, model))
        for model in SWITCHED_MODELS
    ]

    assert SwitchRecords((), (), [dear]).find_breaches()[TOO_LOW] == []
    assert len(SwitchRecords((), (), [cheap, dear]).find_breaches()[TOO_LOW]) == 1


def unexplained(*calls: Call, strikes: tuple[Strike, ...] = ()) -> list[CallKey]:
    finished = {"a.1": (9.0,)}
    ended = StoredJob("ok", (10.0,), finished, dict.fromkeys(finished, OK))
    return RunRecords([JOB], calls, strikes, {"1-0": ended}, lease_s=3.0).unexplained


def test_the_refusal_of_one_model_is_not_a_repeated_call() -> None:
    assert unexplained(*CALLS) == []


def test_a_handoff_that_pays_twice_for_the_same_refusal_is_a_breach() -> None:
    refusals = [call(turn, float(turn), FIRST, is_refused=True) for turn in (1, 2)]
    answers = [call(1, 1.5, SECOND), call(2, 2.5, SECOND, SECOND)]
    assert unexplained(*refusals, *answers) == [CallKey("1-0", "a.1", 1)]


def test_a_kill_in_the_middle_of_a_switch_explains_the_repeated_refusal() -> None:
    again = call(2, 2.8, FIRST, FIRST, is_refused=True)
    kill = Strike(Fault.KILL_WORKER, "worker1", 2.2)
    calls = (*CALLS[:2], again, CALLS[2])
    assert unexplained(*calls, strikes=(kill,)) == []
    assert unexplained(*calls) == [CallKey("1-0", "a.1", 2)]


def job_with(refusal: ModelRefusal) -> PlannedJob:
    """Return a job whose first model turns the first call of `a.1` away."""
    jobs = (replace(JOB, seed=seed) for seed in range(200))
    return next(job for job in jobs if job.draw_refusal(CallKey("1-0", "a.1", 1), FIRST) is refusal)


def test_a_storm_refuses_one_call_and_a_model_that_declines_does_so_again() -> None:
    key = CallKey("1-0", "a.1", 1)
    for refusal in ModelRefusal:
        job = job_with(refusal)
        with ChaosModel([job]) as model:
            again = [model.draw_refusal(job, key, FIRST) for _ in range(2)]
        assert again == [refusal, None if refusal.is_storm else refusal]


def test_only_one_model_turns_away_calls_of_a_handoff() -> None:
    for seed in range(50):
        job = replace(JOB, seed=seed)
        refusals = [job.draw_refusal(CallKey("1-0", "a.1", 2), model) for model in SWITCHED_MODELS]
        assert refusals.count(None) == 1


def test_the_plan_knows_the_models_of_the_specialist() -> None:
    assert load_specialists(OWN_SPECIALISTS)[SWITCHING].models == SWITCHED_MODELS
