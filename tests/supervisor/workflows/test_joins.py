"""A workflow states the results that a join needs, as a number or as a share of the copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import Join
from handoff_queue.supervisor.workflows import read_workflow
from handoff_queue.supervisor.workflows.expansion import expand
from tests.supervisor.workflows.workflow_files import make_workflow, write_workflow

LOOK = "id: look, specialist: researcher, task: 'Look at {item}', for_each: lines"
ONCE = "id: once, specialist: researcher, task: Look"


def expanded_plan(folder: Path, join: str, lines: int = 10) -> Plan:
    """Expand a workflow in which `write` waits for `once` and for this number of copies of
    `look`.
    """
    steps = (
        f"{LOOK}\n{ONCE}\nid: write, specialist: writer, task: Write, depends_on: [look, once],"
        f" join: {join}"
    )
    return expand(make_workflow(folder, steps), "?", lines=[f"line {n}" for n in range(lines)])


def refusal(folder: Path, join: str) -> str:
    with pytest.raises(UserError) as raised:
        expanded_plan(folder, join)
    message = str(raised.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("share", "parts"), [("80%", 9), ("1%", 1), ("100%", 11), ("3", 3)])
def test_a_share_of_the_copies_is_counted_once_the_copies_are_known(
    tmp_path: Path, share: str, parts: int
) -> None:
    assert expanded_plan(tmp_path, f"{{enough: {share}, within_s: 600}}").by_id[
        StepId("write")
    ].join == Join(enough=parts, within_s=600)


def test_a_required_repeated_step_requires_all_of_its_copies(tmp_path: Path) -> None:
    assert expanded_plan(tmp_path, "{enough: 2, must: look}", lines=2).by_id[
        StepId("write")
    ].join == Join(enough=2, must=(StepId("look_0001"), StepId("look_0002")))


def test_a_copy_joins_the_parts_of_its_own_item(tmp_path: Path) -> None:
    definition = make_workflow(
        tmp_path,
        f"{LOOK}\n{ONCE}\n{LOOK.replace('look', 'check', 1)}, depends_on: [look, once], join:"
        " {must: look}",
    )

    assert expand(definition, "?", lines=["a", "b"]).by_id[StepId("check_0002")].join == Join(
        must=(StepId("look_0002"),)
    )


def test_the_answer_may_need_only_some_of_the_last_steps(tmp_path: Path) -> None:
    definition = read_workflow(
        str(write_workflow(tmp_path, LOOK, "description: A test.\njoin: {enough: 50%}\n")), ()
    )

    assert expand(definition, "?", lines=["a", "b", "c"]).join == Join(enough=2)


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (
            "{enough: 12}",
            "step 'write': join: it needs 12 results of 11",
        ),
        (
            "{enough: some}",
            (
                "step 'write': join: enough must be a number of results, such as 3, or a"
                " percentage, such as 80%"
            ),
        ),
        ("{enough: 0}", "enough must be a number of results"),
        ("{enough: 101%}", "enough must be a number of results"),
        (
            "{within_s: 1.5}",
            "step 'write': join: within_s: '1.5' must be a whole number of seconds",
        ),
        ("{within_s: soon}", "join: within_s: 'soon' is not a duration: write a number of seconds"),
        ("{within_s: 99999999}", "within_s: must be at most 2592000"),
        ("{must: [draft]}", "it must have draft, which is not one of its steps"),
        ("{must: [Draft]}", "must.0: must be lower-case letters"),
        ("{quorum: 2}", "there is no field 'quorum'; use one of enough, at_least, within_s, must"),
        ("{enough: }", "is empty; write `enough: 3`"),
        ("3", "must hold fields"),
    ],
)
def test_an_impossible_join_is_refused_with_its_place(
    tmp_path: Path, join: str, message: str
) -> None:
    assert message in refusal(tmp_path, join)


def test_a_join_of_a_step_without_dependencies_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="join: it needs a dependency"):
        expand(make_workflow(tmp_path, f"{ONCE}, join: {{enough: 1}}"), "?")
