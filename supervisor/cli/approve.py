"""A person's say in a job: `handoff approve`, `handoff reject`, and the question that `handoff
run` asks in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
import yaml
from pydantic import JsonValue

from handoff_queue.shared.types.errors import ManyProblems, PlanRefused
from handoff_queue.supervisor.cli.connection import Job, client_and_job
from handoff_queue.supervisor.cli.display.terminal import write_line
from handoff_queue.supervisor.cli.errors import OK

MOST_PLAN_BYTES = 1_000_000

Note = Annotated[
    str | None,
    typer.Option(
        "--note", metavar="TEXT", help="What you have to say about it; kept with the job."
    ),
]


Rows = Annotated[
    list[str],
    typer.Option(
        "--row",
        metavar="KEY",
        help="Of a step with for_each, only the copy with this key; may be repeated.",
    ),
]


def approve(
    job: Job,
    note: Note = None,
    edit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A plan, as `handoff show --full` prints it, instead of the job's."
        ),
    ] = None,
    steps: Annotated[
        list[str],
        typer.Option("--step", metavar="STEP", help="Only this step may begin; may be repeated."),
    ] = [],  # noqa: B006
    rows: Rows = [],  # noqa: B006
) -> int:
    """Let a job go on that waits for an approval.

    `handoff show JOB --full` has what it is about: the plan, what the steps have found, or the
    draft of the answer.
    """
    jobs, job_id = client_and_job(job)
    with_plan(edit, partial(jobs.approve, job_id, note, steps=steps, rows=rows))
    write_line(f"{job_id} goes on: `handoff watch {job_id}`")
    return OK


def reject(
    job: Job,
    note: Note = None,
    steps: Annotated[
        list[str],
        typer.Option("--step", metavar="STEP", help="Only this step; may be repeated."),
    ] = [],  # noqa: B006
    edit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Your own draft of a plan, for the planner to begin with."
        ),
    ] = None,
    rows: Rows = [],  # noqa: B006
) -> int:
    """Have what a job waits for an approval of made again, with your note as feedback.

    A plan is planned again, and asked about again. Research or an answer is done again by the steps
    that make the answer, or by those that you name. That counts as a round. Where no round is left,
    the job ends without an answer. Steps that wait to begin do not begin.
    """
    jobs, job_id = client_and_job(job)
    with_plan(edit, partial(jobs.reject, job_id, note, steps, rows=rows))
    write_line(f"{job_id} is told: `handoff watch {job_id}`")
    return OK


def with_plan(file: Path | None, say: Callable[[JsonValue], None]) -> None:
    """Give an answer with the plan in this file, if there is one: YAML or JSON; every value is
    the text that was typed.

    Raises:
        UserError: it is not there, not YAML, or no plan: file, line, what is wrong.
    """
    from handoff_queue.supervisor.text.plain_yaml import line_at

    if file is None:
        say(None)
        return
    root = _tree(file)
    try:
        say(_value(str(file), root))
    except PlanRefused as error:
        raise ManyProblems(
            [f"{file}:{line_at(root, place)}: {said}" for said, place in error.problems]
        ) from error


def _tree(file: Path) -> yaml.Node:
    from handoff_queue.supervisor.text.plain_yaml import tree_in

    root = tree_in(
        file,
        MOST_PLAN_BYTES,
        "shorten it",
        "`steps: ...`, as `handoff show --full` prints the plan",
    )
    _check_joins(file, root)
    return root


def _check_joins(file: Path, root: yaml.Node) -> None:
    """In the words of a workflow's file. Whether they fit the steps is for the plan's own check.

    Raises:
        UserError: file, line, step, what is wrong.
    """
    from handoff_queue.supervisor.text.plain_yaml import fields_of, line_of, text_of
    from handoff_queue.supervisor.workflows.workflow import join_from

    if not isinstance(root, yaml.MappingNode):
        return
    plan = fields_of(str(file), root)
    if "join" in plan:
        join_from(f"{file}:{line_of(plan['join'])}: join", plan["join"])
    steps = plan["steps"].value if isinstance(plan.get("steps"), yaml.SequenceNode) else []
    for fields in (fields_of(str(file), one) for one in steps if isinstance(one, yaml.MappingNode)):
        if "join" in fields:
            name = f"step {text_of(str(file), fields['id'])!r:.60}" if "id" in fields else "a step"
            join_from(f"{file}:{line_of(fields['join'])}: {name}: join", fields["join"])


def _value(where: str, node: yaml.Node) -> JsonValue:
    from handoff_queue.supervisor.text.plain_yaml import fields_of, text_of

    if isinstance(node, yaml.MappingNode):
        return {name: _value(where, value) for name, value in fields_of(where, node).items()}
    if isinstance(node, yaml.SequenceNode):
        return [_value(where, one) for one in node.value]
    return text_of(where, node)
