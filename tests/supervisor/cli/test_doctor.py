"""Findings of `handoff doctor`. tests/e2e/test_cli_jobs.py runs it against a whole system."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import SecretStr

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.daily_budgets import DailyCaps, DaySpending, TodaysBudgets
from handoff_queue.shared.store.health import QueueDepth, RedisFacts
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.memory_notes import MAX_NOTES
from handoff_queue.shared.types.presence import Announcement, Node
from handoff_queue.shared.types.specialist import ContextRules
from handoff_queue.supervisor.cli.doctor import (
    check_budgets,
    check_memory,
    check_model_access,
    check_persistence,
    examine,
    find_ignored_variables,
    find_lost_slots,
    find_not_served,
    find_unserved_queues,
)
from handoff_queue.supervisor.cli.doctor_processes import (
    AnnouncedProcess,
    CheckLevel,
    Finding,
    check_brokers,
)
from tests.doubles.handoffs import a_spec
from tests.doubles.jobs import a_job, issue
from tests.workers.tools.servers import Page, serving

SOUND_REDIS = RedisFacts(
    (7, 0, 15),
    is_primary=True,
    append_only=True,
    eviction="noeviction",
    max_memory_bytes=1_000,
    used_memory_bytes=100,
)


def problems_with(facts: RedisFacts) -> dict[str, CheckLevel]:
    return {
        finding.about: finding.level
        for finding in check_persistence(facts)
        if finding.level is not CheckLevel.OK
    }


def test_a_sound_redis_has_no_findings() -> None:
    assert problems_with(SOUND_REDIS) == {}
    assert all(finding.fix == "" for finding in check_persistence(SOUND_REDIS))


@pytest.mark.parametrize(
    ("facts", "about", "level"),
    [
        (replace(SOUND_REDIS, version=(6, 0, 16)), "version", CheckLevel.FAIL),
        (replace(SOUND_REDIS, version=()), "version", CheckLevel.FAIL),
        (replace(SOUND_REDIS, is_primary=False), "role", CheckLevel.FAIL),
        (replace(SOUND_REDIS, append_only=False), "persistence", CheckLevel.WARN),
        (replace(SOUND_REDIS, eviction="allkeys-lru"), "eviction", CheckLevel.FAIL),
        (replace(SOUND_REDIS, used_memory_bytes=701), "memory", CheckLevel.WARN),
        (replace(SOUND_REDIS, limits_clients=False), "clients", CheckLevel.WARN),
    ],
)
def test_settings_that_would_lose_jobs_are_reported_with_a_fix(
    facts: RedisFacts, about: str, level: CheckLevel
) -> None:
    assert problems_with(facts) == {about: level}
    assert all(
        finding.fix for finding in check_persistence(facts) if finding.level is not CheckLevel.OK
    )


def test_an_unserved_queue_is_named_with_its_messages() -> None:
    (finding,) = find_unserved_queues(
        [QueueDepth("poet", 3, 2), QueueDepth("writer", 5, 5), QueueDepth("old", 0, 0)], {"writer"}
    )

    assert (finding.level, finding.about) == (CheckLevel.WARN, "queue poet")
    assert finding.report.startswith("3 messages waiting")
    assert "`handoff worker poet`" in finding.fix


def test_messages_of_ended_jobs_can_be_removed() -> None:
    (finding,) = find_unserved_queues([QueueDepth("poet", 1, 0)], set())

    assert "1 message waiting" in finding.report
    assert "`redis-cli DEL poet`" in finding.fix


@pytest.mark.parametrize(("lost", "level"), [(1, CheckLevel.WARN), (2, CheckLevel.FAIL)])
def test_a_worker_whose_slots_are_lost_is_named(lost: int, level: CheckLevel) -> None:
    announcement = Announcement(worker="host:7", specialists=(), slots=2, model="offline")

    assert list(find_lost_slots([announcement])) == []
    (finding,) = find_lost_slots([announcement.model_copy(update={"lost_slots": lost})])
    assert (finding.level, finding.about) == (level, "worker host:7")
    assert finding.report.startswith(f"{lost} of 2 slots are lost")
    assert finding.fix == "start this worker again"


def test_a_specialist_that_a_worker_cannot_serve_is_named_with_the_reason() -> None:
    announcement = Announcement(
        worker="host:7", specialists=(), not_served={"coder": "no sandbox: no bubblewrap"}
    )

    (finding,) = find_not_served([announcement])
    assert (finding.level, finding.about) == (CheckLevel.WARN, "worker host:7")
    assert finding.report == "it cannot serve coder: no sandbox: no bubblewrap"


def findings_of(redis_url: str) -> dict[str, Finding]:
    return {
        finding.about: finding
        for finding in examine(Settings(redis_url=SecretStr(redis_url), offline=True))
    }


@pytest.mark.slow
def test_messages_of_a_queue_that_no_worker_announced_are_found_in_redis(
    store: Store, redis_url: str
) -> None:
    issue(store, a_job(store), "a.1", role="poet")
    store.connection.redis.lpush("poet", "a.1")

    finding = findings_of(redis_url)["queue poet"]

    assert (finding.level, finding.report.split(",")[0]) == (CheckLevel.WARN, "1 message waiting")


@pytest.mark.slow
def test_dead_letters_are_reported_with_the_commands_for_them(store: Store, redis_url: str) -> None:
    store.dead_letters.add("researcher", "no handoff", "{}")

    finding = findings_of(redis_url)["dead letters"]

    assert finding.level is CheckLevel.WARN
    assert "`handoff dead show ID`" in finding.fix
    assert "`handoff dead drop --all`" in finding.fix


def test_a_memory_is_a_warning_when_it_is_almost_full() -> None:
    assert list(check_memory(MAX_NOTES * 9 // 10 - 1)) == []
    (almost,), (full,) = check_memory(MAX_NOTES * 9 // 10), check_memory(MAX_NOTES)
    assert (almost.level, almost.report) == (CheckLevel.WARN, "900 of 1,000 notes")
    assert full.report == "1,000 of 1,000 notes: agents keep no new facts"


def test_the_spending_of_today_is_shown_with_its_limits() -> None:
    assert list(
        check_budgets(
            TodaysBudgets(
                DaySpending(1_200, 500_000, 0, 2_000_000), DaySpending(1_200, 500_000, 0, 0), 60.0
            )
        )
    ) == [Finding(CheckLevel.OK, "budget of the day", "$0.5 of $2, 1,200 tokens")]
    assert [
        finding.report
        for finding in check_budgets(
            TodaysBudgets(DaySpending(0, 0, 0, 0), DaySpending(0, 0, 0, 0), 60.0)
        )
    ] == ["$0, 0 tokens, no cap"]


def test_a_spent_daily_budget_is_reported_with_its_end_and_its_setting() -> None:
    everybody, tenant = check_budgets(
        TodaysBudgets(DaySpending(900, 7, 1_000, 0), DaySpending(900, 7, 900, 0), 3_600.0)
    )

    assert everybody.level is CheckLevel.OK
    assert (tenant.level, tenant.about, tenant.report) == (
        CheckLevel.WARN,
        "budget of the day, tenant default",
        "$0.000007, 900 of 900 tokens: spent",
    )
    assert tenant.fix.startswith(
        "there is more at 00:00 UTC, in 1 h 1 min; or raise HANDOFF_TENANT_DAY_USD or"
        " HANDOFF_TENANT_DAY_TOKENS"
    )


def test_a_daily_budget_with_too_little_left_counts_as_spent() -> None:
    (everybody,) = check_budgets(
        TodaysBudgets(
            DaySpending(900, 324_000, 0, 500_000, needed_microusd=200_000),
            DaySpending(900, 324_000, 0, 0),
            3_600.0,
        )
    )

    assert (everybody.level, everybody.report) == (
        CheckLevel.WARN,
        "$0.324 of $0.5, 900 tokens: spent, and a call may need $0.2",
    )


@pytest.mark.slow
def test_the_budget_of_the_day_is_read_from_the_store(store: Store, redis_url: str) -> None:
    store.daily_budgets.set_caps(DailyCaps(day_usd=3_000_000))

    assert findings_of(redis_url)["budget of the day"].report == "$0 of $3, 0 tokens"


def test_a_process_that_takes_its_messages_from_another_broker_is_named() -> None:
    here = AnnouncedProcess("worker", "h:1", Node(node="here@h", broker="redis://:**@a:6379/0"))
    away = AnnouncedProcess("worker", "h:2", Node(node="away@h", broker="redis://b:6379/1"))

    warning, ok = check_brokers([here, away], {"here@h", "supervisor@h"})

    assert (warning.level, warning.about) == (CheckLevel.WARN, "process away@h")
    assert "redis://b:6379/1" in warning.report
    assert ok == Finding(CheckLevel.OK, "broker of processes", "redis://:**@a:6379/0")


def test_supervisors_and_workers_announce_their_brokers(store: Store) -> None:
    supervisor = Node(node="supervisor@h", broker="redis://b:6379/1")
    store.presence.announce_supervisor("h:2", supervisor)
    store.presence.announce(
        Announcement(
            worker="h:1",
            specialists=(a_spec(name="writer"),),
            slots=1,
            model="offline",
            node="workers@h",
            broker="redis://a:6379/0",
        )
    )

    first, second = store.presence.list_processes()
    assert (first.kind, first.name, first.node) == ("supervisor", "h:2", supervisor)
    assert (second.kind, second.name) == ("worker", "h:1")
    assert second.node is not None
    assert (second.node.node, second.node.broker) == ("workers@h", "redis://a:6379/0")

    store.presence.withdraw_supervisor("h:2")
    assert [process.name for process in store.presence.list_processes()] == ["h:1"]


def test_a_broker_variable_of_other_applications_is_reported_as_ignored() -> None:
    (finding,) = find_ignored_variables({"CELERY_BROKER_URL", "PATH"})

    assert (finding.level, finding.about) == (
        CheckLevel.OK,
        "this shell: variable CELERY_BROKER_URL",
    )
    assert "HANDOFF_REDIS_URL" in finding.report


@pytest.mark.slow
def test_the_limits_of_a_served_specialist_are_compared_with_its_model(
    store: Store, redis_url: str
) -> None:
    spec = a_spec(name="reader").model_copy(
        update={"context": ContextRules(clear_tools_at=300_000), "model": "claude-haiku-4-5"}
    )
    store.presence.announce(
        Announcement(worker="h:1", specialists=(spec,), slots=1, model="anthropic")
    )
    assert findings_of(redis_url)["specialist reader"].level is CheckLevel.WARN


def test_the_password_of_a_gateway_is_not_shown() -> None:
    url = "http://team:canary-90f3e1@127.0.0.1:1"

    level, finding, _ = check_model_access(
        Settings.model_validate({"offline": False, "ANTHROPIC_BASE_URL": url})
    )

    assert (level, finding.partition(" cannot")[0]) == ("fail", "http://127.0.0.1:1")


def test_the_key_does_not_follow_a_redirect_of_the_list_of_models() -> None:
    with serving({"/elsewhere": Page(b"{}")}) as other:
        location = {"Location": f"http://127.0.0.1:{other.port}/elsewhere"}
        redirect = Page(b"", status=302, headers=location)
        with serving({"/v1/models?limit=1": redirect}) as server:
            url = f"http://127.0.0.1:{server.port}"
            level, finding, fix = check_model_access(
                Settings.model_validate({"offline": False, "ANTHROPIC_BASE_URL": url})
            )

    assert other.requests == []
    assert (level, finding) == ("fail", f"{url} redirects to another address (302)")
    assert "ANTHROPIC_BASE_URL" in fix


def test_a_provider_without_its_settings_fails() -> None:
    level, finding, _ = check_model_access(Settings.model_validate({"model_provider": "foundry"}))

    assert level == "fail"
    assert "HANDOFF_MODEL_PROVIDER=foundry" in finding
