"""A plan that a person wrote is refused with its file, its line and the fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue

from handoff_queue.shared.types.errors import ManyProblems, PlanRefused, UserError
from handoff_queue.shared.types.events import RecordedEvent
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.approve import with_plan
from handoff_queue.supervisor.client.edited_plan import parse_edited_plan
from handoff_queue.supervisor.lifecycle.reduce import begin
from tests.doubles.handoffs import JOB
from tests.doubles.jobs import submission


def validate_plan(plan: JsonValue) -> None:
    """Validate a plan as a job that waits for approval of its plan does. Raise if it is invalid."""
    parse_edited_plan(
        plan, begin(JobId(JOB), RecordedEvent(1, 0.0, submission())), ("researcher", "writer")
    )


def fail_if_called(_plan: JsonValue) -> None:
    raise AssertionError("it is not a plan")


def test_an_empty_file_is_refused_with_the_form_of_a_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("")

    with pytest.raises(
        UserError,
        match=(
            r"plan\.yaml: is empty; write `steps: \.\.\.`, as `handoff show --full` prints the"
            r" plan$"
        ),
    ):
        with_plan(tmp_path / "plan.yaml", fail_if_called)


@pytest.mark.parametrize(
    "plan", ["steps:\n- id: a\n  join: {enough: most}\n", "steps:\n- id: a\njoin: {enough: most}\n"]
)
def test_an_invalid_join_is_refused_with_file_and_line(tmp_path: Path, plan: str) -> None:
    (tmp_path / "plan.yaml").write_text(plan)

    with pytest.raises(
        UserError,
        match=(
            r"plan\.yaml:3: .*join: enough must be a number of results, such as 3, or a percentage"
        ),
    ):
        with_plan(tmp_path / "plan.yaml", fail_if_called)


def test_a_join_of_an_edited_plan_stays_as_typed(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("steps:\n- {id: a, join: {enough: 80%, within_s: null}}\n")

    read: list[JsonValue] = []
    with_plan(tmp_path / "plan.yaml", read.append)
    assert read == [{"steps": [{"id": "a", "join": {"enough": "80%"}}]}]


INVALID_PLAN = """\
why: as I see it
colour: red
steps:
- id: a
  specialist: researcher
  task: Look.
- id: b
  specialist: poet
  task: Rhyme.
  depends_on: [nobody]
- id: c
  specialist: writer
  tsk: Write.
- {id: a, specialist: writer, task: Write., on_failure: cry}
- {id: d, specialist: writer, task: Write., depends_on: [d]}
"""


def test_every_fault_is_reported_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(INVALID_PLAN)

    with pytest.raises(ManyProblems) as raised:
        with_plan(tmp_path / "plan.yaml", validate_plan)
    messages = [
        line.removeprefix(f"{tmp_path}/plan.yaml:") for line in str(raised.value).splitlines()
    ]
    assert [
        (int(line), fault[:44].strip())
        for line, _, fault in (message.partition(": ") for message in messages)
    ] == [
        (2, "a plan has no field colour: use one of child"),
        (11, "step 3: task: is missing: add it"),
        (13, "step 3: tsk: there is no such field: did you"),
        (14, "step 4: on_failure: must be 'drop', 'retry'"),
        (7, "step b depends on nobody, which is not a ste"),
        (15, "cycle: d -> d (each waits for the one before"),
        (7, "step b: there is no specialist poet; use one"),
    ]


@pytest.mark.parametrize(
    ("plan", "line"), [("why: x\nsteps: []\n", 2), ("why: x\n", 1), ("- a\n", 1)]
)
def test_a_plan_without_steps_is_refused_with_a_line_number(
    tmp_path: Path, plan: str, line: int
) -> None:
    (tmp_path / "plan.yaml").write_text(plan)

    with pytest.raises(ManyProblems, match=rf"plan\.yaml:{line}: the plan has no steps"):
        with_plan(tmp_path / "plan.yaml", validate_plan)


def test_an_unknown_field_of_the_plans_join_is_answered_with_the_closest() -> None:
    step: JsonValue = {"id": "a", "specialist": "researcher", "task": "Look."}

    with pytest.raises(PlanRefused, match=r"join\.within: .*: did you mean within_s"):
        validate_plan({"steps": [step], "join": {"within": 5}})
