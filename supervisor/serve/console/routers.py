"""All routes of the console."""

from __future__ import annotations

from handoff_queue.supervisor.serve.console import (
    document_routes,
    evaluation_routes,
    fleet_routes,
    inbox_routes,
    job_list_routes,
    job_routes,
    login_routes,
    money_routes,
    new_job_routes,
    new_schedule_routes,
    schedule_routes,
)

CONSOLE_ROUTERS = (
    login_routes.router,
    job_list_routes.router,
    job_routes.router,
    document_routes.router,
    inbox_routes.router,
    fleet_routes.router,
    new_job_routes.router,
    money_routes.router,
    new_schedule_routes.router,
    schedule_routes.router,
    evaluation_routes.router,
)
