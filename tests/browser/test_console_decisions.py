"""A person decides in the console, in a real browser. The supervisor runs in the test."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.supervisor.cli.approve import with_plan
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.browser.console import InboxPage, problems_everywhere
from tests.browser.driver import Browser
from tests.doubles.call_questions import a_question, ask
from tests.supervisor.many_rows import submit_rows
from tests.supervisor.shell import Shell, running_shell
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    """A supervisor in this process, with a worker of three specialists."""
    with running_shell(redis_url, "researcher", "writer", "generalist") as supervisor:
        yield supervisor


@pytest.fixture
def planned(shell: Shell) -> JobId:
    """A job whose plan waits for an approval."""
    approvals = Approvals(what=(ApprovalOf.PLAN,))
    job_id = shell.jobs.submit(Request("Compare Qdrant and Milvus", approvals=approvals))
    advance_until(shell, job_id, lambda: bool(shell.jobs.info(job_id).approval))
    return job_id


def advance_until(shell: Shell, job_id: JobId, is_done: Callable[[], bool]) -> None:
    """Advance a job as a supervisor does, until the condition holds."""
    for _ in range(20):
        if is_done():
            return
        shell.advance(job_id)
    raise AssertionError("the job does not reach this state")


def words_of_cli(jobs: Client, job_id: JobId, plan: Any, folder: Path) -> list[str]:
    """Return the lines with which `handoff approve JOB --edit FILE` refuses a plan, without the
    place in the file.
    """
    file = folder / "plan.json"
    file.write_text(json.dumps(plan))
    with pytest.raises(UserError) as refusal:
        with_plan(file, partial(jobs.approve, job_id, None))
    lines = str(refusal.value).splitlines()
    return [re.sub(rf"^{file}:[0-9]+: ", "", line) for line in lines]


def decided(window: Browser, job_id: JobId) -> str:
    """Wait for the inbox after a decision, and return its line about the decision."""
    page = InboxPage(window, "")
    wait_until(page.decided, expected="the decision")
    assert job_id not in page.jobs()
    return page.decided()


def test_a_user_approves_the_plan_of_a_job_in_the_inbox(
    window: Browser, shell: Shell, url: str, planned: JobId
) -> None:
    inbox = InboxPage(window, url).open()
    listed = inbox.jobs()

    inbox.decide(planned).press("approve")

    assert f"Your decision about {planned} is stored." in decided(window, planned)
    advance_until(shell, planned, lambda: bool(shell.open(planned)))
    assert listed == [planned]
    assert window.console_errors() == []


def test_a_user_rejects_a_plan_and_must_write_a_note(
    window: Browser, shell: Shell, url: str, planned: JobId
) -> None:
    page = InboxPage(window, url).open().decide(planned)

    page.press("reject")
    unanswered = shell.jobs.info(planned).approval
    page.write("note", "Ask Milvus, too.")
    page.press("reject")

    decided(window, planned)
    (approval,) = shell.jobs.result(planned).approvals
    assert unanswered == "plan", "the browser asks for the note"
    assert (approval["decision"], approval["note"]) == ("rejected", "Ask Milvus, too.")


def test_a_user_changes_the_plan_and_the_job_follows_it(
    window: Browser, shell: Shell, url: str, planned: JobId
) -> None:
    page = InboxPage(window, url).open().decide(planned)
    plan = json.loads(page.text("plan"))
    plan["steps"][0]["task"] = "Read the documents about Qdrant only."

    page.write("plan", json.dumps(plan, indent=2))
    page.press("approve")

    decided(window, planned)
    advance_until(shell, planned, lambda: bool(shell.open(planned)))
    digests = [event.handoff.digest for event in shell.open(planned)]
    texts = shell.store.payloads.get(planned, digests).values()
    assert any("Read the documents about Qdrant only." in text for text in texts)


def with_cycle(steps: list[dict[str, Any]]) -> None:
    """Let the first two steps depend on each other."""
    first, second = steps[:2]
    first["depends_on"], second["depends_on"] = [second["id"]], [first["id"]]


def with_unknown_specialist(steps: list[dict[str, Any]]) -> None:
    steps[0]["specialist"] = "<b>nobody</b>"


@pytest.mark.parametrize("spoil", [with_cycle, with_unknown_specialist])
def test_a_wrong_plan_is_refused_in_the_words_of_the_command_and_the_text_is_kept(
    window: Browser,
    shell: Shell,
    url: str,
    planned: JobId,
    tmp_path: Path,
    spoil: Callable[[list[dict[str, Any]]], None],
) -> None:
    page = InboxPage(window, url).open().decide(planned)
    plan = json.loads(page.text("plan"))
    spoil(plan["steps"])
    written = json.dumps(plan, indent=1)

    page.write("plan", written)
    page.write("note", "My own plan.")
    page.press("approve")

    problems = wait_until(page.problems, expected="the refusal")
    assert problems == words_of_cli(shell.jobs, planned, plan, tmp_path)
    assert (page.text("plan"), page.text("note")) == (written, "My own plan.")
    assert shell.jobs.info(planned).approval == "plan"


def test_a_user_approves_one_tool_call_with_other_arguments(
    window: Browser, shell: Shell, url: str, tmp_path: Path
) -> None:
    job_id = submit_rows(shell, tmp_path, 1)
    (issued,) = shell.open(job_id)
    ask(shell.claim(job_id, issued), a_question("toolu_1"))
    page = InboxPage(window, url).open().decide(job_id)
    asked = window.text("main")

    page.write("arguments", '{"too": 1}')
    page.press("approve")
    problems = wait_until(page.problems, expected="the refusal")
    kept, faults = page.text("arguments"), problems_everywhere(window)
    page.write("arguments", '{"to": "b@example.com"}')
    page.press("approve")

    decided(window, job_id)
    answers = shell.claim(job_id, issued).read_call_answers()
    assert "send_mail" in asked
    assert "user, web" in asked
    assert problems == [
        "the arguments do not match send_mail: $: 'to' is a required property: correct them"
    ]
    assert (kept, faults) == ('{"too": 1}', [])
    assert answers["toolu_1"].arguments == {"to": "b@example.com"}
