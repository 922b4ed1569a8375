"""The page of the fleet, and the page of the dead letters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markupsafe import escape

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.metrics import OTHER
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.presence import Announcement, Node
from handoff_queue.shared.types.rate_limits import Allowance, ExpectedUsage, RateLimits
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.doubles.handoffs import a_spec
from tests.doubles.jobs import a_job, claim, finish, finish_with, granted_claim, issue, result_of
from tests.supervisor.many_rows import submit_rows
from tests.supervisor.serve.console.conftest import VisitorOf
from tests.supervisor.serve.console.test_money import rows
from tests.supervisor.serve.console.visitor import Visitor
from tests.supervisor.shell import Shell
from tests.waiting import wait_until

HOSTILE = "<script>document.title='taken'</script>"


def row_of(page: str, agent: str) -> dict[str, str]:
    """Return the cells of the row of an agent by the heads of their columns."""
    (table,) = re.findall(r'<table id="fleet-agents">.*?</table>', page, re.DOTALL)
    heads, *cells = rows(table)
    (row,) = [dict(zip(heads, cell, strict=True)) for cell in cells if cell[0] == agent]
    return row


def a_worker(name: str, version: str) -> Announcement:
    spec = a_spec(name="writer")
    return Announcement(worker=name, specialists=(spec,), slots=1, model="offline", version=version)


FLEET = (
    ("GET", "/fleet"),
    ("GET", "/fleet/live"),
    ("POST", "/fleet/pause"),
    ("POST", "/fleet/unpause"),
    ("GET", "/dead"),
    ("POST", "/dead/0123abcd/requeue"),
    ("POST", "/dead/0123abcd/drop"),
)
"""Every route that concerns all tenants."""


@pytest.mark.parametrize(("method", "path"), FLEET)
def test_the_fleet_needs_a_token_without_a_tenant(
    method: str, path: str, visitor_with: VisitorOf
) -> None:
    acme = visitor_with("operate", "acme")

    response = acme.post(path, agent="writer") if method == "POST" else acme.get(path)

    assert response.status_code == 403
    assert 'href="/fleet"' not in acme.get("/").text


@pytest.mark.slow
def test_a_queue_with_work_and_without_a_worker_is_an_alarm(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    job_id = submit_rows(shell, tmp_path, 3)
    agent = shell.open(job_id)[0].assigned_to
    served = local.get("/fleet").text
    alarm = f"No worker serves {agent}, and 3 handoffs wait for it"

    shell.leave()

    assert alarm not in served
    assert f'id="agent-{agent}"' in served
    wait_until(lambda: alarm in local.get("/fleet/live").text, expected=alarm)


def test_the_row_of_an_agent_has_its_slots_its_queue_and_its_oldest_wait(
    shell: Shell, jobs: Client, local: Visitor, tmp_path: Path
) -> None:
    job_id = submit_rows(shell, tmp_path, 7)
    first, *others = shell.open(job_id)
    agent, redis = first.assigned_to, jobs.store.connection.redis
    shell.claim(job_id, first)
    began_ms = int((jobs.store.connection.now() - 600) * 1000)
    redis.zadd(f"{keys.WAITING}{agent}", {f"{job_id}/{others[0].handoff_id}": began_ms})

    page = local.get("/fleet").text

    row = row_of(page, agent)
    shown = {name: row[name] for name in ("Workers", "Busy", "Slots", "Wanted slots", "Queued")}
    assert shown == {"Workers": "1", "Busy": "1", "Slots": "4", "Wanted slots": "7", "Queued": "6"}
    assert row["Oldest wait"].startswith("10 min ")


def test_open_jobs_without_a_supervisor_are_an_alarm(jobs: Client, local: Visitor) -> None:
    a_job(jobs.store)

    assert "No supervisor runs. Open jobs: 1." in local.get("/fleet").text


def test_the_roles_of_the_supervisors_have_the_slots_of_the_supervisors(
    jobs: Client, local: Visitor
) -> None:
    jobs.store.presence.announce_supervisor("s1", Node(slots=16))
    jobs.store.presence.announce_supervisor("s2", Node(slots=4))

    row = row_of(local.get("/fleet").text, "roles")

    assert (row["State"], row["Workers"], row["Slots"]) == ("served by supervisors", "2", "10")
    assert row["Action"] == "", "a single role is paused, and not their queue"


def test_waiting_roles_without_a_supervisor_are_an_alarm(jobs: Client, local: Visitor) -> None:
    job_id = a_job(jobs.store)
    issue(jobs.store, job_id, "planner.1", role="planner")

    page = local.get("/fleet").text

    assert "No supervisor runs. Open jobs: 1. Handoffs of roles that wait: 1." in page
    assert '<tr id="agent-roles" class="unserved">' in page
    assert row_of(page, "roles")["State"] == "not served"


def test_jobs_whose_specialists_have_no_worker_are_an_alarm(
    shell: Shell, jobs: Client, local: Visitor
) -> None:
    for _ in range(2):
        shell.advance(jobs.submit(Request("Translate it", specialists=("nosuch",))))
    jobs.submit(Request("Write it", specialists=("writer",)))

    page = local.get("/fleet").text

    assert "Jobs that wait for a worker of `nosuch`: 2. Start a worker.<" in page
    assert "Jobs that wait for a worker of `writer`" not in page


def test_an_operator_pauses_and_unpauses_a_role(
    shell: Shell, jobs: Client, visitor_with: VisitorOf
) -> None:
    visitor = visitor_with("operate")

    paused = visitor.post("/fleet/pause", agent="writer", reason=HOSTILE)
    page = visitor.get("/fleet").text
    row = page.partition('id="agent-writer"')[2].partition("</tr>")[0]
    unpaused = visitor.post("/fleet/unpause", agent="writer")

    assert (paused.status_code, unpaused.status_code) == (303, 303)
    assert "&lt;script&gt;document.title" in page
    assert HOSTILE not in page
    assert f'<span class="reason" title="{escape(HOSTILE)}">' in row
    assert 'action="/fleet/unpause"' in row
    assert jobs.store.pauses.read_all() == {}
    actors = {entry.actor.via for entry in jobs.audit() if entry.actor}
    assert "console" in actors


def test_paused_and_deferred_handoffs_are_listed(jobs: Client, local: Visitor) -> None:
    job_id = a_job(jobs.store)
    issue(jobs.store, job_id, "a.1", role="researcher")
    issue(jobs.store, job_id, "b.1", role="writer", group="g2")
    issue(jobs.store, job_id, "c.1", role="reviewer", group="g3")
    jobs.store.pauses.pause("researcher", "")
    claim(jobs.store, job_id, "a.1")
    granted_claim(jobs.store, job_id, "b.1").defer(60, HOSTILE)
    granted_claim(jobs.store, job_id, "c.1")

    text = local.get("/fleet").text

    def table(name: str) -> str:
        return text.partition(name)[2].partition("</table>")[0]

    assert f"{job_id}/a.1" in table('id="paused-handoffs"')
    assert f"{job_id}/b.1" in table('id="deferred"')
    assert "&lt;script&gt;" in table('id="deferred"')
    assert f"{job_id}/c.1" in table('aria-label="Running handoffs"')
    assert [text.count(f"{job_id}/{name}.1<") for name in "abc"] == [1, 1, 1]
    jobs.store.pauses.unpause("researcher")


def test_each_agent_has_the_number_of_its_failed_handoffs(jobs: Client, local: Visitor) -> None:
    job_id = a_job(jobs.store)
    jobs.store.presence.announce(a_worker("w1", "1.0"))
    issue(jobs.store, job_id, "a.1", "b.1", "c.1", role="writer")
    issue(jobs.store, job_id, "judge.1", role="judge", group=None)
    before = row_of(local.get("/fleet").text, "writer")["Failed handoffs"]
    for handoff_id in ("a.1", "b.1", "judge.1"):
        claimed = granted_claim(jobs.store, job_id, handoff_id)
        result = result_of(claimed).model_copy(update={"status": ResultStatus.FAILED})
        finish_with(claimed, result)
    finish(granted_claim(jobs.store, job_id, "c.1"))

    page = local.get("/fleet/live").text

    assert before == "0 of 0"
    assert row_of(page, "writer")["Failed handoffs"] == "2 of 3"
    assert row_of(page, "roles")["Failed handoffs"] == "1 of 1"
    assert 'href="/?failed_specialist=writer">2 of 3<' in page


def test_an_agent_that_shares_its_count_with_others_has_no_number(
    jobs: Client, local: Visitor
) -> None:
    jobs.store.presence.announce(a_worker("w1", "1.0"))
    jobs.store.connection.redis.hset(keys.METRICS, f"handoffs\tacme\t{OTHER}\tfailed", 7)

    assert row_of(local.get("/fleet").text, "writer")["Failed handoffs"] == "not counted"


def test_versions_that_run_side_by_side_are_named_with_their_processes(
    jobs: Client, local: Visitor
) -> None:
    for worker, version in (("w1", "1.0"), ("w2", "1.0")):
        jobs.store.presence.announce(a_worker(worker, version))
    alike = local.get("/fleet").text
    jobs.store.presence.announce(a_worker("w3", "2.0"))

    different = local.get("/fleet").text

    assert 'id="versions"' not in alike
    assert "1.0: 2<br>" in alike
    (table,) = re.findall(r'<table id="versions">.*?</table>', different, re.DOTALL)
    assert [row[0:2] for row in rows(table)[1:]] == [["1.0", "2"], ["2.0", "1"]]
    assert "w3" in table


def test_an_unknown_agent_is_not_paused(shell: Shell, local: Visitor) -> None:
    response = local.post("/fleet/pause", agent="nobody")

    assert response.status_code == 400
    assert "nobody" in response.text
    assert 'href="/fleet"' in response.text, "the page of the error has the navigation"


def test_a_reader_sees_the_fleet_and_changes_nothing(jobs: Client, visitor_with: VisitorOf) -> None:
    jobs.store.dead_letters.add("writer", "unreadable", HOSTILE)
    (letter,) = jobs.store.dead_letters.list_newest()
    reader = visitor_with("read")

    assert "/pause" not in reader.get("/fleet").text
    assert "<button>Drop" not in reader.get("/dead").text
    assert reader.post("/fleet/pause", agent="planner").status_code == 403
    assert reader.post(f"/dead/{letter.id}/drop").status_code == 403
    assert jobs.store.dead_letters.list_newest() == [letter]


def test_a_dead_letter_is_text_and_is_requeued_or_dropped(jobs: Client, local: Visitor) -> None:
    job_id = a_job(jobs.store)
    jobs.store.dead_letters.add("writer", HOSTILE, HOSTILE)
    (hostile,) = jobs.store.dead_letters.list_newest()
    jobs.store.dead_letters.add("supervisor", "unreadable", job_id)
    (lost,) = [letter for letter in jobs.store.dead_letters.list_newest() if letter.body == job_id]
    page = local.get("/dead").text

    refused = local.post(f"/dead/{hostile.id}/requeue")
    local.post(f"/dead/{hostile.id}/drop")
    local.post(f"/dead/{lost.id}/requeue")

    assert hostile.id in page
    assert HOSTILE not in page
    assert refused.status_code == 400
    assert jobs.store.dead_letters.list_newest() == []
    assert local.post(f"/dead/{lost.id}/drop").status_code == 404


def test_each_rate_limit_shows_its_rest_and_a_refusal_of_its_provider(
    jobs: Client, local: Visitor
) -> None:
    job_id = a_job(jobs.store)
    issue(jobs.store, job_id, "a.1")
    claimed = granted_claim(jobs.store, job_id, "a.1")
    expected = ExpectedUsage("an account:claude-haiku-5-5", 400, 500)
    assert claimed.reserve(WorstCase(1_000, 500, 700, "claude-haiku-5-5"), expected) is None
    claimed.report_limits(RateLimits(requests=Allowance(100, 40)))

    page = local.get("/fleet").text

    (row,) = [row for row in rows(page) if row and row[0] == "claude-haiku-5-5"]
    assert re.match(r"requests: \d+ of 100", row[2])
    assert row[3] == "takes calls"
