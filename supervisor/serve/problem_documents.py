"""Errors of the HTTP API as problem documents of RFC 9457, with the texts of the commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.types.errors import (
    BudgetSpent,
    Conflict,
    HandoffError,
    ManyProblems,
    NoTenantKey,
    PlanRefused,
    ScheduleExists,
    StoreUnavailable,
    TooManyOpenJobs,
    UnknownJob,
    UnknownSchedule,
    UserError,
    VersionConflict,
)
from handoff_queue.shared.types.message import describe_problem, iterate_problems, with_value
from handoff_queue.supervisor.client.event_hub import FollowingEnded
from handoff_queue.supervisor.serve.security_headers import HEADERS

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5
"""Seconds after which a client tries again while Redis is away."""
CONNECT_AFTER_S = 1
"""Seconds after which a client connects again while this server stops."""
JOB_ENDS_AFTER_S = 30
"""Seconds after which a client tries again while its tenant has too many open jobs."""
BUDGET_SPENT, TOO_MANY_JOBS = "budget-spent", "too-many-open-jobs"
DAY_S = 86_400
METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
KINDS = {
    400: "bad-request",
    401: "no-token",
    403: "forbidden",
    404: "not-found",
    405: "no-such-method",
    409: "conflict",
    413: "too-large",
    415: "wrong-media-type",
    422: "invalid",
    429: "too-many-requests",
    500: "internal-error",
    503: "unavailable",
}
"""The last part of `type`, by status. `convert_error` has the other types."""

log = get_log(__name__)


class FieldProblem(BaseModel):
    """One problem of a field."""

    pointer: str
    """The place of the field: a JSON Pointer into the body, or `#query/NAME`."""
    detail: str


class ProblemDocument(BaseModel):
    """An error (RFC 9457)."""

    type: str
    """The kind of the error, as a URL of the reference page."""
    title: str
    status: int
    detail: str
    """One line for a user: the fault, and how to fix it."""
    errors: list[FieldProblem] = []
    """One entry for each problem of the request."""


class Problem(Exception):
    """An error that becomes a problem document."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: str = "",
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Make the error.

        Args:
            kind: the last part of the type. Default: see `KINDS`.
            errors: place and text of each problem.
            headers: more headers of the response.
        """
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind or KINDS.get(status, "error")
        self.errors = tuple(errors)
        self.headers = dict(headers or {})

    def build_document(self) -> dict[str, Any]:
        """Return the problem document."""
        document: dict[str, Any] = {
            "type": f"/v1/reference#{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            document["errors"] = [
                {"pointer": pointer, "detail": detail} for pointer, detail in self.errors
            ]
        return document


def build_validation_problem(error: ValidationError, kind: type[BaseModel]) -> Problem:
    """Return the problem of a body that does not validate. A wrong value is named if it is short
    and plain: see `with_value`.
    """
    errors: list[tuple[str, str]] = []
    for place, text in iterate_problems(error, kind, shows_values=True, is_json=True):
        errors.append((build_pointer(*place), text))
    return _build_field_problem(errors)


def build_pointer(*place: str) -> str:
    """Return the JSON Pointer (RFC 6901) to a place in the body, from the outermost field."""
    names = [name.replace("~", "~0").replace("/", "~1") for name in place]
    return "/".join(("#", *names))


def get_name(pointer: str) -> str:
    """Return the name of a field for a user, such as `limits.max_turns`; '' for the whole body."""
    names = pointer.removeprefix("#").strip("/").split("/")
    return ".".join(name.replace("~1", "/").replace("~0", "~") for name in names)


def _build_field_problem(errors: Sequence[tuple[str, str]]) -> Problem:
    """Return the problem of fields.

    Args:
        errors: the pointer and the text of each problem.
    """
    pointer, first = errors[0]
    more = ""
    if len(errors) > 1:
        more = f" (and {len(errors) - 1} more)"
    name = get_name(pointer)
    detail = f"{name}: {first}{more}" if name else f"the body {first}{more}"
    return Problem(422, detail, errors=errors)


def convert_error(  # noqa: C901, PLR0911, PLR0912 (one line for each kind)
    error: Problem | HandoffError,
) -> Problem:
    """Return the problem of an error that the client library or a check of this server raises."""
    text = str(error)
    match error:
        case Problem():
            return error
        case PlanRefused():
            errors = [(build_pointer("plan", *place), problem) for problem, place in error.problems]
            return Problem(422, text, errors=errors)
        case ManyProblems():
            return Problem(422, text, errors=[("#", line) for line in text.splitlines()])
        case UnknownJob():
            return Problem(404, text, kind="unknown-job")
        case UnknownSchedule():
            return Problem(404, text)
        case Conflict() | VersionConflict() | ScheduleExists():
            return Problem(409, text)
        case BudgetSpent():
            left_s = DAY_S - int(time.time()) % DAY_S
            return try_later(429, text, left_s, kind=BUDGET_SPENT)
        case TooManyOpenJobs():
            return try_later(429, text, JOB_ENDS_AFTER_S, kind=TOO_MANY_JOBS)
        case NoTenantKey():
            return Problem(503, text)
        case FollowingEnded():
            return try_later(503, "the server stops: connect again", CONNECT_AFTER_S)
        case StoreUnavailable():
            return try_later(503, text, RETRY_AFTER_S)
        case UserError():
            return Problem(400, text)
        case _:
            return Problem(500, text)


def try_later(status: int, detail: str, wait_s: int, *, kind: str = "") -> Problem:
    """Return a problem that a later request does not have.

    Args:
        wait_s: seconds after which the client tries again.
        kind: as of `Problem`.
    """
    return Problem(status, detail, kind=kind, headers={"Retry-After": str(wait_s)})


def build_response(problem: Problem) -> JSONResponse:
    """Return the response of a problem."""
    return JSONResponse(
        problem.build_document(),
        problem.status,
        {**HEADERS, **problem.headers},
        media_type=MEDIA_TYPE,
    )


def convert_all_errors(app: FastAPI, respond: Callable[[Request, Problem], Response]) -> None:
    """Make every error of an application a problem.

    Args:
        respond: returns the response of a problem.
    """

    async def on_problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return respond(request, error)

    async def on_known_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HandoffError)
        problem = convert_error(error)
        if problem.status >= 500:
            log.warning("a request failed", path=request.url.path, error=str(error))
        return respond(request, problem)

    async def on_parameters(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return respond(request, _build_parameter_problem(error))

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = _HTTP_DETAILS.get(error.status_code, str(error.detail))
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(list_methods(request))
        return respond(request, Problem(error.status_code, detail, headers=headers))

    async def on_defect(request: Request, error: Exception) -> Response:
        log.error("a request failed", path=request.url.path, error=type(error).__name__)
        return respond(
            request, Problem(500, f"an internal error, please report it: {type(error).__name__}")
        )

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(HandoffError, on_known_error)
    app.add_exception_handler(RequestValidationError, on_parameters)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(Exception, on_defect)


def list_methods(request: Request) -> list[str]:
    """Return the methods that the resource of a request takes. A resource can have a route for
    each method.
    """
    methods: list[str] = []
    for method in METHODS:
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            methods.append(method)
    return methods


_HTTP_DETAILS = {
    404: "there is no such resource: /v1/reference lists all resources",
    405: "this resource does not take this method: /v1/reference lists all methods",
}


def _build_parameter_problem(error: RequestValidationError) -> Problem:
    """Return the problem of parameters in the path, the query or the headers."""
    errors: list[tuple[str, str]] = []
    for problem in error.errors():
        place = "/".join(map(str, problem["loc"]))
        text = describe_problem(problem["type"], problem["msg"])
        errors.append((f"#{place}", with_value(text, problem["input"])))
    return _build_field_problem(errors)
