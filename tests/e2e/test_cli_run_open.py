"""`handoff run --open` shows the page of the job in the browser, and leaves no process."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.store import open_store
from handoff_queue.shared.types.api_tokens import AccessLevel
from tests.e2e.commands import DOCUMENTS, Handoff, interrupt
from tests.running_system import RunningSystem
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

QUESTION = "How does HNSW work?"
RUN = ("run", QUESTION, "--docs", str(DOCUMENTS), "--open")
BROWSER = """\
import sys, urllib.request
asked = urllib.request.Request(sys.argv[2], headers={"Accept": "text/html"})
with urllib.request.urlopen(asked, timeout=60) as answer, open(sys.argv[1], "a") as seen:
    print("noise of a browser")
    seen.write(answer.geturl() + "\\n" + answer.read().decode())
"""
"""A browser: it loads the page, and writes its address and its text into a file."""


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    return Handoff(tmp_path)


@pytest.fixture
def browser(tmp_path: Path) -> str:
    """The command of the user's browser. Its file is `seen`."""
    script = tmp_path / "browser.py"
    script.write_text(BROWSER)
    command = shlex.join([sys.executable, str(script), str(tmp_path / "seen")])
    return f"{command} %s"


def test_a_private_run_opens_its_job_and_leaves_no_process(handoff: Handoff, browser: str) -> None:
    done = handoff.run(*RUN, BROWSER=browser)

    address, _, page = handoff.read("seen").partition("\n")
    assert done.returncode == 0, done.stderr
    assert f"the page of the job: {address}" in done.stderr
    assert address.startswith("http://127.0.0.1:")
    assert address.rpartition("/")[2] in done.stderr.splitlines()[-1]
    assert f"<h1>{QUESTION}</h1>" in page
    assert "noise" not in done.stdout + done.stderr
    assert handoff.remaining_processes() == []


@pytest.mark.parametrize("command", ["", "/no/such/browser %s"])
def test_without_a_browser_one_line_says_so_and_the_job_goes_on(
    command: str, handoff: Handoff, system: RunningSystem
) -> None:
    redis_url = system.url_of("console")

    done = handoff.run(
        *RUN, HANDOFF_REDIS_URL=redis_url, BROWSER=command, DISPLAY="", WAYLAND_DISPLAY=""
    )

    lines = [line for line in done.stderr.splitlines() if line.startswith("handoff: ")]
    assert done.returncode == 0, done.stderr
    assert lines == ["handoff: no browser can be opened here: open the address above yourself"]
    assert "HNSW" in done.stdout


def test_a_run_on_a_broker_opens_a_console_of_its_own(
    handoff: Handoff, browser: str, system: RunningSystem
) -> None:
    header = "X-Forwarded-User"

    done = handoff.run(
        *RUN,
        HANDOFF_REDIS_URL=system.url_of("console"),
        HANDOFF_SERVE_USER_HEADER=header,
        BROWSER=browser,
    )

    assert done.returncode == 0, done.stderr
    assert f"<h1>{QUESTION}</h1>" in handoff.read("seen")
    assert handoff.remaining_processes() == []


def test_a_broker_with_tokens_asks_the_browser_for_one(
    handoff: Handoff, browser: str, system: RunningSystem
) -> None:
    store = open_store(system.url_of("console"), Settings())
    token, _ = store.api_tokens.create("a test", AccessLevel.READ, None)
    try:
        done = handoff.run(*RUN, HANDOFF_REDIS_URL=system.url_of("console"), BROWSER=browser)
    finally:
        store.api_tokens.revoke(token.id)
        store.connection.close()

    assert done.returncode == 0, done.stderr
    assert "/login?next=/jobs/" in handoff.read("seen")


def test_on_a_terminal_the_page_stays_until_ctrl_c(
    handoff: Handoff, browser: str, system: RunningSystem
) -> None:
    variables = {"HANDOFF_REDIS_URL": system.url_of("console"), "BROWSER": browser}
    with handoff.on_a_terminal(*RUN, output=None, **variables) as (process, terminal):
        os.set_blocking(terminal, False)
        shown = bytearray()
        wait_until(
            lambda: b"the page stays until Ctrl-C" in _shown(terminal, shown),
            timeout_s=90,
            expected="the end of the job",
        )
        code = interrupt(process)

    assert code == 0
    assert handoff.remaining_processes() == []


def _shown(terminal: int, shown: bytearray) -> bytearray:
    """Add the new output of the terminal to `shown`, and return it."""
    with suppress(BlockingIOError):
        shown += os.read(terminal, 65_536)
    return shown
