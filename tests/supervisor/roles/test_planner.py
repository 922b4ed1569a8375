"""A planner's answer is parsed leniently and checked strictly. All errors are reported together."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.agent.answer_format import InvalidAnswer, get_shortening_advice
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.handoff import DEFAULT_FALLBACK, ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Plan, Synthesis
from handoff_queue.shared.types.step import Join
from handoff_queue.supervisor.lifecycle.handoffs import MAX_TASK_CHARS
from handoff_queue.supervisor.roles.planner import (
    PlanAnswer,
    PlanFormat,
    build_fallback_plan,
    with_request,
)

READING = PlanFormat(("writer", "researcher"), max_steps=3)


def step(name: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "title": f"About {name}",
        "specialist": "researcher",
        "task": f"Find out about {name}.",
        "depends_on": list(depends_on),
        "fallback": "Say so.",
        "on_failure": "retry",
        "join": {"enough": 0, "within_s": 0, "must": []},
        **fields,
    }


def answer(*steps: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"steps": steps, "synthesis": "merge", **fields})


def read_plan(text: str) -> Plan:
    result = READING.read(text, last_try=False)
    assert result.status is ResultStatus.OK
    return Plan.from_value(result.output)


def refusal(text: str) -> str:
    with pytest.raises(InvalidAnswer) as refused:
        READING.read(text, last_try=True)
    return str(refused.value)


def test_an_answer_that_fits_the_schema_becomes_a_plan() -> None:
    text = answer(
        step("a"), step("b"), step("report", "a", "b", specialist="writer"), synthesis="reconcile"
    )
    jsonschema.validate(json.loads(text), READING.schema)
    plan = read_plan(text)
    assert (plan.sinks, plan.synthesis) == (("report",), Synthesis.RECONCILE)


def test_a_plan_needs_no_more_than_its_steps() -> None:
    bare = {"id": "a", "specialist": "writer", "task": "Write."}
    text = json.dumps({"steps": [bare]})
    jsonschema.validate(json.loads(text), READING.schema)
    assert read_plan(text).sinks == ("a",)


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ("Prices\n compared", "Prices compared"),
        (2024, "2024"),
        (" ", None),
        (None, None),
        ("word " * 40, "word " * 15 + "word…"),
    ],
)
def test_a_title_is_one_line_of_bounded_length_for_any_model_text(
    given: Any, title: str | None
) -> None:
    assert read_plan(answer(step("a", title=given))).steps[0].title == title


def repeated(*texts: str, **fields: Any) -> str:
    """Return a plan with one repeated step, and a step that depends on it."""
    find = step(
        "find", task="Find out about {item}.", title="{item}", for_each=list(texts), **fields
    )
    return answer(find, step("report", "Find", specialist="writer"))


def test_a_step_is_repeated_for_each_text_and_a_later_step_depends_on_all_copies() -> None:
    text = repeated("Qdrant (doc-1)", "Milvus (doc-2)")
    jsonschema.validate(json.loads(text), READING.schema)

    first, second, report = read_plan(text).steps

    assert (first.id, first.task, first.title) == (
        "find_qdrant",
        "Find out about Qdrant (doc-1).",
        "Qdrant (doc-1)",
    )
    assert (second.id, second.task) == ("find_milvus", "Find out about Milvus (doc-2).")
    assert report.depends_on == ("find_qdrant", "find_milvus")


def test_copies_whose_texts_begin_with_the_same_word_are_numbered() -> None:
    ids = [each.id for each in read_plan(repeated("Release 4.0", "Release 4.1")).steps]
    assert ids == ["find_1", "find_2", "report"]


def test_a_join_that_must_have_a_repeated_step_must_have_all_copies() -> None:
    find = step("find", task="Find {item}.", for_each=["a", "b"])
    join = {"enough": 2, "within_s": 0, "must": ["find"]}
    plan = read_plan(answer(find, step("report", "find", join=join)))
    assert plan.steps[-1].join == Join(enough=2, must=(StepId("find_a"), StepId("find_b")))


@pytest.mark.parametrize("name", ["find", "Find_{item}"])
def test_a_repeated_step_can_depend_on_the_copy_for_the_same_text(name: str) -> None:
    find = step(name, task="Find {item}.", for_each=["Release 4.0", "Release 4.1"])
    join = {"enough": 1, "within_s": 0, "must": ["find_{item}"]}
    check = step("check", "find_{item}", task="Check {item}.", join=join)
    check["for_each"] = ["Release 4.1", "Release 4.0"]

    text = answer(find, check, step("report", "check_{item}", "find"))
    plan = Plan.from_value(PlanFormat(("researcher",), 5).read(text, last_try=False).output)

    assert [(each.id, each.depends_on) for each in plan.steps] == [
        ("find_1", ()),
        ("find_2", ()),
        ("check_1", ("find_2",)),
        ("check_2", ("find_1",)),
        ("report", ("check_1", "check_2", "find_1", "find_2")),
    ]
    assert plan.steps[2].join == Join(enough=1, must=(StepId("find_2"),))


def test_a_step_without_a_copy_for_its_text_to_depend_on_is_refused() -> None:
    find = step("find", task="Find {item}.", for_each=["a", "b"])
    check = step("check", "find_{item}", task="Check {item}.", for_each=["b", "c"])
    assert "step check_c depends on find_c, which is not a step" in refusal(answer(find, check))


def test_each_copy_counts_as_a_step_of_the_plan() -> None:
    assert "steps, at most 3 are allowed" in refusal(repeated("a", "b", "c"))
    assert "steps, at most 3 are allowed" in refusal(repeated(*map(str, range(5_000))))


def test_a_task_that_does_not_contain_its_text_would_be_done_twice_and_is_sent_back() -> None:
    text = answer(step("find", task="Find out.", for_each=["a", "b"]))
    with pytest.raises(InvalidAnswer, match="asks for the same"):
        READING.read(text, last_try=False)


@given(st.lists(st.text(), max_size=3), st.text(min_size=1))
def test_texts_of_any_form_give_steps_with_different_ids(texts: list[str], name: str) -> None:
    repeated_step = step(name, task="Find {item}.", for_each=texts)
    parsed = PlanAnswer.model_validate({"steps": [repeated_step]})
    ids = [each.build_step(may_ask=False).id for each in parsed.build_all_steps(3)]
    assert len({*ids}) == len(ids) == max(1, sum(bool(text.strip()) for text in texts))


def test_a_planner_whose_plan_was_cut_off_is_told_to_make_fewer_steps() -> None:
    assert "fewer steps" in get_shortening_advice(READING)


def test_a_placeholder_without_texts_is_sent_back_once() -> None:
    text = answer(step("a", task="Find out about {item}."))
    with pytest.raises(InvalidAnswer, match=r"step a has \{item\}, but no `for_each`"):
        READING.read(text, last_try=False)
    assert READING.read(text, last_try=True).status is ResultStatus.OK


def test_the_request_stands_in_each_task_that_asks_for_it() -> None:
    first = step("a", task="Write an answer.\n\n{request}")
    plan = read_plan(answer(first, step("b")))

    written = with_request(plan, " What costs {item}? ")

    assert written.steps[0].task == "Write an answer.\n\nWhat costs {item}?"
    assert written.steps[1] == plan.steps[1]


def test_a_long_request_is_cut_to_the_length_of_a_task() -> None:
    plan = with_request(read_plan(answer(step("a", task="{request}" * 3))), "x" * 60_000)
    assert Plan.from_value(plan.model_dump(mode="json")) == plan


def test_the_schema_names_the_served_specialists() -> None:
    with pytest.raises(jsonschema.ValidationError, match="'oracle' is not one of"):
        jsonschema.validate(json.loads(answer(step("a", specialist="oracle"))), READING.schema)


def test_ids_are_normalised_the_same_way_everywhere() -> None:
    plan = read_plan(
        answer(step("Step 1: pgvector!"), step("2", "step_1 Pgvector", specialist=" Writer "))
    )
    assert [(each.id, each.specialist, each.depends_on) for each in plan.steps] == [
        ("step_1_pgvector", "researcher", ()),
        ("s2", "writer", ("step_1_pgvector",)),
    ]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("drop", "drop"),
        (" Drop", "drop"),
        ("retry", "retry"),
        ("ask", "retry"),
        (None, "retry"),
        ("whatever", "retry"),
    ],
)
def test_a_step_that_fails_is_tried_again_unless_the_plan_says_otherwise(
    given: str | None, meant: str
) -> None:
    assert [each.on_failure for each in read_plan(answer(step("a", on_failure=given))).steps] == [
        meant
    ]


@pytest.mark.parametrize("policy", ["ask", " Ask"])
def test_a_planner_can_have_a_person_asked_in_a_job_with_approvals(policy: str) -> None:
    reading = PlanFormat(("writer", "researcher"), max_steps=3, may_ask=True)
    result = reading.read(answer(step("a", on_failure=policy)), last_try=False)
    assert [each.on_failure for each in Plan.from_value(result.output).steps] == ["ask"]


@pytest.mark.parametrize("may_ask", [True, False])
def test_a_question_is_offered_only_in_a_job_with_approvals(may_ask: bool) -> None:
    reading = PlanFormat(("writer", "researcher"), max_steps=3, may_ask=may_ask)
    text = answer(step("a", on_failure="ask"))
    validator = jsonschema.Draft202012Validator(reading.schema)
    assert validator.is_valid(json.loads(text)) is may_ask
    assert ("a person decides" in json.dumps(reading.schema)) is may_ask


def test_a_missing_or_null_field_has_a_default() -> None:
    plan = read_plan(
        json.dumps(
            {
                "steps": [
                    {
                        "id": "a",
                        "specialist": "writer",
                        "task": "Write.",
                        "depends_on": None,
                        "fallback": None,
                    }
                ]
            }
        )
    )
    assert (plan.steps[0].depends_on, plan.steps[0].fallback, plan.synthesis) == (
        (),
        DEFAULT_FALLBACK,
        Synthesis.MERGE,
    )


@pytest.mark.parametrize(
    "empty",
    [
        {"depends_on": ""},
        {"depends_on": " "},
        {"depends_on": [""]},
        {"fallback": " "},
        {"on_failure": ""},
        {"title": ""},
        {"join": ""},
        {"join": {}},
        {"join": {"enough": "", "within_s": "", "must": ""}},
        {"join": {"enough": 0, "within_s": 0, "must": [""]}},
    ],
    ids=json.dumps,
)
def test_an_empty_field_has_its_default(empty: dict[str, Any]) -> None:
    bare = {"id": "a", "specialist": "writer", "task": "Write."}
    expected = read_plan(json.dumps({"steps": [bare]}))

    assert read_plan(json.dumps({"steps": [{**bare, **empty}], "synthesis": ""})) == expected


def test_prose_and_a_code_fence_around_the_answer_are_ignored() -> None:
    assert read_plan(f"Here is the plan:\n```json\n{answer(step('a'))}\n```\nGood luck.").sinks == (
        "a",
    )


@pytest.mark.parametrize("last_try", [False, True])
def test_a_step_for_an_unknown_specialist_goes_to_the_generalist_at_once_and_the_others_stay(
    last_try: bool,
) -> None:
    reading = PlanFormat(("generalist", "researcher"), max_steps=6)
    text = answer(
        step("a"),
        step("b"),
        step("c", "a"),
        step("d", "b"),
        step("e", specialist="chemist"),
        step("f", "c", "d", "e"),
    )

    result = reading.read(text, last_try=last_try)

    specialists = {each.id: each.specialist for each in Plan.from_value(result.output).steps}
    assert specialists == {**dict.fromkeys("abcdf", "researcher"), "e": "generalist"}
    assert result.notes == (
        "step e was meant for chemist, which is not an available specialist: generalist takes it",
    )


def test_a_team_in_a_job_without_teams_goes_to_the_generalist() -> None:
    result = PlanFormat(("generalist",), max_steps=1).read(
        answer(step("a", specialist="supervisor")), last_try=False
    )

    assert [each.specialist for each in Plan.from_value(result.output).steps] == ["generalist"]


def test_all_errors_are_reported_in_one_turn() -> None:
    steps = (
        step("a", "b"),
        step("b", "a"),
        step("c", "z", specialist="oracle"),
        step("assessor"),
        step("e", task=""),
    )
    message = refusal(answer(*steps))
    for part in (
        "cycle: ",
        "step c depends on z",
        "no specialist oracle; use one of researcher, writer",
        "4 steps, at most 3",
        "step id assessor",
    ):
        assert part in message
    assert "step 5 (e): task: must have at least 1 character" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "one JSON object was expected"),
        (
            "I completed the task",
            "plain text (20 characters) came where one JSON object was expected",
        ),
        ('{"steps": [', "broken or cut off"),
        ('{"plan": []}', "steps: is missing"),
        (json.dumps({"steps": []}), "the plan has no steps"),
        (
            json.dumps({"steps": [{"id": "a"}]}),
            "steps.0.specialist: is missing; steps.0.task: is missing",
        ),
        (json.dumps({"steps": "a"}), "steps: must be a list"),
    ],
)
def test_an_invalid_plan_is_refused_with_a_repair_instruction(text: str, expected: str) -> None:
    assert expected in refusal(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_is_either_a_plan_or_refused(value: object) -> None:
    with pytest.raises(InvalidAnswer):
        READING.read(json.dumps({"steps": value}), last_try=True)


def test_an_output_that_no_reading_accepted_is_not_a_plan() -> None:
    with pytest.raises(MalformedMessage):
        Plan.from_value({"steps": []})


@pytest.mark.parametrize(
    ("specialists", "specialist"),
    [(["writer", "generalist"], "generalist"), (["writer", "coder"], "coder"), ([], "generalist")],
)
def test_without_a_plan_one_specialist_gets_the_whole_request(
    specialists: list[str], specialist: str
) -> None:
    request = "Compare x and y.\n" * 5_000
    plan = build_fallback_plan(request, specialists)
    assert [(each.specialist, each.task) for each in plan.steps] == [(specialist, request)]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"enough": 0, "within_s": 0, "must": []}, None),
        ({"enough": 0, "within_s": 0, "must": ["a"]}, None),
        (
            {"enough": 1, "within_s": 600, "must": ["Step A"]},
            Join(enough=1, within_s=600, must=(StepId("step_a"),)),
        ),
        (None, None),
    ],
)
def test_a_join_names_the_parts_a_step_can_do_without(
    given: dict[str, Any] | None, meant: Join | None
) -> None:
    plan = read_plan(answer(step("step_a"), step("b"), step("c", "step_a", "b", join=given)))

    assert [each.join for each in plan.steps] == [None, None, meant]


def test_a_step_that_waits_for_nothing_has_no_join() -> None:
    assert (
        read_plan(answer(step("a", join={"enough": 2, "within_s": 0, "must": []}))).steps[0].join
        is None
    )


def test_an_impossible_join_is_reported_with_all_other_errors() -> None:
    assert "the join of step b needs 2 results of 1" in refusal(
        answer(step("a"), step("b", "a", join={"enough": 2, "within_s": 0, "must": []}))
    )


@pytest.mark.parametrize("task", ["most seconds of waiting", "string", "Task"])
def test_a_task_that_is_copied_from_the_schema_is_refused(task: str) -> None:
    message = refusal(answer(step("a"), step("b", task=task)))
    assert f'the task of step b is only "{task}", a word of the schema' in message


REPEATED_STEPS = answer(
    step("a", task="Find the price of Qdrant."),
    step("b", task="Please find the prices of Qdrant once more."),
)


def test_a_repeated_step_is_refused_once_and_accepted_on_the_next_try() -> None:
    with pytest.raises(InvalidAnswer, match=r"^step b asks for the same as a$"):
        READING.read(REPEATED_STEPS, last_try=False)
    accepted = READING.read(REPEATED_STEPS, last_try=True)

    assert [each.id for each in Plan.from_value(accepted.output).steps] == ["a", "b"]
    assert accepted.notes == ("step b asks for the same as a",)


def test_a_step_with_another_specialist_or_other_inputs_is_not_a_repetition() -> None:
    task = "Find the price of Qdrant."

    assert read_plan(
        answer(
            step("a", task=task),
            step("b", task=task, specialist="writer"),
            step("c", "a", task=task),
        )
    )


def test_a_long_request_leaves_room_for_the_words_around_it() -> None:
    task = "Read: {request}\n\nOnly the part about pumps."
    plan = with_request(read_plan(answer(step("a", task=task))), "x" * 120_000)

    (written,) = plan.steps
    assert written.task.endswith("Only the part about pumps.")
    assert len(written.task) <= MAX_TASK_CHARS
