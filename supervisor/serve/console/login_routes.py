"""Log in with a token, log out, and static files."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from handoff_queue.supervisor.serve.authentication import SharedState
from handoff_queue.supervisor.serve.console.pages import STATIC, go_to, read_static_file, render
from handoff_queue.supervisor.serve.console.session import (
    TOKEN_COOKIE,
    Reads,
    check_csrf,
    get_browser,
    make_csrf_token,
    set_cookie,
)
from handoff_queue.supervisor.serve.problem_documents import Problem
from handoff_queue.supervisor.serve.proxy_authentication import get_address
from handoff_queue.supervisor.serve.request_limits import count_wrong_token

MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
MAX_LOGIN_FIELDS, MAX_LOGIN_FIELD_BYTES = 10, 4_000
"""Limits of the form of the login, which everybody may send. It has no files."""
STATIC_S = 365 * 24 * 3600
"""Seconds for which a browser keeps a static file. Its URL changes with its content."""

router = APIRouter(include_in_schema=False)


@router.get("/static/{name}")
async def static(name: str, v: str = "") -> Response:
    """Return a static file. It needs no login.

    Args:
        v: the digest in the URL. During an upgrade, a page of another version may ask for a file
            that this server does not have. A browser must not keep the answer under that URL.
    """
    if name not in STATIC:
        raise Problem(404, "there is no such file")
    content, digest = read_static_file(name)
    headers: dict[str, str] = {}
    if v == digest:
        headers["Cache-Control"] = f"public, max-age={STATIC_S}, immutable"
    return Response(content, media_type=MEDIA_TYPES[name.rpartition(".")[2]], headers=headers)


@router.get("/login")
async def login_page(
    request: Request, target: Annotated[str, Query(alias="next")] = "/"
) -> Response:
    """Show the form for the login."""
    return render(request, "login.html", target=_get_local_path(target), problem="")


@router.post("/login")
async def login(request: Request, state: SharedState) -> Response:
    """Store the token of the form in a cookie of the browser."""
    form = await request.form(
        max_files=0, max_fields=MAX_LOGIN_FIELDS, max_part_size=MAX_LOGIN_FIELD_BYTES
    )
    await check_csrf(request, make_csrf_token(get_browser(request), ""))
    target = _get_local_path(str(form.get("next", "/")))
    secret = str(form.get("token", "")).strip()
    if await run_in_threadpool(state.store.api_tokens.find, secret) is None:
        address = get_address(request, state.settings)
        await run_in_threadpool(count_wrong_token, state.store, address)
        problem = "The token is unknown, revoked or expired."
        return render(request, "login.html", status=401, target=target, problem=problem)
    response = go_to(target)
    set_cookie(request, response, TOKEN_COOKIE, secret)
    return response


@router.post("/logout")
async def logout(_: Reads) -> Response:
    """Delete the token from the browser."""
    response = go_to("/login")
    response.delete_cookie(TOKEN_COOKIE, httponly=True, samesite="strict")
    return response


def _get_local_path(target: str) -> str:
    """Return a path of this server. A target on another server becomes the first page."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\"))
    if is_path and target.isprintable():
        return target
    return "/"
