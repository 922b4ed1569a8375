"""The run time of each handoff, the cause of each wait, and the critical path of the job."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.events import (
    AbandonedStep,
    ConditionsChecked,
    Event,
    RecordedEvent,
    RetryRequested,
    StepsAbandoned,
    WebhookTried,
)
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.tracing.timeline import (
    UnstartedStep,
    build_timeline,
    find_steps_without_handoff,
)
from tests.supervisor.tracing.job_record_builder import JobRecordBuilder


def team_job() -> JobRecordBuilder:
    builder = JobRecordBuilder()
    builder.role("planner", (0, 0, 1))
    builder.step("quick", (1, 1, 2))
    builder.step("slow", (1, 2, 6))
    builder.step("last", (6, 6, 8), after="quick slow")
    builder.role("assessor", (8, 8, 9))
    return builder


def predecessors(builder: JobRecordBuilder) -> dict[str, tuple[str, ...]]:
    return {bar.handoff_id: bar.after for bar in build_timeline(builder.record()).bars}


def critical_path(builder: JobRecordBuilder) -> list[str]:
    return [bar.handoff_id for bar in build_timeline(builder.record()).bars if bar.is_critical]


def test_the_timeline_ends_with_the_job_and_not_with_its_webhook() -> None:
    record = team_job().record()
    late = RecordedEvent(
        len(record.journal) + 1, 600.0, WebhookTried(attempt=1, delivered=True, end=1)
    )

    timeline = build_timeline(replace(record, journal=(*record.journal, late)))

    assert timeline.ends_at == 9.0


def test_a_step_follows_its_dependencies_or_the_step_that_asked_for_it() -> None:
    dependencies = predecessors(team_job())

    assert dependencies["quick.1"] == dependencies["slow.1"] == ("planner.1",)
    assert dependencies["last.1"] == ("quick.1", "slow.1")


def test_a_role_follows_everything_that_no_other_handoff_follows() -> None:
    builder = team_job()
    builder.step("aside", (1, 1, 7))

    assert predecessors(builder)["assessor.1"] == ("aside.1", "last.1")


def test_an_attempt_follows_the_latest_result_of_its_dependencies() -> None:
    builder = team_job()
    builder.step("slow", (9, 9, 11), attempt=2)
    builder.step("last", (11, 11, 12), after="slow", attempt=2)

    assert predecessors(builder)["slow.2"] == ("assessor.1",)
    assert predecessors(builder)["last.2"] == ("slow.2",)


def test_an_input_step_is_on_the_path_of_the_step_that_waited_for_it() -> None:
    builder = JobRecordBuilder()
    builder.role("planner", (0, 0, 1))
    builder.step("a", (1, 1, 2))
    builder.step("aside", (1, 1, 4))
    builder.role("planner", (2, 2, 3), attempt=2)
    builder.step("a_help", (3, 3, 6))
    builder.step("a", (6, 6, 8), after="a_help", attempt=2)

    assert (predecessors(builder)["a_help.1"], predecessors(builder)["a.2"]) == (
        ("planner.2",),
        ("a_help.1",),
    )
    assert critical_path(builder) == ["planner.1", "a.1", "planner.2", "a_help.1", "a.2"]


def test_an_attempt_after_a_failure_follows_the_failed_attempt() -> None:
    builder = JobRecordBuilder()
    for n in range(4):
        builder.step("a", (3 * n, 3 * n, 3 * n + 3), attempt=n + 1)

    assert predecessors(builder) == {"a.1": (), "a.2": ("a.1",), "a.3": ("a.2",), "a.4": ("a.3",)}
    assert critical_path(builder) == ["a.1", "a.2", "a.3", "a.4"]


def test_the_next_attempt_follows_an_attempt_that_failed_while_a_role_ran() -> None:
    builder = JobRecordBuilder()
    builder.role("planner", (0, 0, 1))
    builder.step("first", (1, 1, 2))
    builder.step("a", (2, 2, 5), after="first")
    builder.role("replanner", (2, 2, 6))
    builder.step("a", (7, 7, 8), after="first", attempt=2)

    assert predecessors(builder)["a.2"] == ("a.1",)


def test_a_revised_step_follows_its_assessor_even_with_dependencies() -> None:
    builder = team_job()
    builder.step("last", (9, 9, 11), after="quick slow", attempt=2)

    assert predecessors(builder)["last.2"] == ("assessor.1",)
    assert critical_path(builder) == ["planner.1", "slow.1", "last.1", "assessor.1", "last.2"]


def test_the_job_would_have_been_shorter_without_its_critical_path() -> None:
    assert critical_path(team_job()) == ["planner.1", "slow.1", "last.1", "assessor.1"]


def test_the_path_of_a_running_job_leads_to_the_running_handoffs() -> None:
    builder = JobRecordBuilder()
    builder.role("planner", (0, 0, 1))
    builder.step("a", (1, 1, 8))
    builder.running("b", (1, 2))

    line = build_timeline(builder.record(until=9.5))

    assert [bar.handoff_id for bar in line.bars if bar.is_critical] == ["planner.1", "b.1"]
    assert (line.begins_at, line.ends_at) == (0, 9.5)


def test_the_path_of_a_cancelled_job_leads_to_a_handoff_that_ran_until_then() -> None:
    builder = JobRecordBuilder()
    builder.role("planner", (0, 0, 1))
    builder.step("a", (1, 1, 8))
    builder.abandoned("late", (1, 1, 6))
    builder.dropped("b", (1, 2))

    line = build_timeline(builder.record(cancelled_at=9.5))

    assert [bar.handoff_id for bar in line.bars if bar.is_critical] == ["planner.1", "b.1"]


def test_an_abandoned_step_delayed_no_other_and_is_shown_until_then() -> None:
    builder = team_job()
    builder.abandoned("late", (1, 1, 6))

    (late,) = (bar for bar in build_timeline(builder.record()).bars if bar.step_id == "late")

    assert (late.state, late.ended_at, late.is_critical) == ("stopped", 6, False)
    assert critical_path(builder) == ["planner.1", "slow.1", "last.1", "assessor.1"]


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.sets(st.integers(0, 19), max_size=3)),
        max_size=20,
    )
)
def test_the_critical_path_is_one_chain_from_a_beginning_to_the_handoff_that_ended_last(
    steps: list[tuple[int, int, set[int]]],
) -> None:
    builder, ends = JobRecordBuilder(), list[float]()
    for n, (waited, worked, before) in enumerate(steps):
        needed = sorted(earlier for earlier in before if earlier < n)
        issued = max((ends[step] for step in needed), default=0.0) + 0.001 * (n + 1)
        ends.append(issued + waited + worked)
        builder.step(
            f"s{n}",
            (issued, issued + waited, ends[n]),
            after=" ".join(f"s{step}" for step in needed),
        )

    bars = [bar for bar in build_timeline(builder.record()).bars if bar.is_critical]

    assert [bar.ended_at for bar in bars[-1:]] == [max(ends)] if ends else bars == []
    for earlier, later in pairwise(bars):
        assert earlier.handoff_id in later.after


def planned_steps(*later: Event, **dependencies: str) -> dict[str, UnstartedStep]:
    """Return the steps without a handoff of a job whose planner and step a have ended.

    Args:
        later: events after that.
        dependencies: the dependencies of each step of the plan, separated by blanks.
    """
    builder = JobRecordBuilder()
    builder.role("planner", (0, 0, 1))
    builder.step("a", (1, 1, 2))
    record = builder.record()
    journal = [*record.journal]
    for event in later:
        journal.append(RecordedEvent(len(journal) + 1, 3.0, event))
    plan: list[dict[str, object]] = []
    for name, before in dependencies.items():
        plan.append({"id": name, "specialist": "writer", "depends_on": before.split()})
    steps = find_steps_without_handoff(journal, plan, build_timeline(record).bars)
    return {step.step_id: step for step in steps}


def gone(name: str) -> AbandonedStep:
    return AbandonedStep(step=StepId(name), result=make_ref("{}"))


def test_a_step_without_a_handoff_comes_after_its_dependencies_or_the_planner() -> None:
    steps = planned_steps(c="b a", b="a", a="", d="")

    assert list(steps) == ["b", "d", "c"], "each step comes after its dependencies"
    assert steps["b"].after == ("a.1",)
    assert steps["c"].after == ("plan/b", "a.1")
    assert steps["d"].after == ("planner.1",)
    assert {step.state for step in steps.values()} == {"not begun"}


def test_a_step_that_ended_without_a_handoff_says_why() -> None:
    abandoned = StepsAbandoned(steps=(gone("b"),), why="everything that it depends on failed")
    checked = ConditionsChecked(skipped=(gone("c"),), undecided=(gone("d"),))

    steps = planned_steps(abandoned, checked, a="", b="a", c="a", d="a")

    assert {name: (step.state, step.why) for name, step in steps.items()} == {
        "b": ("given up", "everything that it depends on failed"),
        "c": ("skipped", "its condition is not met"),
        "d": ("failed", "its condition could not be decided"),
    }


def test_a_retry_of_the_job_plans_a_step_again_that_was_given_up() -> None:
    abandoned = StepsAbandoned(steps=(gone("b"),), why="everything that it depends on failed")

    steps = planned_steps(abandoned, RetryRequested(), a="", b="a")

    assert (steps["b"].state, steps["b"].why) == ("not begun", "")
