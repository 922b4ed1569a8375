"""The results of a job whose workflow repeats a step: one row for each item, under the item's key."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from pydantic import JsonValue, PositiveInt

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.plan import Plan, Step
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState, StepState, StepStatus

COLUMNS = ("key", "n", "step", "status", "why")
"""The columns of a table that every row has. Its output follows them."""
_FORMULA = re.compile(r"^[=@+\t\r]|^-(?![0-9.]+$)")
"""First characters of a cell that a spreadsheet would run as a formula."""


class Row(Message):
    """The result of one repeated step for one item."""

    key: str
    """The item's own key: its field in the workflow's `key` column, its path, or its number."""
    n: PositiveInt
    """The item's place among the items that were given with the job."""
    step: str
    """The repeated step, as the workflow names it."""
    status: str
    """`ok`, `partial`, `failed`, `needs_input` or `skipped`; before that `waiting` or `running`."""
    output: JsonValue = None
    """Output of the row's step; None if there is none, or none yet."""
    why: str | None = None
    """The reason of a status other than `ok`."""


def rows_on(store: Store, job_id: JobId, step: str | None = None) -> list[Row]:
    """Return the rows that a job has now. Only the plan and the rows' results are read.

    Raises:
        UnknownJob: there is no such job.
        UserError: `step` is no repeated step of the job.
        StoreError: its payloads are gone.
    """
    state = fold(job_id, None, store.journal.read(job_id))
    if state is None:
        raise UnknownJob.named(job_id)
    if state.plan is None:
        return []
    digest = state.plan.plan.digest
    plan = Plan.from_json(store.payloads.get(job_id, [digest])[digest])
    repeated = copies_of_step(plan)
    names = choose_steps(names_of(repeated), last_repeated_steps(plan), step)
    steps = [
        repeated_step
        for repeated_step in repeated
        if repeated_step.row and repeated_step.row.step in names
    ]
    wanted = list(dict.fromkeys(ref.digest for ref in results_for_rows(state, steps)))
    return list(rows_of(state, steps, ResultTexts(store.payloads.get(job_id, [], results=wanted))))


def names_of(repeated: Sequence[Step]) -> list[str]:
    """Return the names of the repeated steps, as the workflow has them."""
    return list(dict.fromkeys(step.row.step for step in repeated if step.row))


def results_for_rows(state: JobState, steps: Sequence[Step]) -> Iterator[BlobRef]:
    """Yield the results that `rows_of` reads."""
    for step in steps:
        current = state.steps.get(step.id)
        if current is not None:
            for ref in (current.result, current.trouble):
                if ref:
                    yield ref


def rows_of(state: JobState, steps: Sequence[Step], words: ResultTexts) -> Iterator[Row]:
    """Yield the row of each copy of a repeated step. `words`: of `results_for_rows`."""
    for step in steps:
        if step.row is None or step.id not in state.steps:
            continue
        current = state.steps[step.id]
        result = None
        if current.usable:
            result = current.result
        yield Row(
            key=step.row.key,
            n=step.row.n,
            step=step.row.step,
            status=_status(current),
            output=words.result(result).output if result else None,
            why=words.why(current.trouble) if current.trouble else None,
        )


def _status(step: StepState) -> str:
    if step.status is StepStatus.SETTLED and step.result_status is not None:
        return step.result_status.value
    if step.status is StepStatus.RUNNING:
        return "running"
    return "waiting"


def choose_steps(
    repeated: Collection[str], last: frozenset[str], step: str | None
) -> frozenset[str]:
    """Return the repeated steps to show: `step`, or the last ones.

    Raises:
        UserError: `step` is no repeated step of the job.
    """
    if step is None:
        return last
    if step not in repeated:
        there = ", ".join(repeated) or "none"
        raise UserError(f"{step!r:.60} is no repeated step of the job (there are: {there:.300})")
    return frozenset({step})


def copies_of_step(plan: Plan) -> list[Step]:
    """Return every copy of a repeated step."""
    copies: list[Step] = []
    for step in plan.steps:
        if step.row is not None:
            copies.append(step)
    return copies


def last_repeated_steps(plan: Plan) -> frozenset[str]:
    """Return the repeated steps that no other step of the same item depends on."""
    names, followed = set[str](), set[str]()
    for step in copies_of_step(plan):
        assert step.row is not None
        names.add(step.row.step)
        for dependency in step.depends_on:
            before = None
            if dependency in plan.by_id:
                before = plan.by_id[dependency].row
            if before and before.each == step.row.each:
                followed.add(before.step)
    return frozenset(names - followed)


def rows_as_text(rows: Sequence[Row], target: Path) -> str:
    """Return the rows as the text of a file: JSON lines for `.jsonl`, else a CSV table."""
    if target.suffix.lower() == ".jsonl":
        return "".join(f"{row.to_json()}\n" for row in rows)
    return _table(rows)


def _table(rows: Sequence[Row]) -> str:
    """Return a CSV table. Each property of an object is a column; any other output is `output`."""
    fields: dict[str, None] = {}
    for row in rows:
        fields.update(dict.fromkeys(_named(row.output)))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [name if name not in COLUMNS else f"output.{name}" for name in fields]
    writer.writerow([_cell(name) for name in (*COLUMNS, *names)])
    for row in rows:
        outputs = _named(row.output)
        known: list[JsonValue] = [row.key, row.n, row.step, row.status, row.why]
        writer.writerow(
            [_cell(value) for value in (*known, *(outputs.get(field) for field in fields))]
        )
    return text.getvalue()


def _named(output: JsonValue) -> dict[str, JsonValue]:
    if isinstance(output, dict):
        return output
    if output is None:
        return {}
    return {"output": output}


def _cell(value: JsonValue) -> str:
    """Return a cell that no spreadsheet takes for a formula: such a text gets a `'` before it."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and _FORMULA.search(text):
        return f"'{text}"
    return text
