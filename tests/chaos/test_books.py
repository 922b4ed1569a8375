"""Books that can be read only one way: whatever was promised, there are books in which it is broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from chaos.books import TOO_MANY_CLAIMS, Books, Story
from chaos.faults import EVERYBODY, Fault, Strike
from chaos.model import Call
from chaos.plan import CallKey, PlannedJob, PlannedStep, Shape
from chaos.report import broken_of, is_kept, json_of, table_of

JOB = PlannedJob("1-0", Shape.PARALLEL, (PlannedStep("a", "writer", turns=2),), seed=1)
GOOD = Story("ok", (20.0,), {"planner.1": (1.5,), "a.1": (9.0,), "assessor.1": (19.0,)})
CALLS = (("planner.1", 1, 1.0), ("a.1", 1, 2.0), ("a.1", 2, 3.0), ("assessor.1", 1, 18.0))


def call(handoff: str, turn: int, at: float, process: str = "worker1") -> Call:
    return Call(CallKey("1-0", handoff, turn), process, at, tokens=120)


def books(
    *more: Call,
    strikes: Sequence[Strike] = (),
    story: Story = GOOD,
    jobs: Sequence[PlannedJob] = (JOB,),
    left_behind: Sequence[str] = (),
    not_reached: Sequence[str] = (),
) -> Books:
    stories: Mapping[str, Story] = {"1-0": story}
    return Books(jobs, [*(call(*one) for one in CALLS), *more], strikes, stories, 3.0, left_behind, not_reached)


def killed(at: float, process: str = "worker1") -> Strike:
    return Strike(Fault.KILL_WORKER, process, at)


def test_without_faults_nothing_is_repeated_and_everything_is_kept() -> None:
    found = books()

    assert (found.made, found.needed, found.repeated, found.in_the_air) == (4, 4, 0, 0)
    assert is_kept(found)
    assert json_of(found)["kept"] is True


def test_a_call_that_was_in_the_air_at_a_kill_may_be_repeated_once() -> None:
    found = books(call("a.1", 2, 6.0, "worker2"), strikes=[killed(3.5)])

    assert (found.repeated, found.in_the_air, found.unexplained) == (1, 1, [])
    assert found.longest_recovery_s == 2.5
    assert is_kept(found)


def test_a_call_is_in_the_air_also_if_the_server_reads_it_a_moment_after_the_kill() -> None:
    assert is_kept(books(call("a.1", 2, 6.0, "worker2"), strikes=[killed(2.9)]))


@pytest.mark.parametrize(
    ("strikes", "again"),
    [
        ([], call("a.1", 2, 6.0)),
        ([killed(3.5, "worker2")], call("a.1", 2, 6.0)),
        ([killed(3.8)], call("a.1", 1, 6.0)),
        ([killed(1.2)], call("a.1", 2, 6.0)),
        ([Strike(Fault.TWICE, EVERYBODY, 3.5)], call("a.1", 2, 6.0)),
    ],
    ids=["nobody was struck", "somebody else was", "its turn was over", "it was before", "a second message is no excuse"],
)
def test_a_repeated_call_that_no_strike_explains_is_a_broken_promise(strikes: list[Strike], again: Call) -> None:
    assert "calls repeated that were not in the air" in broken_of(books(again, strikes=strikes))


def test_two_repetitions_need_two_strikes() -> None:
    twice = (call("a.1", 2, 5.0, "worker2"), call("a.1", 2, 6.0, "worker3"))

    assert "calls repeated that were not in the air" in broken_of(books(*twice, strikes=[killed(3.5)]))
    assert is_kept(books(*twice, strikes=[killed(3.5), killed(5.2, "worker2")]))


@pytest.mark.parametrize(
    ("story", "what"),
    [
        (Story("running"), "jobs lost"),
        (Story("ok", (20.0, 21.0)), "jobs that ended twice"),
        (Story("ok", (20.0,), {"a.1": (9.0, 10.0)}), "handoffs with two results"),
        (Story("partial", (20.0,), why="a defect of ours"), "jobs that ended otherwise than without faults"),
    ],
)
def test_how_a_job_ended_can_break_a_promise(story: Story, what: str) -> None:
    assert broken_of(books(story=story)) == [what]


def test_a_job_with_a_handoff_that_was_killed_three_times_ends_as_it_was_promised() -> None:
    story = Story("partial", (20.0,), stop_reasons=frozenset({TOO_MANY_CLAIMS}), why="its worker died")

    assert is_kept(books(story=story))
    assert "killed three times" in table_of(books(story=story))


def test_one_call_over_the_budget_is_an_overrun_by_whatever_it_was_caused() -> None:
    tight = PlannedJob("1-0", Shape.TIGHT, JOB.steps, seed=1)

    assert broken_of(books(jobs=[tight])) == []
    assert "jobs over their budget, by the server's books" in broken_of(books(call("a.1", 2, 6.0), jobs=[tight], strikes=[killed(3.5)]))


def test_a_recovery_is_late_after_its_lease_and_five_seconds_if_nothing_else_was_struck_meanwhile() -> None:
    late, soon = call("a.1", 2, 12.0, "worker2"), call("a.1", 2, 8.9, "worker2")
    story = Story("ok", (20.0,), {"planner.1": (1.5,)})
    besides = Strike(Fault.KILL_REDIS, EVERYBODY, 5.0)

    assert broken_of(books(late, strikes=[killed(3.5)], story=story)) == ["longest recovery"]
    assert broken_of(books(soon, strikes=[killed(3.5)], story=story)) == []
    assert broken_of(books(late, strikes=[killed(3.5), besides], story=story)) == []


def test_what_stays_in_redis_and_what_was_never_tried_are_told() -> None:
    assert broken_of(books(left_behind=["handoff:due: j-1"])) == ["keys left behind"]
    assert broken_of(books(not_reached=["kill at script.turn.before of a worker"])) == ["failpoints that nobody came by"]
