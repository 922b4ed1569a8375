"""The results of a repeated step come back as rows, each under its item's own key."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import JsonValue

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.cli.errors import NOT_ENDED
from handoff_queue.supervisor.cli.result import result
from handoff_queue.supervisor.client.repeated_step_rows import Row, format_rows
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows import Items
from handoff_queue.supervisor.workflows.expansion import expand
from tests.docs.pages import text_of
from tests.supervisor.shell import Shell
from tests.supervisor.workflows.workflow_files import ROW_STEP, UNREVIEWED, make_workflow

KEYED = f"{UNREVIEWED}key: order\n"
TWO_STEPS = f"""
    {ROW_STEP}
    id: draft, specialist: writer, for_each: rows, depends_on: [look], task: 'Write to {{name}}.'
    id: sum, specialist: writer, depends_on: [draft], task: Sum it up.
"""
FORMULAS = ("=", "@", "+", "-", "\t", "\n", "＝", "＠", "＋", "－")
REFERENCE = text_of("reference/python-api")
ORDERS = ("A-1042", "A-1043", "A-1044")


def orders(*names: str) -> Items:
    return Items(rows=tuple({"order": name, "name": f"Ann {name}"} for name in names))


def submit(
    shell: Shell, folder: Path, steps: str, head: str = KEYED, names: Sequence[str] = ORDERS
) -> JobId:
    flow = make_workflow(folder, steps, head)
    limits = JobLimits(max_turns=10_000)
    job_id = shell.jobs.submit(Request("Look.", workflow=flow, items=orders(*names), limits=limits))
    shell.advance(job_id)
    return job_id


def finish(shell: Shell, job_id: JobId, output: JsonValue = "It says what it says.") -> None:
    while not shell.jobs.info(job_id).status.has_ended:
        for event in shell.open(job_id):
            shell.do(job_id, event, output=output)
        shell.advance(job_id)


def test_the_reference_names_every_field_of_a_plan(shell: Shell, tmp_path: Path) -> None:
    plan = shell.jobs.result(submit(shell, tmp_path, TWO_STEPS)).plan
    fields, words = re.findall(r"^\| `plan` \| .*\| (\{.+?\})\.( .*) \|$", REFERENCE, re.MULTILINE)[
        0
    ]
    of_plan, of_steps = re.findall(r"^\{steps: \[\{(.+)\}\], (.+)\}$", fields)[0][::-1]
    of_item = re.findall(r"repeated step: \{(.+?)\}", words)[0]

    assert plan is not None
    assert set(of_plan.split(", ")) == {*plan, "child_jobs"} - {"steps"}
    assert set(of_steps.split(", ")) == set(Step.model_fields)
    assert set(Step.model_fields) > set(plan["steps"][0])
    assert set(of_item.split(", ")) == set(plan["steps"][0]["row"])


def test_each_row_is_returned_under_its_own_key(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path, TWO_STEPS)
    finish(shell, job_id, {"label": "late"})

    rows = shell.jobs.rows(job_id)
    assert [(row.key, row.n, row.step) for row in rows] == [
        ("A-1042", 1, "draft"),
        ("A-1043", 2, "draft"),
        ("A-1044", 3, "draft"),
    ]
    assert {row.status for row in rows} == {"ok"}
    assert [row.output for row in rows] == [{"label": "late"}] * 3
    assert shell.jobs.result(job_id).rows() == rows


def test_a_step_with_dependents_can_be_requested(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path, TWO_STEPS)
    finish(shell, job_id)
    assert [row.key for row in shell.jobs.rows(job_id, "look")] == list(ORDERS)
    assert shell.jobs.result(job_id).rows("look") == shell.jobs.rows(job_id, "look")
    for rows_of in (shell.jobs.result(job_id).rows, lambda step: shell.jobs.rows(job_id, step)):
        with pytest.raises(
            UserError, match=r"not a for_each step of the job \(known: look, draft\)"
        ):
            rows_of("sum")


def test_finished_rows_can_be_read_while_the_job_runs(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path, ROW_STEP)
    first, second, third = shell.open(job_id)
    shell.do(job_id, first, output="One.")
    shell.do(job_id, second, ResultStatus.NEEDS_INPUT)
    shell.claim(job_id, third)

    rows = shell.jobs.rows(job_id)
    assert [(row.key, row.status, row.output) for row in rows] == [
        ("A-1042", "ok", "One."),
        ("A-1043", "waiting", None),
        ("A-1044", "running", None),
    ]


def test_a_failed_row_gives_its_reason(shell: Shell, tmp_path: Path) -> None:
    job_id = submit(shell, tmp_path, ROW_STEP)
    first, *others = shell.open(job_id)
    shell.do(job_id, first, ResultStatus.FAILED)
    for event in others:
        shell.do(job_id, event)
    failed, *_ = shell.jobs.rows(job_id)
    assert (failed.key, failed.status, failed.output, failed.why) == (
        "A-1042",
        "failed",
        None,
        "it broke",
    )


def test_without_a_key_column_rows_are_named_by_the_first_unique_column(
    tmp_path: Path,
) -> None:
    flow = make_workflow(tmp_path, ROW_STEP, UNREVIEWED)
    same = [{"kind": "mail", "name": name} for name in ("Ann", "Bob")]
    assert keys_of(expand(flow, "Look.", rows=same)) == ["Ann", "Bob"]
    same = [{"name": "Ann"}, {"name": "Ann"}]
    assert keys_of(expand(flow, "Look.", rows=same)) == ["1", "2"]


def test_files_are_named_by_their_paths_and_lines_by_themselves(tmp_path: Path) -> None:
    each = "id: look, specialist: writer, for_each: {}, task: 'Look at {{item}}.'"
    files = make_workflow(tmp_path, each.format("files"), UNREVIEWED)
    assert keys_of(expand(files, "Look.", files=["a.md", "b/c.md"])) == ["a.md", "b/c.md"]
    lines = make_workflow(tmp_path, each.format("lines"), UNREVIEWED)
    assert keys_of(expand(lines, "Look.", lines=["one", "two"])) == ["one", "two"]
    assert keys_of(expand(lines, "Look.", lines=["one", "one"])) == ["1", "2"]


def keys_of(plan: Plan) -> list[str]:
    return [step.row.key for step in plan.steps if step.row]


def test_a_job_without_repeated_steps_has_no_rows(shell: Shell) -> None:
    assert shell.jobs.rows(shell.submit()) == []


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("A", "B", "A"), "rows 1 and 3 both have 'A'"),
        (("A", " ", "B"), "row 2 has nothing in column 'order'"),
    ],
)
def test_a_key_that_is_not_unique_is_refused(
    tmp_path: Path, names: tuple[str, ...], problem: str
) -> None:
    flow = make_workflow(tmp_path, ROW_STEP, KEYED)
    with pytest.raises(UserError, match=problem):
        expand(flow, "Look.", rows=orders(*names).rows)


def test_an_unknown_key_column_is_refused(tmp_path: Path) -> None:
    flow = make_workflow(tmp_path, ROW_STEP, f"{UNREVIEWED}key: id\n")
    with pytest.raises(UserError, match="there is no column 'id'; use one of order, name"):
        expand(flow, "Look.", rows=orders("A").rows)
    with pytest.raises(UserError, match="no step is repeated over rows"):
        make_workflow(tmp_path, "id: a, specialist: writer, task: Write.", KEYED)


ROWS = [
    Row(key="A,1", n=1, step="look", status="ok", output={"label": "late", "days": 3}),
    Row(key="-2", n=2, step="look", status="ok", output={"label": "=1+1", "key": "k"}),
    Row(key="B", n=3, step="look", status="failed", why='"no"'),
]


def test_a_table_has_a_column_for_each_property_of_the_outputs() -> None:
    table = list(csv.DictReader(io.StringIO(format_rows(ROWS, Path("rows.csv")))))
    assert [row["key"] for row in table] == ["A,1", "-2", "B"]
    assert [(row["label"], row["days"], row["output.key"]) for row in table] == [
        ("late", "3", ""),
        ("'=1+1", "", "k"),
        ("", "", ""),
    ]
    assert table[2]["why"] == '"no"'


@pytest.mark.parametrize(
    "text",
    [
        *("=1", "@SUM(A1)", "+1", "-1+1", "-A1", "\t=1", "\n=1", "\r=1"),
        *("＝1", "＠A1", "＋1", "－1"),
        *("a\r=1", "a\r\n=1", "a\n=1", 'a"\r=1', "a,=1", 'a",=1'),
    ],
)
def test_no_cell_and_no_name_of_a_column_begins_a_formula(text: str) -> None:
    rows = [Row(key=text, n=1, step="look", status="ok", output={text: text}, why=text)]
    written = format_rows(rows, Path("rows.csv"))

    read = list(csv.reader(io.StringIO(written, newline=None)))  # each end of a line ends a row

    assert len(read) == 2
    assert not [cell for cell in (*read[0], *read[1]) if cell.startswith(FORMULAS)]


def test_json_lines_hold_the_same_rows_as_python() -> None:
    lines = format_rows(ROWS, Path("rows.JSONL")).splitlines()
    assert [Row.model_validate(json.loads(line)) for line in lines] == ROWS


def test_the_command_writes_the_rows_so_far_and_says_that_the_job_continues(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", shell.url)
    job_id = submit(shell, tmp_path, ROW_STEP)
    shell.do(job_id, shell.open(job_id)[0], output="One.")

    code = result(job_id, output=tmp_path / "rows.csv")

    assert code == NOT_ENDED
    table = list(csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text())))
    assert [(row["key"], row["status"], row["output"]) for row in table] == [
        ("A-1042", "ok", "One."),
        ("A-1043", "running", ""),
        ("A-1044", "running", ""),
    ]
    with pytest.raises(UserError, match="has no rows: its plan has no for_each step"):
        result(shell.submit(), output=tmp_path / "rows.csv")


@pytest.mark.slow
def test_the_time_to_read_rows_grows_with_their_number_and_not_with_its_square(
    shell: Shell, tmp_path: Path
) -> None:
    took_s = {}
    for count in (100, 500):
        names = [f"A-{n:04d}" for n in range(count)]
        job_id = submit(shell, tmp_path, ROW_STEP, names=names)
        while len(shell.open(job_id)) < len(names):
            shell.advance(job_id)
        finish(shell, job_id, "x" * 400)
        tries_s = []
        for _ in range(5):
            began = time.process_time()
            rows = shell.jobs.rows(job_id)
            tries_s.append(time.process_time() - began)
            assert [row.key for row in rows] == names
        took_s[count] = min(tries_s)

    assert took_s[500] < 12 * took_s[100]
