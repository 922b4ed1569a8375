"""The pages of the console for money, schedules and evaluations work in a real browser."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.spending_history import DAY_S
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.schedules import ScheduleOptions
from tests.browser.console import (
    DeadLettersPage,
    EvaluationsPage,
    FleetPage,
    MoneyPage,
    SchedulesPage,
    problems_everywhere,
)
from tests.browser.driver import Browser
from tests.doubles.jobs import a_job, claim, issue
from tests.shared.store.test_golden_set_history import a_run
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow]
HOSTILE = (
    "</title></td><script>document.title='taken'</script><img src=x"
    " onerror=\"document.title='taken'\">"
)


def test_a_user_reads_the_spending_of_all_tenants_and_of_one(
    window: Browser, jobs: Client, url: str
) -> None:
    today, redis = int(jobs.store.connection.now()) // DAY_S, jobs.store.connection.redis
    for tenant, usd in ((HOSTILE, 500_000), ("acme", 2_000_000)):
        redis.hincrby(keys.spending(today), f"usd\t{tenant}\t{HOSTILE}\tsome-model\tteam", usd)
    redis.expire(keys.spending(today), 600)
    page = MoneyPage(window, url).open("days=7")
    of_all, bars = page.spent(), page.bars()
    problems = problems_everywhere(window)

    page.choose_tenant("acme")

    wait_until(lambda: page.spent() == "$2.0000", expected="the spending of one tenant")
    assert of_all == "$2.5000"
    assert bars == [2.5]
    assert problems == []
    assert window.run("return document.title") == "Money - Handoff Queue"
    assert window.console_errors() == []


def test_a_user_adds_pauses_unpauses_runs_and_removes_a_schedule(
    window: Browser, jobs: Client, url: str
) -> None:
    page = SchedulesPage(window, url).open()
    page.add(name="news", cron="every day", timezone="Europe/Berlin", text=HOSTILE)
    wait_until(lambda: "every day" in page.refusal(), expected="the refusal")
    problems = problems_everywhere(window)
    page.correct(cron="0 9 * * *")
    wait_until(lambda: "09:00" in page.row("news"), expected="the schedule")
    problems += problems_everywhere(window)

    page.act("pause", "news")
    wait_until(lambda: "paused" in page.row("news"), expected="the pause")
    page.act("unpause", "news")
    wait_until(lambda: "09:00" in page.row("news"), expected="the next times")
    page.act("run", "news")
    wait_until(lambda: "/jobs/j-" in window.run("return location.href"), expected="the new job")
    page.open().remove("news")
    wait_until(lambda: page.row("news") == "", expected="the removal")

    assert jobs.schedules() == []
    assert len(jobs.newest()) == 1
    assert problems == []
    assert window.run("return document.title") == "Schedules - Handoff Queue"
    assert [text for text in window.console_errors() if "/schedules/new" not in text] == []


def test_a_user_sends_a_dead_letter_again_and_deletes_others(
    window: Browser, jobs: Client, url: str
) -> None:
    job_id = a_job(jobs.store)
    letters = jobs.store.dead_letters
    letters.add("supervisor", "unreadable", job_id)
    letters.add("writer", HOSTILE, HOSTILE)
    page = DeadLettersPage(window, url).open()
    hostile, lost = page.letters()

    page.act("requeue", lost)
    wait_until(lambda: page.letters() == [hostile], expected="the end of the letter")
    page.act("requeue", hostile)
    wait_until(lambda: f"letter {hostile} holds no handoff" in window.text(), expected="why")
    page.open().act("drop", hostile)

    wait_until(lambda: window.text("main").endswith("There are no dead letters."), expected="none")
    assert jobs.store.connection.redis.llen(SUPERVISOR_QUEUE) == 1
    assert window.run("return document.title") == "Dead letters - Handoff Queue"


def test_the_next_times_change_while_the_page_is_open(
    window: Browser, jobs: Client, url: str
) -> None:
    jobs.add_schedule("news", Request("What is new?"), ScheduleOptions("0 9 * * *"))
    page = SchedulesPage(window, url).open()
    before = page.row("news")

    jobs.pause_schedule("news")

    wait_until(lambda: "paused" in page.row("news"), expected="the pause")
    assert "09:00" in before


def test_a_paused_handoff_appears_while_the_page_of_the_fleet_is_open(
    window: Browser, jobs: Client, url: str
) -> None:
    job_id = a_job(jobs.store)
    issue(jobs.store, job_id, "a.1", role="researcher")
    jobs.pause("researcher", HOSTILE)
    page = FleetPage(window, url).open()
    before = page.paused_handoffs()

    claim(jobs.store, job_id, "a.1")

    wait_until(lambda: page.paused_handoffs() == [f"{job_id}/a.1"], expected="the paused handoff")
    assert before == []
    assert problems_everywhere(window) == []
    assert window.console_errors() == []
    jobs.unpause("researcher")


def test_a_long_reason_of_a_pause_hides_no_button(window: Browser, jobs: Client, url: str) -> None:
    issue(jobs.store, a_job(jobs.store), "a.1", role="researcher")
    jobs.pause("researcher", "see https://status.example/" + "incident-of-today-" * 10)
    window.resize(1280, 900)

    page = FleetPage(window, url).open()

    assert page.overflow_px() == 0
    jobs.unpause("researcher")


def test_a_user_sees_that_a_mode_has_become_worse(window: Browser, jobs: Client, url: str) -> None:
    first, second = a_run(HOSTILE), a_run("second")
    (variant,) = second.variants
    worse = variant.model_copy(update={"passed": 1, "mode": "team"})
    jobs.store.evaluations.add(first)
    jobs.store.evaluations.add(second.model_copy(update={"variants": (worse,)}))

    page = EvaluationsPage(window, url).open()

    assert page.sets() == ["golden.jsonl"]
    assert page.changes() == ["-50%", ""]
    assert HOSTILE in window.text("main")
    assert problems_everywhere(window) == []
    assert window.run("return document.title") == "Evaluations - Handoff Queue"
    assert window.console_errors() == []
