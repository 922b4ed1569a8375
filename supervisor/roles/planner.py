"""The planner's answer: a DAG of steps for specialists that exist, or, failing that, one step
with the whole request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import Field, ValidationError, field_validator

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.json_answers import LenientAnswer
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import problems_of
from handoff_queue.shared.types.plan import (
    DEFAULT_FALLBACK,
    Join,
    OnFailure,
    Plan,
    Step,
    Synthesis,
    count_problems,
    name_problems,
    shape_problems,
)
from handoff_queue.supervisor.lifecycle.plan_patches import twice_in
from handoff_queue.supervisor.lifecycle.routing import all_rounder, one_step
from handoff_queue.supervisor.roles.answer_text import clip, name_of, parse
from handoff_queue.supervisor.text.markdown import title_of

TITLE_HELP = "a heading for the result, in the language of the answer: Prices compared"


def failure_policies(*, may_ask: bool) -> tuple[str, ...]:
    """Return the values of `on_failure` that a model may choose.

    A model cannot decide that the job waits for a person: `ask` needs `may_ask`, which is true only
    if the user asked for approvals.
    """
    policies: list[str] = []
    for each in OnFailure:
        if may_ask or each is not OnFailure.ASK:
            policies.append(each.value)
    return tuple(policies)


class JoinAnswer(LenientAnswer):
    enough: int | None = None
    within_s: int | None = None
    must: list[str] = Field(default_factory=list)

    def join(self) -> Join | None:
        """Return the join, or None if it has no special condition.

        Raises:
            ValidationError: the join is invalid.
        """
        if not self.enough and not self.within_s:
            return None
        must = tuple(dict.fromkeys(StepId(name_of(raw)) for raw in self.must))
        return Join(enough=self.enough or None, within_s=self.within_s or None, must=must)


class StepAnswer(LenientAnswer):
    id: str
    specialist: str
    task: str
    depends_on: list[str] = Field(default_factory=list)
    fallback: str = DEFAULT_FALLBACK
    on_failure: str | None = None
    join: JoinAnswer | None = None
    title: str | None = None

    @field_validator("depends_on", mode="before")
    @classmethod
    def _none_or_one_is_a_list(cls, value: Any) -> Any:
        if isinstance(value, str) and value.strip():
            return [value]
        return value or []

    @field_validator("fallback", mode="before")
    @classmethod
    def _nothing_is_the_default(cls, value: Any) -> Any:
        return value or DEFAULT_FALLBACK

    def step(self, *, may_ask: bool) -> Step:
        """Return the step of a plan. An `on_failure` that is not offered becomes `retry`.

        Raises:
            ValidationError: a field cannot be used.
        """
        policy = name_of(self.on_failure or "-")
        is_offered = policy in failure_policies(may_ask=may_ask)
        return Step(
            id=StepId(name_of(self.id)),
            specialist=name_of(self.specialist),
            task=self.task.strip(),
            depends_on=tuple(dict.fromkeys(StepId(name_of(raw)) for raw in self.depends_on)),
            fallback=clip(self.fallback, 4_000) or DEFAULT_FALLBACK,
            on_failure=OnFailure(policy) if is_offered else OnFailure.RETRY,
            join=self.join.join() if self.join and self.depends_on else None,
            title=title_of(self.title or "") or None,
        )


class PlanAnswer(LenientAnswer):
    steps: list[StepAnswer]
    synthesis: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class PlanFormat:
    """Reads the answer to `briefs.plan_brief`. `AcceptedAnswer.output` is a `Plan` as JSON; `Plan.of`
    makes it one again.
    """

    specialists: tuple[str, ...]
    """Specialists that live workers announce."""
    max_steps: int
    given: tuple[StepId, ...] = ()
    """Results that are there already."""
    may_ask: bool = False
    """True if the user asked for approvals, so that a step may be `on_failure: ask`."""

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        text = {"type": "string"}
        join = {
            "enough": {
                "type": "integer",
                "description": "results of depends_on that are enough to go on at once; 0: all",
            },
            "within_s": {
                "type": "integer",
                "description": "seconds after which it continues with the results so far; 0: no limit",
            },
            "must": {
                "type": "array",
                "items": text,
                "description": "those of depends_on that it waits for in any case; [] if none",
            },
        }
        step = {
            "id": {**text, "description": "short, lower case, unique: compare_prices"},
            "title": {**text, "description": TITLE_HELP},
            "specialist": {**text, "enum": sorted(self.specialists)},
            "task": {**text, "description": "objective, output, what to work from, boundaries"},
            "depends_on": {
                "type": "array",
                "items": text,
                "description": "ids of the steps whose results it needs; [] for no step",
            },
            "fallback": {
                **text,
                "description": "what to do when the task cannot be done as it is put",
            },
            "on_failure": {
                **text,
                "enum": list(failure_policies(may_ask=self.may_ask)),
                "description": "drop: the answer can do without it"
                + ("; ask: a person decides" if self.may_ask else ""),
            },
            "join": _closed(join),
        }
        properties = {
            "steps": {
                "type": "array",
                "minItems": 1,
                "items": _closed(step),
                "description": f"at most {self.max_steps}",
            },
            "synthesis": {**text, "enum": [mode.value for mode in Synthesis]},
            "why": {
                **text,
                "description": "one or two sentences for readers of the plan",
            },
        }
        return _closed(properties)

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Read a plan.

        A repeated step is reported once, and accepted on the next try, because the planner may want
        it. A step for an unknown specialist goes to the generalist, with a note; that alone costs
        no turn.

        Raises:
            InvalidAnswer: names all faults of the plan.
        """
        answer = parse(PlanAnswer, text)
        steps, problems = _steps_of(answer, may_ask=self.may_ask)
        problems += [*shape_problems(steps, self.given), *count_problems(steps, self.max_steps)]
        if not answer.steps:
            problems.append("the plan has no steps")
        if problems:
            raise InvalidAnswer(
                "the plan cannot be used: "
                + "; ".join([*problems, *name_problems(steps, self.specialists)])
            )
        steps, instead = _for_those_there(steps, self.specialists)
        twice: list[str] = []
        for repeat in twice_in(steps):
            twice.append(f"step {repeat.step} asks for the same as {repeat.earlier}")
        if twice and not last_try:
            raise InvalidAnswer(
                "; ".join(twice)
                + ". Leave out repeated steps, or state the difference in their tasks"
            )
        why = clip(answer.why or "", 2_000)
        plan = Plan(
            steps=tuple(steps), synthesis=_synthesis_of(answer.synthesis), given=self.given, why=why
        )
        return AcceptedAnswer(
            ResultStatus.OK, plan.model_dump(mode="json"), notes=(*instead, *twice)
        )


def specialists_of_plan_schema(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the specialists that a `PlanFormat.schema` offers: the specialists of its handoff, and
    not the ones that are served now.
    """
    step = schema.get("properties", {}).get("steps", {}).get("items", {}).get("properties", {})
    return tuple(step.get("specialist", {}).get("enum", ()))


def fallback_plan(
    request: str, specialists: Collection[str], given: tuple[StepId, ...] = ()
) -> Plan:
    """Return the plan for a failed planner: the whole request for the generalist, or for any served
    specialist.
    """
    why = "No usable plan came from the planner: one specialist gets the whole request."
    return one_step(request, all_rounder(specialists), why, given)


def _steps_of(answer: PlanAnswer, *, may_ask: bool) -> tuple[list[Step], list[str]]:
    steps, problems = [], []
    for number, raw in enumerate(answer.steps, start=1):
        try:
            steps.append(raw.step(may_ask=may_ask))
        except ValidationError as error:
            problems.append(f"step {number} ({clip(raw.id, 48)}): {problems_of(error)}")
    return steps, problems


def _for_those_there(
    steps: Sequence[Step], specialists: Collection[str]
) -> tuple[list[Step], list[str]]:
    """Return the steps with served specialists only, and notes about the changes."""
    instead, there = all_rounder(specialists), [*specialists, all_rounder(specialists)]
    made = [
        step if step.specialist in there else step.model_copy(update={"specialist": instead})
        for step in steps
    ]
    notes = [
        f"step {step.id} was meant for {step.specialist}, which is no specialist that is there: {instead} takes it"
        for step in steps
        if step.specialist not in there
    ]
    return made, notes


def _synthesis_of(text: str | None) -> Synthesis:
    """Return the method of synthesis. An unclear value means `merge`, which costs no call, and
    makes no difference with a single sink.
    """
    if (text or "").strip().lower() == Synthesis.RECONCILE:
        return Synthesis.RECONCILE
    return Synthesis.MERGE


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
