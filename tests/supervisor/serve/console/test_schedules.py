"""The page of the schedules: times, actions, access levels, the tenant wall and hostile text."""

from __future__ import annotations

import re
from html import escape, unescape

import pytest

from handoff_queue.shared.types.errors import UnknownSchedule
from handoff_queue.shared.types.schedule import Missed, Overlap
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.schedules import ScheduleOptions
from tests.supervisor.serve.console.conftest import VisitorOf
from tests.supervisor.serve.console.visitor import Visitor

HOSTILE = "<script>document.title='taken'</script>"
ACTIONS = ("pause", "unpause", "run", "remove")


def add(
    jobs: Client, name: str = "news", tenant: str = "default", text: str = "What is new?"
) -> None:
    options = ScheduleOptions("0 9 * * *", "Europe/Berlin", max_microusd_per_month=2_000_000)
    jobs.add_schedule(name, Request(text, tenant=tenant), options)


def test_the_page_shows_the_next_times_the_last_start_and_the_money(
    jobs: Client, local: Visitor
) -> None:
    add(jobs)
    job_id = jobs.run_schedule("news")

    text = local.get("/schedules").text

    times = re.findall(r"\d{4}-\d\d-\d\d 09:00 CES?T", text)
    assert len(times) >= 3
    assert times[:3] == sorted(set(times[:3]))
    assert f'href="/jobs/{job_id}"' in text
    assert "$0.0000 of $2.0000" in text


def test_an_operator_pauses_unpauses_and_removes_a_schedule(
    jobs: Client, visitor_with: VisitorOf
) -> None:
    add(jobs)
    visitor = visitor_with("operate")

    paused = visitor.post("/schedules/news/pause", tenant="default")
    while_paused = jobs.schedule("news").is_paused, visitor.get("/schedules/live").text
    visitor.post("/schedules/news/unpause", tenant="default")
    after = jobs.schedule("news").is_paused
    visitor.post("/schedules/news/remove", tenant="default")

    assert (paused.status_code, paused.headers["location"]) == (303, "/schedules")
    assert while_paused[0]
    assert "Unpause" in while_paused[1]
    assert not after
    assert jobs.schedules() == []
    assert {entry.actor.via for entry in jobs.audit() if entry.actor} == {"console"}


FORM = {
    "name": "news",
    "cron": "0 9 * * mon-fri",
    "timezone": "Europe/Berlin",
    "text": "What is new?",
    "overlap": "queue",
    "missed": "",
    "max_usd_per_month": "2.50",
    "follows_last": "1",
}


def test_a_user_adds_a_schedule_with_its_rules(jobs: Client, visitor_with: VisitorOf) -> None:
    visitor = visitor_with("submit", "acme")

    response = visitor.post("/schedules/new", **FORM)

    assert (response.status_code, response.headers["location"]) == (303, "/schedules")
    added = jobs.schedule("news", "acme")
    assert (added.cron, added.timezone, added.title) == (
        "0 9 * * mon-fri",
        "Europe/Berlin",
        "What is new?",
    )
    assert (added.overlap, added.missed, added.follows_last) == (Overlap.QUEUE, Missed.LAST, True)
    assert added.max_microusd_per_month == 2_500_000


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("name", "<b>", "Name: "),
        ("cron", "every day", "every day"),
        ("timezone", "Europe/Bonn", "Europe/Bonn"),
        ("overlap", "all", "While an earlier job runs: "),
        ("max_usd_per_month", "much", "Most US dollars of a month: write a number above 0"),
        ("text", "", "Request: "),
    ],
)
def test_a_mistake_leads_back_to_the_form_with_its_texts(
    field: str, value: str, line: str, jobs: Client, local: Visitor
) -> None:
    response = local.post("/schedules/new", **{**FORM, field: value, "tenant": HOSTILE})

    problems = unescape(response.text.partition('id="problems">')[2].partition("</div>")[0])
    assert response.status_code in (400, 422)
    assert line in problems
    assert f'value="{escape(value)}"' in response.text or field in ("overlap", "text")
    assert 'name="follows_last" value="1" checked' in response.text
    assert HOSTILE not in response.text
    assert jobs.schedules() == []


def test_a_reader_and_another_tenant_add_no_schedule(jobs: Client, visitor_with: VisitorOf) -> None:
    reader = visitor_with("read")

    read = reader.post("/schedules/new", **FORM)
    foreign = visitor_with("submit", "acme").post("/schedules/new", **FORM, tenant="globex")

    assert (read.status_code, foreign.status_code) == (403, 403)
    assert "New schedule" not in reader.get("/schedules").text
    assert jobs.schedules() == []


def test_a_run_leads_to_the_page_of_its_job(jobs: Client, visitor_with: VisitorOf) -> None:
    add(jobs)

    response = visitor_with("submit").post("/schedules/news/run", tenant="default")

    assert response.headers["location"] == f"/jobs/{jobs.schedule('news').last_job}"


@pytest.mark.parametrize(
    ("level", "shown", "allowed"),
    [("read", set(), set()), ("submit", {"run"}, {"run"}), ("operate", set(ACTIONS), set(ACTIONS))],
)
def test_an_access_level_sees_its_actions_and_no_others(
    level: str, shown: set[str], allowed: set[str], jobs: Client, visitor_with: VisitorOf
) -> None:
    add(jobs)
    visitor = visitor_with(level)
    text = visitor.get("/schedules").text

    done = {name for name in ACTIONS if visitor.post(f"/schedules/news/{name}").status_code == 303}

    assert {name for name in ACTIONS if f"/schedules/news/{name}" in text} == shown - {"unpause"}
    assert done == allowed


@pytest.mark.parametrize("action", ACTIONS)
def test_a_schedule_of_another_tenant_is_like_an_unknown_schedule(
    action: str, jobs: Client, visitor_with: VisitorOf
) -> None:
    add(jobs, tenant="acme")
    stranger = visitor_with("operate", "globex")

    answers = [
        stranger.post(f"/schedules/{name}/{action}", tenant="acme") for name in ("news", "views")
    ]

    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].text.replace("news", "") == answers[1].text.replace("views", "")
    assert "news" not in stranger.get("/schedules").text
    assert not jobs.schedule("news", "acme").is_paused


def test_a_tenant_acts_on_its_own_schedule(jobs: Client, visitor_with: VisitorOf) -> None:
    add(jobs, tenant="acme")

    visitor_with("operate", "acme").post("/schedules/news/remove")

    with pytest.raises(UnknownSchedule):
        jobs.schedule("news", "acme")


def test_hostile_text_is_text(jobs: Client, local: Visitor) -> None:
    add(jobs, tenant=HOSTILE, text=HOSTILE)

    for path in ("/schedules", "/schedules/live"):
        text = local.get(path).text
        assert "&lt;script&gt;document" in text
        assert HOSTILE not in text
