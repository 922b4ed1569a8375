"""Notifications about tasks: a client that listens gets each new state of its tasks.

The stream is the answer to `subscriptions/listen` (MCP 2026-07-28). `notifications/tasks` is the
notification of the tasks extension (SEP-2663). A state comes from Redis, so any server process may
send it. A client that connects again gets the present state first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

from mcp.server.context import ServerRequestContext
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    Notification,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenResult,
)

from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.async_client import HEARTBEAT_S
from handoff_queue.supervisor.client.event_hub import FollowingEnded
from handoff_queue.supervisor.serve.authentication import Access
from handoff_queue.supervisor.serve.mcp.tasks import JobTask, build_task
from handoff_queue.supervisor.serve.mcp.tools import find_visible_job
from handoff_queue.supervisor.serve.problem_documents import Problem

TASK_IDS = "taskIds"
"""The field of the filter that the tasks extension adds."""
MAX_TASKS = 100
"""Most tasks of one stream."""
MIN_S = 0.5
"""Least seconds between two states of one task. A job may have thousands of events a second."""
Send = Callable[[JobTask], Awaitable[None]]


class TaskNotification(Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """The state of a task, as `tasks/get` returns it."""

    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: dict[str, Any]


def get_task_ids(subscription: SubscriptionFilter) -> list[str] | None:
    """Return the tasks that a client wants to follow. None: the client asks for no tasks.

    Raises:
        Problem: the list is not valid, or too long.
    """
    task_ids = (subscription.model_extra or {}).get(TASK_IDS)
    if task_ids is None:
        return None
    if not isinstance(task_ids, list) or not all(isinstance(task_id, str) for task_id in task_ids):
        raise Problem(422, f"{TASK_IDS} must be a list of the ids of tasks")
    if len(task_ids) > MAX_TASKS:
        raise Problem(422, f"{TASK_IDS} has {len(task_ids):,} tasks, and a stream has {MAX_TASKS}")
    return list(dict.fromkeys(task_ids))


async def send_tasks(
    context: ServerRequestContext[Any, Any], access: Access, task_ids: Sequence[str]
) -> SubscriptionsListenResult:
    """Send the present state of each task, and each new state, until all tasks have ended.

    The acknowledgement names the tasks that the caller may see.

    Raises:
        Problem, HandoffError: the token was revoked, or Redis cannot be reached.
    """
    job_ids: list[JobId] = []
    for name in task_ids:
        with suppress(HandoffError):
            job_ids.append(await find_visible_job(access, name))
    session, meta = context.session, {SUBSCRIPTION_ID_META_KEY: context.request_id}
    agreed = SubscriptionFilter.model_validate({TASK_IDS: job_ids})
    acknowledged = SubscriptionsAcknowledgedNotificationParams(notifications=agreed, _meta=meta)
    await session.send_notification(
        SubscriptionsAcknowledgedNotification(params=acknowledged), context.request_id
    )

    async def send(task: JobTask) -> None:
        state = {**task.on_the_wire(), "_meta": meta}
        del state["resultType"]
        notification: Any = TaskNotification(params=state)
        await session.send_notification(notification, context.request_id)

    try:
        async with asyncio.TaskGroup() as following:
            for job_id in job_ids:
                following.create_task(_follow(access, job_id, send))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return SubscriptionsListenResult(_meta=meta)


async def _follow(access: Access, job_id: JobId, send: Send) -> None:
    """Send the states of one task until its end, or until the server stops."""
    version = (await access.jobs.info(job_id)).version
    task = await build_task(access, job_id)
    await send(task)
    with suppress(FollowingEnded):
        async for _ in access.jobs.event_batches(job_id, version, wait_s=HEARTBEAT_S):
            await access.check_token()
            now = await build_task(access, job_id)
            if _get_state(now) != _get_state(task):
                await send(now)
            task = now
            if task.status not in ("completed", "cancelled"):
                await asyncio.sleep(MIN_S)


def _get_state(task: JobTask) -> tuple[object, ...]:
    """Return the parts of a task whose change is a new state."""
    return (task.status, task.status_message, tuple(task.input_requests or ()))
