"""What is run follows from its seed, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import supervisor.roles
from chaos.model import key_of
from chaos.plan import TROUBLE_SHARE, CallKey, Shape, jobs_of
from chaos.trial import OFTEN
from shared.specialists.reader import load_specialists, read_specialist
from supervisor.cli.built_in import built_in_specialists


def test_the_same_seed_gives_the_same_jobs_and_another_gives_others() -> None:
    assert jobs_of(1, 20) == jobs_of(1, 20)
    assert [job.steps for job in jobs_of(1, 20)] != [job.steps for job in jobs_of(2, 20)]


def test_jobs_can_be_had_a_few_at_a_time() -> None:
    assert jobs_of(1, 20) == [*jobs_of(1, 7), *jobs_of(1, 13, first=7)]


def test_every_shape_is_there_but_the_one_that_needs_a_user() -> None:
    assert {job.shape for job in jobs_of(1, 20)} == set(Shape) - {Shape.CANCELLED}


def test_a_revised_step_and_its_second_review_are_needed_calls() -> None:
    job = next(job for job in jobs_of(1, 20) if job.shape is Shape.REVISED)

    assert {f"{key.handoff}" for key in job.needs()} == {"planner.1", "a.1", "b.1", "c.1", "assessor.1", "a.2", "assessor.2"}


def test_whatever_the_provider_does_no_handoff_needs_more_turns_than_it_has() -> None:
    specialists = load_specialists(built_in_specialists())
    planner = read_specialist(Path(supervisor.roles.__file__).with_name("planner.md"), reserved=())

    for job in (
        replace(job, trouble_share=share) for seed in range(40) for share in (TROUBLE_SHARE, OFTEN, 1.0) for job in jobs_of(seed, 10)
    ):
        needed = Counter[str]()
        for key, tries in job.needs().items():
            needed[key.handoff] += tries
        has = {f"{step.id}.1": specialists[step.specialist].max_turns for step in job.steps} | {"planner.1": planner.max_turns}

        assert {handoff: most for handoff, most in has.items() if needed[handoff] > most} == {}, job


def test_the_server_knows_whose_call_it_answers() -> None:
    def request(text: str, *rest: dict[str, object]) -> dict[str, object]:
        return {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}, *rest]}

    said: dict[str, object] = {"role": "assistant", "content": []}
    assert key_of(request("<task>Do a of 7-3.</task>", said)) == CallKey("7-3", "a.1", 2)
    assert key_of(request("<task>Do a of 7-3.</task>\n\n<feedback author='assessor'>Mend it.</feedback>")) == CallKey("7-3", "a.2", 1)
    assert key_of(request("<task>chaos 7-3</task>")) == CallKey("7-3", "answer.1", 1)
    assert key_of(request("<task>Make the plan.\n\nRequest:\nchaos 7-3</task>")).job == "7-3"
    assert key_of(request("<task>Judge the results of round 2 against the request.\n\nRequest:\nchaos 7-3</task>")).handoff[-2:] == ".2"
