"""Questions of a job to a person: approve, reject, edit the plan, and the history."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pydantic import JsonValue

from handoff_queue.shared.store.presence import find_acting
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.text.unicode_text import has_lone_surrogate
from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Approved,
    PlanMade,
    RecordedEvent,
    Rejected,
)
from handoff_queue.shared.types.handoff import MAX_PLAN_NOTE_CHARS, BlobRef, make_ref
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.job_options import ApprovalOf, describe_awaited_answer
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import ItemRef
from handoff_queue.supervisor.client.edited_plan import parse_edited_plan
from handoff_queue.supervisor.client.tool_call_approvals import (
    QuestionAboutCall,
    find_question_about_call,
    format_arguments,
    refuse_parts,
    send_answer,
)
from handoff_queue.supervisor.lifecycle.approval_events import can_plan_again
from handoff_queue.supervisor.lifecycle.approval_policy import build_waiting_fields
from handoff_queue.supervisor.lifecycle.origins import find_plan_origins
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.state import JobState, Question
from handoff_queue.supervisor.roles.role_events import hide_titles, make_plan_event

MAX_KEYS_IN_ERROR = 20
"""Most keys of rows that an error names."""


def find_answers(events: Sequence[RecordedEvent]) -> dict[int, Approved | Rejected]:
    """Return the first answer to each question, by the version of the question."""
    answers: dict[int, Approved | Rejected] = {}
    for recorded in events:
        if isinstance(recorded.event, Approved | Rejected):
            answers.setdefault(recorded.event.asked, recorded.event)
    return answers


CLOSED = "closed"
"""Decision of a question that ended without an answer."""


def build_approvals(
    events: Sequence[RecordedEvent], payloads: Mapping[str, str], open_questions: Collection[int]
) -> tuple[dict[str, Any], ...]:
    """Return the questions and answers in the form of `JobResult.approvals`.

    Args:
        open_questions: versions of the questions that wait for an answer now.
    """
    answers = find_answers(events)
    approvals: list[dict[str, Any]] = []
    for recorded in events:
        question_event = recorded.event
        if not isinstance(question_event, ApprovalAsked):
            continue
        answer = answers.get(recorded.version)
        draft = None
        if question_event.draft:
            draft = Answer.from_json(payloads[question_event.draft.digest]).content
        approvals.append(
            {
                "version": recorded.version,
                "what": question_event.what.value,
                "why": question_event.why,
                "asked_at": recorded.at,
                "decision": _describe_decision(recorded.version, answer, open_questions),
                **_build_author_and_note(answer, payloads),
                "draft": draft,
                "own_plan": _get_own_plan(answer, payloads),
                "call": _convert_call(question_event, answer, payloads),
            }
        )
    return tuple(approvals)


def _build_author_and_note(
    answer: Approved | Rejected | None, payloads: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the fields `by`, `actor` and `note` of an answer. None: there is no answer yet."""
    if answer is None:
        return {"by": None, "actor": None, "note": None}
    author = answer.by if isinstance(answer, Approved) else "user"
    actor = answer.actor.name if answer.actor else None
    note = payloads[answer.note.digest] if answer.note else None
    return {"by": author, "actor": actor, "note": note}


def _get_own_plan(answer: Approved | Rejected | None, payloads: Mapping[str, str]) -> Any:
    """Return the plan that a person gave with an answer, as JSON; None: the person gave none."""
    own_plan = None
    if isinstance(answer, Rejected):
        own_plan = answer.own_plan
    elif answer and answer.plan:
        own_plan = answer.plan.plan
    if own_plan is None:
        return None
    return json.loads(payloads[own_plan.digest])


def _convert_call(
    question_event: ApprovalAsked, answer: Approved | Rejected | None, payloads: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the call of a tool that a question is about; None: it is about something else."""
    if question_event.call is None:
        return None
    edited_arguments = None
    if isinstance(answer, Approved) and answer.arguments:
        edited_arguments = json.loads(payloads[answer.arguments.digest])
    return {
        "handoff_id": question_event.call.handoff_id,
        "tool": question_event.call.tool,
        "arguments": _parse_json(payloads[question_event.call.arguments.digest]),
        "origins": {name: list(origins) for name, origins in question_event.call.origins.items()},
        "edited": edited_arguments,
    }


def _parse_json(text: str) -> JsonValue:
    """Return the value of a worker's JSON text; None: the payload is missing or no JSON."""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _describe_decision(
    version: int, answer: Approved | Rejected | None, open_questions: Collection[int]
) -> str | None:
    """Return the decision about a question; None: the question is open."""
    if answer is not None:
        return answer.type
    if version in open_questions:
        return None
    return CLOSED


def approve(
    store: Store,
    job_id: JobId,
    note: str | None,
    plan: JsonValue,
    steps: Sequence[str] = (),
    rows: Sequence[str] = (),
    actor: Actor | None = None,
    question_version: int | None = None,
    arguments: JsonValue = None,
) -> None:
    """Approve the question of a job. A repeated call with the same `question_version` and the
    same answer has no effect.

    Args:
        arguments: arguments that replace those of the call in question.
        steps: approve only these of the steps in question. The name of a repeated step means its
            copies.
        rows: approve only the copies with these keys.
        question_version: the version of the only question that the answer is for; None: the open
            question, unless it is about a call of a tool.

    Raises:
        UserError: the job has no question, another one than `question_version`, or none about these
            steps or rows. Or the plan or the arguments are not valid. Or the question is about a
            call, and `question_version` is None.
    """
    events = store.journal.read(job_id)
    about = find_question_about_call(job_id, events, question_version)
    if about is not None:
        refuse_parts(about, {"plan": plan, "steps": steps, "rows": rows})
        if question_version is None:
            raise UserError(
                f"{job_id} asks about a call of {about.call.tool}: read the call, and name its"
                f" question (--question {about.version})"
            )
        _approve_call(store, events, about, note, arguments, actor)
        return
    to_answer = _find_question(job_id, events, question_version)
    state, question = to_answer.state, to_answer.question
    if arguments is not None:
        raise UserError(
            f"{job_id} waits for {describe_awaited_answer(question.what)}, not of a call: leave out"
            " arguments (--arguments)"
        )
    if (steps or rows) and question.what is not ApprovalOf.STEP:
        raise UserError(
            f"{job_id} waits for {describe_awaited_answer(question.what)}, not of steps:"
            " leave out steps (--step) and rows (--row)"
        )
    step_ids = find_steps(store, state, question, steps, rows)
    plan_made = None
    texts = _list_texts(note)
    if plan is not None:
        plan_made, plan_text = _build_own_plan(store, state, question, plan)
        texts.append(plan_text)
    answer = Approved(
        asked=question.version, note=_make_ref(note), plan=plan_made, steps=step_ids, actor=actor
    )
    _give_answer(store, to_answer, answer, texts)


def _approve_call(
    store: Store,
    events: Sequence[RecordedEvent],
    about: QuestionAboutCall,
    note: str | None,
    arguments: JsonValue,
    actor: Actor | None,
) -> None:
    """Approve a call of a tool.

    Args:
        arguments: see `approve`.
    """
    texts = _list_texts(note)
    edited_arguments = None
    if arguments is not None:
        edited_text = format_arguments(store, about, arguments)
        texts.append(edited_text)
        edited_arguments = make_ref(edited_text)
    approved = Approved(
        asked=about.version,
        note=_make_ref(note),
        arguments=edited_arguments,
        call=about.reference,
        actor=actor,
    )
    _answer_about_call(store, events, about, approved, texts)


def find_steps(
    store: Store, state: JobState, question: Question, steps: Sequence[str], rows: Sequence[str]
) -> tuple[StepId, ...]:
    """Return the ids of the steps that a person names by step and by row.

    Empty: the person named no step and no row, so the answer is for the whole question.

    Raises:
        UserError: the job does not ask about a named step, or has no such step or row.
    """
    if not (steps or rows):
        return ()
    if question.what is ApprovalOf.STEP:
        candidates = question.steps
    else:
        candidates = tuple(state.steps)
    plan = _load_plan(store, state)
    step_ids: dict[StepId, None] = {}
    unknown_names: list[str] = []
    for name in steps or candidates:
        copies = _find_copies(plan, candidates, name)
        step_ids.update(dict.fromkeys(copies))
        if not copies:
            unknown_names.append(name)
    if unknown_names:
        does, its = "has no", "its steps are"
        if question.what is ApprovalOf.STEP:
            does, its = "does not ask about", "it asks about"
        raise UserError(
            f"{state.job_id} {does} step {', '.join(unknown_names)}:"
            f" {its} {', '.join(candidates):.1000}"
        )
    if rows:
        return _with_keys(state.job_id, plan, list(step_ids), rows)
    return tuple(step_ids)


def _find_rows_of_steps(plan: Plan | None, steps: Sequence[StepId]) -> dict[StepId, ItemRef]:
    """Return the item of each step that is a copy of a repeated step."""
    rows: dict[StepId, ItemRef] = {}
    if plan is None:
        return rows
    for step_id in steps:
        step = plan.by_id.get(step_id)
        if step and step.row:
            rows[step_id] = step.row
    return rows


def _find_copies(plan: Plan | None, candidates: Sequence[StepId], name: str) -> list[StepId]:
    """Return the candidate with this id, or the copies of the repeated step with this name."""
    if name in candidates:
        return [StepId(name)]
    rows = _find_rows_of_steps(plan, candidates)
    return [copy_id for copy_id, row in rows.items() if row.step == name]


def _with_keys(
    job_id: JobId, plan: Plan | None, steps: Sequence[StepId], keys: Sequence[str]
) -> tuple[StepId, ...]:
    """Return the copies with these keys.

    Raises:
        UserError: no copy has one of the keys.
    """
    by_key: dict[str, list[StepId]] = {}
    for step_id, row in _find_rows_of_steps(plan, steps).items():
        by_key.setdefault(row.key, []).append(step_id)
    copies: dict[StepId, None] = {}
    for key in keys:
        if key not in by_key:
            known_keys = ", ".join(list(by_key)[:MAX_KEYS_IN_ERROR]) or "none"
            raise UserError(
                f"{job_id} has no row {key!r:.80} among these steps (known: {known_keys:.500})"
            )
        copies.update(dict.fromkeys(by_key[key]))
    return tuple(copies)


def _load_plan(store: Store, state: JobState) -> Plan | None:
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
    actor: Actor | None = None,
    question_version: int | None = None,
) -> None:
    """Reject the question of a job. `steps`, `rows`, `question_version` and a repeated call: see
    `approve`.

    Raises:
        UserError: the job has no question, another one than `question_version`, or no such step or
            row. Or the plan is not valid, or no planner would read it.
    """
    events = store.journal.read(job_id)
    about = find_question_about_call(job_id, events, question_version)
    if about is not None:
        refuse_parts(about, {"plan": plan, "steps": steps, "rows": rows})
        rejection = Rejected(
            asked=about.version, note=_make_ref(note), call=about.reference, actor=actor
        )
        _answer_about_call(store, events, about, rejection, _list_texts(note))
        return
    to_answer = _find_question(job_id, events, question_version)
    state, question = to_answer.state, to_answer.question
    if (steps or rows) and question.what in (ApprovalOf.PLAN, ApprovalOf.COST):
        raise UserError(
            f"{job_id} waits for {describe_awaited_answer(question.what)}: there is no finished"
            " step to repeat, so leave out steps (--step) and rows (--row)"
        )
    step_ids = find_steps(store, state, question, steps, rows)
    own_plan = None
    texts = _list_texts(note)
    if plan is not None:
        plan_made, plan_text = _build_own_plan(store, state, question, plan)
        if not can_plan_again(state):
            raise UserError(
                f"{job_id} cannot be planned again: approve the job with your plan, which then"
                " replaces the plan unchanged",
                command=f"handoff approve {job_id} --edit FILE",
            )
        own_plan = plan_made.plan
        texts.append(plan_text)
    answer = Rejected(
        asked=question.version, note=_make_ref(note), steps=step_ids, own_plan=own_plan, actor=actor
    )
    _give_answer(store, to_answer, answer, texts)


def _build_own_plan(
    store: Store, state: JobState, question: Question, plan: JsonValue
) -> tuple[PlanMade, str]:
    """Return the event of a person's own plan, and the payload of that plan.

    Raises:
        UserError: the question is not about a plan, or the plan is not valid.
    """
    if question.what is not ApprovalOf.PLAN:
        raise UserError(
            f"{state.job_id} waits for {describe_awaited_answer(question.what)}: only a plan can be"
            " edited: leave out plan (--edit)"
        )
    served = store.presence.load_served_specialists()
    edited_plan = parse_edited_plan(plan, state, served)
    event, text = make_plan_event(
        edited_plan,
        is_reviewed=state.is_reviewed,
        acting=find_acting(served),
        origins=find_plan_origins(state),
    )
    return hide_titles(state, event), text


def _answer_about_call(
    store: Store,
    events: Sequence[RecordedEvent],
    about: QuestionAboutCall,
    answer: Approved | Rejected,
    texts: Sequence[str],
) -> None:
    """Append the answer to a question about a call. A repeated answer has no effect.

    Raises:
        UserError: the question has another answer, or is not open any more.
    """
    earlier = find_answers(events).get(about.version)
    if earlier is None:
        send_answer(store, about, answer, texts)
    else:
        _check_same(about.job_id, earlier, answer)


@dataclass(frozen=True, slots=True)
class _QuestionOfJob:
    """A job and the question that a person answers."""

    state: JobState
    """State in which the question is open."""
    question: Question
    earlier: Approved | Rejected | None
    """The answer that the question has already; None: it is open now."""


def _find_question(
    job_id: JobId, events: list[RecordedEvent], question_version: int | None
) -> _QuestionOfJob:
    """Return the open question of a job, or the question `question_version` with its answer.

    Args:
        question_version: the version that the question must have; None: any.

    Raises:
        UnknownJob: there is no such job.
        UserError: the job does not wait for an approval, or asks another question.
    """
    earlier = None
    if question_version is not None:
        earlier = find_answers(events).get(question_version)
    if earlier is not None:
        events = list(takewhile(lambda recorded: recorded.event is not earlier, events))
    state = fold(job_id, None, events)
    if state is None:
        raise UnknownJob.for_job(job_id)
    if state.question is None:
        reason = ": it has ended" if state.ended else ""
        raise UserError(
            f"{job_id} does not wait for an approval{reason}: answer a job with the status waiting",
            command="handoff list --status waiting",
        )
    if question_version not in (None, state.question.version):
        raise UserError(
            f"{job_id} does not ask question {question_version}: answer its question"
            f" {state.question.version}, about its {state.question.what}"
            f" (--question {state.question.version})"
        )
    return _QuestionOfJob(state, state.question, earlier)


def _give_answer(
    store: Store, to_answer: _QuestionOfJob, answer: Approved | Rejected, texts: Sequence[str]
) -> None:
    """Append the answer to a question. A repeated answer has no effect.

    Raises:
        UserError: the question has another answer, or is not open any more.
    """
    if to_answer.earlier is None:
        _append_answer(store, to_answer.state, answer, texts)
    else:
        _check_same(to_answer.state.job_id, to_answer.earlier, answer)


def _check_same(job_id: JobId, earlier: Approved | Rejected, answer: Approved | Rejected) -> None:
    """Check that a repeated answer is the answer that was given.

    Raises:
        UserError: the question has another answer.
    """
    if earlier.model_copy(update={"actor": None}) == answer.model_copy(update={"actor": None}):
        return
    if isinstance(earlier, Approved) and earlier.by == "timeout":
        answer_origin = "when the time for an answer ended"
    elif earlier.actor is None:
        answer_origin = "by another person"
    else:
        answer_origin = f"by {earlier.actor.name}"
    raise UserError(
        f"{job_id} does not ask question {earlier.asked} any more: it was {earlier.type}"
        f" {answer_origin}, with another answer, so yours has no effect",
        command=f"handoff show {job_id} --full",
    )


def _append_answer(
    store: Store, state: JobState, answer: Approved | Rejected, texts: Sequence[str]
) -> None:
    """Append the answer of a person to the journal.

    Raises:
        UserError: the job has ended, or another answer came first. The answer has no effect.
    """
    version = store.journal.append_unless_ended(
        state.job_id, answer, build_waiting_fields(state, None), texts
    )
    earlier_events: list[RecordedEvent] = []
    for recorded in store.journal.read(state.job_id):
        if recorded.version < version:
            earlier_events.append(recorded)
    before = fold(state.job_id, None, earlier_events)
    if (
        not version
        or before is None
        or before.question is None
        or before.question.version != answer.asked
    ):
        raise UserError(
            f"{state.job_id} no longer waits for an approval: another person has answered, or the"
            " time for an answer has ended",
            command=f"handoff show {state.job_id}",
        )


def _list_texts(note: str | None) -> list[str]:
    """Return the payloads of a note.

    Raises:
        UserError: the note is blank, too long, or not UTF-8.
    """
    if note is None:
        return []
    if not note.strip() or len(note) > MAX_PLAN_NOTE_CHARS:
        raise UserError(
            f"the note has {len(note):,} characters: write 1 to {MAX_PLAN_NOTE_CHARS:,} characters"
        )
    if has_lone_surrogate(note):
        raise UserError("the note is not UTF-8 text: convert it to UTF-8")
    return [note]


def _make_ref(note: str | None) -> BlobRef | None:
    if note is None:
        return None
    return make_ref(note)
