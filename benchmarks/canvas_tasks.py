"""The same job as in Celery's own documentation: plan | chord of 3 | review | synthesis, and
the client reads the result.

It uses Celery's defaults, on the same pool and the same Redis. Results are stored, because a
canvas passes them on and its user waits for them.
"""

from __future__ import annotations

from typing import Any

from celery import Celery, chain, group

from benchmarks.peers_model import make_peers_model
from benchmarks.timed_model import STEPS, call_for
from handoff_queue.shared.broker.readiness import touch_while_alive
from handoff_queue.shared.settings.settings import get_redis_url, load_settings
from handoff_queue.shared.types.model import CallProgress
from handoff_queue.shared.types.plan import Synthesis

settings = load_settings()
url = get_redis_url(settings)
app = Celery("canvas", broker=url, backend=url)
app.conf.update(
    worker_pool="threads",
    task_routes={"canvas.work*": "canvas_worker", "canvas.*": "canvas_supervisor"},
    broker_connection_retry_on_startup=True,
    worker_send_task_events=True,  # Flower sees both alike
)
touch_while_alive(app)
model = make_peers_model()


def _ignore(_progress: CallProgress) -> None:
    """Ignore reports, because a canvas has no display."""


def _call_model(schema: dict[str, Any]) -> str:
    return str(model.reply(call_for(schema), _ignore).content[0]["text"])


@app.task(name="canvas.plan", shared=False)  # type: ignore[untyped-decorator]
def plan(job: str) -> str:
    return f"{job}: {_call_model({'steps': {}})}"


@app.task(name="canvas.work", shared=False)  # type: ignore[untyped-decorator]
def work(_plan: str, _n: int) -> str:
    return _call_model({})


@app.task(name="canvas.review", shared=False)  # type: ignore[untyped-decorator]
def review(parts: list[str]) -> list[str]:
    _call_model({"verdict": {}})
    return parts


@app.task(name="canvas.synthesis", shared=False)  # type: ignore[untyped-decorator]
def synthesis(parts: list[str]) -> str:
    if model.synthesis is Synthesis.MERGE:
        return "\n\n".join(parts)
    return _call_model({})


@app.task(name="canvas.work.nothing", shared=False, ignore_result=True)  # type: ignore[untyped-decorator]
def nothing() -> None:
    """Do nothing, to measure the cost of a message."""


def build_job(name: str) -> Any:
    """Return one job, to send with `apply_async`."""
    return chain(plan.s(name), group(work.s(n) for n in range(STEPS)), review.s(), synthesis.s())
