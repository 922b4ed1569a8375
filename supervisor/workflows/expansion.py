"""The plan of one job of a workflow: a step with `for_each` becomes a copy for each item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from pydantic import ValidationError

from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.condition_syntax import When
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import StepId, build_copy_name
from handoff_queue.shared.types.message import describe_problems
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import TITLE_CHARS, ItemRef, Step
from handoff_queue.supervisor.text.markdown import cut_title
from handoff_queue.supervisor.workflows.template import ITEM, OWN_NAMES, REQUEST
from handoff_queue.supervisor.workflows.workflow import ForEach, Workflow, WorkflowStep, index_steps

MAX_STEPS = 100_000
"""Most steps of one plan, including copies."""
MAX_DEPENDENCIES = 200_000
"""Most dependencies of one plan: enough for two fan-ins over all its steps. A plan with more
has copies that each wait for all copies of another step.
"""
MAX_PLAN_CHARS = 32_000_000
"""Most characters of the tasks, fallbacks, titles and conditions of one plan, which is one
payload. It is the limit of `shared.runtime.payload_cache`.
"""
MAX_NAME_CHARS = 1_000
"""Most characters of a path or line that is the key of its item. If one path
or line is longer, the key of each item is its number.
"""
MAX_KEY_CHARS = 40
"""Most characters of the values of a column that can name its rows, if the workflow has no
`key`.
"""

_Values: TypeAlias = Mapping[ForEach | None, Sequence[Mapping[str, str]]]
"""Values of the placeholders of each copy. None: a step without copies."""


class _Key(NamedTuple):
    """The names of an item."""

    heading: str
    """The text of the item in a title."""
    name: str
    """The key of the item in the results: the same text, or the item's number."""


_Keys: TypeAlias = Mapping[ForEach, Sequence[_Key]]
"""The names of the items of each kind."""


def expand(
    workflow: Workflow,
    request: str,
    *,
    files: Sequence[str] = (),
    lines: Sequence[str] = (),
    rows: Sequence[Mapping[str, str]] = (),
) -> Plan:
    """Return the plan of one job.

    Args:
        files: paths of its documents.
        lines: lines as `read_items` returns them.
        rows: rows as `read_items` returns them; no column has a name in OWN_NAMES.

    Raises:
        UserError: a step is repeated over missing items, or no step uses the given lines or rows.
            Or a placeholder has no column, or the key column is not valid. Or a join is not
            possible, or the plan or one of its texts is too large.
    """
    counts = {
        ForEach.FILES: len(files),
        ForEach.LINES: len(lines),
        ForEach.ROWS: len(rows),
    }
    _check_given(workflow, counts)
    _check_size(workflow, counts)
    by_id = index_steps(workflow.steps)
    keys = _collect_keys(workflow, files, lines, rows)
    values = _build_placeholder_values(request, files, lines, rows)
    steps: list[Step] = []
    chars = 0
    for workflow_step in workflow.steps:
        for step in _iterate_copies(workflow_step, by_id, values, keys):
            chars += len(step.task) + len(step.fallback) + len(step.title or "")
            if step.when:
                chars += len(step.when.to_json())
            if chars > MAX_PLAN_CHARS:
                problem = f"the plan has more than {MAX_PLAN_CHARS:,} characters"
                raise UserError(
                    f"{workflow_step.where}: {problem}; give fewer items, or shorter ones"
                )
            steps.append(step)
    join = None
    if workflow.join:
        join = workflow.join.build_join(_list_sink_copies(workflow, values))
    return Plan(
        steps=tuple(steps),
        synthesis=workflow.synthesis,
        join=join,
        why=f"Workflow {workflow.name}: {workflow.description}",
    )


def _list_sink_copies(workflow: Workflow, values: _Values) -> dict[StepId, tuple[StepId, ...]]:
    """Return the ids of the copies of each step that no other step depends on."""
    depended_on: set[StepId] = set()
    for step in workflow.steps:
        depended_on.update(step.depends_on)
    copies: dict[StepId, tuple[StepId, ...]] = {}
    for step in workflow.steps:
        if step.id not in depended_on:
            copies[step.id] = _list_ids(step, values)
    return copies


def _iterate_copies(
    workflow_step: WorkflowStep,
    by_id: Mapping[StepId, WorkflowStep],
    values: _Values,
    keys: _Keys,
) -> Iterator[Step]:
    """Yield one step, or a copy for each item. A copy depends on the copy of the same
    item, if there is one, or else on all copies.
    """
    own_ids = _list_ids(workflow_step, values)
    paired: dict[StepId, tuple[StepId, ...]] = {}
    unpaired: dict[StepId, tuple[StepId, ...]] = {}
    for dependency in workflow_step.depends_on:
        if _is_paired(workflow_step, by_id[dependency]):
            paired[dependency] = _list_ids(by_id[dependency], values)
        else:
            unpaired[dependency] = _list_ids(by_id[dependency], values)
    item_values = values[workflow_step.for_each]
    for place, (own_id, known) in enumerate(zip(own_ids, item_values, strict=True)):
        where = workflow_step.where
        key = ""
        if workflow_step.for_each:
            where = f"{workflow_step.where}, item {place + 1}"
            key = keys[workflow_step.for_each][place].heading
        of_item: dict[StepId, tuple[StepId, ...]] = {}
        for dependency, ids in paired.items():
            of_item[dependency] = (ids[place],)
        try:
            task = workflow_step.task.fill(known)
            fallback = workflow_step.fallback.fill(known)
            title = _build_title(workflow_step, own_id, known, key)
            condition = _copy_condition(workflow_step, known, of_item | unpaired)
            join = None
            if workflow_step.join:
                join = workflow_step.join.build_join(unpaired | of_item)
            yield Step(
                id=own_id,
                specialist=workflow_step.specialist,
                task=task,
                depends_on=tuple(chain(*of_item.values(), *unpaired.values())),
                fallback=fallback,
                on_failure=workflow_step.on_failure,
                title=title,
                when=condition,
                after=workflow_step.after,
                approve=workflow_step.approve,
                row=_build_item_ref(workflow_step, place, keys),
                join=join,
            )
        except KeyError as error:
            column = error.args[0]
            otherwise = "correct the placeholder, or write {{ for a brace"
            advice = suggest_name(column, _list_columns(known), otherwise=otherwise)
            raise UserError(f"{where}: there is no column {column!r:.80}; {advice}") from error
        except ValidationError as error:
            raise UserError(
                f"{where}: {describe_problems(error)}; fix the step, the request or the item"
            ) from error


def _collect_keys(
    workflow: Workflow,
    files: Sequence[str],
    lines: Sequence[str],
    rows: Sequence[Mapping[str, str]],
) -> _Keys:
    """Return the names of the items of each kind. Raises as `_get_row_keys`."""
    if workflow.key and rows:
        of_rows = _get_row_keys(workflow, workflow.key, rows)
    else:
        of_rows = build_row_keys(rows)
    return {
        ForEach.FILES: _build_keys(files),
        ForEach.LINES: _build_keys(lines),
        ForEach.ROWS: _build_keys(of_rows),
    }


def _get_row_keys(workflow: Workflow, column: str, rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the value of each row in the key column.

    Raises:
        UserError: there is no such column, or a value is empty or there twice.
    """
    if column not in rows[0]:
        advice = suggest_name(column, rows[0])
        raise UserError(f"{workflow.path}: key: there is no column {column!r:.80}; {advice}")
    places: dict[str, int] = {}
    for n, row in enumerate(rows, start=1):
        key = row[column].strip()
        if not key:
            raise UserError(
                f"{workflow.path}: key: row {n} has nothing in column {column!r:.80};"
                " fill it in, or choose another column"
            )
        if key in places:
            raise UserError(
                f"{workflow.path}: key: rows {places[key]} and {n} both have {key!r:.80} in column"
                f" {column!r:.80}; choose a column with different values"
            )
        places[key] = n
    return list(places)


def _check_given(workflow: Workflow, counts: Mapping[ForEach, int]) -> None:
    """Check that the given items and the repeated steps fit.

    Args:
        counts: items of each kind.

    Raises:
        UserError: a step is repeated over missing items, or no step uses the given lines or
            rows.
    """
    given_kinds = {each for each, count in counts.items() if count}
    for step in workflow.steps:
        if step.for_each and step.for_each not in given_kinds:
            remedy = "give items (--items)"
            if step.for_each is ForEach.FILES:
                remedy = "give documents (--docs)"
            others = ""
            if given_kinds:
                others = f" (it has {' and '.join(sorted(given_kinds))})"
            raise UserError(
                f"{step.where}: repeats over {step.for_each}, and the job has none{others};"
                f" {remedy}"
            )
    for each in sorted(given_kinds - workflow.repeats_over - {ForEach.FILES}):
        raise UserError(
            f"{workflow.path}: the job has {each}, and no step repeats over them; write"
            f" `for_each: {each}`, or leave them out"
        )


def _check_size(workflow: Workflow, counts: Mapping[ForEach, int]) -> None:
    """Check the size of the plan before it is made.

    Args:
        counts: items of each kind.

    Raises:
        UserError: the plan has too many steps or dependencies.
    """
    copies: dict[StepId, int] = {}
    for step in workflow.steps:
        copies[step.id] = counts[step.for_each] if step.for_each else 1
    by_id = index_steps(workflow.steps)
    steps = dependencies = 0
    for step in workflow.steps:
        for dependency in step.depends_on:
            if _is_paired(step, by_id[dependency]):
                dependencies += copies[step.id]
            else:
                dependencies += copies[step.id] * copies[dependency]
        if dependencies > MAX_DEPENDENCIES:
            raise UserError(
                f"{step.where}: more than {MAX_DEPENDENCIES:,} dependencies, each copy of one"
                " step waits for each copy of another; repeat both over the same items, or put"
                " a step without `for_each` between them"
            )
        steps += copies[step.id]
        if steps > MAX_STEPS:
            raise UserError(
                f"{step.where}: the plan has more than {MAX_STEPS:,} steps; split the items"
                " over several jobs"
            )


def _build_placeholder_values(
    request: str,
    files: Sequence[str],
    lines: Sequence[str],
    rows: Sequence[Mapping[str, str]],
) -> _Values:
    of_rows = [{**row, REQUEST: request, ITEM: format_row(row)} for row in rows]
    return {
        None: [{REQUEST: request}],
        ForEach.FILES: [{REQUEST: request, ITEM: path} for path in files],
        ForEach.LINES: [{REQUEST: request, ITEM: line} for line in lines],
        ForEach.ROWS: of_rows,
    }


def _list_columns(values: Mapping[str, str]) -> list[str]:
    """Return the names of the columns among the values of placeholders."""
    return [name for name in values if name not in OWN_NAMES]


def _copy_condition(
    step: WorkflowStep,
    known: Mapping[str, str],
    dependencies: Mapping[StepId, Sequence[StepId]],
) -> When | None:
    """Return the condition of a copy, with the ids of the steps that it names.

    Args:
        known: values of the placeholders of the copy.
        dependencies: for each dependency, the copies that this copy waits for.

    Raises:
        UserError: there is no such column.
    """
    condition = step.when
    if condition is None:
        return None
    columns = _list_columns(known)
    for column in condition.columns:
        if column not in columns:
            advice = suggest_name(column, columns)
            raise UserError(f"{step.where}: when: there is no column {column!r:.80}; {advice}")
    ids = {name: dependencies[StepId(name)][0] for name in condition.steps}
    item: str | dict[str, str] | None = None
    if condition.has_item:
        if step.for_each is ForEach.ROWS:
            item = {column: known[column] for column in condition.columns}
        else:
            item = known[ITEM]
    return When(text=condition.text, steps=ids, item=item)


def _build_item_ref(step: WorkflowStep, place: int, keys: _Keys) -> ItemRef | None:
    """Return the item of a copy, or None for a step without copies."""
    if step.for_each is None:
        return None
    name = keys[step.for_each][place].name
    return ItemRef(step=step.id, each=step.for_each.value, n=place + 1, key=name)


def _build_keys(texts: Sequence[str]) -> list[_Key]:
    """Return the names of items. If a text is there twice, empty or too long, numbers are keys."""
    are_keys = len(set(texts)) == len(texts) and _are_short(texts, MAX_NAME_CHARS)
    keys: list[_Key] = []
    for n, text in enumerate(texts, start=1):
        keys.append(_Key(text, text if are_keys else str(n)))
    return keys


def _are_short(texts: Sequence[str], limit: int) -> bool:
    """Return whether each text has 1 to `limit` characters."""
    return all(0 < len(text) <= limit for text in texts)


def _list_ids(step: WorkflowStep, values: _Values) -> tuple[StepId, ...]:
    """Return the ids of the copies of a step, or the id of a step without copies."""
    if step.for_each is None:
        return (step.id,)
    step_ids: list[StepId] = []
    for number in range(1, len(values[step.for_each]) + 1):
        step_ids.append(StepId(build_copy_name(step.id, number)))
    return tuple(step_ids)


def _build_title(
    workflow_step: WorkflowStep, step_id: StepId, known: Mapping[str, str], key: str
) -> str | None:
    """Return the title of a copy: the written title, or the key of the item and the step id.

    Raises:
        KeyError: a placeholder of the title has no value.
    """
    if workflow_step.title:
        title = cut_title(workflow_step.title.fill(known))
        if title:
            return title
    suffix = f" ({step_id})"
    if workflow_step.for_each and key.strip():
        return cut_title(key, TITLE_CHARS - len(suffix)) + suffix
    return None


def _is_paired(step: WorkflowStep, other: WorkflowStep) -> bool:
    """Return whether both steps are repeated over the same items.

    A copy then depends only on the copy of the same item.
    """
    return step.for_each is not None and step.for_each is other.for_each


def build_row_keys(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a key for each row: the first column with short values that are all different.

    Without such a column, the key of a row is its first value that is not blank.
    """
    if not rows:
        return []
    for column in rows[0]:
        values = [row.get(column, "").strip() for row in rows]
        if _are_short(values, MAX_KEY_CHARS) and len(set(values)) == len(values):
            return values
    return list(map(_find_first_value, rows))


def _find_first_value(row: Mapping[str, str]) -> str:
    """Return the first value that is not blank, or ''."""
    for value in row.values():
        if value.strip():
            return value
    return ""


def format_row(row: Mapping[str, str]) -> str:
    """Return a row as a model reads it: one line `column: value` for each column."""
    return "\n".join(f"{column}: {value}" for column, value in row.items())
