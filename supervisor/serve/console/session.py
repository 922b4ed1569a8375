"""Users of the console: the cookie with a token, and the protection against forged requests.

The server keeps no session. A cookie holds the secret of a token, so that any replica answers,
and a revoked token ends the access at once. No script can read the cookie.

A request that changes something needs two proofs. Its header Origin names this server. It also
has a text that is computed from two cookies, which another site can neither read nor set.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.serve.authentication import (
    FOREIGN_PAGE,
    SAFE_METHODS,
    Access,
    AppState,
    Caller,
    SharedState,
    build_access,
    check_access_level,
    check_visible,
    find_caller,
    get_app_state,
    has_own_origin,
)
from handoff_queue.supervisor.serve.problem_documents import Problem
from handoff_queue.supervisor.serve.proxy_authentication import is_proxy

TOKEN_COOKIE = "handoff_token"  # noqa: S105 (no secret)
BROWSER_COOKIE = "handoff_browser"
"""A random text for each browser. It makes the text against forged requests unpredictable."""
CSRF_FIELD = "csrf"
CSRF_HEADER = "X-CSRF-Token"
COOKIE_S = 30 * 24 * 3600
"""Seconds until a browser forgets its cookies."""
_RANDOM_BYTES = 32
"""Bytes of the random value in the cookie of a browser."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a user of the console."""

    access: Access
    browser: str
    """The random text of the browser."""
    csrf: str
    """The text that each form of the page sends back."""

    @property
    def may_submit(self) -> bool:
        return self.access.caller.level.includes(AccessLevel.SUBMIT)

    @property
    def may_operate(self) -> bool:
        return self.access.caller.level.includes(AccessLevel.OPERATE)

    @property
    def sees_fleet(self) -> bool:
        """Return whether the user sees the parts that concern all tenants."""
        return self.access.tenant is None


def get_browser(request: Request) -> str:
    """Return the random text of a browser. A browser without one gets a new text."""
    known = request.cookies.get(BROWSER_COOKIE, "")
    if len(known) >= _RANDOM_BYTES:
        return known
    return secrets.token_urlsafe(_RANDOM_BYTES)


def make_csrf_token(browser: str, secret: str) -> str:
    """Return the CSRF token of a browser: forged requests do not have it.

    Args:
        secret: the secret of the token, the key of a proxy's user, or ''.
    """
    return hmac.new(secret.encode(), browser.encode(), hashlib.sha256).hexdigest()


def is_https(request: Request) -> bool:
    """Return whether the browser uses https. A proxy may have ended the encryption."""
    if request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:"):
        return True
    settings = get_app_state(request).settings
    is_from_proxy = request.client is not None and is_proxy(request.client.host, settings)
    return is_from_proxy and request.headers.get("x-forwarded-proto") == "https"


def set_cookie(request: Request, response: Response, name: str, value: str) -> None:
    """Set a cookie that no script reads and that no other site sends."""
    response.set_cookie(
        name, value, COOKIE_S, httponly=True, samesite="strict", secure=is_https(request)
    )


async def check_csrf(request: Request, expected: str) -> None:
    """Check that a page of this server sent a request that changes something.

    Args:
        expected: the text that the form or the header must have.

    Raises:
        Problem: the header Origin is missing or names another site, or the page is older than the
            login.
    """
    if not has_own_origin(request):
        raise Problem(403, FOREIGN_PAGE)
    token = request.headers.get(CSRF_HEADER)
    if token is None:
        form = await request.form()
        token = str(form.get(CSRF_FIELD, ""))
    if not hmac.compare_digest(token.encode(), expected.encode()):
        await request.close()  # the files of the form
        raise Problem(403, "this page is older than your login: load the page again")


async def begin_visit(request: Request, state: SharedState) -> Visit:
    """Return the visit of a request, and count the request.

    Raises:
        Problem: as `authenticate_caller`, or the request is forged.
    """
    caller, secret = await _get_caller_and_secret(request, state)
    browser = get_browser(request)
    csrf = make_csrf_token(browser, secret)
    if request.method not in SAFE_METHODS:
        await check_csrf(request, csrf)
    visit = Visit(build_access(caller, state, "console"), browser, csrf)
    request.state.visit = visit  # for the page of an error
    return visit


async def _get_caller_and_secret(request: Request, state: AppState) -> tuple[Caller, str]:
    """Return the caller, and the secret for `make_csrf_token`."""
    secret = request.cookies.get(TOKEN_COOKIE, "")
    try:
        caller = await find_caller(request, state, secret or None)
    except Problem as problem:
        if not secret or problem.status != HTTPStatus.UNAUTHORIZED:
            raise
        secret = ""  # a cookie of another server on this host, or of a revoked token
        caller = await find_caller(request, state, None)
    if caller.user is not None:
        secret = caller.user.key
    return caller, secret


def require_visit(
    level: AccessLevel, *, all_tenants: bool = False
) -> Callable[..., Awaitable[Visit]]:
    """Return a dependency that lets users with this access level or a higher one visit a page.

    Args:
        all_tenants: refuse a token that belongs to one tenant.
    """

    async def check_visit(visit: Annotated[Visit, Depends(begin_visit)]) -> Visit:
        check_access_level(visit.access.caller, level, all_tenants=all_tenants)
        return visit

    return check_visit


Reads = Annotated[Visit, Depends(require_visit(AccessLevel.READ))]
Submits = Annotated[Visit, Depends(require_visit(AccessLevel.SUBMIT))]
Operates = Annotated[Visit, Depends(require_visit(AccessLevel.OPERATE))]
ReadsFleet = Annotated[Visit, Depends(require_visit(AccessLevel.READ, all_tenants=True))]
OperatesFleet = Annotated[Visit, Depends(require_visit(AccessLevel.OPERATE, all_tenants=True))]


async def _find_visible_job(
    visit: Reads, job_id: Annotated[str, Path(description="The id of the job.")]
) -> JobId:
    return await run_in_threadpool(check_visible, visit.access.caller, visit.access.store, job_id)


VisibleJob = Annotated[JobId, Depends(_find_visible_job)]
"""The id of a job that the user may see."""
