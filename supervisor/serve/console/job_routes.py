"""The page of one job: its head, its open steps, its sections and its drawing. Its live data and
its actions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from handoff_queue.shared.store.fleet_load import FleetLoad
from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import (
    HandoffIssued,
    JobStatus,
    JobSubmitted,
    RetryRequested,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.limits import MAX_COUNT, MAX_USD, NewLimits
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST, ROLES, ROLES_QUEUE
from handoff_queue.shared.types.presence import WAITS_FOR
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.client.async_client import HEARTBEAT_S
from handoff_queue.supervisor.client.job_record import JobRecord, build_record
from handoff_queue.supervisor.client.job_result import JobResult, build_report
from handoff_queue.supervisor.client.submission import build_budget_fields
from handoff_queue.supervisor.client.tool_call_approvals import describe_subject
from handoff_queue.supervisor.quoting.quote_history import compute_working_seconds
from handoff_queue.supervisor.serve.approval_questions import list_arguments, select_open_questions
from handoff_queue.supervisor.serve.console.document_routes import (
    MAX_ON_THE_JOB_PAGE,
    build_document_link,
    list_documents,
)
from handoff_queue.supervisor.serve.console.inbox_routes import parse_question_version
from handoff_queue.supervisor.serve.console.new_job_routes import AmountField
from handoff_queue.supervisor.serve.console.pages import (
    create_environment,
    format_duration,
    go_to,
    render,
)
from handoff_queue.supervisor.serve.console.session import Operates, Reads, VisibleJob, Visit
from handoff_queue.supervisor.serve.event_routes import MAX_VERSION, stream_until_end
from handoff_queue.supervisor.serve.job_routes import find_handoff
from handoff_queue.supervisor.text.sanitizing import replace_unsafe
from handoff_queue.supervisor.tracing.page import (
    build_report_sections,
    render_answer,
    render_sources,
)
from handoff_queue.supervisor.tracing.timeline import build_timeline, find_steps_without_handoff

MAX_OPEN = 50
"""Most open steps that the page names."""
MAX_LINES = 500
"""Most lines or rows of one section."""
_SECTIONS_OF_THE_DRAWING = ("plan",)
Version = Annotated[int, Query(ge=0, le=MAX_VERSION)]
LastEventId = Annotated[int | None, Header(ge=0, le=MAX_VERSION)]
HIGHER_LIMITS = {
    "max_usd": AmountField("max_microusd", 1_000_000, MAX_USD, "2.50"),
    "max_turns": AmountField("max_turns", 1, MAX_COUNT, "400"),
}
"""Fields of a retry that raise a limit of the job."""
router = APIRouter(prefix="/jobs/{job_id}", include_in_schema=False)


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
    def _submitted(self) -> JobSubmitted:
        submitted = self.record.journal[0].event
        assert isinstance(submitted, JobSubmitted)
        return submitted

    @property
    def _retries(self) -> list[RetryRequested]:
        events = [recorded.event for recorded in self.record.journal]
        return [event for event in events if isinstance(event, RetryRequested)]

    @property
    def budget(self) -> dict[str, int]:
        """Return the limits of the job, as far as they are set. A retry can raise them."""
        limits = build_budget_fields(self._submitted.limits)
        for retry in self._retries:
            limits |= build_budget_fields(retry)
        return limits

    @property
    def kinds(self) -> list[str]:
        """Return the words that choose the actions of the page. They are `ended` or `open`, and the
        status, or `decision` if the job waits for a decision about its budget.
        """
        status = self.report.status
        kinds = ["ended" if status.has_ended else "open"]
        kinds.append("decision" if self.record.job.asks else status.value)
        return kinds

    @property
    def failed_handoffs(self) -> list[tuple[str, str, str]]:
        """Return the id, the specialist and the error of each failed handoff. Empty for a job
        that is ok.
        """
        if self.report.status is JobStatus.OK:
            return []
        specialists: dict[str, str] = {}
        for handoff in self.report.handoffs:
            specialists[handoff["handoff_id"]] = handoff["assigned_to"]
        rows: list[tuple[str, str, str]] = []
        for result in self.report.results:
            if result["status"] == "failed":
                handoff_id = result["handoff_id"]
                rows.append((handoff_id, specialists[handoff_id], result["error"] or ""))
        return rows[:MAX_LINES]

    @property
    def planned_steps(self) -> list[dict[str, Any]]:
        """Return the steps of the plan if a person must approve the plan."""
        plan = self.report.plan or {}
        if any(question["what"] == "plan" for question in self.questions):
            return list(plan.get("steps", ()))[:MAX_LINES]
        return []

    @property
    def worked_s(self) -> float:
        """Return the working time in seconds, without waits for a person or for a retry."""
        journal = self.record.journal
        seconds = compute_working_seconds(self.record.job.job_id, journal)
        if self.report.status in {JobStatus.QUEUED, JobStatus.RUNNING}:
            since_last_event_s = self.record.at - journal[-1].at
            seconds += max(0.0, since_last_event_s)
        return seconds

    @property
    def time_limit(self) -> str:
        """Return the limit of the working time in words. After a retry it covers only the work
        since the retry.
        """
        seconds = self._submitted.limits.max_seconds
        if not self._retries:
            return f"of {format_duration(seconds)}"
        for retry in self._retries:
            if retry.continuation:
                seconds = retry.continuation.max_seconds
        return f"in all; at most {format_duration(seconds)} since the retry"

    @property
    def max_usd(self) -> float | None:
        return to_usd(self.budget.get("max_usd"))

    @property
    def sections(self) -> dict[str, Any]:
        """Return the sections that have content, by heading."""
        sections: dict[str, Any] = {}
        for name, content in build_report_sections(self.report).items():
            if name in _SECTIONS_OF_THE_DRAWING:
                continue
            # The section Waits of the page has the reasons to wait.
            lines = [line for line in content if line not in self.record.waits]
            if lines:
                sections[name] = lines[:MAX_LINES]
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
            links[citation["n"]] = build_document_link(report.job_id, citation)
        text = render_answer(
            report.answer, report.citations, report.job_id, is_form=is_form, links=links
        )
        if report.citations:
            text += f"<h3>Sources</h3>{render_sources(report.citations, report.job_id, links)}"
        return Markup(replace_unsafe(text))  # noqa: S704 (the functions of the trace page escape all texts)

    @property
    def steps(self) -> list[str]:
        """Return the steps from which a retry can start."""
        plan = self.report.plan or {}
        return [step["id"] for step in plan.get("steps", ())][:MAX_LINES]

    @property
    def questions(self) -> list[dict[str, Any]]:
        """Return the approvals that no person has decided."""
        return select_open_questions(self.report)

    @staticmethod
    def subject_of(question: dict[str, Any]) -> str:
        """Return the subject of a question in words."""
        return describe_subject(question)

    @staticmethod
    def arguments_of(call: dict[str, Any]) -> list[tuple[str, str, str]]:
        """Return the name, the value and the origins of each argument of a call."""
        return list_arguments(call)

    def drawing(self) -> dict[str, Any]:
        """Return the data for the scripts `drawing.js` and `timeline.js`.

        The messages, the results and the turns are left out. The page loads them on demand.
        """
        timeline = build_timeline(self.record)
        steps = (self.report.plan or {}).get("steps", ())
        planned_steps = find_steps_without_handoff(self.record.journal, steps, timeline.bars)
        return {
            "id": self.record.job.job_id,
            "begins_at": timeline.begins_at,
            "ends_at": timeline.ends_at,
            "is_over": self.report.status.has_ended,
            "bars": [asdict(bar) for bar in timeline.bars],
            "planned": [asdict(step) for step in planned_steps],
            "payloads": {},
            "turns": {},
            "contexts": {},
            "absent": [],
        }


def read_job(store: Store, job_id: JobId) -> JobPage:
    """Read a job for its page.

    Raises:
        UnknownJob: there is no such job.
        StoreError: a payload is gone.
    """
    record = build_record(store, job_id)
    report = build_report(record)
    open_handoffs: dict[HandoffId, HandoffInfo] = {}
    if not report.status.has_ended:
        for handoff_id, info in record.handoffs.items():
            if info.state in ("issued", "running"):
                open_handoffs[handoff_id] = info
    steps = _list_open_steps(store, record, open_handoffs)
    return JobPage(record, report, tuple(steps), len(open_handoffs) - len(steps))


def _list_open_steps(
    store: Store, record: JobRecord, open_handoffs: Mapping[HandoffId, HandoffInfo]
) -> list[OpenStep]:
    """Return the first `MAX_OPEN` open handoffs, each with its activity or its reason to wait."""
    if not open_handoffs:
        return []
    served = store.presence.load_served_specialists()
    load = store.fleet_load.now()
    agents: dict[HandoffId, str] = {}
    for recorded in record.journal:
        if isinstance(recorded.event, HandoffIssued):
            agents[recorded.event.handoff_id] = recorded.event.assigned_to
    steps: list[OpenStep] = []
    for handoff_id, info in list(open_handoffs.items())[:MAX_OPEN]:
        steps.append(_build_open_step(handoff_id, agents[handoff_id], info, served, load))
    return steps


def _build_open_step(
    handoff_id: str,
    agent: str,
    info: HandoffInfo,
    served: dict[str, ServedSpecialist],
    load: FleetLoad,
) -> OpenStep:
    if info.state == "running":
        doing = info.doing or "works"
        return OpenStep(handoff_id, "running", f"{doing}, on {info.worker}")
    return OpenStep(handoff_id, "queued", _explain_wait(agent, info, served, load))


def _explain_wait(
    agent: str, info: HandoffInfo, served: dict[str, ServedSpecialist], load: FleetLoad
) -> str:
    """Return the reason why a handoff waits."""
    if info.deferred_until is not None and info.doing.startswith(WAITS_FOR):
        return info.doing
    if info.deferred_until is not None:
        left_s = max(0, round(info.deferred_until - load.at))
        return f"waits {left_s} s for its provider: {info.doing}"
    if agent in load.paused:
        return f"waits for {agent}, which is paused"
    if info.waits:
        return "waits, because its message is a dead letter"
    if info.lost:
        return "its message or its worker was lost, and the sweeper publishes it again"
    return _describe_awaited_processes(agent, served, load)


def _describe_awaited_processes(
    agent: str, served: dict[str, ServedSpecialist], load: FleetLoad
) -> str:
    """Return the processes that an unclaimed handoff of an agent waits for."""
    if agent == CHILD_JOB_SPECIALIST:
        return "waits for a supervisor, which begins its child job"
    if agent in ROLES and not load.supervisors:
        return "waits for a supervisor, and none runs"
    if agent in ROLES:
        busy = load.count_busy_slots(ROLES_QUEUE)
        return f"waits for a supervisor: {busy} of {load.role_slots} slots for roles are busy"
    if agent in served:
        busy = load.count_busy_slots(agent)
        return f"waits for {agent}: {busy} of {served[agent].slots} slots are busy"
    return f"waits for {agent}, which no worker serves"


@router.get("")
async def job(request: Request, visit: Reads, job_id: VisibleJob) -> Response:
    """Show a job."""
    page = await run_in_threadpool(read_job, visit.access.store, job_id)
    documents = await run_in_threadpool(
        list_documents, visit.access.store, job_id, 0, MAX_ON_THE_JOB_PAGE, has_children=False
    )
    return await run_in_threadpool(
        render, request, "job.html", visit, page=page, documents=documents
    )


@router.get("/live")
async def live(visit: Reads, job_id: VisibleJob) -> dict[str, Any]:
    """Return the parts of the page that change: HTML, and the data of the drawing."""
    page = await run_in_threadpool(read_job, visit.access.store, job_id)

    def parts() -> dict[str, Any]:
        return {
            "version": page.record.job.version,
            "status": page.report.status.value,
            "html": create_environment().get_template("job_live.html").render(page=page),
            "drawing": page.drawing(),
        }

    return await run_in_threadpool(parts)


@router.get("/handoffs/{handoff_id}")
async def handoff(visit: Reads, job_id: VisibleJob, handoff_id: str) -> dict[str, Any]:
    """Return the message, the result and the turns of one handoff."""
    report = await find_handoff(visit.access, job_id, handoff_id)
    return report.model_dump(mode="json")


@router.get("/events")
async def events(
    visit: Reads, job_id: VisibleJob, after: Version = 0, last_event_id: LastEventId = None
) -> Response:
    """Stream a server-sent event for each batch of events: its last version and type.

    The page then asks for the parts that changed. `/v1/jobs/{job_id}/events` has all events.
    """
    start = last_event_id if last_event_id is not None else after
    texts = _iterate_last_events(visit, job_id, start)
    return await stream_until_end(visit.access, job_id, start, texts)


async def _iterate_last_events(visit: Visit, job_id: JobId, after: int) -> AsyncIterator[str]:
    async for batch in visit.access.jobs.event_batches(job_id, after, wait_s=HEARTBEAT_S):
        if batch:
            yield f"id: {batch[-1].version}\ndata: {batch[-1].event.type}\n\n"
        else:
            yield ": heartbeat\n\n"


@router.post("/cancel")
async def cancel(visit: Operates, job_id: VisibleJob) -> Response:
    """Cancel the job."""
    await visit.access.jobs.cancel(job_id)
    return go_to(f"/jobs/{job_id}")


@router.post("/retry")
async def retry(request: Request, visit: Operates, job_id: VisibleJob) -> Response:
    """Repeat the job from a step, or its failed steps and gaps, and raise its limits."""
    form = await request.form()
    limits: dict[str, int] = {}
    for name, amount in HIGHER_LIMITS.items():
        text = str(form.get(name, "")).strip()
        if text:
            limits[amount.limit] = amount.parse(name, text)
    from_step = str(form.get("from_step", "")) or None
    await visit.access.jobs.retry(job_id, from_step, NewLimits(**limits))
    return go_to(f"/jobs/{job_id}")


@router.post("/say")
async def say(request: Request, visit: Operates, job_id: VisibleJob) -> Response:
    """Send a message to the agents of the job, or of one step."""
    form = await request.form()
    step = str(form.get("step", "")) or None
    await visit.access.jobs.say(job_id, str(form.get("text", "")), step)
    return go_to(f"/jobs/{job_id}")


@router.post("/approve")
async def approve(request: Request, visit: Operates, job_id: VisibleJob) -> Response:
    """Approve the question that the page showed."""
    form = await request.form()
    await visit.access.jobs.approve(job_id, _get_note(form), question=parse_question_version(form))
    return go_to(f"/jobs/{job_id}")


@router.post("/reject")
async def reject(request: Request, visit: Operates, job_id: VisibleJob) -> Response:
    """Reject the question that the page showed."""
    form = await request.form()
    await visit.access.jobs.reject(job_id, _get_note(form), question=parse_question_version(form))
    return go_to(f"/jobs/{job_id}")


def _get_note(form: FormData) -> str | None:
    return str(form.get("note", "")).strip() or None
