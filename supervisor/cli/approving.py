"""A person's say in a job: `handoff approve`, `handoff reject`, and the question that `handoff run` asks in place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml
from pydantic import JsonValue

from shared.wire.approval import ApprovalOf, Approvals, OnTimeout
from shared.wire.errors import UserError
from shared.wire.ids import JobId
from shared.wire.usage import microusd
from supervisor.cli.errors import OK, say
from supervisor.cli.jobs import Job, client_of_broker
from supervisor.cli.terminal import note, plain, stderr, write_line

if TYPE_CHECKING:
    from supervisor.cli.asking import Asked
    from supervisor.client import Client
    from supervisor.lifecycle.state import Question

MOST_PLAN_BYTES = 1_000_000

Note = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="What you have to say about it; kept with the job.")]


def approve(
    job: Job,
    note: Note = None,
    edit: Annotated[Path | None, typer.Option(metavar="FILE", help="A plan, as `handoff show` prints it, instead of the job's.")] = None,
) -> int:
    """Let a job go on that waits for an approval.

    `handoff show JOB` has what it is about: the plan, what the steps have found, or the draft of the answer.
    """
    jobs = client_of_broker()
    try:
        jobs.approve(JobId(job), note, plan_in(edit) if edit else None)
    except UserError as error:  # a line for each thing that is wrong with a plan
        for line in str(error).splitlines():
            say(line)
        return error.exit_code
    write_line(f"{job} goes on: `handoff watch {job}`")
    return OK


def reject(
    job: Job,
    note: Note = None,
    steps: Annotated[list[str], typer.Option("--step", metavar="STEP", help="Only this step again; may be repeated.")] = [],  # noqa: B006
) -> int:
    """Have what a job waits for an approval of made again, with your note as feedback.

    A plan is planned again. What was found, or answered, is done again by the steps that make the answer, or by those that you name. It
    counts as a round; where none is left, the job ends without an answer.
    """
    client_of_broker().reject(JobId(job), note, steps)
    write_line(f"{job} is told: `handoff watch {job}`")
    return OK


def plan_in(file: Path) -> JsonValue:
    """A plan in YAML or JSON; every value is the text that was typed.

    Raises:
        UserError: not there, or not YAML.
    """
    from supervisor.workflows.bounded_file import bounded_bytes
    from supervisor.workflows.plain_yaml import compose

    try:
        text = bounded_bytes(file, MOST_PLAN_BYTES, "shorten it").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    return _value(str(file), compose(file, text))


def _value(where: str, node: yaml.Node) -> JsonValue:
    from supervisor.workflows.plain_yaml import fields_of, text_of

    if isinstance(node, yaml.MappingNode):
        return {name: _value(where, value) for name, value in fields_of(where, node).items()}
    if isinstance(node, yaml.SequenceNode):
        return [_value(where, one) for one in node.value]
    return text_of(where, node)


def approvals_of(asked: Asked) -> Approvals:
    """Raises: UserError: an amount that is none."""
    if asked.approve_above_usd is not None and not 1e-6 <= asked.approve_above_usd < 1e9:
        raise UserError("--approve-above-usd must be more than 0")
    return Approvals(
        what=tuple(ApprovalOf(one) for one in dict.fromkeys(asked.approve)),
        above_microusd=microusd(asked.approve_above_usd),
        timeout_s=asked.approve_timeout_s,
        on_timeout=asked.on_timeout or OnTimeout.STOP,
    )


def can_ask() -> bool:
    """Whether somebody sits here who sees a question and can answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_in_place(jobs: Client, job_id: JobId, question: Question) -> None:
    """Show what is to be approved of, and bring the answer."""
    from supervisor.cli.answer import account
    from supervisor.cli.showing import readable

    result = jobs.result(job_id)
    draft = next((one["draft"] for one in result.approvals if one["version"] == question.version), None)
    console = stderr()
    if question.what is ApprovalOf.PLAN:
        note(readable(result.plan, console.width))
    else:
        console.print(account(result))
    if draft is not None:
        note(f"\n{plain(draft) if isinstance(draft, str) else readable(draft, console.width)}\n")
    note(f"{job_id} waits for an approval of its {question.what}. y: go on; n: stop it here; anything else: what is to be mended")
    said = ""
    while not said:
        said = _line()
    try:
        match said.lower():
            case "y" | "yes":
                jobs.approve(job_id)
            case "n" | "no":
                jobs.cancel(job_id)
            case _:
                jobs.reject(job_id, said)
    except UserError as error:  # somebody else was quicker, or the note is none
        say(str(error))


def _line() -> str:
    sys.stderr.write("> ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:  # Ctrl-D: nobody will answer here
        raise KeyboardInterrupt
    return line.strip()
