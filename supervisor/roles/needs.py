"""The planner's second job: steps that ended with `needs_input` get an answer, or are given up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import Field

from shared.agent.answers import Lenient
from shared.agent.reading import NotAcceptable, Read
from shared.wire.handoff import ResultStatus
from shared.wire.ids import StepId
from shared.wire.resolutions import Resolution, Resolutions
from supervisor.roles.answer_text import clipped, name_of, parse

LONGEST_ANSWER = 20_000


class Action(StrEnum):
    ANSWER = "answer"
    """The step runs again with the answer as feedback."""
    GIVE_UP = "give_up"
    """What is missing cannot be had: the step ends with what it has, and the answer says so."""


class ResolutionAnswer(Lenient):
    step: str
    action: str
    answer: str | None = None


class ResolutionsAnswer(Lenient):
    resolutions: list[ResolutionAnswer] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NeedsReading:
    """Reads the answer to `briefs.needs_brief`. `Read.output` is `Resolutions` as JSON; `Resolutions.of` makes it one again."""

    steps: tuple[str, ...]
    """Those that need something."""

    @property
    def schema(self) -> Mapping[str, Any]:
        item = {
            "step": {"type": "string", "enum": list(self.steps)},
            "action": {"type": "string", "enum": [action.value for action in Action]},
            "answer": {"type": "string", "description": "what the step asked for; when giving up, why it cannot be had"},
        }
        one = {"type": "object", "properties": item, "required": list(item), "additionalProperties": False}
        many = {"type": "array", "minItems": 1, "items": one, "description": "exactly one for each step that asks"}
        return {"type": "object", "properties": {"resolutions": many}, "required": ["resolutions"], "additionalProperties": False}

    def read(self, text: str, *, last_try: bool) -> Read:
        """Raises: NotAcceptable: a step without a resolution or with an empty answer; on the last try it is given up instead."""
        given: dict[str, ResolutionAnswer] = {}
        for raw in parse(ResolutionsAnswer, text).resolutions:
            given.setdefault(name_of(raw.step), raw)
        wanting = [step for step in self.steps if step not in given or not (_gives_up(given[step]) or _answer_in(given[step]))]
        if wanting and not last_try:
            raise NotAcceptable(f"every step that asks needs `answer` with the answer, or `give_up`; missing: {', '.join(wanting)}")
        answers = {step: None if step in wanting or _gives_up(given[step]) else _answer_in(given[step]) for step in self.steps}
        kept = Resolutions(resolutions=tuple(Resolution(step=StepId(step), answer=answer) for step, answer in answers.items()))
        notes = tuple(f"step {step} asked for something that nobody could answer" for step in wanting)
        return Read(ResultStatus.OK, kept.model_dump(mode="json"), notes=notes)


def steps_asked_in(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The steps that a `NeedsReading.schema` asks about: those of its handoff, whatever else has come to need something by now."""
    item = schema.get("properties", {}).get("resolutions", {}).get("items", {}).get("properties", {})
    return tuple(item.get("step", {}).get("enum", ()))


def _gives_up(raw: ResolutionAnswer) -> bool:
    """An action that is no known word counts by whether there is an answer."""
    return name_of(raw.action) == Action.GIVE_UP or (name_of(raw.action) != Action.ANSWER and not _answer_in(raw))


def _answer_in(raw: ResolutionAnswer) -> str:
    return clipped(raw.answer or "", LONGEST_ANSWER)
