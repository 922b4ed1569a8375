"""The Python client: submit a job, follow its events, read its result, cancel the job.

    from pathlib import Path

    import handoff_queue

    jobs = handoff_queue.connect("redis://:password@localhost:6379/0")
    request = handoff_queue.Request("Compare Qdrant and Milvus", documents=Path("notes"))
    job_id = jobs.submit(request)
    for recorded in jobs.events(job_id):  # stops at the end of the job
        print(recorded.event.type)
    print(jobs.result(job_id, wait_s=600).answer)

All methods are safe to call from several threads. A method imports its own modules when it is
called. Together these imports take longer than reading a job does, and most programs need few
modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from pydantic import JsonValue, SecretStr

from handoff_queue.shared.settings.redis_url import URL_ARGUMENT, URL_VARIABLE
from handoff_queue.shared.settings.settings import Settings, get_redis_url, load_settings
from handoff_queue.shared.store.job_filter import EVERY_JOB, JobFilter
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.redis.connection import ONLOOKER_TIMEOUT_S, SOCKET_TIMEOUT_S
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.audit import Actor, AuditAction, AuditEntry
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import (
    DEFAULT_TENANT,
    CancelRequested,
    JobStatus,
    RecordedEvent,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.limits import NewLimits
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.client.argument_types import (
    check_arguments,
    check_type,
    check_wait_s,
)
from handoff_queue.supervisor.client.audit import audit_change
from handoff_queue.supervisor.client.dead_letters import put_back
from handoff_queue.supervisor.client.deletion import check_ended, delete_job
from handoff_queue.supervisor.client.job_lookup import check_job_id, find_job_info, get_job_info
from handoff_queue.supervisor.client.journal_follower import iterate_events, wait_for_end
from handoff_queue.supervisor.client.pauses import pause, unpause
from handoff_queue.supervisor.client.waiting_reasons import with_waiting

if TYPE_CHECKING:
    from handoff_queue.shared.documents.folder import FolderReading
    from handoff_queue.shared.store.dead_letters import DeadLetter
    from handoff_queue.shared.types.api_tokens import AccessLevel, ApiToken
    from handoff_queue.shared.types.memory_notes import Note
    from handoff_queue.shared.types.schedule import ScheduleStatus
    from handoff_queue.supervisor.client.deletion import TenantDeletion
    from handoff_queue.supervisor.client.export import Export
    from handoff_queue.supervisor.client.forks import ForkOptions
    from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
    from handoff_queue.supervisor.client.job_outline import JobOutline
    from handoff_queue.supervisor.client.job_result import HandoffReport, JobResult
    from handoff_queue.supervisor.client.repeated_step_rows import Row
    from handoff_queue.supervisor.client.request import Request
    from handoff_queue.supervisor.client.schedules import ScheduleOptions
    from handoff_queue.supervisor.client.submission import Clash, Submission
    from handoff_queue.supervisor.client.user_messages import SentMessage

Answer = TypeVar("Answer")


@check_arguments
class Client:
    """Access to the job queue for programs that use threads."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self._settings = settings
        self._actor: Actor | None = None
        self._origin: Client | None = None

    def acting_as(self, actor: Actor) -> Client:
        """Return a client whose actions name this actor, on the same connections.

        The journal of a job records the actor of each action on the job. The audit stream
        records the actor of each action on the fleet.
        """
        check_type("the actor", actor, Actor)
        acting = copy(self)
        acting._actor = actor
        acting._origin = self._origin or self
        return acting

    def close(self) -> None:
        """Close all connections of this client, and of the clients of its `acting_as`."""
        if "_dispatcher" in self.__dict__:
            self._dispatcher.close()
        self.store.connection.close()

    @property
    def settings(self) -> Settings:
        """The settings of this client."""
        return self._settings

    def submit(self, request: Request) -> JobId:
        """Enqueue a job and return its id at once.

        Raises:
            UserError: the request, its documents, its schema or its limits cannot be used.
                The message says what to change.
            BudgetSpent: the tenant or the installation has spent its budget for the day.
            TooManyOpenJobs: the tenant has as many open jobs as it may have.
            Conflict: the idempotency key was used before, for another request.
            StoreUnavailable: Redis cannot be reached, or has no memory for a new job. The
                message says if the job may have been stored.
        """
        from handoff_queue.supervisor.client.submission import submit

        return submit(self.store, self._dispatcher, self._settings, *self._prepare(request))

    def submit_each(self, requests: Iterable[Request]) -> Iterator[JobId]:
        """Enqueue many jobs and yield their ids in order.

        Fifty jobs are stored in about as many round trips as one job. The message of each job
        takes one more. Nothing is stored before the caller asks for the first id. The documents
        are read and stored one job after the other. If the caller stops early, up to 49 more
        jobs are stored than ids were yielded.

        Raises:
            UserError, BudgetSpent, TooManyOpenJobs, Conflict, StoreUnavailable: as `submit`, for
                the job whose id would be next. The jobs before that job are stored, and no job
                after it.
        """
        from handoff_queue.supervisor.client.submission import submit_each

        return submit_each(
            self.store, self._dispatcher, self._settings, map(self._prepare, requests)
        )

    def first_clash(self, requests: Sequence[Request]) -> Clash | None:
        """Return the first request whose idempotency key belongs to another request or job.

        Return None if no key clashes. Another client may still use a key before `submit`.

        Raises:
            UserError: see `submit`.
        """
        from handoff_queue.supervisor.client.submission import (
            find_first_clash,
            list_job_ids_with_key,
        )

        submissions = [self.submission(request) for request in requests]
        stored_events = self.store.journal.read_first_events(list_job_ids_with_key(submissions))
        return find_first_clash(submissions, stored_events)

    def events(
        self, job_id: JobId, after: int = 0, *, follow: bool = True
    ) -> Iterator[RecordedEvent]:
        """Yield the events of the job after the version `after`, the oldest first.

        The iterator waits for new events until the job has ended, if `follow` is true. To
        continue later, pass the version of the last event.

        Raises:
            UnknownJob: there is no such job.
        """
        return iterate_events(self.store, job_id, after, follow=follow)

    def result(self, job_id: JobId, wait_s: float = 0.0) -> JobResult:
        """Wait up to `wait_s` seconds for the end of the job, and return its result.

        If the job has not ended by then, `status` says so, and the lists hold the results so
        far.

        Raises:
            UnknownJob: there is no such job.
            UserError: the job has ended, and this process does not trust the event of its end.
            StoreUnavailable: as `wait`.
        """
        from handoff_queue.supervisor.client.job_result import read_report

        self.wait(job_id, wait_s)
        return read_report(self.store, job_id)

    def rows(self, job_id: JobId, step: str | None = None) -> list[Row]:
        """Return a row for each item of a workflow with `for_each`, under the item's own key.

        While the job runs, the list holds the results so far.

        Args:
            step: a repeated step, as the workflow names it; None: the last repeated steps.

        Raises:
            UnknownJob: there is no such job.
            UserError: `step` is not a repeated step of the job.
        """
        from handoff_queue.supervisor.client.repeated_step_rows import read_rows

        return read_rows(self.store, check_job_id(job_id), step)

    def outline(self, job_id: JobId) -> JobOutline:
        """Return a summary of the job. The time does not depend on the number of steps.

        Raises:
            UnknownJob: there is no such job.
        """
        from handoff_queue.supervisor.client.job_outline import build_outline

        return build_outline(self.store, check_job_id(job_id))

    def handoffs(self, job_id: JobId, handoff_ids: Sequence[HandoffId]) -> list[HandoffReport]:
        """Return some handoffs of the job in full.

        Raises:
            UnknownJob: there is no such job.
            UserError: the job has no handoff with a given id.
        """
        from handoff_queue.supervisor.client.job_result import read_handoffs

        return read_handoffs(self.store, check_job_id(job_id), handoff_ids)

    def wait(self, job_id: JobId, wait_s: float) -> JobStatus:
        """Wait up to `wait_s` seconds for the end of the job, and return the status.

        The client reconnects if Redis is away for less than `RECONNECT_FOR_S` seconds.

        Raises:
            UnknownJob: there is no such job.
            StoreUnavailable: Redis cannot be reached, or stays away for longer.
        """
        check_wait_s(wait_s)
        return wait_for_end(self.store, job_id, wait_s)

    def export(self, job_id: JobId, *, texts: bool = False) -> Export:
        """Return everything about the job. `export(...).to_json()` is the text of a file.

        Args:
            texts: include the texts of the job's documents.

        Raises:
            UnknownJob: there is no such job.
        """
        from handoff_queue.supervisor.client.export import build_export

        self._load_job_info(job_id)
        return build_export(self.store, self._settings, job_id, texts=texts)

    def export_tenant(self, tenant: str, *, texts: bool = False) -> Iterator[str]:
        """Yield all jobs and schedules of a tenant, each as one line of JSON.

        The first line has the type `tenant`, and the last line has the type `end` and the counts.
        One job is in memory at a time.

        Args:
            texts: include the texts of the documents.

        Raises:
            UserError: the tenant is not a text.
        """
        from handoff_queue.supervisor.client.export import iterate_tenant_lines

        return iterate_tenant_lines(self.store, self._settings, tenant, texts=texts)

    def cancel(self, job_id: JobId) -> bool:
        """Stop the job on all workers. Return False if the job had ended already.

        Raises:
            UnknownJob: there is no such job.
        """
        self._load_job_info(job_id)
        version = self.store.journal.append_unless_ended(
            job_id, CancelRequested(actor=self._actor), {"cancelled": 1}
        )
        if not version:
            return False
        self._dispatcher.wake(job_id)
        return True

    def retry(
        self,
        job_id: JobId,
        from_step: str | None = None,
        limits: NewLimits | None = None,
        *,
        key: str | None = None,
    ) -> None:
        """Continue an ended job, or a job that waits for a decision about its budget.

        The job repeats the steps that did not succeed. If its answer has gaps, the job fills the
        gaps and waits for late steps.

        Args:
            from_step: repeat this step and all steps that depend on it.
            limits: new, higher limits of the job.
            key: an idempotency key. A call with the key of an earlier retry has no effect.

        Raises:
            UnknownJob: there is no such job.
            Conflict: the key was used for another retry of the job.
            TooManyOpenJobs: the tenant of the job has as many open jobs as it may have.
            UserError: the job runs, is a child of another job, or has no such step.
                `UserError` also means that the job is `ok` and `from_step` is None, or that its
                budget is spent and `limits` does not raise it.
        """
        from handoff_queue.supervisor.client.job_retry import retry_job
        from handoff_queue.supervisor.client.request import check_bounds

        if limits is not None:
            check_type("the limits", limits, NewLimits)
            check_bounds("the limits", limits)
        self._load_job_info(job_id)
        retry_job(self.store, job_id, from_step, limits or NewLimits(), self._actor, key)
        self._dispatcher.wake(job_id)

    def fork(
        self,
        job_id: JobId,
        from_step: str,
        options: ForkOptions | None = None,
        *,
        key: str | None = None,
    ) -> JobId:
        """Enqueue a fork of an ended job, and return its id.

        The fork has the plan of the job. It keeps the results of all steps that do not depend
        on `from_step`, and pays only for the other steps. The webhook and the end task of the job
        get no news of the fork.

        Args:
            options: the differences between the fork and the job; None: none.
            key: an idempotency key. Calls with the same key make one fork.

        Raises:
            UnknownJob: there is no such job.
            Conflict: the key was used for another job.
            UserError: the job is a child, has not ended, has no such step, or its documents are
                gone. `UserError` also means that the fork would repeat another step that may
                have acted on the world.
            BudgetSpent, TooManyOpenJobs, StoreUnavailable: as `submit`.
        """
        from handoff_queue.supervisor.client.forks import ForkOptions, prepare_fork
        from handoff_queue.supervisor.client.submission import submit

        request, submission = prepare_fork(
            self.store, job_id, from_step, options or ForkOptions(), key
        )
        self.check(request)
        return submit(
            self.store, self._dispatcher, self._settings, request, submission.set_actor(self._actor)
        )

    def say(
        self, job_id: JobId, text: str, step: str | None = None, *, key: str | None = None
    ) -> SentMessage:
        """Send a message to all agents of a running job, or to the agents of one step.

        An agent that runs takes the message once, before its next model call. An agent that
        begins later has the message in its task. The planner, the replanner, the assessor and
        the synthesizer get every message.

        Args:
            key: an idempotency key. Calls with the same key and the same message are one message.

        Raises:
            UnknownJob: there is no such job.
            UserError: the text is empty or too long, the job has no such step, or no agent will
                read the message.
            Conflict: the key was used for another message of the job.
        """
        from handoff_queue.supervisor.client.user_messages import say

        self._load_job_info(job_id)
        return say(self.store, job_id, text, step, key, self._actor)

    def approve(
        self,
        job_id: JobId,
        note: str | None = None,
        plan: JsonValue = None,
        steps: Sequence[str] = (),
        rows: Sequence[str] = (),
        question: int | None = None,
        arguments: JsonValue = None,
    ) -> None:
        """Approve the open question of a job.

        Args:
            arguments: arguments that replace those of the tool call in question.
            plan: a plan that replaces the plan of the job, in the form of `result(...).plan`.
            steps: approve only these steps.
            rows: approve only the copies with these keys of a step with `for_each`.
            question: answer only this question: the version of its entry in
                `result(...).approvals`. A repeated call then answers no later question. An
                approval of a call of a tool needs it.

        Raises:
            UserError: the job does not wait for an approval, asks another question, or does not
                ask about a given step or row. If `plan` has errors, the message has a line for
                each error.
        """
        from handoff_queue.supervisor.client.approvals import approve

        self._load_job_info(job_id)
        approve(self.store, job_id, note, plan, steps, rows, self._actor, question, arguments)
        self._dispatcher.wake(job_id)

    def reject(
        self,
        job_id: JobId,
        note: str | None = None,
        steps: Sequence[str] = (),
        plan: JsonValue = None,
        rows: Sequence[str] = (),
        question: int | None = None,
    ) -> None:
        """Reject the open question of a job.

        A rejected plan, failed step, research or answer is made again if the limits of the job
        allow another try. A step that waits for its approval does not run.

        Args:
            note: the change that is needed.
            steps: reject only these steps. For research or an answer: repeat only these steps.
            plan: a draft, which the planner reads, in the form of `result(...).plan`.
            rows: reject only the copies with these keys of a step with `for_each`.
            question: answer only this question: the version of its entry in
                `result(...).approvals`. A repeated call then answers no later question.

        Raises:
            UserError: the job does not wait for an approval, asks another question, or has no such
                step or row. If `plan` has errors, the message has a line for each error.
        """
        from handoff_queue.supervisor.client.approvals import reject

        self._load_job_info(job_id)
        reject(self.store, job_id, note, steps, plan, rows, self._actor, question)
        self._dispatcher.wake(job_id)

    def pause(self, agent: str, reason: str = "") -> None:
        """Pause a specialist, or a role of the supervisor, on all machines.

        Workers claim no handoff for a paused agent. A running handoff stops after its turn. All
        its handoffs wait until `unpause`.

        Raises:
            UserError: no worker serves or has served this agent.
        """
        pause(self.store, agent, reason, self._actor)

    def unpause(self, agent: str) -> int | None:
        """End the pause of an agent. Return the number of handoffs that waited.

        Return None if the agent was not paused.

        Raises:
            UserError: the agent is not paused, and no worker serves or has served it.
        """
        return unpause(self.store, agent, self._actor)

    def notes(self, tenant: str = DEFAULT_TENANT) -> list[Note]:
        """Return the notes of a tenant's memory, in the order of their paths."""
        return self.store.notes.list_with_jobs(tenant)

    def note(self, path: str, tenant: str = DEFAULT_TENANT) -> Note:
        """Return one note of a tenant's memory.

        Raises:
            UserError: the tenant has no such note.
        """
        from handoff_queue.supervisor.client.memory_notes import find_note

        note = find_note(self.store, path, tenant).note
        return note.model_copy(update={"job_id": self.store.notes.find_job(tenant, path)})

    def write_note(self, path: str, text: str, tenant: str = DEFAULT_TENANT) -> Note:
        """Store a note of a person. It replaces a note at the same path, `SUBJECT/NAME`.

        Raises:
            UserError: the path or the text is not valid, or the memory of the tenant is full.
            Conflict: an agent has changed the note at the same time.
        """
        from handoff_queue.supervisor.client.memory_notes import write_note

        return self._audit_change(
            AuditAction.WRITE_NOTE,
            path,
            lambda: write_note(self.store, path, text, tenant, self._actor),
            f"of tenant {tenant}",
        )

    def delete_note(self, path: str, tenant: str = DEFAULT_TENANT) -> None:
        """Delete a note of a tenant's memory.

        Raises:
            UserError: the tenant has no such note.
            Conflict: an agent has changed the note at the same time.
        """
        from handoff_queue.supervisor.client.memory_notes import delete_note

        self._audit_change(
            AuditAction.DELETE_NOTE,
            path,
            lambda: delete_note(self.store, path, tenant),
            f"of tenant {tenant}",
        )

    def requeue_dead(self, letter: DeadLetter) -> None:
        """Publish the message of a dead letter again, and drop the letter.

        Fix the cause first. Otherwise the message becomes a dead letter again.

        Raises:
            UserError: the letter holds no handoff and no job id, no job waits for the handoff, or
                the job has ended.
        """
        self._audit_change(
            AuditAction.REQUEUE,
            letter.id,
            lambda: put_back(self.store, self._dispatcher, letter),
            f"to {letter.queue}",
        )

    def drop_dead(self, letter: DeadLetter) -> bool:
        """Drop a dead letter. Return False if another client has dropped it."""
        drop = self.store.dead_letters.drop
        return self._audit_change(
            AuditAction.DROP, letter.id, lambda: drop(letter), f"of {letter.queue}"
        )

    def drop_all_dead(self) -> int:
        """Drop all dead letters, and return their number."""
        return self._audit_change(
            AuditAction.DROP, "all dead letters", self.store.dead_letters.drop_all
        )

    def tokens(self) -> list[ApiToken]:
        """Return all tokens of the HTTP API, also expired tokens, without their secrets."""
        return self.store.api_tokens.list_all()

    def create_token(
        self,
        name: str,
        access: AccessLevel,
        tenant: str | None = None,
        expires_s: float | None = None,
    ) -> tuple[ApiToken, str]:
        """Create a token of the HTTP API. Return the token and its secret.

        No method returns the secret again.

        Args:
            tenant: the only tenant that the token sees; None for every tenant.
            expires_s: seconds until the token ends; None for a token without an end.

        Raises:
            UserError: the name or the tenant is not a line of text, or an admin has a tenant.
        """
        from handoff_queue.supervisor.client.api_tokens import create_token

        return create_token(self.store, name, access, tenant, expires_s, self._actor)

    def revoke_token(self, token_id: str) -> None:
        """End a token of the HTTP API at once.

        Raises:
            UserError: there is no such token.
        """
        from handoff_queue.supervisor.client.api_tokens import revoke_token

        revoke_token(self.store, token_id, self._actor)

    def add_schedule(self, name: str, request: Request, options: ScheduleOptions) -> ScheduleStatus:
        """Add a schedule, which starts a job of the request at each slot.

        The documents are read and stored now. `request.tenant` owns the schedule and its jobs.

        Raises:
            UserError: the request, the cron expression or the time zone cannot be used, or the
                tenant has as many schedules as it may have.
            ScheduleExists: the tenant has a schedule of this name.
            StoreUnavailable: Redis is filled above the mark.
        """
        from handoff_queue.supervisor.client.admission import check_room
        from handoff_queue.supervisor.client.request import check_is_request
        from handoff_queue.supervisor.client.schedules import (
            ScheduleOptions,
            add_schedule,
            build_checked_request,
            check_options,
        )

        check_is_request(request)
        hint = f"write ScheduleOptions({options!r:.80})" if isinstance(options, str) else ""
        check_type("the options", options, ScheduleOptions, hint)
        check_options(name, request, options)
        self.check(build_checked_request(request, options))
        check_room(self.store, self.settings.memory_mark)
        return add_schedule(self.store, name, self.submission(request), options, self._actor)

    def schedules(self, tenant: str | None = None) -> list[ScheduleStatus]:
        """Return the schedules of a tenant, or of all tenants, in the order of their names."""
        from handoff_queue.supervisor.client.schedules import read_status

        return [
            read_status(self.store, schedule) for schedule in self.store.schedules.list_all(tenant)
        ]

    def schedule(self, name: str, tenant: str = DEFAULT_TENANT) -> ScheduleStatus:
        """Return one schedule.

        Raises:
            UserError: the tenant has no schedule of this name.
        """
        from handoff_queue.supervisor.client.schedules import find_schedule, read_status

        return read_status(self.store, find_schedule(self.store, tenant, name).schedule)

    def pause_schedule(self, name: str, tenant: str = DEFAULT_TENANT) -> ScheduleStatus:
        """Pause a schedule. Its slots are dropped until `unpause_schedule`.

        Raises:
            UserError: the tenant has no schedule of this name.
        """
        from handoff_queue.supervisor.client.schedules import set_paused

        return set_paused(self.store, tenant, name, self._actor, is_paused=True)

    def unpause_schedule(self, name: str, tenant: str = DEFAULT_TENANT) -> ScheduleStatus:
        """End the pause of a schedule. Its next slot is the first one after now.

        Raises:
            UserError: the tenant has no schedule of this name.
        """
        from handoff_queue.supervisor.client.schedules import set_paused

        return set_paused(self.store, tenant, name, self._actor, is_paused=False)

    def run_schedule(
        self, name: str, tenant: str = DEFAULT_TENANT, idempotency_key: str | None = None
    ) -> JobId:
        """Start a job of a schedule at once, and return its id.

        The job also starts while the schedule is paused, and while an earlier job runs.

        Args:
            idempotency_key: calls with the same key start one job.

        Raises:
            UserError: the tenant has no schedule of this name, the job is refused, or the key is
                not a line of text.
            BudgetSpent: the amount of this month is spent.
        """
        from handoff_queue.supervisor.client.schedules import run_now

        return run_now(
            self.store,
            self._dispatcher,
            self._settings,
            tenant,
            name,
            self._actor,
            idempotency_key,
        )

    def remove_schedule(self, name: str, tenant: str = DEFAULT_TENANT) -> None:
        """Remove a schedule. Its jobs stay.

        Raises:
            UserError: the tenant has no schedule of this name.
        """
        from handoff_queue.supervisor.client.schedules import remove_schedule

        remove_schedule(self.store, tenant, name, self._actor)

    def audit(self, job_id: JobId | None = None, count: int = 100) -> list[AuditEntry]:
        """Return the newest actions of users, the newest last.

        Args:
            job_id: the job whose journal has the actions. None: actions on the fleet and
                deletions of jobs.

        Raises:
            UnknownJob: there is no such job.
            UserError: the count is 0.
        """
        from handoff_queue.supervisor.client.audit import find_actions

        if count < 1:
            raise UserError(f"count must be a whole number of at least 1, not {count}")
        if job_id is None:
            return self.store.audit.list_newest(count)
        self._load_job_info(job_id)
        return find_actions(job_id, self.store.journal.read(job_id))[-count:]

    def delete(self, job_id: JobId) -> None:
        """Remove an ended or unreadable job with its journal, its payloads and its child jobs.

        Raises:
            UserError: the job has not ended, or is a child of another job.
        """
        info = find_job_info(self.store, job_id)
        if info.parent:
            raise UserError(
                f"{job_id} is a child job of {info.parent}: delete {info.parent}, which deletes"
                " both"
            )
        check_ended(info)
        self._audit_change(AuditAction.DELETE, job_id, lambda: delete_job(self.store, job_id))

    def delete_tenant(self, tenant: str, *, wait_s: float = 60.0) -> TenantDeletion:
        """Delete everything of a tenant: tokens, schedules, jobs, documents and statistics.

        Open jobs are cancelled first. A supervisor must run to end them. Documents that a job of
        another tenant holds stay. The audit stream stays. A deletion that was interrupted may be
        repeated.

        Args:
            wait_s: seconds to wait for the end of the cancelled jobs. The result says whether
                all have ended.

        Raises:
            UserError: the tenant is not a text.
        """
        from handoff_queue.supervisor.client.deletion import delete_tenant

        check_wait_s(wait_s)
        return self._audit_change(
            AuditAction.DELETE_TENANT,
            tenant,
            lambda: delete_tenant(self.store, self.cancel, tenant, wait_s),
        )

    def info(self, job_id: JobId) -> JobInfo:
        """Return the status and the usage of the job, and the reason if it waits.

        Raises:
            UnknownJob: there is no such job.
        """
        return with_waiting(self.store, [self._load_job_info(job_id)])[0]

    def _prepare(self, request: Request) -> tuple[Request, Submission]:
        self.check(request)
        return request, self.submission(request)

    def _load_job_info(self, job_id: JobId) -> JobInfo:
        return get_job_info(self.store, job_id)

    def _audit_change(
        self, action: AuditAction, subject: str, change: Callable[[], Answer], detail: str = ""
    ) -> Answer:
        """Make a change on the fleet with its entry in the audit stream, and return its result."""
        return audit_change(self.store, self._actor, action, subject, change, detail)

    @cached_property
    def _dispatcher(self) -> Dispatcher:
        """Return the dispatcher. A client that only reads jobs never imports Celery.

        Two threads may each make a dispatcher at the same time. Both work. All clients of
        `acting_as` share the dispatcher of the first client.
        """
        if self._origin is not None:
            return self._origin._dispatcher
        from handoff_queue.shared.broker.celery_app import make_app
        from handoff_queue.supervisor.client.handoff_publishing import Dispatcher

        return Dispatcher(
            make_app(
                "client",
                self.store.connection.url,
                self._settings,
                (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE),
            ),
            self.store.trust,
            self.store.connection.sealing,
        )

    def newest(self, count: int = 20, where: JobFilter = EVERY_JOB) -> list[JobInfo]:
        """Return the jobs that match, the newest first, each as `info` returns it."""
        job_ids = self.store.jobs.list_newest(count, where)
        return with_waiting(self.store, self.store.jobs.read(job_ids))

    def check(self, request: Request) -> None:
        """Check a request without Redis, and without reading its documents.

        Raises:
            UserError: see `submit`.
        """
        from handoff_queue.supervisor.client.request import check_request

        check_request(request, self._settings)

    def submission(self, request: Request) -> Submission:
        """Return the job that `submit` would store for this request.

        Raises:
            UserError: see `submit`.
        """
        from handoff_queue.supervisor.client.request import check_is_request
        from handoff_queue.supervisor.client.submission import complete_request

        check_is_request(request)
        return complete_request(self.store, self._settings, request).set_actor(self._actor)

    def read_documents(self, request: Request) -> FolderReading:
        """Read the documents of a request.

        Raises:
            InvalidDocuments: a document cannot be read.
        """
        from handoff_queue.supervisor.client.request import check_is_request
        from handoff_queue.supervisor.client.submission import read_documents

        check_is_request(request)
        return read_documents(request, self._settings)


def connect(
    redis_url: str | None = None,
    settings: Settings | None = None,
    *,
    timeout_s: float = SOCKET_TIMEOUT_S,
) -> Client:
    """Return a client of the Redis at `redis_url`. The default is HANDOFF_REDIS_URL.

    The client connects at its first use.

    Args:
        timeout_s: seconds that Redis may take for a reply.

    Raises:
        UserError: the URL is empty, of another type, or not one of Redis.
    """
    settings = settings or load_settings()
    url_name = URL_VARIABLE
    if redis_url is not None:
        check_type("the Redis URL", redis_url, str)
        if not redis_url:
            raise UserError("the Redis URL is empty: leave it out to use HANDOFF_REDIS_URL")
        settings = settings.model_copy(update={"redis_url": SecretStr(redis_url)})
        url_name = URL_ARGUMENT
    store = open_store(get_redis_url(settings), settings, timeout_s=timeout_s, url_name=url_name)
    return Client(store, settings)


def connect_onlooker(jobs: Client) -> Client:
    """Return a second client with the short timeout `ONLOOKER_TIMEOUT_S`.

    A live display uses this client, so that a person soon sees that Redis does not reply.
    """
    connection = jobs.store.connection
    store = open_store(
        connection.url,
        jobs.settings,
        timeout_s=ONLOOKER_TIMEOUT_S,
        url_name=connection.url_name,
    )
    return Client(store, jobs.settings)
