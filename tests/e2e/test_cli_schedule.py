"""`handoff schedule` adds, shows and changes schedules, and refuses bad input with one line."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from handoff_queue.shared.store.store import Store
from tests.e2e.commands import BAD_INPUT, Handoff, error_line

ADD = ("add", "news", "--cron", "0 9 * * mon-fri")


@pytest.fixture
def schedule(handoff: Handoff, redis_url: str) -> RunSchedule:
    return RunSchedule(handoff, redis_url)


class RunSchedule:
    """`handoff schedule` on the Redis of the test."""

    def __init__(self, handoff: Handoff, redis_url: str) -> None:
        self.handoff, self.redis_url = handoff, redis_url

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.handoff.run("schedule", *arguments, HANDOFF_REDIS_URL=self.redis_url)

    def out(self, *arguments: str) -> str:
        completed = self(*arguments)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def refused(self, *arguments: str) -> str:
        return error_line(self(*arguments), BAD_INPUT)


def test_a_schedule_is_listed_shown_paused_run_and_removed(
    schedule: RunSchedule, store: Store
) -> None:
    added = schedule.out(
        *ADD, "--timezone", "Europe/Berlin", "--max-usd-per-month", "20", "--", "What is new?"
    )
    job_id = schedule.out("run", "news").strip()
    shown = schedule.out("show", "news")
    paused = schedule.out("pause", "news")
    unpaused = json.loads(schedule.out("unpause", "news", "--json"))
    (listed,) = json.loads(schedule.out("list", "--json"))
    removed = schedule.out("remove", "news")

    assert re.fullmatch(
        r"news  0 9 \* \* mon-fri  next [0-9-]{10} 09:00 CES?T  What is new\?\n", added
    )
    assert store.jobs.find_owner(job_id) == "default"  # type: ignore[arg-type]
    assert "  this month:  $0 of $20.0000\n" in shown
    assert f"  last job:    {job_id}\n" in shown
    assert "  paused  " in paused
    assert unpaused == [listed]
    assert (listed["name"], listed["started"], listed["running"]) == ("news", 1, [job_id])
    assert removed == "schedule news is removed; its jobs stay\n"
    assert "there are no schedules" in schedule("list").stderr


def test_the_request_may_begin_with_a_dash_and_may_come_from_stdin(
    schedule: RunSchedule, store: Store
) -> None:
    schedule.out(*ADD, "--tenant", "acme", "--after", "last", "--", "-5 degrees: what now?")

    (stored,) = store.schedules.list_all()
    assert (stored.title, stored.tenant, stored.follows_last) == (
        "-5 degrees: what now?",
        "acme",
        True,
    )
    assert "no schedule 'news' of tenant default" in schedule.refused("show", "news")
    assert "tenant acme" in schedule.out("list")


def test_a_list_with_a_tenant_shows_only_the_schedules_of_this_tenant(
    schedule: RunSchedule,
) -> None:
    for tenant in ("acme", "default"):
        schedule.out(*ADD, "--tenant", tenant, "--", "What is new?")

    def tenants(*options: str) -> list[str]:
        return [entry["tenant"] for entry in json.loads(schedule.out("list", "--json", *options))]

    assert sorted(tenants()) == ["acme", "default"]
    assert tenants("--tenant", "acme") == ["acme"]
    assert tenants("--tenant", "default") == ["default"]
    assert "no schedules of tenant nobody" in schedule("list", "--tenant", "nobody").stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("add", "news", "--", "x"), "needs a NAME, --cron and a REQUEST: add --cron"),
        (ADD, "needs a NAME, --cron and a REQUEST: add a REQUEST"),
        (("list", "--cron", "@daily"), "`handoff schedule list` takes --tenant and --json only"),
        (("add", "news", "--cron", "9 o'clock", "--", "x"), "is not a cron expression"),
        (("add", "news", "--cron", "0 0 30 2 *", "--", "x"), "no date matches"),
        ((*ADD, "--timezone", "CEST/Berlin", "--", "x"), "there is no time zone"),
        ((*ADD, "--missed", "all", "--", "x"), "needs overlap queue"),
        ((*ADD, "--after", "j-0123456789ab", "--", "x"), "write --after last"),
        ((*ADD, "--max-usd-per-month", "0", "--", "x"), "--max-usd-per-month must be"),
        (("add", "Big News", "--cron", "@daily", "--", "x"), "cannot name a schedule"),
        (("show", "nws"), "there is no schedule 'nws' of tenant default"),
        (("remove",), "needs a NAME"),
        (("list", "news"), "takes no NAME"),
        (("pause", "news", "--cron", "@daily"), "takes a NAME, --tenant and --json only"),
        (("run", "news", "--json"), "`handoff schedule run` takes no --json"),
        (("remove", "news", "--json"), "`handoff schedule remove` takes no --json"),
        (("pause", "news", "--docs", "."), "takes a NAME, --tenant and --json only"),
    ],
)
def test_bad_input_is_one_line(
    schedule: RunSchedule, arguments: tuple[str, ...], line: str
) -> None:
    assert line in schedule.refused(*arguments)
