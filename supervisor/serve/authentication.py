"""Access to the API: tokens with access levels, users of a proxy, and the separation of tenants.

A token with a tenant sees a job of another tenant as a job that does not exist. Without any
token in the store, a server on loopback takes every local request as an admin's. Such a request
must name a loopback host, and no foreign page may send it: this stops DNS rebinding and
cross-site requests of a browser.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal
from urllib.parse import urlsplit

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.api_tokens import ApiTokens
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.errors import StoreUnavailable, UnknownJob
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.argument_types import check_tenant
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.job_lookup import check_job_id
from handoff_queue.supervisor.serve.problem_documents import Problem
from handoff_queue.supervisor.serve.proxy_authentication import ProxyUser, find_user, get_address
from handoff_queue.supervisor.serve.request_limits import (
    ACCESS_CHECKS,
    MAX_REQUESTS,
    Arguments,
    CallerTurns,
    OpenStreams,
    RequestTurn,
    Value,
    count_request,
    count_wrong_token,
)
from handoff_queue.supervisor.serve.slow_clients import TURNS

SAFE_METHODS = ("GET", "HEAD")
"""Methods that change nothing."""
LOCAL = "local"
"""The name of the caller of a server without tokens."""
FORWARDING_HEADERS = ("forwarded", "x-forwarded-for", "via")
"""Headers that a proxy adds to a request."""
FOREIGN_PAGE = "a page of another site sent this request: it is refused"
CHECK_S = 1.0
"""Seconds after which an open request checks its token again."""


class TokenChecks:
    """Checks that the tokens of open requests are still valid, each at most once in `CHECK_S`."""

    def __init__(self, tokens: ApiTokens) -> None:
        self._tokens = tokens
        self._checks: dict[str | None, tuple[float, bool]] = {}
        """The id of a token (None: no token) -> the monotonic time of its check, and the result."""
        self._checking = asyncio.Lock()

    async def check(self, token_id: str | None) -> None:
        """Check that a token is still valid. None: check that the server still has no token.

        While Redis is away, the last result counts: a stream then sends nothing.

        Raises:
            Problem: the token was revoked or has expired, or the first token was made.
        """
        async with self._checking:
            at, is_valid = self._checks.get(token_id, (-math.inf, True))
            if time.monotonic() - at >= CHECK_S:
                with suppress(StoreUnavailable):
                    is_valid = await run_in_threadpool(self._is_valid, token_id)
                self._checks[token_id] = (time.monotonic(), is_valid)
        if not is_valid:
            raise _build_authentication_problem(
                "the token was revoked or has expired", "invalid_token"
            )

    def _is_valid(self, token_id: str | None) -> bool:
        if token_id is None:
            return not self._tokens.has_tokens()
        return self._tokens.is_valid(token_id)


@dataclass(frozen=True, slots=True)
class AppState:
    """The parts that all requests of an application share."""

    jobs: AsyncClient
    settings: Settings
    is_loopback: bool
    """True if the server takes requests of this machine without a token, while there is none."""
    token_checks: TokenChecks
    streams: OpenStreams
    turns: CallerTurns = field(default_factory=CallerTurns)
    """The turns for checks of large values."""
    requests: CallerTurns = field(default_factory=lambda: CallerTurns(MAX_REQUESTS))
    """The turns for requests."""

    @property
    def store(self) -> Store:
        return self.jobs.client.store


@dataclass(frozen=True, slots=True)
class Caller:
    """The token of a request, the user of a proxy, or a program of this machine."""

    name: str
    level: AccessLevel
    tenant: str | None
    """The only tenant that the caller sees; None for all tenants."""
    token_id: str | None
    """None: a user of a proxy, or a program of this machine."""
    address: str | None
    user: ProxyUser | None = None
    """The user that a proxy has authenticated."""
    turn: RequestTurn | None = field(default=None, compare=False, repr=False)
    """The turn of the request. None: the caller is a client of `handoff mcp`."""
    is_process: bool = False
    """True: the caller is a client of `handoff mcp`, which needs no token."""

    @property
    def key(self) -> str:
        """Return the name under which the requests and the streams of the caller are counted."""
        if self.user is not None:
            return self.user.key
        return self.token_id or LOCAL


def get_app_state(request: Request) -> AppState:
    """Return the shared parts of the application that serves a request."""
    state: AppState = request.app.state.handoff_queue
    return state


SharedState = Annotated[AppState, Depends(get_app_state)]
_BEARER = HTTPBearer(
    auto_error=False, description="A token of the server, which `handoff token` makes."
)


async def authenticate_caller(
    request: Request,
    state: SharedState,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
) -> Caller:
    """Return the caller of a request, and count the request.

    Raises:
        Problem: there is no valid token, a foreign page sent the request, or the caller has sent
            too many requests or wrong tokens.
    """
    secret = credentials.credentials if credentials else None
    return await find_caller(request, state, secret)


async def find_caller(request: Request, state: AppState, secret: str | None) -> Caller:
    """Return the caller with the secret of a token, count the request, and wait for its turn.
    Raises as `authenticate_caller`.

    A body may take hours, and so may the wait for a turn. So the token is checked again after both.

    Args:
        secret: None for a caller without a token.
    """
    checked_at = time.monotonic()
    address = get_address(request, state.settings)
    user = find_user(request, state.settings)
    if user is not None:
        caller = Caller(user.name, user.level, user.tenant, None, address, user)
        if request.method not in SAFE_METHODS:
            check_same_site(request)
    else:
        caller = await run_in_threadpool(_find_caller, state, secret, address)
        if caller.token_id is None:
            check_local(request)

    async def check_again() -> None:
        if caller.user is None and time.monotonic() - checked_at >= CHECK_S:
            await state.token_checks.check(caller.token_id)

    limit = state.settings.serve_requests_per_minute
    await run_in_threadpool(count_request, state.store, caller.key, limit)
    turn = RequestTurn(state.requests, caller.key)
    request.scope[TURNS].append(turn)
    request.scope[ACCESS_CHECKS].append(check_again)
    await turn.begin()
    await check_again()
    return replace(caller, turn=turn)


def _find_caller(state: AppState, secret: str | None, address: str | None) -> Caller:
    tokens = state.store.api_tokens
    if secret is not None:
        token = tokens.find(secret)
        if token is None:
            count_wrong_token(state.store, address)
            raise _build_authentication_problem(
                "the token is unknown, revoked or expired", "invalid_token"
            )
        return Caller(token.name, token.access, token.tenant, token.id, address)
    if state.is_loopback and not tokens.has_tokens():
        return Caller(LOCAL, AccessLevel.ADMIN, None, None, address)
    raise _build_authentication_problem(
        "this server needs a token: send `Authorization: Bearer TOKEN`"
    )


def _build_authentication_problem(detail: str, error: str = "") -> Problem:
    challenge = 'Bearer realm="handoff"'
    if error:
        challenge += f', error="{error}"'
    return Problem(401, detail, headers={"WWW-Authenticate": challenge})


def check_local(request: Request) -> None:
    """Check that a program of this machine sent the request, and not a page of a web site. A proxy
    on this machine forwards requests of other machines.

    Raises:
        Problem: the client, the header Host or the header Origin is not local, or a proxy has
            forwarded the request.
    """
    names = [_get_host(f"//{request.headers.get('host', '')}")]
    if request.client is not None:
        names.append(request.client.host)
    is_forwarded = any(name in request.headers for name in FORWARDING_HEADERS)
    if is_forwarded or not all(map(is_loopback_host, names)):
        raise Problem(
            403,
            "a server without tokens takes only requests to localhost: create a token on"
            " the server",
        )
    check_same_site(request)


def check_same_site(request: Request) -> None:
    """Check that no page of another site sent a request.

    Raises:
        Problem: the header Origin or Sec-Fetch-Site names another site.
    """
    is_foreign = "origin" in request.headers and not has_own_origin(request)
    if is_foreign or request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        raise Problem(403, FOREIGN_PAGE)


def has_own_origin(request: Request) -> bool:
    """Return whether the header Origin names the host of the header Host."""
    host = request.headers.get("host", "")
    origin = request.headers.get("origin", "")
    return bool(host) and origin.partition("://")[2] == host


def _get_host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback_host(host: str) -> bool:
    """Return whether a host name or an address is of the loopback interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Access:
    """The access of one request: its caller, and clients whose actions name the caller."""

    jobs: AsyncClient
    settings: Settings
    caller: Caller
    token_checks: TokenChecks
    streams: OpenStreams
    turns: CallerTurns = field(default_factory=CallerTurns)

    async def in_turn(
        self,
        function: Callable[Arguments, Value],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Value:
        """Run a check of large values in a thread, when it is the turn of the caller."""
        return await self.turns.run(self.caller.key, function, *args, **kwargs)

    @contextmanager
    def as_stream(self) -> Iterator[None]:
        """Count the request as an open stream as long as the block runs, and end its turn.

        Raises:
            Problem: the caller has the most streams that it may have.
        """
        with self.streams.count_stream(self.caller.key):
            if self.caller.turn is not None:
                self.caller.turn.end()
            yield

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Count the request as an open stream as long as the block waits for a job, and then wait
        for a turn again.

        Raises:
            Problem: the caller has too many streams, too many requests wait, or the token of the
                caller was revoked or has expired.
        """
        with self.as_stream():
            yield
        if self.caller.turn is not None:
            await self.caller.turn.begin()
        await self.check_token()

    async def check_token(self) -> None:
        """Check that the caller still has access. A stream calls this before each text. A client of
        `handoff mcp` needs no token, so its access does not end.

        Raises:
            Problem: the token of the caller was revoked or has expired.
        """
        if self.caller.user is None and not self.caller.is_process:
            await self.token_checks.check(self.caller.token_id)

    @property
    def tenant(self) -> str | None:
        """The only tenant that the caller sees; None for all tenants."""
        return self.caller.tenant

    @property
    def client(self) -> Client:
        return self.jobs.client

    @property
    def store(self) -> Store:
        return self.jobs.client.store


def require_access_level(
    level: AccessLevel, *, all_tenants: bool = False
) -> Callable[..., Awaitable[Access]]:
    """Return a dependency that gives access to a caller with this access level or a higher one.

    Args:
        all_tenants: refuse a token that belongs to one tenant.
    """

    async def get_access(
        caller: Annotated[Caller, Depends(authenticate_caller)], state: SharedState
    ) -> Access:
        check_access_level(caller, level, all_tenants=all_tenants)
        return build_access(caller, state, "api")

    return get_access


def check_access_level(caller: Caller, level: AccessLevel, *, all_tenants: bool = False) -> None:
    """Check that the caller has this access level or a higher one.

    Args:
        all_tenants: refuse a token that belongs to one tenant.

    Raises:
        Problem: the caller may not do this.
    """
    if not caller.level.includes(level):
        raise Problem(
            403, f"{caller.name} has the access level {caller.level}, and this needs {level}"
        )
    if all_tenants and caller.tenant is not None:
        raise Problem(
            403,
            "the token belongs to one tenant, and this concerns all tenants: use a token"
            " without a tenant",
        )


def choose_tenant(caller: Caller, tenant: str | None) -> str | None:
    """Return the tenant that a request names or that the token belongs to; None for no tenant.

    Raises:
        UserError: no tenant can have this name.
        Problem: the request names another tenant than the token.
    """
    if tenant is not None:
        check_tenant(tenant)
    if caller.tenant is None:
        return tenant
    if tenant not in (None, caller.tenant):
        raise Problem(403, "the token belongs to another tenant: leave the tenant out")
    return caller.tenant


def build_access(caller: Caller, state: AppState, via: Literal["api", "console", "mcp"]) -> Access:
    """Return clients whose actions name the caller.

    Args:
        via: the way to the queue.
    """
    actor = Actor(name=caller.name, via=via, address=caller.address, token=caller.token_id)
    jobs = state.jobs.acting_as(actor)
    return Access(jobs, state.settings, caller, state.token_checks, state.streams, state.turns)


Reads = Annotated[Access, Depends(require_access_level(AccessLevel.READ))]
Submits = Annotated[Access, Depends(require_access_level(AccessLevel.SUBMIT))]
Operates = Annotated[Access, Depends(require_access_level(AccessLevel.OPERATE))]
ReadsFleet = Annotated[Access, Depends(require_access_level(AccessLevel.READ, all_tenants=True))]
OperatesFleet = Annotated[
    Access, Depends(require_access_level(AccessLevel.OPERATE, all_tenants=True))
]


def check_visible(caller: Caller, store: Store, job_id: str) -> JobId:
    """Return the id of a job that the caller may see.

    Raises:
        UnknownJob: there is no such job, or it belongs to another tenant. Both have one message.
    """
    checked_id = check_job_id(JobId(job_id))
    owner = store.jobs.find_owner(checked_id)
    if owner is None or caller.tenant not in (None, owner):
        raise UnknownJob.for_job(job_id)
    return checked_id


async def _find_visible_job(
    caller: Annotated[Caller, Depends(authenticate_caller)],
    state: SharedState,
    job_id: Annotated[str, Path(examples=["j-k5tq2wbz7x3mhd4n"], description="The id of the job.")],
) -> JobId:
    return await run_in_threadpool(check_visible, caller, state.store, job_id)


VisibleJob = Annotated[JobId, Depends(_find_visible_job)]
