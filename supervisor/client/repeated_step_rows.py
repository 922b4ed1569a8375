"""Read the results of repeated steps, and write them as CSV or JSON lines: one row for each item,
under the key of the item. A cell of a CSV table never begins a formula.
"""

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
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState, StepState, StepStatus

COLUMNS = ("key", "n", "step", "status", "why")
"""The first columns of every table. The columns of the outputs follow."""


class Row(Message):
    """The result of one repeated step for one item."""

    key: str
    """The key of the item: its value in the workflow's `key` column, its path or line, or its
    number.
    """
    n: PositiveInt
    """The item's place among the items that were given with the job."""
    step: str
    """The repeated step, as the workflow names it."""
    status: str
    """`ok`, `partial`, `failed`, `needs_input` or `skipped`; before the end `waiting` or
    `running`.
    """
    output: JsonValue = None
    """The output of the step; None if there is no usable output, or none yet."""
    why: str | None = None
    """The reason of a status other than `ok`."""


def read_rows(store: Store, job_id: JobId, step: str | None) -> list[Row]:
    """Return the rows that a job has now. Only the plan and the rows' results are read.

    Raises:
        UnknownJob: there is no such job.
        UserError: `step` is not a repeated step of the job.
        StoreError: a payload is gone.
    """
    state = fold(job_id, None, store.journal.read(job_id))
    if state is None:
        raise UnknownJob.for_job(job_id)
    if state.plan is None:
        return []
    digest = state.plan.plan.digest
    plan = Plan.from_json(store.payloads.get(job_id, [digest])[digest])
    repeated_steps = list_copies(plan)
    names: dict[str, None] = {}
    for repeated_step in repeated_steps:
        if repeated_step.row:
            names[repeated_step.row.step] = None
    chosen_steps = choose_steps(names, find_last_repeated_steps(plan), step)
    copies: list[Step] = []
    for repeated_step in repeated_steps:
        if repeated_step.row and repeated_step.row.step in chosen_steps:
            copies.append(repeated_step)
    digests = _list_result_digests(state, copies)
    texts = ResultTexts(store.payloads.get(job_id, [], results=digests))
    return list(iterate_rows(state, copies, texts))


def _list_result_digests(state: JobState, copies: Sequence[Step]) -> list[str]:
    """Return the digests of the results that `iterate_rows` reads, each once."""
    digests: dict[str, None] = {}
    for step in copies:
        current = state.steps.get(step.id)
        if current is not None:
            for ref in (current.result, current.problem_result):
                if ref:
                    digests[ref.digest] = None
    return list(digests)


def iterate_rows(state: JobState, copies: Sequence[Step], texts: ResultTexts) -> Iterator[Row]:
    """Yield the row of each copy of a repeated step that the job has.

    Args:
        texts: the results of the copies.
    """
    for step in copies:
        if step.row is None or step.id not in state.steps:
            continue
        current = state.steps[step.id]
        output = None
        if current.is_usable and current.result:
            output = texts.get_result(current.result).output
        yield Row(
            key=step.row.key,
            n=step.row.n,
            step=step.row.step,
            status=_get_status(current),
            output=output,
            why=texts.explain(current.problem_result),
        )


def _get_status(step: StepState) -> str:
    if step.status is StepStatus.SETTLED and step.result_status is not None:
        return step.result_status.value
    if step.status is StepStatus.RUNNING:
        return "running"
    return "waiting"


def choose_steps(
    repeated_names: Collection[str], last: frozenset[str], step: str | None
) -> frozenset[str]:
    """Return the repeated steps to show: `step`, or the last ones.

    Raises:
        UserError: `step` is not a repeated step of the job.
    """
    if step is None:
        return last
    if step not in repeated_names:
        known = ", ".join(repeated_names) or "none"
        raise UserError(f"{step!r:.60} is not a for_each step of the job (known: {known:.300})")
    return frozenset({step})


def list_copies(plan: Plan) -> list[Step]:
    """Return every copy of every repeated step, in the order of the plan."""
    copies: list[Step] = []
    for step in plan.steps:
        if step.row is not None:
            copies.append(step)
    return copies


def find_last_repeated_steps(plan: Plan) -> frozenset[str]:
    """Return the repeated steps that no step over the same kind of items depends on."""
    names, followed_names = set[str](), set[str]()
    for step in list_copies(plan):
        assert step.row is not None
        names.add(step.row.step)
        for dependency in step.depends_on:
            earlier = None
            if dependency in plan.by_id:
                earlier = plan.by_id[dependency].row
            if earlier and earlier.each == step.row.each:
                followed_names.add(earlier.step)
    return frozenset(names - followed_names)


_FORMULA = re.compile(r"^[=@+\t\n＝＠＋－]|^-(?![0-9.]+$)")
"""First characters of a cell that a spreadsheet would run as a formula. A spreadsheet of East Asia
also takes those of full width (OWASP, "CSV Injection").
"""


def format_rows(rows: Sequence[Row], target: Path) -> str:
    """Return the rows as the text of a file: JSON lines for `.jsonl`, else a CSV table."""
    if target.suffix.lower() == ".jsonl":
        return "".join(f"{row.to_json()}\n" for row in rows)
    return _format_table(rows)


def _format_table(rows: Sequence[Row]) -> str:
    """Return a CSV table. Each property of an object is a column; any other output is `output`."""
    fields: dict[str, None] = {}
    for row in rows:
        fields.update(dict.fromkeys(_get_output_fields(row.output)))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header: list[JsonValue] = [*COLUMNS]
    for field in fields:
        if field in COLUMNS:
            header.append(f"output.{field}")
        else:
            header.append(field)
    writer.writerow(map(_format_cell, header))
    for row in rows:
        outputs = _get_output_fields(row.output)
        values: list[JsonValue] = [row.key, row.n, row.step, row.status, row.why]
        values += map(outputs.get, fields)
        writer.writerow(map(_format_cell, values))
    return text.getvalue()


def _get_output_fields(output: JsonValue) -> dict[str, JsonValue]:
    if isinstance(output, dict):
        return output
    if output is None:
        return {}
    return {"output": output}


def _format_cell(value: JsonValue) -> str:
    """Return the text of a cell. A text that a spreadsheet would run as a formula begins with
    `'`. A carriage return becomes a line feed: `csv` does not quote it, so it would end the row.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        text = value.replace("\r\n", "\n").replace("\r", "\n")
    else:
        text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and _FORMULA.search(text):
        return f"'{text}"
    return text
