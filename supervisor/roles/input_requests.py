"""The planner's second answer: a step that ended with `needs_input` gets an answer or a helper
step, or is given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import Field

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer, LenientAnswer
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Plan, Resolution, Resolutions
from handoff_queue.shared.types.step import OnFailure, Step
from handoff_queue.supervisor.lifecycle.helper_steps import count_steps_left, find_helpers
from handoff_queue.supervisor.lifecycle.routing import choose_default_specialist
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.answer_text import (
    MAX_ID_CHARS,
    build_id,
    build_object_schema,
    clip,
    list_values,
    parse,
)
from handoff_queue.supervisor.text.task_similarity import find_repeats, find_repeats_of_earlier

MAX_ANSWER_CHARS = 20_000
"""Most characters of an answer, and of the task of a helper step."""


class ResolutionAction(StrEnum):
    """The planner's action on a step that needs input."""

    ANSWER = "answer"
    """The step runs again with the answer as feedback."""
    ADD_STEP = "add_step"
    """A new step finds the answer; then the step in need runs again with its result."""
    GIVE_UP = "give_up"
    """The information is not available: the step ends with its result so far, and the job's
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
class _HelperRequests:
    """Helper steps that `add_step` requests."""

    helpers: dict[str, Step] = field(default_factory=dict)
    """Helper steps by the step in need."""
    problems: dict[str, str] = field(default_factory=dict)
    """Reasons why a step in need gets no helper step, by that step."""
    notes: list[str] = field(default_factory=list)
    """Notes on changes, for the result."""


@dataclass(frozen=True, slots=True)
class NeedsFormat:
    """Format of the answer to `briefs.build_needs_brief`. `AcceptedAnswer.output` is the JSON form
    of `Resolutions`.
    """

    steps: tuple[str, ...]
    """Steps with a question."""
    specialists: tuple[str, ...] = ()
    """Specialists for helper steps; empty: no step can be added."""
    room: int = 0
    """Number of steps that can be added."""
    earlier: tuple[Step, ...] = ()
    """Steps of the plan. A helper step must not repeat their work."""
    helpers: frozenset[StepId] = frozenset()
    """Steps of the plan that are helpers themselves."""

    @property
    def schema(self) -> Mapping[str, Any]:
        text = {"type": "string"}
        actions = list_values(ResolutionAction)
        if not self.specialists:
            actions.remove(ResolutionAction.ADD_STEP)
        item = {
            "step": {**text, "enum": list(self.steps)},
            "action": {**text, "enum": actions},
            "answer": {
                **text,
                "description": "the answer to the step's question; when giving up, the reason",
            },
        }
        if self.specialists:
            item["specialist"] = {
                **text,
                "enum": [*sorted(self.specialists), ""],
                "description": 'add_step: the specialist that finds the answer; else ""',
            }
            item["task"] = {
                **text,
                "description": (
                    'add_step: the question, its sources and the form of the answer; else ""'
                ),
            }
        resolutions = {
            "type": "array",
            "minItems": 1,
            "items": build_object_schema(item),
            "description": "exactly one for each step that asks",
        }
        return build_object_schema({"resolutions": resolutions})

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Read the resolutions.

        Raises:
            InvalidAnswer: the text has no resolutions, a step has no resolution or an empty answer,
                or a helper step is invalid. On the last try, such a step is given up instead, with
                a note, but a text without resolutions is still refused.
        """
        answers: dict[str, ResolutionAnswer] = {}
        for raw in parse(ResolutionsAnswer, text).resolutions:
            answers.setdefault(build_id(raw.step), raw)
        requests = self._make_helper_steps(answers)
        missing: list[str] = []
        for step in self.steps:
            if step in requests.helpers or step in requests.problems:
                continue
            if not _resolves(answers.get(step)):
                missing.append(step)
        problems = [f"step {step} {problem}" for step, problem in requests.problems.items()]
        if missing:
            wants = "every step that asks needs `answer` with the answer, or `give_up`"
            problems.append(f"{wants}; missing: {', '.join(missing)}")
        if problems and not last_try:
            raise InvalidAnswer("; ".join(problems))
        resolutions: list[Resolution] = []
        notes = requests.notes.copy()
        for step in self.steps:
            if step in missing or step in requests.problems:
                notes.append(f"step {step} asked a question without an answer")
                resolutions.append(Resolution(step=StepId(step), answer=None))
            else:
                resolutions.append(_build_resolution(step, answers, requests))
        output = Resolutions(resolutions=tuple(resolutions)).model_dump(mode="json")
        return AcceptedAnswer(ResultStatus.OK, output, notes=tuple(notes))

    def _make_helper_steps(self, answers: Mapping[str, ResolutionAnswer]) -> _HelperRequests:
        """Return the helper steps. Two steps with the same need wait for the same helper step."""
        requests = _HelperRequests()
        if not self.specialists:
            return requests
        taken_ids = {step.id for step in self.earlier}
        for step in self.steps:
            raw = answers.get(step)
            if raw is None or build_id(raw.action) != ResolutionAction.ADD_STEP:
                continue
            task = clip(raw.task or "", MAX_ANSWER_CHARS)
            if not task:
                requests.problems[step] = "needs a task for `add_step`"
                continue
            if StepId(step) in self.helpers:
                requests.problems[step] = "finds something out itself: answer it, or give it up"
                continue
            helper = Step(
                id=_find_free_id(step, taken_ids),
                specialist=self._choose_helper_specialist(requests, raw),
                task=task,
                on_failure=OnFailure.RETRY,
            )
            taken_ids.add(helper.id)
            requests.helpers[step] = helper
        if requests.helpers:
            self._remove_repeats(requests)
        return requests

    def _choose_helper_specialist(self, requests: _HelperRequests, raw: ResolutionAnswer) -> str:
        """Return the specialist of a helper step. The generalist replaces an unknown
        specialist, with a note.
        """
        name = build_id(raw.specialist or "-")
        if name in self.specialists:
            return name
        specialist = choose_default_specialist(self.specialists)
        requests.notes.append(f"there is no specialist {name}: {specialist} takes its steps")
        return specialist

    def _remove_repeats(self, requests: _HelperRequests) -> None:
        """Remove helper steps that repeat steps of the plan, merge helper steps that repeat
        each other, and remove helper steps beyond `room`.
        """
        needy = {helper.id: step for step, helper in requests.helpers.items()}
        for repeat in find_repeats_of_earlier(tuple(requests.helpers.values()), self.earlier):
            step = needy[repeat.step]
            requests.problems[step] = (
                f"would have asked for what {repeat.earlier} was asked for already: answer it from"
                " that, or give it up"
            )
            del requests.helpers[step]
        for repeat in find_repeats(tuple(requests.helpers.values())):
            requests.helpers[needy[repeat.step]] = requests.helpers[needy[repeat.earlier]]
        kept_ids: set[StepId] = set()
        for step, helper in list(requests.helpers.items()):
            if helper.id in kept_ids or len(kept_ids) < self.room:
                kept_ids.add(helper.id)
            else:
                requests.problems[step] = (
                    f"cannot have a step added: at most {self.room} are allowed"
                )
                del requests.helpers[step]


def build_needs_format(schema: Mapping[str, Any], state: JobState, plan: Plan) -> NeedsFormat:
    """Return the answer format of a handoff with this `NeedsFormat.schema`, for the steps and
    specialists in the schema.
    """
    specialists = _get_item(schema).get("specialist", {}).get("enum", ())
    return NeedsFormat(
        steps=find_schema_steps(schema),
        specialists=tuple(filter(None, specialists)),
        room=count_steps_left(state),
        earlier=plan.steps,
        helpers=find_helpers(state),
    )


def find_schema_steps(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the steps that a `NeedsFormat.schema` asks about. Steps that asked later are not
    among them.
    """
    return tuple(_get_item(schema).get("step", {}).get("enum", ()))


def _get_item(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = (
        schema.get("properties", {}).get("resolutions", {}).get("items", {}).get("properties", {})
    )
    return properties


def _find_free_id(step: str, taken_ids: set[StepId]) -> StepId:
    """Return an unused id for a helper of a step: `costs_help`, `costs_help2`."""
    first = f"{step[: MAX_ID_CHARS - 8]}_help"
    name, number = first, 2
    while name in taken_ids:
        name = f"{first}{number}"
        number += 1
    return StepId(name)


def _build_resolution(
    step: str, answers: Mapping[str, ResolutionAnswer], requests: _HelperRequests
) -> Resolution:
    """Return the valid resolution of a step. Without an answer and a helper, the step is given
    up.
    """
    if step in requests.helpers:
        return Resolution(step=StepId(step), by=requests.helpers[step])
    answer = None
    if not _gives_up(answers[step]):
        answer = _get_answer(answers[step])
    return Resolution(step=StepId(step), answer=answer)


def _resolves(raw: ResolutionAnswer | None) -> bool:
    """Return whether the planner answers the question or gives the step up."""
    return raw is not None and (_gives_up(raw) or bool(_get_answer(raw)))


def _gives_up(raw: ResolutionAnswer) -> bool:
    """Return whether the planner gives the step up. The action `give_up` always does, and
    `answer` never does. Any other action gives up if there is no answer.
    """
    action = build_id(raw.action)
    if action == ResolutionAction.GIVE_UP:
        return True
    return action != ResolutionAction.ANSWER and not _get_answer(raw)


def _get_answer(raw: ResolutionAnswer) -> str:
    return clip(raw.answer or "", MAX_ANSWER_CHARS)
