"""`handoff top` on a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console, RenderableType

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.daily_budgets import DaySpending
from handoff_queue.shared.store.fleet_load import (
    FleetLoad,
    QueueBacklog,
    RateLimitBucket,
    RunningHandoff,
)
from handoff_queue.shared.store.spending_history import Amounts
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.rate_limits import Allowance
from handoff_queue.supervisor.cli.stats import StatsColumns, format_headline
from handoff_queue.supervisor.cli.top import (
    FleetOverview,
    MinuteSpending,
    TopScreen,
    find_job_by_key,
    sort_by_start,
)
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.fleet_statistics import FleetStats, compute_stats
from tests.doubles.jobs import a_job, granted_claim, issue

NOW = 1_000.0
JOB, OTHER = JobId("j-0123456789ab"), JobId("j-ba9876543210")
OLD_HANDOFF = RunningHandoff(
    OTHER, HandoffId("old.1"), "writer", "w1", "search_documents", 2, NOW - 90, None
)
NEW_HANDOFF = RunningHandoff(
    JOB, HandoffId("new.1"), "researcher", "w1", "\x1b[31mred", 0, NOW - 5, None
)
LOAD = FleetLoad(
    NOW,
    2,
    1,
    (NEW_HANDOFF, OLD_HANDOFF),
    {"poet": QueueBacklog(3, NOW - 12)},
    (RateLimitBucket("a", "some-model", {"requests": Allowance(50, 7)}, NOW + 8, "rate limit", 4),),
    2,
)
ROWS = sort_by_start(LOAD.at_work)
STATS = compute_stats(LOAD, {}, {}, DaySpending(1_200, 500_000, 0, 2_000_000), 60.0)


def rendered(view: RenderableType) -> str:
    file = StringIO()
    Console(width=140, file=file).print(view)
    return file.getvalue()


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        (Amounts(input=200, cached=150, saved=50_000, surcharge=10_000), "$0.0400 saved)"),
        (Amounts(input=200, cached=150, surcharge=10_000), "$0.0100 lost)"),
    ],
)
def test_the_statistics_have_the_cached_input_of_today(amounts: Amounts, expected: str) -> None:
    stats = compute_stats(LOAD, {}, {}, DaySpending(1, 1, 0, 0), 60.0, amounts)
    assert f"today (75% of the input cached, {expected}" in format_headline(stats)
    assert "cached" not in format_headline(STATS)
    assert stats.as_json()["cached_share"] == 0.75


def test_the_statistics_have_the_calls_in_batches_of_today() -> None:
    amounts = Amounts(batched=2, batch_saved=250_000)
    stats = compute_stats(LOAD, {}, {}, DaySpending(1, 1, 0, 0), 60.0, amounts)
    assert "today (2 calls in batches, $0.2500 saved)" in format_headline(stats)
    assert "batches" not in format_headline(STATS)
    assert (stats.as_json()["batch_calls"], stats.as_json()["batch_saved_usd"]) == (2, 0.25)


def spending_of(*samples: tuple[float, int, int]) -> MinuteSpending:
    spending = MinuteSpending()
    for sample in samples:
        spending.add(*sample)
    return spending


def test_the_longest_running_handoff_comes_first_and_has_the_first_key() -> None:
    rows = sort_by_start(LOAD.at_work)

    assert [row.handoff_id for row in rows] == ["old.1", "new.1"]
    assert [find_job_by_key(rows, key) for key in ("1", "2", "3", "", "q", "12")] == [
        OTHER,
        JOB,
        None,
        None,
        None,
        None,
    ]


def test_stats_show_unserved_queues_refusals_spending_and_dead_letters() -> None:
    output = rendered(StatsColumns(STATS))

    for expected_texts in (
        "poet",
        "12 s",
        "requests 7 of 50 left",
        "no call for 8 s: rate limit",
        "4 calls waiting",
        "$0.5000 of $2.0000",
        "2 dead letters",
    ):
        assert expected_texts in output


@pytest.mark.parametrize(("supervisors", "colour"), [(0, "31"), (1, "33")])
def test_roles_that_wait_are_red_without_a_supervisor(supervisors: int, colour: str) -> None:
    waiting = {"roles": QueueBacklog(3, NOW)}
    load = FleetLoad(NOW, 1, supervisors, (), waiting, role_slots=2 * supervisors)
    file = StringIO()
    console = Console(width=140, file=file, force_terminal=True, color_system="standard")

    console.print(StatsColumns(compute_stats(load, {}, {}, DaySpending(0, 0, 0, 0), 60.0)))

    (line,) = [line for line in file.getvalue().splitlines() if "roles" in line]
    assert f"\x1b[{colour}m" in line


def test_a_model_under_two_accounts_has_two_lines_with_their_accounts() -> None:
    buckets = tuple(
        RateLimitBucket(account, model, {}, None, "", 0)
        for account, model in (("0a1b2c3d", "twice"), ("4e5f6071", "twice"), ("4e5f6071", "once"))
    )

    output = rendered(
        StatsColumns(
            compute_stats(
                FleetLoad(NOW, 0, 1, (), {}, buckets), {}, {}, DaySpending(0, 0, 0, 0), 60.0
            )
        )
    )

    assert [
        line.strip().partition(":")[0] for line in output.splitlines() if "no limits known" in line
    ] == [
        "twice (account 0a1b2c)",
        "twice (account 4e5f60)",
        "once",
    ]


def test_the_name_of_a_tool_cannot_control_the_terminal() -> None:
    assert "\x1b[31m" not in rendered(FleetOverview(STATS, NOW, ROWS, spending_of((NOW, 0, 0))))


def test_spending_covers_the_last_minute() -> None:
    spending = spending_of((0.0, 0, 0), (40.0, 9_000_000, 900), (100.0, 10_000_000, 1_000))

    assert spending.in_last_minute() == (1.0, 100, 60.0)
    assert str(spending) == "$1.0000, 100 tokens in the last minute"


def test_a_new_day_starts_at_zero() -> None:
    assert spending_of(
        (0.0, 9_000_000, 900), (30.0, 0, 0), (60.0, 1_000_000, 50)
    ).in_last_minute() == (
        1.0,
        50,
        30.0,
    )


def test_spending_names_the_measured_time() -> None:
    assert str(spending_of((0.0, 0, 0))) == "spending is measured from now on"
    assert str(spending_of((0.0, 0, 0), (2.1, 2_900, 600))) == "$0.0029, 600 tokens in the last 2 s"


def rendered_lines(
    stats: FleetStats, rows: tuple[RunningHandoff, ...], width: int, height: int
) -> list[str]:
    file = StringIO()
    Console(width=width, height=height, file=file, force_terminal=True, color_system=None).print(
        FleetOverview(stats, NOW, rows, spending_of((NOW, 0, 0)))
    )
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 80])
def test_a_small_terminal_hides_idle_agents_first_and_never_the_keys(
    width: int,
) -> None:
    long = "check_the_supplier_contract_carefully"
    works = tuple(
        RunningHandoff(
            JOB,
            HandoffId(f"{long}_{n:04d}.1"),
            "researcher",
            "w",
            "search_documents",
            2,
            NOW - 90,
            None,
        )
        for n in range(40)
    )
    idle = {f"idle{n:02d}": QueueBacklog(0, None) for n in range(12)}
    stats = compute_stats(
        FleetLoad(NOW, 2, 1, works, {**idle, "poet": QueueBacklog(797, NOW - 12)}),
        {},
        {},
        DaySpending(1_200, 294_382, 0, 0),
        60.0,
    )

    lines = rendered_lines(stats, works, width, 24)

    assert len(lines) <= 24
    assert max(map(len, lines)) <= width
    at_work = [line for line in lines if "90 s" in line]
    assert lines[-1].startswith(
        f"1-9: open a job   q: end   and {40 - len(at_work)} more running"[: width - 1]
    )
    assert len(at_work) >= 9
    assert at_work[0].split()[0] == "1"
    assert "0000.1" in at_work[0]
    assert any(line.startswith("13 idle: idle00, idle01") for line in lines)
    (poet,) = (line for line in lines if line.startswith("poet"))
    assert "797" in poet


@pytest.mark.parametrize("height", range(1, 8))
def test_a_terminal_of_a_few_lines_shows_the_keys_and_no_line_too_many(
    height: int,
) -> None:
    lines = rendered_lines(STATS, ROWS, 60, height)

    assert len(lines) <= height
    assert lines[-1].startswith("1-9: open a job   q: end")


def test_on_a_small_terminal_agents_are_shown_and_running_handoffs_are_counted() -> None:
    lines = rendered_lines(STATS, ROWS, 40, 10)

    assert [line.split()[0] for line in lines[5:8]] == ["poet", "researcher", "writer"]
    assert lines[-1].split("   ") == ["1-9: open a job", "q: end", "2 running"]


def test_on_a_large_terminal_every_agent_has_its_row() -> None:
    assert not any(" idle: " in line for line in rendered_lines(STATS, ROWS, 140, 50))


def test_a_job_that_is_deleted_while_it_is_shown_is_reported_as_deleted(redis_url: str) -> None:
    jobs = client.connect(redis_url, Settings(offline=True, lease_s=3_600))
    job_id = a_job(jobs.store)
    issue(jobs.store, job_id, "planner.1", role="planner", group=None)
    granted_claim(jobs.store, job_id, "planner.1")
    screen = TopScreen(jobs)
    screen.draw()
    screen.press("1")
    assert f"{job_id}  running" in rendered(screen.draw())

    jobs.store.connection.redis.flushall()

    assert f"{job_id} was deleted" in rendered(screen.draw())
    assert "Esc: back" in rendered(screen.draw())
    jobs.store.connection.close()
