"""The planner's answer: read leniently, checked strictly, everything that is wrong said at once."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.agent.reading import NotAcceptable
from shared.wire.errors import MalformedMessage
from shared.wire.handoff import ResultStatus
from shared.wire.plan import DEFAULT_FALLBACK, Plan, Synthesis
from supervisor.roles.planner import PlanReading, degraded_plan

READING = PlanReading(("writer", "researcher"), max_steps=3)


def step(name: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "specialist": "researcher",
        "task": "Find out.",
        "depends_on": list(depends_on),
        "fallback": "Say so.",
        "on_failure": "retry",
        **fields,
    }


def answer(*steps: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"steps": steps, "synthesis": "merge", "why": "Two things.", **fields})


def read(text: str) -> Plan:
    result = READING.read(text, last_try=False)
    assert result.status is ResultStatus.OK
    return Plan.of(result.output)


def refusal(text: str) -> str:
    with pytest.raises(NotAcceptable) as refused:
        READING.read(text, last_try=True)
    return str(refused.value)


def test_an_answer_that_fits_the_schema_becomes_a_plan() -> None:
    text = answer(step("a"), step("b"), step("report", "a", "b", specialist="writer"), synthesis="reconcile")
    jsonschema.validate(json.loads(text), READING.schema)
    plan = read(text)
    assert (plan.sinks, plan.synthesis, plan.why) == (("report",), Synthesis.RECONCILE, "Two things.")


def test_the_schema_names_those_specialists_that_live_workers_serve() -> None:
    with pytest.raises(jsonschema.ValidationError, match="'oracle' is not one of"):
        jsonschema.validate(json.loads(answer(step("a", specialist="oracle"))), READING.schema)


def test_ids_are_normalised_the_same_way_everywhere() -> None:
    plan = read(answer(step("Step 1: pgvector!"), step("2", "step_1 Pgvector", specialist=" Writer ")))
    assert [(each.id, each.specialist, each.depends_on) for each in plan.steps] == [
        ("step_1_pgvector", "researcher", ()),
        ("s2", "writer", ("step_1_pgvector",)),
    ]


@pytest.mark.parametrize(
    ("said", "meant"), [("drop", "drop"), (" Drop", "drop"), ("retry", "retry"), (None, "retry"), ("whatever", "retry")]
)
def test_a_step_that_fails_is_tried_again_unless_the_plan_says_otherwise(said: str | None, meant: str) -> None:
    assert [each.on_failure for each in read(answer(step("a", on_failure=said))).steps] == [meant]


def test_what_is_left_out_or_null_has_a_default() -> None:
    plan = read(json.dumps({"steps": [{"id": "a", "specialist": "writer", "task": "Write.", "depends_on": None, "fallback": None}]}))
    assert (plan.steps[0].depends_on, plan.steps[0].fallback, plan.synthesis, plan.why) == ((), DEFAULT_FALLBACK, Synthesis.MERGE, "")


def test_prose_and_a_fence_around_the_answer_do_no_harm() -> None:
    assert read(f"Here is the plan:\n```json\n{answer(step('a'))}\n```\nGood luck.").sinks == ("a",)


def test_all_that_is_wrong_is_said_in_one_turn() -> None:
    steps = (step("a", "b"), step("b", "a"), step("c", "z", specialist="oracle"), step("assessor"), step("e", task=""))
    message = refusal(answer(*steps))
    for part in (
        "cycle: ",
        "step c depends on z",
        "no specialist oracle (there are: researcher, writer)",
        "4 steps, at most 3",
        "step id assessor",
    ):
        assert part in message
    assert "step 5 (e): task: String should have at least 1 character" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "one JSON object was expected"),
        ("I completed the task", "plain text (20 characters) came where one JSON object was expected"),
        ('{"steps": [', "broken or cut off"),
        ('{"plan": []}', "steps: Field required"),
        (json.dumps({"steps": []}), "the plan has no steps"),
        (json.dumps({"steps": [{"id": "a"}]}), "steps.0.specialist: Field required; steps.0.task: Field required"),
        (json.dumps({"steps": "a"}), "steps: Input should be a valid list"),
    ],
)
def test_what_is_no_plan_is_refused_with_what_to_mend(text: str, expected: str) -> None:
    assert expected in refusal(text)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_any_json_is_either_a_plan_or_refused(value: object) -> None:
    with pytest.raises(NotAcceptable):
        READING.read(json.dumps({"steps": value}), last_try=True)


def test_an_output_that_no_reading_accepted_is_no_plan() -> None:
    with pytest.raises(MalformedMessage):
        Plan.of({"steps": []})


@pytest.mark.parametrize(
    ("specialists", "who"), [(["writer", "generalist"], "generalist"), (["writer", "coder"], "coder"), ([], "generalist")]
)
def test_without_a_plan_one_specialist_gets_the_whole_request(specialists: list[str], who: str) -> None:
    request = "Compare x and y.\n" * 5_000
    plan = degraded_plan(request, specialists)
    assert [(each.specialist, each.task) for each in plan.steps] == [(who, request)]
