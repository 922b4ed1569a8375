"""The MCP server: its methods, and the access level that each method needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    ListToolsResult,
    PaginatedRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.errors import HandoffError, UserError
from handoff_queue.supervisor.serve.authentication import Access
from handoff_queue.supervisor.serve.mcp.listening import get_task_ids, send_tasks
from handoff_queue.supervisor.serve.mcp.tasks import (
    TASKS,
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
    store_job,
)
from handoff_queue.supervisor.serve.problem_documents import Problem, convert_error

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
                job_id, _ = await store_job(access, body)
                return (await read_new_task(access, job_id)).on_the_wire()
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
