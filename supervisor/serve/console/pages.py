"""Pages of the console: templates, headers and errors. All texts are escaped.

The content security policy allows files of this server only: no inline script and no inline
style. So a text that became markup by mistake still runs no script.
"""

from __future__ import annotations

import hashlib
import time
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from handoff_queue.shared.text.times import format_utc
from handoff_queue.supervisor.serve.console.session import (
    BROWSER_COOKIE,
    Visit,
    get_browser,
    make_csrf_token,
    set_cookie,
)
from handoff_queue.supervisor.serve.problem_documents import Problem, build_response
from handoff_queue.supervisor.text.sanitizing import replace_unsafe

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "same-origin",
}
"""A stricter Referrer-Policy would make the header Origin of forms `null`."""
_CONSOLE, _TRACING = "handoff_queue.supervisor.serve.console", "handoff_queue.supervisor.tracing"
STATIC = {
    "console.css": (_CONSOLE, "static/console.css"),
    "console.js": (_CONSOLE, "static/console.js"),
    "job.js": (_CONSOLE, "static/job.js"),
    "shared.css": (_TRACING, "shared.css"),
    "trace.css": (_TRACING, "page.css"),
    "drawing.js": (_TRACING, "drawing.js"),
    "timeline.js": (_TRACING, "timeline.js"),
    "icon.svg": (_CONSOLE, "static/icon.svg"),
    "jobs.js": (_CONSOLE, "static/jobs.js"),
}
"""The package and the path of each static file. The page of a job draws with the scripts of the
page of `handoff trace`.
"""
API = "/v1"


@cache
def read_static_file(name: str) -> tuple[bytes, str]:
    """Return the content of a static file, and a text that changes with the content.

    Raises:
        KeyError: there is no such file.
    """
    package, path = STATIC[name]
    content = files(package).joinpath(path).read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:12]


def build_static_url(name: str) -> str:
    """Return the URL of a static file. It changes with the content."""
    return f"/static/{name}?v={read_static_file(name)[1]}"


def _without_control_characters(value: object) -> object:
    """Return a value as the page shows it: a text without control characters."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return replace_unsafe(value)
    return value


def format_money(usd: float | None) -> str:
    """Return an amount for a table. None: the price is not known."""
    if usd is None:
        return "not known"
    return f"${usd:,.4f}"


def format_figure(number: float) -> str:
    """Return a number with a comma after each three digits."""
    return f"{number:,}"


def quote_path_segment(name: str) -> str:
    """Return a name as one segment of the path of a URL."""
    return quote(name, safe="")


def format_duration(seconds: float | None) -> str:
    """Return a duration with its largest units."""
    if seconds is None:
        return ""
    if 0.05 <= seconds < 1:
        return f"{seconds:.1f} s"
    whole_seconds = max(0, round(seconds))
    if whole_seconds < 60:
        return f"{whole_seconds} s"
    if whole_seconds < 3_600:
        return f"{whole_seconds // 60} min {whole_seconds % 60} s"
    if whole_seconds < 86_400:
        return f"{whole_seconds // 3_600} h {whole_seconds % 3_600 // 60} min"
    return f"{whole_seconds // 86_400} d {whole_seconds % 86_400 // 3_600} h"


def format_iso(unix_s: float | None) -> str:
    """Return a time as ISO 8601 in UTC, to the second, for the attribute `datetime`."""
    if unix_s is None:
        return ""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))


@cache
def create_environment() -> Environment:
    """Return the templates. Every value is escaped, and a missing value is an error."""
    templates = Environment(
        loader=PackageLoader("handoff_queue.supervisor.serve.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["static_url"] = build_static_url
    templates.filters["money"] = format_money
    templates.filters["figure"] = format_figure
    templates.filters["duration"] = format_duration
    templates.filters["utc"] = format_utc
    templates.filters["iso"] = format_iso
    templates.filters["path_segment"] = quote_path_segment
    return templates


def render(
    request: Request,
    template: str,
    visit: Visit | None = None,
    status: int = 200,
    headers: dict[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    """Return a page.

    Args:
        visit: None for a page that needs no login.
    """
    browser = visit.browser if visit else get_browser(request)
    csrf = visit.csrf if visit else make_csrf_token(browser, "")
    text = (
        create_environment()
        .get_template(template)
        .render(visit=visit, csrf=csrf, path=request.url.path, **values)
    )
    response = HTMLResponse(text, status, {**HEADERS, **(headers or {})})
    if request.cookies.get(BROWSER_COOKIE) != browser:
        set_cookie(request, response, BROWSER_COOKIE, browser)
    return response


def go_to(path: str) -> RedirectResponse:
    """Return a redirection to a page, which the browser loads with GET."""
    return RedirectResponse(path, 303, HEADERS)


def wants_page(request: Request) -> bool:
    """Return whether a browser asks for a page of the console."""
    path = request.url.path
    is_api = path == API or path.startswith(f"{API}/")
    return not is_api and "text/html" in request.headers.get("accept", "")


def respond(request: Request, problem: Problem) -> Response:
    """Return a problem as a page of the console, or as a problem document.

    A browser without a valid login goes to the page for the login.
    """
    if not wants_page(request):
        return build_response(problem)
    if problem.status == HTTPStatus.UNAUTHORIZED and request.method == "GET":
        target = request.url.path
        if request.url.query:
            target += f"?{request.url.query}"
        return go_to(f"/login?next={quote(target, safe='/')}")
    return render(
        request,
        "problem.html",
        getattr(request.state, "visit", None),
        status=problem.status,
        headers=problem.headers,
        title=HTTPStatus(problem.status).phrase,
        detail=problem.detail,
    )
