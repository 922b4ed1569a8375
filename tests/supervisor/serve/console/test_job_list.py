"""The table of jobs: filters in the URL, the tenant wall, and actions on many jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.events import CancelRequested, JobEnded, JobStatus, RetryRequested
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.doubles.jobs import a_job
from tests.supervisor.many_rows import submit_rows
from tests.supervisor.serve.conftest import URL
from tests.supervisor.serve.console.conftest import VisitorOf
from tests.supervisor.serve.console.visitor import Visitor
from tests.supervisor.serve.test_job_routes import end
from tests.supervisor.serve.test_retry_route import end_with_gaps
from tests.supervisor.shell import Shell

HOSTILE = "</td><script>document.title='taken'</script>\"' onclick=x"


def act(visitor: Visitor, action: str, *jobs: str) -> dict[str, str]:
    """Send an action as the script of the page does. Return the problems."""
    response = visitor.http.post(
        "/jobs/actions",
        json={"action": action, "jobs": jobs},
        headers={"Origin": URL, "X-CSRF-Token": visitor.csrf(), "Accept": "application/json"},
    )
    assert response.status_code == 200, response.text
    problems: dict[str, str] = response.json()
    return problems


def rename(jobs: Client, job_id: JobId, title: str) -> None:
    jobs.store.connection.redis.set(keys.title(job_id), title, ex=600)


def test_the_url_filters_the_table(jobs: Client, local: Visitor) -> None:
    failed, running = a_job(jobs.store, "acme"), a_job(jobs.store, "globex")
    end(jobs, failed)
    rename(jobs, running, "Compare databases")

    def shown(query: str) -> set[str]:
        text = local.get(f"/?{query}").text
        return {job_id for job_id in (failed, running) if f'<tr id="{job_id}"' in text}

    assert shown("") == {failed, running}
    assert shown("status=running") == {running}
    assert shown("status=running&status=ok&status=failed&status=cancelled") == {failed, running}
    assert shown("text=DATABASES") == {running}
    assert shown("tenant=acme") == {failed}
    assert shown("age=1h&min_usd=&mode=&priority=") == {failed, running}
    assert shown("min_usd=1") == set()


def test_the_url_filters_by_a_specialist_that_got_a_handoff(
    shell: Shell, jobs: Client, local: Visitor, http: TestClient, tmp_path: Path
) -> None:
    assigned, other = submit_rows(shell, tmp_path, 1), a_job(jobs.store)
    (issued,) = shell.open(assigned)
    query = f"specialist={issued.assigned_to}"

    page = local.get(f"/?{query}").text
    listed = http.get(f"/v1/jobs?{query}").json()["jobs"]

    assert f'<tr id="{assigned}"' in page
    assert other not in page
    assert f"<option>{issued.assigned_to}</option>" in page
    assert [job["job_id"] for job in listed] == [assigned]
    assert f'<tr id="{assigned}"' not in local.get("/?specialist=nobody").text


@pytest.mark.parametrize(
    "query", ["status=x", "mode=x", "priority=x", "age=x", "min_usd=-1", "cursor=x"]
)
def test_a_wrong_filter_is_an_error_that_names_its_field(query: str, local: Visitor) -> None:
    response = local.get(f"/?{query}")

    assert response.status_code == 422
    assert f"{query.partition('=')[0]}: this value" in response.text


def test_the_pages_hold_every_job_once(jobs: Client, local: Visitor) -> None:
    job_ids = {a_job(jobs.store) for _ in range(55)}

    first = local.get("/").text
    older = first.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    second = local.get(older).text

    on_first = {job_id for job_id in job_ids if job_id in first}
    assert len(on_first) == 50
    assert {job_id for job_id in job_ids if job_id in second} == job_ids - on_first


def test_a_refresh_of_many_rows_takes_as_many_round_trips_as_of_one(
    jobs: Client, local: Visitor
) -> None:
    names = [f"job={a_job(jobs.store)}" for _ in range(50)]

    def reads() -> int:
        """Return the requests that Redis has read from all connections."""
        return int(jobs.store.connection.redis.info("stats")["total_reads_processed"])

    def reads_for(query: str) -> int:
        before = reads()
        assert local.get(f"/jobs/rows?{query}").text.count("<tr") == query.count("job=")
        return reads() - before

    assert reads_for("&".join(names)) < reads_for(names[0]) + 10  # a long request takes two reads


def test_a_tenant_sees_only_its_jobs(jobs: Client, visitor_with: VisitorOf) -> None:
    own, foreign = a_job(jobs.store, "acme"), a_job(jobs.store, "globex")
    acme = visitor_with("operate", "acme")

    page = acme.get("/?tenant=globex").text
    rows = acme.get(f"/jobs/rows?job={own}&job={foreign}&job=nonsense").text
    ids = acme.get("/jobs/ids?tenant=globex").json()["jobs"]
    counts = acme.get("/jobs/counts?tenant=globex").json()
    problems = act(acme, "cancel", own, foreign)

    assert (foreign in page, foreign in rows, own in rows) == (False, False, True)
    assert (ids, counts) == ([own], {"running": 1})
    assert set(problems) == {foreign}
    assert not jobs.info(foreign).cancelled


def test_an_action_names_the_user_in_the_journal(jobs: Client, visitor_with: VisitorOf) -> None:
    job_id = a_job(jobs.store)
    visitor = visitor_with("operate")
    (token,) = jobs.store.api_tokens.list_all()

    problems = act(visitor, "cancel", job_id)

    *_, cancelled = jobs.events(job_id, follow=False)
    assert problems == {}
    assert isinstance(cancelled.event, CancelRequested)
    assert cancelled.event.actor == Actor(
        name="a test", via="console", address="203.0.113.7", token=token.id
    )


def test_an_action_that_is_not_possible_says_why(jobs: Client, local: Visitor) -> None:
    job_id = a_job(jobs.store)

    assert set(act(local, "approve", job_id)) == {job_id}
    assert set(act(local, "retry", job_id)) == {job_id}


def test_retry_fills_the_gaps_of_partial_jobs(jobs: Client, local: Visitor, shell: Shell) -> None:
    approvals = Approvals(what=(ApprovalOf.PLAN,))
    job_id, complete = jobs.submit(Request("Compare them", approvals=approvals)), a_job(jobs.store)
    while not jobs.info(job_id).approval:
        shell.advance(job_id)
    end_with_gaps(shell, job_id)
    end(jobs, complete)

    page = local.get(f"/jobs/{job_id}").text
    problems = act(local, "retry", job_id, complete)

    *_, last = jobs.events(job_id, follow=False)
    assert set(problems) == {complete}
    assert isinstance(last.event, RetryRequested)
    assert last.event.fills_gaps
    assert f'action="/jobs/{job_id}/retry" data-when="ended decision">' in page


def test_waiting_jobs_are_approved_together(jobs: Client, local: Visitor, shell: Shell) -> None:
    approvals = Approvals(what=(ApprovalOf.PLAN,))
    waiting = [jobs.submit(Request(text, approvals=approvals)) for text in ("One.", "Two.")]
    for job_id in waiting:
        while not jobs.info(job_id).approval:
            shell.advance(job_id)

    problems = act(local, "approve", *waiting)

    assert problems == {}
    for job_id in waiting:
        assert [entry.action.value for entry in jobs.audit(job_id)] == ["submit", "approve"]


@pytest.mark.parametrize("level", ["read", "submit"])
def test_only_an_operator_acts(level: str, jobs: Client, visitor_with: VisitorOf) -> None:
    job_id = a_job(jobs.store)
    visitor = visitor_with(level)

    response = visitor.http.post(
        "/jobs/actions",
        json={"action": "cancel", "jobs": [job_id]},
        headers={"Origin": URL, "X-CSRF-Token": visitor.csrf()},
    )

    assert response.status_code == 403
    assert 'data-action="cancel"' not in visitor.get("/").text


def test_an_action_that_comes_as_a_form_is_refused(jobs: Client, local: Visitor) -> None:
    job_id = a_job(jobs.store)

    response = local.post("/jobs/actions", action="cancel", jobs=job_id)

    assert response.status_code == 415
    assert "the body must be application/json" in response.text
    assert not jobs.info(job_id).cancelled


def test_an_action_without_the_text_against_forged_requests_is_refused(
    jobs: Client, local: Visitor
) -> None:
    job_id = a_job(jobs.store)

    response = local.http.post(
        "/jobs/actions",
        json={"action": "cancel", "jobs": [job_id], "csrf": local.csrf()},
        headers={"Origin": URL},
    )

    assert response.status_code == 403
    assert not jobs.info(job_id).cancelled


def test_hostile_text_is_text(jobs: Client, local: Visitor) -> None:
    job_id = a_job(jobs.store, "<b>acme</b>")
    rename(jobs, job_id, HOSTILE)

    for path in ("/", "/?text=%22%3E%3Cscript%3E", f"/jobs/rows?job={job_id}"):
        text = local.get(path).text
        assert "<script>document" not in text
        assert "<b>acme" not in text
        assert '"><script>' not in text


def test_a_row_says_why_its_job_failed_also_after_later_events(
    jobs: Client, local: Visitor
) -> None:
    job_id = a_job(jobs.store)
    failed = JobEnded(status=JobStatus.FAILED, reason="<i>no worker</i>")
    jobs.store.journal.append(job_id, failed, {"status": "failed"})
    jobs.store.journal.append(job_id, CancelRequested())
    jobs.store.connection.redis.rpush(keys.log(job_id), "1 {}")

    page = local.get("/").text

    assert "&lt;i&gt;no worker&lt;/i&gt;" in page
