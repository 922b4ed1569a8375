"""Each built-in agent's golden request cites phrases of its instructions. Every section has a cited
phrase.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from pydantic import Field

from handoff_queue.shared.specialists import load_specialists
from handoff_queue.shared.specialists.lint import sections_of
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import StepId, handoff_id, new_job_id
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.roles.instructions import read_role
from handoff_queue.workers.specialists import BUILT_IN

HERE = Path(__file__).parent
ROLES_WITH_INSTRUCTIONS = ("planner", "replanner", "judge", "assessor", "synthesizer")
AGENTS = load_specialists(BUILT_IN) | {name: read_role(name) for name in ROLES_WITH_INSTRUCTIONS}


class Expectation(Message):
    does: str
    because: str
    """Words of the instructions, white space folded."""


class Golden(Message):
    agent: str
    task: str
    documents: list[str] = Field(default_factory=list)
    context: list[str] = Field(default_factory=list)
    must: list[Expectation]

    def unsupported(self, instructions: str) -> list[str]:
        """Return the duties that lost their phrase in the instructions."""
        said = folded(instructions)
        return [expected.does for expected in self.must if folded(expected.because) not in said]


class Section(NamedTuple):
    agent: str
    heading: str


def folded(text: str) -> str:
    return " ".join(text.split())


GOLDENS = {
    path.stem: Golden.model_validate(yaml.safe_load(path.read_text()))
    for path in sorted(HERE.glob("*.yaml"))
}
SECTIONS = [
    Section(name, heading)
    for name, spec in AGENTS.items()
    for heading in sections_of(spec.instructions)
]


def test_every_built_in_agent_has_a_golden_request() -> None:
    assert set(GOLDENS) == set(AGENTS)
    assert {name: golden.agent for name, golden in GOLDENS.items()} == {
        name: name for name in GOLDENS
    }


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_the_instructions_say_all_that_the_golden_request_needs(name: str) -> None:
    assert GOLDENS[name].unsupported(AGENTS[name].instructions) == []


@pytest.mark.parametrize(
    "section",
    SECTIONS,
    ids=lambda section: f"{section.agent}-{section.heading or 'opening'}".replace(" ", "_"),
)
def test_the_golden_request_fails_without_any_one_section(section: Section) -> None:
    spec = AGENTS[section.agent]
    rest = "\n".join(
        text
        for heading, text in sections_of(spec.instructions).items()
        if heading != section.heading
    )
    assert GOLDENS[section.agent].unsupported(rest) != []


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_the_golden_task_makes_a_handoff(name: str) -> None:
    handoff = _handoff(AGENTS[name], GOLDENS[name])
    assert AgentHandoff.from_json(handoff.to_json()) == handoff


def _handoff(spec: SpecialistSpec, golden: Golden) -> AgentHandoff:
    return AgentHandoff(
        handoff_id=handoff_id("golden", 1),
        job_id=new_job_id(),
        step_id=StepId("golden"),
        attempt=1,
        assigned_to=spec.name,
        specialist=spec.content_digest,
        task_description=golden.task,
        expected_output_format=spec.output_schema,
    )
