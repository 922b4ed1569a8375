"""A tool with an effect, on real processes that are killed: it never runs twice, and never
before its approval.
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
from handoff_queue.supervisor.client.client import Request
from handoff_queue.supervisor.workflows import Workflow, read_workflow
from handoff_queue.testing import Json, MessagesServer, Reply, first_message_text, tool_call_reply
from tests.e2e.fleet import QUICK, Fleet, Script
from tests.running_system import SUPERVISOR, over, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TOOLS = '''
"""A tool that sends mail: each call that reaches it adds a line to a file."""

import os
import threading

from handoff_queue.workers.tools.tool_decorator import tool


@tool(repeatable=False)
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
KILLS = 12


class Mails(Script):
    """The same model. Its steps called `send...` send a mail, and repeat an interrupted call."""

    def __call__(self, request: Json) -> Reply:
        said = first_message_text(request)
        step = re.search(r"Do (send[\w-]*) of ([\w-]+)\.</task>", said)
        turn = 1 + sum(message["role"] == "assistant" for message in request["messages"])
        if step and (turn == 1 or (turn == 2 and MAY_HAVE_RUN in str(request["messages"]))):
            return tool_call_reply(("send_mail", {"to": f"{step[1]}@{step[2]}"}))
        return super().__call__(request)


@dataclass(frozen=True, slots=True)
class Post:
    """A fleet with a tool that sends mail, and the outbox of the tool."""

    fleet: Fleet
    outbox: Path
    folder: Path

    def sent(self) -> Counter[str]:
        return Counter(self.outbox.read_text().split())

    def submit_reviewed(self, name: str) -> JobId:
        request = Request(f"plan {name}", workflow=self._workflow(name))
        return self.fleet.jobs.submit(request)

    def _workflow(self, name: str) -> Workflow:
        path = self.folder / f"{name}.yaml"
        path.write_text(REVIEWED.replace("NAME", name))
        return read_workflow(str(path))


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    """One supervisor and three workers of two slots; a process that is killed is started again."""
    for folder, name, text in (
        ("tools", "mail.py", TOOLS),
        ("specialists", "mailer.md", SPECIALIST),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    outbox = tmp_path / "outbox"
    outbox.touch()
    script = Mails()
    own = {
        "HANDOFF_TOOLS_DIRS": str(tmp_path / "tools"),
        "HANDOFF_SPECIALISTS_DIRS": str(tmp_path / "specialists"),
        "OUTBOX": str(outbox),
    }
    with (
        MessagesServer(script) as server,
        running_system(tmp_path, (), over(server, **QUICK, **own)) as system,
    ):
        everyone = ("handoff_queue.workers.app", "mailer,generalist", "2")
        members = {"s1": (*SUPERVISOR[1:], "4"), "w1": everyone, "w2": everyone, "w3": everyone}
        for name, (app, queues, slots) in members.items():
            spec = system.celery(
                name, "-A", app, "worker", "-n", f"{name}@%h", "-Q", queues, "-c", slots
            )
            system.processes.start(replace(spec, is_hunted=True))
        system.processes.wait_until_ready()
        jobs = client.connect(system.redis_url, Settings(offline=True))
        yield Post(Fleet(system, server, script, jobs), outbox, tmp_path)
        jobs.store.connection.close()


def kill_one(fleet: Fleet, dice: Random) -> None:
    """Kill a worker, or the supervisor, and wait until it has been started again."""
    pids = {name: pid for name, pid in fleet.system.processes.pids().items() if name != "redis"}
    fleet.kill(pids[dice.choice(sorted(pids))])
    wait_until(fleet.is_whole, timeout_s=60, what="the fleet")


def has_news(post: Post, seen: int, job_ids: Sequence[JobId]) -> bool:
    """Return whether a mail was sent after the first `seen` ones, or all jobs have ended."""
    standing = post.fleet.jobs.standing
    is_over = all(standing(job_id).status.ended for job_id in job_ids)
    return is_over or sum(post.sent().values()) > seen


def asks_about(fleet: Fleet, job_id: JobId) -> bool:
    return fleet.jobs.standing(job_id).approval == "step"


def test_no_mail_is_sent_twice_while_everything_is_killed_at_random(post: Post) -> None:
    fleet, dice = post.fleet, Random(20_261_126)
    names = [f"post{n}" for n in range(6)]
    for name in names:
        fleet.model.specialists[name] = "mailer"
    steps = ("send1", "send2", "send3")
    job_ids = [fleet.submit(name, send1="", send2="", send3="send1") for name in names]

    for _ in range(KILLS):
        seen = sum(post.sent().values())
        wait_until(partial(has_news, post, seen, job_ids), what="the next mail")
        kill_one(fleet, dice)  # while the tool still runs, if it is that worker's
    results = [fleet.ends(job_id, within_s=120) for job_id in job_ids]

    assert all(count == 1 for count in post.sent().values()), post.sent()
    assert set(post.sent()) <= {f"{step}@{name}" for step in steps for name in names}
    assert len(post.sent()) > len(names), "most mails are sent all the same"
    assert all(result.status.ended for result in results)


def test_no_mail_is_sent_before_the_review_and_the_approval_and_then_it_is_sent_once(
    post: Post,
) -> None:
    fleet = post.fleet
    job_id = post.submit_reviewed("letter")
    wait_until(lambda: asks_about(fleet, job_id), what="the question about the step")
    assert fleet.model.calls["letter", "assessor", 1] == 1
    for name in ("s1", "w1", "w2", "w3"):
        fleet.kill(fleet.system.processes.pids()[name])
    wait_until(fleet.is_whole, timeout_s=60, what="the fleet")
    assert (asks_about(fleet, job_id), post.sent()) == (True, Counter())

    fleet.jobs.approve(job_id, steps=["send"])
    result = fleet.ends(job_id)

    assert (result.status, post.sent()) == (JobStatus.OK, Counter({"send@letter": 1}))


def test_a_rejected_mail_is_never_sent_and_the_job_ends_with_the_reason(post: Post) -> None:
    fleet = post.fleet
    job_id = post.submit_reviewed("refused")
    wait_until(lambda: asks_about(fleet, job_id), what="the question about the step")
    fleet.jobs.reject(job_id, "Not this one.")
    result = fleet.ends(job_id)

    assert (result.status, post.sent()) == (JobStatus.PARTIAL, Counter())
    assert "a person rejected it before it began" in str(result.answer)


def test_a_retry_sends_no_mail_again_unless_the_step_is_named(post: Post) -> None:
    fleet = post.fleet
    fleet.model.specialists["again"] = "mailer"
    job_id = fleet.submit("again", write="", send="write")
    fleet.ends(job_id)

    fleet.jobs.retry(job_id, from_step="write")
    wait_until(lambda: fleet.model.calls["again", "write", 1] == 2, what="the other step again")
    wait_until(lambda: fleet.jobs.standing(job_id).status.ended, what="the end of the retry")
    assert post.sent() == Counter({"send@again": 1})
    fleet.jobs.retry(job_id, from_step="send")
    wait_until(lambda: post.sent()["send@again"] == 2, what="the mail that was asked for again")
