"""The content of the page of a job: its head, its open steps, its sections and its drawing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup

from handoff_queue.shared.store.fleet_load import FleetLoad
from handoff_queue.shared.store.jobs import HandoffStanding
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import JobStatus, JobSubmitted, RetryRequested
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.usage import cost_usd
from handoff_queue.supervisor.client.call_approvals import subject_of
from handoff_queue.supervisor.client.report import JobRecord, JobResult, record_of, report_of
from handoff_queue.supervisor.client.submission import budget_fields
from handoff_queue.supervisor.quoting.quote_history import working_seconds
from handoff_queue.supervisor.serve.console.document_routes import document_link
from handoff_queue.supervisor.serve.console.pages import without_commands
from handoff_queue.supervisor.serve.questions import arguments_of, open_questions
from handoff_queue.supervisor.text.sanitizing import plain
from handoff_queue.supervisor.tracing.page import answer_html, report_sections, sources_html
from handoff_queue.supervisor.tracing.timeline import steps_without_handoff, timeline_of

MOST_OPEN = 50
"""Most open steps that the page names."""
MOST_LINES = 500
"""Most lines or rows of one section."""
_SECTIONS_OF_THE_DRAWING = ("plan",)


@dataclass(frozen=True, slots=True)
class OpenStep:
    """A handoff without a result."""

    handoff_id: str
    state: str
    why: str
    """The activity of a running handoff, or the reason why it waits."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """A job as its page shows it."""

    record: JobRecord
    report: JobResult
    open_steps: tuple[OpenStep, ...]
    more_open: int
    """Open steps that `open_steps` does not have."""

    @property
    def budget(self) -> dict[str, int]:
        """Return the limits of the job, as far as they are set. A retry can raise them."""
        submitted = self.record.journal[0].event
        assert isinstance(submitted, JobSubmitted)
        limits = budget_fields(submitted.limits)
        for recorded in self.record.journal:
            if isinstance(recorded.event, RetryRequested):
                limits |= budget_fields(recorded.event)
        return limits

    @property
    def waits(self) -> list[str]:
        """Return the reasons to wait. The page has buttons instead of the commands to decide."""
        return [without_commands(line, self.record.job.job_id) for line in self.record.waits]

    @property
    def failed_handoffs(self) -> list[tuple[str, str, str]]:
        """Return the id, the specialist and the error of each failed handoff. Empty for a job
        that is ok.
        """
        if self.report.status not in {JobStatus.FAILED, JobStatus.PARTIAL}:
            return []
        specialists = {one["handoff_id"]: one["assigned_to"] for one in self.report.handoffs}
        failed: list[tuple[str, str, str]] = []
        for result in self.report.results:
            if result["status"] == "failed":
                handoff_id = result["handoff_id"]
                failed.append((handoff_id, specialists[handoff_id], result["error"] or ""))
        return failed[:MOST_LINES]

    @property
    def planned_steps(self) -> list[dict[str, Any]]:
        """Return the steps of the plan if a person must approve the plan."""
        plan = self.report.plan or {}
        if any(question["what"] == "plan" for question in self.questions):
            return list(plan.get("steps", ()))[:MOST_LINES]
        return []

    @property
    def worked_s(self) -> float:
        """Return the working time in seconds, without waits for a person or for a retry."""
        journal, status = self.record.journal, self.report.status
        seconds = working_seconds(self.record.job.job_id, journal)
        if status in {JobStatus.QUEUED, JobStatus.RUNNING}:
            seconds += max(0.0, self.record.at - journal[-1].at)
        return seconds

    @property
    def max_usd(self) -> float | None:
        return cost_usd(self.budget.get("max_usd"))

    @property
    def sections(self) -> dict[str, Any]:
        """Return the sections that have content, by heading."""
        sections: dict[str, Any] = {}
        for name, content in report_sections(self.report).items():
            if name in _SECTIONS_OF_THE_DRAWING:
                continue
            # The section Waits of the page has the reasons to wait.
            lines = [line for line in content if line not in self.record.waits]
            if lines:
                sections[name] = lines[:MOST_LINES]
        return sections

    @property
    def answer(self) -> Markup | None:
        """Return the answer with its sources as safe HTML. None: there is no answer yet."""
        report = self.report
        if report.answer is None:
            return None
        is_form = report.asked_for_a_form
        links: dict[int, str] = {}
        for citation in report.citations:
            links[citation["n"]] = document_link(report.job_id, citation)
        text = answer_html(
            report.answer, report.citations, report.job_id, is_form=is_form, links=links
        )
        if report.citations:
            text += f"<h3>Sources</h3>{sources_html(report.citations, report.job_id, links)}"
        return Markup(plain(text))  # noqa: S704 (the functions of the trace page escape all texts)

    @property
    def steps(self) -> list[str]:
        """Return the steps from which a retry can start."""
        plan = self.report.plan or {}
        return [step["id"] for step in plan.get("steps", ())][:MOST_LINES]

    @property
    def questions(self) -> list[dict[str, Any]]:
        """Return the approvals that no person has decided."""
        return open_questions(self.report)

    @staticmethod
    def subject_of(question: dict[str, Any]) -> str:
        """Return the subject of a question in words."""
        return subject_of(question)

    @staticmethod
    def arguments_of(call: dict[str, Any]) -> list[tuple[str, str, str]]:
        """Return the name, the value and the origins of each argument of a call."""
        return arguments_of(call)

    def drawing(self) -> dict[str, Any]:
        """Return the data for the scripts `drawing.js` and `timeline.js`.

        The messages, the results and the turns are left out. The page loads them on demand.
        """
        timeline = timeline_of(self.record)
        steps = (self.report.plan or {}).get("steps", ())
        planned = steps_without_handoff(self.record.journal, steps, timeline.bars)
        return {
            "id": self.record.job.job_id,
            "begins_at": timeline.begins_at,
            "ends_at": timeline.ends_at,
            "is_over": self.report.status.ended,
            "bars": [asdict(bar) for bar in timeline.bars],
            "planned": [asdict(step) for step in planned],
            "payloads": {},
            "turns": {},
            "absent": [],
        }


def read_job(store: Store, job_id: JobId) -> JobPage:
    """Read a job for its page.

    Raises:
        UnknownJob: there is no such job.
        StoreError: a payload is gone.
    """
    record = record_of(store, job_id)
    report = report_of(record)
    open_handoffs: dict[HandoffId, HandoffStanding] = {}
    if not report.status.ended:
        for handoff_id, standing in record.handoffs.items():
            if standing.state in ("issued", "running"):
                open_handoffs[handoff_id] = standing
    steps: list[OpenStep] = []
    if open_handoffs:
        served, load = store.presence.served(), store.fleet_load.now()
        for handoff_id, standing in list(open_handoffs.items())[:MOST_OPEN]:
            steps.append(_open_step(handoff_id, standing, served, load))
    return JobPage(record, report, tuple(steps), len(open_handoffs) - len(steps))


def _open_step(
    handoff_id: str,
    standing: HandoffStanding,
    served: dict[str, ServedSpecialist],
    load: FleetLoad,
) -> OpenStep:
    if standing.state == "running":
        doing = standing.doing or "works"
        return OpenStep(handoff_id, "running", f"{doing}, on {standing.worker}")
    return OpenStep(handoff_id, "queued", "; ".join(_why(standing, served, load)))


def _why(
    standing: HandoffStanding, served: dict[str, ServedSpecialist], load: FleetLoad
) -> Iterator[str]:
    """Yield the reasons why a handoff waits."""
    queue = standing.queue
    if standing.asked_at is not None:
        yield standing.doing
    elif standing.deferred_until is not None:
        left_s = max(0, round(standing.deferred_until - load.at))
        yield f"waits {left_s} s for its provider: {standing.doing or 'rate limit'}"
    elif standing.lost:
        yield "its message or its worker was lost, and the sweeper publishes it again"
    elif queue in load.paused:
        yield f"waits for {queue}, which is paused"
    elif standing.held:
        yield "is held, because its message is a dead letter or its role is paused"
    elif queue in served:
        yield f"waits for {queue}: {load.busy(queue)} of {served[queue].slots} slots are busy"
    elif queue:
        yield f"waits for {queue}, which no worker serves"
    else:
        yield "waits for a supervisor"
