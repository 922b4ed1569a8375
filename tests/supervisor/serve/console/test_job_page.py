"""The page of a job: its content, its live data, its actions and the tenant wall."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from handoff_queue.shared.settings.settings import OFFLINE_MODEL
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.types.answer import Answer, Gap
from handoff_queue.shared.types.budget_measures import MEASURES, Measure
from handoff_queue.shared.types.cost_quote import Estimate, Quote
from handoff_queue.shared.types.events import (
    CancelRequested,
    JobEnded,
    JobStatus,
    Quoted,
    RetryRequested,
)
from handoff_queue.shared.types.handoff import ResultStatus, make_ref
from handoff_queue.shared.types.ids import JobId, StepId, create_job_id
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve.application import CONSOLE_ROUTERS
from handoff_queue.supervisor.serve.console.job_routes import read_job
from tests.doubles.conflicting_claims import a_claim, settle_conflicts
from tests.doubles.jobs import a_job, finished_event, handoff_key, result_of
from tests.doubles.simulated_job import SimulatedJob, planned
from tests.supervisor.client.test_job_retry import job_asking_before_plan
from tests.supervisor.many_rows import submit_rows
from tests.supervisor.serve.console.conftest import VisitorOf
from tests.supervisor.serve.console.visitor import Visitor
from tests.supervisor.serve.test_authentication import UNKNOWN
from tests.supervisor.serve.test_job_routes import end
from tests.supervisor.shell import Shell

PATHS = (
    ("GET", ""),
    ("GET", "/live"),
    ("GET", "/documents"),
    ("GET", "/events"),
    ("GET", "/handoffs/a.1"),
    ("POST", "/cancel"),
    ("POST", "/say"),
    ("POST", "/retry"),
    ("POST", "/approve"),
    ("POST", "/reject"),
)
"""Every route of one job, except its documents."""


def test_every_route_of_one_job_is_in_the_list() -> None:
    place, routes = "/jobs/{job_id}", set[tuple[str, str]]()
    for router in CONSOLE_ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.path.startswith(place):
                path = route.path.removeprefix(place).replace("{handoff_id}", "a.1")
                routes |= {(method, path) for method in route.methods or ()}

    assert routes - {("GET", "/documents/{name:path}")} == set(PATHS)


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_a_job_of_another_tenant_is_like_a_job_that_does_not_exist(
    method: str, path: str, jobs: Client, visitor_with: VisitorOf
) -> None:
    job_id = a_job(jobs.store, "acme")
    end(jobs, job_id)
    stranger = visitor_with("operate", "globex")

    def ask(name: str) -> tuple[int, str]:
        url = f"/jobs/{name}{path}"
        response = stranger.post(url) if method == "POST" else stranger.get(url)
        return response.status_code, response.text.replace(name, "")

    status, text = ask(job_id)

    assert status == 404
    assert (status, text) == ask(UNKNOWN)


def test_a_failed_handoff_links_to_the_jobs_in_which_its_specialist_failed(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    failed, other = submit_rows(shell, tmp_path, 1), submit_rows(shell, tmp_path, 1)
    (issued,) = shell.open(failed)
    shell.do(failed, issued, ResultStatus.FAILED)

    page = local.get(f"/jobs/{failed}").text
    (link,) = re.findall(r'<a href="([^"]*)">all failures', page)
    listed = local.get(link).text

    assert f"{issued.handoff_id}</td>" in page
    assert f'<tr id="{failed}"' in listed
    assert other not in listed
    assert f'name="failed_specialist" list="specialists" value="{issued.assigned_to}"' in listed


def test_a_result_that_names_another_handoff_belongs_to_its_own(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    """A worker that was taken over may write any ids. A result that cannot be read has none."""
    failed = submit_rows(shell, tmp_path, 1)
    (issued,) = shell.open(failed)
    claim = shell.claim(failed, issued)
    other = {"handoff_id": "other.7", "step_id": "other", "job_id": "j-000000000000"}
    result = result_of(claim).model_copy(
        update={**other, "status": ResultStatus.FAILED, "error": "it broke"}
    )
    event = finished_event(result).model_copy(update={"handoff_id": issued.handoff_id})
    claim.finish(claim.build_finish_request(result, (event,)))

    page = local.get(f"/jobs/{failed}").text

    assert f"{issued.handoff_id}</td>" in page
    assert "other.7" not in page


def test_a_handoff_is_loaded_on_demand(shell: Shell, local: Visitor, tmp_path: Path) -> None:
    job_id = submit_rows(shell, tmp_path, 1)
    (issued,) = shell.open(job_id)

    live = local.get(f"/jobs/{job_id}/live").json()
    loaded = local.get(f"/jobs/{job_id}/handoffs/{issued.handoff_id}").json()

    (bar,) = [bar for bar in live["drawing"]["bars"] if bar["handoff_id"] == issued.handoff_id]
    assert (bar["payload"], live["drawing"]["payloads"]) == (issued.handoff.digest, {})
    assert loaded["handoff"]["task_description"]
    assert local.get(f"/jobs/{job_id}/handoffs/nothing.1").status_code == 404


def test_the_drawing_has_the_handoffs_without_their_texts(jobs: Client, local: Visitor) -> None:
    job_id = a_job(jobs.store)

    live = local.get(f"/jobs/{job_id}/live").json()

    assert live["status"] == "running"
    assert live["drawing"]["bars"] == []
    assert live["drawing"]["payloads"] == {}
    assert "Status" in live["html"]


def test_an_operator_cancels_a_job_and_returns_to_its_page(
    jobs: Client, visitor_with: VisitorOf
) -> None:
    job_id = a_job(jobs.store)
    visitor = visitor_with("operate")

    response = visitor.post(f"/jobs/{job_id}/cancel")

    *_, cancelled = jobs.events(job_id, follow=False)
    assert (response.status_code, response.headers["location"]) == (303, f"/jobs/{job_id}")
    assert isinstance(cancelled.event, CancelRequested)
    assert cancelled.event.actor
    assert cancelled.event.actor.via == "console"


def job_asking_for_money(jobs: Client) -> JobId:
    """Return a job that waits for a decision about its budget of two turns."""
    job_id = stored(jobs, job_asking_before_plan())
    fields = {"asks": "its budget is spent", "turns": 12, "max_turns": 12}
    jobs.store.connection.redis.hset(keys.job(job_id), mapping=fields)
    return job_id


def test_an_operator_continues_a_job_with_higher_limits(jobs: Client, local: Visitor) -> None:
    job_id = job_asking_for_money(jobs)
    page = local.get(f"/jobs/{job_id}").text

    response = local.post(f"/jobs/{job_id}/retry", max_usd="", max_turns="40")

    *_, retried = [recorded.event for recorded in jobs.events(job_id, follow=False)]
    assert response.status_code == 303
    assert isinstance(retried, RetryRequested)
    assert retried.max_turns == 40
    hidden = {name: "hidden>" in form for name, form in forms_of(page, job_id).items()}
    assert (hidden["retry"], hidden["approve"]) == (False, True)
    assert "handoff retry" not in page


def forms_of(page: str, job_id: JobId) -> dict[str, str]:
    """Return the tag of each form of the page by the name of its action."""
    return {
        form[1]: form[0]
        for form in re.finditer(rf'<form method="post" action="/jobs/{job_id}/(\w+)"[^>]*>', page)
    }


def test_a_limit_that_is_not_a_number_is_a_problem(jobs: Client, local: Visitor) -> None:
    response = local.post(f"/jobs/{job_asking_for_money(jobs)}/retry", max_usd="much")

    assert response.status_code == 422
    assert "write a number above 0" in response.text


def test_an_operator_sends_a_message_and_the_page_says_which_agent_took_it(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    job_id = submit_rows(shell, tmp_path, 1)
    (issued,) = shell.open(job_id)

    response = local.post(f"/jobs/{job_id}/say", text="Shorter.", step=issued.step_id)
    waiting = local.get(f"/jobs/{job_id}").text
    shell.claim(job_id, issued).take_messages(3)
    taken = local.get(f"/jobs/{job_id}").text

    assert (response.status_code, response.headers["location"]) == (303, f"/jobs/{job_id}")
    assert f"message to {issued.step_id}: Shorter. (in the task of later agents)" in waiting
    assert f"Shorter. ({issued.handoff_id} took it at turn 3)" in taken


@pytest.mark.parametrize("action", ["approve", "reject"])
def test_a_decision_is_for_the_question_that_the_page_showed(
    action: str, shell: Shell, local: Visitor
) -> None:
    job_id = shell.jobs.submit(
        Request("Compare them", approvals=Approvals(what=(ApprovalOf.PLAN,)))
    )
    while not shell.jobs.info(job_id).approval:
        shell.advance(job_id)
    page = local.get(f"/jobs/{job_id}").text
    (asked,) = set(re.findall(r'<input type="hidden" name="question" value="(\d+)">', page))

    late = local.post(f"/jobs/{job_id}/{action}", note="no", question=str(int(asked) - 1))
    unanswered = shell.jobs.info(job_id).approval
    in_time = local.post(f"/jobs/{job_id}/{action}", note="no", question=asked)

    assert f'data-question="{asked}"' in page
    assert (late.status_code, unanswered) == (400, "plan")
    assert "answer its question" in late.text
    assert in_time.status_code == 303
    assert shell.jobs.info(job_id).approval == ""


@pytest.mark.parametrize("action", ["retry", "approve", "reject"])
def test_an_action_that_is_not_possible_is_a_page_that_says_why(
    action: str, jobs: Client, local: Visitor
) -> None:
    job_id = a_job(jobs.store)

    response = local.post(f"/jobs/{job_id}/{action}", note="no")

    assert response.status_code in (400, 409)
    assert job_id in response.text


def test_a_reader_sees_no_actions_and_cannot_act(jobs: Client, visitor_with: VisitorOf) -> None:
    job_id = a_job(jobs.store)
    reader = visitor_with("read")

    assert 'aria-label="Actions"' not in reader.get(f"/jobs/{job_id}").text
    assert reader.post(f"/jobs/{job_id}/cancel").status_code == 403
    assert not jobs.info(job_id).cancelled


def test_the_times_of_the_page_have_one_format(jobs: Client, local: Visitor) -> None:
    job_id = a_job(jobs.store)
    page = local.get(f"/jobs/{job_id}").text

    texts = re.sub("[0-9]", "0", re.sub("<[^>]*>", "", page))

    assert re.findall("0000-00-00.*", texts) == ["0000-00-00 00:00:00 UTC"]


def test_the_working_time_of_a_retried_job_has_no_wait_for_the_retry(
    jobs: Client, local: Visitor
) -> None:
    job_id = a_job(jobs.store)
    retried_later = [
        (3_000, JobEnded(status=JobStatus.FAILED)),
        (90_000_000, RetryRequested()),
        (90_005_000, JobEnded(status=JobStatus.OK)),
    ]
    redis, log = jobs.store.connection.redis, keys.log(job_id)
    submitted_ms, _, _ = redis.lindex(log, 0).partition(b" ")
    for after_ms, event in retried_later:
        redis.rpush(log, f"{int(submitted_ms) + after_ms} {event.to_json()}")
    redis.hset(keys.job(job_id), mapping={"status": "ok"})

    shown = "<dt>Working time</dt><dd>8 s in all; at most 1 h 0 min since the retry</dd>"
    assert shown in local.get(f"/jobs/{job_id}").text


@pytest.mark.parametrize(("status", "grows"), [("running", True), ("waiting", False)])
def test_the_working_time_of_an_open_job_grows_only_while_it_works(
    jobs: Client, status: str, grows: bool
) -> None:
    page = read_job(jobs.store, a_job(jobs.store))
    report = page.report.model_copy(update={"status": JobStatus(status)})
    now = replace(page, report=report)
    later = replace(now, record=replace(page.record, at=page.record.at + 7_200))

    assert round(later.worked_s - now.worked_s) == (7_200 if grows else 0)


def test_an_ended_job_has_no_further_events(jobs: Client, local: Visitor) -> None:
    job_id = a_job(jobs.store)
    end(jobs, job_id)
    version = jobs.info(job_id).version

    assert local.get(f"/jobs/{job_id}/events?after={version}").status_code == 204


def test_the_stream_names_each_event_for_the_page(jobs: Client, local: Visitor) -> None:
    job_id = a_job(jobs.store)
    end(jobs, job_id)

    text = local.get(f"/jobs/{job_id}/events").text

    assert "data: job_ended" in text


def test_hostile_text_is_text_in_the_page_and_in_the_live_data(
    jobs: Client, local: Visitor
) -> None:
    job_id = a_job(jobs.store, "<script>x</script>")
    hostile = "</title><script>document.title='taken'</script>"
    jobs.store.connection.redis.set(keys.title(job_id), hostile, ex=600)

    page, live = local.get(f"/jobs/{job_id}").text, local.get(f"/jobs/{job_id}/live").json()

    assert "<script>document" not in page
    assert "<script>x" not in page + live["html"]


def test_a_failed_job_names_each_failed_handoff_with_its_specialist_and_error(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    job_id = submit_rows(shell, tmp_path, 1)
    (failed,) = shell.open(job_id)
    shell.do(job_id, failed, ResultStatus.FAILED)
    while not shell.jobs.info(job_id).status.has_ended:
        shell.advance(job_id)

    page = local.get(f"/jobs/{job_id}").text
    rows = local.get("/").text

    row = f'<td class="mono">{failed.handoff_id}</td><td>{failed.assigned_to} '
    assert row in page
    assert '<td class="text failed">it broke</td>' in page
    assert (
        f"no step has a usable result ({failed.step_id} by {failed.assigned_to}: internal_error)"
        in rows
    )


def test_the_page_of_a_partial_job_names_each_gap_with_its_price(
    jobs: Client, local: Visitor
) -> None:
    job_id = jobs.submit(Request("Compare them."))
    gap = Gap(step=StepId("prices"), specialist="analyst", why="no data", likely_microusd=25_000)
    answer = Answer(status=JobStatus.PARTIAL, text="HNSW is a graph.", gaps=(gap,)).to_json()
    jobs.store.journal.commit(
        Commit(
            job_id=job_id,
            expected=jobs.info(job_id).version,
            events=[JobEnded(status=JobStatus.PARTIAL, answer=make_ref(answer))],
            payloads=[answer],
            fields={"status": "partial"},
        )
    )

    page = local.get(f"/jobs/{job_id}").text

    assert "<li>prices (analyst): no data. It would cost about $0.0250.</li>" in page
    assert "HNSW is a graph." in page


def test_the_page_says_which_part_of_the_quote_is_at_half_price(
    jobs: Client, local: Visitor
) -> None:
    job_id = jobs.submit(Request("Compare them."))
    cost = Estimate(likely=20_000, most=31_000, drawn_likely=20_000, drawn_most=31_000)
    quote = Quote(microusd=cost, half_price_microusd=15_000, deadline_s=21_600)
    jobs.store.journal.append(job_id, Quoted(quote=quote))

    facts = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", local.get(f"/jobs/{job_id}").text))
    assert facts["Quoted cost"] == (
        "likely $0.0200, at most $0.0310; $0.0150 of the likely cost is for calls in batches,"
        " at half price"
    )
    assert facts["Quoted time"].startswith("at most 6 h")


def test_the_page_compares_money_and_time_with_the_quote_and_the_budget(
    jobs: Client, local: Visitor
) -> None:
    limits = JobLimits(max_turns=40, max_tokens=50_000, max_microusd=500_000, max_seconds=900)
    job_id = jobs.submit(Request("Compare them.", limits=limits))
    cost = Estimate(likely=20_000, most=31_000, drawn_likely=20_000, drawn_most=31_000)
    time = Estimate(likely=30, most=90, drawn_likely=30, drawn_most=90)
    jobs.store.journal.append(job_id, Quoted(quote=Quote(microusd=cost, seconds=time)))
    spent = {"turns": 4, "input_tokens": 2_000, "output_tokens": 400, "usd": 12_300}
    jobs.store.connection.redis.hset(keys.progress(job_id), mapping=spent)

    page = local.get(f"/jobs/{job_id}").text

    facts = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert facts["Cost"] == "$0.0123 of $0.5000"
    assert facts["Quoted cost"] == "likely $0.0200, at most $0.0310"
    assert facts["Quoted time"] == "likely 30 s, at most 1 min 30 s"
    assert facts["Turns"] == "4 of 40"
    assert facts["Tokens"] == "2,400 of 50,000"
    assert facts["Working time"].endswith(" s so far of 15 min 0 s")


@pytest.mark.parametrize("measure", MEASURES)
def test_the_page_shows_each_limit_of_the_budget(
    jobs: Client, local: Visitor, measure: Measure
) -> None:
    limits = JobLimits(max_turns=None).model_copy(update={measure.limit: 7_000_000})
    job_id = jobs.submit(Request("Compare them.", limits=limits, model=OFFLINE_MODEL))

    page = local.get(f"/jobs/{job_id}").text

    assert re.search(r"<dd>[^<]* of (7,000,000|\$7\.0000)[^<]*</dd>", page)


def stored(jobs: Client, simulated: SimulatedJob) -> JobId:
    """Store the journal and the payloads of a simulated job. Return the id of the new job."""
    job_id = create_job_id()
    jobs.store.journal.commit(
        Commit(
            job_id=job_id,
            expected=0,
            events=[recorded.event for recorded in simulated.journal],
            payloads=list(simulated.payloads.values()),
            fields={"status": simulated.state.status.value},
            creates=True,
        )
    )
    return job_id


def test_the_page_has_each_verdict_and_each_conflict_with_the_decision_of_the_judge(
    jobs: Client, local: Visitor
) -> None:
    simulated = planned(a="", b="")
    simulated.finish("a", output="330 m [a.c1].", claims=(a_claim("a.c1", "330", "m"),))
    simulated.finish("b", output="312 m [b.c1].", claims=(a_claim("b.c1", "312", "m"),))
    simulated.advance()
    settle_conflicts(simulated, k1="a.c1")
    simulated.advance()
    simulated.review("The year is not known.", b="It has no source.")
    simulated.advance()

    page = local.get(f"/jobs/{stored(jobs, simulated)}").text

    assert "<h2>Verdicts</h2>" in page
    assert "<li>Round 1: the assessor sent work back.</li>" in page
    assert "<li>Round 1, sent back: b: It has no source.</li>" in page
    assert "<li>Round 1, open: The year is not known.</li>" in page
    assert "<h2>Conflicts</h2>" in page
    assert (
        "<li>Not all of these can be right: “Eiffel Tower: height: 330 m.” (a.c1);"
        " “Eiffel Tower: height: 312 m.” (b.c1). Decision: a.c1 stands. Measured.</li>"
    ) in page


def test_the_drawing_has_the_critical_path_and_the_tokens_and_the_money_of_each_handoff(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    job_id = submit_rows(shell, tmp_path, 2)
    first, last = shell.open(job_id)
    for issued in (first, last):
        shell.do(job_id, issued)
    redis = shell.store.connection.redis
    spent = {"input_tokens": 2_000, "output_tokens": 400, "usd": 12_300}
    redis.hset(handoff_key(shell.store, job_id, last.handoff_id), mapping=spent)
    redis.hincrby(
        handoff_key(shell.store, job_id, last.handoff_id), "finished_at", 5
    )  # milliseconds

    bars = local.get(f"/jobs/{job_id}/live").json()["drawing"]["bars"]

    by_id = {bar["handoff_id"]: bar for bar in bars}
    critical = [name for name, bar in by_id.items() if bar["is_critical"]]
    assert (by_id[last.handoff_id]["tokens"], by_id[last.handoff_id]["usd"]) == (2_400, 0.0123)
    assert by_id[first.handoff_id]["tokens"] == 0
    assert last.handoff_id in critical
    assert first.handoff_id not in critical
