"""The application of `handoff serve`: its routes and middleware, and `/healthz`. It checks the
names in a query, because an unknown filter must not return all jobs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.responses import PlainTextResponse

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.serve import (
    decision_routes,
    event_routes,
    fleet_routes,
    job_routes,
    metrics,
    quote_routes,
    schedule_routes,
    tenant_routes,
)
from handoff_queue.supervisor.serve.authentication import AppState, TokenChecks
from handoff_queue.supervisor.serve.console import (
    document_routes,
    evaluation_routes,
    inbox_routes,
    job_list_routes,
    login_routes,
    money_routes,
    new_job_routes,
)
from handoff_queue.supervisor.serve.console import fleet_routes as console_fleet_routes
from handoff_queue.supervisor.serve.console import job_routes as console_job_routes
from handoff_queue.supervisor.serve.console import schedule_routes as console_schedule_routes
from handoff_queue.supervisor.serve.console.pages import respond
from handoff_queue.supervisor.serve.mcp import route as mcp_route
from handoff_queue.supervisor.serve.metrics_export import export_metrics
from handoff_queue.supervisor.serve.openapi_document import PROBLEMS, build_openapi_document
from handoff_queue.supervisor.serve.openapi_document import router as openapi_router
from handoff_queue.supervisor.serve.problem_documents import Problem, convert_all_errors
from handoff_queue.supervisor.serve.request_limits import BodyLimit, OpenStreams, WholeBody
from handoff_queue.supervisor.serve.security_headers import SecurityHeaders
from handoff_queue.supervisor.serve.slow_clients import PacedResponses

health_router = APIRouter()


@health_router.api_route("/healthz", methods=["GET", "HEAD"], include_in_schema=False)
async def healthz() -> PlainTextResponse:
    """Say that the server takes requests. It needs no token, and does not ask Redis."""
    return PlainTextResponse("ok\n")


ROUTERS = (
    job_routes.router,
    event_routes.router,
    decision_routes.router,
    quote_routes.router,
    fleet_routes.router,
    metrics.router,
    schedule_routes.router,
    tenant_routes.router,
    openapi_router,
    mcp_route.router,
    health_router,
)
CONSOLE_ROUTERS = (
    login_routes.router,
    job_list_routes.router,
    console_job_routes.router,
    document_routes.router,
    inbox_routes.router,
    console_fleet_routes.router,
    new_job_routes.router,
    money_routes.router,
    console_schedule_routes.router,
    evaluation_routes.router,
)


def make_application(jobs: AsyncClient, settings: Settings, *, is_loopback: bool = True) -> FastAPI:
    """Return the application with its client. Its lifespan closes the client.

    Args:
        is_loopback: whether the server listens on a loopback address only. Then it takes
            requests without a token as long as the store has no token, and no proxy names users.
    """
    app = make_routes(settings)
    attach_client(app, jobs, settings, is_loopback=is_loopback)
    return app


def attach_client(
    app: FastAPI, jobs: AsyncClient, settings: Settings, *, is_loopback: bool = True
) -> None:
    """Give an application of `make_routes` its client. See `make_application`."""
    is_open = is_loopback and settings.serve_user_header is None
    app.state.handoff_queue = AppState(
        jobs,
        settings,
        is_open,
        TokenChecks(jobs.client.store.api_tokens),
        OpenStreams(settings.serve_streams),
    )


def make_routes(settings: Settings) -> FastAPI:
    """Return the application with all its routes, without a client."""

    @asynccontextmanager
    async def close_at_the_end(app: FastAPI) -> AsyncIterator[None]:
        served: AppState = app.state.handoff_queue
        async with served.jobs:
            with export_metrics(served.jobs.client.store):
                yield

    app = FastAPI(
        title="Handoff Queue",
        version="1",
        summary="Submit jobs for teams of LLM specialists, follow them, and decide about them.",
        lifespan=close_at_the_end,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        responses=PROBLEMS,
        redirect_slashes=False,
    )
    for router in ROUTERS:
        app.include_router(router, dependencies=[Depends(check_query)])
    for router in CONSOLE_ROUTERS:
        app.include_router(router)
    app.add_middleware(WholeBody)
    app.add_middleware(BodyLimit, max_bytes=settings.serve_max_body_bytes)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(PacedResponses)
    convert_all_errors(app, respond)

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = build_openapi_document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def check_query(request: Request) -> None:
    """Check that the resource knows each parameter of the query.

    Raises:
        Problem: the resource does not know a parameter.
    """
    if not request.query_params:
        return
    known = _list_query_parameters(request.scope["route"].dependant)
    for name in request.query_params:
        if name not in known:
            has = f"it has {', '.join(sorted(known))}" if known else "it has no parameters"
            problem = f"is not a parameter of this resource: {has}"
            short_name = name[:60]
            raise Problem(
                422, f"{short_name}: {problem}", errors=[(f"#query/{short_name}", problem)]
            )


def _list_query_parameters(dependant: Dependant) -> set[str]:
    """Return the names of the query parameters of a resource and of its dependencies."""
    names = {field.alias for field in dependant.query_params}
    for below in dependant.dependencies:
        names |= _list_query_parameters(below)
    return names
