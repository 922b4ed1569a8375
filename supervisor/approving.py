"""A person's answer to a job that waits for one: checked, and appended as a fact, like a cancel."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from pydantic import JsonValue, ValidationError

from shared.ledger.ledger import Ledger
from shared.wire.approval import ApprovalOf
from shared.wire.errors import UnknownJob, UserError
from shared.wire.events import Approved, Rejected
from shared.wire.handoff import BlobRef, ref
from shared.wire.ids import JobId, StepId
from shared.wire.message import each_problem
from shared.wire.plan import Plan, Step, limit_problems, shape_problems
from supervisor.lifecycle.approving import approval_fields
from supervisor.lifecycle.evolve import fold
from supervisor.lifecycle.state import JobState, Question
from supervisor.roles.outcomes import plan_made

MOST_NOTE_CHARS = 10_000
_OF_A_REPORT = frozenset({"degraded", "method"})
"""What `handoff show` says beside a plan."""
_OF_A_PLAN = frozenset(Plan.model_fields)


def approve(ledger: Ledger, job_id: JobId, note: str | None, plan: JsonValue) -> None:
    """Raises: UserError: it waits for no approval, or the plan is none."""
    state, question = _waiting(ledger, job_id)
    made, texts = None, _texts(note)
    if plan is not None:
        if question.what is not ApprovalOf.PLAN:
            raise UserError(f"{job_id} waits for an approval of its {question.what}: only a plan can be edited")
        made, text = plan_made(edited(plan, state, ledger.roles.served()), is_reviewed=state.is_reviewed)
        texts.append(text)
    _say(ledger, state, Approved(asked=question.version, note=_ref(note), plan=made), texts)


def reject(ledger: Ledger, job_id: JobId, note: str | None, steps: Sequence[str]) -> None:
    """Raises: UserError: it waits for no approval, or has no such step."""
    state, question = _waiting(ledger, job_id)
    if steps and question.what not in (ApprovalOf.RESEARCH, ApprovalOf.ANSWER):
        raise UserError(f"{job_id} waits for an approval of its {question.what}: no step has been done that could be done again")
    if unknown := [step for step in steps if step not in state.steps]:
        raise UserError(f"{job_id} has no step {', '.join(unknown)}: its steps are {', '.join(state.steps)}")
    _say(ledger, state, Rejected(asked=question.version, note=_ref(note), steps=tuple(map(StepId, steps))), _texts(note))


def edited(value: JsonValue, state: JobState, served: Collection[str]) -> Plan:
    """The plan as a person has written it.

    Raises:
        UserError: a line for each thing that is wrong with it.
    """
    if not isinstance(value, dict) or not isinstance(steps := value.get("steps"), list) or not steps:
        raise UserError("the plan has no steps: write it as `handoff show` prints it")
    found = [f"the plan has a field {name} that no plan has" for name in value.keys() - _OF_A_PLAN - _OF_A_REPORT]
    made: list[Step] = []
    for number, one in enumerate(steps, start=1):
        try:
            made.append(Step.model_validate_json(json.dumps(one)))
        except ValidationError as error:
            found += [f"step {number}: {'.'.join(where) or 'it'}: {what}" for where, what in each_problem(error)]
    allowed = set(state.submitted.specialists)
    there = {name for name in served if not allowed or name in allowed} | {step.outline.specialist for step in state.steps.values()}
    found += [*shape_problems(made), *limit_problems(made, there, max(state.submitted.limits.max_steps, len(state.steps)))]
    if not found:
        try:
            return Plan.model_validate_json(json.dumps({name: value[name] for name in value.keys() & _OF_A_PLAN}))
        except ValidationError as error:
            found = [f"{'.'.join(where)}: {what}" for where, what in each_problem(error)]
    raise UserError("\n".join(found))


def _waiting(ledger: Ledger, job_id: JobId) -> tuple[JobState, Question]:
    state = fold(job_id, None, ledger.journal.read(job_id))
    if state is None:
        raise UnknownJob.named(job_id)
    if state.question is None:
        raise UserError(f"{job_id} waits for no approval" + (": it has ended" if state.ended else ""))
    return state, state.question


def _say(ledger: Ledger, state: JobState, answer: Approved | Rejected, texts: Sequence[str]) -> None:
    """Appended whatever has happened meanwhile: where another answer came first, this one changes nothing, and that is said."""
    version = ledger.journal.append_unless_ended(state.job_id, answer, approval_fields(state, None), texts)
    before = fold(state.job_id, None, [one for one in ledger.journal.read(state.job_id) if one.version < version])
    if not version or before is None or before.question is None or before.question.version != answer.asked:
        raise UserError(f"{state.job_id} waits for no approval any more: somebody else has answered, or its time was over")


def _texts(note: str | None) -> list[str]:
    if note is None:
        return []
    if not note.strip() or len(note) > MOST_NOTE_CHARS:
        raise UserError(f"a note has 1 to {MOST_NOTE_CHARS:,} characters")
    if any("\ud800" <= character <= "\udfff" for character in note):
        raise UserError("the note is not UTF-8 text")
    return [note]


def _ref(note: str | None) -> BlobRef | None:
    return None if note is None else ref(note)
