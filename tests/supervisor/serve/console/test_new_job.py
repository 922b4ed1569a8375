"""The form for a new job."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import JobSubmitted
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Mode
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.serve.console.new_job_routes import LABELS
from tests.supervisor.serve.conftest import URL
from tests.supervisor.serve.console.conftest import VisitorOf
from tests.supervisor.serve.console.visitor import Visitor


def submitted(jobs: Client, location: str) -> JobSubmitted:
    first, *_ = jobs.events(JobId(location.removeprefix("/jobs/")), follow=False)
    assert isinstance(first.event, JobSubmitted)
    return first.event


def test_the_form_submits_a_job_with_documents(jobs: Client, local: Visitor) -> None:
    response = local.http.post(
        "/new",
        data={
            "csrf": local.csrf(),
            "text": "Where is order A-1042?",
            "mode": "team",
            "tenant": "acme",
            "max_usd": "2.50",
            "max_minutes": "5",
            "approve": ["plan"],
            "more": '{"limits": {"max_turns": 30}}',
        },
        files=[("documents", ("orders.md", b"A-1042 was shipped."))],
        headers={"Origin": URL},
    )

    assert response.status_code == 303, response.text
    event = submitted(jobs, response.headers["location"])
    assert (event.tenant, event.mode) == ("acme", Mode.TEAM)
    assert event.limits.max_microusd == 2_500_000
    assert (event.limits.max_seconds, event.limits.max_turns) == (300, 30)
    assert event.approvals.what == (ApprovalOf.PLAN,)
    assert event.manifest


def test_the_quote_comes_before_the_work(jobs: Client, local: Visitor) -> None:
    response = local.post("/new", text="Compare Qdrant and Milvus", mode="team", quote="1")

    event = submitted(jobs, response.headers["location"])
    assert ApprovalOf.PLAN in event.approvals.what


def test_a_deadline_with_the_priority_batch_lets_calls_go_through_batches(
    jobs: Client, local: Visitor
) -> None:
    response = local.post("/new", text="Compare them.", priority="batch", deadline="1h30m")

    event = submitted(jobs, response.headers["location"])
    assert event.is_batched
    assert event.limits.max_seconds == 5_400


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"deadline": "soon"}, "Deadline of a job with the priority batch, such as 6h: "),
        ({"deadline": "soon"}, "&#39;soon&#39; is not a duration: write a number of seconds, or a"),
        ({"deadline": "0s"}, "&#39;0s&#39; is too short: at least 1s"),
        ({"deadline": "9999d"}, "&#39;9999d&#39; is too long: at most"),
        ({"priority": "interactive"}, "deadline_s needs the priority batch: set"),
        (
            {"max_minutes": "5"},
            "Longest time in minutes and Deadline exclude each other: leave",
        ),
    ],
)
def test_a_wrong_deadline_has_the_words_of_the_command_line(
    fields: dict[str, str], line: str, jobs: Client, local: Visitor
) -> None:
    wanted = {"text": "Compare them.", "priority": "batch", "deadline": "6h", **fields}
    page = local.post("/new", **wanted).text

    assert line in page.partition('id="problems"')[2].partition("</ul>")[0]
    assert f'name="deadline" value="{wanted["deadline"]}"' in page, "the form keeps the text"
    assert jobs.newest() == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", ""),
        ("mode", "<b>none</b>"),
        ("max_usd", "much"),
        ("more", "["),
        ("more", "[]"),
        ("more", '{"nothing": 1}'),
        ("more", '{"limits": 7}'),
        ("more", '{"approvals": [7]}'),
        ("after", "j-000000000000"),
        ("workflow", "/etc/passwd"),
    ],
)
def test_a_mistake_leads_back_to_the_form_with_its_texts(
    field: str, value: str, jobs: Client, local: Visitor
) -> None:
    fields = {"text": "Compare <i>them</i>.", "approve": "plan", "max_usd": "1", field: value}

    response = local.post("/new", **fields)

    assert 400 <= response.status_code < 500
    assert 'role="alert"' in response.text
    assert "<b>none" not in response.text
    assert field == "text" or "Compare &lt;i&gt;them" in response.text
    assert jobs.newest() == []


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("max_usd", "much", "Budget in US dollars: write a number above 0 and up to "),
        ("max_usd", "0", "Budget in US dollars: write a number above 0 and up to "),
        ("max_minutes", "999999999", "Longest time in minutes: write a number above 0 and up to "),
        ("priority", "high", "Priority: must be &#39;interactive&#39; or &#39;batch&#39;"),
        ("more", '{"mode": "none"}', "mode: must be &#39;auto&#39;"),
        (
            "workflow",
            "poem",
            "there is no workflow &#39;poem&#39;: name a known workflow, or give the content of a"
            " workflow file (known: brief, digest)",
        ),
    ],
)
def test_an_error_names_the_field_as_the_form_does(
    field: str, value: str, line: str, local: Visitor
) -> None:
    page = local.post("/new", **{"text": "Compare them.", field: value}).text

    assert f"<li>{line}" in page


def test_each_label_of_the_form_is_a_label_of_the_errors(local: Visitor) -> None:
    page = local.get("/new").text

    for name, label in LABELS.items():
        assert f'<label for="{name}">{label}' in page


def test_every_error_of_the_form_has_its_line(local: Visitor) -> None:
    page = local.post("/new", text="Compare them.", mode="none", priority="high").text

    assert "<li>Mode: must be" in page
    assert "<li>Priority: must be" in page


def test_a_tenant_submits_only_its_own_jobs(jobs: Client, visitor_with: VisitorOf) -> None:
    acme = visitor_with("submit", "acme")

    own = acme.post("/new", text="Where is it?")
    foreign = acme.post("/new", text="Where is it?", tenant="globex")

    assert submitted(jobs, own.headers["location"]).tenant == "acme"
    assert foreign.status_code == 403


def test_a_reader_submits_nothing(jobs: Client, visitor_with: VisitorOf) -> None:
    reader = visitor_with("read")

    assert reader.post("/new", text="Where is it?").status_code == 403
    assert 'href="/new"' not in reader.get("/").text
    assert jobs.newest() == []
