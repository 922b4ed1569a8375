"""Questions of a job to a person: approve, reject, edit the plan, and the history."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import JsonValue, ValidationError

from handoff_queue.shared.store.presence import acting
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.text.words import suggestion
from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.characters import has_half_a_character
from handoff_queue.shared.types.errors import PlanRefused, UnknownJob, UserError
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Approved,
    PlanMade,
    PlanPatched,
    Recorded,
    Rejected,
)
from handoff_queue.shared.types.handoff import BlobRef, ref
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.message import each_problem
from handoff_queue.shared.types.names import SUB_SUPERVISOR
from handoff_queue.shared.types.plan import (
    Plan,
    Step,
    count_problems,
    name_problems,
    problems_by_step,
)
from handoff_queue.supervisor.lifecycle.approval_events import can_plan_again
from handoff_queue.supervisor.lifecycle.approval_policy import waiting_fields
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState, Question
from handoff_queue.supervisor.lifecycle.teams import may_have_children
from handoff_queue.supervisor.roles.outcomes import make_plan_event
from handoff_queue.supervisor.workflows.workflow import join_as_json


def change_of(event: PlanPatched, words: ResultTexts) -> dict[str, Any]:
    """Return a change of the plan in the form of `JobResult.patches`."""
    patch = words.patch(event.result)
    return {
        "added": [{"id": step.id, "specialist": step.specialist} for step in event.added],
        "changed": [step.id for step in event.changed],
        "dropped": list(event.dropped),
        "too_late": list(event.too_late),
        "repeats": {repeat.step: repeat.earlier for repeat in event.repeats},
        "nothing_new": list(event.nothing_new),
        "final": event.is_final,
        "why": patch.why if patch else "",
        "problem": event.problem and (words.why(event.result) or event.problem),
    }


def in_words(change: Mapping[str, Any]) -> str:
    """Return a change in words: `check_config (ops) added; draft dropped: the code is sound`."""
    done = [f"{step['id']} ({step['specialist']}) added" for step in change["added"]]
    done += [f"{step} {how}" for how in ("changed", "dropped") for step in change[how]]
    done += [
        f"{step} not run, for it is what {earlier} was asked"
        for step, earlier in change["repeats"].items()
    ]
    done += [f"{step} brought nothing new" for step in change["nothing_new"]]
    done += [f"{step} left, for it had begun" for step in change["too_late"]]
    if change["final"]:
        done += ["nothing more is wanted"]
    why = change["problem"] or change["why"]
    return ("; ".join(done) or "as it was") + (f": {why}" if why else "")


def answers_in(events: Sequence[Recorded]) -> dict[int, Approved | Rejected]:
    """Return the first answer to each question, by the version of the question."""
    answers: dict[int, Approved | Rejected] = {}
    for recorded in events:
        if isinstance(recorded.event, Approved | Rejected):
            answers.setdefault(recorded.event.asked, recorded.event)
    return answers


def approvals_in(
    events: Sequence[Recorded], payloads: Mapping[str, str]
) -> tuple[dict[str, Any], ...]:
    """Return the questions and answers in the form of `JobResult.approvals`."""
    answered, approvals = answers_in(events), []
    for recorded in events:
        if not isinstance(asked := recorded.event, ApprovalAsked):
            continue
        answer = answered.get(recorded.version)
        draft = None
        if asked.draft:
            draft = Answer.from_json(payloads[asked.draft.digest])
        if isinstance(answer, Rejected):
            own_plan = answer.own_plan
        elif answer and answer.plan:
            own_plan = answer.plan.plan
        else:
            own_plan = None
        author = None
        if isinstance(answer, Approved):
            author = answer.by
        elif answer:
            author = "user"
        approvals.append(
            {
                "version": recorded.version,
                "what": asked.what.value,
                "why": asked.why,
                "asked_at": recorded.at,
                "decision": answer.type if answer else None,
                "by": author,
                "note": payloads[answer.note.digest] if answer and answer.note else None,
                "draft": draft.content if draft else None,
                "own_plan": json.loads(payloads[own_plan.digest]) if own_plan else None,
            }
        )
    return tuple(approvals)


MOST_NOTE_CHARS = 10_000
MOST_KEYS_TOLD = 20
"""Most keys of rows that an error names."""
_OF_A_REPORT = frozenset({"degraded", "method", "sub_teams"})
"""Fields of a report that are no fields of a plan."""
_OF_A_PLAN = frozenset(Plan.model_fields)
_Problem = tuple[str, Sequence[str]]
"""A problem, and its place in the plan."""


def approve(
    store: Store,
    job_id: JobId,
    note: str | None,
    plan: JsonValue,
    steps: Sequence[str] = (),
    rows: Sequence[str] = (),
) -> None:
    """Approve the question of a job.

    Args:
        steps: approve only these of the steps in question. The name of a repeated step means its
            copies.
        rows: approve only the copies with these keys.

    Raises:
        UserError: the job has no question, or not about these steps, or the plan is invalid.
    """
    state, question = _waiting(store, job_id)
    if (steps or rows) and question.what is not ApprovalOf.STEP:
        raise UserError(
            f"{job_id} waits for an approval of its {question.what}, not of single steps:"
            " leave out --step and --row"
        )
    steps = find_steps(store, state, question, steps, rows)
    made, texts = None, _texts(note)
    if plan is not None:
        made, text = _own_plan(store, state, question, plan)
        texts.append(text)
    named = tuple(map(StepId, steps))
    answer = Approved(asked=question.version, note=_ref(note), plan=made, steps=named)
    _say(store, state, answer, texts)


def find_steps(
    store: Store, state: JobState, question: Question, steps: Sequence[str], rows: Sequence[str]
) -> tuple[StepId, ...]:
    """Return the ids of the steps that a person names. Empty: all asked steps.

    Raises:
        UserError: the job does not ask about a named step, or has no such step or row.
    """
    if not (steps or rows):
        return ()
    is_of_steps = question.what is ApprovalOf.STEP
    if is_of_steps:
        there = question.steps
    else:
        there = tuple(state.steps)
    plan = _plan_of(store, state)
    named = dict.fromkeys(
        step_id for name in steps or there for step_id in _copies_of(plan, there, name)
    )
    unknown = [name for name in steps if not _copies_of(plan, there, name)]
    if unknown:
        does = "has no"
        if is_of_steps:
            does = "does not ask about"
        its = "its steps are"
        if is_of_steps:
            its = "it asks about"
        raise UserError(
            f"{state.job_id} {does} step {', '.join(unknown)}: {its} {', '.join(there):.1000}"
        )
    if rows:
        return _with_keys(state.job_id, plan, list(named), rows)
    return tuple(named)


def _copies_of(plan: Plan | None, there: Sequence[StepId], name: str) -> list[StepId]:
    """Return the step with this id, or the copies of the repeated step with this name."""
    if name in there:
        return [StepId(name)]
    if plan:
        rows = {copy_id: plan.by_id[copy_id].row for copy_id in there if copy_id in plan.by_id}
    else:
        rows = {}
    return [copy_id for copy_id, row in rows.items() if row is not None and row.step == name]


def _with_keys(
    job_id: JobId, plan: Plan | None, steps: Sequence[StepId], keys: Sequence[str]
) -> tuple[StepId, ...]:
    """Return the copies with these keys.

    Raises:
        UserError: no copy has one of the keys.
    """
    if plan:
        rows = {copy_id: plan.by_id[copy_id].row for copy_id in steps if copy_id in plan.by_id}
    else:
        rows = {}
    by_key: dict[str, list[StepId]] = {}
    for step_id, row in rows.items():
        if row is not None:
            by_key.setdefault(row.key, []).append(step_id)
    if unknown := [key for key in keys if key not in by_key]:
        some = ", ".join(list(by_key)[:MOST_KEYS_TOLD]) or "none"
        raise UserError(
            f"{job_id} has no row {unknown[0]!r:.80} among these steps (there are: {some:.500})"
        )
    return tuple(dict.fromkeys(copy_id for key in keys for copy_id in by_key[key]))


def _plan_of(store: Store, state: JobState) -> Plan | None:
    if state.plan is None:
        return None
    digest = state.plan.plan.digest
    return Plan.from_json(store.payloads.get(state.job_id, [digest])[digest])


def reject(
    store: Store,
    job_id: JobId,
    note: str | None,
    steps: Sequence[str],
    plan: JsonValue,
    rows: Sequence[str] = (),
) -> None:
    """Reject the question of a job. `steps` and `rows`: see `approve`.

    Raises:
        UserError: the job has no question, or no such step or row; the plan is not valid, or
            no planner would read the plan.
    """
    state, question = _waiting(store, job_id)
    if (steps or rows) and question.what in (ApprovalOf.PLAN, ApprovalOf.COST):
        raise UserError(
            f"{job_id} waits for an approval of its {question.what}: no step has been done that could be done again"
        )
    steps = find_steps(store, state, question, steps, rows)
    own, texts = None, _texts(note)
    if plan is not None:
        made, text = _own_plan(store, state, question, plan)
        if not can_plan_again(state):
            raise UserError(
                f"no planner would read it: `handoff approve {job_id} --edit FILE` takes your plan as it is"
            )
        own = made.plan
        texts.append(text)
    named = tuple(map(StepId, steps))
    _say(
        store,
        state,
        Rejected(asked=question.version, note=_ref(note), steps=named, own_plan=own),
        texts,
    )


def _own_plan(
    store: Store, state: JobState, question: Question, plan: JsonValue
) -> tuple[PlanMade, str]:
    """Return the event of a person's own plan, and the payload of that plan."""
    if question.what is not ApprovalOf.PLAN:
        raise UserError(
            f"{state.job_id} waits for an approval of its {question.what}: only a plan can be edited (--edit)"
        )
    served = store.presence.served()
    made = parse_edited_plan(plan, state, served)
    return make_plan_event(made, is_reviewed=state.is_reviewed, acting=acting(served))


def parse_edited_plan(value: JsonValue, state: JobState, served: Collection[str]) -> Plan:
    """Parse a plan that a person has written.

    Raises:
        PlanRefused: all mistakes in the plan.
    """
    if (
        not isinstance(value, dict)
        or not isinstance(steps := value.get("steps"), list)
        or not steps
    ):
        raise PlanRefused(
            [("the plan has no steps: write it as `handoff show --full` prints it", ("steps",))]
        )
    known = _OF_A_PLAN | _OF_A_REPORT
    unknown = [name for name in value if name not in known]
    problems: list[_Problem] = [
        (f"a plan has no field {name}: {suggestion(name, sorted(known))}", (name,))
        for name in unknown
    ]
    given = tuple(entry.step for entry in state.submitted.given)
    plan = _with_counted_joins(value, steps, given)
    made: list[Step] = []
    places: dict[StepId, Sequence[str]] = {}
    for index, entry in enumerate(plan["steps"]):
        place = ("steps", str(index))
        try:
            made.append(step := Step.model_validate_json(json.dumps(entry)))
            places[step.id] = place
        except ValidationError as error:
            problems += [
                (f"step {index + 1}: {'.'.join(where) or 'it'}: {what}", (*place, *where))
                for where, what in each_problem(error, Step)
            ]
    allowed = set(state.submitted.specialists)
    there = {name for name in served if not allowed or name in allowed} | {
        step.outline.specialist for step in state.steps.values()
    }
    if may_have_children(state.submitted):
        there |= {SUB_SUPERVISOR}
    else:
        there |= set()
    most = max(state.submitted.limits.max_steps, len(state.steps))
    problems += [(problem, places[step]) for step, problem in problems_by_step(made, given)]
    problems += [(problem, ("steps",)) for problem in count_problems(made, most)]
    if not state.is_reviewed:
        problems += [
            (f"step {step.id} waits for the review, and the job has none", places[step.id])
            for step in made
            if step.after
        ]
    problems += [
        (problem, places[step.id]) for step in made for problem in name_problems([step], there)
    ]
    if not problems:
        try:
            return Plan.model_validate_json(
                json.dumps(
                    {**{name: plan[name] for name in plan.keys() & _OF_A_PLAN}, "given": given}
                )
            )
        except ValidationError as error:
            problems = [
                (f"{'.'.join(where)}: {what}", where) for where, what in each_problem(error)
            ]
    raise PlanRefused(problems)


def _with_counted_joins(
    value: dict[str, JsonValue], steps: Sequence[JsonValue], given: Collection[str]
) -> dict[str, Any]:
    """Return the plan with numbers in its joins. A person may write a percentage, such as
    `80%`.
    """
    waits_for = {
        number: _names(entry.get("depends_on"))
        for number, entry in enumerate(steps)
        if isinstance(entry, dict)
    }
    built_upon = {name for names in waits_for.values() for name in names}
    last = [
        entry for entry in steps if isinstance(entry, dict) and entry.get("id") not in built_upon
    ]
    own = {number: sum(name not in given for name in names) for number, names in waits_for.items()}
    made = [
        {**entry, "join": join_as_json(entry["join"], own[number])}
        if isinstance(entry, dict) and "join" in entry
        else entry
        for number, entry in enumerate(steps)
    ]
    return {
        **value,
        "steps": made,
        **({"join": join_as_json(value["join"], len(last))} if "join" in value else {}),
    }


def _names(listed: JsonValue) -> list[JsonValue]:
    if isinstance(listed, list):
        names: list[JsonValue] = []
        for name in listed:
            if isinstance(name, str):
                names.append(name)
        return names
    return []


def _waiting(store: Store, job_id: JobId) -> tuple[JobState, Question]:
    state = fold(job_id, None, store.journal.read(job_id))
    if state is None:
        raise UnknownJob.named(job_id)
    if state.question is None:
        raise UserError(
            f"{job_id} waits for no approval" + (": it has ended" if state.ended else "")
        )
    return state, state.question


def _say(store: Store, state: JobState, answer: Approved | Rejected, texts: Sequence[str]) -> None:
    """Append an answer. If another answer came first, this answer changes nothing, and the
    caller gets an error that says so.
    """
    version = store.journal.append_unless_ended(
        state.job_id, answer, waiting_fields(state, None), texts
    )
    before = fold(
        state.job_id,
        None,
        [recorded for recorded in store.journal.read(state.job_id) if recorded.version < version],
    )
    if (
        not version
        or before is None
        or before.question is None
        or before.question.version != answer.asked
    ):
        raise UserError(
            f"{state.job_id} waits for no approval any more: somebody else has answered, or its time was over"
        )


def _texts(note: str | None) -> list[str]:
    if note is None:
        return []
    if not note.strip() or len(note) > MOST_NOTE_CHARS:
        raise UserError(f"a note has 1 to {MOST_NOTE_CHARS:,} characters")
    if has_half_a_character(note):
        raise UserError("the note is not UTF-8 text")
    return [note]


def _ref(note: str | None) -> BlobRef | None:
    if note is None:
        return None
    return ref(note)
