"""The replanner's answer. It is calls of handoff tools, which are a patch to the plan. Or it is the
decision that the plan stays as it is or needs no more steps.

There is a tool that adds a step for a specialist, and there are two for steps that have not
begun. The tools never run. All calls of one reply together are the patch.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import Field, ValidationError, field_validator

from handoff_queue.shared.agent.answer_format import (
    AcceptedAnswer,
    Defect,
    InvalidAnswer,
    LenientAnswer,
)
from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import describe_problems
from handoff_queue.shared.types.model import Block
from handoff_queue.shared.types.plan import MAX_PLAN_WHY_CHARS, Patch, Plan, Repeat
from handoff_queue.shared.types.plan_validation import find_last_join_problems, shape_problems
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.routing import choose_default_specialist
from handoff_queue.supervisor.roles.answer_text import (
    build_id,
    build_object_schema,
    clip,
    list_values,
    parse,
)
from handoff_queue.supervisor.roles.planner import (
    StepAnswer,
    build_unique_ids,
    list_failure_policies,
)
from handoff_queue.supervisor.text.markdown import cut_title
from handoff_queue.supervisor.text.task_similarity import find_repeats, find_repeats_of_earlier

HAND_OFF = "hand_off"
HAND_OFF_TO = "hand_off_to_"
"""Beginning of a name that models write for `hand_off` with a specialist."""
CHANGE = "change_step"
DROP = "drop_step"

_TEXT: dict[str, Any] = {"type": "string"}
_WHY = {**_TEXT, "description": "one sentence for readers of the plan"}
_TITLE = "a heading for the result, in the language of the answer: Prices compared"
_IDS = {"type": "array", "items": _TEXT}


def build_tools(
    specialists: Collection[str], unbegun: Collection[str], *, may_ask: bool
) -> tuple[Tool, ...]:
    """Return the tools for these specialists, and for the steps that have not begun.

    Args:
        may_ask: True if the user asked for approvals, so that a new step may be `on_failure: ask`.
    """
    policies = list_failure_policies(may_ask=may_ask)
    tools = [_hand_off(specialists, policies)]
    if unbegun:
        tools += [_build_change_tool(specialists, unbegun), _build_drop_tool(unbegun)]
    return tuple(tools)


def is_handoff_tool(name: str) -> bool:
    """Return whether a tool of this name changes the plan, even if no worker serves its
    specialist.
    """
    return name.startswith(HAND_OFF_TO) or name in (HAND_OFF, CHANGE, DROP)


def _hand_off(specialists: Collection[str], policies: Collection[str]) -> Tool:
    arguments = {
        "specialist": {**_TEXT, "enum": sorted(specialists)},
        "id": {**_TEXT, "description": "short, lower case, new in this plan: check_config"},
        "title": {**_TEXT, "description": _TITLE},
        "task": {**_TEXT, "description": "objective, output, what to work from, boundaries"},
        "depends_on": {
            **_IDS,
            "description": "ids of the steps whose results it needs, old or new; [] for no step",
        },
        "on_failure": {
            **_TEXT,
            "enum": list(policies),
            "description": "drop: the answer can do without it",
        },
        "why": _WHY,
    }
    return _build_tool(
        HAND_OFF,
        "Adds a step to the plan, and gives it to a specialist.",
        arguments,
        optional=("title", "on_failure"),
    )


def _build_change_tool(specialists: Collection[str], unbegun: Collection[str]) -> Tool:
    arguments = {
        "step": {**_TEXT, "enum": list(unbegun)},
        "specialist": {**_TEXT, "enum": sorted(specialists)},
        "title": {**_TEXT, "description": _TITLE},
        "task": {**_TEXT, "description": "the whole new text"},
        "depends_on": {**_IDS, "description": "the whole new list"},
        "why": _WHY,
    }
    about = "Changes a step that has not begun. Fields that are left out stay unchanged."
    return _build_tool(
        CHANGE, about, arguments, optional=("specialist", "title", "task", "depends_on")
    )


def _build_drop_tool(unbegun: Collection[str]) -> Tool:
    return _build_tool(
        DROP,
        "Drops a step that has not begun.",
        {"step": {**_TEXT, "enum": list(unbegun)}, "why": _WHY},
    )


def _build_tool(
    name: str, description: str, arguments: dict[str, Any], optional: tuple[str, ...] = ()
) -> Tool:
    required: list[str] = []
    for argument in arguments:
        if argument not in optional:
            required.append(argument)
    schema = {
        "type": "object",
        "properties": arguments,
        "required": required,
        "additionalProperties": False,
    }
    return Tool(name, description, schema, _refuse_mixed_call)


def _refuse_mixed_call(_arguments: dict[str, Any], _context: ToolContext) -> str:
    """Refuse a call that came in one reply with calls of other tools, which run first.

    Raises:
        ToolFailed: always.
    """
    raise ToolFailed("not executed: read first, and then decide with calls of your decision only")


MAX_EARLIER_RESULT_CHARS = 300
"""Characters of an earlier result in the message about a repeated request."""


class ReplannerDecision(StrEnum):
    """The replanner's answer without a tool call."""

    GO_ON = "go_on"
    """The plan stays as it is."""
    FINALIZE = "finalize"
    """The plan needs no more steps, now or later."""


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
    def _replace_null(cls, value: Any) -> Any:
        return value or ""


class HandOffAnswer(StepAnswer):
    specialist: str = Field(default="")


@dataclass(slots=True)
class _RequestedChanges:
    """The changes that the calls of one reply request."""

    add: list[Step] = field(default_factory=list)
    change: list[Step] = field(default_factory=list)
    drop: list[StepId] = field(default_factory=list)
    whys: dict[str, None] = field(default_factory=dict)
    """Reasons, each once."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def build_steps(self, plan: Plan) -> list[Step]:
        """Return all steps of the changed plan."""
        changed_steps = {step.id: step for step in self.change}
        return [
            *(changed_steps.get(step.id, step) for step in self.build_remaining_steps(plan)),
            *self.add,
        ]

    def build_remaining_steps(self, plan: Plan) -> list[Step]:
        """Return the steps of the plan that are not dropped, without their changes."""
        return [step for step in plan.steps if step.id not in self.drop]


@dataclass(frozen=True, slots=True)
class PatchFormat:
    """Format of the answer to `briefs.build_replan_brief`. `AcceptedAnswer.output` is the JSON form
    of a `Patch`.
    """

    specialists: tuple[str, ...]
    """Specialists that live workers announce."""
    unbegun: tuple[StepId, ...]
    """The steps that can be changed or dropped."""
    room: int
    """Number of steps that can be added."""
    plan: Plan
    statuses: Mapping[StepId, str] = field(default_factory=dict)
    """Status and first words of the results, by step."""
    may_ask: bool = False
    """True if the user asked for approvals, so that a new step may be `on_failure: ask`."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """Return the JSON Schema of a decision without tool calls."""
        properties = {
            "decision": {"type": "string", "enum": list_values(ReplannerDecision)},
            "why": {
                "type": "string",
                "description": "one sentence for readers of the plan",
            },
        }
        return build_object_schema(properties)

    @property
    def tools(self) -> tuple[Tool, ...]:
        return build_tools(self.specialists, self.unbegun, may_ask=self.may_ask)

    def is_answer(self, calls: Sequence[Block]) -> bool:
        """Return whether all calls are calls of handoff tools."""
        return all(is_handoff_tool(str(call.get("name"))) for call in calls)

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:  # noqa: ARG002 (the last try accepts no other decision either)
        """Read a decision without tool calls.

        Raises:
            InvalidAnswer: the decision is neither of the two. It is refused on the last try, too.
        """
        answer = parse(DecisionAnswer, text)
        try:
            decision = ReplannerDecision(build_id(answer.decision))
        except ValueError as error:
            raise InvalidAnswer(
                f"decision must be {ReplannerDecision.GO_ON} or {ReplannerDecision.FINALIZE};"
                " or call a tool"
            ) from error
        why = clip(answer.why or "", MAX_PLAN_WHY_CHARS)
        return _accept_patch(Patch(finalize=decision is ReplannerDecision.FINALIZE, why=why))

    def read_calls(self, calls: Sequence[Block], *, last_try: bool) -> AcceptedAnswer:
        """Read the calls as a patch.

        Raises:
            InvalidAnswer: the patch has faults, which the message names. Or it has new steps that
                repeat earlier work; these are left out on the last try.
        """
        requested = _RequestedChanges()
        for call in calls:
            try:
                self._add_call(requested, str(call.get("name")), call.get("input"))
            except ValidationError as error:
                requested.problems.append(f"{call.get('name')}: {describe_problems(error)}")
        if problems := [*requested.problems, *self._find_problems(requested)]:
            raise InvalidAnswer("the plan cannot be changed so: " + "; ".join(problems))
        repeats = find_repeats_of_earlier(requested.add, requested.build_remaining_steps(self.plan))
        repeated_ids = {repeat.step for repeat in repeats}
        repeats += find_repeats([step for step in requested.add if step.id not in repeated_ids])
        if repeats and not last_try:
            raise InvalidAnswer(Defect("; ".join(map(self._repeat_message, repeats)), _INSTEAD))
        return _accept_patch(_build_patch(requested, repeats), requested.notes)

    def _add_call(self, requested: _RequestedChanges, name: str, arguments: Any) -> None:
        """Add the change of one call to `requested`.

        Raises:
            ValidationError: the arguments are invalid.
        """
        why = WhyAnswer.model_validate(arguments).why.strip()
        if why:
            requested.whys[why] = None
        if name == DROP:
            requested.drop.append(StepId(build_id(DropAnswer.model_validate(arguments).step)))
        elif name == CHANGE:
            self._add_change(requested, ChangeAnswer.model_validate(arguments))
        else:
            answer = HandOffAnswer.model_validate(arguments)
            specialist_name = answer.specialist
            if name.startswith(HAND_OFF_TO):
                specialist_name = name.removeprefix(HAND_OFF_TO)
            specialist = self._choose_specialist(requested, build_id(specialist_name))
            answer = answer.model_copy(update={"specialist": specialist})
            requested.add.append(answer.build_step(may_ask=self.may_ask))

    def _add_change(self, requested: _RequestedChanges, answer: ChangeAnswer) -> None:
        """Add a changed step to `requested`. If its specialist changes, the contract of the first
        one stays. If its dependencies change, its join is dropped, because a join names
        dependencies.

        Raises:
            ValidationError: a new value is invalid.
        """
        before = self.plan.by_id.get(StepId(build_id(answer.step)))
        if before is None:
            requested.problems.append(f"there is no step {clip(answer.step, 48)}")
            return
        fields: dict[str, Any] = dict(before)
        if answer.specialist:
            fields["specialist"] = self._choose_specialist(requested, build_id(answer.specialist))
        title = cut_title(answer.title or "")
        if title:
            fields["title"] = title
        task = (answer.task or "").strip()
        if task:
            fields["task"] = task
        if answer.depends_on is not None:
            fields["depends_on"] = build_unique_ids(answer.depends_on)
        if fields["specialist"] != before.specialist:
            fields["contract_of"] = before.contract_of or before.specialist
        if fields["depends_on"] != before.depends_on:
            fields["join"] = None
        requested.change.append(Step(**fields))

    def _choose_specialist(self, requested: _RequestedChanges, name: str) -> str:
        """Return the specialist of this name, or the generalist with a note if it is not
        offered.
        """
        if name in self.specialists:
            return name
        specialist = choose_default_specialist(self.specialists)
        requested.notes.append(f"there is no specialist {name}: {specialist} takes its steps")
        return specialist

    def _find_problems(self, requested: _RequestedChanges) -> list[str]:
        """Return the faults of the patch as a whole: begun or unknown steps, too many new
        steps, and an invalid plan after the patch.
        """
        touched = dict.fromkeys(requested.drop)
        touched |= dict.fromkeys(step.id for step in requested.change)
        free = "no step can any more"
        if self.unbegun:
            free = f"only {', '.join(self.unbegun)} can"
        problems: list[str] = []
        for step_id in touched:
            if step_id in self.unbegun:
                continue
            why = f"there is no step {step_id}"
            if step_id in self.plan.by_id:
                why = f"step {step_id} has begun"
            problems.append(f"{why}: it cannot be changed or dropped ({free})")
        if len(requested.add) > self.room:
            problems.append(
                f"{len(requested.add)} new steps, at most {self.room} are allowed: merge or leave"
                " out some"
            )
        steps = requested.build_steps(self.plan)
        return problems + (
            shape_problems(steps, self.plan.given) or find_last_join_problems(steps, self.plan.join)
        )

    def _repeat_message(self, repeat: Repeat) -> str:
        """Return a message about a repeated request, with the result of the earlier one."""
        earlier_text = self.statuses.get(repeat.earlier)
        result = "it is not done yet"
        if earlier_text:
            result = f"its result is: {earlier_text}"
        return f"step {repeat.step} asks for what {repeat.earlier} was asked for already; {result}"


_INSTEAD = "use the existing results, ask for new work only, or answer with your decision"


def _build_patch(requested: _RequestedChanges, repeats: Sequence[Repeat]) -> Patch:
    """Return the patch without repeats. Dependents of a repeat depend on the earlier step."""
    replacements = {repeat.step: repeat.earlier for repeat in repeats}
    new_steps = [step for step in requested.add if step.id not in replacements]
    why = clip(" ".join(map(_end_sentence, requested.whys)), MAX_PLAN_WHY_CHARS)
    return Patch(
        add=_replace_dependencies(new_steps, replacements),
        change=_replace_dependencies(requested.change, replacements),
        drop=tuple(requested.drop),
        repeats=tuple(repeats),
        why=why,
    )


def _end_sentence(text: str) -> str:
    if text[-1] in ".!?":
        return text
    return f"{text}."


def _replace_dependencies(
    steps: Iterable[Step], replacements: Mapping[StepId, StepId]
) -> tuple[Step, ...]:
    """Return the steps with each repeated dependency replaced by the earlier step."""
    waiting: list[Step] = []
    for step in steps:
        depends_on: dict[StepId, None] = {}
        for dependency in step.depends_on:
            depends_on[replacements.get(dependency, dependency)] = None
        waiting.append(step.model_copy(update={"depends_on": tuple(depends_on)}))
    return tuple(waiting)


def _accept_patch(patch: Patch, notes: Iterable[str] = ()) -> AcceptedAnswer:
    return AcceptedAnswer(
        ResultStatus.OK, patch.model_dump(mode="json"), notes=tuple(dict.fromkeys(notes))
    )


def build_patch_schema(
    specialists: Sequence[str], unbegun: Sequence[str], room: int
) -> dict[str, Any]:
    """Return the JSON Schema in the replanner's handoff, which holds the allowed specialists
    and steps.

    Args:
        unbegun: steps that can be changed or dropped.
        room: number of steps that can be added.
    """
    text = {"type": "string"}
    step = {"specialist": {**text, "enum": sorted(specialists)}}
    unbegun_id = {**text, "enum": list(unbegun)}
    properties = {
        "add": {"type": "array", "maxItems": room, "items": {"type": "object", "properties": step}},
        "change": {"type": "array", "items": {"type": "object", "properties": {"id": unbegun_id}}},
        "drop": {"type": "array", "items": unbegun_id},
    }
    return {"type": "object", "properties": properties}


def describe_result(result: HandoffResult) -> str:
    """Return the status of a result, and the first words of its text."""
    if not result.output:
        text = result.error or ""
    elif isinstance(result.output, str):
        text = result.output
    else:
        text = json.dumps(result.output, ensure_ascii=False)
    return f"{result.status}, {clip(' '.join(text.split()), MAX_EARLIER_RESULT_CHARS)}"


def parse_patch_format(
    schema: Mapping[str, Any], plan: Plan, texts: Mapping[StepId, str], *, may_ask: bool
) -> PatchFormat:
    """Return the answer format of a handoff with this `build_patch_schema`.

    Args:
        texts: status and first words of the results, by step.
        may_ask: True if the user asked for approvals.
    """
    properties = schema.get("properties", {})
    add = properties.get("add", {})
    specialists = add.get("items", {}).get("properties", {}).get("specialist", {}).get("enum", ())
    unbegun = properties.get("drop", {}).get("items", {}).get("enum", ())
    return PatchFormat(
        specialists=tuple(specialists),
        unbegun=tuple(unbegun),
        room=int(add.get("maxItems", 0)),
        plan=plan,
        statuses=texts,
        may_ask=may_ask,
    )
