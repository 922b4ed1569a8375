"""An MCP client that knows the tasks extension, which the package `mcp` leaves to extensions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

import httpx2
from mcp import Client
from mcp.client import ClientExtension, ClientSession
from mcp.client.extension import ClaimContext, NotificationBinding, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CallToolResult,
    EmptyResult,
    Request,
    RequestParams,
    Result,
    SubscriptionsListenResult,
    TextContent,
)
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

TASKS = "io.modelcontextprotocol/tasks"
Value = TypeVar("Value")


class _Handle(Result):
    """The fields that every task has."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int


class CreatedTask(_Handle):
    """The answer to a call that became a task."""

    result_type: Literal["task"] = "task"


class Task(_Handle):
    """The answer to `tasks/get`."""

    input_requests: dict[str, Any] | None = None
    result: dict[str, Any] | None = None


class _TaskParams(RequestParams):
    task_id: str


class _UpdateParams(_TaskParams):
    input_responses: dict[str, Any]


class _GetTask(Request[_TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: _TaskParams
    name_param = "taskId"


class _UpdateTask(Request[_UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: _UpdateParams
    name_param = "taskId"


class _CancelTask(Request[_TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: _TaskParams
    name_param = "taskId"


async def get_task(session: ClientSession, task_id: str) -> Task:
    return await session.send_request(_GetTask(params=_TaskParams(task_id=task_id)), Task)


async def update_task(session: ClientSession, task_id: str, responses: dict[str, Any]) -> None:
    params = _UpdateParams(task_id=task_id, input_responses=responses)
    await session.send_request(_UpdateTask(params=params), EmptyResult)


async def cancel_task(session: ClientSession, task_id: str) -> None:
    await session.send_request(_CancelTask(params=_TaskParams(task_id=task_id)), EmptyResult)


class _ListenParams(RequestParams):
    notifications: dict[str, Any]


class _Listen(Request[_ListenParams, Literal["subscriptions/listen"]]):
    method: Literal["subscriptions/listen"] = "subscriptions/listen"
    params: _ListenParams


async def listen_until_the_end(session: ClientSession, **wanted: Any) -> None:
    """Listen to notifications until the server ends the stream."""
    await session.send_request(
        _Listen(params=_ListenParams(notifications=wanted)), SubscriptionsListenResult
    )


class Tasks(ClientExtension):
    """The extension on the side of the client: `call_tool` waits for the end of a task."""

    identifier = TASKS

    def __init__(self) -> None:
        self.notified: list[Task] = []
        """The states that the server has sent without a request."""

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        return (
            NotificationBinding(
                method="notifications/tasks", params_type=Task, handler=self._be_notified
            ),
        )

    async def _be_notified(self, task: Task) -> None:
        self.notified.append(task)

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=CreatedTask, resolve=self._resolve),)

    async def _resolve(self, created: CreatedTask, context: ClaimContext) -> CallToolResult:
        async def ended() -> dict[str, Any] | None:
            return (await get_task(context.session, created.task_id)).result

        return CallToolResult.model_validate(await until(ended))


async def until(condition: Callable[[], Awaitable[Value | None]], timeout_s: float = 60.0) -> Value:
    """Call `condition` again and again, and return its first true value."""
    async with asyncio.timeout(timeout_s):
        while not (value := await condition()):
            await asyncio.to_thread(threading.Event().wait, 0.02)
    return value


@asynccontextmanager
async def connected(
    url: str,
    token: str | None = None,
    *,
    mode: str = "auto",
    tasks: bool = True,
    extension: Tasks | None = None,
) -> AsyncIterator[Client]:
    """Yield a client of `/mcp` at a URL. `tasks`: declare the tasks extension."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=90) as http,
        Client(
            streamable_http_client(f"{url}/mcp", http_client=http),
            mode=mode,
            extensions=[extension or Tasks()] if tasks else None,
        ) as client,
    ):
        yield client


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text
