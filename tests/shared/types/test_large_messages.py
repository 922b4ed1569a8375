"""The largest plans and answers can be read. Only results and events have a largest size."""

from __future__ import annotations

import json

import pytest

from handoff_queue.shared.store.journal import parse_entry
from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.handoff import MAX_RESULT_VALUES, HandoffResult, make_ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.json_values import has_more_values
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import Step
from handoff_queue.shared.types.step_events import PlanMade, StepOutline
from handoff_queue.supervisor.workflows.expansion import MAX_STEPS

MANY = 2_000_000
"""JSON values of a message that an earlier version refused."""
FIRST = tuple(StepId(f"first_{number}") for number in range(20))


def steps_as_json(step: Message, dependent: Message, dependents: int) -> str:
    """Return a JSON list: a step for each id of `FIRST`, and this number of steps after them."""
    texts = [step.to_json().replace('"first"', f'"{step_id}"') for step_id in FIRST]
    after = dependent.to_json()
    for number in range(dependents):
        texts.append(after.replace('"after"', f'"s{number}"'))
    return f"[{','.join(texts)}]"


@pytest.mark.slow
def test_a_plan_of_the_most_steps_of_a_workflow_is_readable() -> None:
    step = Step(id=StepId("first"), specialist="writer", task="Write.")
    after = step.model_copy(update={"id": StepId("after"), "depends_on": FIRST})
    text = f'{{"steps":{steps_as_json(step, after, MAX_STEPS - len(FIRST))}}}'

    plan = Plan.from_json(text)

    assert has_more_values(text, MANY)
    assert len(plan.steps) == MAX_STEPS


@pytest.mark.slow
def test_the_event_of_a_plan_of_the_most_steps_is_readable() -> None:
    step = StepOutline(id=StepId("first"), specialist="writer")
    after = step.model_copy(update={"id": StepId("after"), "depends_on": FIRST})
    steps = steps_as_json(step, after, MAX_STEPS - len(FIRST))
    plan = make_ref("a plan").to_json()
    entry = f'1790000000000 {{"type":"plan_made","plan":{plan},"steps":{steps}}}'.encode()

    event = parse_entry(1, entry).event

    assert has_more_values(entry, MANY)
    assert isinstance(event, PlanMade)
    assert len(event.steps) == MAX_STEPS


@pytest.mark.slow
def test_an_answer_with_a_value_of_more_than_two_million_values_is_readable() -> None:
    text = json.dumps({"status": "ok", "text": "", "value": [0] * (MANY + 1)})

    value = Answer.from_json(text).value

    assert isinstance(value, list)
    assert len(value) == MANY + 1


def test_a_result_of_more_values_than_the_limit_is_refused_in_one_line() -> None:
    text = f'{{"output":[{"0," * MAX_RESULT_VALUES}0]}}'

    with pytest.raises(MalformedMessage) as refusal:
        HandoffResult.from_json(text)

    assert str(refusal.value) == "HandoffResult: it has more than 600,000 values"
