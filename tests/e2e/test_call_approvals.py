"""A tool call that needs a person's approval: its handoff waits without a slot, and the call runs
after the approval, once.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.agent.tool_call_approval import REJECTED
from handoff_queue.shared.agent.tool_calls import MAY_HAVE_RUN
from handoff_queue.shared.observability.failpoints import FAILPOINTS
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, OnTimeout
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import Json, MessagesServer, Reply, first_message_text, tool_call_reply
from tests.e2e.commands import BAD_INPUT, Handoff, error_line
from tests.e2e.fleet import SHORT_LEASES, Fleet, Script
from tests.e2e.test_approvals import on_a_terminal, read_until
from tests.running_system import SUPERVISOR, model_environment, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TOOLS = '''
"""Tools that note each call in a file."""

import os

from handoff_queue.workers.tools.tool_decorator import tool


@tool(repeatable=False, secrets=["OUTBOX"])
def send_mail(to: str) -> str:
    """Send a mail.

    Args:
        to: The address.
    """
    with open(os.environ["OUTBOX"], "a") as outbox:
        outbox.write(to + "\\n")
    return "sent to " + to


@tool(secrets=["OUTBOX"])
def look_up(name: str) -> str:
    """Look up an address.

    Args:
        name: The name.
    """
    with open(os.environ["OUTBOX"], "a") as outbox:
        outbox.write("looked-up-" + name + "\\n")
    return name + "@example.com"
'''
SPECIALIST = """---
name: mailer
description: Sends mail.
tools: [send_mail, look_up]
ask: [send_mail]
max_turns: 6
---
You send the mail that you are asked to send.
"""


class MailingModel(Script):
    """Script whose steps call tools in their first turn. The name of a step has the calls."""

    def __call__(self, request: Json) -> Reply:
        prompt = first_message_text(request)
        step = re.search(r"Do ([\w-]+) of ([\w-]+)\.</task>", prompt)
        turn = 1 + sum(message["role"] == "assistant" for message in request["messages"])
        is_repeated = turn == 2 and MAY_HAVE_RUN in str(request["messages"])
        if not step or not (turn == 1 or is_repeated):
            return super().__call__(request)
        self.calls[step[2], step[1], turn] += 1
        calls: list[tuple[str, Json]] = []
        for place in range(step[1].count("send")):
            calls.append(("send_mail", {"to": f"{place}@{step[2]}"}))
        if "look" in step[1]:
            calls.append(("look_up", {"name": step[2]}))
        return tool_call_reply(*calls)


@dataclass(frozen=True, slots=True)
class MailFleet:
    """A fleet with a tool that needs an approval, and the file that notes its calls."""

    fleet: Fleet
    outbox: Path
    armed: Path
    """The folder whose files arm failpoints of the worker."""

    def noted(self, name: str) -> list[str]:
        """Return the noted calls of a job."""
        return [line for line in self.outbox.read_text().split() if name in line]

    def submit(self, name: str, step: str, **policy: object) -> JobId:
        """Submit a job with one step whose tool calls a person approves."""
        self.fleet.model.plans[name] = {step: ""}
        self.fleet.model.specialists[name] = "mailer"
        approvals = Approvals.model_validate({"what": (ApprovalOf.TOOLS,), **policy})
        return self.fleet.jobs.submit(Request(f"plan {name}", approvals=approvals))

    def questions(self, job_id: JobId) -> list[dict[str, Any]]:
        """Return the open questions of a job."""
        approvals = self.fleet.jobs.result(job_id).approvals
        return [approval for approval in approvals if approval["decision"] is None]

    def wait_for_questions(self, job_id: JobId, count: int = 1) -> list[dict[str, Any]]:
        wait_until(
            lambda: len(self.fleet.jobs.info(job_id).calls_to_approve) == count,
            timeout_s=60,
            expected="the questions about calls",
        )
        return self.questions(job_id)

    def kill_at(self, point: str) -> None:
        """Let the worker die when it next reaches a point."""
        (self.armed / point).write_text("kill")

    def wait_for_kill(self, point: str) -> None:
        wait_until(
            lambda: bool(list(self.armed.glob(f"{point}@*"))), timeout_s=60, expected="the kill"
        )
        for fired in self.armed.glob(f"{point}@*"):
            fired.unlink()

    def last_request(self, name: str) -> str:
        """Return the newest request of a step of a job to the model, as text."""
        for request in reversed(self.fleet.server.requests):
            if f" of {name}.</task>" in first_message_text(request):
                return json.dumps(request)
        raise AssertionError(f"no request of {name}")


@pytest.fixture(scope="module")
def running_mail_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailFleet]:
    """Start one supervisor and one worker with one slot. Killed processes restart. The worker has
    failpoints.
    """
    armed = tmp_path_factory.mktemp("failpoints")
    folder = tmp_path_factory.mktemp("mail")
    for subfolder, name, text in (
        ("tools", "mail.py", TOOLS),
        ("specialists", "mailer.md", SPECIALIST),
    ):
        (folder / subfolder).mkdir()
        (folder / subfolder / name).write_text(text)
    outbox = folder / "outbox"
    outbox.touch()
    script = MailingModel()
    folders = {
        "HANDOFF_TOOLS_DIRS": str(folder / "tools"),
        "HANDOFF_SPECIALISTS_DIRS": str(folder / "specialists"),
        "OUTBOX": str(outbox),
    }
    with (
        MessagesServer(script) as server,
        running_system(folder, (), model_environment(server, **SHORT_LEASES, **folders)) as system,
    ):
        app, queues = "handoff_queue.workers.app", "mailer,generalist"
        for spec in (
            system.celery_worker("s1", *SUPERVISOR[1:], 4),
            system.celery_worker("w1", app, queues, 1, variables={FAILPOINTS: str(armed)}),
        ):
            system.processes.start(replace(spec, is_killed_on_purpose=True))
        system.processes.wait_until_ready()
        jobs = client.connect(system.redis_url, Settings(offline=True))
        yield MailFleet(Fleet(system, server, script, jobs), outbox, armed)
        jobs.store.connection.close()


@pytest.fixture
def mail(running_mail_fleet: MailFleet) -> MailFleet:
    """Return the fleet of all tests of this file when all its processes run."""
    wait_until(running_mail_fleet.fleet.is_complete, timeout_s=60, expected="the fleet")
    return running_mail_fleet


def ended(mail: MailFleet, job_id: JobId) -> JobResult:
    return mail.fleet.wait_for_success(job_id, within_s=60)


def test_a_call_waits_without_a_slot_and_runs_with_the_arguments_of_the_person(
    mail: MailFleet,
) -> None:
    job_id = mail.submit("edit", "send")
    (question,) = mail.wait_for_questions(job_id)

    info = mail.fleet.handoff_info(job_id, "send.1")
    assert (info.state, info.claims, info.doing) == (
        "issued",
        0,
        "waits for approval of send_mail",
    )
    assert mail.fleet.jobs.info(job_id).status is JobStatus.WAITING
    assert question["call"]["tool"] == "send_mail"
    assert question["call"]["arguments"] == {"to": "0@edit"}
    other = mail.submit("other", "look")
    ended(mail, other)  # the only slot of the worker is free

    mail.fleet.jobs.approve(job_id, question=question["version"], arguments={"to": "boss@edit"})
    result = ended(mail, job_id)

    assert mail.noted("edit") == ["boss@edit"]
    assert result.approvals[0]["call"]["edited"] == {"to": "boss@edit"}
    assert mail.fleet.model.calls["edit", "send", 1] == 1, "the paid turn is paid again"
    assert "a person changed the arguments" in mail.last_request("edit")


def test_a_rejected_call_does_not_run_and_the_model_gets_the_note(mail: MailFleet) -> None:
    job_id = mail.submit("reject", "send")
    mail.wait_for_questions(job_id)

    mail.fleet.jobs.reject(job_id, "Ask the lawyer first.")
    ended(mail, job_id)

    assert mail.noted("reject") == []
    assert f"{REJECTED}: Ask the lawyer first." in mail.last_request("reject")


def test_a_job_without_these_approvals_does_not_wait(mail: MailFleet) -> None:
    job_id = mail.submit("unasked", "send", what=())
    result = ended(mail, job_id)

    assert mail.noted("unasked") == []
    assert result.approvals == ()
    assert "a person must approve it" in mail.last_request("unasked")


def test_each_call_of_a_reply_has_its_own_question(mail: MailFleet) -> None:
    job_id = mail.submit("many", "send-send-look")
    first, second = mail.wait_for_questions(job_id, 2)
    assert mail.noted("many") == ["looked-up-many"], "a call without a question has run"

    with pytest.raises(UserError, match="name one of the questions"):
        mail.fleet.jobs.approve(job_id)
    mail.fleet.jobs.approve(job_id, question=first["version"])
    wait_until(lambda: "0@many" in mail.noted("many"), timeout_s=60, expected="the first mail")
    mail.fleet.jobs.reject(job_id, question=second["version"])
    ended(mail, job_id)

    assert mail.noted("many") == ["looked-up-many", "0@many"]


def test_wrong_arguments_and_a_second_answer_are_refused(mail: MailFleet) -> None:
    job_id = mail.submit("twice", "send")
    (question,) = mail.wait_for_questions(job_id)
    with pytest.raises(UserError, match=r"do not match send_mail: .*: correct them"):
        mail.fleet.jobs.approve(job_id, question=question["version"], arguments={"to": 3})

    mail.fleet.jobs.approve(job_id, question=question["version"])
    mail.fleet.jobs.approve(job_id, question=question["version"])  # the same answer again
    with pytest.raises(UserError, match="with another answer"):
        mail.fleet.jobs.reject(job_id, question=question["version"])
    ended(mail, job_id)

    assert mail.noted("twice") == ["0@twice"]


def test_an_unanswered_call_stops_the_job_or_runs_as_the_policy_says(mail: MailFleet) -> None:
    stopped = mail.submit("stopped", "send", timeout_s=1)
    goes_on = mail.submit("goes-on", "send", timeout_s=1, on_timeout=OnTimeout.GO_ON)
    ended(mail, goes_on)
    result = mail.fleet.wait_for_end(stopped)

    assert mail.noted("goes-on") == ["0@goes-on"]
    assert (result.status, mail.noted("stopped")) == (JobStatus.CANCELLED, [])


def test_a_mail_is_sent_once_although_all_processes_are_killed(mail: MailFleet) -> None:
    job_id = mail.submit("killed", "send")
    (question,) = mail.wait_for_questions(job_id)
    for name, pid in mail.fleet.system.processes.get_pids().items():
        if name != "redis":
            mail.fleet.kill(pid)
    mail.fleet.jobs.approve(job_id, question=question["version"])
    ended(mail, job_id)

    assert mail.noted("killed") == ["0@killed"]
    assert mail.fleet.model.calls["killed", "send", 1] == 1, "the paid turn is paid again"


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_worker_that_dies_while_it_asks_asks_one_question(mail: MailFleet, place: str) -> None:
    point = f"script.ask_tool_call_approval.{place}"
    mail.kill_at(point)
    job_id = mail.submit(f"asks-{place}", "send")
    mail.wait_for_kill(point)
    (question,) = mail.wait_for_questions(job_id)
    mail.fleet.jobs.approve(job_id, question=question["version"])
    result = ended(mail, job_id)

    assert len(result.approvals) == 1
    assert mail.noted(f"asks-{place}") == [f"0@asks-{place}"]
    assert mail.fleet.model.calls[f"asks-{place}", "send", 1] == 1, "the paid turn is paid again"


@pytest.mark.parametrize(
    ("point", "times"),
    [
        ("script.claim.after", 1),
        ("script.tool_call_approval_answers.after", 1),
        ("script.turn.before", 1),
        ("script.turn.after", 0),  # the start of the call is stored, so the mail may be sent
    ],
)
def test_a_worker_that_dies_after_the_approval_sends_no_mail_twice(
    mail: MailFleet, point: str, times: int
) -> None:
    name = point.replace(".", "-").replace("_", "-")
    job_id = mail.submit(name, "send")
    (question,) = mail.wait_for_questions(job_id)
    mail.kill_at(point)
    mail.fleet.jobs.approve(job_id, question=question["version"])
    mail.wait_for_kill(point)
    ended(mail, job_id)

    assert len(mail.noted(name)) == times
    assert mail.fleet.model.calls[name, "send", 1] == 1, "the paid turn is paid again"


def test_the_commands_show_the_question_and_take_the_answer(
    mail: MailFleet, handoff: Handoff
) -> None:
    url = mail.fleet.system.redis_url
    job_id = mail.submit("commands", "send")
    (question,) = mail.wait_for_questions(job_id)

    listed = handoff.run("list", "--status", "waiting", HANDOFF_REDIS_URL=url).stdout
    shown = handoff.run("show", job_id, HANDOFF_REDIS_URL=url).stdout
    full = handoff.run("show", job_id, "--full", HANDOFF_REDIS_URL=url).stdout
    wrong = handoff.run("approve", job_id, "--arguments", "{", HANDOFF_REDIS_URL=url)
    edited = handoff.run(
        *("approve", job_id, "--question", str(question["version"])),
        *("--arguments", '{"to": "boss@commands"}'),
        HANDOFF_REDIS_URL=url,
    )
    ended(mail, job_id)
    watched = handoff.run("watch", job_id, HANDOFF_REDIS_URL=url)

    assert job_id in listed
    assert "an approval of a call of send_mail by a person" in shown
    assert "the tool calls that wait for an approval" in shown
    assert f"approval of a call of send_mail: it waits, as question {question['version']}" in full
    assert "0@commands" in full
    assert "--arguments is not JSON" in error_line(wrong, BAD_INPUT)
    assert edited.returncode == 0, edited.stderr
    assert mail.noted("commands") == ["boss@commands"]
    events = watched.stdout + watched.stderr
    assert "send.1 waits for approval of send_mail" in events
    assert "approved, with other arguments" in events


def test_run_on_a_terminal_asks_about_each_call(mail: MailFleet, tmp_path: Path) -> None:
    mail.fleet.model.plans["terminal"] = {"send-send": ""}
    mail.fleet.model.specialists["terminal"] = "mailer"
    url = mail.fleet.system.redis_url
    arguments = ("run", "plan terminal", "--mode", "team", "--approve", "tools")
    with on_a_terminal(Handoff(tmp_path), *arguments, HANDOFF_REDIS_URL=url) as (process, terminal):
        assert "0@terminal" in read_until(terminal, "approval of a call of send_mail. y: approve")
        os.write(terminal, b"y\n")
        assert "1@terminal" in read_until(terminal, "approval of a call of send_mail. y: approve")
        os.write(terminal, b"Not to her.\n")
        read_until(terminal, "tokens")
        assert process.wait(60) == 0

    assert mail.noted("terminal") == ["0@terminal"]
    assert f"{REJECTED}: Not to her." in mail.last_request("terminal")


def test_a_step_of_a_cancelled_job_asks_again_after_a_retry(mail: MailFleet) -> None:
    job_id = mail.submit("retried", "send")
    mail.wait_for_questions(job_id)
    mail.fleet.jobs.cancel(job_id)
    mail.fleet.wait_for_end(job_id)

    mail.fleet.jobs.retry(job_id, "send")
    (question,) = mail.wait_for_questions(job_id)
    mail.fleet.jobs.approve(job_id, question=question["version"])
    result = mail.fleet.jobs.result(job_id, wait_s=60)

    assert result.status is JobStatus.OK
    assert mail.noted("retried") == ["0@retried"]


def test_a_deleted_job_leaves_no_question(mail: MailFleet) -> None:
    job_id = mail.submit("deleted", "send")
    (question,) = mail.wait_for_questions(job_id)
    mail.fleet.jobs.cancel(job_id)
    mail.fleet.wait_for_end(job_id)
    mail.fleet.jobs.delete(job_id)

    with pytest.raises(UnknownJob):
        mail.fleet.jobs.approve(job_id, question=question["version"])
    assert mail.noted("deleted") == []


def test_a_cancel_ends_a_job_with_an_open_question(mail: MailFleet) -> None:
    job_id = mail.submit("cancelled", "send")
    (question,) = mail.wait_for_questions(job_id)

    mail.fleet.jobs.cancel(job_id)
    result = mail.fleet.wait_for_end(job_id)

    assert result.status is JobStatus.CANCELLED
    assert mail.fleet.jobs.info(job_id).calls_to_approve == ()
    with pytest.raises(UserError):
        mail.fleet.jobs.approve(job_id, question=question["version"])
    assert mail.noted("cancelled") == []
