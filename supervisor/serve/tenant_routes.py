"""Tenants: export all data of a tenant, and delete it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import StreamingResponse

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.supervisor.client.argument_types import MAX_TENANT_CHARS
from handoff_queue.supervisor.client.deletion import TenantDeletion
from handoff_queue.supervisor.serve.authentication import (
    Access,
    choose_tenant,
    require_access_level,
)
from handoff_queue.supervisor.serve.problem_documents import Problem

LINES = "application/x-ndjson"
MAX_WAIT_S = 60.0
"""Longest time in seconds for which a deletion waits for the end of cancelled jobs."""

log = get_log(__name__)
router = APIRouter(prefix="/v1/tenants", tags=["tenants"])

Tenant = Annotated[
    str, Path(min_length=1, max_length=MAX_TENANT_CHARS, description="The name of a tenant.")
]
Administers = Annotated[Access, Depends(require_access_level(AccessLevel.ADMIN))]
AdministersFleet = Annotated[
    Access, Depends(require_access_level(AccessLevel.ADMIN, all_tenants=True))
]


@router.get(
    "/{tenant}/export",
    response_class=StreamingResponse,
    responses={200: {"content": {LINES: {"schema": {"type": "string"}}}}},
    summary="Export a tenant",
)
async def export(
    access: Administers,
    tenant: Tenant,
    texts: Annotated[bool, Query(description="Include the texts of the documents.")] = False,
) -> StreamingResponse:
    """Stream the jobs and schedules of a tenant, as `handoff export --tenant` writes them.

    A stream without a line of the type `end` is not complete.
    """
    choose_tenant(access.caller, tenant)
    return StreamingResponse(_iterate_lines(access, tenant, texts), media_type=LINES)


async def _iterate_lines(access: Access, tenant: str, texts: bool) -> AsyncIterator[str]:
    """Yield the lines as long as the caller has access. An error ends the lines, because the
    status was sent.
    """
    try:
        async for line in access.jobs.export_tenant(tenant, texts=texts):
            await access.check_token()
            yield line + "\n"
    except (HandoffError, Problem) as error:
        log.warning("an export has no end", tenant=tenant, error=str(error))


@router.delete("/{tenant}", response_model=TenantDeletion, summary="Delete a tenant")
async def delete(
    access: AdministersFleet,
    tenant: Tenant,
    wait_s: Annotated[
        float,
        Query(
            ge=0,
            le=MAX_WAIT_S,
            allow_inf_nan=False,
            description="Seconds to wait for the end of cancelled jobs.",
        ),
    ] = 30.0,
) -> TenantDeletion:
    """Delete everything of a tenant: tokens, schedules, jobs, documents and statistics.

    If `is_complete` is false, jobs have not ended yet: repeat the request. A token with a tenant
    may not do this, because it removes the spending that the limits of a day count.
    """
    return await access.jobs.delete_tenant(tenant, wait_s=wait_s)
