"""`/healthz`: whether the server takes requests, for the health check of a container."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

router = APIRouter()


@router.api_route("/healthz", methods=["GET", "HEAD"], include_in_schema=False)
async def healthz() -> PlainTextResponse:
    """Say that the server takes requests. It needs no token, and does not ask Redis."""
    return PlainTextResponse("ok\n")
