"""The route that Prometheus scrapes."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.concurrency import run_in_threadpool

from handoff_queue.supervisor.serve.authentication import Reads
from handoff_queue.supervisor.serve.metrics import StoreMetrics

router = APIRouter(tags=["fleet"])


@router.get(
    "/metrics",
    summary="Read the metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request, access: Reads) -> Response:
    """Return all metrics in the text format of Prometheus. If the request accepts OpenMetrics,
    return them in that format. A token of a tenant gets only the time series of its tenant.
    """
    encode, media_type = choose_encoder(request.headers.get("accept", ""))

    def scrape() -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(StoreMetrics(access.store, access.tenant))
        return encode(registry)

    text = await run_in_threadpool(scrape)
    return Response(text, headers={"Content-Type": media_type})
