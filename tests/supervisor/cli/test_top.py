"""The fleet on a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType

from shared.ledger.days import Spent
from shared.ledger.load import AtWork, Lane, Load, Waiting
from shared.wire.ids import HandoffId, JobId
from shared.wire.pace import Allowance
from supervisor.cli.stats import shown
from supervisor.cli.top import Spending, fleet, job_of, longest
from supervisor.fleet_stats import stats_of

NOW = 1_000.0
JOB, OTHER = JobId("j-0123456789ab"), JobId("j-ba9876543210")
OLD = AtWork(OTHER, HandoffId("old.1"), "writer", "w1", "search_documents", 2, NOW - 90, None)
NEW = AtWork(JOB, HandoffId("new.1"), "researcher", "w1", "\x1b[31mred", 0, NOW - 5, None)
LOAD = Load(
    NOW,
    2,
    1,
    (NEW, OLD),
    {"poet": Waiting(3, NOW - 12)},
    (Lane("a", "some-model", {"requests": Allowance(50, 7)}, NOW + 8, "rate limit", 4),),
    2,
)
STATS = stats_of(LOAD, {}, {}, Spent(1_200, 500_000, 0, 2_000_000), 60.0)


def text(what: RenderableType) -> str:
    file = StringIO()
    Console(width=140, file=file).print(what)
    return file.getvalue()


def spent(*samples: tuple[float, int, int]) -> Spending:
    spending = Spending()
    for sample in samples:
        spending.add(*sample)
    return spending


def test_what_has_been_at_work_for_longest_comes_first_and_has_the_first_key() -> None:
    rows = longest(LOAD)

    assert [one.handoff_id for one in rows] == ["old.1", "new.1"]
    assert [job_of(rows, key) for key in ("1", "2", "3", "", "q", "12")] == [OTHER, JOB, None, None, None, None]


def test_a_queue_that_nobody_serves_quota_refusals_money_and_dead_letters_are_told() -> None:
    said = text(shown(STATS))

    for words in (
        "poet",
        "12 s",
        "requests 7 of 50 left",
        "no call for 8 s: rate limit",
        "4 calls in line",
        "$0.5 of $2",
        "2 dead letters",
    ):
        assert words in said


def test_what_a_tool_is_called_cannot_steer_the_terminal() -> None:
    assert "\x1b[31m" not in text(fleet(STATS, NOW, longest(LOAD), spent((NOW, 0, 0))))


def test_spending_is_that_of_the_last_minute() -> None:
    spending = spent((0.0, 0, 0), (40.0, 9_000_000, 900), (100.0, 10_000_000, 1_000))

    assert spending.a_minute() == (1.0, 100.0)


def test_a_new_day_begins_anew() -> None:
    assert spent((0.0, 9_000_000, 900), (30.0, 0, 0), (60.0, 1_000_000, 50)).a_minute() == (2.0, 100.0)
