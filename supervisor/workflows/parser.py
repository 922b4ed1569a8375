"""Parser of workflow files. It finds every fault that can be found before there is a job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeVar

import yaml
from pydantic import ValidationError

from handoff_queue.shared.text.words import suggestion
from handoff_queue.shared.types.condition import Condition, InvalidCondition, condition_of
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import problems_of
from handoff_queue.shared.types.names import SUB_SUPERVISOR
from handoff_queue.shared.types.plan import (
    AFTER_REVIEW,
    DEFAULT_FALLBACK,
    TITLE_CHARS,
    OnFailure,
    Step,
    Synthesis,
    problems_by_step,
)
from handoff_queue.supervisor.gates.gates_file import GateSet, gates_in
from handoff_queue.supervisor.text.copy_names import source_of
from handoff_queue.supervisor.text.plain_yaml import (
    fields_of,
    line_at,
    line_of,
    text_of,
    texts_of,
    tree_in,
    truth_of,
    value_of,
)
from handoff_queue.supervisor.workflows.specialist_names import check_specialist
from handoff_queue.supervisor.workflows.template import ITEM, OWN_NAMES, REQUEST, Template
from handoff_queue.supervisor.workflows.workflow import (
    MOST_STEPS,
    ForEach,
    Workflow,
    WorkflowStep,
    join_from,
)

MOST_BYTES = 200_000
"""A plan that a person has written is shorter; many alike steps are one with `for_each`."""
MOST_WRITTEN_STEPS = 1_000
MOST_DESCRIPTION_CHARS = 1_000
_MOST_TOLD = 3
"""Problems of one kind in one line."""
FIELDS = ("description", "review", "synthesis", "join", "gates", "key", "steps")
STEP_FIELDS = (
    "id",
    "title",
    "specialist",
    "task",
    "depends_on",
    "for_each",
    "fallback",
    "on_failure",
    "when",
    "after",
    "approve",
    "join",
)
_LONGEST_ID = 48
_LONGEST_REPEATED_ID = _LONGEST_ID - len(f"_{MOST_STEPS}")
_Choice = TypeVar("_Choice", bound=StrEnum)


def workflow_from(path: Path) -> Workflow:
    """Read one file.

    Raises:
        UserError: the first fault, with file, line, step and correction.
    """
    shorten = "shorten it: a step that is there many times is one step with `for_each`"
    fields = fields_of(
        str(path), tree_in(path, MOST_BYTES, shorten, "`description: ...` and `steps: ...`")
    )
    _check_keys(str(path), fields, FIELDS, ("description", "steps"))
    description = " ".join(text_of(_at(path, fields, "description"), fields["description"]).split())
    if not 0 < len(description) <= MOST_DESCRIPTION_CHARS:
        raise UserError(
            f"{_at(path, fields, 'description')} must have 1 to {MOST_DESCRIPTION_CHARS:,} characters; describe its result"
        )
    listed = fields["steps"]
    if not isinstance(listed, yaml.SequenceNode) or not listed.value:
        raise UserError(
            f"{_at(path, fields, 'steps')} must be a list; write `- id: ...` below it, once for each step"
        )
    if len(listed.value) > MOST_WRITTEN_STEPS:
        problem = (
            f"has {len(listed.value):,} steps, at most {MOST_WRITTEN_STEPS:,} can be written down"
        )
        raise UserError(
            f"{_at(path, fields, 'steps')} {problem}; make similar steps one step with `for_each`"
        )
    steps = tuple(_step(path, node) for node in listed.value)
    _check_together(path, steps, [line_of(node) for node in listed.value])
    workflow = Workflow(
        name=path.stem,
        path=path,
        description=description,
        review=truth_of(_at(path, fields, "review"), fields["review"])
        if "review" in fields
        else True,
        synthesis=_choice(_at(path, fields, "synthesis"), fields, "synthesis", Synthesis)
        or Synthesis.MERGE,
        join=join_from(_at(path, fields, "join"), fields["join"]) if "join" in fields else None,
        steps=steps,
        key=_key(path, fields, steps),
        gates=_gates(path, fields),
    )
    _check_review(workflow)
    return workflow


def _key(path: Path, fields: Mapping[str, yaml.Node], steps: Sequence[WorkflowStep]) -> str | None:
    """Return the column that names the rows. Raises: UserError: no step is repeated over rows."""
    if "key" not in fields:
        return None
    where = _at(path, fields, "key")
    if not any(step.for_each is ForEach.ROWS for step in steps):
        raise UserError(
            f"{where} names a column, and no step is repeated over rows;"
            " write `for_each: rows`, or remove it"
        )
    column = text_of(where, fields["key"]).strip()
    if not column:
        raise UserError(f"{where} is empty; name a column of the rows")
    return column


def _gates(path: Path, fields: Mapping[str, yaml.Node]) -> GateSet | None:
    """Return the gates, which have the same fields as in a gate file."""
    if (gates := fields.get("gates")) is None:
        return None
    where = _at(path, fields, "gates")
    fields_of(where, gates)
    return gates_in(
        value_of(where, gates), lambda place: f"{path}:{line_at(gates, place)}: gates", path.parent
    )


def _step(path: Path, node: yaml.Node) -> WorkflowStep:
    place = f"{path}:{line_of(node)}"
    fields = fields_of(f"{place}: a step", node)
    name = ""
    if "id" in fields:
        name = text_of(f"{place}: id", fields["id"])
    if name:
        where = f"{place}: step {name!r:.60}"
    else:
        where = f"{place}: a step"
    _check_keys(where, fields, STEP_FIELDS, ("id", "specialist", "task"))
    task = text_of(f"{where}: task", fields["task"])
    if "fallback" in fields:
        fallback = text_of(f"{where}: fallback", fields["fallback"])
    else:
        fallback = DEFAULT_FALLBACK
    if "depends_on" in fields:
        depends_on = tuple(map(StepId, texts_of(f"{where}: depends_on", fields["depends_on"])))
    else:
        depends_on = ()
    specialist = text_of(f"{where}: specialist", fields["specialist"])
    title = _title(where, fields)
    try:  # before placeholders are filled: names, and texts that are too long already
        Step(
            id=StepId(name),
            specialist=specialist,
            task=task,
            depends_on=depends_on,
            fallback=fallback,
        )
    except ValidationError as error:
        raise UserError(f"{where}: {problems_of(error)}; fix this field") from error
    if specialist != SUB_SUPERVISOR:
        check_specialist(specialist, f"{where}: ")
    step = WorkflowStep(
        id=StepId(name),
        specialist=specialist,
        task=Template.of(task),
        fallback=Template.of(fallback),
        title=Template.of(title) if title else None,
        depends_on=depends_on,
        for_each=_choice(f"{where}: for_each", fields, "for_each", ForEach),
        on_failure=_choice(f"{where}: on_failure", fields, "on_failure", OnFailure)
        or OnFailure.RETRY,
        when=_condition(where, fields),
        after=_after(where, fields),
        approve=truth_of(f"{where}: approve", fields["approve"]) if "approve" in fields else None,
        join=join_from(f"{where}: join", fields["join"]) if "join" in fields else None,
        where=where,
    )
    _check_placeholders(step)
    return step


def _condition(where: str, fields: Mapping[str, yaml.Node]) -> Condition | None:
    """Return the condition of a step.

    Raises:
        UserError: the condition is invalid.
    """
    if "when" not in fields:
        return None
    text = text_of(f"{where}: when", fields["when"])
    try:
        return condition_of(text)
    except InvalidCondition as error:
        raise UserError(f"{where}: when: {error}") from error


def _check_condition(step: WorkflowStep, by_id: Mapping[StepId, WorkflowStep]) -> None:
    """Check the names in a condition.

    Raises:
        UserError: the condition uses a value that the step does not have.
    """
    condition = step.when
    if condition is None:
        return
    for name in condition.steps:
        _check_step_in_condition(step, StepId(name), by_id)
    if condition.has_item and step.for_each is None:
        raise UserError(f"{step.where}: when: there is no item; add `for_each` to the step")
    if condition.has_whole_item and step.for_each is ForEach.ROWS:
        raise UserError(
            f'{step.where}: when: item is a row; name a column, as in item["Order no."]'
        )
    if condition.columns and step.for_each is not ForEach.ROWS:
        what = "path"
        if step.for_each is ForEach.LINES:
            what = "line"
        raise UserError(
            f"{step.where}: when: item is a {what} and has no field {condition.columns[0]};"
            " write item alone, or use `for_each: rows`"
        )


def _check_step_in_condition(
    step: WorkflowStep, name: StepId, by_id: Mapping[StepId, WorkflowStep]
) -> None:
    if name not in by_id:
        mend = suggestion(name, step.depends_on, otherwise="name one of `depends_on`")
        raise UserError(f"{step.where}: when: there is no step {name!r:.60}; {mend}")
    if name not in step.depends_on:
        raise UserError(
            f"{step.where}: when: it names step {name}, which the step does not depend on;"
            f" add {name} to `depends_on`"
        )
    if by_id[name].for_each is not None and by_id[name].for_each is not step.for_each:
        raise UserError(
            f"{step.where}: when: step {name} is repeated, and has a result for each item;"
            f" repeat this step over the same {by_id[name].for_each}, or name another step"
        )


def _after(where: str, fields: Mapping[str, yaml.Node]) -> Literal["review"] | None:
    """Return the value of `after`, or None.

    Raises:
        UserError: the value is not `review`.
    """
    if "after" not in fields:
        return None
    value = text_of(f"{where}: after", fields["after"])
    if value != AFTER_REVIEW:
        raise UserError(f"{where}: after is {value!r:.80}; write `after: {AFTER_REVIEW}`")
    return AFTER_REVIEW


def _check_review(workflow: Workflow) -> None:
    """Check the steps that wait for a review.

    Raises:
        UserError: a step waits for the review of a workflow without one.
    """
    step = next((step for step in workflow.steps if step.after), None)
    if step is not None and not workflow.review:
        raise UserError(
            f"{step.where}: waits for the review, and the workflow says `review: false`;"
            " remove one of the two"
        )


def _title(where: str, fields: Mapping[str, yaml.Node]) -> str | None:
    """Return the title of a step, before its placeholders are filled. Raises: UserError."""
    if "title" not in fields:
        return None
    title = " ".join(text_of(f"{where}: title", fields["title"]).split())
    if not 0 < len(title) <= TITLE_CHARS:
        raise UserError(
            f"{where}: title must have 1 to {TITLE_CHARS} characters; write a short heading"
        )
    return title


def _check_placeholders(step: WorkflowStep) -> None:
    """Check the placeholders. Names of columns are checked later, when rows are given."""
    if any(template.has_stray_brace for template in step.templates):
        raise UserError(f"{step.where}: a {{ begins no placeholder; write {{{{ for a brace")
    allowed = {REQUEST} if step.for_each is None else OWN_NAMES
    for name in step.names:
        if name not in allowed and step.for_each is not ForEach.ROWS:
            there = " and ".join(f"{{{each}}}" for each in sorted(allowed))
            mend = (
                "add `for_each` to the step"
                if name == ITEM
                else "or write {{ for a brace; columns need `for_each: rows`"
            )
            raise UserError(
                f"{step.where}: there is no placeholder {{{name:.80}}}; there is {there}: correct it, {mend}"
            )


def _check_together(path: Path, steps: Sequence[WorkflowStep], lines: Sequence[int]) -> None:
    """Check the steps together.

    Args:
        lines: first line of each step.
    """
    by_id = {step.id: step for step in steps}
    if len(by_id) == len(steps):
        _check_copies(steps, by_id)
    shapes = [
        Step.model_construct(
            id=step.id,
            specialist=step.specialist,
            task="",
            depends_on=step.depends_on,
            after=step.after,
        )
        for step in steps
    ]
    if problems := problems_by_step(shapes):
        line = {step.id: line for step, line in zip(steps, lines, strict=True)}
        first, *others = [
            (line[problem.step], f"{problem.said:.300}") for problem in problems[:_MOST_TOLD]
        ]
        if len(problems) > _MOST_TOLD:
            more = [f"and {len(problems) - _MOST_TOLD} more"]
        else:
            more = []
        told = "; ".join([first[1], *(f"line {number}: {text}" for number, text in others), *more])
        raise UserError(
            f"{path}:{first[0]}: {told}; correct the steps' `id` and `depends_on` (there are: {', '.join(by_id):.300})"
        )
    _check_conditions(steps, by_id)


def _check_conditions(steps: Sequence[WorkflowStep], by_id: Mapping[StepId, WorkflowStep]) -> None:
    for step in steps:
        _check_condition(step, by_id)


def _check_copies(steps: Sequence[WorkflowStep], by_id: Mapping[StepId, WorkflowStep]) -> None:
    for step in steps:
        copied = source_of(step.id)
        if copied and (source := by_id.get(StepId(copied))) and source.for_each:
            raise UserError(
                f"{step.where}: a copy of step {source.id} may have this name; choose another"
            )
        if step.for_each is None:
            continue
        if len(step.id) > _LONGEST_REPEATED_ID:
            raise UserError(
                f"{step.where}: the id of a step with for_each has at most {_LONGEST_REPEATED_ID} characters; shorten it"
            )
        follows = any(
            id_ in by_id and by_id[id_].for_each is step.for_each for id_ in step.depends_on
        )
        if not follows and set(step.task.names) <= {REQUEST}:
            what = "{item} or a {column}"
            if step.for_each is not ForEach.ROWS:
                what = "{item}"
            raise UserError(
                f"{step.where}: its copies would all be the same; put {what} into the task, or remove for_each"
            )


def _check_keys(
    where: str, fields: Mapping[str, yaml.Node], known: Collection[str], needed: Collection[str]
) -> None:
    for key, node in fields.items():
        if key not in known:
            mend = suggestion(key, known, otherwise="remove it")
            raise UserError(
                f"{where}: {key!r:.80} in line {line_of(node)} is not a known field; {mend}"
            )
    for key in needed:
        if key not in fields:
            raise UserError(f"{where}: {key} is missing; add `{key}: ...`")


def _choice(
    where: str, fields: Mapping[str, yaml.Node], key: str, choices: type[_Choice]
) -> _Choice | None:
    if key not in fields:
        return None
    value = text_of(where, fields[key])
    if value not in list(choices):
        raise UserError(
            f"{where} is {value!r:.80}; {suggestion(value, choices, otherwise='write one of these')}"
        )
    return choices(value)


def _at(path: Path, fields: Mapping[str, yaml.Node], key: str) -> str:
    if key in fields:
        return f"{path}:{line_of(fields[key])}: {key}"
    return f"{path}: {key}"
