"""The table of jobs: filters in the URL of the page, counts, live rows, actions on many jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams

from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.jobs import JobLabels
from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId, is_job_id
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.client.waiting_reasons import with_waiting
from handoff_queue.supervisor.serve.authentication import Access, check_visible
from handoff_queue.supervisor.serve.console.pages import create_environment, render
from handoff_queue.supervisor.serve.console.session import Operates, Reads
from handoff_queue.supervisor.serve.job_routes import build_cursor, is_cursor, parse_cursor
from handoff_queue.supervisor.serve.problem_documents import Problem
from handoff_queue.supervisor.serve.request_body import read_body

ROWS = 50
"""Jobs of one page."""
MAX_IDS = 500
"""Most jobs of one answer of `/jobs/ids`."""
MAX_ACTIONS = 50
"""Most jobs of one request for an action."""

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class JobRow:
    """One row of the table."""

    job: JobInfo
    labels: JobLabels
    why_failed: str = ""
    """Reason why the job failed; empty if it did not."""

    @property
    def usd(self) -> float | None:
        return to_usd(self.job.cost_microusd)

    @property
    def tokens(self) -> int:
        return self.job.input_tokens + self.job.output_tokens


class Action(StrEnum):
    """An action on many jobs."""

    CANCEL = "cancel"
    RETRY = "retry"
    APPROVE = "approve"


class ActionBody(BaseModel):
    """An action, and its jobs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Action
    jobs: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_ACTIONS)]


def build_rows(access: Access, job_ids: list[JobId]) -> list[JobRow]:
    """Return the rows of jobs, with the reasons to wait or to fail."""
    job_infos = with_waiting(access.store, access.store.jobs.read(job_ids))
    labels = access.store.jobs.read_labels([job.job_id for job in job_infos])
    failed_jobs = [job.job_id for job in job_infos if job.status is JobStatus.FAILED]
    reasons: Mapping[JobId, str] = {}
    if failed_jobs:
        reasons = access.store.journal.read_end_reasons(failed_jobs)
    return [JobRow(job, labels[job.job_id], reasons.get(job.job_id, "")) for job in job_infos]


@router.get("/")
async def jobs(request: Request, visit: Reads) -> Response:
    """Show the jobs that match the filter in the URL, the newest first."""
    url_filter = parse_filter(request.query_params, visit.access.tenant)
    now, rows, place = await run_in_threadpool(_read_page, visit.access, url_filter)
    served = await run_in_threadpool(visit.access.store.presence.load_served_specialists)
    cursor = build_cursor(place)
    return render(
        request,
        "jobs.html",
        visit,
        filter=url_filter,
        rows=rows,
        now=now,
        next_page=url_filter.build_query(cursor) if cursor else "",
        statuses=list(JobStatus),
        modes=list(Mode),
        priorities=list(Priority),
        specialists=sorted(served),
        ages=AGES,
    )


def _read_page(access: Access, url_filter: UrlFilter) -> tuple[float, list[JobRow], str]:
    """Return the time by Redis's clock, the rows, and the place of the next page."""
    now = access.store.connection.now()
    where = url_filter.build_filter(now)
    job_ids, place = access.store.jobs.read_page(where, ROWS, parse_cursor(url_filter.cursor))
    return now, build_rows(access, job_ids), place


@router.get("/jobs/counts")
async def counts(request: Request, visit: Reads) -> dict[JobStatus, int]:
    """Return the number of jobs of each status. The filter's own statuses do not matter."""
    url_filter = parse_filter(request.query_params, visit.access.tenant)
    everywhere = UrlFilter(frozenset(), url_filter.texts, "")
    return await run_in_threadpool(_read_counts, visit.access, everywhere)


def _read_counts(access: Access, url_filter: UrlFilter) -> dict[JobStatus, int]:
    return access.store.jobs.count_by_status(url_filter.build_filter(access.store.connection.now()))


@router.get("/jobs/ids")
async def ids(request: Request, visit: Reads) -> dict[str, Any]:
    """Return a page of the ids of the jobs that match, for an action on every match."""
    url_filter = parse_filter(request.query_params, visit.access.tenant)
    job_ids, place = await run_in_threadpool(_read_ids, visit.access, url_filter)
    return {"jobs": job_ids, "next_cursor": build_cursor(place)}


def _read_ids(access: Access, url_filter: UrlFilter) -> tuple[list[JobId], str]:
    where = url_filter.build_filter(access.store.connection.now())
    return access.store.jobs.read_page(where, MAX_IDS, parse_cursor(url_filter.cursor))


@router.get("/jobs/rows")
async def live_rows(
    visit: Reads,
    job: Annotated[list[str], Query(max_length=ROWS)] = [],  # noqa: B006
) -> Response:
    """Return these rows as they are now. Jobs that the user does not see are left out."""
    now, rows = await run_in_threadpool(_read_live_rows, visit.access, job)
    template = create_environment().get_template("job_rows.html")
    text = template.render(rows=rows, now=now, visit=visit)
    return Response(text, media_type="text/html")


def _read_live_rows(access: Access, names: list[str]) -> tuple[float, list[JobRow]]:
    """Return the time by Redis's clock, and the rows of the jobs that the user may see."""
    named_ids = [JobId(name) for name in names if is_job_id(name)]
    owners = access.store.jobs.find_owners(named_ids)
    job_ids: list[JobId] = []
    for job_id, owner in owners.items():
        if access.tenant in (None, owner):
            job_ids.append(job_id)
    return access.store.connection.now(), build_rows(access, job_ids)


@router.post("/jobs/actions")
async def act(request: Request, visit: Operates) -> dict[str, str]:
    """Do an action on each job. Return an error for each job for which it failed."""
    body = await read_body(request, visit.access, ActionBody)
    return await run_in_threadpool(_act_on_jobs, visit.access, body)


def _act_on_jobs(access: Access, body: ActionBody) -> dict[str, str]:
    client = access.client
    actions: dict[Action, Any] = {
        Action.CANCEL: client.cancel,
        Action.RETRY: client.retry,
        Action.APPROVE: client.approve,
    }
    problems: dict[str, str] = {}
    for name in body.jobs:
        try:
            actions[body.action](check_visible(access.caller, access.store, name))
        except HandoffError as error:
            problems[name] = str(error)
    return problems


AGES: Final[Mapping[str, tuple[str, float]]] = {
    "1h": ("1 hour", 3_600),
    "1d": ("1 day", 86_400),
    "7d": ("7 days", 7 * 86_400),
    "30d": ("30 days", 30 * 86_400),
}
"""Words and seconds of each choice of an age."""
NAMES = (
    *("tenant", "mode", "priority", "specialist", "failed_specialist"),
    *("text", "age", "min_usd"),
)
MAX_TEXT_CHARS = 200
"""Most characters of a text in the filter of a URL."""
_AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class UrlFilter:
    """The texts of a filter in a URL. A text is '' for any."""

    statuses: frozenset[JobStatus]
    texts: Mapping[str, str]
    cursor: str

    def build_filter(self, now: float) -> JobFilter:
        """Return the filter of the store.

        Args:
            now: Unix time in seconds by Redis's clock.
        """
        submitted_after = None
        if age := self.texts["age"]:
            submitted_after = now - AGES[age][1]
        min_microusd = None
        if amount := self.texts["min_usd"]:
            min_microusd = round(float(amount) * 1e6)
        return JobFilter(
            statuses=self.statuses,
            tenant=self.texts["tenant"] or None,
            submitted_after=submitted_after,
            mode=self.texts["mode"] or None,
            priority=self.texts["priority"] or None,
            text=self.texts["text"] or None,
            min_microusd=min_microusd,
            specialist=self.texts["specialist"] or None,
            failed_specialist=self.texts["failed_specialist"] or None,
        )

    def build_query(self, cursor: str = "") -> str:
        """Return the query of a URL with this filter, with the cursor of another page."""
        pairs = [("status", str(status)) for status in sorted(self.statuses)]
        for name in NAMES:
            if self.texts[name]:
                pairs.append((name, self.texts[name]))
        if cursor:
            pairs.append(("cursor", cursor))
        return urlencode(pairs)


def parse_filter(params: QueryParams, tenant: str | None) -> UrlFilter:
    """Return the filter of a URL.

    Args:
        tenant: the only tenant that the user sees; None for all tenants.

    Raises:
        Problem: a text is not valid.
    """
    texts = {name: params.get(name, "").strip()[:MAX_TEXT_CHARS] for name in NAMES}
    if tenant is not None:
        texts["tenant"] = tenant
    statuses = set(params.getlist("status")) - {""}
    cursor = params.get("cursor", "")
    checks = {
        "status": statuses <= set(JobStatus),
        "mode": texts["mode"] in {"", *Mode},
        "priority": texts["priority"] in {"", *Priority},
        "age": texts["age"] in {"", *AGES},
        "min_usd": not texts["min_usd"] or _AMOUNT.fullmatch(texts["min_usd"]),
        "cursor": not cursor or is_cursor(cursor),
    }
    for name, is_valid in checks.items():
        if not is_valid:
            raise Problem(422, f"{name}: this value in the address of the page is not valid")
    return UrlFilter(frozenset(map(JobStatus, statuses)), texts, cursor)
