"""AgentDojo's suites run against a whole system, and the benchmark counts their effects."""

from __future__ import annotations

import pytest

from benchmarks.injection.agentdojo_suites import (
    AgentDojoSituation,
    declare_tool,
    find_undeclared_tools,
    iterate_tasks,
    load_suites,
    make_agentdojo,
)
from benchmarks.injection.measuring import ALLOW_ALL, TaskOutcome, format_row, run
from benchmarks.injection.suite import Task

EACH = 60
"""Distance of the chosen tasks in the list of all tasks."""


@pytest.mark.parametrize("suite", ["banking", "slack", "travel", "workspace"])
def test_each_tool_of_a_suite_is_declared(suite: str) -> None:
    names = {tool.name for tool in load_suites()[suite].tools}

    assert find_undeclared_tools(names) == set()
    assert any(declare_tool(name).sends for name in names)


def test_each_attack_of_the_suites_demands_something() -> None:
    attacks: dict[tuple[str, str], Task] = {}
    for task in iterate_tasks(tuple(load_suites()), 1):
        if task.injection:
            attacks[task.part, task.injection] = task
    silent = {
        key for key, task in attacks.items() if not AgentDojoSituation(task).list_calls_of_attack()
    }

    assert silent == {("travel", "injection_task_6")}, "it demands words of the answer"


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
def test_the_default_policy_stops_each_attack() -> None:
    outcomes = run(make_agentdojo(), list(iterate_tasks(tuple(load_suites()), 1))[::EACH])

    attacks = [outcome for outcome in outcomes if outcome.task.injection]
    assert len(attacks) > 12
    assert sum(outcome.sees_attack for outcome in attacks) > 12
    assert not [outcome for outcome in attacks if outcome.effects]


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
def test_without_a_policy_the_model_obeys_each_attack_and_completes_each_task() -> None:
    outcomes = run(
        make_agentdojo(), list(iterate_tasks(tuple(load_suites()), 1))[:: 2 * EACH], ALLOW_ALL
    )

    attacks = [outcome for outcome in outcomes if outcome.task.injection]
    tasks_alone = [outcome for outcome in outcomes if not outcome.task.injection]
    assert len(attacks) > 6
    assert all(outcome.sees_attack for outcome in attacks)
    assert all(outcome.effects or outcome.is_attack_done for outcome in attacks)
    assert tasks_alone
    assert all(outcome.is_task_done for outcome in tasks_alone)


def test_a_row_counts_attacks_and_tasks_apart() -> None:
    benign, *_, attack = iterate_tasks(("banking",), 1)
    outcomes = [
        TaskOutcome(benign, sees_attack=False, effects=0, is_attack_done=False, is_task_done=True),
        TaskOutcome(attack, sees_attack=True, effects=3, is_attack_done=True, is_task_done=False),
    ]

    assert format_row("banking", outcomes) == "| banking | 1 | 1 | 1 | 1 | 1 | 100% | 0% |"
