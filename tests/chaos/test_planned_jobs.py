"""The seed alone determines the plan of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import handoff_queue.supervisor.roles
from handoff_queue.chaos.expected_handoffs import (
    compute_expected_handoffs,
    count_needed_tries,
    list_keys,
)
from handoff_queue.chaos.failpoint_run import OFTEN
from handoff_queue.chaos.fleet import OWN_SPECIALISTS
from handoff_queue.chaos.job_generator import (
    EVERYTHING,
    ONLY_CHORDS,
    ONLY_FEATURES,
    generate_jobs,
    only,
)
from handoff_queue.chaos.job_shapes import CHORDS, FEATURES, MODES, NOT_DRAWN, Shape
from handoff_queue.chaos.model_answers import build_reply
from handoff_queue.chaos.planned_jobs import (
    EXTERNAL,
    FACT_CHECKER,
    KEEPER,
    SKIMMER,
    SPECIALISTS,
    SWITCHING,
    TROUBLE_SHARE,
    CallKey,
    PlannedJob,
)
from handoff_queue.shared.specialists import (
    find_specialists_folder,
    load_specialists,
    read_specialist,
)
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST, FACT_GATE, ROLES
from handoff_queue.shared.types.plan import Plan
from handoff_queue.supervisor.roles.planner import PlanFormat

ALL = len(EVERYTHING.shapes)


def job_of_shape(shape: Shape, mode: Mode | None = None) -> PlannedJob:
    jobs = (job for seed in range(50) for job in generate_jobs(seed, ALL) if job.shape is shape)
    return next(job for job in jobs if mode in (None, job.mode))


def test_the_same_seed_gives_the_same_jobs_and_another_gives_others() -> None:
    assert generate_jobs(1, 30) == generate_jobs(1, 30)
    assert [job.steps for job in generate_jobs(1, 30)] != [
        job.steps for job in generate_jobs(2, 30)
    ]


def test_jobs_can_be_generated_in_small_batches() -> None:
    assert generate_jobs(1, 30) == [*generate_jobs(1, 7), *generate_jobs(1, 23, first=7)]


def test_every_shape_is_present_except_the_shapes_that_depend_on_a_user_or_another_job() -> None:
    assert {job.shape for job in generate_jobs(1, ALL)} == {*Shape} - {*NOT_DRAWN}


def test_every_mode_is_present_and_each_shape_comes_in_all_its_possible_modes() -> None:
    drawn = {(job.shape, job.mode) for seed in range(60) for job in generate_jobs(seed, ALL)}

    assert {mode for _, mode in drawn} == set(Mode)
    assert drawn == {
        (shape, mode) for shape, modes in MODES.items() for mode in modes if shape not in NOT_DRAWN
    }


@pytest.mark.parametrize("mode", Mode)
def test_a_run_of_one_mode_has_jobs_of_no_other(mode: Mode) -> None:
    assert {job.mode for job in generate_jobs(1, 30, draw=only([mode]))} == {mode}


def test_a_run_of_features_has_a_job_of_each_feature() -> None:
    jobs = generate_jobs(1, len(FEATURES), draw=ONLY_FEATURES)

    assert {job.shape for job in jobs} == {*FEATURES}
    assert {job.then.shape for job in jobs if job.then} == {Shape.RECALLED, Shape.FORK}


def test_the_control_gets_only_shapes_that_chords_can_do() -> None:
    jobs = generate_jobs(4242, 20, draw=ONLY_CHORDS)

    assert {job.shape for job in jobs} == set(CHORDS)
    assert {job.mode for job in jobs} == {Mode.TEAM}
    assert not any(list(job.family)[1:] or job.then for job in jobs)
    assert [str(job.shape) for job in jobs[:4]] == [
        "tight in tokens",
        "parallel",
        "tools",
        "written",
    ]


def test_child_jobs_are_two_deep_at_most_and_their_parents_steps() -> None:
    trees = [list(job.family) for seed in range(40) for job in generate_jobs(seed, ALL)]

    assert {len(tree) for tree in trees} == {1, 2, 3}
    for tree in trees:
        for job in tree:
            for step in job.steps:
                assert (step.specialist == CHILD_JOB_SPECIALIST) == (step.team is not None)
                assert step.team is None or (step.team.parent, step.team.name) == (
                    job.name,
                    f"{job.name}-{step.id}",
                )


def test_every_role_of_the_supervisor_has_handoffs_in_some_job() -> None:
    expected = [
        compute_expected_handoffs(member)
        for seed in range(20)
        for job in generate_jobs(seed, ALL)
        for member in job.family
    ]

    assert {handoff.partition(".")[0] for handoffs in expected for handoff in handoffs} >= set(
        ROLES
    )


def test_a_revised_step_and_its_second_review_are_needed_calls() -> None:
    needed = {key.handoff for key in count_needed_tries(job_of_shape(Shape.REVISED, Mode.TEAM))}

    assert needed == {"planner.1", "a.1", "b.1", "c.1", "assessor.1", "a.2", "assessor.2"}


def test_a_step_that_fails_or_needs_input_needs_a_second_attempt() -> None:
    assert {"b.1", "b.2"} <= {
        key.handoff for key in count_needed_tries(job_of_shape(Shape.FAILING))
    }
    assert {"b.1", "planner.2", "b.2"} <= {
        key.handoff for key in count_needed_tries(job_of_shape(Shape.NEEDY, Mode.TEAM))
    }
    assert {"b.1", "planner.1", "b.2"} <= {
        key.handoff for key in count_needed_tries(job_of_shape(Shape.NEEDY, Mode.PIPELINE))
    }


def needed(shape: Shape, mode: Mode = Mode.TEAM) -> set[str]:
    return {key.handoff for key in count_needed_tries(job_of_shape(shape, mode))}


def test_an_input_step_is_needed_after_the_planners_answer_and_before_the_step_continues() -> None:
    handoffs = compute_expected_handoffs(job_of_shape(Shape.HELPED, Mode.TEAM))

    assert needed(Shape.HELPED) == {
        "planner.1",
        "planner.2",
        "assessor.1",
        "a.1",
        "b.1",
        "b_help.1",
        "b.2",
        "c.1",
    }
    assert "planner.2" in handoffs["b_help.1"].after
    assert "b_help.1" in handoffs["b.2"].after


def test_a_dispute_needs_the_judge_and_another_round_if_the_assessor_is_right() -> None:
    with_dispute = {"planner.1", "a.1", "b.1", "assessor.1", "a.2", "assessor.2", "judge.1"}

    assert needed(Shape.OVERRULED) == with_dispute
    assert needed(Shape.UPHELD) == with_dispute | {"a.3", "assessor.3"}


def test_facts_are_checked_before_an_answer_leaves_and_again_after_a_veto() -> None:
    first_round = {"planner.1", "a.1", "b.1", "assessor.1", "fact_gate.1"}

    assert needed(Shape.CHECKED) == first_round
    assert needed(Shape.VETOED) == first_round | {"a.2", "b.2", "assessor.2", "fact_gate.2"}
    assert {
        handoff
        for handoff in needed(Shape.VETOED, Mode.SINGLE)
        if "gate" in handoff or handoff.endswith(".2")
    } == {
        "fact_gate.1",
        "answer.2",
        "fact_gate.2",
    }


def test_rejected_work_is_needed_again_with_all_its_dependents() -> None:
    first_round = {"planner.1", "a.1", "b.1", "assessor.1"}

    assert needed(Shape.REJECTED_PLAN) == first_round | {"planner.2"}
    assert needed(Shape.REJECTED_RESEARCH) == first_round | {"a.2", "b.2"}
    assert needed(Shape.REJECTED_ANSWER) == first_round | {"a.2", "b.2", "assessor.2"}


def test_a_join_needs_only_some_parts_and_a_child_jobs_calls_do_not_count_for_its_step() -> None:
    joined, teams = job_of_shape(Shape.JOINED, Mode.TEAM), job_of_shape(Shape.TEAMS, Mode.TEAM)

    assert {key.handoff for key in count_needed_tries(joined)} == {"planner.1", "d.1", "assessor.1"}
    assert list_keys(teams, compute_expected_handoffs(teams)["x.1"]) == []


@pytest.mark.slow
def test_no_handoff_needs_more_turns_than_it_has_under_any_provider_fault() -> None:
    specialists = load_specialists(find_specialists_folder(), OWN_SPECIALISTS)
    others = {
        name: read_specialist(
            Path(handoff_queue.supervisor.roles.__file__).with_name(f"{name}.md"), reserved_names=()
        )
        for name in ROLES
    }
    others[FACT_GATE] = specialists[FACT_CHECKER]

    for job in (
        replace(member, trouble_share=share)
        for seed in range(20)
        for share in (TROUBLE_SHARE, OFTEN, 1.0)
        for root in generate_jobs(seed, ALL)
        for member in root.family
    ):
        agents = {
            step.id: specialists[step.specialist] for step in job.steps if not step.team
        } | others
        needed = Counter[str]()
        for key, tries in count_needed_tries(job).items():
            needed[key.handoff] += tries
        limits = {
            handoff: agents[step].max_turns
            for handoff in needed
            if (step := handoff.partition(".")[0]) in agents
        }

        assert {
            handoff: limit for handoff, limit in limits.items() if needed[handoff] > limit
        } == {}, job


def test_two_attempts_at_a_step_have_different_texts() -> None:
    job = job_of_shape(Shape.UPHELD, Mode.ADAPTIVE)

    texts = [
        build_reply(job, CallKey(job.name, f"a.{attempt}", 1), {}).blocks[0]["text"]
        for attempt in (1, 2, 3)
    ]

    assert len({*texts}) == 3


def test_every_plan_is_valid_at_its_first_try_except_the_plan_for_repair() -> None:
    specialists = (*SPECIALISTS, SWITCHING, KEEPER, SKIMMER, EXTERNAL, CHILD_JOB_SPECIALIST)
    plan_format = PlanFormat(specialists, max_steps=20)
    model_request = {"messages": [{"content": [{"type": "text", "text": "Make the plan."}]}]}

    for job in (
        member
        for seed in range(10)
        for root in generate_jobs(seed, ALL)
        for member in root.family
        if member.is_planned
    ):
        turn = 2 if job.shape is Shape.REPAIRED else 1
        (block,) = build_reply(job, CallKey(job.name, "planner.1", turn), model_request).blocks

        assert Plan.from_value(plan_format.read(block["text"], last_try=False).output).steps
