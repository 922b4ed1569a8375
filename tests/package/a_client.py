"""Submit a job with each client, follow it, and print the results as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import handoff_queue
from handoff_queue import Limits, Request, connect, connect_async

QUESTION = "Compare Qdrant and pgvector"
DOCUMENTS = {"notes.md": b"# Qdrant\n\nQdrant is a vector database.\n"}


def run_with_threads(folder: Path) -> dict[str, Any]:
    """Use the client for threads."""
    jobs = connect()
    job_id = jobs.submit(Request(QUESTION, documents=folder, limits=Limits(max_turns=60)))
    events = [recorded.event.type for recorded in jobs.events(job_id)]
    result = jobs.result(job_id, wait_s=60)
    jobs.delete(job_id)
    return {"events": events, "status": result.status, "answer": result.answer}


async def run_with_asyncio() -> dict[str, Any]:
    """Use the client for asyncio."""
    async with connect_async() as jobs:
        job_id = await jobs.submit(Request(QUESTION, documents=DOCUMENTS))
        events = [recorded.event.type async for recorded in jobs.events(job_id)]
        result = await jobs.result(job_id)
        await jobs.delete(job_id)
    return {"events": events, "status": result.status, "answer": result.answer}


if __name__ == "__main__":
    results = [run_with_threads(Path(sys.argv[1])), asyncio.run(run_with_asyncio())]
    print(json.dumps({"installed": handoff_queue.__file__, "results": results}))
