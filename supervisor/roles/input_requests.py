"""The planner's second job: steps that ended with `needs_input` get an answer, or a step that
finds it out, or are given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import Field

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.json_answers import LenientAnswer
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import OnFailure, Plan, Resolution, Resolutions, Step
from handoff_queue.supervisor.lifecycle.input_steps import helpers_of, room
from handoff_queue.supervisor.lifecycle.plan_patches import repeats_in, twice_in
from handoff_queue.supervisor.lifecycle.routing import all_rounder
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.answer_text import LONGEST_NAME, clip, name_of, parse

LONGEST_ANSWER = 20_000


class Action(StrEnum):
    ANSWER = "answer"
    """The step runs again with the answer as feedback."""
    ADD_STEP = "add_step"
    """A new step finds it out; then the step runs again with its result."""
    GIVE_UP = "give_up"
    """The missing information is not available: the step ends with its result so far, and the
    answer reports the gap.
    """


class ResolutionAnswer(LenientAnswer):
    step: str
    action: str
    answer: str | None = None
    specialist: str | None = None
    task: str | None = None


class ResolutionsAnswer(LenientAnswer):
    resolutions: list[ResolutionAnswer] = Field(default_factory=list)


@dataclass(slots=True)
class _Added:
    """Steps that `add_step` requests, by the step in need."""

    by: dict[str, Step] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NeedsFormat:
    """Reads the answer to `briefs.needs_brief`. `AcceptedAnswer.output` is `Resolutions` as JSON;
    `Resolutions.of` makes it one again.
    """

    steps: tuple[str, ...]
    """Steps with a question."""
    specialists: tuple[str, ...] = ()
    """Specialists for helper steps; empty: no step can be added."""
    room: int = 0
    """Steps that can be added."""
    earlier: tuple[Step, ...] = ()
    """The plan's: nothing is asked for twice."""
    helpers: frozenset[StepId] = frozenset()
    """Steps of the plan that are helpers themselves."""

    @property
    def schema(self) -> Mapping[str, Any]:
        text, others = {"type": "string"}, (Action.ADD_STEP,) if self.specialists else ()
        item = {
            "step": {**text, "enum": list(self.steps)},
            "action": {
                **text,
                "enum": [
                    action.value for action in Action if action is not Action.ADD_STEP or others
                ],
            },
            "answer": {
                **text,
                "description": "the answer to the step's question; when giving up, the reason",
            },
        }
        if others:
            item["specialist"] = {
                **text,
                "enum": [*sorted(self.specialists), ""],
                "description": 'add_step: the specialist that finds the answer; else ""',
            }
            item["task"] = {
                **text,
                "description": 'add_step: the question, its sources and the form of the answer; else ""',
            }
        resolution = {
            "type": "object",
            "properties": item,
            "required": list(item),
            "additionalProperties": False,
        }
        many = {
            "type": "array",
            "minItems": 1,
            "items": resolution,
            "description": "exactly one for each step that asks",
        }
        return {
            "type": "object",
            "properties": {"resolutions": many},
            "required": ["resolutions"],
            "additionalProperties": False,
        }

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Read the resolutions.

        Raises:
            InvalidAnswer: a step without a resolution or with an empty answer, or an added step
                that is invalid. On the last try such a step is abandoned instead.
        """
        given: dict[str, ResolutionAnswer] = {}
        for raw in parse(ResolutionsAnswer, text).resolutions:
            given.setdefault(name_of(raw.step), raw)
        added = self._added({step: given[step] for step in self.steps if step in given})
        clear = (
            {step for step, raw in given.items() if _gives_up(raw) or _answer_in(raw)}
            | added.by.keys()
            | added.problems.keys()
        )
        wanting = [step for step in self.steps if step not in clear]
        problems = [f"step {step} {problem}" for step, problem in added.problems.items()]
        if wanting:
            wants = "every step that asks needs `answer` with the answer, or `give_up`"
            problems.append(f"{wants}; missing: {', '.join(wanting)}")
        if problems and not last_try:
            raise InvalidAnswer("; ".join(problems))
        unmet = [step for step in self.steps if step in wanting or step in added.problems]
        kept = tuple(
            self._resolution(step, given, added, is_met=step not in unmet) for step in self.steps
        )
        notes = (
            *added.notes,
            *(f"step {step} asked a question without an answer" for step in unmet),
        )
        return AcceptedAnswer(
            ResultStatus.OK, Resolutions(resolutions=kept).model_dump(mode="json"), notes=notes
        )

    def _resolution(
        self, step: str, given: Mapping[str, ResolutionAnswer], added: _Added, *, is_met: bool
    ) -> Resolution:
        if step in added.by:
            return Resolution(step=StepId(step), by=added.by[step])
        is_answered = is_met and not _gives_up(given[step])
        return Resolution(
            step=StepId(step), answer=_answer_in(given[step]) if is_answered else None
        )

    def _added(self, given: Mapping[str, ResolutionAnswer]) -> _Added:
        """Return the added steps. Two steps with the same need wait for the same added step."""
        added, taken = _Added(), {step.id for step in self.earlier}
        for step, raw in given.items():
            if not self.specialists or name_of(raw.action) != Action.ADD_STEP:
                continue
            task = clip(raw.task or "", LONGEST_ANSWER)
            if StepId(step) in self.helpers or not task:
                if task:
                    added.problems[step] = "finds something out itself: answer it, or give it up"
                else:
                    added.problems[step] = "needs a task for `add_step`"
                continue
            helper = Step(
                id=_free_id(step, taken),
                specialist=self._there(added, raw),
                task=task,
                on_failure=OnFailure.RETRY,
            )
            taken.add(helper.id)
            added.by[step] = helper
        if added.by:
            self._without_repeats(added)
        return added

    def _there(self, added: _Added, raw: ResolutionAnswer) -> str:
        """Return a served specialist."""
        name = name_of(raw.specialist or "-")
        if name in self.specialists:
            return name
        added.notes.append(
            f"there is no specialist {name}: {all_rounder(self.specialists)} takes its steps"
        )
        return all_rounder(self.specialists)

    def _without_repeats(self, added: _Added) -> None:
        """Remove repeated steps, and steps beyond the limit."""
        needy = {helper.id: step for step, helper in added.by.items()}
        for repeat in repeats_in(tuple(added.by.values()), self.earlier):
            step = needy[repeat.step]
            added.problems[step] = (
                f"would have asked for what {repeat.earlier} was asked for already: answer it from that, or give it up"
            )
            del added.by[step]
        for repeat in twice_in(tuple(added.by.values())):
            added.by[needy[repeat.step]] = added.by[needy[repeat.earlier]]
        kept = list(dict.fromkeys(helper.id for helper in added.by.values()))[: self.room]
        for step in [step for step, helper in added.by.items() if helper.id not in kept]:
            added.problems[step] = f"cannot have a step added: at most {self.room} are allowed"
            del added.by[step]


def needs_reading_of(schema: Mapping[str, Any], state: JobState, plan: Plan) -> NeedsFormat:
    """Return the answer format with the schema of a handoff, for any specialists that are served
    now.
    """
    offered = _item_of(schema).get("specialist", {}).get("enum", ())
    return NeedsFormat(
        steps_of_schema(schema),
        tuple(filter(None, offered)),
        room(state),
        plan.steps,
        helpers_of(state),
    )


def steps_of_schema(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the steps that a `NeedsFormat.schema` asks about: the steps of its handoff, without
    later ones.
    """
    return tuple(_item_of(schema).get("step", {}).get("enum", ()))


def _item_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = (
        schema.get("properties", {}).get("resolutions", {}).get("items", {}).get("properties", {})
    )
    return properties


def _free_id(step: str, taken: set[StepId]) -> StepId:
    """Return an unused id that names the step in need: `costs_help`, `costs_help2`."""
    first = f"{step[: LONGEST_NAME - 8]}_help"
    return next(
        StepId(name)
        for name in (first, *(f"{first}{n}" for n in range(2, 1_000)))
        if name not in taken
    )


def _gives_up(raw: ResolutionAnswer) -> bool:
    """Return whether the step is abandoned. With an unknown action the answer decides: an empty
    answer means yes.
    """
    return name_of(raw.action) == Action.GIVE_UP or (
        name_of(raw.action) != Action.ANSWER and not _answer_in(raw)
    )


def _answer_in(raw: ResolutionAnswer) -> str:
    return clip(raw.answer or "", LONGEST_ANSWER)
