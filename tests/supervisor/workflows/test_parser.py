"""A workflow file is valid, or is refused in one line with the place and the remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.handoff import DEFAULT_FALLBACK
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST, RESERVED, ROLES
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.supervisor.workflows import ForEach, read_workflow
from handoff_queue.supervisor.workflows.expansion import expand
from handoff_queue.supervisor.workflows.parser import MAX_BYTES, MAX_WRITTEN_STEPS
from tests.supervisor.workflows.workflow_files import UNREVIEWED, make_workflow, write_workflow

ONE = "id: a, specialist: writer, task: Write"
REPEATED = "id: a, specialist: writer, task: 'Write {item}', for_each: files"


def refusal(path: Path | str, *dirs: Path) -> str:
    with pytest.raises(UserError) as raised:
        read_workflow(str(path), dirs)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_every_field_of_a_workflow_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ours.yml"
    path.write_text(
        "# ours\ndescription: >\n  Two\n  lines.\nreview: no\nsynthesis: reconcile\nsteps:\n- id:"
        " look\n  specialist: researcher\n  for_each: rows\n  task: |\n    Look at {Order no.}.\n\n"
        "    Then stop.\n- id: write\n  specialist: writer\n  depends_on: look\n  task: 2024\n "
        " fallback: Say so.\n"
    )

    definition = read_workflow(str(path))

    assert (definition.name, definition.description, definition.review, definition.synthesis) == (
        "ours",
        "Two lines.",
        False,
        Synthesis.RECONCILE,
    )
    assert (definition.repeats_over, definition.specialists) == (
        frozenset({ForEach.ROWS}),
        ("researcher", "writer"),
    )
    look, write = expand(definition, "?", rows=[{"Order no.": "7"}]).steps
    assert (look.id, look.task, look.fallback) == (
        "look_0001",
        "Look at 7.\n\nThen stop.",
        DEFAULT_FALLBACK,
    )
    assert (write.task, write.fallback, write.depends_on) == ("2024", "Say so.", ("look_0001",))


def test_a_steps_dependencies_are_in_the_plan(tmp_path: Path) -> None:
    steps = f"{ONE}\nid: b, specialist: writer, task: Send, after: review, approve: true"
    plain, marked = expand(make_workflow(tmp_path, steps), "?").steps

    assert (plain.after, plain.approve) == (None, None)
    assert (marked.after, marked.approve) == ("review", True)


def test_a_condition_is_kept_with_the_ids_and_the_fields_that_it_names(tmp_path: Path) -> None:
    steps = (
        "id: look, specialist: writer, task: '{item}', for_each: rows\n"
        "id: all-in, specialist: writer, task: x\n"
        "id: b, specialist: writer, task: '{item}', for_each: rows, depends_on: [look, all-in],"
        ' when: \'look.output.x == item.name and steps["all-in"].status == "ok"\''
    )
    rows = [{"name": "Ann", "age": "7"}, {"name": "Bob", "age": "8"}]
    plan = expand(make_workflow(tmp_path, steps), "?", rows=rows)

    condition = plan.by_id[StepId("b_0002")].when
    assert condition is not None
    assert condition.steps == {"look": "look_0002", "all-in": "all-in"}
    assert condition.item == {"name": "Bob"}


@pytest.mark.parametrize("column", ["town", "request", "item"])
def test_a_condition_over_a_missing_column_is_refused(tmp_path: Path, column: str) -> None:
    step = (
        f"id: a, specialist: writer, task: '{{item}}', for_each: rows, when: item.{column} == 'x'"
    )

    with pytest.raises(UserError, match=f"there is no column '{column}'; use one of name$"):
        expand(make_workflow(tmp_path, step), "?", rows=[{"name": "Ann"}])


def test_a_step_that_waits_for_the_review_of_a_workflow_without_one_is_refused(
    tmp_path: Path,
) -> None:
    steps = f"{ONE}\nid: b, specialist: writer, task: Send, after: review"
    path = write_workflow(tmp_path, steps, UNREVIEWED)

    assert "waits for the review, and the workflow says `review: false`" in refusal(path)


def test_a_missing_field_has_its_default(tmp_path: Path) -> None:
    definition = make_workflow(
        tmp_path, "id: a, specialist: writer, task: Write, depends_on: , for_each: , fallback: "
    )

    assert (definition.review, definition.synthesis, definition.repeats_over) == (
        True,
        Synthesis.MERGE,
        frozenset(),
    )


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (
            f"id: a, title: '{81 * 'x'}', specialist: writer, task: Write",
            ":3: step 'a': title must have 1 to 80 characters; write a short heading",
        ),
        (
            "id: a, title: ' ', specialist: writer, task: Write",
            ":3: step 'a': title must have 1 to 80 characters",
        ),
        (
            "id: a, title: [x], specialist: writer, task: Write",
            ":3: step 'a': title must be text",
        ),
        (
            "id: a, title: 'Of {item}', specialist: writer, task: Write",
            ":3: step 'a': there is no placeholder {item}",
        ),
        (
            "id: a, title: 'Of {', specialist: writer, task: Write",
            ":3: step 'a': a { does not begin a placeholder",
        ),
        (
            "id: a, specialist: writer, tsk: Write",
            ":3: step 'a': 'tsk' in line 3 is not a known field; did you mean task?",
        ),
        ("id: a, specialist: writer", ":3: step 'a': task is missing"),
        ("specialist: writer, task: Write", ":3: a step: id is missing"),
        (
            f"{ONE}, after: lunch",
            (
                ":3: step 'a': after is 'lunch', but it makes a step wait for the review only;"
                " write `after: review`, or name the steps to wait for in `depends_on`"
            ),
        ),
        (f"{ONE}, after: [a, b]", "step 'a': after is 'a, b', but it makes a step wait"),
        (f"{ONE}, approve: perhaps", "step 'a': approve"),
        (f"{ONE}, when: b.output.x == 1", ":3: step 'a': when: there is no step 'b'"),
        (f"{ONE}, when: a.output.x == 1", "step 'a': when: it names step a, which the step does"),
        (f"{ONE}, when: true", "step 'a': when: it uses no step and no item"),
        (f"{ONE}, when: [x]", "step 'a': when must be text"),
        (f"{ONE}, when: item == 'x'", "when: there is no item; add `for_each`"),
        (f"{ONE}, when: open('x')", "when: it calls open; only len(x) can be called"),
        (f"{REPEATED}, when: item.x == '1'", "when: item is a path and has no field x"),
        (
            f"{REPEATED.replace('files', 'rows')}, when: \"'x' in item\"",
            "when: item is a row; name a column",
        ),
        (
            f"{REPEATED}\nid: b, specialist: writer, task: x, depends_on: a, when: a.output.x == 1",
            "when: step a is repeated, and has a result for each item; repeat this step over",
        ),
        (
            f"{ONE}, after: review",
            "step a waits for the review, and no step is reviewed before it",
        ),
        ("id: A b, specialist: writer, task: Write", "step 'A b': id: must be lower-case letters"),
        (
            "id: a, specialist: Our Writer, task: Write",
            "step 'a': specialist: must be lower-case letters",
        ),
        (
            "id: a, specialist: writer, task: ''",
            "step 'a': task: must have at least 1 character",
        ),
        ("id: a, specialist: writer, task: [Write]", "step 'a': task must be text"),
        ("id: a, specialist: writer, task: Write, id: b", ":3: 'id' is given twice; remove one"),
        (
            "id: a, specialist: writer, task: Write, for_each: pages",
            "step 'a': for_each is 'pages'; write a known value (known: files, lines, rows)",
        ),
        (
            "id: a, specialist: writer, task: Write, depends_on: {b: c}",
            "step 'a': depends_on must be text",
        ),
        (
            "id: a, specialist: writer, task: Write, depends_on: ['b\\n']",
            "step 'a': depends_on.0: must be lower-case letters",
        ),
        (
            "id: a, specialist: writer, task: Write, depends_on: [b]",
            "step a depends on b, which is not a step",
        ),
        (f"{ONE}\n{ONE}", "step id a is used 2 times"),
        (f"{REPEATED}\n{ONE}", "step id a is used 2 times"),
        (f"{ONE}, depends_on: b\n{ONE.replace('a,', 'b,', 1)}, depends_on: a", "cycle: "),
        (f"{ONE}, depends_on: [a]", "cycle: a -> a"),
        (
            f"{ONE}\nid: b, specialist: writer, task: Write, depends_on: [a, a]",
            "step b names a dependency twice",
        ),
        (
            "id: a, specialist: writer, task: 'Write {topic}'",
            "step 'a': there is no placeholder {topic}; there is {request}: correct it",
        ),
        (
            "id: a, specialist: writer, task: 'Write {item}'",
            "there is no placeholder {item}; there is {request}: correct it, add `for_each`",
        ),
        (
            f"{REPEATED}, fallback: '{{column}}'",
            "there is no placeholder {column}; there is {item} and {request}",
        ),
        (
            "id: a, specialist: writer, task: 'Write {request.__class__}'",
            "there is no placeholder {request.__class__}",
        ),
        (
            "id: a, specialist: writer, task: 'Write { '",
            "step 'a': a { does not begin a placeholder; write {{ for a brace",
        ),
        (
            "id: a, specialist: writer, task: Write, for_each: lines",
            "step 'a': its copies would all be the same; put {item} into the task",
        ),
        (
            "id: a, specialist: writer, task: Write, for_each: rows",
            "put {item} or a {column} into the task",
        ),
        (
            f"{REPEATED}\n{ONE.replace('a,', 'a_0001,', 1)}",
            "step 'a_0001': a copy of step a may have this name",
        ),
        (
            REPEATED.replace("a,", f"{'a' * 42},", 1),
            "the id of a step with for_each has at most 41 characters",
        ),
        (
            f"{ONE}, fallback: {'x' * 4001}",
            "step 'a': fallback: must have at most 4000 characters",
        ),
        ('id: a, specialist: writer, task: "\\ud800"', "step 'a': task holds half a character"),
        (
            "id: &x a, specialist: *x, task: Write",
            ":3: anchors and aliases (&x, *x) are not supported; write the value out",
        ),
        (
            "id: a, specialist: writer, task: !!python/name:os.system ''",
            ":3: tags (tag:yaml.org,2002:python/name:os.system) are not",
        ),
        ("id: a, specialist: writer, ? [x] : y", "a key in line 3 is not a word"),
        *(
            (
                f"id: {role}, specialist: writer, task: Write",
                f"step id {role} is the name of one of the supervisor's roles",
            )
            for role in ROLES
        ),
    ],
)
def test_an_invalid_step_is_named_with_its_remedy(
    tmp_path: Path, steps: str, expected: str
) -> None:
    path = write_workflow(tmp_path, steps)

    message = refusal(path)

    assert message.startswith(str(path))
    assert expected in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "is empty; write"),
        (b"# nothing\n", "is empty; write"),
        (b"a text", "must hold fields"),
        (b"- a\n- b\n", "must hold fields"),
        (b"description: x\n", "steps is missing"),
        (b"description: x\nsteps:\n", "steps is missing"),
        (b"description: x\nsteps: []\n", ":2: steps has no step, at least one is needed; write"),
        (b"description: x\nsteps: {id: a}\n", ":2: steps must be a list"),
        (b"description: x\nsteps: [a, b]\n", ":2: a step: must hold fields"),
        (
            b"description: ''\nsteps: [{id: a, specialist: writer, task: x}]\n",
            ":1: description must have 1 to",
        ),
        (b"steps: [{id: a, specialist: writer, task: x}]\n", "description is missing"),
        (
            b"description: x\nreview: perhaps\nsteps: [{id: a, specialist: writer, task: x}]\n",
            ":2: review must be true or false",
        ),
        (
            b"description: x\nsynthesis: blend\nsteps: [{id: a, specialist: writer, task: x}]\n",
            ":2: synthesis is 'blend'; write a known value (known: merge",
        ),
        (
            b"description: x\non_failure: ask\nsteps: []\n",
            "'on_failure' in line 2 is not a known field",
        ),
        (
            b"description: a: b\nsteps: []\n",
            ":1: is not YAML (mapping values are not allowed here); put values",
        ),
        (b"description: 'x\n", "is not YAML"),
        (b"description: \x07\n", "is not YAML (unacceptable character"),
        (b"description: caf\xe9\n", "is not UTF-8 text (byte 16); save it as UTF-8"),
        ("description: x\n".encode("utf-16"), "is not UTF-8 text"),
        (b"[" * 1_000, "is nested too deeply"),
        (b"a: " + b"{a: " * 40_000, "is nested too deeply"),
        (b"x" * (MAX_BYTES + 1), f"is larger than {MAX_BYTES:,} bytes; shorten it"),
        (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", ":1: anchors and aliases"),
        (b"a: *a\n", ":1: anchors and aliases"),
        (b"<<: {a: b}\n", "'<<' in line 1 is not a known field"),
    ],
)
def test_a_file_that_is_not_a_workflow_is_refused_in_one_line(
    tmp_path: Path, text: bytes, expected: str
) -> None:
    path = tmp_path / "test.yaml"
    path.write_bytes(text)

    message = refusal(path)

    assert message.startswith(str(path))
    assert expected in message


@given(
    st.one_of(
        st.binary(max_size=60), st.text("ab:-{}[]&*!|>'\" \n#,?stepid", max_size=60).map(str.encode)
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_invalid_file_is_refused_in_one_line(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "test.yaml"
    path.write_bytes(text)

    assert refusal(path).startswith(str(path))


def test_the_first_of_many_problems_are_reported(tmp_path: Path) -> None:
    ring = [f"id: a{n}, specialist: writer, task: Write, depends_on: a{n ^ 1}" for n in range(40)]

    message = refusal(write_workflow(tmp_path, "\n".join(ring)))

    assert "cycle: a0 -> a1 -> a0" in message
    assert "; and 17 more; correct" in message
    assert len(message) < 1_500


def test_each_problem_is_reported_with_the_line_of_its_step(tmp_path: Path) -> None:
    steps = (
        f"{ONE}\nid: b, specialist: writer, task: Write, depends_on: nobody\nid: c, specialist:"
        " writer, task: Write, depends_on: [b, b]"
    )

    message = refusal(path := write_workflow(tmp_path, steps))

    assert (
        f"{path}:4: step b depends on nobody, which is not a step; line 5: step c names a"
        " dependency twice; correct" in message
    )


@pytest.mark.slow
def test_more_steps_than_a_person_writes_are_refused(tmp_path: Path) -> None:
    many = [f"id: a{n}, specialist: writer, task: Write" for n in range(MAX_WRITTEN_STEPS + 1)]

    assert "steps has 1,001 steps, at most 1,000 can be written down" in refusal(
        write_workflow(tmp_path, "\n".join(many))
    )


def test_an_invalid_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")

    assert "is not a regular file" in refusal(tmp_path / "pipe.yaml")
    assert "is not a regular file" in refusal(f"{tmp_path}/")
    assert "No such file" in refusal(tmp_path / "missing.yaml")
    assert "no file can be called" in refusal("a\0b.yaml")
    assert "too long" in refusal("a" * 5_000 + ".yaml")


def test_a_workflow_is_found_by_name_and_the_last_folder_that_has_it_wins(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_workflow(tmp_path / name, ONE, f"description: Of {name}.\n").rename(
            tmp_path / name / "brief.yaml"
        )

    assert (
        read_workflow("brief", [tmp_path / "first", tmp_path / "second"]).description
        == "Of second."
    )
    assert (
        read_workflow("brief", [tmp_path / "second", tmp_path / "first"]).description == "Of first."
    )
    assert read_workflow("brief").path.parent.name == "workflows"


def test_an_unknown_name_gets_a_suggestion_or_the_list_of_workflows(tmp_path: Path) -> None:
    write_workflow(tmp_path, ONE)
    (tmp_path / ".hidden.yaml").write_text("")

    assert "there is no workflow 'breif': did you mean brief?" in refusal("breif", tmp_path)
    assert (
        "there is no workflow 'poem': name a known workflow, or a .yaml file by its path"
        " (known: brief, digest, test)" in refusal("poem", tmp_path)
    )
    assert (
        "there is no workflow '.': it is a folder: name a .yaml file in it by its path"
        in refusal(".", tmp_path)
    )


def test_a_folder_with_an_ambiguous_workflow_name_is_refused(tmp_path: Path) -> None:
    write_workflow(tmp_path, ONE)
    (tmp_path / "test.yml").write_text("")

    assert "test is test.yaml too; rename or remove one of the two" in refusal("test", tmp_path)
    assert "cannot be listed (No such file or directory)" in refusal("test", tmp_path / "missing")


@pytest.mark.parametrize("name", [name for name in RESERVED if name != CHILD_JOB_SPECIALIST])
def test_no_step_is_assigned_to_a_reserved_name(tmp_path: Path, name: str) -> None:
    message = refusal(write_workflow(tmp_path, f"id: a, specialist: {name}, task: Write"))

    assert f"step 'a': {str(name)!r} is reserved for the supervisor" in message
