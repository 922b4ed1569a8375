"""The answer of a job as a stream: its parts while the synthesizer writes it, then the answer."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter(prefix="/v1/jobs", tags=["events"])
