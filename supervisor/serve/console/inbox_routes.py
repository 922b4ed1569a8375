"""The inbox: jobs that wait for a person, with an editor for plans."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import JsonValue
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.types.errors import Conflict, HandoffError, UnknownJob, UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import is_job_id
from handoff_queue.shared.types.json_values import refuse_repeats
from handoff_queue.supervisor.client.job_result import JobResult, read_report
from handoff_queue.supervisor.client.tool_call_approvals import describe_subject
from handoff_queue.supervisor.client.waiting_reasons import find_open_questions
from handoff_queue.supervisor.serve.approval_questions import (
    format_json,
    list_arguments,
    select_open_questions,
)
from handoff_queue.supervisor.serve.authentication import Access
from handoff_queue.supervisor.serve.console.pages import go_to, render
from handoff_queue.supervisor.serve.console.session import Operates, Reads, VisibleJob, Visit

MAX_JOBS = 50
"""Jobs of the page, the newest first."""

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waits for a person."""

    job: JobInfo
    tenant: str
    reasons: tuple[str, ...]


@router.get("/inbox")
async def inbox(request: Request, visit: Reads) -> Response:
    """Show the jobs that wait for a person."""
    now, waiting = await run_in_threadpool(_list_waiting_jobs, visit.access)
    decided = request.query_params.get("decided", "")
    if not is_job_id(decided):
        decided = ""
    return render(
        request, "inbox.html", visit, waiting=waiting, now=now, most=MAX_JOBS, decided=decided
    )


def _list_waiting_jobs(access: Access) -> tuple[float, list[WaitingJob]]:
    where = JobFilter(frozenset({JobStatus.WAITING}), access.tenant)
    jobs = access.store.jobs
    waiting: list[WaitingJob] = []
    job_infos = jobs.read(jobs.list_newest(MAX_JOBS, where))
    labels = jobs.read_labels([job.job_id for job in job_infos])
    for job in job_infos:
        reasons = tuple(reason.awaited for reason in find_open_questions(job))
        waiting.append(WaitingJob(job, labels[job.job_id].tenant, reasons))
    return access.store.connection.now(), waiting


@router.get("/inbox/{job_id}")
async def question(request: Request, visit: Operates, job_id: VisibleJob) -> Response:
    """Show the questions of a job, with an editor for a plan or for the arguments of a call."""
    report = await run_in_threadpool(read_report, visit.access.store, job_id)
    return _render_page(request, visit, report, _EditorTexts(_format_plan(report)))


@router.post("/inbox/{job_id}")
async def decide(request: Request, visit: Operates, job_id: VisibleJob) -> Response:
    """Approve or reject a question. A mistake in the plan or in the arguments leads back to the
    editor.
    """
    form = await request.form()
    text, note = str(form.get("plan", "")), str(form.get("note", "")).strip()
    arguments_text = str(form.get("arguments", ""))
    report = await run_in_threadpool(read_report, visit.access.store, job_id)
    question_version = parse_question_version(form)
    is_edited = bool(text.strip()) and _split_lines(text) != _split_lines(_format_plan(report))
    try:
        plan = parse_json(text, "the plan is") if is_edited else None
        if form.get("decision") == "approve":
            arguments = _parse_edited_arguments(report, question_version, arguments_text)
            await visit.access.jobs.approve(
                job_id, note or None, plan, question=question_version, arguments=arguments
            )
        else:
            await visit.access.jobs.reject(
                job_id, note or None, plan=plan, question=question_version
            )
    except (UnknownJob, Conflict):
        raise
    except UserError as error:
        return _render_page(
            request,
            visit,
            report,
            _EditorTexts(text, note, question_version, arguments_text),
            error,
        )
    return go_to(f"/inbox?decided={job_id}")


def parse_question_version(form: FormData) -> int | None:
    """Return the version of the question that the page showed. None: the form has none."""
    version = str(form.get("question", ""))
    return int(version) if re.fullmatch(r"[0-9]{1,15}", version) else None


def parse_json(text: str, subject: str) -> JsonValue:
    """Return the value of an editor.

    Args:
        subject: beginning of the error, such as `the plan is`.

    Raises:
        UserError: the text is not JSON, or an object repeats a name.
    """
    try:
        value: JsonValue = json.loads(text)
        refuse_repeats(text)
    except RecursionError as error:
        raise UserError(f"{subject} not JSON: it is nested too deeply: write it flatter") from error
    except ValueError as error:
        raise UserError(f"{subject} not JSON: {error}: correct {text!r:.80}") from error
    return value


def _parse_edited_arguments(
    report: JobResult, question_version: int | None, text: str
) -> JsonValue:
    """Return the arguments of the editor. None: the question is about no call, or the person
    changed nothing.
    """
    for entry in select_open_questions(report):
        if entry["version"] == question_version and entry["call"] is not None:
            if not text.strip() or _split_lines(text) == _split_lines(
                format_arguments(entry["call"])
            ):
                return None
            return parse_json(text, "the arguments are")
    return None


def format_arguments(call: dict[str, Any]) -> str:
    """Return the arguments of a call as text for the editor."""
    return format_json(call["arguments"], indent=2)


@dataclass(frozen=True, slots=True)
class _EditorTexts:
    """The texts of the editors."""

    plan: str
    note: str = ""
    question_version: int | None = None
    """The question that the note and the arguments are for. None: no question."""
    arguments: str = ""


def _render_page(
    request: Request,
    visit: Visit,
    report: JobResult,
    texts: _EditorTexts,
    error: HandoffError | None = None,
) -> Response:
    problems: list[str] = []
    status = 200
    if error is not None:
        problems, status = str(error).splitlines(), 422
    return render(
        request,
        "question.html",
        visit,
        status=status,
        report=report,
        questions=select_open_questions(report),
        texts=texts,
        arguments_of=list_arguments,
        arguments_text=format_arguments,
        subject_of=describe_subject,
        problems=problems,
    )


def _is_about_plan(report: JobResult) -> bool:
    return any(entry["what"] == "plan" for entry in select_open_questions(report))


def _format_plan(report: JobResult) -> str:
    """Return the plan as text for the editor; '' if the question is not about the plan."""
    if report.plan is None or not _is_about_plan(report):
        return ""
    return json.dumps(report.plan, ensure_ascii=False, indent=2)


def _split_lines(text: str) -> list[str]:
    """Return the lines of a text. A browser ends each line with a carriage return, too."""
    return text.strip().splitlines()
