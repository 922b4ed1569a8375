"""The same shape on a bare Celery canvas: plan -> chord of 3 -> review -> synthesis, same settings, same pools, nothing kept."""

from __future__ import annotations

import time
from typing import Any

import redis
from celery import chord

from benchmarks.instant_model import STEPS, make_model
from shared.agent.model import ModelCall, Pulse
from shared.celery_app import make_app
from shared.config import load_settings
from shared.process import redis_url_of

settings = load_settings()
app = make_app("canvas", redis_url_of(settings), settings, ("canvas_supervisor", "canvas_worker"))
model = make_model(settings)
_redis: redis.Redis = redis.Redis.from_url(redis_url_of(settings))


def _ignore(_pulse: Pulse) -> None:
    """Nobody watches a canvas."""


def _call(schema: dict[str, Any]) -> str:
    call = ModelCall(model="instant", system="", messages=(), max_output_tokens=100, output_schema={"properties": schema})
    return str(model.reply(call, _ignore).content[0]["text"])


@app.task(  # type: ignore[untyped-decorator]
    name="canvas.plan", shared=False
)
def plan(job: str) -> None:
    _call({"steps": {}})
    header = [work.s(job, n).set(queue="canvas_worker") for n in range(STEPS)]
    chord(header, review.s(job).set(queue="canvas_supervisor"), app=app).apply_async()


@app.task(  # type: ignore[untyped-decorator]
    name="canvas.work", shared=False
)
def work(_job: str, _n: int) -> str:
    return _call({})


@app.task(  # type: ignore[untyped-decorator]
    name="canvas.review", shared=False
)
def review(parts: list[str], job: str) -> None:
    _call({"verdict": {}})
    synthesis.si(job, parts).set(queue="canvas_supervisor").apply_async()


@app.task(  # type: ignore[untyped-decorator]
    name="canvas.synthesis", shared=False
)
def synthesis(job: str, _parts: list[str]) -> None:
    _redis.lpush("canvas:done", f"{job} {time.time()}")
