"""`handoff approve` and `handoff reject`: answer a question of a waiting job."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
import yaml
from pydantic import JsonValue

from handoff_queue.shared.types.errors import ManyProblems, PlanRefused, UserError
from handoff_queue.supervisor.cli.connection import Job, connect_and_find_job
from handoff_queue.supervisor.cli.display.terminal import write_line
from handoff_queue.supervisor.cli.errors import OK

MAX_PLAN_BYTES = 1_000_000
"""Most bytes of an edited plan."""

Note = Annotated[
    str | None,
    typer.Option("--note", metavar="TEXT", help="Your feedback. It is stored with the job."),
]


Rows = Annotated[
    list[str],
    typer.Option(
        "--row",
        metavar="KEY",
        help="Only the copy with this key of a for_each step. Repeatable.",
    ),
]

AskedQuestion = Annotated[
    int | None,
    typer.Option(
        "--question",
        metavar="N",
        min=1,
        max=10**9,
        help="Answer only this question, and no newer question. `handoff show --full` has N.",
    ),
]


def approve(
    job: Job,
    note: Note = None,
    edit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file with a plan that replaces the plan of the job."),
    ] = None,
    steps: Annotated[
        list[str],
        typer.Option("--step", metavar="STEP", help="Approve only this step. Repeatable."),
    ] = [],  # noqa: B006
    rows: Rows = [],  # noqa: B006
    question: AskedQuestion = None,
    arguments: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="Arguments that replace those of the tool call in question."
        ),
    ] = None,
) -> int:
    """Approve a plan, steps, a tool call or an answer.

    `handoff show JOB --full` prints the plan, the results or the draft that waits.
    """
    jobs, job_id = connect_and_find_job(job)
    with_plan(
        edit,
        partial(
            jobs.approve,
            job_id,
            note,
            steps=steps,
            rows=rows,
            question=question,
            arguments=_parse_arguments(arguments),
        ),
    )
    write_line(f"{job_id} continues: `handoff watch {job_id}`")
    return OK


def reject(
    job: Job,
    note: Note = None,
    steps: Annotated[
        list[str],
        typer.Option("--step", metavar="STEP", help="Reject only this step. Repeatable."),
    ] = [],  # noqa: B006
    edit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file with your draft of a plan, for the planner."),
    ] = None,
    rows: Rows = [],  # noqa: B006
    question: AskedQuestion = None,
) -> int:
    """Reject a plan, steps, a tool call or an answer, with feedback.

    The planner makes a rejected plan again. The steps that make the answer repeat rejected
    research or a rejected answer. This counts as a review round. If no round is left, the job
    ends without an answer. A rejected step that waits to start does not start. A rejected tool
    call does not run, and the model gets your note.
    """
    jobs, job_id = connect_and_find_job(job)
    with_plan(edit, partial(jobs.reject, job_id, note, steps, rows=rows, question=question))
    write_line(f"{job_id} has your feedback: `handoff watch {job_id}`")
    return OK


def _parse_arguments(text: str | None) -> JsonValue:
    """Return the value of a JSON text; None without a text.

    Raises:
        UserError: the text is not JSON.
    """
    if text is None:
        return None
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"--arguments is not JSON ({error}): write the arguments of the call as JSON, not"
            f" {text!r:.80}"
        ) from error
    return value


def with_plan(file: Path | None, send: Callable[[JsonValue], None]) -> None:
    """Call `send` with the plan in this YAML or JSON file, or with None if there is no file.

    All values of the plan are texts, as they were typed.

    Raises:
        UserError: the file is missing, is not YAML, or holds no valid plan. Each line names the
            file, the line and the fault.
    """
    from handoff_queue.shared.text.yaml_reader import find_line

    if file is None:
        send(None)
        return
    root = _read_tree(file)
    try:
        send(_build_value(str(file), root))
    except PlanRefused as error:
        problems: list[str] = []
        for problem, place in error.problems:
            problems.append(f"{file}:{find_line(root, place)}: {problem}")
        raise ManyProblems(problems) from error


def _read_tree(file: Path) -> yaml.Node:
    from handoff_queue.supervisor.text.plain_yaml import read_tree

    root = read_tree(
        file,
        MAX_PLAN_BYTES,
        "shorten it",
        "`steps: ...`, as `handoff show --full` prints the plan",
    )
    _check_joins(file, root)
    return root


def _check_joins(file: Path, root: yaml.Node) -> None:
    """Check the form of the joins in a file with a plan. The plan itself is checked later.

    Raises:
        UserError: a join is not valid. The message names the file, the line and the step.
    """
    from handoff_queue.shared.text.yaml_reader import get_line
    from handoff_queue.supervisor.text.plain_yaml import get_fields, get_text
    from handoff_queue.supervisor.workflows.join_syntax import parse_join

    if not isinstance(root, yaml.MappingNode):
        return
    plan = get_fields(str(file), root)
    if "join" in plan:
        parse_join(f"{file}:{get_line(plan['join'])}: join", plan["join"])
    if not isinstance(plan.get("steps"), yaml.SequenceNode):
        return
    for step in plan["steps"].value:
        if not isinstance(step, yaml.MappingNode):
            continue
        fields = get_fields(str(file), step)
        if "join" in fields:
            name = "a step"
            if "id" in fields:
                name = f"step {get_text(str(file), fields['id'])!r:.60}"
            parse_join(f"{file}:{get_line(fields['join'])}: {name}: join", fields["join"])


def _build_value(where: str, node: yaml.Node) -> JsonValue:
    from handoff_queue.supervisor.text.plain_yaml import get_fields, get_text

    if isinstance(node, yaml.MappingNode):
        return {name: _build_value(where, value) for name, value in get_fields(where, node).items()}
    if isinstance(node, yaml.SequenceNode):
        return [_build_value(where, item) for item in node.value]
    return get_text(where, node)
