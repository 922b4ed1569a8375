"""The Python client for asyncio: the same methods as `supervisor.client.client.Client`.

    import handoff_queue

    async with handoff_queue.connect_async("redis://:password@localhost:6379/0") as jobs:
        job_id = await jobs.submit(handoff_queue.Request("Compare Qdrant and Milvus"))
        async for recorded in jobs.events(job_id):     # ends when the job has ended
            print(recorded.event.type)
        print((await jobs.result(job_id)).answer)

A follower (`events`, `event_stream`, `wait`) costs no thread and no connection to Redis: one
thread of the client reads for all followers. Every other method makes a short call in a pool
of `MAX_THREADS` threads.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from pydantic import JsonValue

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.job_filter import EVERY_JOB, JobFilter
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.redis.connection import SOCKET_TIMEOUT_S
from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.errors import StoreUnavailable, UnknownJob
from handoff_queue.shared.types.events import (
    DEFAULT_TENANT,
    JobStatus,
    RecordedEvent,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.limits import NewLimits
from handoff_queue.supervisor.client.argument_types import check_wait_s
from handoff_queue.supervisor.client.client import Client, connect
from handoff_queue.supervisor.client.event_hub import EventHub
from handoff_queue.supervisor.client.job_lookup import get_job_info
from handoff_queue.supervisor.client.journal_follower import (
    RECONNECT_EVERY_S,
    ReconnectLimit,
    is_over_after,
)
from handoff_queue.supervisor.client.json_forms import encode_event

if TYPE_CHECKING:
    from handoff_queue.shared.documents.folder import FolderReading
    from handoff_queue.shared.store.dead_letters import DeadLetter
    from handoff_queue.shared.types.api_tokens import AccessLevel, ApiToken
    from handoff_queue.shared.types.audit import AuditEntry
    from handoff_queue.shared.types.memory_notes import Note
    from handoff_queue.shared.types.schedule import ScheduleStatus
    from handoff_queue.supervisor.client.deletion import TenantDeletion
    from handoff_queue.supervisor.client.export import Export
    from handoff_queue.supervisor.client.forks import ForkOptions
    from handoff_queue.supervisor.client.job_outline import JobOutline
    from handoff_queue.supervisor.client.job_result import HandoffReport, JobResult
    from handoff_queue.supervisor.client.repeated_step_rows import Row
    from handoff_queue.supervisor.client.request import Request
    from handoff_queue.supervisor.client.schedules import ScheduleOptions
    from handoff_queue.supervisor.client.submission import Clash, Submission
    from handoff_queue.supervisor.client.user_messages import SentMessage

MAX_THREADS = 16
"""Most calls of one client that run at the same time. Further calls wait for a thread."""
HEARTBEAT_S = 15.0
"""Seconds of silence before `event_stream` sends a comment. Proxies often close a connection after
30 or 60 seconds without a byte."""

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class AsyncClient:
    """The job queue for asyncio. Use it on one event loop or several; close it at the end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._hub = EventHub(client.store)
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="handoff-client")

    def acting_as(self, actor: Actor) -> AsyncClient:
        """Return a client whose actions name this actor, as `Client.acting_as`.

        Both share the connections, the threads and the reader of events. Close only the first.
        """
        acting = copy(self)
        acting._client = self._client.acting_as(actor)
        return acting

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections. Followers that still wait get a HandoffError."""
        await asyncio.to_thread(self._close)

    async def stop_following(self) -> None:
        """End all followers: each gets a HandoffError. Other methods still work."""
        await asyncio.to_thread(self._hub.close)

    @property
    def client(self) -> Client:
        """The client for threads that this client calls."""
        return self._client

    def _close(self) -> None:
        self._hub.close()
        self._threads.shutdown()
        self._client.close()

    async def _call(
        self,
        function: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        call = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def submit(self, request: Request) -> JobId:
        """Enqueue a job and return its id. Raises as `Client.submit`."""
        return await self._call(self._client.submit, request)

    async def submit_each(self, requests: Iterable[Request]) -> AsyncIterator[JobId]:
        """Enqueue many jobs and yield their ids in order. Raises as `Client.submit_each`."""
        job_ids = self._client.submit_each(requests)
        while (job_id := await self._call(next, job_ids, None)) is not None:
            yield job_id

    async def first_clash(self, requests: Sequence[Request]) -> Clash | None:
        """Return the first clash of idempotency keys, or None. Raises as `Client.first_clash`."""
        return await self._call(self._client.first_clash, requests)

    async def events(
        self, job_id: JobId, after: int = 0, *, follow: bool = True
    ) -> AsyncIterator[RecordedEvent]:
        """Yield the job's events after a version, the oldest first.

        With `follow`, the iterator waits for new events until the job has ended.

        Raises:
            UnknownJob: the job does not exist, or was deleted during the call.
            StoreUnavailable: Redis cannot be reached, or stays away for more than
                `RECONNECT_FOR_S` seconds.
        """
        if not follow:
            for recorded in await self._call(self._read_events, job_id, after):
                yield recorded
            return
        async for news in self.event_batches(job_id, after, wait_s=None):
            for recorded in news:
                yield recorded

    async def event_batches(
        self, job_id: JobId, after: int = 0, wait_s: float | None = None
    ) -> AsyncIterator[list[RecordedEvent]]:
        """Yield lists of events until the job has ended: the stored events, then new events.

        After `wait_s` seconds without an event, the list is empty. A gap between two versions
        means that the hub dropped events; they are then read from the journal.

        Raises:
            UnknownJob, StoreUnavailable: as `events`.
        """
        info = await self._call(self._read_info, job_id)
        subscription = self._hub.subscribe(job_id, info.version)
        is_over = info.status.has_ended
        try:
            news = await self._read_through_outage(self._read_events, job_id, after)
            while True:
                if news:
                    after = news[-1].version
                    is_over = is_over_after(news, was_over=is_over)
                    yield news
                if is_over:
                    return
                news = await subscription.wait_for_news(wait_s)
                if subscription.has_ended:
                    subscription.has_ended = False  # a job that is retried may end again
                    info = await self._read_through_outage(self._read_info, job_id)
                    news = await self._read_through_outage(self._read_events, job_id, after)
                    is_over = info.status.has_ended
                    continue
                news = [recorded for recorded in news if recorded.version > after]
                if news and news[0].version > after + 1:
                    news = await self._read_through_outage(self._read_events, job_id, after)
                if not news:
                    yield []
        finally:
            self._hub.unsubscribe(subscription)

    async def event_stream(
        self, job_id: JobId, after: int = 0, heartbeat_s: float = HEARTBEAT_S
    ) -> AsyncIterator[str]:
        """Yield the job's events as server-sent events, until it has ended.

        The id of an event is its version: a browser that reconnects sends it as
        `Last-Event-ID`, and `after` takes it. A comment follows every `heartbeat_s` seconds of
        silence. The address of the webhook is left out, because it is a secret.

        Raises:
            UserError: `after` or `heartbeat_s` is out of its bounds.
            UnknownJob, StoreUnavailable: as `events`.
        """
        async for news in self.event_batches(job_id, after, wait_s=heartbeat_s):
            if not news:
                yield ": heartbeat\n\n"
            for recorded in news:
                yield (
                    f"id: {recorded.version}\n"
                    f"event: {recorded.event.type}\n"
                    f"data: {encode_event(recorded.event)}\n\n"
                )

    async def wait(self, job_id: JobId, wait_s: float) -> JobStatus:
        """Wait up to `wait_s` seconds for the job's end, and return the status.

        Raises:
            UnknownJob: there is no such job.
            StoreUnavailable: Redis cannot be reached, or stays away for more than
                `RECONNECT_FOR_S` seconds.
        """
        check_wait_s(wait_s)
        info = await self.info(job_id)
        if info.status.has_ended or wait_s == 0:
            return info.status
        try:
            async with asyncio.timeout(wait_s):
                async for _ in self.event_batches(job_id, info.version, wait_s=None):
                    pass
        except TimeoutError:
            pass
        return (await self.info(job_id)).status

    async def result(self, job_id: JobId, wait_s: float = 0.0) -> JobResult:
        """Wait up to `wait_s` seconds for the end of the job, and return its result so far.

        Raises:
            UnknownJob, StoreUnavailable: as `wait`.
        """
        check_wait_s(wait_s)
        if wait_s > 0:
            await self.wait(job_id, wait_s)
        return await self._call(self._client.result, job_id)

    async def rows(self, job_id: JobId, step: str | None = None) -> list[Row]:
        """Return a row for each item of a workflow with `for_each`. Raises as `Client.rows`."""
        return await self._call(self._client.rows, job_id, step)

    async def outline(self, job_id: JobId) -> JobOutline:
        """Return a summary of the job. Raises `UnknownJob` if there is no such job."""
        return await self._call(self._client.outline, job_id)

    async def handoffs(
        self, job_id: JobId, handoff_ids: Sequence[HandoffId]
    ) -> list[HandoffReport]:
        """Return these handoffs in full. Raises as `Client.handoffs`."""
        return await self._call(self._client.handoffs, job_id, handoff_ids)

    async def delete_tenant(self, tenant: str, *, wait_s: float = 60.0) -> TenantDeletion:
        """Delete everything of a tenant. Raises as `Client.delete_tenant`."""
        return await self._call(self._client.delete_tenant, tenant, wait_s=wait_s)

    async def export(self, job_id: JobId, *, texts: bool = False) -> Export:
        """Return everything about the job. Raises as `Client.export`.

        Args:
            texts: include the texts of the job's documents.
        """
        return await self._call(self._client.export, job_id, texts=texts)

    async def export_tenant(self, tenant: str, *, texts: bool = False) -> AsyncIterator[str]:
        """Yield all jobs and schedules of a tenant, each as one line of JSON. Raises as
        `Client.export_tenant`.
        """
        lines = self._client.export_tenant(tenant, texts=texts)
        while (line := await self._call(next, lines, None)) is not None:
            yield line

    async def cancel(self, job_id: JobId) -> bool:
        """Stop the job on all workers. Return False if the job had ended already."""
        return await self._call(self._client.cancel, job_id)

    async def retry(
        self,
        job_id: JobId,
        from_step: str | None = None,
        limits: NewLimits | None = None,
        *,
        key: str | None = None,
    ) -> None:
        """Continue an ended job, or a job whose budget is spent. Raises as `Client.retry`."""
        await self._call(self._client.retry, job_id, from_step, limits, key=key)

    async def fork(
        self,
        job_id: JobId,
        from_step: str,
        options: ForkOptions | None = None,
        *,
        key: str | None = None,
    ) -> JobId:
        """Enqueue a fork of an ended job, and return its id. Raises as `Client.fork`."""
        return await self._call(self._client.fork, job_id, from_step, options, key=key)

    async def notes(self, tenant: str = DEFAULT_TENANT) -> list[Note]:
        """Return the notes of a tenant's memory, in the order of their paths."""
        return await self._call(self._client.notes, tenant)

    async def note(self, path: str, tenant: str = DEFAULT_TENANT) -> Note:
        """Return one note of a tenant's memory. Raises as `Client.note`."""
        return await self._call(self._client.note, path, tenant)

    async def write_note(self, path: str, text: str, tenant: str = DEFAULT_TENANT) -> Note:
        """Store a note of a person. Raises as `Client.write_note`."""
        return await self._call(self._client.write_note, path, text, tenant)

    async def delete_note(self, path: str, tenant: str = DEFAULT_TENANT) -> None:
        """Delete a note of a tenant's memory. Raises as `Client.delete_note`."""
        await self._call(self._client.delete_note, path, tenant)

    async def say(
        self, job_id: JobId, text: str, step: str | None = None, *, key: str | None = None
    ) -> SentMessage:
        """Send a message to the agents of a running job. Raises as `Client.say`."""
        return await self._call(self._client.say, job_id, text, step, key=key)

    async def approve(
        self,
        job_id: JobId,
        note: str | None = None,
        plan: JsonValue = None,
        steps: Sequence[str] = (),
        rows: Sequence[str] = (),
        question: int | None = None,
        arguments: JsonValue = None,
    ) -> None:
        """Approve the open question of a job. Raises as `Client.approve`."""
        await self._call(self._client.approve, job_id, note, plan, steps, rows, question, arguments)

    async def reject(
        self,
        job_id: JobId,
        note: str | None = None,
        steps: Sequence[str] = (),
        plan: JsonValue = None,
        rows: Sequence[str] = (),
        question: int | None = None,
    ) -> None:
        """Reject the open question of a job. Raises as `Client.reject`."""
        await self._call(self._client.reject, job_id, note, steps, plan, rows, question)

    async def pause(self, agent: str, reason: str = "") -> None:
        """Pause a specialist or a role of the supervisor. Raises as `Client.pause`."""
        await self._call(self._client.pause, agent, reason)

    async def unpause(self, agent: str) -> int | None:
        """End the pause of an agent. Return the number of handoffs that waited, or None.

        Raises as `Client.unpause`.
        """
        return await self._call(self._client.unpause, agent)

    async def requeue_dead(self, letter: DeadLetter) -> None:
        """Publish the message of a dead letter again. Raises as `Client.requeue_dead`."""
        await self._call(self._client.requeue_dead, letter)

    async def drop_dead(self, letter: DeadLetter) -> bool:
        """Drop a dead letter. Return False if another client has dropped it."""
        return await self._call(self._client.drop_dead, letter)

    async def drop_all_dead(self) -> int:
        """Drop all dead letters, and return their number."""
        return await self._call(self._client.drop_all_dead)

    async def tokens(self) -> list[ApiToken]:
        """Return all tokens of the HTTP API, also expired tokens, without their secrets."""
        return await self._call(self._client.tokens)

    async def create_token(
        self,
        name: str,
        access: AccessLevel,
        tenant: str | None = None,
        expires_s: float | None = None,
    ) -> tuple[ApiToken, str]:
        """Create a token of the HTTP API. Return the token and its secret.

        Raises as `Client.create_token`.
        """
        return await self._call(self._client.create_token, name, access, tenant, expires_s)

    async def revoke_token(self, token_id: str) -> None:
        """End a token of the HTTP API at once. Raises as `Client.revoke_token`."""
        await self._call(self._client.revoke_token, token_id)

    async def add_schedule(
        self, name: str, request: Request, options: ScheduleOptions
    ) -> ScheduleStatus:
        """Add a schedule, which starts a job at each slot. Raises as `Client.add_schedule`."""
        return await self._call(self._client.add_schedule, name, request, options)

    async def schedules(self, tenant: str | None = None) -> list[ScheduleStatus]:
        """Return the schedules of a tenant, or of all tenants, in the order of their names."""
        return await self._call(self._client.schedules, tenant)

    async def schedule(self, name: str, tenant: str = DEFAULT_TENANT) -> ScheduleStatus:
        """Return one schedule. Raises as `Client.schedule`."""
        return await self._call(self._client.schedule, name, tenant)

    async def pause_schedule(self, name: str, tenant: str = DEFAULT_TENANT) -> ScheduleStatus:
        """Pause a schedule. Its slots are dropped. Raises as `Client.pause_schedule`."""
        return await self._call(self._client.pause_schedule, name, tenant)

    async def unpause_schedule(self, name: str, tenant: str = DEFAULT_TENANT) -> ScheduleStatus:
        """End the pause of a schedule. Raises as `Client.unpause_schedule`."""
        return await self._call(self._client.unpause_schedule, name, tenant)

    async def run_schedule(
        self, name: str, tenant: str = DEFAULT_TENANT, idempotency_key: str | None = None
    ) -> JobId:
        """Start a job of a schedule at once. Raises as `Client.run_schedule`."""
        return await self._call(self._client.run_schedule, name, tenant, idempotency_key)

    async def remove_schedule(self, name: str, tenant: str = DEFAULT_TENANT) -> None:
        """Remove a schedule. Its jobs stay. Raises as `Client.remove_schedule`."""
        await self._call(self._client.remove_schedule, name, tenant)

    async def audit(self, job_id: JobId | None = None, count: int = 100) -> list[AuditEntry]:
        """Return the newest actions of users, the newest last. Raises as `Client.audit`."""
        return await self._call(self._client.audit, job_id, count)

    async def delete(self, job_id: JobId) -> None:
        """Remove an ended job and its child jobs. Raises as `Client.delete`."""
        await self._call(self._client.delete, job_id)

    async def info(self, job_id: JobId) -> JobInfo:
        """Return the job's status, its usage, and the reason if it waits. Raises `UnknownJob`."""
        return await self._call(self._client.info, job_id)

    async def newest(self, count: int = 20, where: JobFilter = EVERY_JOB) -> list[JobInfo]:
        """Return the jobs that match, the newest first."""
        return await self._call(self._client.newest, count, where)

    async def check(self, request: Request) -> None:
        """Check a request without Redis and without its documents. Raises `UserError`."""
        await self._call(self._client.check, request)

    async def submission(self, request: Request) -> Submission:
        """Return the job that `submit` would store. Raises `UserError`."""
        return await self._call(self._client.submission, request)

    async def read_documents(self, request: Request) -> FolderReading:
        """Return the request's documents and the files that were left out. Raises
        InvalidDocuments.
        """
        return await self._call(self._client.read_documents, request)

    def _read_events(self, job_id: JobId, after: int) -> list[RecordedEvent]:
        """Return the stored events after a version. Raises `UnknownJob`."""
        return list(self._client.events(job_id, after, follow=False))

    async def _read_through_outage(
        self,
        function: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        """Call a function that reads. Wait for a Redis that is away.

        Raises:
            UnknownJob: the job does not exist.
            StoreUnavailable: Redis stays away for more than `RECONNECT_FOR_S` seconds.
        """
        patience = ReconnectLimit()
        while True:
            try:
                return await self._call(function, *args, **kwargs)
            except StoreUnavailable as error:
                patience.record_failure(error)
            await asyncio.sleep(RECONNECT_EVERY_S)

    def _read_info(self, job_id: JobId) -> JobInfo:
        """Return the stored information about the job, without the reasons to wait."""
        return get_job_info(self._client.store, job_id)


def connect_async(
    redis_url: str | None = None,
    settings: Settings | None = None,
    *,
    timeout_s: float = SOCKET_TIMEOUT_S,
) -> AsyncClient:
    """Return an asyncio client of the Redis at `redis_url`. The default is HANDOFF_REDIS_URL.

    The client connects at its first use. Raises as `connect`.

    Args:
        timeout_s: seconds that Redis may take for a reply.
    """
    return AsyncClient(connect(redis_url, settings, timeout_s=timeout_s))


__all__ = ["AsyncClient", "UnknownJob", "connect_async"]
