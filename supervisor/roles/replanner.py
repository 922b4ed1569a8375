"""The replanner's answer: calls of handoff tools, which are a patch to the plan; or a word on
whether the plan goes on or is done.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import Field, ValidationError, field_validator

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.json_answers import LenientAnswer
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import problems_of
from handoff_queue.shared.types.model import Block
from handoff_queue.shared.types.plan import (
    Patch,
    Plan,
    Repeat,
    Step,
    last_join_problems,
    shape_problems,
)
from handoff_queue.supervisor.lifecycle.plan_patches import repeats_in, twice_in
from handoff_queue.supervisor.lifecycle.routing import all_rounder
from handoff_queue.supervisor.roles.answer_text import clip, name_of, parse
from handoff_queue.supervisor.roles.handoff_tools import (
    CHANGE,
    DROP,
    HAND_OFF,
    is_handoff_tool,
    tools_for,
)
from handoff_queue.supervisor.roles.planner import StepAnswer
from handoff_queue.supervisor.text.markdown import title_of

LONGEST_WHY = 2_000
FOUND_CHARS = 300
"""Characters of a result in the replanner's brief."""


class Decision(StrEnum):
    """The replanner's answer without a tool call."""

    GO_ON = "go_on"
    """The plan stands."""
    FINALIZE = "finalize"
    """No further step is needed."""


class DecisionAnswer(LenientAnswer):
    decision: str
    why: str | None = None


class ChangeAnswer(LenientAnswer):
    step: str
    specialist: str | None = None
    title: str | None = None
    task: str | None = None
    depends_on: list[str] | None = None


class DropAnswer(LenientAnswer):
    step: str


class WhyAnswer(LenientAnswer):
    why: str = ""

    @field_validator("why", mode="before")
    @classmethod
    def _nothing_is_empty(cls, value: Any) -> Any:
        return value or ""


class HandOffAnswer(StepAnswer):
    specialist: str = Field(default="")


@dataclass(slots=True)
class _Asked:
    """The changes that the calls of one reply request."""

    add: list[Step] = field(default_factory=list)
    change: list[Step] = field(default_factory=list)
    drop: list[StepId] = field(default_factory=list)
    whys: dict[str, None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def steps(self, plan: Plan) -> list[Step]:
        """Return all steps of the changed plan."""
        changed = {step.id: step for step in self.change}
        return [
            *(changed.get(step.id, step) for step in plan.steps if step.id not in self.drop),
            *self.add,
        ]


@dataclass(frozen=True, slots=True)
class PatchFormat:
    """Reads the answer to `briefs.replan_brief`. `AcceptedAnswer.output` is a `Patch` as JSON;
    `Patch.of` makes it one again.
    """

    specialists: tuple[str, ...]
    """Specialists that live workers announce."""
    unbegun: tuple[StepId, ...]
    """The steps that can be changed or dropped."""
    room: int
    """Number of steps that can be added."""
    plan: Plan
    found: Mapping[StepId, str] = field(default_factory=dict)
    """Results of the steps, in a few words."""
    may_ask: bool = False
    """True if the user asked for approvals, so that a new step may be `on_failure: ask`."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """Return the schema of an answer in words."""
        properties = {
            "decision": {"type": "string", "enum": [each.value for each in Decision]},
            "why": {
                "type": "string",
                "description": "one sentence for readers of the plan",
            },
        }
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tools_for(self.specialists, self.unbegun, may_ask=self.may_ask)

    def is_answer(self, calls: Sequence[Block]) -> bool:
        return all(is_handoff_tool(str(call.get("name"))) for call in calls)

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:  # noqa: ARG002 (a word that is none of the two is no decision, however often)
        """Read a decision in words.

        Raises:
            InvalidAnswer: neither of the two words, also on the last try.
        """
        answer = parse(DecisionAnswer, text)
        try:
            decision = Decision(name_of(answer.decision))
        except ValueError as error:
            raise InvalidAnswer(
                f"decision must be {Decision.GO_ON} or {Decision.FINALIZE}; or call a tool"
            ) from error
        return _read(
            Patch(finalize=decision is Decision.FINALIZE, why=clip(answer.why or "", LONGEST_WHY))
        )

    def read_calls(self, calls: Sequence[Block], *, last_try: bool) -> AcceptedAnswer:
        """Read the calls as a patch. A repeated request is reported once, and then left out.

        Raises:
            InvalidAnswer: names all faults of the patch.
        """
        asked = _Asked()
        for call in calls:
            try:
                self._take(asked, str(call.get("name")), call.get("input"))
            except ValidationError as error:
                asked.problems.append(f"{call.get('name')}: {problems_of(error)}")
        if problems := [*asked.problems, *self._problems(asked)]:
            raise InvalidAnswer("the plan cannot be changed so: " + "; ".join(problems))
        repeats = repeats_in(
            asked.add, [step for step in self.plan.steps if step.id not in asked.drop]
        )
        repeats += twice_in(
            [step for step in asked.add if step.id not in {repeat.step for repeat in repeats}]
        )
        if repeats and not last_try:
            raise InvalidAnswer(
                "; ".join([self._told(repeat) for repeat in repeats]) + ". " + _INSTEAD
            )
        return _read(_patch(asked, repeats), asked.notes)

    def _take(self, asked: _Asked, name: str, arguments: Any) -> None:
        """Take one call.

        Raises:
            ValidationError: the arguments are invalid.
        """
        asked.whys |= dict.fromkeys(filter(None, [WhyAnswer.model_validate(arguments).why.strip()]))
        if name == DROP:
            asked.drop.append(StepId(name_of(DropAnswer.model_validate(arguments).step)))
        elif name == CHANGE:
            self._take_change(asked, ChangeAnswer.model_validate(arguments))
        else:
            whom = name_of(name.removeprefix(HAND_OFF))
            step = (
                HandOffAnswer.model_validate(arguments)
                .model_copy(update={"specialist": self._there(asked, whom)})
                .step(may_ask=self.may_ask)
            )
            asked.add.append(step)

    def _take_change(self, asked: _Asked, answer: ChangeAnswer) -> None:
        before = self.plan.by_id.get(StepId(name_of(answer.step)))
        if before is None:
            asked.problems.append(f"there is no step {clip(answer.step, 48)}")
            return
        changes: dict[str, Any] = {
            "specialist": self._there(asked, name_of(answer.specialist))
            if answer.specialist
            else None,
            "title": title_of(answer.title or "") or None,
            "task": (answer.task or "").strip() or None,
            "depends_on": None
            if answer.depends_on is None
            else tuple(dict.fromkeys(map(name_of, answer.depends_on))),
        }
        made = {
            **dict(before),
            **{name: value for name, value in changes.items() if value is not None},
        }
        if made["specialist"] != before.specialist:
            made["contract_of"] = before.contract_of or before.specialist
        is_joined_as_before = (
            made["depends_on"] == before.depends_on
        )  # a join names the dependencies of its step
        asked.change.append(Step(**made | {"join": before.join if is_joined_as_before else None}))

    def _there(self, asked: _Asked, name: str) -> str:
        """Return a served specialist."""
        if name in self.specialists:
            return name
        asked.notes.append(
            f"there is no specialist {name}: {all_rounder(self.specialists)} takes its steps"
        )
        return all_rounder(self.specialists)

    def _problems(self, asked: _Asked) -> list[str]:
        touched = dict.fromkeys((*asked.drop, *(step.id for step in asked.change)))
        free = "no step can any more"
        if self.unbegun:
            free = f"only {', '.join(self.unbegun)} can"
        known = {step.id for step in self.plan.steps}
        problems: list[str] = []
        for step_id in touched:
            if step_id not in self.unbegun:
                problems.append(
                    f"{'step' if step_id in known else 'there is no step'} {step_id}{' has begun' if step_id in known else ''}: "
                    f"it cannot be changed or dropped ({free})"
                )
        if len(asked.add) > self.room:
            problems.append(
                f"{len(asked.add)} new steps, at most {self.room} are allowed: merge or leave out some"
            )
        steps = asked.steps(self.plan)
        return problems + (
            shape_problems(steps, self.plan.given) or last_join_problems(steps, self.plan.join)
        )

    def _told(self, repeat: Repeat) -> str:
        earlier_text = self.found.get(repeat.earlier)
        result = "it is not done yet"
        if earlier_text:
            result = f"its result is: {earlier_text}"
        return f"step {repeat.step} asks for what {repeat.earlier} was asked for already; {result}"


_INSTEAD = "Use the existing results, ask for new work only, or answer with your decision"


def _patch(asked: _Asked, repeats: Sequence[Repeat]) -> Patch:
    """Return the patch without repeats. Dependents of a repeat depend on the earlier step."""
    instead: dict[StepId, StepId] = {}
    for repeat in repeats:
        instead[repeat.step] = repeat.earlier
    kept: list[Step] = []
    for step in asked.add:
        if step.id not in instead:
            kept.append(step)
    why = clip(" ".join(why if why[-1] in ".!?" else f"{why}." for why in asked.whys), LONGEST_WHY)
    return Patch(
        add=_waiting_for(kept, instead),
        change=_waiting_for(asked.change, instead),
        drop=tuple(asked.drop),
        repeats=tuple(repeats),
        why=why,
    )


def _waiting_for(steps: Iterable[Step], instead: Mapping[StepId, StepId]) -> tuple[Step, ...]:
    items: list[Step] = []
    for step in steps:
        items.append(
            step.model_copy(
                update={
                    "depends_on": tuple(
                        dict.fromkeys(instead.get(before, before) for before in step.depends_on)
                    )
                }
            )
        )
    return tuple(items)


def _read(patch: Patch, notes: Iterable[str] = ()) -> AcceptedAnswer:
    return AcceptedAnswer(
        ResultStatus.OK, patch.model_dump(mode="json"), notes=tuple(dict.fromkeys(notes))
    )


def patch_format(specialists: Sequence[str], unbegun: Sequence[str], room: int) -> dict[str, Any]:
    """Return the JSON Schema of a patch for the handoff, with the allowed specialists and steps."""
    text = {"type": "string"}
    step = {"specialist": {**text, "enum": sorted(specialists)}}
    unbegun_id = {**text, "enum": list(unbegun)}
    properties = {
        "add": {"type": "array", "maxItems": room, "items": {"type": "object", "properties": step}},
        "change": {"type": "array", "items": {"type": "object", "properties": {"id": unbegun_id}}},
        "drop": {"type": "array", "items": unbegun_id},
    }
    return {"type": "object", "properties": properties}


def status_of_result(result: HandoffResult) -> str:
    """Return the status of a result, and the first words of its text."""
    if isinstance(result.output, str):
        text = result.output
    else:
        text = json.dumps(result.output, ensure_ascii=False)
    return f"{result.status}, {clip(' '.join((text if result.output else result.error or '').split()), FOUND_CHARS)}"


def patch_reading_of(
    schema: Mapping[str, Any], plan: Plan, texts: Mapping[StepId, str], *, may_ask: bool
) -> PatchFormat:
    """Return the reading for the `patch_format` of a handoff.

    `may_ask`: whether the user asked for approvals.
    """
    properties = schema.get("properties", {})
    add = properties.get("add", {})
    specialists = add.get("items", {}).get("properties", {}).get("specialist", {}).get("enum", ())
    unbegun = properties.get("drop", {}).get("items", {}).get("enum", ())
    return PatchFormat(
        tuple(specialists), tuple(unbegun), int(add.get("maxItems", 0)), plan, texts, may_ask
    )
