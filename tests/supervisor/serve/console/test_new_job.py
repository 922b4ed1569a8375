"""The form for a new job."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import JobSubmitted
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Mode
from handoff_queue.supervisor.client.client import Client
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
