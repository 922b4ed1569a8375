"""Parser of workflow files. It checks everything that does not depend on a job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeVar

import yaml
from pydantic import ValidationError

from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.text.yaml_reader import find_line, get_line
from handoff_queue.shared.types.condition_syntax import Condition, InvalidCondition, parse_condition
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.handoff import DEFAULT_FALLBACK
from handoff_queue.shared.types.ids import StepId, find_step_of_copy
from handoff_queue.shared.types.message import describe_problems
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.shared.types.plan_validation import find_problems_by_step
from handoff_queue.shared.types.specialist import check_specialist
from handoff_queue.shared.types.step import AFTER_REVIEW, TITLE_CHARS, OnFailure, Step
from handoff_queue.supervisor.gates.gates_file import GateSet, build_gates
from handoff_queue.supervisor.text.plain_yaml import (
    build_value,
    get_fields,
    get_text,
    get_texts,
    parse_boolean,
    parse_document,
    read_tree,
)
from handoff_queue.supervisor.workflows.expansion import MAX_STEPS
from handoff_queue.supervisor.workflows.join_syntax import parse_join
from handoff_queue.supervisor.workflows.template import ITEM, OWN_NAMES, REQUEST, Template
from handoff_queue.supervisor.workflows.workflow import ForEach, Workflow, WorkflowStep, index_steps

MAX_BYTES = 200_000
"""Most bytes of a workflow file. Similar steps are one step with `for_each`, so files stay
short.
"""
MAX_WRITTEN_STEPS = 1_000
"""Most steps in a workflow file."""
MAX_DESCRIPTION_CHARS = 1_000
_MAX_PROBLEMS = 3
"""Most problems of the plan in one error."""
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
_SHORTEN = "shorten it: a step that is there many times is one step with `for_each`"
_SUCH_AS = "`description: ...` and `steps: ...`"
_MAX_ID_CHARS = 48
_MAX_REPEATED_ID_CHARS = _MAX_ID_CHARS - len(f"_{MAX_STEPS}")
"""Most characters of the id of a repeated step, so that its copies have valid ids, too."""
_Choice = TypeVar("_Choice", bound=StrEnum)
_Value = TypeVar("_Value")


def read_workflow_file(path: Path) -> Workflow:
    """Parse a workflow file.

    Raises:
        UserError: the first fault, with file, line, step and correction.
    """
    return _build_workflow(path, read_tree(path, MAX_BYTES, _SHORTEN, _SUCH_AS), path.parent)


def parse_workflow(text: str) -> Workflow:
    """Parse the text of a workflow. It is YAML, so it may be JSON, too.

    No file is read: the gates of the workflow cannot name a file with facts.

    Raises:
        UserError: the first fault, with line, step and correction.
    """
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise UserError(f"the workflow is larger than {MAX_BYTES:,} bytes; {_SHORTEN}")
    path = Path("workflow.yaml")
    root = parse_document(path, text, _SUCH_AS)
    return _build_workflow(path, root, None)


def _build_workflow(path: Path, root: yaml.Node, folder: Path | None) -> Workflow:
    """Return the workflow of a tree.

    Args:
        path: place of the text in errors, and name of the workflow.
        folder: as in `build_gates`.

    Raises:
        UserError: see `read_workflow_file`.
    """
    fields = get_fields(str(path), root)
    _check_keys(str(path), fields, FIELDS, ("description", "steps"))
    description = " ".join(
        get_text(_describe_location(path, fields, "description"), fields["description"]).split()
    )
    if not 0 < len(description) <= MAX_DESCRIPTION_CHARS:
        raise UserError(
            f"{_describe_location(path, fields, 'description')} must have 1 to"
            f" {MAX_DESCRIPTION_CHARS:,} characters; describe its result"
        )
    nodes = _list_step_nodes(path, fields)
    steps = tuple(_parse_step(path, node) for node in nodes)
    _check_together(path, steps, list(map(get_line, nodes)))
    review = True
    if "review" in fields:
        review = parse_boolean(_describe_location(path, fields, "review"), fields["review"])
    synthesis = _parse_choice(
        _describe_location(path, fields, "synthesis"), fields, "synthesis", Synthesis
    )
    join = _parse_optional(_describe_location(path, fields, "join"), fields, "join", parse_join)
    workflow = Workflow(
        name=path.stem,
        path=path,
        description=description,
        review=review,
        synthesis=synthesis or Synthesis.MERGE,
        join=join,
        steps=steps,
        key=_parse_key(path, fields, steps),
        gates=_parse_gates(path, fields, folder),
    )
    _check_review(workflow)
    return workflow


def _list_step_nodes(path: Path, fields: Mapping[str, yaml.Node]) -> list[yaml.Node]:
    """Return the nodes of the steps.

    Raises:
        UserError: `steps` is not a list, is empty, or is too long.
    """
    steps = fields["steps"]
    at = _describe_location(path, fields, "steps")
    if not isinstance(steps, yaml.SequenceNode):
        raise UserError(f"{at} must be a list; write `- id: ...` below it, once for each step")
    if not steps.value:
        raise UserError(f"{at} has no step, at least one is needed; write `- id: ...` below it")
    nodes: list[yaml.Node] = steps.value
    if len(nodes) > MAX_WRITTEN_STEPS:
        problem = f"has {len(nodes):,} steps, at most {MAX_WRITTEN_STEPS:,} can be written down"
        raise UserError(f"{at} {problem}; make similar steps one step with `for_each`")
    return nodes


def _parse_key(
    path: Path, fields: Mapping[str, yaml.Node], steps: Sequence[WorkflowStep]
) -> str | None:
    """Return the column that names the rows, or None.

    Raises:
        UserError: the name is empty, or no step is repeated over rows.
    """
    if "key" not in fields:
        return None
    where = _describe_location(path, fields, "key")
    if not any(step.for_each is ForEach.ROWS for step in steps):
        raise UserError(
            f"{where} names a column, and no step is repeated over rows;"
            " write `for_each: rows`, or remove it"
        )
    column = get_text(where, fields["key"]).strip()
    if not column:
        raise UserError(f"{where} is empty; name a column of the rows")
    return column


def _parse_gates(
    path: Path, fields: Mapping[str, yaml.Node], folder: Path | None
) -> GateSet | None:
    """Return the gates of the workflow, or None. The fields are the same as in a file of
    gates.

    Raises:
        UserError: see `build_gates`.
    """
    if "gates" not in fields:
        return None
    gates = fields["gates"]
    where = _describe_location(path, fields, "gates")
    get_fields(where, gates)

    def describe_gates_place(place: Sequence[str]) -> str:
        return f"{path}:{find_line(gates, place)}: gates"

    return build_gates(build_value(where, gates), describe_gates_place, folder)


def _parse_step(path: Path, node: yaml.Node) -> WorkflowStep:
    """Parse a step.

    Raises:
        UserError: the first fault.
    """
    place = f"{path}:{get_line(node)}"
    fields = get_fields(f"{place}: a step", node)
    name = ""
    if "id" in fields:
        name = get_text(f"{place}: id", fields["id"])
    where = f"{place}: step {name!r:.60}" if name else f"{place}: a step"
    _check_keys(where, fields, STEP_FIELDS, ("id", "specialist", "task"))
    task = get_text(f"{where}: task", fields["task"])
    fallback = DEFAULT_FALLBACK
    if "fallback" in fields:
        fallback = get_text(f"{where}: fallback", fields["fallback"])
    names = _parse_optional(f"{where}: depends_on", fields, "depends_on", get_texts) or ()
    depends_on = tuple(StepId(dependency) for dependency in names)
    specialist = get_text(f"{where}: specialist", fields["specialist"])
    title = _parse_title(where, fields)
    try:  # checks names, and texts that are too long before their placeholders are filled
        Step(
            id=StepId(name),
            specialist=specialist,
            task=task,
            depends_on=depends_on,
            fallback=fallback,
        )
    except ValidationError as error:
        raise UserError(
            f"{where}: {describe_problems(error, shows_values=True)}; fix this field"
        ) from error
    if specialist != CHILD_JOB_SPECIALIST:
        check_specialist(specialist, f"{where}: ")
    approve = _parse_optional(f"{where}: approve", fields, "approve", parse_boolean)
    join = _parse_optional(f"{where}: join", fields, "join", parse_join)
    on_failure = _parse_choice(f"{where}: on_failure", fields, "on_failure", OnFailure)
    step = WorkflowStep(
        id=StepId(name),
        specialist=specialist,
        task=Template.parse(task),
        fallback=Template.parse(fallback),
        title=Template.parse(title) if title else None,
        depends_on=depends_on,
        for_each=_parse_choice(f"{where}: for_each", fields, "for_each", ForEach),
        on_failure=on_failure or OnFailure.RETRY,
        when=_parse_condition(where, fields),
        after=_parse_after(where, fields),
        approve=approve,
        join=join,
        where=where,
    )
    _check_placeholders(step)
    return step


def _parse_condition(where: str, fields: Mapping[str, yaml.Node]) -> Condition | None:
    """Return the condition of a step, or None.

    Raises:
        UserError: the condition is invalid.
    """
    if "when" not in fields:
        return None
    text = get_text(f"{where}: when", fields["when"])
    try:
        return parse_condition(text)
    except InvalidCondition as error:
        raise UserError(f"{where}: when: {error}") from error


def _check_condition(step: WorkflowStep, by_id: Mapping[StepId, WorkflowStep]) -> None:
    """Check that the condition of a step uses only values that the step has.

    Raises:
        UserError: it names a step that is not a dependency, or uses the item in a wrong way.
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
        item_kind = "path"
        if step.for_each is ForEach.LINES:
            item_kind = "line"
        raise UserError(
            f"{step.where}: when: item is a {item_kind} and has no field {condition.columns[0]};"
            " write item alone, or use `for_each: rows`"
        )


def _check_step_in_condition(
    step: WorkflowStep, name: StepId, by_id: Mapping[StepId, WorkflowStep]
) -> None:
    """Check the name of a step in a condition.

    Raises:
        UserError: it is not a dependency, or has a result for each item of other items.
    """
    if name not in by_id:
        advice = suggest_name(name, step.depends_on, otherwise="name one of `depends_on`")
        raise UserError(f"{step.where}: when: there is no step {name!r:.60}; {advice}")
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


def _parse_after(where: str, fields: Mapping[str, yaml.Node]) -> Literal["review"] | None:
    """Return the value of `after`, or None.

    Raises:
        UserError: the value is not `review`.
    """
    if "after" not in fields:
        return None
    value = ", ".join(get_texts(f"{where}: after", fields["after"]))
    if value != AFTER_REVIEW:
        raise UserError(
            f"{where}: after is {value!r:.80}, but it makes a step wait for the review only; write"
            f" `after: {AFTER_REVIEW}`, or name the steps to wait for in `depends_on`"
        )
    return AFTER_REVIEW


def _check_review(workflow: Workflow) -> None:
    """Check that no step waits for a review that does not take place.

    Raises:
        UserError: a step has `after: review`, and the workflow has `review: false`.
    """
    for step in workflow.steps:
        if step.after and not workflow.review:
            raise UserError(
                f"{step.where}: waits for the review, and the workflow says `review: false`;"
                " remove one of the two"
            )


def _parse_title(where: str, fields: Mapping[str, yaml.Node]) -> str | None:
    """Return the title of a step in one line, before its placeholders are filled, or None.

    Raises:
        UserError: the title is empty or too long.
    """
    if "title" not in fields:
        return None
    title = " ".join(get_text(f"{where}: title", fields["title"]).split())
    if not 0 < len(title) <= TITLE_CHARS:
        raise UserError(
            f"{where}: title must have 1 to {TITLE_CHARS} characters; write a short heading"
        )
    return title


def _check_placeholders(step: WorkflowStep) -> None:
    """Check the placeholders of a step. `expansion.expand` checks the names of columns.

    Raises:
        UserError: a brace is stray, or a placeholder has no value in any job.
    """
    for template in step.templates:
        if template.has_stray_brace:
            raise UserError(
                f"{step.where}: a {{ does not begin a placeholder; write {{{{ for a brace"
            )
    if step.for_each is ForEach.ROWS:
        return
    allowed_names = OWN_NAMES
    known = f"{{{ITEM}}} and {{{REQUEST}}}"
    if step.for_each is None:
        allowed_names = frozenset({REQUEST})
        known = f"{{{REQUEST}}}"
    for name in step.names:
        if name not in allowed_names:
            advice = "or write {{ for a brace; columns need `for_each: rows`"
            if name == ITEM:
                advice = "add `for_each` to the step"
            raise UserError(
                f"{step.where}: there is no placeholder {{{name:.80}}}; there is {known}: correct"
                f" it, {advice}"
            )


def _check_together(path: Path, steps: Sequence[WorkflowStep], lines: Sequence[int]) -> None:
    """Check the ids, the dependencies and the conditions of all steps.

    Args:
        lines: first line of each step.

    Raises:
        UserError: the steps are not a plan, or a condition is not valid.
    """
    by_id = index_steps(steps)
    if len(by_id) == len(steps):
        _check_copies(steps, by_id)
    problems = find_problems_by_step(_build_unchecked_steps(steps))
    if problems:
        line_by_id = {step.id: line for step, line in zip(steps, lines, strict=True)}
        first, *others = problems[:_MAX_PROBLEMS]
        texts = [f"{first.text:.300}"]
        for problem in others:
            texts.append(f"line {line_by_id[problem.step]}: {problem.text:.300}")
        if len(problems) > _MAX_PROBLEMS:
            texts.append(f"and {len(problems) - _MAX_PROBLEMS} more")
        raise UserError(
            f"{path}:{line_by_id[first.step]}: {'; '.join(texts)};"
            f" correct the steps' `id` and `depends_on` (known: {', '.join(by_id):.300})"
        )
    for step in steps:
        _check_condition(step, by_id)


def _build_unchecked_steps(steps: Sequence[WorkflowStep]) -> list[Step]:
    """Return unchecked steps without texts, joins and conditions, for `find_problems_by_step`."""
    shapes: list[Step] = []
    for step in steps:
        shapes.append(
            Step.model_construct(
                id=step.id,
                specialist=step.specialist,
                task="",
                depends_on=step.depends_on,
                after=step.after,
            )
        )
    return shapes


def _check_copies(steps: Sequence[WorkflowStep], by_id: Mapping[StepId, WorkflowStep]) -> None:
    """Check that the copies of repeated steps have valid ids and different tasks.

    Raises:
        UserError: a step has the name of a copy, or an id is too long for copies. Or all copies of
            a step would have the same task.
    """
    for step in steps:
        copied = find_step_of_copy(step.id)
        source = by_id.get(StepId(copied)) if copied else None
        if source and source.for_each:
            raise UserError(
                f"{step.where}: a copy of step {source.id} may have this name; choose another"
            )
        if step.for_each is None:
            continue
        if len(step.id) > _MAX_REPEATED_ID_CHARS:
            raise UserError(
                f"{step.where}: the id of a step with for_each has at most {_MAX_REPEATED_ID_CHARS}"
                " characters; shorten it"
            )
        if not _depends_on_copies(step, by_id) and set(step.task.names) <= {REQUEST}:
            placeholders = "{item} or a {column}"
            if step.for_each is not ForEach.ROWS:
                placeholders = "{item}"
            raise UserError(
                f"{step.where}: its copies would all be the same; put {placeholders} into the task,"
                " or remove for_each"
            )


def _depends_on_copies(step: WorkflowStep, by_id: Mapping[StepId, WorkflowStep]) -> bool:
    """Return whether a repeated step depends on a step that is repeated over the same items."""
    for dependency in step.depends_on:
        other = by_id.get(dependency)
        if other is not None and other.for_each is step.for_each:
            return True
    return False


def _check_keys(
    where: str,
    fields: Mapping[str, yaml.Node],
    known_keys: Collection[str],
    needed_keys: Collection[str],
) -> None:
    """Check the names of fields.

    Raises:
        UserError: a field is not known, or a needed field is missing.
    """
    for key, node in fields.items():
        if key not in known_keys:
            advice = suggest_name(key, known_keys, otherwise="remove it")
            raise UserError(
                f"{where}: {key!r:.80} in line {get_line(node)} is not a known field; {advice}"
            )
    for key in needed_keys:
        if key not in fields:
            raise UserError(f"{where}: {key} is missing; add `{key}: ...`")


def _parse_optional(
    where: str,
    fields: Mapping[str, yaml.Node],
    key: str,
    parse: Callable[[str, yaml.Node], _Value],
) -> _Value | None:
    """Return the parsed value of a field, or None without the field. Raises as `parse`."""
    if key not in fields:
        return None
    return parse(where, fields[key])


def _parse_choice(
    where: str, fields: Mapping[str, yaml.Node], key: str, choices: type[_Choice]
) -> _Choice | None:
    """Return the value of a field with fixed values, or None without the field.

    Raises:
        UserError: the value is not in `choices`.
    """
    if key not in fields:
        return None
    value = get_text(where, fields[key])
    if value not in list(choices):
        advice = suggest_name(value, choices, otherwise="write a known value")
        raise UserError(f"{where} is {value!r:.80}; {advice}")
    return choices(value)


def _describe_location(path: Path, fields: Mapping[str, yaml.Node], key: str) -> str:
    """Return `FILE:LINE: KEY` for errors, or `FILE: KEY` if there is no such field."""
    if key in fields:
        return f"{path}:{get_line(fields[key])}: {key}"
    return f"{path}: {key}"
