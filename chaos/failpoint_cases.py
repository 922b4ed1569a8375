"""All failpoint cases: windows of microseconds that random kills do not hit. Pure, except for
the folder of the scripts.

A case is a point in a kind of process, and an action. A run fails if no process reaches a
point, because such a point proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from handoff_queue.chaos.fleet import CONSOLE, SUPERVISOR, WORKER
from handoff_queue.shared.observability.failpoints import AFTER, BEFORE
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE

CLIENT = "client"
"""A client's process that submits or cancels a job: `handoff submit` and `handoff cancel`."""


class FailpointAction(StrEnum):
    """Action at a point."""

    KILL = "kill"
    DROP = "drop"
    REDIS = "kill Redis"
    STOP = "stop"
    """Stop the process until its lease has expired, and then let it continue."""


class Trigger(StrEnum):
    """Action that makes a process reach the point, in addition to running jobs."""

    NOTHING = ""
    END = "tell processes to end"
    CROWD = "more jobs at once than role slots"
    REFUSED = "a provider that turns away many calls"
    LOSE = "lose the first wake-up of new jobs"
    SUBMIT = "handoff submit"
    CANCEL = "handoff cancel"
    UNPAUSE = "handoff unpause"
    UNREAD = "a message of a version that no process here can read"
    REQUEUE = "handoff dead requeue"
    EVALUATION_FAILURE = "an internal error where a job is carried on"
    SLOT = "a schedule with a due slot"
    API_SUBMIT = "jobs that are submitted through the API"
    API_ANSWER = "jobs whose users answer a question through the API"
    API_MESSAGE = "jobs that get messages through the API"
    NOTES = "jobs that write notes"
    BATCHES = "jobs whose calls go into batches"
    API_SCHEDULE = "a schedule that is paused and unpaused through the API"

    @property
    def is_met_by_jobs(self) -> bool:
        """Return whether running jobs reach the point any number of times."""
        of_api_users = (
            Trigger.API_SUBMIT,
            Trigger.API_ANSWER,
            Trigger.API_SCHEDULE,
            Trigger.API_MESSAGE,
        )
        return self._is_met_by_most_jobs or self in of_api_users

    @property
    def is_met_often(self) -> bool:
        """Return whether processes reach the point often, so that a case may also kill Redis
        there.
        """
        return self._is_met_by_most_jobs or self in (Trigger.UNREAD, Trigger.EVALUATION_FAILURE)

    @property
    def _is_met_by_most_jobs(self) -> bool:
        return self in (
            Trigger.NOTHING,
            Trigger.CROWD,
            Trigger.REFUSED,
            Trigger.NOTES,
            Trigger.BATCHES,
        )

    @property
    def is_command(self) -> bool:
        """Return whether a user's command reaches the point."""
        return self in (Trigger.SUBMIT, Trigger.CANCEL, Trigger.UNPAUSE, Trigger.REQUEUE)


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """A failpoint case."""

    kind: str
    point: str
    action: FailpointAction
    trigger: Trigger = Trigger.NOTHING

    def __str__(self) -> str:
        return f"{self.action} at {self.point} of a {self.kind}"


SCRIPTS: dict[str, dict[str, Trigger]] = {
    "claim": {WORKER: Trigger.NOTHING, SUPERVISOR: Trigger.NOTHING},
    "turn": {WORKER: Trigger.NOTHING, SUPERVISOR: Trigger.NOTHING},
    "renew_lease": {WORKER: Trigger.NOTHING, SUPERVISOR: Trigger.NOTHING},
    "finish": {WORKER: Trigger.NOTHING, SUPERVISOR: Trigger.NOTHING},
    "release": {WORKER: Trigger.END, SUPERVISOR: Trigger.END},
    "commit": {
        SUPERVISOR: Trigger.NOTHING,
        CLIENT: Trigger.SUBMIT,
        CONSOLE: Trigger.API_SUBMIT,
    },
    "set_next_evaluation": {SUPERVISOR: Trigger.NOTHING},
    "lease_job_evaluation": {SUPERVISOR: Trigger.NOTHING},
    "queue_role_handoff": {SUPERVISOR: Trigger.CROWD},
    "mark_sent": {SUPERVISOR: Trigger.CROWD},
    "sweep": {SUPERVISOR: Trigger.NOTHING},
    "append_commuting": {CLIENT: Trigger.CANCEL, CONSOLE: Trigger.API_ANSWER},
    "extend_ttl": {CLIENT: Trigger.SUBMIT},
    "record_provider_answer": {WORKER: Trigger.NOTHING, SUPERVISOR: Trigger.NOTHING},
    "defer": {WORKER: Trigger.REFUSED, SUPERVISOR: Trigger.REFUSED},
    "unpause": {CLIENT: Trigger.UNPAUSE},
    "set_daily_caps": {SUPERVISOR: Trigger.END},
    "dead_letter_unreadable": {WORKER: Trigger.UNREAD, SUPERVISOR: Trigger.UNREAD},
    "requeue_dead_letter": {CLIENT: Trigger.REQUEUE},
    "record_failed_evaluation": {SUPERVISOR: Trigger.EVALUATION_FAILURE},
    "send_user_message": {CONSOLE: Trigger.API_MESSAGE},
    "take_messages": {WORKER: Trigger.API_MESSAGE},
    "store_memory_note": {WORKER: Trigger.NOTES},
    "replace_schedule": {SUPERVISOR: Trigger.SLOT, CONSOLE: Trigger.API_SCHEDULE},
}
"""Scripts of the store by kind of process, with the needed action."""
UNTRIED = {
    "presence": "reads only",
    "running_handoffs": "reads only",
    "daily_budget": "it only removes entries of jobs that have ended or are gone",
    "job_summary": "reads only",
    "find_jobs": "reads only",
    "list_jobs": "reads only",
    "list_members": "reads only",
    "read_memory_notes": "reads only",
    "short_fields": "reads only",
    "read_journal": "reads only",
    "read_checkpoints": "reads only",
    "read_payloads": "reads only",
    "read_list": "reads only, or removes reports of which a supervisor may lose one",
    "tenant_backlogs": "reads only",
    "push_dead_letter": "no job depends on a letter; a second one may come with a repeated message",
    "count_jobs": "reads only",
    "copy_refused_commands": "a repeated call finds that the entries are copied",
    "reopen_handoff": "a supervisor that reads the journal again repeats it for each refused end",
    "settle_batch": "tests/e2e/test_batches.py kills a supervisor around it",
    "drop_documents": "a deletion of a tenant is repeated after a kill",
    "drop_orphaned_messages": "it only drops messages of deleted jobs, and finds the rest again",
    "fair_enqueue": "the points of the publisher are around it",
    "fair_dequeue": "the points `take` are around it",
    "fair_dequeue_many": "the same",
    "purge_queue": "an operator drops messages on purpose",
    "keep_fetched_page": "a repeated call of the tool keeps the page again",
    "untaken_messages": "reads only",
    "tool_call_approval_answers": "reads only",
    "ask_tool_call_approval": "tests/e2e/test_call_approvals.py kills processes around it",
    "answer_tool_call_approval": "the same",
}
"""Scripts without failpoints, and why."""
PUBLISHES: dict[str, dict[str, Trigger]] = {
    "part": {SUPERVISOR: Trigger.NOTHING},
    SUPERVISOR_QUEUE: {
        WORKER: Trigger.NOTHING,
        SUPERVISOR: Trigger.NOTHING,
        CLIENT: Trigger.CANCEL,
    },
    SUBMISSIONS_QUEUE: {SUPERVISOR: Trigger.LOSE, CLIENT: Trigger.SUBMIT},
    ROLES_QUEUE: {SUPERVISOR: Trigger.CROWD},
}
"""Published messages by kind of process: to a queue, or a part of a chord to a specialist's
queue. A worker's wake-ups are the bodies of chords.
"""
OTHER_POINTS: dict[str, dict[str, Trigger]] = {
    "ack": {WORKER: Trigger.NOTHING, SUPERVISOR: Trigger.NOTHING},
    "requeue": {WORKER: Trigger.END},
    "take": {WORKER: Trigger.CROWD, SUPERVISOR: Trigger.CROWD},
    "chord.part": {WORKER: Trigger.NOTHING},
    "batch.create": {WORKER: Trigger.BATCHES},
    "batch.read": {WORKER: Trigger.BATCHES},
}


STOPPED_BEFORE = ("turn", "finish", "commit")
"""Scripts that the store must refuse after the lease has expired."""


def list_cases() -> list[Case]:
    """Return all cases. Cases with rare needs come first, so that all other cases run next to
    them. Kills of Redis that need no action are spread evenly, because only one runs at a
    time.
    """
    of_redis: list[Case] = []
    others: list[Case] = []
    for case in sorted(_iterate_cases(), key=_get_rank):
        if case.action is FailpointAction.REDIS and case.trigger is Trigger.NOTHING:
            of_redis.append(case)
        else:
            others.append(case)
    places: dict[Case, float] = {}
    for part in (of_redis, others):
        for number, case in enumerate(part):
            places[case] = number / len(part)
    return sorted(places, key=lambda case: places[case])


def _get_rank(case: Case) -> tuple[bool, bool, str, bool, str, str, str]:
    return (
        case.trigger.is_met_by_jobs,
        case.trigger is Trigger.NOTHING,
        case.trigger,
        case.action is FailpointAction.REDIS,
        case.point,
        case.kind,
        case.action,
    )


def _iterate_cases() -> Iterator[Case]:
    for script in STOPPED_BEFORE:
        for kind in (WORKER, SUPERVISOR):
            if kind in SCRIPTS[script]:
                yield Case(kind, f"script.{script}.{BEFORE}", FailpointAction.STOP)
    for prefix, table in (("script.", SCRIPTS), ("publish.", PUBLISHES), ("", OTHER_POINTS)):
        for name, kinds in table.items():
            for kind, trigger in kinds.items():
                yield from _iterate_cases_of_failpoint(f"{prefix}{name}", kind, trigger)


def _iterate_cases_of_failpoint(name: str, kind: str, trigger: Trigger) -> Iterator[Case]:
    yield Case(kind, f"{name}.{BEFORE}", FailpointAction.KILL, trigger)
    yield Case(kind, f"{name}.{AFTER}", FailpointAction.KILL, trigger)
    if name != "chord.part":  # several requests, so no single answer can be lost
        yield Case(kind, f"{name}.{AFTER}", FailpointAction.DROP, trigger)
    if kind != CLIENT and trigger.is_met_often and name != "chord.part":
        yield Case(kind, f"{name}.{AFTER}", FailpointAction.REDIS, trigger)
        if name.startswith("script."):
            yield Case(kind, f"{name}.{BEFORE}", FailpointAction.REDIS, trigger)
