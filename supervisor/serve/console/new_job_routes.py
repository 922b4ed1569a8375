"""The form for a new job: the fields of `handoff run`, documents, and the quote first. Other forms
use its amounts, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.datastructures import FormData, UploadFile

from handoff_queue.shared.text.times import DurationRange, InvalidDuration
from handoff_queue.shared.types.errors import Conflict, HandoffError, StoreUnavailable, UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Mode, Priority
from handoff_queue.shared.types.json_values import refuse_repeats
from handoff_queue.shared.types.limits import MAX_SECONDS, MAX_USD
from handoff_queue.supervisor.client.cost_quotes import as_quoted
from handoff_queue.supervisor.serve.authentication import Access
from handoff_queue.supervisor.serve.console.pages import go_to, render
from handoff_queue.supervisor.serve.console.session import Submits, Visit
from handoff_queue.supervisor.serve.job_routes import prepare_request
from handoff_queue.supervisor.serve.problem_documents import Problem, convert_error, get_name
from handoff_queue.supervisor.serve.request_body import JobBody, decode_documents, parse_body

_AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class AmountField:
    """A field of a form with an amount."""

    limit: str
    """The limit of the job that the field sets."""
    factor: int
    """Units of the limit in one unit of the field."""
    most: int
    """The largest amount, in units of the field."""
    example: str

    def parse(self, name: str, text: str) -> int:
        """Return the limit for the text of a field.

        Args:
            name: name of the field, for the problem.

        Raises:
            Problem: the text is not a number, or out of range.
        """
        if not _AMOUNT.fullmatch(text) or not 0 < float(text) <= self.most:
            problem = f"write a number above 0 and up to {self.most:,}, such as {self.example}"
            raise Problem(422, problem, errors=[(f"#/{name}", problem)])
        return max(1, round(float(text) * self.factor))


LABELS = {
    "text": "Request",
    "mode": "Mode",
    "priority": "Priority",
    "deadline": "Deadline of a job with the priority batch, such as 6h",
    "tenant": "Tenant",
    "specialists": "Only these specialists, separated by commas",
    "model": "Model of every agent",
    "workflow": "Name of a built-in workflow",
    "after": "Continue the job with this id",
    "max_usd": "Budget in US dollars",
    "max_minutes": "Longest time in minutes",
    "webhook_url": "URL that gets a POST at the end",
    "more": "Further fields of a job as JSON",
}
"""The labels of the form. The errors of the form name them."""
TEXTS = ("text", "mode", "priority", "tenant", "model", "workflow", "after", "webhook_url")
"""Fields of `JobBody` that the form has as a text. '' leaves the field out."""
OTHERS = ("deadline", "specialists", "max_usd", "max_minutes", "more")
"""Other fields of the form with a text."""
AMOUNTS = {
    "max_usd": AmountField("max_microusd", 1_000_000, MAX_USD, "2.50"),
    "max_minutes": AmountField("max_seconds", 60, MAX_SECONDS // 60, "5"),
}
"""Fields with an amount."""
_DEADLINE = DurationRange(1, MAX_SECONDS, is_whole=True)
"""Parser of the deadline, as of `--deadline`."""

router = APIRouter(prefix="/new", include_in_schema=False)


@router.get("")
async def new(request: Request, visit: Submits) -> Response:
    """Show the form."""
    return _render_page(request, visit, dict.fromkeys((*TEXTS, *OTHERS), ""), ())


@router.post("")
async def submit(request: Request, visit: Submits) -> Response:
    """Submit the job, or ask for its quote first. A mistake leads back to the form."""
    async with request.form() as form:
        return await _submit_and_respond(request, visit, form)


async def _submit_and_respond(request: Request, visit: Visit, form: FormData) -> Response:
    """Submit the job of a form and go to its page, or show the form again with its problems."""
    documents: dict[str, bytes] = {}
    for part in form.getlist("documents"):
        if isinstance(part, UploadFile) and part.filename:
            documents[part.filename] = await part.read()
    try:
        job_id = await visit.access.in_turn(_submit, visit.access, form, documents)
    except (Conflict, StoreUnavailable):
        raise
    except (Problem, HandoffError) as error:
        texts = {name: _get_text(form, name) for name in (*TEXTS, *OTHERS)}
        chosen_subjects = tuple(map(str, form.getlist("approve")))
        return _render_page(request, visit, texts, chosen_subjects, convert_error(error))
    return go_to(f"/jobs/{job_id}")


def _render_page(
    request: Request,
    visit: Visit,
    texts: dict[str, str],
    chosen_subjects: tuple[str, ...],
    problem: Problem | None = None,
) -> Response:
    problems: list[str] = []
    status = 200
    if problem is not None:
        problems = list(_iterate_problem_lines(problem, texts))
        status = problem.status
    return render(
        request,
        "new.html",
        visit,
        status=status,
        texts=texts,
        labels=LABELS,
        chosen_subjects=chosen_subjects,
        problems=problems,
        modes=list(Mode),
        priorities=list(Priority),
        subjects=[subject for subject in ApprovalOf if subject is not ApprovalOf.COST],
    )


def _iterate_problem_lines(problem: Problem, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield one line for each problem. A field of the form has the name of its label, and a field
    that came as JSON has its own name.
    """
    for pointer, text in problem.errors:
        name = get_name(pointer)
        if name in LABELS and (name == "text" or texts[name]):
            name = LABELS[name]
        yield f"{name}: {text}" if name else text
    if not problem.errors:
        yield from problem.detail.splitlines()


def _submit(access: Access, form: FormData, documents: dict[str, bytes]) -> JobId:
    """Submit the job of a form, as `POST /v1/jobs` does.

    Raises:
        Problem, UserError: a field cannot be used.
    """
    body = parse_body(json.dumps(_build_fields(form)).encode(), JobBody)
    request, _ = prepare_request(access, body, decode_documents(body) | documents)
    if form.get("quote"):
        request = as_quoted(request)
    return access.client.submit(request)


def _build_fields(form: FormData) -> dict[str, Any]:
    """Return the fields of `JobBody`. Fields of the form replace the fields in `more`."""
    fields: dict[str, Any] = {}
    more = _get_text(form, "more")
    if more:
        fields = _parse_object(more)
    for name in TEXTS:
        text = _get_text(form, name)
        if text:
            fields[name] = text
    fields.setdefault("text", "")
    specialists = _get_text(form, "specialists").replace(",", " ").split()
    if specialists:
        fields["specialists"] = specialists
    deadline = _get_text(form, "deadline")
    if deadline:
        has_time_limit = bool(_get_text(form, "max_minutes"))
        fields["deadline_s"] = _parse_deadline(deadline, has_time_limit=has_time_limit)
    limits: dict[str, int] = {}
    for name, amount in AMOUNTS.items():
        text = _get_text(form, name)
        if text:
            limits[amount.limit] = amount.parse(name, text)
    if limits:
        _merge(fields, "limits", limits)
    subjects = [str(subject) for subject in form.getlist("approve")]
    if subjects:
        _merge(fields, "approvals", {"what": subjects})
    return fields


def _parse_deadline(text: str, *, has_time_limit: bool) -> float:
    """Return a deadline in seconds.

    Args:
        has_time_limit: True if the form has a longest time, too.

    Raises:
        Problem: the text is not a duration, or out of range.
        UserError: the form has two time limits.
    """
    if has_time_limit:
        raise UserError("Longest time in minutes and Deadline exclude each other: leave one out")
    try:
        return _DEADLINE(text)
    except InvalidDuration as error:
        raise Problem(422, str(error), errors=[("#/deadline", str(error))]) from error


def _merge(fields: dict[str, Any], name: str, values: dict[str, Any]) -> None:
    """Set values of a field that is an object."""
    earlier = fields.get(name) or {}
    if not isinstance(earlier, dict):
        raise UserError(f"{name}: must be an object, not {earlier!r:.80}")
    fields[name] = earlier | values


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        refuse_repeats(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"the further fields are not JSON ({error}): write an object such as"
            f' {{"max_rounds": 1}}, not {text!r:.80}'
        ) from error
    if not isinstance(value, dict):
        raise UserError(
            f'the further fields are not a JSON object such as {{"max_rounds": 1}}: {text!r:.80}'
        )
    return value


def _get_text(form: FormData, name: str) -> str:
    value = form.get(name, "")
    if isinstance(value, UploadFile):
        return ""
    return value.strip()
