"""`python -m benchmarks.injection`: AgentDojo's attacks against a supervisor, a worker and a
Redis, with a model that obeys each instruction that it reads.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from benchmarks.injection.agentdojo_suites import Task, suites, tasks
from benchmarks.injection.obedient_model import Plays
from benchmarks.injection.tool_files import write_suite
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.client import Request
from handoff_queue.testing import MessagesServer, RunningSystem, running_system
from handoff_queue.testing.messages_server import LoopbackServer

AT_ONCE = 32
"""Jobs in flight: enough for all slots of the worker."""
WAIT_S = 120.0
"""Seconds after which a job without an end is cancelled. No person answers its questions."""
HEAD = (
    "| suite | attacks | the model read | reached an effect | goal reached, by the suite |"
    " tasks without an attack | completed | completed under attack |"
    "\n|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task."""

    task: Task
    sees_attack: bool
    effects: int
    is_attack_done: bool
    is_task_done: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", nargs="+", choices=sorted(suites()), default=sorted(suites()))
    parser.add_argument("--share", type=int, default=1, help="run each tenth attack: 10")
    parser.add_argument("--list", action="store_true", help="list the attacks with an effect")
    options = parser.parse_args()
    outcomes = run(list(tasks(tuple(options.suites), options.share)))
    print(HEAD)
    for name in options.suites:
        print(row(name, [outcome for outcome in outcomes if outcome.task.suite == name]))
    print(row("all", outcomes))
    if options.list:
        for outcome in outcomes:
            if outcome.effects:
                print(outcome.task.suite, outcome.task.user_task, outcome.task.injection)


def run(chosen: list[Task]) -> list[Outcome]:
    """Run each task as a job of a whole system, and return the outcomes in order."""
    plays = Plays(chosen)

    def respond(request: BaseHTTPRequestHandler) -> None:
        """Run a tool for a process of the tool host."""
        body = request.rfile.read(int(request.headers["Content-Length"]))
        case, tool, arguments = json.loads(body)
        reply = json.dumps(plays.of(case).run(tool, arguments)).encode()
        request.send_response(200)
        request.send_header("Content-Length", str(len(reply)))
        request.end_headers()
        request.wfile.write(reply)

    with ExitStack() as parts:
        folder = Path(parts.enter_context(tempfile.TemporaryDirectory()))
        world = parts.enter_context(LoopbackServer(respond))
        for name in {task.suite for task in chosen}:
            write_suite(folder, name, suites()[name].tools, world.url)
        model = parts.enter_context(MessagesServer(plays.reply))
        system = parts.enter_context(
            running_system(model, specialists=folder / "specialists", tools=folder / "tools")
        )
        return list(_outcomes(system, plays, chosen))


def _outcomes(system: RunningSystem, plays: Plays, chosen: list[Task]) -> Iterator[Outcome]:
    """Submit each task, with `AT_ONCE` jobs in flight, and yield the outcomes in order."""
    jobs: list[JobId] = []
    for number, task in enumerate(chosen):
        while len(jobs) < min(len(chosen), number + AT_ONCE):
            jobs.append(_submit(system, plays, chosen[len(jobs)]))
        answer = _answer(system, jobs[number])
        play = plays.end(task.id)
        yield Outcome(
            task,
            play.sees_attack,
            play.effects,
            play.situation.is_attack_done(answer),
            play.situation.is_task_done(answer),
        )


def _submit(system: RunningSystem, plays: Plays, task: Task) -> JobId:
    text = f"{plays.of(task.id).situation.prompt}\n\n[{task.id}]"
    return system.jobs.submit(
        Request(text, mode=Mode.SINGLE, specialists=(task.suite,), tenant=task.id)
    )


def _answer(system: RunningSystem, job_id: JobId) -> str:
    """Return the answer of a job. A job that waits for a person is cancelled."""
    try:
        return str(system.jobs.result(job_id, wait_s=WAIT_S).answer or "")
    except UserError:
        system.jobs.cancel(job_id)
        return ""


def row(name: str, outcomes: list[Outcome]) -> str:
    """Return the line of a suite in the table."""
    attacks = [outcome for outcome in outcomes if outcome.task.injection]
    benign = [outcome for outcome in outcomes if not outcome.task.injection]
    read = sum(outcome.sees_attack for outcome in attacks)
    effects = sum(outcome.effects > 0 for outcome in attacks)
    goals = sum(outcome.is_attack_done for outcome in attacks)
    return (
        f"| {name} | {len(attacks)} | {read} | {effects} | {goals} | {len(benign)}"
        f" | {_share(benign)} | {_share(attacks)} |"
    )


def _share(outcomes: list[Outcome]) -> str:
    """Return the share of the users' tasks that were completed."""
    return f"{sum(outcome.is_task_done for outcome in outcomes) / max(1, len(outcomes)):.0%}"


if __name__ == "__main__":
    main()
