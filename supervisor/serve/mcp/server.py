"""The MCP server: its methods, the access level that each method needs, and its notifications.

A client that listens gets each new state of its tasks. The stream is the answer to
`subscriptions/listen` (MCP 2026-07-28). `notifications/tasks` is the notification of the tasks
extension (SEP-2663). A state comes from Redis, so any server process may send it. A client that
connects again gets the present state first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any, Literal

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    ListToolsResult,
    Notification,
    PaginatedRequestParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.errors import HandoffError, UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.async_client import HEARTBEAT_S
from handoff_queue.supervisor.client.event_hub import FollowingEnded
from handoff_queue.supervisor.serve.authentication import Access
from handoff_queue.supervisor.serve.mcp.tasks import (
    TASKS,
    JobTask,
    TaskParams,
    UpdateParams,
    answer_task,
    build_task,
    read_new_task,
)
from handoff_queue.supervisor.serve.mcp.tools import (
    SUBMIT,
    TOOLS,
    build_error_result,
    find_visible_job,
    get_tool,
    list_tools,
    parse_arguments,
    run_tool,
    submit_body,
)
from handoff_queue.supervisor.serve.problem_documents import Problem, convert_error

TASK_IDS = "taskIds"
"""The field of the filter that the tasks extension adds."""
MAX_TASKS = 100
"""Most tasks of one stream."""
MIN_S = 0.5
"""Least seconds between two states of one task. A job may have thousands of events a second."""
Send = Callable[[JobTask], Awaitable[None]]
LISTEN = "subscriptions/listen"
"""The method whose answer is a stream of notifications."""
MISSING_CAPABILITY = -32_021
"""The code for a client that did not declare an extension (MCP 2026-07-28)."""
_INSTRUCTIONS = (
    "A queue for teams of LLM specialists. `submit` stores a job and returns its id. A job takes"
    " minutes: read `status`, `events` or `result` with the id. A job with the status `waiting`"
    " needs a person: show the question in `result` to the person, and then send the decision with"
    " `approve` or `reject`."
)
Context = ServerRequestContext[Any, Any]
AccessOf = Callable[[Context, AccessLevel], Access]
"""Returns the access of the caller of a request. Raises Problem if the access level is too low."""


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


def make_server(access_of: AccessOf) -> Server[Any]:
    """Return a server whose requests have the access that `access_of` gives."""
    handlers = _Handlers(access_of)
    server: Server[Any] = Server(
        "handoff-queue",
        version=version("handoff-queue"),
        title="Handoff Queue",
        instructions=_INSTRUCTIONS,
        on_list_tools=handlers.list_tools,
    )
    server.add_request_handler("tools/call", CallToolRequestParams, handlers.call_tool)
    server.add_request_handler("tasks/get", TaskParams, handlers.get_task)
    server.add_request_handler("tasks/update", UpdateParams, handlers.update_task)
    server.add_request_handler("tasks/cancel", TaskParams, handlers.cancel_task)
    server.add_request_handler(LISTEN, SubscriptionsListenRequestParams, handlers.listen)
    server.extensions[TASKS] = {}
    return server


class _Handlers:
    """The methods of the server. The server keeps no state between two requests."""

    def __init__(self, access_of: AccessOf) -> None:
        self._access_of = access_of

    async def list_tools(self, _: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=list_tools())

    async def call_tool(
        self, context: Context, params: CallToolRequestParams
    ) -> CallToolResult | dict[str, Any]:
        """Run a tool. A call of `submit` becomes a task if the client knows tasks."""
        with _mcp_errors():
            tool = get_tool(params.name)
        try:
            access = self._access_of(context, tool.level)
            if params.name == SUBMIT and _supports_tasks(context):
                body = await access.in_turn(parse_arguments, tool.arguments, params.arguments)
                submitted = await submit_body(access, body)
                return (await read_new_task(access, JobId(submitted.job_id))).on_the_wire()
            return await run_tool(access, tool, params.arguments)
        except (Problem, HandoffError) as error:
            return build_error_result(convert_error(error).detail)

    async def get_task(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """Return the state of a task."""
        _require_tasks(context)
        with _mcp_errors():
            access = self._access_of(context, AccessLevel.READ)
            task = await build_task(access, await find_visible_job(access, params.task_id))
        return task.on_the_wire()

    async def update_task(self, context: Context, params: UpdateParams) -> EmptyResult:
        """Give the answer of a person to the open question of the job."""
        _require_tasks(context)
        with _mcp_errors():
            access = self._access_of(context, TOOLS["approve"].level)
            job_id = await find_visible_job(access, params.task_id)
            await answer_task(access, job_id, params.input_responses)
        return EmptyResult()

    async def cancel_task(self, context: Context, params: TaskParams) -> EmptyResult:
        """Cancel the job of a task."""
        _require_tasks(context)
        with _mcp_errors():
            access = self._access_of(context, TOOLS["cancel"].level)
            await access.jobs.cancel(await find_visible_job(access, params.task_id))
        return EmptyResult()

    async def listen(
        self, context: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Send notifications about the tasks that the client names, until they have ended."""
        with _mcp_errors():
            task_ids = get_task_ids(params.notifications)
            if task_ids is not None:
                _require_tasks(context)
            access = self._access_of(context, AccessLevel.READ)
            with access.as_stream():
                return await send_tasks(context, access, task_ids or ())


@contextmanager
def _mcp_errors() -> Iterator[None]:
    """Turn errors of the user and of Redis into errors of the protocol.

    Raises:
        MCPError: an error of the user, or of Redis.
    """
    try:
        yield
    except (Problem, UserError) as error:
        raise MCPError(INVALID_PARAMS, convert_error(error).detail) from error
    except HandoffError as error:
        raise MCPError(INTERNAL_ERROR, convert_error(error).detail) from error


def _supports_tasks(context: Context) -> bool:
    """Return whether the client can receive tasks. Protocols before 2026-07-28 cannot."""
    capabilities = context.session.client_capabilities
    return (
        context.protocol_version in MODERN_PROTOCOL_VERSIONS
        and capabilities is not None
        and TASKS in (capabilities.extensions or {})
    )


def _require_tasks(context: Context) -> None:
    if not _supports_tasks(context):
        raise MCPError(
            MISSING_CAPABILITY,
            f"the client has not declared the extension {TASKS}",
            {"requiredCapabilities": {"extensions": {TASKS: {}}}},
        )
