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
from handoff_queue.shared.text.markdown_sections import split_sections
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import StepId, build_handoff_id, create_job_id
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.roles.briefs import read_role
from handoff_queue.workers.specialists import BUILT_IN

HERE = Path(__file__).parent
ROLES_WITH_INSTRUCTIONS = ("planner", "replanner", "judge", "assessor", "synthesizer")
AGENTS = load_specialists(BUILT_IN) | {name: read_role(name) for name in ROLES_WITH_INSTRUCTIONS}


class Expectation(Message):
    does: str
    because: str
    """Phrase of the instructions that the expectation rests on. White space does not matter."""


class Golden(Message):
    agent: str
    task: str
    documents: list[str] = Field(default_factory=list)
    context: list[str] = Field(default_factory=list)
    must: list[Expectation]

    def unsupported(self, instructions: str) -> list[str]:
        """Return the expectations whose phrase is not in the instructions."""
        text = collapse_white_space(instructions)
        return [
            expectation.does
            for expectation in self.must
            if collapse_white_space(expectation.because) not in text
        ]


class Section(NamedTuple):
    agent: str
    heading: str


def collapse_white_space(text: str) -> str:
    return " ".join(text.split())


GOLDENS = {
    path.stem: Golden.model_validate(yaml.safe_load(path.read_text()))
    for path in sorted(HERE.glob("*.yaml"))
}
SECTIONS = [
    Section(name, heading)
    for name, spec in AGENTS.items()
    for heading in split_sections(spec.instructions)
]


def test_every_built_in_agent_has_a_golden_request() -> None:
    assert set(GOLDENS) == set(AGENTS)
    assert {name: golden.agent for name, golden in GOLDENS.items()} == {
        name: name for name in GOLDENS
    }


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_the_instructions_contain_all_phrases_of_the_golden_request(name: str) -> None:
    assert GOLDENS[name].unsupported(AGENTS[name].instructions) == []


@pytest.mark.parametrize(
    "section",
    SECTIONS,
    ids=lambda section: f"{section.agent}-{section.heading or 'opening'}".replace(" ", "_"),
)
def test_every_section_has_a_phrase_of_the_golden_request(section: Section) -> None:
    spec = AGENTS[section.agent]
    rest = "\n".join(
        text
        for heading, text in split_sections(spec.instructions).items()
        if heading != section.heading
    )
    assert GOLDENS[section.agent].unsupported(rest) != []


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_a_handoff_can_carry_the_golden_task(name: str) -> None:
    handoff = _handoff(AGENTS[name], GOLDENS[name])
    assert AgentHandoff.from_json(handoff.to_json()) == handoff


def _handoff(spec: SpecialistSpec, golden: Golden) -> AgentHandoff:
    return AgentHandoff(
        handoff_id=build_handoff_id("golden", 1),
        job_id=create_job_id(),
        step_id=StepId("golden"),
        attempt=1,
        assigned_to=spec.name,
        specialist=spec.content_digest,
        task_description=golden.task,
        expected_output_format=spec.output_schema,
    )
