"""Expected outcomes of jobs, and the permitted deviations after a handoff was killed three
times in a row in one turn. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from handoff_queue.chaos.expected_handoffs import (
    FIRST_PLAN,
    OK,
    Ended,
    PlannedHandoff,
    compute_expected_handoffs,
    count_needed_tries,
    find_dependents,
    find_step,
    get_last_plan,
)
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.planned_jobs import PlannedJob, PlannedStep
from handoff_queue.shared.types.handoff import BUDGETS, StopReason
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import FACT_GATE, ROLES
from handoff_queue.supervisor.engine.failure_guard import FROZE

TOO_MANY_CLAIMS = StopReason.TOO_MANY_CLAIMS.value
SPENT = "the job's budget is spent"
"""Beginning of the reason of a job with a spent budget."""
SPENT_ABOVE = "the budget of the job above is spent"
SHARE_SPENT = "its share of the budget"
CANCELLED_BY_USER = "cancelled by the user"
NOT_WAITED_FOR = "does not wait for it any more"
"""End of the reason of a child whose step was abandoned, or whose parent has ended."""
_SPENT = frozenset(reason.value for reason in BUDGETS)


@dataclass(frozen=True, slots=True)
class StoredJob:
    """The store's record of one job at the end of the run. Times are Unix seconds."""

    status: str
    """A `JobStatus`; '' if the job does not exist."""
    ended_at: tuple[float, ...] = ()
    finished_at: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Times of the results of each handoff, by its id. More than one is a fault."""
    results: Mapping[str, Ended] = field(default_factory=dict)
    """Last result of each handoff, by its id."""
    reason: str = ""
    """Reason of the job's end."""
    why: str = ""
    """All that the store tells about the end, for the report."""
    given_up_at: Mapping[str, float] = field(default_factory=dict)
    """Time of abandonment, by handoff's id."""
    cancelled_at: float | None = None
    """Time of the first request to cancel the job, or None."""
    question_periods: tuple[tuple[float, float], ...] = ()
    """Periods in which the job waited for its user's answer."""
    limits: JobLimits | None = None
    """Limits of the job at its beginning."""
    submitted_at: float = inf
    """Time of the submission; infinite if it is unknown."""

    def find_handoffs_stopped_by(self, *whys: str) -> set[str]:
        """Return the handoffs that ended with one of the given stop reasons."""
        return {handoff for handoff, end in self.results.items() if end.stop_reason in whys}

    def has_no_usable_result(self, handoff: str) -> bool:
        """Return whether the handoff failed, or was ended by a budget or by too many claims."""
        end = self.results.get(handoff)
        return end is not None and (
            end.status == "failed" or end.stop_reason in {TOO_MANY_CLAIMS, *_SPENT}
        )

    def is_there(self, handoff: PlannedHandoff) -> bool:
        """Return whether the job may have this handoff: a handoff that replaces another needs
        its failure.
        """
        return not handoff.instead_of or self.has_no_usable_result(handoff.instead_of)

    @property
    def is_given_up(self) -> bool:
        """True if evaluations of the job were killed so often in a row that supervisors gave
        it up.
        """
        return self.reason.startswith(FROZE)


NO_RECORD = StoredJob("")


def find_wrong_end(job: PlannedJob, job_records: Mapping[str, StoredJob]) -> str:
    """Return the deviation from the expected end; '' if there is none.

    Args:
        job_records: records by job's name, including the job's children and its parent.
    """
    job_record = job_records[job.name]
    if job.shape in (Shape.CANCELLED, Shape.CALLED_OFF) and not job.parent:
        is_right = (job_record.status, job_record.reason) == ("cancelled", CANCELLED_BY_USER)
        return "" if is_right else "not cancelled"
    if job_record.is_given_up:
        is_right = job_record.status == "failed"
        return (
            "" if is_right else f"{job_record.status}, though no supervisor evaluates it any more"
        )
    if job_record.status == "cancelled":
        return (
            "" if _may_be_cancelled(job, job_records) else "cancelled, though its result is needed"
        )
    killed = job_record.find_handoffs_stopped_by(TOO_MANY_CLAIMS)
    early_ends = killed | _find_incomplete_children(job, job_records)
    if _may_be_spent(job):
        early_ends |= job_record.find_handoffs_stopped_by(*_SPENT)
    wrong = _find_wrong_handoff(job, job_records, early_ends) or _find_wrong_join(
        job, job_record, killed
    )
    return (
        wrong
        or _find_wrong_reason(job, job_record, killed)
        or _find_wrong_status(job, job_record, early_ends)
    )


def _may_be_cancelled(job: PlannedJob, job_records: Mapping[str, StoredJob]) -> bool:
    """Return whether the job is a child whose parent has ended, or has abandoned its step."""
    above = job_records.get(job.parent, NO_RECORD)
    return job_records[job.name].reason.endswith(NOT_WAITED_FOR) and (
        bool(above.ended_at) or _get_handoff_above(job) in above.given_up_at
    )


def _get_handoff_above(job: PlannedJob) -> str:
    """Return the parent's handoff that a child does."""
    return f"{job.name.removeprefix(job.parent)[1:]}.1"


def _may_be_spent(job: PlannedJob) -> bool:
    """Return whether the job's own budget or its tree's budget is tight."""
    return job.is_tight or job.shape is Shape.TIGHT_TREE


def _map_children(job: PlannedJob) -> dict[str, PlannedJob]:
    """Return the child jobs by the handoff that they do."""
    teams: dict[str, PlannedJob] = {}
    for step in job.steps:
        if step.team:
            teams[step.last] = step.team
    return teams


def _find_incomplete_children(job: PlannedJob, job_records: Mapping[str, StoredJob]) -> set[str]:
    """Return the handoffs that children did in part or not at all. The checks of the children
    decide whether that is permitted.
    """
    handoffs: set[str] = set()
    for handoff, child in _map_children(job).items():
        end = job_records[job.name].results.get(handoff)
        child_status = job_records.get(child.name, NO_RECORD).status
        if end and end.status in ("partial", "failed") and end.status == child_status:
            handoffs.add(handoff)
    return handoffs


def _find_wrong_handoff(
    job: PlannedJob, job_records: Mapping[str, StoredJob], early_ends: set[str]
) -> str:
    """Return the first handoff with a wrong end, or which was not planned; '' if there is
    none.

    Args:
        early_ends: handoffs that ended early for a permitted reason. Handoffs that depend on them
            are excused.
    """
    job_record, expected_handoffs, below = (
        job_records[job.name],
        compute_expected_handoffs(job),
        _map_children(job),
    )
    excused_handoffs = find_dependents(job, early_ends)
    reasons = {OK.stop_reason, TOO_MANY_CLAIMS, *(_SPENT if _may_be_spent(job) else ())}
    needed: set[str] = set()
    for expected in expected_handoffs.values():
        if expected.is_needed and not expected.instead_of:
            needed.add(expected.id)
    for handoff in sorted(needed | job_record.results.keys()):
        end, planned = job_record.results.get(handoff), expected_handoffs.get(handoff)
        if planned is None or not job_record.is_there(planned):
            return f"{handoff}: nothing of the sort was planned"
        if (
            end == OK
            and handoff in below
            and job_records.get(below[handoff].name, NO_RECORD).status != OK.status
        ):
            return f"{handoff}: ok, and its team is not"
        is_excused = handoff in excused_handoffs and (
            end is None or end.stop_reason in reasons or handoff in early_ends
        )
        if end != planned.end and not is_excused:
            return f"{handoff}: {f'{end.status}, {end.stop_reason}' if end else 'no result'}"
    return ""


def _find_wrong_join(job: PlannedJob, job_record: StoredJob, killed: set[str]) -> str:
    """Return a fault of a join, or ''. A step that began must have had enough results, and
    each dependency without a result must have been abandoned or killed.
    """
    for step in job.steps:
        if step.enough is None or f"{step.id}.1" not in job_record.results:
            continue
        parts = set(_list_first_attempts(step))
        results = parts & job_record.results.keys()
        if len(results) < step.enough:
            return f"{step.id} began with {len(results)} results, and {step.enough} are enough"
        if unexplained := parts - results - job_record.given_up_at.keys() - killed:
            return f"{', '.join(sorted(unexplained))}: no result, and not given up"
    return ""


def _list_first_attempts(step: PlannedStep) -> list[str]:
    """Return the first attempt at each dependency of a step."""
    return [f"{dependency}.1" for dependency in step.after]


def _find_wrong_reason(job: PlannedJob, job_record: StoredJob, killed: set[str]) -> str:
    """Return a fault of the reason of the job's end, as far as it is about budgets, or ''."""
    is_spent = job_record.reason.startswith(
        (SPENT, SPENT_ABOVE, SHARE_SPENT) if job.parent else SPENT
    )
    if not is_spent and job.is_tight and _exceeds_budget(job, killed):
        return "its budget should have ended it"
    if is_spent and not _may_be_spent(job):
        return "its budget should not have ended it"
    return ""


def _find_wrong_status(job: PlannedJob, job_record: StoredJob, early_ends: set[str]) -> str:
    """Return a fault of the job's status, or ''."""
    if not early_ends:
        planned = "ok"
        for step in job.steps:
            if step.enough and not job_record.results.keys() >= set(_list_first_attempts(step)):
                planned = "partial"
        if job_record.status == planned:
            return ""
        return f"{job_record.status}, though every handoff is as planned"
    if (
        job_record.status == "ok"
        and job.is_planned
        and job_record.has_no_usable_result(get_last_plan(job))
    ):
        return "ok, though it was planned by code"
    if job_record.status == "ok" and any(
        handoff_id.startswith(f"{FACT_GATE}.") for handoff_id in early_ends
    ):
        return "ok, though no fact-checker has checked it"
    has_answer = any(_is_usable(job, handoff, end) for handoff, end in job_record.results.items())
    if not has_answer:
        expected_statuses = {"failed"}
    elif job.is_tight:
        expected_statuses = {"partial"}
    else:
        expected_statuses = {"partial", "ok"}
    if job_record.status in expected_statuses:
        return ""
    return f"{job_record.status}, and {'something' if has_answer else 'nothing'} was usable"


def _is_usable(job: PlannedJob, handoff: str, end: Ended) -> bool:
    """Return whether an answer can be made from the result of this handoff."""
    step = find_step(job, handoff)
    if step and step.team and handoff == step.last:
        return end.status in ("ok", "partial")
    return end == OK and handoff.partition(".")[0] not in (*ROLES, FACT_GATE)


def _exceeds_budget(job: PlannedJob, killed: set[str]) -> bool:
    """Return whether the plan of a tight job, without its killed handoffs, exceeds the budget."""
    left = {key.handoff for key in count_needed_tries(job)} - killed
    return FIRST_PLAN in left and len(left) > job.most_calls
