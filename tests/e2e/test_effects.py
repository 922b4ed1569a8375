"""A tool with an effect never runs twice and never before its approval, although processes are
killed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from handoff_queue.shared.agent.tool_calls import MAY_HAVE_RUN
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows import Workflow, read_workflow
from handoff_queue.testing import Json, MessagesServer, Reply, first_message_text, tool_call_reply
from tests.e2e.fleet import SHORT_LEASES, Fleet, Script
from tests.running_system import SUPERVISOR, model_environment, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TOOLS = '''
"""A tool that sends mail: each call adds a line to a file."""

import os
import threading

from handoff_queue.workers.tools.tool_decorator import tool


@tool(repeatable=False, secrets=["OUTBOX"])
def send_mail(to: str) -> str:
    """Send a mail.

    Args:
        to: The address.
    """
    with open(os.environ["OUTBOX"], "a") as outbox:
        outbox.write(to + "\\n")
    threading.Event().wait(0.8)
    return "sent to " + to
'''
SPECIALIST = """---
name: mailer
description: Sends mail.
tools: [send_mail]
max_turns: 4
---
You send the mail that you are asked to send.
"""
REVIEWED = """
description: Writes a letter, and sends it after the review and an approval.
steps:
  - {id: write, specialist: mailer, task: Do write of NAME.}
  - {id: send, specialist: mailer, depends_on: [write], after: review, approve: true,
     task: Do send of NAME.}
"""
KILLS = 8


class MailingModel(Script):
    """Script whose steps called `send...` send a mail, and repeat an interrupted call."""

    def __call__(self, request: Json) -> Reply:
        prompt = first_message_text(request)
        step = re.search(r"Do (send[\w-]*) of ([\w-]+)\.</task>", prompt)
        turn = 1 + sum(message["role"] == "assistant" for message in request["messages"])
        if step and (turn == 1 or (turn == 2 and MAY_HAVE_RUN in str(request["messages"]))):
            return tool_call_reply(("send_mail", {"to": f"{step[1]}@{step[2]}"}))
        return super().__call__(request)


@dataclass(frozen=True, slots=True)
class MailFleet:
    """A fleet with a tool that sends mail, and the outbox of the tool."""

    fleet: Fleet
    outbox: Path
    folder: Path

    def sent(self, *names: str) -> Counter[str]:
        """Return how often each mail of these jobs was sent."""
        mails = self.outbox.read_text().split()
        return Counter(mail for mail in mails if mail.partition("@")[2] in names)

    def submit_reviewed(self, name: str) -> JobId:
        request = Request(f"plan {name}", workflow=self._workflow(name))
        return self.fleet.jobs.submit(request)

    def _workflow(self, name: str) -> Workflow:
        path = self.folder / f"{name}.yaml"
        path.write_text(REVIEWED.replace("NAME", name))
        return read_workflow(str(path))


@pytest.fixture(scope="module")
def running_mail_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailFleet]:
    """Start one supervisor and three workers with two slots each. Killed processes restart."""
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
        worker = ("handoff_queue.workers.app", "mailer,generalist", 2)
        processes = {"s1": (*SUPERVISOR[1:], 4), "w1": worker, "w2": worker, "w3": worker}
        for name, (app, queues, slots) in processes.items():
            spec = system.celery_worker(name, app, queues, slots)
            system.processes.start(replace(spec, is_killed_on_purpose=True))
        system.processes.wait_until_ready()
        jobs = client.connect(system.redis_url, Settings(offline=True))
        yield MailFleet(Fleet(system, server, script, jobs), outbox, folder)
        jobs.store.connection.close()


@pytest.fixture
def mail_fleet(running_mail_fleet: MailFleet) -> MailFleet:
    """Return the fleet of all tests of this file when all its processes run."""
    wait_until(running_mail_fleet.fleet.is_complete, timeout_s=60, expected="the fleet")
    return running_mail_fleet


def kill_one(fleet: Fleet, dice: Random) -> None:
    """Kill a random process, and wait until it has restarted."""
    pids = {name: pid for name, pid in fleet.system.processes.get_pids().items() if name != "redis"}
    fleet.kill(pids[dice.choice(sorted(pids))])
    wait_until(fleet.is_complete, timeout_s=60, expected="the fleet")


def has_progress(
    mail_fleet: MailFleet, names: Sequence[str], sent: int, job_ids: Sequence[JobId]
) -> bool:
    """Return whether more than `sent` mails were sent, or all jobs have ended."""
    info = mail_fleet.fleet.jobs.info
    is_over = all(info(job_id).status.has_ended for job_id in job_ids)
    return is_over or sum(mail_fleet.sent(*names).values()) > sent


def waits_for_approval(fleet: Fleet, job_id: JobId) -> bool:
    return fleet.jobs.info(job_id).approval == "step"


def test_no_mail_is_sent_twice_although_random_processes_are_killed(mail_fleet: MailFleet) -> None:
    fleet, dice = mail_fleet.fleet, Random(20_261_126)
    names = [f"post{n}" for n in range(6)]
    for name in names:
        fleet.model.specialists[name] = "mailer"
    steps = ("send1", "send2", "send3")
    job_ids = [fleet.submit(name, send1="", send2="", send3="send1") for name in names]

    for _ in range(KILLS):
        sent = sum(mail_fleet.sent(*names).values())
        is_next = partial(has_progress, mail_fleet, names, sent, job_ids)
        wait_until(is_next, expected="the next mail")
        kill_one(fleet, dice)  # The tool may still run in this worker.
    results = [fleet.wait_for_end(job_id, within_s=120) for job_id in job_ids]

    mails = mail_fleet.sent(*names)
    assert all(count == 1 for count in mails.values()), mails
    assert set(mails) <= {f"{step}@{name}" for step in steps for name in names}
    assert len(mails) > len(names), "most mails are sent"
    assert all(result.status.has_ended for result in results)


def test_no_mail_is_sent_before_the_review_and_the_approval_and_then_it_is_sent_once(
    mail_fleet: MailFleet,
) -> None:
    fleet = mail_fleet.fleet
    job_id = mail_fleet.submit_reviewed("letter")
    wait_until(lambda: waits_for_approval(fleet, job_id), expected="the question about the step")
    assert fleet.model.calls["letter", "assessor", 1] == 1
    for name in ("s1", "w1", "w2", "w3"):
        fleet.kill(fleet.system.processes.get_pids()[name])
    wait_until(fleet.is_complete, timeout_s=60, expected="the fleet")
    assert (waits_for_approval(fleet, job_id), mail_fleet.sent("letter")) == (True, Counter())

    fleet.jobs.approve(job_id, steps=["send"])
    result = fleet.wait_for_end(job_id)

    assert (result.status, mail_fleet.sent("letter")) == (
        JobStatus.OK,
        Counter({"send@letter": 1}),
    )


def test_a_rejected_mail_is_never_sent_and_the_job_ends_with_the_reason(
    mail_fleet: MailFleet,
) -> None:
    fleet = mail_fleet.fleet
    job_id = mail_fleet.submit_reviewed("refused")
    wait_until(lambda: waits_for_approval(fleet, job_id), expected="the question about the step")
    fleet.jobs.reject(job_id, "Not this one.")
    result = fleet.wait_for_end(job_id)

    assert (result.status, mail_fleet.sent("refused")) == (JobStatus.PARTIAL, Counter())
    assert "a person rejected it before it began" in str(result.answer)


def test_a_retry_sends_no_mail_again_unless_the_step_is_named(mail_fleet: MailFleet) -> None:
    fleet = mail_fleet.fleet
    fleet.model.specialists["again"] = "mailer"
    job_id = fleet.submit("again", write="", send="write")
    fleet.wait_for_end(job_id)

    fleet.jobs.retry(job_id, from_step="write")
    wait_until(
        lambda: fleet.model.calls["again", "write", 1] == 2,
        expected="the second run of the other step",
    )
    wait_until(lambda: fleet.jobs.info(job_id).status.has_ended, expected="the end of the retry")
    assert mail_fleet.sent("again") == Counter({"send@again": 1})
    fleet.jobs.retry(job_id, from_step="send")
    wait_until(lambda: mail_fleet.sent("again")["send@again"] == 2, expected="the repeated mail")
