"""The same as the CLI, from Python: submit a job, follow its events, get its result, cancel it.

    from handoff_queue.supervisor.client import client

    jobs = client.connect("redis://:password@localhost:6379/0") job_id =
    jobs.submit(client.Request("Compare Qdrant, pgvector and Milvus", documents=Path("notes")))
    for recorded in jobs.events(job_id):          # ends when the job has ended
        print(recorded.event.type)
    print(jobs.result(job_id, wait_s=600).answer)

All methods are safe to call from several threads. Each imports what only it needs when it is
called: all of that together takes longer to import than a look at a job takes, and who
connects rarely asks for more than one thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue, SecretStr

from handoff_queue.shared.settings.settings import Settings, load_settings, redis_url_of
from handoff_queue.shared.store.jobs import EVERY_JOB, JobFilter, JobStanding
from handoff_queue.shared.store.redis.connection import ONLOOKER_TIMEOUT_S, SOCKET_TIMEOUT_S
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.errors import Conflict, UnknownJob, UserError
from handoff_queue.shared.types.events import CancelRequested, JobStatus, Recorded
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.limits import NewLimits
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.client.argument_types import check_type, check_wait_s
from handoff_queue.supervisor.client.control import delete_job, pause, resume
from handoff_queue.supervisor.client.job_lookup import check_job_id, get_standing
from handoff_queue.supervisor.client.journal_follower import events_of, wait_for_end
from handoff_queue.supervisor.client.waiting_reasons import with_waiting

if TYPE_CHECKING:
    from handoff_queue.shared.documents.folder import FolderReading
    from handoff_queue.shared.store.dead_letters import DeadLetter
    from handoff_queue.supervisor.client.dispatch import Dispatcher
    from handoff_queue.supervisor.client.export import Export
    from handoff_queue.supervisor.client.outline import JobOutline
    from handoff_queue.supervisor.client.report import HandoffReport, JobResult
    from handoff_queue.supervisor.client.request import Request
    from handoff_queue.supervisor.client.rows import Row
    from handoff_queue.supervisor.client.submission import Clash, Submission
else:
    _PLACES = {
        "Clash": "handoff_queue.supervisor.client.submission",
        "HandoffReport": "handoff_queue.supervisor.client.report",
        "JobOutline": "handoff_queue.supervisor.client.outline",
        "JobResult": "handoff_queue.supervisor.client.report",
        "Request": "handoff_queue.supervisor.client.request",
        "Row": "handoff_queue.supervisor.client.rows",
    }

    def __getattr__(name: str) -> Any:
        """The types that this module gives away, for whoever names one."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_PLACES[name]), name)


class Client:
    """The door to the job queue."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self._settings = settings

    def submit(self, request: Request) -> JobId:
        """Enqueue a job and return its id at once.

        Raises:
            UserError: the request, its documents, its schema or its limits are not usable;
            says how to mend it.
            BudgetSpent: the tenant, or the installation, has spent what it may in a day.
            Conflict: the idempotency key was used before, for another request.
            StoreUnavailable: Redis cannot be reached, or is too full for a new job; says so
            where it is not known whether it was enqueued.
        """
        from handoff_queue.supervisor.client.submit import submit

        return submit(self.store, self._dispatcher, self._settings, *self._made(request))

    def submit_each(self, requests: Iterable[Request]) -> Iterator[JobId]:
        """Enqueue many jobs, fifty of them in about as many round trips as one takes, and give
        their ids in order, a slice's when it is in. Nothing happens before the first id is
        asked for; documents are still read and stored job by job. Whoever stops asking
        half-way has up to 49 more jobs than ids.

        Raises:
            UserError, BudgetSpent, StoreUnavailable: as `submit`, of the job whose id would
            be next; those given are enqueued, none after.
        """
        from handoff_queue.supervisor.client.submit import submit_each

        return submit_each(self.store, self._dispatcher, self._settings, map(self._made, requests))

    def first_clash(self, requests: Sequence[Request]) -> Clash | None:
        """The first of these whose idempotency key stands for another request, one of them or
        a job; None: there is none. All can be submitted, if nobody else takes a key meanwhile.
        """
        from handoff_queue.supervisor.client.submission import first_clash

        made = [self.submission(request) for request in requests]
        return first_clash(
            made, self.store.journal.first_events([one.job_id for one in made if one.has_key])
        )

    def events(self, job_id: JobId, after: int = 0, *, follow: bool = True) -> Iterator[Recorded]:
        """The job's events after a version, oldest first; with `follow` until it has ended.
        Start again from the last version seen.

        Raises:
            UnknownJob: there is no such job.
        """
        return events_of(self.store, job_id, after, follow=follow)

    def result(self, job_id: JobId, wait_s: float = 0.0) -> JobResult:
        """Everything about the job; waits up to `wait_s` seconds for its end. `status` says
        whether it has ended.

        Raises:
            UnknownJob: there is no such job.
            StoreUnavailable: as `wait`.
        """
        from handoff_queue.supervisor.client.report import report_on

        self.wait(job_id, wait_s)
        return report_on(self.store, job_id)

    def rows(self, job_id: JobId, step: str | None = None) -> list[Row]:
        """Return a row for each item of a workflow with `for_each`, under the item's own key.

        While the job runs, the list holds the results so far. `step`: a repeated step, as the
        workflow names it; None: the last repeated steps.

        Raises:
            UnknownJob: there is no such job.
            UserError: `step` is no repeated step of the job.
        """
        from handoff_queue.supervisor.client.rows import rows_on

        return rows_on(self.store, check_job_id(job_id), step)

    def outline(self, job_id: JobId) -> JobOutline:
        """What matters of the job, as quickly for one of 10,000 steps as for one of 200.
        Raises: UnknownJob: there is no such job.
        """
        from handoff_queue.supervisor.client.outline import outline_on

        return outline_on(self.store, check_job_id(job_id))

    def handoffs(self, job_id: JobId, handoff_ids: Sequence[HandoffId]) -> list[HandoffReport]:
        """These of the job's handoffs in full, as quickly. Raises: UserError: there is no such
        job, or it has none of that name.
        """
        from handoff_queue.supervisor.client.report import handoffs_on

        return handoffs_on(self.store, check_job_id(job_id), handoff_ids)

    def wait(self, job_id: JobId, wait_s: float) -> JobStatus:
        """Wait up to `wait_s` seconds for the job's end; the status as it is then. A Redis
        that comes back within `RECONNECT_FOR_S`, and before that time is over, costs nothing.

        Raises:
            UnknownJob: there is no such job.
            StoreUnavailable: Redis is not there, or stays away.
        """
        check_wait_s(wait_s)
        return wait_for_end(self.store, job_id, wait_s)

    def export(self, job_id: JobId, *, texts: bool = False) -> Export:
        """The whole of a job, for a file: `export(...).to_json()`. `texts`: those of its
        documents, too.

        Raises:
            UnknownJob: there is no such job.
        """
        from handoff_queue.supervisor.client.export import export_of

        self._known(job_id)
        return export_of(self.store, self._settings, job_id, texts=texts)

    def cancel(self, job_id: JobId) -> bool:
        """Stop the job everywhere. Returns whether there was anything to stop.

        Raises:
            UnknownJob: there is no such job.
        """
        self._known(job_id)
        is_heard = (
            self.store.journal.append_unless_ended(job_id, CancelRequested(), {"cancelled": 1}) > 0
        )
        if is_heard:
            self._dispatcher.wake(job_id)
        return is_heard

    def retry(
        self,
        job_id: JobId,
        from_step: str | None = None,
        limits: NewLimits | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """Go on with an ended job: what did not succeed again, or everything from one step on.
        `limits`: raises those of the job; `whole`: fill its gaps, and leave nothing out for
        being late.

        Raises:
            UserError: it has not ended, has no such step, or no gaps, or has spent its budget
            and gets no more.
        """
        from handoff_queue.supervisor.client.request import check_bounds
        from handoff_queue.supervisor.client.retry_request import retry_job

        if limits is not None:
            check_type("the limits", limits, NewLimits)
            check_bounds("the limits", limits)
        self._known(job_id)
        retry_job(self.store, job_id, from_step, limits or NewLimits(), whole=whole)
        self._dispatcher.wake(job_id)

    def approve(
        self,
        job_id: JobId,
        note: str | None = None,
        plan: JsonValue = None,
        steps: Sequence[str] = (),
        rows: Sequence[str] = (),
    ) -> None:
        """Let a job go on that waits for an approval.

        `plan`: takes the place of the job's plan, in the form of `result(...).plan`. `steps`: those
        that may begin, of the steps that the job asks about; the others are asked about again.
        `rows`: of a step with `for_each`, only the copies with these keys.

        Raises:
            UserError: the job waits for no approval, or not any more; it asks about no such step;
                or what is wrong with the plan, a line each.
        """
        from handoff_queue.supervisor.client.approvals import approve

        self._known(job_id)
        approve(self.store, job_id, note, plan, steps, rows)
        self._dispatcher.wake(job_id)

    def reject(
        self,
        job_id: JobId,
        note: str | None = None,
        steps: Sequence[str] = (),
        plan: JsonValue = None,
        rows: Sequence[str] = (),
    ) -> None:
        """Have it made again: the plan, these steps, or those that make the answer.

        `note`: what is to be mended. `plan`: your own draft of the plan, which the planner
        reads, in the form of `result(...).plan`. `rows`: of a step with `for_each`, only the
        copies with these keys.

        Raises:
            UserError: the job waits for no approval, or not any more; it has no such step or row;
                or what is wrong with the plan, a line each.
        """
        from handoff_queue.supervisor.client.approvals import reject

        self._known(job_id)
        reject(self.store, job_id, note, steps, plan, rows)
        self._dispatcher.wake(job_id)

    def pause(self, role: str, reason: str = "") -> None:
        """Stop a specialist, or one of the supervisor's roles, on every machine: no claim, and
        no turn after the one that runs. What it was to do waits.

        Raises:
            UserError: nobody has ever served it, so it would be a slip of the pen; while
            nobody at all is announced, if it looks like one.
        """
        check_type("the role", role, str)
        check_type("the reason", reason, str)
        pause(self.store, role, reason)

    def resume(self, role: str) -> int | None:
        """Let a role go on. Return how many handoffs it had been stopped at. None: it was not
        paused.

        Raises:
            UserError: the role is not paused, and no worker serves or has served it.
        """
        return resume(self.store, role)

    def retry_dead(self, letter: DeadLetter) -> None:
        """Put what a dead letter was about back where it came from, and drop the letter. Mend
        the cause first.

        Raises:
            UserError: it is no message of ours, or nobody waits for it any more.
        """
        from handoff_queue.supervisor.client.dead_letters import put_back

        put_back(self.store, self._dispatcher, letter)

    def delete(self, job_id: JobId) -> None:
        """Remove an ended job and everything of it, its children too.

        Raises:
            UserError: it has not ended, or is a child of a job.
        """
        if parent := self._known(job_id).parent:
            raise UserError(
                f"{job_id} does a step of {parent}: delete that job, and this one goes with it"
            )
        delete_job(self.store, job_id)

    def standing(self, job_id: JobId) -> JobStanding:
        """Status, books, and what the job waits for if somebody is missing. Raises:
        UnknownJob: there is no such job.
        """
        return with_waiting(self.store, [self._known(job_id)])[0]

    def _made(self, request: Request) -> tuple[Request, Submission]:
        self.check(request)
        return request, self.submission(request)

    def _known(self, job_id: JobId) -> JobStanding:
        return get_standing(self.store, job_id)

    @cached_property
    def _dispatcher(self) -> Dispatcher:
        """Made for the first message: who only looks need not import Celery. Two threads may
        each make one: it is as good as the other.
        """
        from handoff_queue.shared.broker.celery_app import make_app
        from handoff_queue.supervisor.client.dispatch import Dispatcher

        return Dispatcher(
            make_app(
                "client",
                self.store.connection.url,
                self._settings,
                (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE),
            )
        )

    def newest(self, count: int = 20, where: JobFilter = EVERY_JOB) -> list[JobStanding]:
        """Return the jobs that match, the newest first, each as `standing` returns it."""
        job_ids = self.store.jobs.newest(count, where)
        return with_waiting(self.store, self.store.jobs.standings(job_ids))

    def check(self, request: Request) -> None:
        """What can be said of a request without Redis and without its documents.

        Raises:
            UserError: see `submit`.
        """
        from handoff_queue.supervisor.client.request import check_request

        check_request(request, self._settings)

    def submission(self, request: Request) -> Submission:
        """A request as it would enter the store. Raises: UserError."""
        from handoff_queue.supervisor.client.request import check_is_request
        from handoff_queue.supervisor.client.submission import complete_request

        check_is_request(request)
        return complete_request(self.store, self._settings, request)

    def read_documents(self, request: Request) -> FolderReading:
        """Raises: InvalidDocuments."""
        from handoff_queue.supervisor.client.submission import documents_of

        return documents_of(request, self._settings)


def connect(
    redis_url: str | None = None,
    settings: Settings | None = None,
    *,
    timeout_s: float = SOCKET_TIMEOUT_S,
) -> Client:
    """A client for this Redis (default: HANDOFF_REDIS_URL). Connects when it is first used.
    `timeout_s`: how long Redis may be silent.

    Raises:
        UserError: the URL is empty, of another type, or not one of Redis.
    """
    settings = settings or load_settings()
    if redis_url is not None:
        check_type("the Redis URL", redis_url, str)
        if not redis_url:
            raise UserError("the Redis URL is empty: leave it out to use HANDOFF_REDIS_URL")
        settings = settings.model_copy(update={"redis_url": SecretStr(redis_url)})
    return Client(open_store(redis_url_of(settings), settings, timeout_s=timeout_s), settings)


def onlooker_of(jobs: Client) -> Client:
    """Another, for a person who looks on and is to hear soon of a Redis that is silent: see
    `ONLOOKER_TIMEOUT_S`.
    """
    return Client(
        open_store(jobs.store.connection.url, jobs._settings, timeout_s=ONLOOKER_TIMEOUT_S),
        jobs._settings,
    )


__all__ = [
    "Clash",
    "Client",
    "Conflict",
    "HandoffReport",
    "JobFilter",
    "JobOutline",
    "JobResult",
    "NewLimits",
    "Request",
    "Row",
    "UnknownJob",
    "connect",
]
