"""Flower's pages show the specialists' tasks by name in a real browser."""

from __future__ import annotations

import re
import secrets
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path

import pytest

from handoff_queue.supervisor.cli.flower import OPTIONS
from handoff_queue.supervisor.client.request import Request
from tests.browser.driver import Browser, browser
from tests.running_system import DOCUMENTS, ROOT, RunningSystem, running_system
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow]
REQUEST = "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable storage"
SCREENSHOT = ROOT / "build" / "flower.png"


@dataclass(frozen=True)
class Page:
    """Address and log-in of a running Flower, and the jobs that it has seen."""

    port: int
    password: str
    profile: Path
    job_id: str = ""
    other_id: str = ""
    """Ids of the two completed jobs."""

    def url(self, path: str) -> str:
        return f"http://admin:{self.password}@127.0.0.1:{self.port}{path}"

    def page_text(self, path: str, *options: str) -> str:
        """Return the text of a page after its scripts have run."""
        html = self._browse(path, "--dump-dom", *options)
        return re.sub(
            r"\s+",
            " ",
            unescape(
                re.sub(r"<[^>]+>", " ", re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL))
            ),
        )

    def screenshot(self, path: str, to: Path) -> None:
        to.parent.mkdir(exist_ok=True)
        self._browse(path, f"--screenshot={to}", "--window-size=1400,700")

    def _browse(self, path: str, *arguments: str) -> str:
        browser = next(
            filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
        )
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={self.profile}",
        ]
        command = [browser, *options, "--virtual-time-budget=10000", *arguments, self.url(path)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True
        ).stdout


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSystem]:
    with running_system(tmp_path_factory.mktemp("system")) as running:
        yield running


@pytest.fixture(scope="module")
def flower(system: RunningSystem, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Start Flower next to the system, and run two jobs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        page = Page(
            probe.getsockname()[1], secrets.token_hex(8), tmp_path_factory.mktemp("profile")
        )
    log_in = {"FLOWER_BASIC_AUTH": f"admin:{page.password}"}
    address = (
        "--address=127.0.0.1",
        f"--port={page.port}",
        f"--db={page.profile / 'state'}",
        *OPTIONS,
    )
    spec = system.celery("flower", "-A", "handoff_queue.supervisor.app", "flower", *address)
    system.processes.start(
        type(spec)(
            spec.name,
            spec.command,
            {**spec.environment, **log_in},
            is_ready=lambda: answers(page.port),
        )
    )
    system.processes.wait_until_ready()
    wait_until(lambda: "everyone@" in page.page_text("/workers"), expected="the workers in Flower")
    jobs = system.jobs()
    job_id = jobs.submit(Request(REQUEST, documents=DOCUMENTS))
    assert jobs.result(job_id, wait_s=60).status == "ok"
    other_id = jobs.submit(Request("What is HNSW?", documents=DOCUMENTS))
    assert jobs.result(other_id, wait_s=60).status == "ok"
    return replace(page, job_id=job_id, other_id=other_id)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def tasks_page(flower: Page, is_accepted: Callable[[str], bool]) -> str:
    """Wait until `is_accepted` accepts the text of the tasks page, and return the text."""

    def accepted_text() -> str:
        text = flower.page_text("/tasks")
        return text if is_accepted(text) else ""

    return wait_until(accepted_text, expected="the tasks page")


def test_the_page_shows_each_specialists_tasks_as_done(flower: Page) -> None:
    text = tasks_page(flower, lambda text: "specialist.researcher" in text)

    flower.screenshot("/tasks", SCREENSHOT)
    assert "supervisor.advance" in text
    assert "SUCCESS" in text
    assert SCREENSHOT.stat().st_size > 10_000


def test_after_the_jobs_no_task_is_running(flower: Page) -> None:
    text = tasks_page(
        flower, lambda text: "specialist.researcher" in text and "STARTED" not in text
    )

    assert "RECEIVED" not in text


@pytest.mark.parametrize("query", ["specialist.researcher JOB", "JOB:write.", ":write."])
def test_the_search_box_finds_the_roles_task_a_job_and_a_step(
    flower: Page, tmp_path: Path, query: str
) -> None:
    text = query.replace("JOB", flower.job_id)

    with browser(tmp_path) as window:
        window.visit(flower.url("/tasks"))
        wait_until(
            lambda: {flower.job_id, flower.other_id} <= {job_in(row) for row in rows(window)},
            expected="both jobs",
        )
        window.type("input[type=search]", text)

        assert wait_until(
            lambda: all_contain(text.split(), rows(window)), expected="only the matching tasks"
        )


def rows(window: Browser) -> list[str]:
    texts: list[str] = window.run(
        "return [...document.querySelectorAll('#tasks-table tbody tr')].map((row) =>"
        " row.textContent)"
    )
    return texts


def all_contain(words: list[str], row_texts: list[str]) -> bool:
    return bool(row_texts) and all(word in row for word in words for row in row_texts)


def job_in(row: str) -> str:
    match = re.search(r"j-[a-z2-7]{16}", row)
    return match[0] if match else ""


def test_flower_refuses_requests_without_the_log_in(flower: Page) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{flower.port}/tasks", timeout=5)

    assert refused.value.code == 401
    refused.value.close()
