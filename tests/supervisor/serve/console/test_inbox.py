"""The inbox: questions to a person, decisions, and the editor of plans."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from handoff_queue.shared.types.events import Approved, Rejected
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.supervisor.serve.console.conftest import VisitorOf
from tests.supervisor.serve.console.visitor import Visitor
from tests.supervisor.shell import Shell


@pytest.fixture
def waiting(shell: Shell) -> JobId:
    """A job whose plan waits for an approval."""
    approvals = Approvals(what=(ApprovalOf.PLAN,))
    job_id = shell.jobs.submit(
        Request("Compare Qdrant and Milvus", limits=JobLimits(), approvals=approvals)
    )
    for _ in range(20):
        if shell.jobs.info(job_id).approval:
            return job_id
        shell.advance(job_id)
    raise AssertionError("the job does not wait")


def plan_in(page: str) -> str:
    field = re.search(r"<textarea id=\"plan\"[^>]*>\n?(.*?)</textarea>", page, re.DOTALL)
    assert field
    return unescape(field[1])


def answer(jobs: Client, job_id: JobId) -> Approved | Rejected:
    """Return the answer to the job's only question."""
    (job,) = [
        recorded.event
        for recorded in jobs.events(job_id, follow=False)
        if isinstance(recorded.event, Approved | Rejected)
    ]
    return job


def test_the_inbox_has_the_jobs_that_wait_for_a_person(waiting: JobId, local: Visitor) -> None:
    page = local.get("/inbox").text

    assert f'href="/inbox/{waiting}"' in page
    assert "an approval of its plan by a person" in page


def test_the_inbox_confirms_no_decision_of_a_hostile_link(local: Visitor) -> None:
    assert "is stored" not in local.get("/inbox?decided=<script>").text


def test_a_tenant_sees_no_question_of_another_tenant(
    waiting: JobId, visitor_with: VisitorOf, jobs: Client
) -> None:
    stranger = visitor_with("operate", "globex")

    assert waiting not in stranger.get("/inbox").text
    assert stranger.get(f"/inbox/{waiting}").status_code == 404
    assert stranger.post(f"/inbox/{waiting}", decision="approve").status_code == 404
    assert jobs.info(waiting).approval


def test_an_unchanged_plan_is_approved_with_a_note(
    waiting: JobId, jobs: Client, local: Visitor
) -> None:
    plan = plan_in(local.get(f"/inbox/{waiting}").text).replace("\n", "\r\n")

    response = local.post(f"/inbox/{waiting}", decision="approve", plan=plan, note="Good.")

    approved = answer(jobs, waiting)
    assert response.status_code == 303
    assert f">{waiting}</a> is stored" in local.get(response.headers["location"]).text
    assert isinstance(approved, Approved)
    assert approved.plan is None
    assert jobs.result(waiting).approvals[0]["note"] == "Good."


def test_a_form_that_is_sent_too_late_answers_no_later_question(
    waiting: JobId, jobs: Client, local: Visitor
) -> None:
    page = local.get(f"/inbox/{waiting}").text
    field = re.search(r'<input type="hidden" name="question" value="(\d+)">', page)
    assert field
    asked = field[1]
    late = local.post(f"/inbox/{waiting}", decision="approve", question=str(int(asked) - 1))
    still_waits = jobs.info(waiting).approval
    in_time = local.post(f"/inbox/{waiting}", decision="approve", question=asked)

    assert (late.status_code, still_waits) == (422, "plan")
    assert "answer its question" in late.text
    assert in_time.status_code == 303
    assert isinstance(answer(jobs, waiting), Approved)


def test_an_edited_plan_replaces_the_plan(waiting: JobId, jobs: Client, local: Visitor) -> None:
    plan = json.loads(plan_in(local.get(f"/inbox/{waiting}").text))
    plan["steps"][0]["task"] = "Read the documents about Qdrant only."

    response = local.post(f"/inbox/{waiting}", decision="approve", plan=json.dumps(plan))

    assert response.status_code == 303
    own = jobs.result(waiting).approvals[0]["own_plan"]
    assert own["steps"][0]["task"] == "Read the documents about Qdrant only."


def test_a_plan_with_mistakes_comes_back_with_every_mistake(
    waiting: JobId, jobs: Client, local: Visitor
) -> None:
    plan = json.loads(plan_in(local.get(f"/inbox/{waiting}").text))
    plan["steps"][0] |= {"specialist": "<b>nobody</b>", "depends_on": ["nothing"]}

    response = local.post(
        f"/inbox/{waiting}", decision="approve", plan=json.dumps(plan), note="<i>kept</i>"
    )

    assert response.status_code == 422
    assert "nobody" in response.text
    assert "nothing" in response.text
    assert "<b>nobody" not in response.text
    assert "&lt;i&gt;kept" in response.text
    assert json.loads(plan_in(response.text)) == plan
    assert jobs.info(waiting).approval


@pytest.mark.parametrize("plan", ["{", "[" * 100_000, '{"steps": [], "steps": []}', "nul"])
def test_a_plan_that_is_not_json_is_refused(
    plan: str, waiting: JobId, jobs: Client, local: Visitor
) -> None:
    response = local.post(f"/inbox/{waiting}", decision="approve", plan=plan)

    assert response.status_code == 422
    assert 'role="alert"' in response.text
    assert jobs.info(waiting).approval


def test_a_plan_is_rejected_with_a_note(waiting: JobId, jobs: Client, local: Visitor) -> None:
    local.post(f"/inbox/{waiting}", decision="reject", note="Ask Milvus, too.")

    rejected = answer(jobs, waiting)
    assert isinstance(rejected, Rejected)
    assert jobs.result(waiting).approvals[0]["note"] == "Ask Milvus, too."


def test_a_reader_sees_the_inbox_and_cannot_decide(
    waiting: JobId, jobs: Client, visitor_with: VisitorOf
) -> None:
    reader = visitor_with("read")

    page = reader.get("/inbox").text

    assert waiting in page
    assert f'href="/inbox/{waiting}"' not in page
    assert reader.post(f"/inbox/{waiting}", decision="approve").status_code == 403
    assert jobs.info(waiting).approval


def test_the_page_of_a_job_shows_the_plan_that_a_person_must_approve(
    waiting: JobId, local: Visitor
) -> None:
    plan = json.loads(plan_in(local.get(f"/inbox/{waiting}").text))

    page = local.get(f"/jobs/{waiting}").text

    for step in plan["steps"]:
        assert f'<td class="mono">{step["id"]}</td><td>{step["specialist"]}</td>' in page
    assert f'href="/inbox/{waiting}"' in page


@pytest.mark.parametrize("path", ["/", "/jobs/{}"])
def test_the_pages_of_a_job_that_waits_for_an_approval_name_no_command(
    path: str, waiting: JobId, local: Visitor
) -> None:
    page = local.get(path.format(waiting)).text

    assert "an approval of its plan by a person" in page
    assert f'href="/inbox/{waiting}"' in page
    assert "handoff approve" not in page


def test_a_reader_sees_a_waiting_job_without_a_link_to_decide(
    waiting: JobId, visitor_with: VisitorOf
) -> None:
    assert f'href="/inbox/{waiting}"' not in visitor_with("read").get("/").text
