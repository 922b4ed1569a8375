"""The definitions of the roles, and the checks of the synthesizer's answer."""

from __future__ import annotations

import json

import pytest

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.answer_format import InvalidAnswer
from handoff_queue.shared.agent.quote_verification import Sources
from handoff_queue.shared.specialists.lint import lint
from handoff_queue.shared.types.handoff import Claim
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.specialist import Tier
from handoff_queue.supervisor.roles.briefs import read_role

ROLES = ("planner", "replanner", "judge", "assessor", "synthesizer")
SYNTHESIZER = read_role("synthesizer")
STEP = StepId("synthesizer")


@pytest.mark.parametrize("name", ROLES)
def test_a_role_uses_the_capable_model_and_no_tools(name: str) -> None:
    role = read_role(name)
    assert (role.name, role.tier, role.tools) == (name, Tier.CAPABLE, ())


@pytest.mark.parametrize("name", ["router", "replanner", "judge", "assessor"])
def test_a_role_with_a_short_answer_asks_for_few_tokens(name: str) -> None:
    assert read_role(name).max_output_tokens <= HandoffLimits().max_output_tokens // 2


def test_the_lint_reports_nothing_about_the_roles() -> None:
    assert [str(remark) for remark in lint(map(read_role, ROLES))] == []


def test_the_synthesis_carries_the_claims_of_the_steps_that_it_points_to() -> None:
    known = {"x.c1": Claim(id="x.c1", text="x is fast"), "y.c1": Claim(id="y.c1", text="y is slow")}
    reading = EnvelopeFormat(STEP, SYNTHESIZER.output_schema, Sources(lambda digest: ""), known)
    result = reading.read(json.dumps({"status": "ok", "output": "Take x [x.c1]."}), last_try=False)
    assert (result.output, result.claims) == ("Take x [x.c1].", (known["x.c1"],))


def test_a_citation_mark_without_a_claim_costs_the_synthesizer_a_turn() -> None:
    reading = EnvelopeFormat(STEP, SYNTHESIZER.output_schema, Sources(lambda digest: ""))
    with pytest.raises(InvalidAnswer, match="points to no claim"):
        reading.read(json.dumps({"status": "ok", "output": "Take x [x.c1]."}), last_try=False)


def test_an_answer_has_the_format_that_the_user_asked_for() -> None:
    reading = EnvelopeFormat(
        STEP, {"type": "object", "required": ["winner"]}, Sources(lambda digest: "")
    )
    with pytest.raises(InvalidAnswer, match="'winner' is a required property"):
        reading.read(json.dumps({"status": "ok", "output": {}}), last_try=False)
