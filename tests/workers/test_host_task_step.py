"""A task of the user's own Celery app does a step: its message, its result and its failures."""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from celery import Celery

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.opening_message import LoadedPayloads
from handoff_queue.shared.agent.quote_verification import Sources
from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.specialists.tool_grants import grant_spec
from handoff_queue.shared.types.checkpoints import Checkpoint, ToolCallStarted, ToolObserved
from handoff_queue.shared.types.errors import LeaseLost, UserError
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, StopReason
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.workers.host_task_step import MAX_RESULT_CHARS, HostTaskRunner, HostTasks
from tests.doubles.handoffs import a_handoff, a_result, a_spec, a_tool_context, context_of
from tests.doubles.memory_checkpoints import MemoryCheckpoints

QUEUE = "warehouse"
PASSWORD = "canary-of-a-host-7713"


def host_tasks(url: str, **urls: str | None) -> HostTasks:
    urls_of_settings = {"host_broker_url": url, "host_result_url": url, **urls}
    settings = Settings.model_validate({"offline": True, **urls_of_settings})
    return HostTasks(make_app("worker", url, settings, ()), settings)


def a_task_spec(**changes: Any) -> SpecialistSpec:
    fields = {"celery_task": "shop.stock", "celery_queue": QUEUE}
    return a_spec().model_copy(update={**fields, **changes})


def a_step(
    url: str, spec: SpecialistSpec | None = None, *, schema: Any = None, **changes: Any
) -> HostTaskRunner:
    dependency = a_result("before", {"article": "A-7"})
    format_of_output = {"expected_output_format": schema} if schema else {}
    handoff = a_handoff(context=(context_of(dependency),), **format_of_output, **changes)
    sources = Sources(lambda _digest: "")
    answer_format = EnvelopeFormat(handoff.step_id, handoff.expected_output_format, sources)
    return HostTaskRunner(
        host_tasks(url),
        handoff,
        spec or a_task_spec(),
        LoadedPayloads({StepId("before"): dependency}),
        a_tool_context(),
        answer_format,
        now=lambda: 1_000.0,
        wait=lambda _seconds: None,
    )


def end(url: str, step: HostTaskRunner, value: Any, state: str = "SUCCESS") -> None:
    """Store the result of the task, as the user's worker does."""
    host = Celery("host", backend=url, set_as_current=False)
    with warnings.catch_warnings(
        action="ignore", category=DeprecationWarning
    ):  # A warning of Celery.
        host.backend.store_result(step.task_id, value, state)
    host.close()


def messages(queues: Any) -> list[tuple[str, str, Any]]:
    """Return the task id, the task and the arguments of each message in the user's queue."""
    calls = []
    for text in queues.lrange(QUEUE, 0, -1):
        message = json.loads(text)
        args, _kwargs, _embed = json.loads(base64.b64decode(message["body"]))
        calls.append((message["headers"]["id"], message["headers"]["task"], args))
    return calls


def result_of(url: str, value: Any, *, schema: Any = None) -> HandoffResult:
    step = a_step(url, schema=schema)
    end(url, step, value)
    return step.run(MemoryCheckpoints(), None)


def test_the_task_gets_the_step_and_the_results_of_its_dependencies(
    redis_url: str, queues: Any
) -> None:
    step = a_step(redis_url)
    end(redis_url, step, "Twelve.")

    result = step.run(MemoryCheckpoints(), 2_000.0)

    ((task_id, task, (call,)),) = messages(queues)
    queues.delete(QUEUE)
    assert (task_id, task) == (step.task_id, "shop.stock")
    assert call["inputs"] == {"before": {"status": "ok", "output": {"article": "A-7"}}}
    assert call["task"] == step.handoff.task_description
    assert (call["step_id"], call["attempt"], call["deadline"]) == ("find", 1, 2_000.0)
    assert (result.status, result.output, result.turns) == (ResultStatus.OK, "Twelve.", 0)


@pytest.mark.parametrize(
    ("value", "schema", "output"),
    [
        (12, {"type": "integer"}, 12),
        ({"items": 12}, {"type": "object"}, {"items": 12}),
        ({"items": 12}, None, '{\n "items": 12\n}'),
        (None, None, "shop.stock ran, and returned nothing."),
        ("done", None, "shop.stock returned: done"),
        ("", None, "shop.stock returned: "),
        ({}, {"type": "object"}, {}),
    ],
)
def test_the_tasks_return_value_is_the_output(
    redis_url: str, queues: Any, value: Any, schema: Any, output: Any
) -> None:
    result = result_of(redis_url, value, schema=schema)
    queues.delete(QUEUE)

    assert (result.status, result.output) == (ResultStatus.OK, output)


@pytest.mark.parametrize(
    ("value", "schema", "text"),
    [
        ("twelve", {"type": "integer"}, "does not match"),
        ("x" * MAX_RESULT_CHARS, None, "1,000,000 are allowed"),
        (float("nan"), {"type": "number"}, "cannot be used"),
        (UUID(int=7), None, "UUID is not JSON"),
        ({"at": datetime(2026, 1, 2, tzinfo=UTC)}, None, "datetime is not JSON"),
        (b"twelve", None, "bytes is not JSON"),
    ],
)
def test_a_value_that_no_result_can_hold_is_a_failed_step(
    redis_url: str, queues: Any, value: Any, schema: Any, text: str
) -> None:
    result = result_of(redis_url, value, schema=schema)
    queues.delete(QUEUE)

    assert (result.status, result.stop_reason) == (ResultStatus.FAILED, StopReason.INVALID_OUTPUT)
    assert text in str(result.error)


def test_an_exception_is_a_failed_step_without_the_exceptions_text(
    redis_url: str, queues: Any
) -> None:
    step = a_step(redis_url)
    end(redis_url, step, ValueError(PASSWORD), "FAILURE")

    result = step.run(MemoryCheckpoints(), None)
    queues.delete(QUEUE)

    assert result.status is ResultStatus.FAILED
    assert "FAILURE, ValueError" in str(result.error)
    assert step.task_id in str(result.error)
    assert PASSWORD not in result.to_json()


def test_a_task_without_a_result_in_time_is_a_failed_step(redis_url: str, queues: Any) -> None:
    ticks = iter(range(1_000, 2_000, 30))
    step = replace(a_step(redis_url), now=lambda: float(next(ticks)))

    result = step.run(MemoryCheckpoints(), 1_100.0)
    queues.delete(QUEUE)

    assert (result.status, result.stop_reason) == (ResultStatus.FAILED, StopReason.DEADLINE)
    assert "no result in time" in str(result.error)
    assert repr(QUEUE) in str(result.error)


def crash_at(kind: type[Checkpoint]) -> Callable[[Checkpoint], None]:
    def crash(checkpoint: Checkpoint) -> None:
        if isinstance(checkpoint, kind):
            raise LeaseLost("a crash")

    return crash


def crash_while_sending(doing: str) -> None:
    if "sends" in doing:
        raise LeaseLost("a crash")


def crash_while_waiting(doing: str) -> None:
    if "waits" in doing:
        raise LeaseLost("a crash")


def test_the_successor_of_a_worker_that_sent_the_task_only_waits_for_its_end(
    redis_url: str, queues: Any
) -> None:
    step, turns = a_step(redis_url), MemoryCheckpoints()
    turns.on_heartbeat = crash_while_waiting
    with pytest.raises(LeaseLost):
        step.run(turns, None)
    turns.on_heartbeat = lambda _doing: None
    end(redis_url, step, "Twelve.")

    result = step.run(turns, None)

    assert len(messages(queues)) == 1
    queues.delete(QUEUE)
    assert result.output == "Twelve."


def sent_with_a_crash(url: str, queues: Any, step: HostTaskRunner) -> list[str]:
    """Return the ids of the sent tasks. The first worker dies after it has sent its task."""
    turns = MemoryCheckpoints(on_checkpoint=crash_at(ToolObserved))
    with pytest.raises(LeaseLost):
        step.run(turns, None)
    turns.on_checkpoint = lambda _checkpoint: None
    end(url, step, "Twelve.")
    assert step.run(turns, None).output == "Twelve."
    task_ids = [task_id for task_id, *_ in messages(queues)]
    queues.delete(QUEUE)
    return task_ids


def test_an_unrecorded_send_is_repeated_with_the_same_id(redis_url: str, queues: Any) -> None:
    step = a_step(redis_url)

    assert sent_with_a_crash(redis_url, queues, step) == [step.task_id] * 2


def test_a_task_that_is_not_safe_to_repeat_is_never_sent_twice(redis_url: str, queues: Any) -> None:
    step = a_step(redis_url, a_task_spec(repeatable=False))

    assert sent_with_a_crash(redis_url, queues, step) == [step.task_id]


def test_a_task_that_is_not_safe_to_repeat_is_recorded_before_it_is_sent(redis_url: str) -> None:
    step, turns = a_step(redis_url, a_task_spec(repeatable=False)), MemoryCheckpoints()
    turns.on_heartbeat = crash_while_sending
    with pytest.raises(LeaseLost):
        step.run(turns, None)

    assert [type(item) for item in turns.load_earlier_checkpoints()] == [ToolCallStarted]


def test_a_step_without_the_right_to_effects_does_not_send_a_task_with_effects(
    redis_url: str, queues: Any
) -> None:
    step = a_step(redis_url, a_task_spec(repeatable=False), acts_with=())

    result = step.run(MemoryCheckpoints(), None)

    assert "has an effect" in str(result.error)
    assert messages(queues) == []


def test_an_unreachable_broker_is_a_failed_step_without_the_brokers_url() -> None:
    url = f"redis://:{PASSWORD}@127.0.0.1:1/0"
    step = a_step(url)

    result = step.run(MemoryCheckpoints(), None)

    assert result.status is ResultStatus.FAILED
    assert "HANDOFF_HOST_BROKER_URL" in str(result.error)
    assert PASSWORD not in result.to_json()
    assert result.acted is None


def test_an_unreachable_result_backend_is_asked_again_until_the_deadline(
    redis_url: str, queues: Any
) -> None:
    ticks = iter(range(1_000, 2_000, 30))
    step = replace(
        a_step(redis_url),
        host=host_tasks(redis_url, host_result_url=f"redis://:{PASSWORD}@127.0.0.1:1/0"),
        now=lambda: float(next(ticks)),
    )

    result = step.run(MemoryCheckpoints(), 1_100.0)
    queues.delete(QUEUE)

    assert "HANDOFF_HOST_RESULT_URL" in str(result.error)
    assert PASSWORD not in result.to_json()


@pytest.mark.parametrize(
    ("urls", "text"),
    [
        ({"host_broker_url": None}, "set HANDOFF_HOST_BROKER_URL"),
        ({"host_result_url": None}, "set HANDOFF_HOST_RESULT_URL"),
        ({"host_broker_url": f"gopher://:{PASSWORD}@h/0"}, "HANDOFF_HOST_BROKER_URL: no transport"),
        ({"host_result_url": f"gopher://:{PASSWORD}@h/0"}, "HANDOFF_HOST_RESULT_URL: no result"),
    ],
)
def test_a_worker_without_a_usable_host_names_the_setting_and_not_its_value(
    redis_url: str, urls: dict[str, str | None], text: str
) -> None:
    with pytest.raises(UserError, match=text) as caught:
        host_tasks(redis_url, **urls).check(a_task_spec())

    assert PASSWORD not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_task_comes_from_the_workers_own_file() -> None:
    """A plan with another file, or from an intruder in Redis, cannot choose the task."""
    job_spec = a_spec().model_copy(
        update={"celery_task": "shop.refund_all", "celery_queue": "money"}
    )
    worker_spec = a_task_spec(repeatable=False)

    granted = grant_spec(job_spec, worker_spec)

    assert (granted.celery_task, granted.celery_queue, granted.repeatable) == (
        "shop.stock",
        QUEUE,
        False,
    )
    assert grant_spec(job_spec, a_spec()).celery_task is None
