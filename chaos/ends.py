"""How a job of each shape must end, and what a handoff that was killed three times in a row in one turn may change of that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chaos.plan import PlannedJob, Shape

TOO_MANY_CLAIMS = "too_many_claims"
JOB_BUDGET = "job_budget"
SPENT = "the job's budget is spent"
"""How the reason of such a job begins."""
CANCELLED_BY_USER = "cancelled by the user"
ROLES = ("planner", "assessor", "synthesizer")
INSTEAD = "answer.1"
"""The one step of a plan that code has made up, because there was none of the planner's."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a handoff has ended, in the journal's words."""

    status: str
    stop_reason: str


OK = Ended("ok", "finished")


@dataclass(frozen=True, slots=True)
class Story:
    """What the ledger says of one job when all is over. Times are Unix seconds."""

    status: str
    """As in `JobStatus`; '': there is no such job."""
    ended_at: tuple[float, ...] = ()
    finished_at: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Handoff's id -> when it has finished; more than once is once too often."""
    results: Mapping[str, Ended] = field(default_factory=dict)
    """Handoff's id -> how."""
    reason: str = ""
    """The end's."""
    why: str = ""
    """What it says itself, if it is not `ok`."""

    def broken_off(self, why: str) -> set[str]:
        """The handoffs that ended for this reason."""
        return {handoff for handoff, end in self.results.items() if end.stop_reason == why}

    @property
    def is_planned_by_code(self) -> bool:
        """Its plan is a single step, because there was none of the planner's."""
        planner = self.results.get("planner.1")
        return planner is not None and planner.stop_reason in (TOO_MANY_CLAIMS, JOB_BUDGET)


def wrong_end(job: PlannedJob, story: Story) -> str:
    """What is not as it must be; empty: nothing is."""
    if job.shape is Shape.CANCELLED:
        return "" if (story.status, story.reason) == ("cancelled", CANCELLED_BY_USER) else "not cancelled"
    killed = story.broken_off(TOO_MANY_CLAIMS)
    cut = killed | (story.broken_off(JOB_BUDGET) if job.is_tight else set())
    return _wrong_handoff(job, story, cut) or _wrong_reason(job, story, killed) or _wrong_status(job, story, cut)


def _wrong_handoff(job: PlannedJob, story: Story, cut: set[str]) -> str:
    excused, reasons = hanging_on(job, cut), {OK.stop_reason, TOO_MANY_CLAIMS, *([JOB_BUDGET] if job.is_tight else [])}
    for handoff in sorted({key.handoff for key in job.needs()} | story.results.keys()):
        end = story.results.get(handoff)
        is_excused = handoff in excused and (end is None or end.stop_reason in reasons)
        if end != OK and not is_excused:
            return f"{handoff}: {end.stop_reason if end else 'no result'}"
    return ""


def _wrong_reason(job: PlannedJob, story: Story, killed: set[str]) -> str:
    is_spent = story.reason.startswith(SPENT)
    if not is_spent and job.is_tight and _spends(job, killed):
        return "its budget should have ended it"
    return "its budget should not have ended it" if is_spent and not job.is_tight else ""


def _wrong_status(job: PlannedJob, story: Story, cut: set[str]) -> str:
    if not cut:
        return "" if story.status == "ok" else f"{story.status}, though every handoff is ok"
    if story.status == "ok" and story.is_planned_by_code:
        return "ok, though it was planned by code"
    has_answer = any(end == OK and handoff.partition(".")[0] not in ROLES for handoff, end in story.results.items())
    allowed = ({"partial"} if job.is_tight else {"partial", "ok"}) if has_answer else {"failed"}
    return "" if story.status in allowed else f"{story.status}, and {'something' if has_answer else 'nothing'} was usable"


def _spends(job: PlannedJob, killed: set[str]) -> bool:
    """Whether what is left of a tight job's plan is still too much for it."""
    left = {key.handoff for key in job.needs()} - killed
    return "planner.1" in left and len(left) > job.most_calls


def hanging_on(job: PlannedJob, handoffs: set[str]) -> set[str]:
    """These, and all that were given what came of them."""
    parents, found = _parents(job), set(handoffs)
    while more := {handoff for handoff, above in parents.items() if handoff not in found and above & found}:
        found |= more
    return found


def _parents(job: PlannedJob) -> dict[str, set[str]]:
    """Handoff's id -> those that it was issued after, because of what they said."""
    firsts = {f"{step.id}.1" for step in job.steps}
    parents = {f"{step.id}.1": {"planner.1", *(f"{before}.1" for before in step.after)} for step in job.steps}
    parents |= {INSTEAD: {"planner.1"}, "assessor.1": firsts | {"planner.1"}}
    again = f"{job.steps[0].id}.2"
    parents |= {again: {"assessor.1"}, "assessor.2": {"assessor.1", again}, "synthesizer.1": {"assessor.1", "assessor.2"}}
    return parents
