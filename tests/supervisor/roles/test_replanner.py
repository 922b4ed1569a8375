"""A replanner's answer is a patch, made of tool calls, or a word. A patch is checked like a
plan.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.agent.answer_format import InvalidAnswer
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Patch, Plan, Repeat
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.roles.replanner import (
    PatchFormat,
    build_patch_schema,
    parse_patch_format,
)

PLAN = Plan(
    steps=(
        Step(
            id=StepId("logs"),
            specialist="researcher",
            task="Read the logs of the checkout service and list every error.",
        ),
        Step(
            id=StepId("draft"),
            specialist="writer",
            task="Write it up.",
            depends_on=(StepId("logs"),),
        ),
    )
)
EVERYBODY = ("generalist", "ops", "researcher", "writer")
READING = PatchFormat(
    EVERYBODY, (StepId("draft"),), 2, PLAN, {StepId("logs"): "ok, three timeouts"}
)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": arguments}


def hand_off(to: str = "ops", **arguments: Any) -> dict[str, Any]:
    return call(
        "hand_off",
        specialist=to,
        **{
            "id": "config",
            "task": "Check the configuration.",
            "why": "The code is sound.",
            **arguments,
        },
    )


def patch_of(*calls: dict[str, Any], last_try: bool = False) -> Patch:
    return Patch.from_value(READING.read_calls(calls, last_try=last_try).output)


def test_a_step_that_is_added_or_changed_may_have_a_title() -> None:
    change = call("change_step", step="draft", title="The report", why="Clearer.")

    patch = patch_of(hand_off(title="The configuration"), change)

    assert [step.title for step in (*patch.add, *patch.change)] == [
        "The configuration",
        "The report",
    ]


def refusal(*calls: dict[str, Any], last_try: bool = False) -> str:
    with pytest.raises(InvalidAnswer) as problem:
        READING.read_calls(calls, last_try=last_try)
    return str(problem.value)


def test_all_calls_of_a_reply_are_one_patch() -> None:
    patch = patch_of(
        hand_off(depends_on=["logs"]),
        hand_off(
            "writer",
            id="Summary!",
            task="Sum it up.",
            depends_on=["config", "draft"],
            why="So that it is one text.",
        ),
        call(
            "change_step",
            step="draft",
            task="Write it up, with the timeouts.",
            why="The code is sound.",
        ),
    )

    assert [(step.id, step.specialist, step.depends_on) for step in patch.add] == [
        ("config", "ops", ("logs",)),
        ("summary", "writer", ("config", "draft")),
    ]
    assert patch.change == (
        PLAN.by_id[StepId("draft")].model_copy(update={"task": "Write it up, with the timeouts."}),
    )
    assert patch.why == "The code is sound. So that it is one text."


def test_two_reasons_are_two_sentences() -> None:
    patch = patch_of(hand_off(why="not needed"), call("drop_step", step="draft", why="x"))
    assert patch.why in ("not needed. x.", "x. not needed.")


def test_the_error_states_that_no_step_can_be_changed() -> None:
    with pytest.raises(
        InvalidAnswer,
        match=r"step draft has begun: it cannot be changed or dropped \(no step can any more\)",
    ):
        PatchFormat(EVERYBODY, (), 1, PLAN).read_calls(
            (call("drop_step", step="draft", why="-"),), last_try=False
        )


def test_each_specialist_has_a_tool_and_unbegun_steps_have_two() -> None:
    assert [tool.name for tool in READING.tools] == [
        "hand_off",
        "change_step",
        "drop_step",
    ]
    assert [tool.name for tool in PatchFormat(("ops",), (), 1, PLAN).tools] == ["hand_off"]


@pytest.mark.parametrize(
    ("calls", "problem"),
    [
        ([hand_off(id="logs")], "step id logs is used 2 times"),
        ([hand_off(id="planner")], "the name of one of the supervisor's roles"),
        ([hand_off(depends_on=["nowhere"])], "config depends on nowhere, which is not a step"),
        (
            [
                hand_off(depends_on=["draft"]),
                call("change_step", step="draft", depends_on=["config"]),
            ],
            "cycle: ",
        ),
        ([hand_off(id=name) for name in "xyz"], "3 new steps, at most 2 are allowed"),
        (
            [call("drop_step", step="logs", why="-")],
            "step logs has begun: it cannot be changed or dropped (only draft can)",
        ),
        ([call("change_step", step="nothing", why="-")], "there is no step nothing"),
        ([hand_off(task="")], "hand_off: task: must have at least 1 character"),
        ([call("hand_off", specialist="ops", why="-")], "hand_off: id: is missing"),
    ],
)
def test_an_invalid_patch_is_refused_with_all_errors(
    calls: list[dict[str, Any]], problem: str
) -> None:
    assert problem in refusal(*calls)
    assert problem in refusal(*calls, last_try=True)


def test_a_step_that_another_waits_for_is_not_dropped_alone() -> None:
    plan = Plan(
        steps=(
            *PLAN.steps,
            Step(
                id=StepId("check"),
                specialist="ops",
                task="Check it.",
                depends_on=(StepId("draft"),),
            ),
        )
    )
    reading = PatchFormat(EVERYBODY, (StepId("draft"), StepId("check")), 2, plan)

    with pytest.raises(InvalidAnswer, match="check depends on draft, which is not a step"):
        reading.read_calls([call("drop_step", step="draft", why="-")], last_try=False)
    assert reading.read_calls(
        [call("drop_step", step=name, why="-") for name in ("draft", "check")], last_try=False
    )


AGAIN = {"id": "errors", "task": "Please read logs of the checkout service and list every error."}


def test_repeated_work_is_reported_once_with_its_earlier_result() -> None:
    message = refusal(hand_off("researcher", **AGAIN))

    assert message.startswith(
        "step errors asks for what logs was asked for already; its result is: ok, three timeouts"
    )


def test_a_second_repeat_is_left_out_and_its_dependents_wait_for_the_first_step() -> None:
    patch = patch_of(
        hand_off("researcher", **AGAIN), hand_off(depends_on=["errors"]), last_try=True
    )

    assert patch.repeats == (Repeat(step=StepId("errors"), earlier=StepId("logs")),)
    assert [(step.id, step.depends_on) for step in patch.add] == [("config", ("logs",))]


def test_a_duplicate_within_one_reply_runs_once() -> None:
    first, second = (
        {"id": name, "task": task}
        for name, task in {"x": "Find the open ports.", "y": "Find open ports again."}.items()
    )
    patch = patch_of(
        hand_off("researcher", **first), hand_off("researcher", **second), last_try=True
    )

    assert ([step.id for step in patch.add], patch.repeats) == (
        ["x"],
        (Repeat(step=StepId("y"), earlier=StepId("x")),),
    )


def test_a_dropped_step_may_be_requested_in_other_words() -> None:
    instead = hand_off("writer", id="text", task="Write it up.", why="-")

    assert "asks for what draft was asked for" in refusal(instead)
    assert patch_of(call("drop_step", step="draft", why="-"), instead).add[0].id == "text"


@pytest.mark.parametrize(
    ("decision", "is_final"), [("go_on", False), ("finalize", True), (" Go_On ", False)]
)
def test_a_reply_without_a_call_says_whether_the_plan_stays(decision: str, is_final: bool) -> None:
    read = READING.read(
        json.dumps({"decision": decision, "why": "It is all there."}), last_try=False
    )

    assert Patch.from_value(read.output) == Patch(finalize=is_final, why="It is all there.")


@pytest.mark.parametrize("text", ['{"decision": "stop"}', "The plan is fine.", '{"why": "-"}'])
def test_any_other_word_is_refused(text: str) -> None:
    with pytest.raises(InvalidAnswer):
        READING.read(text, last_try=True)


@pytest.mark.parametrize(("may_ask", "meant"), [(True, "ask"), (False, "retry")])
def test_a_replanner_can_have_a_person_asked_only_in_a_job_with_approvals(
    may_ask: bool, meant: str
) -> None:
    reading = replace(READING, may_ask=may_ask)
    result = reading.read_calls([hand_off(on_failure="ask")], last_try=False)
    assert [step.on_failure for step in Patch.from_value(result.output).add] == [meant]
    offered = reading.tools[0].input_schema["properties"]["on_failure"]["enum"]
    assert ("ask" in offered) is may_ask


def test_the_schema_restores_the_offered_specialists_and_steps() -> None:
    again = parse_patch_format(
        build_patch_schema(EVERYBODY, ("draft",), 2), PLAN, READING.statuses, may_ask=False
    )

    assert again == READING


def test_only_calls_of_its_own_tools_are_an_answer() -> None:
    assert READING.is_answer([hand_off("nobody"), call("drop_step")])
    assert not READING.is_answer([hand_off(), call("read_result", step="logs", offset=0)])
