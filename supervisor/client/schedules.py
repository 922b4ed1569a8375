"""Add, list, pause and remove schedules, and start the jobs of their slots."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from handoff_queue.shared.observability.telemetry import get_telemetry
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.schedules import MAX_CHANGE_TRIES, StoredSchedule
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.audit import Actor, AuditAction
from handoff_queue.shared.types.errors import (
    BudgetSpent,
    MalformedMessage,
    ScheduleExists,
    StoreUnavailable,
    UnknownSchedule,
    UnreadablePayload,
    UserError,
    VersionConflict,
)
from handoff_queue.shared.types.events import BY_SCHEDULE, CancelRequested
from handoff_queue.shared.types.ids import JobId, create_job_id
from handoff_queue.shared.types.names import NAME_PATTERN
from handoff_queue.shared.types.schedule import (
    Missed,
    Overlap,
    Schedule,
    ScheduledJob,
    ScheduleStatus,
    SlotStart,
)
from handoff_queue.supervisor.client.admission import Admission
from handoff_queue.supervisor.client.argument_types import check_type
from handoff_queue.supervisor.client.audit import audit_change
from handoff_queue.supervisor.client.cron import check_cron, format_month
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.client.request import Request, check_names
from handoff_queue.supervisor.client.schedule_decisions import (
    build_slot_key,
    decide_next,
    describe_spent_month,
    is_spent,
    record_start,
    set_paused_state,
    skip_slot,
    take_due_slots,
)
from handoff_queue.supervisor.client.submission import ANNOUNCE_AFTER_S, Submission, follow_on


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """The times of a schedule, and its rules."""

    cron: str
    """Minute, hour, day, month and weekday, or a name such as `@daily`."""
    timezone: str = "UTC"
    """A name such as `Europe/Berlin`."""
    overlap: Overlap = Overlap.SKIP
    missed: Missed = Missed.LAST
    max_microusd_per_month: int | None = None
    """Slots are skipped after the jobs of a calendar month have spent this amount."""
    follows_last: bool = False
    """True: each job continues the last job of the schedule."""


def check_options(name: str, request: Request, options: ScheduleOptions) -> None:
    """Check a new schedule without Redis.

    Raises:
        UserError: a value has another type, or values do not fit together.
    """
    check_type("the schedule's name", name, str)
    check_type("the cron expression", options.cron, str)
    check_type("the time zone", options.timezone, str)
    check_type("overlap", options.overlap, Overlap)
    check_type("missed", options.missed, Missed)
    if not re.fullmatch(NAME_PATTERN, name):
        raise UserError(
            f"{name!r:.80} cannot name a schedule: use lower-case letters, digits, `-` and `_`, and"
            " begin with a letter"
        )
    if options.missed is Missed.ALL and options.overlap is not Overlap.QUEUE:
        raise UserError(
            f"missed all (--missed) needs overlap queue (--overlap), not {options.overlap}:"
            " otherwise the first missed job would displace the others"
        )
    limit = options.max_microusd_per_month
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise UserError(
            f"max_microusd_per_month (--max-usd-per-month) must be above 0, not {limit!r:.40}"
        )
    if request.idempotency_key is not None:
        raise UserError(
            f"remove idempotency_key ({request.idempotency_key!r:.40}) from the request: a schedule"
            " makes a key for each slot"
        )
    if request.after is not None:
        raise UserError(
            f"remove after ({request.after!r:.40}) from the request: a job of a schedule can follow"
            " only the last one, with follows_last (--after last)"
        )
    if options.follows_last and request.workflow is not None:
        raise UserError(
            "a schedule with a workflow cannot continue its last job: remove follows_last (--after"
            " last) or workflow (--workflow)"
        )


def build_checked_request(request: Request, options: ScheduleOptions) -> Request:
    """Return the request with a limit in money if the schedule has one, so that the check needs
    a model whose price is known.
    """
    if options.max_microusd_per_month is None or request.limits.max_microusd is not None:
        return request
    limits = request.limits.model_copy(update={"max_microusd": options.max_microusd_per_month})
    return replace(request, limits=limits)


def add_schedule(
    store: Store, name: str, submission: Submission, options: ScheduleOptions, actor: Actor | None
) -> ScheduleStatus:
    """Store a schedule with the job that it starts.

    Raises:
        UserError: the cron expression or the time zone cannot be used.
        ScheduleExists: the tenant has a schedule of this name.
    """
    now = store.connection.now()
    cron, first = check_cron(options.cron, options.timezone, now)
    event = submission.event
    schedule = Schedule(
        id=secrets.token_hex(6),
        name=name,
        tenant=event.tenant,
        title=event.title,
        cron=cron,
        timezone=options.timezone,
        overlap=options.overlap,
        missed=options.missed,
        max_microusd_per_month=options.max_microusd_per_month,
        follows_last=options.follows_last,
        actor=actor,
        created_at=now,
        next_slot=first,
    )
    job = ScheduledJob(
        event=event, payloads=submission.payloads, documents=dict(submission.documents)
    )
    if store.schedules.find(event.tenant, name) is not None:
        raise _build_name_taken_error(name)

    def add() -> bool:
        return store.schedules.add(schedule, job)

    details = f"{cron}, {options.timezone}, tenant {event.tenant}"
    is_added = audit_change(store, actor, AuditAction.ADD_SCHEDULE, name, add, details)
    if not is_added:
        raise _build_name_taken_error(name)
    return read_status(store, schedule)


def _build_name_taken_error(name: str) -> ScheduleExists:
    return ScheduleExists(
        f"there is a schedule {name} already: remove it first",
        command=f"handoff schedule remove {name}",
    )


def find_schedule(store: Store, tenant: str, name: str) -> StoredSchedule:
    """Return a schedule.

    Raises:
        UserError: the tenant has no schedule of this name. The message names similar names.
    """
    check_type("the schedule's name", name, str)
    check_type("the tenant", tenant, str)
    stored_schedule = store.schedules.find(tenant, name)
    if stored_schedule is None:
        known = sorted(schedule.name for schedule in store.schedules.list_all(tenant))
        hint = suggest_name(name, known) if known else "the tenant has no schedules"
        raise UnknownSchedule(
            f"there is no schedule {name[:64]!r} of tenant {tenant}: {hint}",
            command="handoff schedule list",
        )
    return stored_schedule


def read_status(store: Store, schedule: Schedule) -> ScheduleStatus:
    """Return a schedule for users."""
    month = format_month(schedule.timezone, store.connection.now())
    running: list[JobId] = []
    for job in store.jobs.read([JobId(job_id) for job_id in schedule.running]):
        if not job.status.has_ended:
            running.append(job.job_id)
    next_slot = None
    if not schedule.is_paused:
        next_slot = schedule.next_slot
    computed: dict[str, object] = {
        "spent_microusd": store.schedules.read_spent_microusd(schedule.id, month),
        "next_slot": next_slot,
        "running": tuple(running),
    }
    values: dict[str, object] = {}
    for name in ScheduleStatus.model_fields:
        values[name] = computed[name] if name in computed else getattr(schedule, name)
    return ScheduleStatus.model_validate(values)


def set_paused(
    store: Store, tenant: str, name: str, actor: Actor | None, *, is_paused: bool
) -> ScheduleStatus:
    """Pause or unpause a schedule. Slots that pass while it is paused are dropped.

    Raises:
        UserError: there is no such schedule.
    """
    action = AuditAction.PAUSE_SCHEDULE if is_paused else AuditAction.UNPAUSE_SCHEDULE

    def apply_change(schedule: Schedule) -> Schedule:
        return set_paused_state(schedule, store.connection.now(), is_paused=is_paused)

    def change_stored() -> Schedule:
        return _change_schedule(store, tenant, name, apply_change)

    find_schedule(store, tenant, name)
    changed_schedule = audit_change(store, actor, action, name, change_stored, f"tenant {tenant}")
    return read_status(store, changed_schedule)


def remove_schedule(store: Store, tenant: str, name: str, actor: Actor | None) -> None:
    """Remove a schedule. Its jobs stay.

    Raises:
        UserError: there is no such schedule.
    """

    def remove() -> None:
        for _ in range(MAX_CHANGE_TRIES):
            if store.schedules.remove(find_schedule(store, tenant, name)):
                return
        raise _build_busy_error(name)

    find_schedule(store, tenant, name)
    audit_change(store, actor, AuditAction.REMOVE_SCHEDULE, name, remove, f"tenant {tenant}")


def _change_schedule(
    store: Store, tenant: str, name: str, change: Callable[[Schedule], Schedule]
) -> Schedule:
    """Change a schedule that supervisors may change at the same time. Return the new state."""
    for _ in range(MAX_CHANGE_TRIES):
        stored_schedule = find_schedule(store, tenant, name)
        changed_schedule = change(stored_schedule.schedule)
        if store.schedules.replace(stored_schedule, changed_schedule):
            return changed_schedule
    raise _build_busy_error(name)


def _build_busy_error(name: str) -> StoreUnavailable:
    return StoreUnavailable(f"the schedule {name} changes all the time: try again")


def run_now(
    store: Store,
    dispatcher: Dispatcher,
    settings: Settings,
    tenant: str,
    name: str,
    actor: Actor | None,
    key: str | None,
) -> JobId:
    """Start a job of a schedule at once, and return its id. A running job does not prevent it.

    Args:
        key: calls with the same key start one job; None: each call starts a job.

    Raises:
        UserError: there is no such schedule, the job is refused, or the key cannot be used.
        BudgetSpent: the amount of this month is spent.
    """
    schedule = find_schedule(store, tenant, name).schedule
    job_id = create_job_id()
    if key is not None:
        check_type("the idempotency key", key, str)
        check_names(Request(text=schedule.title, idempotency_key=key))
        job_id = store.job_ids.derive(tenant, f"schedule:{name}:{schedule.id}:run:{key}")
        if store.jobs.read([job_id]):
            return job_id
    month = format_month(schedule.timezone, store.connection.now())
    spent_microusd = store.schedules.read_spent_microusd(schedule.id, month)
    if is_spent(schedule, spent_microusd):
        raise BudgetSpent(f"schedule {name}: {describe_spent_month(schedule, spent_microusd)}")
    after = None
    if schedule.follows_last and schedule.last_job:
        after = JobId(schedule.last_job)

    def add_job(current: Schedule) -> Schedule:
        if job_id in current.running:
            return current  # an earlier call with this key ended before the job was stored
        changes = {"running": (*current.running, job_id), "last_job": job_id}
        return current.model_copy(update={**changes, "started": current.started + 1})

    submission, _ = _build_submission(store, schedule, job_id, month, after)
    _admit(store, settings, submission)
    _change_schedule(store, tenant, name, add_job)
    _store(store, dispatcher, submission.set_actor(actor))
    return job_id


def advance(
    store: Store, dispatcher: Dispatcher, settings: Settings, stored_schedule: StoredSchedule
) -> bool:
    """Take the next step of a due schedule. Return whether another step may follow.

    Two supervisors may take the same step at the same time. The step has one effect.

    Raises:
        StoreUnavailable: Redis cannot be reached, or has no memory for the job. The step stays
            due.
    """
    schedule = stored_schedule.schedule
    if schedule.starting is not None:
        _start(store, dispatcher, settings, stored_schedule, schedule.starting)
        return True
    now = store.connection.now()
    updated_schedule = take_due_slots(schedule, now)
    if updated_schedule != schedule:
        store.schedules.replace(stored_schedule, updated_schedule)
        return True
    if schedule.is_paused or not schedule.waiting:
        return False
    running = tuple(JobId(job_id) for job_id in schedule.running)
    ended_jobs = set(running)  # a deleted job is not read, and has ended
    cancelled: set[JobId] = set()
    for info in store.jobs.read(running):
        if not info.status.has_ended:
            ended_jobs.discard(info.job_id)
        if info.cancelled:
            cancelled.add(info.job_id)
    month = format_month(schedule.timezone, now)
    spent_microusd = store.schedules.read_spent_microusd(schedule.id, month)
    decision = decide_next(schedule, ended_jobs, spent_microusd, now)
    for job_id in set(decision.to_cancel) - cancelled:
        event = CancelRequested(by=f"{BY_SCHEDULE}{schedule.name}", actor=schedule.actor)
        if store.journal.append_unless_ended(job_id, event, {"cancelled": 1}):
            dispatcher.wake(job_id)
    if decision.schedule == schedule:
        return False
    store.schedules.replace(stored_schedule, decision.schedule)
    return True


def _start(
    store: Store,
    dispatcher: Dispatcher,
    settings: Settings,
    stored_schedule: StoredSchedule,
    start: SlotStart,
) -> None:
    """Store the job of a slot, unless it is stored already, and note it. A refused slot is
    skipped.
    """
    schedule = stored_schedule.schedule
    job_id = store.job_ids.derive(schedule.tenant, build_slot_key(schedule, start.slot))
    note = ""
    try:
        if not store.jobs.read([job_id]):
            after = JobId(start.after) if start.after else None
            submission, note = _build_submission(store, schedule, job_id, start.month, after)
            _admit(store, settings, submission)
            _store(store, dispatcher, submission)
    except (UserError, MalformedMessage, UnreadablePayload) as error:
        if not store.jobs.read([job_id]):
            skipped = skip_slot(schedule, start.slot, str(error))
            store.schedules.replace(stored_schedule, skipped)
            return
    started_schedule = record_start(schedule, start.slot, job_id)
    if note:
        started_schedule = started_schedule.model_copy(update={"note": note})
    store.schedules.replace(stored_schedule, started_schedule)


def _build_submission(
    store: Store, schedule: Schedule, job_id: JobId, month: str, after: JobId | None
) -> tuple[Submission, str]:
    """Return the job of a slot, and a note if it cannot continue the job `after`."""
    job = store.schedules.build_job(schedule)
    submission = Submission(
        job_id=job_id,
        event=job.event,
        payloads=job.payloads,
        documents=job.documents,
        has_key=True,
        month=keys.schedule_month(schedule.id, month),
    )
    if after is None:
        return submission, ""
    documents: dict[str, bytes] | None = {} if job.event.manifest else None
    request = Request(text=job.event.title, documents=documents)
    try:
        follows = follow_on(store, after, request)
    except UserError as error:
        return submission, f"{job_id} does not continue the last job: {error}"
    changes: dict[str, object] = {"given": follows.given_results, "after": follows.job}
    if job.event.manifest is None:
        changes |= {"manifest": follows.manifest, "document_count": follows.document_count}
    event = job.event.model_copy(update=changes)
    payloads = (*job.payloads, *follows.payloads)
    pages = follows.pages
    return replace(submission, event=event, payloads=payloads, pages=pages), ""


def _admit(store: Store, settings: Settings, submission: Submission) -> None:
    """Check the job against the fleet, as `handoff submit` does.

    Raises:
        UserError, BudgetSpent, TooManyOpenJobs, StoreUnavailable: see `Admission.check`.
    """
    event = submission.event
    request = Request(text=event.title, model=event.model, tenant=event.tenant)
    admission = Admission(store, settings)
    admission.check(submission.job_id, event.fact_checker, request)


def _store(store: Store, dispatcher: Dispatcher, submission: Submission) -> None:
    """Store and announce a job. A job that is stored already stays as it is."""
    with get_telemetry().submitting(submission.job_id) as traceparent:
        work_s = submission.event.limits.max_seconds
        store.payloads.put_new_documents(submission.documents, work_s, submission.event.tenant)
        due_at = store.connection.now() + ANNOUNCE_AFTER_S
        try:
            store.journal.commit(submission.commit(due_at, traceparent))
        except VersionConflict:
            return
        dispatcher.announce(submission.job_id)
