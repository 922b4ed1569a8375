"""The planner's answer: a DAG of steps for served specialists; and the plan for a failed
planner, one step with the whole request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from pydantic import Field, ValidationError, field_validator

from handoff_queue.shared.agent.answer_format import (
    AcceptedAnswer,
    Defect,
    InvalidAnswer,
    LenientAnswer,
)
from handoff_queue.shared.agent.empty_outputs import collect_schema_words, has_no_content
from handoff_queue.shared.types.handoff import DEFAULT_FALLBACK, ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import describe_problems
from handoff_queue.shared.types.plan import Plan, Synthesis
from handoff_queue.shared.types.plan_validation import (
    count_problems,
    find_name_problems,
    shape_problems,
)
from handoff_queue.shared.types.step import Join, OnFailure, Step
from handoff_queue.supervisor.lifecycle.handoffs import MAX_TASK_CHARS
from handoff_queue.supervisor.lifecycle.routing import (
    build_plan_of_one_step,
    choose_default_specialist,
)
from handoff_queue.supervisor.roles.answer_text import (
    MAX_ID_CHARS,
    build_id,
    build_object_schema,
    clip,
    list_values,
    parse,
)
from handoff_queue.supervisor.text.markdown import cut_title
from handoff_queue.supervisor.text.task_similarity import find_repeats

MAX_FALLBACK_CHARS = 4_000
ITEM = "{item}"
"""In a task: the place of a text of `PlannedStepAnswer.for_each`. After the id of another repeated
step, as in `find_{item}`: its copy for the same text.
"""
REQUEST = "{request}"
"""In a task: the place of the job's request, so that the planner need not write it again."""
_SUFFIX_CHARS = 20
"""Most characters that `for_each` adds to the id of a step."""


def list_failure_policies(*, may_ask: bool) -> tuple[str, ...]:
    """Return the values of `on_failure` that a model may choose.

    Args:
        may_ask: True if the user asked for approvals. Otherwise a model cannot choose `ask`, with
            which the job waits for a person.
    """
    policies = list_values(OnFailure)
    if not may_ask:
        policies.remove(OnFailure.ASK)
    return tuple(policies)


def build_unique_ids(names: Iterable[str]) -> tuple[StepId, ...]:
    """Return the step ids for names that a model wrote, each once."""
    return tuple(dict.fromkeys(StepId(build_id(name)) for name in names))


def _split_names(value: Any) -> Any:
    """Return the names in a list, or in the text of one name, without empty names."""
    names = value or []
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list):
        return names
    return [name for name in names if not isinstance(name, str) or name.strip()]


class JoinAnswer(LenientAnswer):
    enough: int | None = None
    within_s: int | None = None
    must: list[str] = Field(default_factory=list)

    @field_validator("enough", "within_s", mode="before")
    @classmethod
    def _replace_empty_number(cls, value: Any) -> Any:
        return value or None

    @field_validator("must", mode="before")
    @classmethod
    def _wrap_single_value(cls, value: Any) -> Any:
        return _split_names(value)

    def build_join(self) -> Join | None:
        """Return the join, or None if the step waits for all of its dependencies.

        Raises:
            ValidationError: the join is invalid.
        """
        if not self.enough and not self.within_s:
            return None
        return Join(
            enough=self.enough or None,
            within_s=self.within_s or None,
            must=build_unique_ids(self.must),
        )


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
    def _wrap_single_value(cls, value: Any) -> Any:
        return _split_names(value)

    @field_validator("join", mode="before")
    @classmethod
    def _replace_empty_join(cls, value: Any) -> Any:
        return value or None

    @field_validator("fallback", mode="before")
    @classmethod
    def _default_fallback(cls, value: Any) -> Any:
        return value or DEFAULT_FALLBACK

    def build_step(self, *, may_ask: bool) -> Step:
        """Return the step of a plan. A value of `on_failure` that is not offered becomes
        `retry`.

        Raises:
            ValidationError: the value of a field is invalid.
        """
        on_failure = OnFailure.RETRY
        policy = build_id(self.on_failure or "-")
        if policy in list_failure_policies(may_ask=may_ask):
            on_failure = OnFailure(policy)
        join = None
        if self.join and self.depends_on:
            join = self.join.build_join()
        return Step(
            id=StepId(build_id(self.id)),
            specialist=build_id(self.specialist),
            task=self.task.strip(),
            depends_on=build_unique_ids(self.depends_on),
            fallback=clip(self.fallback, MAX_FALLBACK_CHARS) or DEFAULT_FALLBACK,
            on_failure=on_failure,
            join=join,
            title=cut_title(self.title or "") or None,
        )


class StepCopy(NamedTuple):
    """One step of a plan."""

    text: str
    """The text of `for_each` that the step is for; '' if the step is not repeated."""
    step: StepAnswer


class PlannedStepAnswer(StepAnswer):
    """A step of a plan, or several steps that differ in one text."""

    for_each: list[str] = Field(default_factory=list)
    """Texts that stand for `ITEM`. Each text makes a step. Empty: there is one step."""

    @field_validator("for_each", mode="before")
    @classmethod
    def _wrap_single_text(cls, value: Any) -> Any:
        return _split_names(value)

    def build_copies(self, most: int) -> list[StepCopy]:
        """Return a step for each text, at most this number, or the one step."""
        texts = self.for_each[:most]
        if not texts:
            return [StepCopy("", self)]
        suffixes = [build_id(text.split()[0])[:_SUFFIX_CHARS] for text in texts]
        if len({*suffixes}) < len(texts):
            suffixes = [str(number) for number in range(1, len(texts) + 1)]
        copies: list[StepCopy] = []
        for text, suffix in zip(texts, suffixes, strict=True):
            name = _name_without_item(self.id)[: MAX_ID_CHARS - len(suffix) - 1]
            changes: dict[str, Any] = {"id": f"{name}_{suffix}"}
            for field in ("task", "title", "fallback"):
                changes[field] = (getattr(self, field) or "").replace(ITEM, text)
            copies.append(StepCopy(text, self.model_copy(update=changes)))
        return copies


def _name_without_item(name: str) -> str:
    return build_id(name.replace(ITEM, ""))


class PlanAnswer(LenientAnswer):
    steps: list[PlannedStepAnswer]
    synthesis: str | None = None

    def build_all_steps(self, most: int) -> list[StepAnswer]:
        """Return the steps, repeated for the texts of `for_each`. A step that depends on a repeated
        step depends on all of its copies. With `ITEM` after the id, a repeated step depends on the
        copy for the same text.

        Args:
            most: most steps that the plan may have. Of a longer plan, more steps than that are
                returned, and perhaps not all.
        """
        all_copies: list[StepCopy] = []
        repeated: dict[str, list[StepCopy]] = {}
        for raw in self.steps:
            copies = raw.build_copies(most + 1)
            all_copies += copies
            if raw.for_each:
                repeated[_name_without_item(raw.id)] = copies
        return [_with_copied_dependencies(copy, repeated) for copy in all_copies]


def _with_copied_dependencies(
    dependent: StepCopy, repeated: Mapping[str, Sequence[StepCopy]]
) -> StepAnswer:
    """Return a step with the copies of a repeated step in place of its id.

    Args:
        repeated: the copies of each repeated step, by its id.
    """
    text, step = dependent
    if not repeated:
        return step

    def resolve_names(names: Iterable[str]) -> list[str]:
        all_names: list[str] = []
        for name in names:
            is_pair = ITEM in name and text
            ids: list[str] = []
            for copy in repeated.get(_name_without_item(name), ()):
                if not is_pair or copy.text == text:
                    ids.append(copy.step.id)
            all_names += ids or [name.replace(ITEM, text or ITEM)]
        return all_names

    join = step.join
    if join is not None:
        join = join.model_copy(update={"must": resolve_names(join.must)})
    return step.model_copy(update={"depends_on": resolve_names(step.depends_on), "join": join})


@dataclass(frozen=True)
class PlanFormat:
    """Format of the answer to `briefs.build_plan_brief`. `AcceptedAnswer.output` is the JSON form
    of a `Plan`.
    """

    specialists: tuple[str, ...]
    """Specialists that live workers announce."""
    max_steps: int
    given_steps: tuple[StepId, ...] = ()
    """Inputs that the job has from the beginning. Steps can depend on them."""
    may_ask: bool = False
    """True if the user asked for approvals, so that a step may be `on_failure: ask`."""
    shortening_advice: ClassVar[str] = "Make fewer steps, with shorter tasks."

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema. The planner's instructions describe the fields."""
        text = {"type": "string"}
        on_failure: dict[str, Any] = {
            **text,
            "enum": list(list_failure_policies(may_ask=self.may_ask)),
        }
        if self.may_ask:
            on_failure["description"] = "ask: a person decides"
        join = {
            "enough": {"type": "integer", "description": "results that are enough to go on"},
            "within_s": {"type": "integer", "description": "most seconds of waiting"},
            "must": {"type": "array", "items": text},
        }
        step = {
            "id": {**text, "description": "lower case, unique: compare_prices"},
            "specialist": {**text, "enum": sorted(self.specialists)},
            "task": text,
            "for_each": {"type": "array", "items": text},
            "depends_on": {"type": "array", "items": text, "description": "ids of steps"},
            "title": text,
            "fallback": text,
            "on_failure": on_failure,
            "join": build_object_schema(join, optional=join),
        }
        properties = {
            "steps": {
                "type": "array",
                "minItems": 1,
                "items": build_object_schema(
                    step, optional=step.keys() - {"id", "specialist", "task"}
                ),
            },
            "synthesis": {**text, "enum": list_values(Synthesis)},
        }
        return build_object_schema(properties, optional=("synthesis",))

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Read a plan.

        A step for a specialist that is not offered goes to the generalist, with a note.

        Raises:
            InvalidAnswer: the plan has faults, which the message names. Or it has steps that repeat
                each other, which are accepted on the last try, with a note. Or a task has an `ITEM`
                without texts, which is accepted on the last try, too.
        """
        answer = parse(PlanAnswer, text)
        steps, problems = _build_steps(answer.build_all_steps(self.max_steps), may_ask=self.may_ask)
        problems += self._find_copied_tasks(steps)
        problems += shape_problems(steps, self.given_steps)
        problems += count_problems(steps, self.max_steps)
        if not answer.steps:
            problems.append("the plan has no steps")
        if problems:
            problems += find_name_problems(steps, self.specialists)
            raise InvalidAnswer(f"the plan cannot be used: {'; '.join(problems)}")
        steps, reassigned = _replace_unknown_specialists(steps, self.specialists)
        repeats: list[str] = []
        for repeat in find_repeats(steps):
            repeats.append(f"step {repeat.step} asks for the same as {repeat.earlier}")
        unfilled: list[str] = []
        for step in steps:
            if ITEM in step.task:
                unfilled.append(f"the task of step {step.id} has {ITEM}, but no `for_each`")
        if (repeats or unfilled) and not last_try:
            raise InvalidAnswer(
                Defect(
                    "; ".join([*repeats, *unfilled]),
                    "leave out repeated steps, or state the difference in their tasks",
                )
            )
        plan = Plan(
            steps=tuple(steps),
            synthesis=_parse_synthesis(answer.synthesis),
            given=self.given_steps,
        )
        notes = (*reassigned, *repeats)
        return AcceptedAnswer(ResultStatus.OK, plan.model_dump(mode="json"), notes=notes)

    def _find_copied_tasks(self, steps: Sequence[Step]) -> list[str]:
        """Return a problem for each task that is only a word or a description of the schema."""
        problems: list[str] = []
        words = collect_schema_words(self.schema)
        for step in steps:
            if has_no_content(step.task, words):
                problems.append(
                    f'the task of step {step.id} is only "{step.task}", a word of the schema'
                )
        return problems


def with_request(plan: Plan, request: str) -> Plan:
    """Return the plan with the job's request in place of `REQUEST` in its tasks. A request that is
    too long for a task is cut, and the words of the planner around it stay.
    """
    steps: list[Step] = []
    for step in plan.steps:
        places = step.task.count(REQUEST)
        if places:
            room = MAX_TASK_CHARS - len(step.task.replace(REQUEST, ""))
            task = step.task.replace(REQUEST, clip(request.strip(), max(1, room // places)))
            steps.append(step.model_copy(update={"task": task}))
        else:
            steps.append(step)
    return plan.model_copy(update={"steps": tuple(steps)})


def find_plan_specialists(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the specialists in a `PlanFormat.schema`. They were served when the handoff was
    issued.
    """
    step = schema.get("properties", {}).get("steps", {}).get("items", {}).get("properties", {})
    return tuple(step.get("specialist", {}).get("enum", ()))


def build_fallback_plan(
    request: str, specialists: Collection[str], given_steps: tuple[StepId, ...] = ()
) -> Plan:
    """Return the plan for a failed planner: the whole request for the generalist, or for
    another specialist if the generalist is not among `specialists`.
    """
    why = "No usable plan came from the planner: one specialist gets the whole request."
    return build_plan_of_one_step(request, choose_default_specialist(specialists), why, given_steps)


def _build_steps(answers: Iterable[StepAnswer], *, may_ask: bool) -> tuple[list[Step], list[str]]:
    """Return the valid steps, and a problem for each invalid step."""
    steps, problems = [], []
    for number, raw in enumerate(answers, start=1):
        try:
            steps.append(raw.build_step(may_ask=may_ask))
        except ValidationError as error:
            problems.append(f"step {number} ({clip(raw.id, 48)}): {describe_problems(error)}")
    return steps, problems


def _replace_unknown_specialists(
    steps: Sequence[Step], specialists: Collection[str]
) -> tuple[list[Step], list[str]]:
    """Return the steps with offered specialists only, and notes about the changes."""
    replacement = choose_default_specialist(specialists)
    known_specialists = {*specialists, replacement}
    new_steps: list[Step] = []
    notes: list[str] = []
    for step in steps:
        if step.specialist in known_specialists:
            new_steps.append(step)
            continue
        new_steps.append(step.model_copy(update={"specialist": replacement}))
        notes.append(
            f"step {step.id} was meant for {step.specialist}, which is not an available specialist:"
            f" {replacement} takes it"
        )
    return new_steps, notes


def _parse_synthesis(text: str | None) -> Synthesis:
    """Return the method of synthesis. An unknown value means `merge`, which needs no model call."""
    if (text or "").strip().lower() == Synthesis.RECONCILE:
        return Synthesis.RECONCILE
    return Synthesis.MERGE
