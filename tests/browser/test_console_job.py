"""The page of a job in the console works in a real browser, with a job of real workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client, connect
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve.application import make_application
from tests.browser.console import JobPage, JobTable, problems_everywhere
from tests.browser.driver import Browser
from tests.running_system import DOCUMENTS, ROOT, running_system
from tests.supervisor.serve.serving import serving
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow]
REQUEST = "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable storage"
HOSTILE = "</title><script>document.title='taken'</script><img src=x onerror=\"document.title=1\">"


@dataclass(frozen=True)
class Served:
    """A running system with the server of the console."""

    jobs: Client
    url: str


@pytest.fixture(scope="module")
def served(window: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("system")
    with running_system(folder, settings={"HANDOFF_KEEP_TURNS": "true"}) as system:
        jobs = system.jobs()
        console = connect(system.url_of("console"), jobs.settings)
        with serving(make_application(AsyncClient(console), jobs.settings)) as url:
            yield Served(jobs, url)
            window.visit("about:blank")
            window.console_errors()


def test_the_plan_lights_up_while_the_page_is_open(window: Browser, served: Served) -> None:
    job_id = served.jobs.submit(
        Request(REQUEST, documents=DOCUMENTS, approvals=Approvals(what=(ApprovalOf.PLAN,)))
    )
    page = JobPage(window, served.url, job_id).open()
    wait_until(lambda: page.status() == "waiting", expected="the question", timeout_s=60)

    served.jobs.approve(job_id)

    wait_until(lambda: page.status() == "ok", expected="the end of the job", timeout_s=90)
    wait_until(lambda: page.boxes() >= 5, expected="the graph")
    window.resize(1280, 620)
    window.prefer("light")
    window.run("document.getElementById('graph').previousElementSibling.scrollIntoView()")
    window.screenshot(ROOT / "build" / "console-job.png")  # docs/images has a copy

    assert page.rows() >= 5
    assert "Qdrant is an open-source vector database" in window.text(".answer")
    assert "The job is now: ok." in window.text("#said")
    assert window.console_errors() == []


def test_a_user_sees_the_quote_of_a_new_job_before_it_starts(
    window: Browser, served: Served
) -> None:
    earlier = served.jobs.submit(Request(REQUEST, documents=DOCUMENTS))
    assert served.jobs.result(earlier, wait_s=90).status == "ok"
    names = sorted(DOCUMENTS.glob("*.md"))
    window.visit(f"{served.url}/new")
    window.type("#text", REQUEST)
    window.drop("#documents", *names)

    window.click("button[name=quote]")
    job_id = wait_until(lambda: job_of_page(window), expected="the page of the new job")
    page = JobPage(window, served.url, job_id)
    wait_until(lambda: page.status() == "waiting", expected="the question", timeout_s=60)
    wait_until(lambda: "Quoted time\nlikely" in window.text("#live"), expected="the quote")
    begun = page.rows()
    window.click('form[action$="/approve"] button')

    wait_until(lambda: page.status() == "ok", expected="the end of the job", timeout_s=90)
    assert begun <= 1, "only the planner has worked"
    documents = served.jobs.export(job_id).documents
    assert sorted(document.path for document in documents) == [name.name for name in names]
    assert window.console_errors() == []


def job_of_page(window: Browser) -> JobId:
    """Return the id of the job whose page is open; '' for another page."""
    return JobId(window.run("return document.getElementById('live')?.dataset.job ?? ''"))


def test_an_opened_handoff_shows_its_task_its_result_and_its_turns(
    window: Browser, served: Served
) -> None:
    job_id = served.jobs.submit(Request(REQUEST, documents=DOCUMENTS))
    assert served.jobs.result(job_id, wait_s=90).status == "ok"
    page = JobPage(window, served.url, job_id).open()
    wait_until(lambda: page.rows() >= 5, expected="the timeline")

    page.open_handoff("research_qdrant.1")
    wait_until(lambda: "Asked" in page.detail("research_qdrant.1"), expected="the detail")
    window.click('[id$="/research_qdrant.1"] details:last-child summary')

    text = page.detail("research_qdrant.1")
    assert "Answered" in text
    assert "turn 1:" in text
    assert "search_documents" in text
    assert set(problems_everywhere(window)) == set()


def test_the_page_draws_the_critical_path_and_lists_tokens_and_money_of_each_handoff(
    window: Browser, served: Served
) -> None:
    job_id = served.jobs.submit(Request(REQUEST, documents=DOCUMENTS))
    result = served.jobs.result(job_id, wait_s=90)
    page = JobPage(window, served.url, job_id).open()
    wait_until(lambda: page.rows() >= 5, expected="the timeline")

    critical = page.critical()
    window.click("#nodes summary")
    nodes = page.nodes()

    assert 2 <= len(critical) < len(result.handoffs)
    assert critical == [name for name, cells in nodes.items() if cells["critical"] == "yes"]
    assert set(nodes) == {handoff["handoff_id"] for handoff in result.handoffs}
    for handoff in result.handoffs:
        usage, cells = handoff["usage"], nodes[handoff["handoff_id"]]
        tokens = usage["input_tokens"] + usage["output_tokens"]
        assert cells["tokens"].replace(",", "") == str(tokens)
        assert cells["cost"] == "$0", "the offline model costs nothing"
    assert "Round 1: the assessor passed the results." in window.text("#live")
    assert window.console_errors() == []


def test_a_citation_of_the_answer_opens_the_document_at_the_quote(
    window: Browser, served: Served
) -> None:
    job_id = served.jobs.submit(Request(REQUEST, documents=DOCUMENTS))
    result = served.jobs.result(job_id, wait_s=90)
    page = JobPage(window, served.url, job_id).open()
    wait_until(lambda: page.citations() > 0, expected="the answer")

    page.open_citation()

    wait_until(lambda: window.count("#quote") == 1, expected="the document")
    cited = {citation["quote"]: citation["source"] for citation in result.citations}
    quote = window.run("return document.getElementById('quote').textContent")
    assert window.text("h1") == cited[quote]
    wait_until(
        lambda: window.run(
            "const { top, bottom } = document.getElementById('quote').getBoundingClientRect();"
            "return top >= 0 && bottom <= innerHeight"
        ),
        expected="the quote on the screen",
    )
    assert set(problems_everywhere(window)) == set()
    assert window.console_errors() == []


def test_an_update_replaces_only_the_elements_that_differ(window: Browser, served: Served) -> None:
    job_id = served.jobs.submit(
        Request(REQUEST, documents=DOCUMENTS, approvals=Approvals(what=(ApprovalOf.ANSWER,)))
    )
    page = JobPage(window, served.url, job_id).open()
    wait_until(lambda: page.status() == "waiting", expected="the question", timeout_s=60)
    window.run("document.querySelector('#live .pill').textContent = 'old'; return null")
    window.run("document.querySelector('#live dl').mark = 'kept'; return null")

    wait_until(lambda: page.status() == "waiting", expected="an update")

    assert window.run("return document.querySelector('#live dl').mark") == "kept"


@pytest.mark.parametrize("key", ["\ue007", " "])
def test_the_graph_is_used_with_the_keyboard(window: Browser, served: Served, key: str) -> None:
    job_id = served.jobs.submit(Request(REQUEST, documents=DOCUMENTS))
    assert served.jobs.result(job_id, wait_s=90).status == "ok"
    page = JobPage(window, served.url, job_id).open()
    wait_until(lambda: page.rows() >= 5, expected="the timeline")

    page.press_in_graph("research_qdrant.1", key)

    wait_until(lambda: "Asked" in page.detail("research_qdrant.1"), expected="the detail")
    assert page.focused() == f"{job_id}/research_qdrant.1"
    assert window.console_errors() == []


def test_the_graph_has_the_steps_of_a_plan_that_have_no_handoff(
    window: Browser, served: Served
) -> None:
    job_id = served.jobs.submit(
        Request(REQUEST, documents=DOCUMENTS, approvals=Approvals(what=(ApprovalOf.PLAN,)))
    )
    page = JobPage(window, served.url, job_id).open()
    wait_until(lambda: page.status() == "waiting", expected="the question", timeout_s=60)
    wait_until(lambda: len(page.planned()) >= 3, expected="the planned steps")
    planned, problems = page.planned(), problems_everywhere(window)
    window.click("#graph [data-step] text")

    served.jobs.approve(job_id)

    wait_until(lambda: page.status() == "ok", expected="the end of the job", timeout_s=90)
    wait_until(lambda: page.planned() == [], expected="a handoff of each step")
    assert "research_qdrant researcher: not begun" in planned
    assert problems == []
    assert window.console_errors() == []


def test_a_user_cancels_a_job_and_its_page_says_so(window: Browser, served: Served) -> None:
    job_id = served.jobs.submit(
        Request(HOSTILE, documents=DOCUMENTS, approvals=Approvals(what=(ApprovalOf.PLAN,)))
    )
    page = JobPage(window, served.url, job_id).open()
    wait_until(lambda: page.status() == "waiting", expected="the question", timeout_s=60)

    window.click('form[action$="/cancel"] button')

    wait_until(lambda: page.status() == "cancelled", expected="the end of the job")
    assert window.text("h1").startswith(HOSTILE[:60])
    assert window.run("return document.title").startswith(HOSTILE[:60])
    assert window.console_errors() == []


def test_the_table_has_the_jobs_of_the_workers(window: Browser, served: Served) -> None:
    window.resize(1280, 800)
    window.prefer("light")
    table = JobTable(window, served.url).open("status=ok")

    wait_until(lambda: table.count("ok") not in ("", "0"), expected="the counts")
    window.screenshot(ROOT / "build" / "console.png")  # docs/images has a copy

    assert "Compare Qdrant, pgvector and Milvus" in window.text("#jobs")
    assert window.console_errors() == []
