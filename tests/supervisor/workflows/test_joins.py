"""A workflow's author gives the results that a join needs, as a number or as a share of the copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Join, Plan
from handoff_queue.supervisor.workflows import read_workflow
from tests.supervisor.workflows.writing import workflow, written

LOOK = "id: look, specialist: researcher, task: 'Look at {item}', for_each: lines"
ONCE = "id: once, specialist: researcher, task: Look"


def expanded(folder: Path, join: str, lines: int = 10) -> Plan:
    """Expand a workflow in which `write` waits for `once` and for this number of copies of `look`."""
    steps = f"{LOOK}\n{ONCE}\nid: write, specialist: writer, task: Write, depends_on: [look, once], join: {join}"
    return workflow(folder, steps).expand("?", lines=[f"line {n}" for n in range(lines)])


def refusal(folder: Path, join: str) -> str:
    with pytest.raises(UserError) as raised:
        expanded(folder, join)
    message = str(raised.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("share", "parts"), [("80%", 9), ("1%", 1), ("100%", 11), ("3", 3)])
def test_a_part_of_the_copies_is_counted_when_they_are_known(
    tmp_path: Path, share: str, parts: int
) -> None:
    assert expanded(tmp_path, f"{{enough: {share}, within_s: 600}}").by_id[
        StepId("write")
    ].join == Join(enough=parts, within_s=600)


def test_a_repeated_step_that_it_must_have_is_all_its_copies(tmp_path: Path) -> None:
    assert expanded(tmp_path, "{enough: 2, must: look}", lines=2).by_id[
        StepId("write")
    ].join == Join(enough=2, must=(StepId("look_0001"), StepId("look_0002")))


def test_a_copy_joins_the_parts_of_its_own_item(tmp_path: Path) -> None:
    found = workflow(
        tmp_path,
        f"{LOOK}\n{ONCE}\n{LOOK.replace('look', 'check', 1)}, depends_on: [look, once], join: {{must: look}}",
    )

    assert found.expand("?", lines=["a", "b"]).by_id[StepId("check_0002")].join == Join(
        must=(StepId("look_0002"),)
    )


def test_the_answer_can_do_with_a_part_of_the_last_steps(tmp_path: Path) -> None:
    found = read_workflow(
        str(written(tmp_path, LOOK, "description: A test.\njoin: {enough: 50%}\n")), ()
    )

    assert found.expand("?", lines=["a", "b", "c"]).join == Join(enough=2)


@pytest.mark.parametrize(
    ("join", "words"),
    [
        ("{enough: 12}", "step 'write': join: it needs 12 results of 11: ask for fewer"),
        (
            "{enough: some}",
            "step 'write': join: enough must be a number of results, such as 3, or a percentage, such as 80%",
        ),
        ("{enough: 0}", "enough must be a number of results"),
        ("{enough: 101%}", "enough must be a number of results"),
        (
            "{within_s: 1.5}",
            "step 'write': join: within_s: '1.5' must be a whole number of seconds",
        ),
        ("{within_s: soon}", "join: within_s: 'soon' is not a duration: write a number of seconds"),
        ("{within_s: 99999999}", "within_s: must be at most 2592000"),
        ("{must: [draft]}", "it must have draft, which it does not wait for"),
        ("{must: [Draft]}", "must.0: String should match pattern"),
        ("{quorum: 2}", "there is no field 'quorum'; there are: enough, at_least, within_s, must"),
        ("{enough: }", "says nothing; write `enough: 3`"),
        ("3", "must hold fields"),
    ],
)
def test_a_join_that_cannot_be_is_refused_with_its_place(
    tmp_path: Path, join: str, words: str
) -> None:
    assert words in refusal(tmp_path, join)


def test_a_step_that_waits_for_nothing_has_nothing_to_join(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="join: it waits for nothing"):
        workflow(tmp_path, f"{ONCE}, join: {{enough: 1}}").expand("?")
