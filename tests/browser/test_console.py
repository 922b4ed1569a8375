"""The console of `handoff serve` works in a real browser."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.store import keys
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.serve.application import make_application
from tests.browser.console import JobPage, JobTable, painted_after_ms, problems_everywhere
from tests.browser.driver import Browser
from tests.doubles.jobs import a_job
from tests.doubles.many_jobs import many_jobs
from tests.supervisor.many_rows import submit_rows
from tests.supervisor.serve.serving import serving
from tests.supervisor.serve.test_event_routes import followers
from tests.supervisor.serve.test_job_routes import end
from tests.supervisor.shell import SETTINGS, Shell
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow]
MANY, LARGE = 10_000, 2_000
HOSTILE = (
    "</title></td><script>document.title='taken'</script><img src=x"
    " onerror=\"document.title='taken'\">"
)


def test_a_user_logs_in_with_a_token_and_logs_out(window: Browser, jobs: Client, url: str) -> None:
    _, secret = jobs.store.api_tokens.create("ann", AccessLevel.OPERATE, None)
    job_id = a_job(jobs.store)

    window.visit(f"{url}/?status=running")
    window.type("#token", secret)
    window.click("main button")
    wait_until(lambda: "ann (operate)" in window.text(), expected="the log-in")
    logged_in = window.text()
    cookies = window.run("return document.cookie")
    window.click("header button")

    wait_until(lambda: window.text("h1") == "Log in", expected="the log-out")
    assert job_id in logged_in
    assert cookies == ""
    assert window.console_errors() == []


def test_the_pages_are_accessible_at_every_size_in_dark_and_light(
    window: Browser, jobs: Client, url: str
) -> None:
    a_job(jobs.store)
    jobs.cancel(a_job(jobs.store))
    jobs.pause("writer", "the model is expensive")
    jobs.store.dead_letters.add("writer", "unreadable", "{" * 300)
    table = JobTable(window, url).open()
    wait_until(lambda: table.count("running") != "", expected="the counts")

    of_table = problems_everywhere(window)
    for path in ("inbox", "fleet", "dead", "new"):
        window.visit(f"{url}/{path}")
        assert problems_everywhere(window) == [], path
    window.visit(f"{url}/nothing")
    of_problem = problems_everywhere(window)
    window.visit(f"{url}/login")
    of_login = problems_everywhere(window)

    assert (of_table, of_problem, of_login) == ([], [], [])
    assert [text for text in window.console_errors() if "/nothing" not in text] == []


def test_the_rows_and_the_counts_change_while_the_page_is_open(
    window: Browser, jobs: Client, url: str
) -> None:
    job_id = a_job(jobs.store)
    table = JobTable(window, url).open()
    before = table.status(job_id)

    jobs.store.connection.redis.hset(keys.job(job_id), "status", "failed")

    wait_until(lambda: table.status(job_id) == "failed", expected="the new status")
    wait_until(lambda: table.count("failed") == "1", expected="the new count")
    assert before == "running"
    assert f"{job_id}: failed" in window.text("#said")


def test_the_counts_are_refreshed_with_the_rows(window: Browser, jobs: Client, url: str) -> None:
    a_job(jobs.store)
    table = JobTable(window, url).open()
    table.count_requests()

    wait_until(lambda: table.requests("/jobs/rows") >= 3, expected="three refreshes of the rows")

    assert table.requests("/jobs/counts") >= 2


def test_all_jobs_that_match_are_cancelled_with_a_progress_display(
    window: Browser, jobs: Client, url: str
) -> None:
    matching, others = many_jobs(jobs.store, 120)[::10], a_job(jobs.store)
    table = JobTable(window, url).open("tenant=tenth")

    window.click("#matching")
    table.act("cancel")

    done = f"cancel: {len(matching)} of {len(matching)}, 0 failed"
    wait_until(lambda: table.progress() == done, expected=done)
    assert all(jobs.info(job_id).cancelled for job_id in matching)
    assert not jobs.info(others).cancelled


def test_an_action_on_all_jobs_leaves_out_the_jobs_that_it_cannot_change(
    window: Browser, jobs: Client, url: str
) -> None:
    ended, open_job = a_job(jobs.store), a_job(jobs.store)
    jobs.store.connection.redis.hset(keys.job(ended), "status", "failed")
    table = JobTable(window, url).open()

    window.click("#matching")
    table.act("cancel")

    done = "cancel: 1 of 1, 0 failed"
    wait_until(lambda: table.progress() == done, expected=done)
    wait_until(lambda: window.text("#chosen") == "0 selected", expected="no selection")
    assert jobs.info(open_job).cancelled


def test_only_the_selected_jobs_are_acted_on_and_a_problem_is_shown(
    window: Browser, jobs: Client, url: str
) -> None:
    chosen, other = a_job(jobs.store), a_job(jobs.store)
    table = JobTable(window, url).open()

    table.choose(chosen)
    table.act("retry")

    wait_until(
        lambda: table.progress() == "retry: 1 of 1, 1 failed", expected="the end of the action"
    )
    assert chosen in window.text("#progress ul")
    assert other not in window.text("#progress ul")


def test_the_arrows_move_between_rows_and_a_slash_goes_to_the_search(
    window: Browser, jobs: Client, url: str
) -> None:
    a_job(jobs.store)
    a_job(jobs.store)
    table = JobTable(window, url).open()
    first, second = table.jobs()
    focused = "return document.activeElement.closest('tr')?.id ?? document.activeElement.name"

    window.type(f"#{first} a", "\ue015")
    below = window.run(focused)
    window.type(f"#{second} a", "/")

    assert below == second
    assert window.run(focused) == "text"


def test_hostile_text_runs_no_script(window: Browser, jobs: Client, url: str) -> None:
    job_id = a_job(jobs.store, HOSTILE)
    jobs.store.connection.redis.set(keys.title(job_id), HOSTILE, ex=600)
    table = JobTable(window, url).open()

    wait_until(lambda: table.count("running") == "1", expected="the counts")

    assert HOSTILE in window.text(f"#{job_id}")
    assert window.run("return document.title") == "Jobs - Handoff Queue"
    assert window.console_errors() == []


def test_a_user_submits_a_job_with_a_document(
    window: Browser, jobs: Client, url: str, tmp_path: Path
) -> None:
    document = tmp_path / "orders.md"
    document.write_text("Order A-1042 was shipped.")
    window.visit(f"{url}/new")

    window.type("#text", HOSTILE)
    window.type("#documents", str(document))
    window.click("main button.main")

    (job,) = wait_until(jobs.newest, expected="the job")
    wait_until(lambda: window.count("#live") == 1, expected="the page of the job")
    assert job.job_id in window.text("main")
    assert jobs.export(job.job_id).documents[0].path == "orders.md"
    assert window.text("h1").startswith(HOSTILE[:40])
    assert window.console_errors() == []


def test_an_alarm_appears_while_the_page_of_the_fleet_is_open(
    window: Browser, jobs: Client, url: str
) -> None:
    window.visit(f"{url}/fleet")
    before = window.count(".alarm")

    a_job(jobs.store)

    wait_until(lambda: window.count(".alarm") == 1, expected="the alarm")
    assert before == 0
    assert "No supervisor runs" in window.text(".alarm")


def test_documents_that_are_dropped_on_the_form_are_in_the_job(
    window: Browser, jobs: Client, url: str, tmp_path: Path
) -> None:
    texts = {"orders.md": "Order A-1042 was shipped.", "prices.md": "A lamp costs $40."}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    window.visit(f"{url}/new")

    window.type("#text", "Which order was shipped?")
    window.drop("#documents", *(tmp_path / name for name in texts))
    window.click("main button.main")

    (job,) = wait_until(jobs.newest, expected="the job")
    wait_until(lambda: window.count("#live") == 1, expected="the page of the job")
    documents = jobs.export(job.job_id).documents
    digests = {name: compute_digest(text) for name, text in texts.items()}
    assert {document.path: document.digest for document in documents} == digests
    assert window.console_errors() == []


def test_with_10_000_jobs_the_table_and_a_filter_cost_a_few_times_a_plain_page(
    window: Browser, jobs: Client, url: str
) -> None:
    many_jobs(jobs.store, MANY)
    table = JobTable(window, url).open()
    plain, whole, filtered = list[float](), list[float](), list[float]()
    for _ in range(7):
        window.visit(f"{url}/login")
        plain.append(painted_after_ms(window))
        table.open()
        whole.append(painted_after_ms(window))
        table.open("tenant=tenth&text=database+9990&status=queued")
        filtered.append(painted_after_ms(window))

    assert len(table.jobs()) == 1
    assert median(whole) < 8 * median(plain)
    assert median(filtered) < 12 * median(plain)


def test_a_hidden_page_of_a_job_holds_no_connection(window: Browser, jobs: Client) -> None:
    """A browser has six connections to a server for all its pages."""
    job_id = a_job(jobs.store)
    app = make_application(AsyncClient(jobs), jobs.settings)
    with serving(app) as url:
        page = JobPage(window, url, job_id).open()
        wait_until(lambda: followers(app) == 1, expected="the stream of events")

        window.set_hidden(True)
        wait_until(lambda: followers(app) == 0, expected="no stream of events")
        end(jobs, job_id)
        assert page.status() == "running"

        window.set_hidden(False)
        wait_until(lambda: page.status() == "ok", expected="the end of the job")
        window.visit("about:blank")


def test_a_job_of_2_000_handoffs_stays_usable(
    window: Browser, jobs: Client, url: str, redis_url: str, tmp_path: Path
) -> None:
    queues = (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)
    shell = Shell(redis_url, make_app("test", redis_url, SETTINGS, queues))
    shell.serve("researcher", "writer", "generalist")
    job_id = submit_rows(shell, tmp_path, LARGE)
    (*_, last) = shell.open(job_id)
    shell.close()
    page = JobPage(window, url, job_id).open()

    wait_until(lambda: page.rows() >= LARGE, expected="the timeline")
    window.click("#timeline .row.group button")
    page.open_handoff(last.handoff_id)

    wait_until(lambda: "Asked" in page.detail(last.handoff_id), expected="the detail")
    assert page.boxes() < 20, "equal handoffs are one box"
    assert window.console_errors() == []
