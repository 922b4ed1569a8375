"""A workflow becomes a valid plan with one copy of a repeated step per item, or is refused in
one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.plan import Plan
from handoff_queue.supervisor.workflows import Workflow, read_workflow
from handoff_queue.supervisor.workflows.expansion import (
    MAX_DEPENDENCIES,
    MAX_PLAN_CHARS,
    MAX_STEPS,
    expand,
)
from handoff_queue.workers.specialists import BUILT_IN
from tests.machine_pace import measure
from tests.supervisor.workflows.workflow_files import (
    make_workflow,
    read_built_in_workflows,
    write_workflow,
)

LOOK = "id: look, specialist: researcher, task: 'Look at {item}', for_each: lines"
WRITE = "id: write, specialist: writer, task: 'Write {request}', depends_on: look"

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def refusal(
    definition: Workflow,
    *,
    lines: list[str] | None = None,
    rows: list[dict[str, str]] | None = None,
    request: str = "?",
) -> str:
    with pytest.raises(UserError) as raised:
        expand(definition, request, lines=lines or [], rows=rows or [])
    assert "\n" not in str(raised.value)
    return str(raised.value)


def dependencies_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {step.id: tuple(step.depends_on) for step in plan.steps}


def test_a_step_waits_for_all_copies_of_a_repeated_step(tmp_path: Path) -> None:
    plan = expand(make_workflow(tmp_path, f"{LOOK}\n{WRITE}"), "a song", lines=["x", "y"])

    assert dependencies_of(plan) == {
        "look_0001": (),
        "look_0002": (),
        "write": ("look_0001", "look_0002"),
    }
    assert [step.task for step in plan.steps] == ["Look at x", "Look at y", "Write a song"]
    assert plan.why == "Workflow test: A test."


def test_copies_over_the_same_items_depend_on_each_other_pairwise(tmp_path: Path) -> None:
    steps = (
        f"{LOOK}\nid: check, specialist: reviewer, task: Check, for_each: lines, depends_on: [look]"
    )

    assert dependencies_of(expand(make_workflow(tmp_path, steps), "?", lines=["x", "y"])) == {
        "look_0001": (),
        "look_0002": (),
        "check_0001": ("look_0001",),
        "check_0002": ("look_0002",),
    }


def test_copies_over_other_items_wait_for_all_copies(tmp_path: Path) -> None:
    steps = (
        f"{LOOK}\nid: check, specialist: reviewer, task: 'Check {{item}}', for_each: files,"
        " depends_on: [look]"
    )

    plan = expand(make_workflow(tmp_path, steps), "?", lines=["x", "y"], files=["f.md"])

    assert dependencies_of(plan)["check_0001"] == ("look_0001", "look_0002")


def test_a_row_is_inserted_completely_or_by_column(tmp_path: Path) -> None:
    steps = (
        "id: a, specialist: writer, task: '{Order no.} of {who}: {item}', for_each: rows, fallback:"
        " 'Nothing on {who}'"
    )

    (step,) = expand(
        make_workflow(tmp_path, steps), "?", rows=[{"Order no.": "7", "who": "Ann {who}"}]
    ).steps

    assert step.task == "7 of Ann {who}: Order no.: 7\nwho: Ann {who}"
    assert step.fallback == "Nothing on Ann {who}"


texts = st.text(min_size=1, max_size=20)


@given(st.lists(texts, min_size=1, max_size=5), st.text(max_size=20))
@in_one_folder
def test_every_item_is_inserted_verbatim(
    tmp_path: Path, items: list[str], request_text: str
) -> None:
    each = "specialist: writer, task: '<{item}|{request}>'"
    column = "specialist: writer, task: '<{x y}>', for_each: rows"
    definition = make_workflow(
        tmp_path, f"id: a, {each}, for_each: files\nid: b, {each}, for_each: lines\nid: c, {column}"
    )

    plan = expand(
        definition, request_text, files=items, lines=items, rows=[{"x y": item} for item in items]
    )

    expected = [f"<{item}|{request_text}>" for item in items]
    assert [step.task for step in plan.steps] == [
        *expected,
        *expected,
        *(f"<{item}>" for item in items),
    ]


@st.composite
def workflow_texts(draw: st.DrawFn) -> str:
    """Generate steps in any order. Each may depend on earlier steps and may repeat over items."""
    count = draw(st.integers(1, 6))
    lines = []
    for n in range(count):
        waits_for = [f"s{m}" for m in range(n) if draw(st.booleans())]
        each = draw(st.sampled_from(["", "files", "lines", "rows"]))
        task = "Do {item}" if each else "Do {request}"
        lines.append(
            f"id: s{n}, specialist: writer, task: '{task}', for_each: {each}, depends_on:"
            f" [{', '.join(waits_for)}]"
        )
    return "\n".join(draw(st.permutations(lines)))


@given(
    workflow_texts(),
    st.fixed_dictionaries({each: st.integers(1, 12) for each in ("files", "lines", "rows")}),
)
@in_one_folder
def test_every_copy_waits_for_existing_steps_and_for_all_required_steps(
    tmp_path: Path, steps: str, counts: Mapping[str, int]
) -> None:
    definition = make_workflow(tmp_path, steps)
    counts = {
        each: count if each in definition.repeats_over else 0 for each, count in counts.items()
    }
    items = {each: [f"{each} {n}" for n in range(count)] for each, count in counts.items()}

    plan = expand(
        definition,
        "?",
        files=items["files"],
        lines=items["lines"],
        rows=[{"x": item} for item in items["rows"]],
    )

    def ids(step_id: str) -> list[str]:
        each = next(step.for_each for step in definition.steps if step.id == step_id)
        return [f"{step_id}_{n:04d}" for n in range(1, counts[each] + 1)] if each else [step_id]

    expected = {}
    for step in definition.steps:
        for n, copy in enumerate(ids(step.id)):
            beside = [
                id_
                for id_ in step.depends_on
                if step.for_each and _items_of(definition, id_) == step.for_each
            ]
            waits_for = [
                other for id_ in step.depends_on if id_ not in beside for other in ids(id_)
            ]
            expected[copy] = {*(ids(id_)[n] for id_ in beside), *waits_for}
    assert {
        step_id: set(waits_for) for step_id, waits_for in dependencies_of(plan).items()
    } == expected
    assert all(waits_for <= expected.keys() for waits_for in expected.values())
    assert Plan.from_json(plan.to_json()) == plan


def _items_of(definition: Workflow, step_id: str) -> object:
    return next(step.for_each for step in definition.steps if step.id == step_id)


def test_a_repeated_step_without_items_is_refused(tmp_path: Path) -> None:
    definition = make_workflow(tmp_path, f"{LOOK}\n{WRITE}")

    assert (
        "test.yaml:3: step 'look': repeats over lines, and the job has none; give items"
        in refusal(definition)
    )
    assert "and the job has none (it has rows)" in refusal(definition, rows=[{"a": "b"}])


def test_unused_items_are_refused(tmp_path: Path) -> None:
    definition = make_workflow(tmp_path, "id: write, specialist: writer, task: 'Write {request}'")

    assert (
        "the job has rows, and no step repeats over them; write `for_each: rows`, or leave"
        in refusal(definition, rows=[{"a": "b"}])
    )
    assert expand(definition, "?", files=["documents may be there all the same.md"]).sinks == (
        "write",
    )


def test_a_missing_column_is_named_with_the_existing_columns(tmp_path: Path) -> None:
    definition = make_workflow(
        tmp_path, "id: a, specialist: writer, task: 'Write to {nmae}', for_each: rows"
    )

    message = refusal(definition, rows=[{"name": "Ann", "town": "Ulm"}])

    assert "step 'a', item 1: there is no column 'nmae'; did you mean name?" in message


def test_texts_that_become_too_long_or_empty_are_refused(tmp_path: Path) -> None:
    definition = make_workflow(
        tmp_path, "id: a, specialist: writer, task: '{item}', for_each: lines"
    )

    assert "step 'a', item 2: task: must have at most 100000" in refusal(
        definition, lines=["x", "x" * 100_001]
    )
    assert "step 'a', item 1: task: must have at least 1" in refusal(definition, lines=[""])
    assert "step 'a', item 1: task: " in refusal(definition, lines=["\ud800"])


def test_a_plan_that_would_be_too_large_is_refused_before_it_is_built(tmp_path: Path) -> None:
    definition = make_workflow(
        tmp_path, "id: a, specialist: writer, task: '{item} {request}', for_each: lines"
    )
    many = [str(n) for n in range(MAX_STEPS + 1)]
    rows = [{"x": "y"}] * 500

    assert f"more than {MAX_STEPS:,} steps" in refusal(definition, lines=many)
    assert f"more than {MAX_PLAN_CHARS:,} characters" in refusal(
        definition, lines=many[:400], request="x" * 99_000
    )
    crossed = make_workflow(
        tmp_path,
        f"{LOOK}\nid: b, specialist: writer, task: 'Write {{item}}', for_each: rows, depends_on:"
        " look",
    )
    assert f"step 'b': more than {MAX_DEPENDENCIES:,} dependencies" in refusal(
        crossed, lines=many[:500], rows=rows
    )


@pytest.mark.slow
def test_ten_thousand_rows_become_a_plan_in_less_than_a_second(
    tmp_path: Path,
) -> None:
    look = "id: look, specialist: researcher, task: 'Look at {name} for {request}', for_each: rows"
    definition = make_workflow(tmp_path, f"{look}\n{WRITE}")
    rows = [{"name": f"n{n}", "town": "Ulm"} for n in range(10_000)]

    assert measure(lambda: expand(definition, "What of it?", rows=rows), limit_s=1) < 1
    plan = expand(definition, "What of it?", rows=rows)
    assert (len(plan.steps), plan.steps[-2].id, len(plan.by_id[plan.sinks[0]].depends_on)) == (
        10_001,
        "look_10000",
        10_000,
    )


@pytest.mark.parametrize(
    "definition", read_built_in_workflows(), ids=lambda definition: definition.name
)
def test_built_in_workflows_hand_work_to_built_in_specialists(definition: Workflow) -> None:
    assert set(definition.specialists) <= {path.stem for path in BUILT_IN.glob("*.md")}
    assert all("request" in step.task.names for step in definition.steps)


def test_the_brief_is_researched_written_reviewed_and_finished() -> None:
    plan = expand(read_workflow("brief"), "What is {this}?")

    assert [step.id for step in plan.steps] == ["research", "write", "review", "finish"]
    assert plan.sinks == ("finish",)
    assert all("What is {this}?" in step.task for step in plan.steps)


def test_the_digest_workflow_reads_each_file_in_its_own_step() -> None:
    plan = expand(read_workflow("digest"), "?", files=["a.md", "b/c.md"])

    assert dependencies_of(plan) == {
        "summarise_0001": (),
        "summarise_0002": (),
        "write": ("summarise_0001", "summarise_0002"),
    }
    assert "b/c.md" in plan.steps[1].task


def test_the_same_file_and_items_give_the_same_plan(tmp_path: Path) -> None:
    path = write_workflow(tmp_path, f"{LOOK}\n{WRITE}")

    assert expand(read_workflow(str(path)), "?", lines=["x"]) == expand(
        read_workflow(str(path)), "?", lines=["x"]
    )


# Titles


def expanded_titles(
    definition: Workflow, **items: list[str] | list[dict[str, str]]
) -> list[str | None]:
    return [step.title for step in expand(definition, "the May orders", **items).steps]  # type: ignore[arg-type]


def test_a_title_may_hold_placeholders_and_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    steps = """
        id: a, title: 'Order {Order no.}', specialist: writer, task: '{item}', for_each: rows
        id: b, title: 'About {request}', specialist: writer, task: Write
    """
    rows = [{"Order no.": "A-1"}, {"Order no.": "x\ny" * 60}]

    first, long, other = expanded_titles(make_workflow(tmp_path, steps), rows=rows)

    assert (first, other) == ("Order A-1", "About the May orders")
    assert long is not None
    assert long.startswith("Order x yx y")
    assert (len(long), long[-1]) == (80, "…")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"city": "Rome", "no": "7"}, {"city": "Rome", "no": "8"}], ["7", "8"]),
        ([{"no": "7", "city": "Rome"}, {"no": "8", "city": "Rome"}], ["7", "8"]),
        ([{"text": "long " * 20, "no": "7"}, {"text": "x", "no": "8"}], ["7", "8"]),
        ([{"city": "", "who": "Ann"}, {"city": "Rome", "who": "Ann"}], ["Ann", "Rome"]),
    ],
)
def test_the_title_of_a_copy_is_the_key_of_its_row_and_the_step_id(
    tmp_path: Path, rows: list[dict[str, str]], expected: list[str]
) -> None:
    steps = "id: a, specialist: writer, task: 'Write {item}', for_each: rows"

    copy_titles = expanded_titles(make_workflow(tmp_path, steps), rows=rows)

    assert copy_titles == [f"{key} (a_000{n})" for n, key in enumerate(expected, start=1)]


def test_the_title_of_a_copy_keeps_the_step_id_when_its_line_is_long(tmp_path: Path) -> None:
    (title,) = expanded_titles(make_workflow(tmp_path, LOOK), lines=["word " * 50])

    assert title is not None
    assert title.startswith("word word")
    assert title.endswith("… (look_0001)")
    assert len(title) <= 80


def test_a_step_without_copies_needs_no_title(tmp_path: Path) -> None:
    assert expanded_titles(make_workflow(tmp_path, "id: a, specialist: writer, task: Write")) == [
        None
    ]


def test_a_column_that_a_title_names_and_the_table_lacks_is_refused(tmp_path: Path) -> None:
    steps = "id: a, title: '{who}', specialist: writer, task: 'Write {item}', for_each: rows"

    assert "there is no column 'who'" in refusal(make_workflow(tmp_path, steps), rows=[{"no": "7"}])
