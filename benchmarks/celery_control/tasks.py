"""The control of the experiment: a team of agents as chords, as in Celery's documentation,
with Celery's safest settings and without a store.

One task plans a job. Its steps are chords, one for each layer of the plan. A chord's body
publishes the next layer, or lets the results be reviewed, sends back poor results, and writes
the answer. All knowledge of a job travels in its messages.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from celery import Celery, chord

from handoff_queue.chaos.planned_jobs import TIGHT_MODEL
from handoff_queue.shared.broker.readiness import touch_while_alive
from handoff_queue.shared.observability import failpoints
from handoff_queue.shared.types.errors import ModelError
from handoff_queue.shared.types.model import Block, MessageParam, Model, ModelCall, SystemPrompt
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE

VISIBILITY_TIMEOUT_S = 5
"""Seconds until redelivery. They are short, so that a run can wait for every redelivery, and
longer than any part takes.
"""
DEDUPLICATES = "HANDOFF_CHAOS_DEDUPLICATES"
"""Name of a variable. In a process where it is set, Celery skips tasks that have succeeded
before.
"""
PLAN, PART, BODY = "control.plan", "control.part", "control.body"
TRIES = 3
TRY_AGAIN_S = 0.2
ENDS = "control:"
ENDS_KEPT_S = 3_600

Work = dict[str, Any]
"""State of a job: `name`, `steps` of its plan, `done` (ids of finished steps), and `round` of its
review, from 1. `is_written` says whether a model writes the answer.
"""


def _build_schema(name: str) -> dict[str, Any]:
    """Return the schema of an answer with one field."""
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


PLANS, REVIEWS, TEXTS = _build_schema("steps"), _build_schema("verdict"), _build_schema("output")
CLOCK = {
    "name": "now",
    "description": "The time.",
    "input_schema": {"type": "object", "properties": {}},
}


def make_control_app(
    redis_url: str, model: Callable[[], Model], *, deduplicates: bool = False
) -> Celery:
    """Return an app with the three tasks.

    Args:
        model: returns the model of this process.
        deduplicates: True to use Celery's own protection against repeated tasks.
    """
    app = Celery("control", broker=redis_url, backend=redis_url)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_deduplicate_successful_tasks=deduplicates,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
            # a process that dies during redelivery blocks all redelivery, for 300 s by default
            "unacked_mutex_expire": 2,
            "priority_steps": [0],
        },
    )
    if failpoints.get_folder() is not None:
        from handoff_queue.shared.broker.failpoint_transport import FailingBackend, use_failpoints

        use_failpoints(app, FailingBackend)
    touch_while_alive(app)
    _register(app, model)
    return app


def _register(app: Celery, model: Callable[[], Model]) -> None:
    @app.task(name=PLAN, shared=False)  # type: ignore[untyped-decorator]
    def plan(name: str) -> None:
        _plan(app, model(), name)

    @app.task(name=PART, shared=False)  # type: ignore[untyped-decorator]
    def part(name: str, step: str, attempt: int) -> str:
        return _run_part(app, model(), name, step, attempt)

    @app.task(name=BODY, shared=False)  # type: ignore[untyped-decorator]
    def body(parts: list[str], work: Work) -> None:
        _continue_job(app, model(), parts, work)


def build_key_of_ends(name: str) -> str:
    """Return the key of the list in which a job's tasks record their ends, for the invariants
    of the run.
    """
    return f"{ENDS}{name}"


def _plan(app: Celery, model: Model, name: str) -> None:
    text = _converse(model, f"<task>Make the plan.\n\nRequest:\nchaos {name}</task>", PLANS)
    plan = json.loads(text)
    _record_end(app, name, "planner.1")
    work = {
        "name": name,
        "steps": plan["steps"],
        "done": [],
        "round": 1,
        "is_written": plan["synthesis"] == "reconcile",
    }
    _start_steps(app, work, [step for step in plan["steps"] if not step["depends_on"]])


def _run_part(app: Celery, model: Model, name: str, step: str, attempt: int) -> str:
    """Make one attempt at a step, and return the step's id."""
    feedback = ""
    if attempt > 1:
        feedback = "\n\n<feedback author='assessor'>Fix it.</feedback>"
    _converse(model, f"<task>Do {step} of {name}.</task>{feedback}", TEXTS)
    _record_end(app, name, f"{step}.{attempt}")
    return step


def _continue_job(app: Celery, model: Model, parts: list[str], work: Work) -> None:
    """Continue a job after a chord: with its next steps, a review, or the answer."""
    work = {**work, "done": sorted({*work["done"], *parts})}
    left = []
    for step in work["steps"]:
        if step["id"] not in work["done"]:
            left.append(step)
    if left:
        done_steps = set(work["done"])
        _start_steps(
            app, work, [step for step in left if done_steps.issuperset(step["depends_on"])]
        )
        return
    name, round_ = work["name"], work["round"]
    text = _converse(
        model,
        f"<task>Judge the results of round {round_} against the request.\n\nRequest:\nchaos"
        f" {name}</task>",
        REVIEWS,
    )
    _record_end(app, name, f"assessor.{round_}")
    review = json.loads(text)
    if review["verdict"] == "REVISE":
        sent_back: set[Any] = set()
        for revision in review["revisions"]:
            sent_back.add(revision["step"])
        steps = []
        for step in work["steps"]:
            if step["id"] in sent_back:
                steps.append(step)
        _start_steps(app, {**work, "round": round_ + 1}, steps)
        return
    if work["is_written"]:
        _converse(model, f"<task>Write the answer.\n\nRequest:\nchaos {name}</task>", TEXTS)
        _record_end(app, name, "synthesizer.1")
    _record_end(app, name, "")


def _start_steps(app: Celery, work: Work, steps: list[Work]) -> None:
    header: list[Any] = []
    for step in steps:
        header.append(
            app.signature(
                PART, args=(work["name"], step["id"], work["round"]), queue=step["specialist"]
            )
        )
    chord(header, app=app)(app.signature(BODY, args=(work,), queue=SUPERVISOR_QUEUE))


def _record_end(app: Celery, name: str, handoff_id: str) -> None:
    """Record the end of a handoff or a job.

    Args:
        handoff_id: id of the handoff; '' for the job.
    """
    backend: Any = app.backend
    with backend.client.pipeline() as pipe:
        pipe.rpush(build_key_of_ends(name), json.dumps([handoff_id, time.time()]))
        pipe.expire(build_key_of_ends(name), ENDS_KEPT_S)
        pipe.execute()


def _converse(model: Model, prompt: str, schema: dict[str, Any]) -> str:
    """Call the model, with results of its tools, until it answers with JSON. Return the answer."""
    messages: list[MessageParam] = [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
    while True:
        content = _call_model(model, messages, schema)
        messages.append({"role": "assistant", "content": list(content)})
        results: list[Block] = []
        for block in content:
            if block["type"] == "tool_use":
                result = {"type": "tool_result", "tool_use_id": block["id"], "content": "noon"}
                results.append(result)
        text = "".join(block.get("text", "") for block in content)
        if not results and text.startswith("{"):
            return text
        messages.append(
            {"role": "user", "content": results or [{"type": "text", "text": "As JSON, please."}]}
        )


def _call_model(
    model: Model, messages: list[MessageParam], schema: dict[str, Any]
) -> tuple[Block, ...]:
    call = ModelCall(
        TIGHT_MODEL,
        SystemPrompt("You are one of a team."),
        tuple(messages),
        max_output_tokens=8_192,
        tools=(CLOCK,),
        output_schema=schema,
    )
    for left in reversed(range(TRIES)):
        try:
            return model.reply(call, lambda _progress: None).content
        except ModelError:
            if not left:
                raise
        time.sleep(TRY_AGAIN_S)
    raise AssertionError("the last try returns or raises")
