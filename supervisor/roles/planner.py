"""The planner's answer: a DAG of steps for specialists that exist, or, failing that, one step with the whole request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError, field_validator

from shared.agent.answers import Lenient
from shared.agent.reading import NotAcceptable, Read
from shared.wire.handoff import ResultStatus
from shared.wire.ids import StepId
from shared.wire.message import problems_of
from shared.wire.plan import DEFAULT_FALLBACK, OnFailure, Plan, Step, Synthesis, limit_problems, shape_problems
from supervisor.lifecycle.beginning import all_rounder, one_step
from supervisor.roles.answer_text import clipped, name_of, parse


class StepAnswer(Lenient):
    id: str
    specialist: str
    task: str
    depends_on: list[str] = Field(default_factory=list)
    fallback: str = DEFAULT_FALLBACK
    on_failure: str | None = None

    @field_validator("depends_on", mode="before")
    @classmethod
    def _none_or_one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) and value.strip() else value or []

    @field_validator("fallback", mode="before")
    @classmethod
    def _nothing_is_the_default(cls, value: Any) -> Any:
        return value or DEFAULT_FALLBACK

    def step(self) -> Step:
        """Raises: ValidationError."""
        return Step(
            id=StepId(name_of(self.id)),
            specialist=name_of(self.specialist),
            task=self.task.strip(),
            depends_on=tuple(dict.fromkeys(StepId(name_of(raw)) for raw in self.depends_on)),
            fallback=clipped(self.fallback, 4_000) or DEFAULT_FALLBACK,
            on_failure=OnFailure.DROP if name_of(self.on_failure or "-") == OnFailure.DROP else OnFailure.RETRY,
        )


class PlanAnswer(Lenient):
    steps: list[StepAnswer]
    synthesis: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class PlanReading:
    """Reads the answer to `briefs.plan_brief`. `Read.output` is a `Plan` as JSON; `Plan.of` makes it one again."""

    specialists: tuple[str, ...]
    """Those that live workers announce."""
    max_steps: int

    @property
    def schema(self) -> Mapping[str, Any]:
        text = {"type": "string"}
        step = {
            "id": {**text, "description": "short, lower case, unique: compare_prices"},
            "specialist": {**text, "enum": sorted(self.specialists)},
            "task": {**text, "description": "objective, output, what to work from, boundaries"},
            "depends_on": {"type": "array", "items": text, "description": "ids of the steps whose results it needs; [] if none"},
            "fallback": {**text, "description": "what to do when the task cannot be done as it is put"},
            "on_failure": {**text, "enum": [each.value for each in OnFailure], "description": "drop: the answer can do without it"},
        }
        properties = {
            "steps": {"type": "array", "minItems": 1, "items": _closed(step), "description": f"at most {self.max_steps}"},
            "synthesis": {**text, "enum": [mode.value for mode in Synthesis]},
            "why": {**text, "description": "one or two sentences for the people who look at the plan"},
        }
        return _closed(properties)

    def read(self, text: str, *, last_try: bool) -> Read:  # noqa: ARG002 (there is nothing in a plan that may be dropped)
        """Raises: NotAcceptable: everything that is wrong with the plan, at once."""
        answer = parse(PlanAnswer, text)
        steps, found = _steps_of(answer)
        found += [*shape_problems(steps), *limit_problems(steps, self.specialists, self.max_steps)]
        if not answer.steps:
            found.append("the plan has no steps")
        if found:
            raise NotAcceptable("the plan cannot be used: " + "; ".join(found))
        plan = Plan(steps=tuple(steps), synthesis=_synthesis_of(answer.synthesis), why=clipped(answer.why or "", 2_000))
        return Read(ResultStatus.OK, plan.model_dump(mode="json"))


def specialists_offered_in(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The specialists that a `PlanReading.schema` offers: those of its handoff, whoever is there by now."""
    step = schema.get("properties", {}).get("steps", {}).get("items", {}).get("properties", {})
    return tuple(step.get("specialist", {}).get("enum", ()))


def degraded_plan(request: str, specialists: Collection[str]) -> Plan:
    """The plan when no planner could make one: the request as it is, for the generalist, or whoever there is."""
    return one_step(request, all_rounder(specialists), "No usable plan came from the planner: one specialist gets the whole request.")


def _steps_of(answer: PlanAnswer) -> tuple[list[Step], list[str]]:
    steps, found = [], []
    for number, raw in enumerate(answer.steps, start=1):
        try:
            steps.append(raw.step())
        except ValidationError as error:
            found.append(f"step {number} ({clipped(raw.id, 48)}): {problems_of(error)}")
    return steps, found


def _synthesis_of(text: str | None) -> Synthesis:
    """Anything unclear is `merge`: it costs no call, and with a single sink it makes no difference."""
    return Synthesis.RECONCILE if (text or "").strip().lower() == Synthesis.RECONCILE else Synthesis.MERGE


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
