"""Every script of the store, and every publication to a queue, has failpoint cases."""

from __future__ import annotations

import pytest

from handoff_queue.chaos.failpoint_cases import (
    CLIENT,
    PUBLISHES,
    SCRIPTS,
    UNTRIED,
    Case,
    FailpointAction,
    list_cases,
)
from handoff_queue.chaos.fleet import CONSOLE, SUPERVISOR, WORKER
from handoff_queue.shared.store.redis.script import list_script_names
from handoff_queue.shared.types import names

CASES = list_cases()


def test_every_script_of_the_store_has_failpoints_or_a_reason_for_none() -> None:
    assert set(list_script_names()) == set(SCRIPTS) | set(UNTRIED)


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_a_process_that_runs_a_script_is_killed_before_and_after_it_and_loses_its_reply(
    script: str,
) -> None:
    tried = {
        (case.kind, case.point.rpartition(".")[2], case.action)
        for case in CASES
        if case.point.startswith(f"script.{script}.")
    }

    for kind in SCRIPTS[script]:
        assert {
            (kind, "before", FailpointAction.KILL),
            (kind, "after", FailpointAction.KILL),
            (kind, "after", FailpointAction.DROP),
        } <= tried
    assert SCRIPTS[script], "at least one kind of process runs the script"


def test_every_queue_of_the_supervisors_and_every_part_of_a_chord_has_failpoints() -> None:
    queues = {value for name, value in vars(names).items() if name.endswith("_QUEUE")} - {
        names.UNROUTED_QUEUE
    }

    assert set(PUBLISHES) == queues | {"part"}
    assert Case(SUPERVISOR, "publish.part.after", FailpointAction.KILL) in CASES, (
        "a kill in the middle of a chord"
    )


def test_redis_is_killed_after_every_frequent_failpoint() -> None:
    kills = [
        case
        for case in CASES
        if case.action is FailpointAction.KILL
        and case.trigger.is_met_often
        and case.point.endswith(".after")
    ]
    redis_kills = {
        (case.kind, case.point)
        for case in CASES
        if case.action is FailpointAction.REDIS and case.point.endswith(".after")
    }

    assert {
        (case.kind, case.point) for case in kills if case.point != "chord.part.after"
    } == redis_kills


def test_cases_cover_every_kind_of_process_without_duplicates() -> None:
    assert {case.kind for case in CASES} == {WORKER, SUPERVISOR, CLIENT, CONSOLE}
    assert len(set(CASES)) == len(CASES)


def test_redis_is_killed_before_every_frequent_script() -> None:
    frequent = {
        (kind, f"script.{script}.before")
        for script, kinds in SCRIPTS.items()
        for kind, trigger in kinds.items()
        if trigger.is_met_often
    }

    assert frequent - {(CLIENT, point) for _, point in frequent} == {
        (case.kind, case.point)
        for case in CASES
        if case.action is FailpointAction.REDIS and case.point.endswith(".before")
    }
