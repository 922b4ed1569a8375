"""Schedules in the store: one JSON text for each, its job, and the times of the next slots."""

from __future__ import annotations

from dataclasses import dataclass

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.payloads import pack, unpack
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import parse_figure, read_entries
from handoff_queue.shared.types.errors import MalformedMessage, UserError
from handoff_queue.shared.types.schedule import Schedule, ScheduledJob

SCHEDULES = "schedules"
"""Scope of the jobs of schedules, see `Sealing`."""
MAX_SCHEDULES = 1_000
"""Schedules of one tenant. They have no end, so a tenant could fill Redis with them."""
MAX_CHANGE_TRIES = 50
"""Most tries of a user's change while supervisors change the same schedule."""
_DONE, _TOO_MANY = 1, -1
"""Answers of `replace_schedule.lua`."""
ADD_WITHIN_S = 600
"""Seconds for which a stored job stays without its schedule, if the process ends in between."""


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule with its text in the store. The text proves that nothing has changed."""

    schedule: Schedule
    text: str


class Schedules:
    """All schedules."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, schedule: Schedule, job: ScheduledJob) -> bool:
        """Store a new schedule. Return False if the tenant has a schedule of this name.

        Raises:
            UserError: the tenant has `MAX_SCHEDULES` schedules.
        """
        with self._connection.translate_errors():
            sealed = self._connection.sealing.seal_for(
                schedule.tenant, SCHEDULES, schedule.id, pack(job.to_json())
            )
            self._connection.redis.set(keys.schedule_job(schedule.id), sealed, ex=ADD_WITHIN_S)
        answer = self._replace(schedule, "", schedule.to_json())
        if answer == _TOO_MANY:
            with self._connection.translate_errors():
                self._connection.redis.delete(keys.schedule_job(schedule.id))
            raise UserError(
                f"tenant {schedule.tenant[:60]} has {MAX_SCHEDULES:,} schedules: remove some",
                command="handoff schedule remove NAME",
            )
        return answer == _DONE

    def replace(self, old: StoredSchedule, new: Schedule) -> bool:
        """Replace a schedule. Return False if it is no longer as `old`."""
        return self._replace(new, old.text, new.to_json()) == _DONE

    def remove(self, old: StoredSchedule) -> bool:
        """Remove a schedule. Return False if it is no longer as `old`."""
        return self._replace(old.schedule, old.text, "") == _DONE

    def find(self, tenant: str, name: str) -> StoredSchedule | None:
        """Return a schedule, or None if the tenant has no schedule of this name."""
        with self._connection.translate_errors():
            text = self._connection.redis.hget(keys.SCHEDULES, _build_member(tenant, name))
        if text is None:
            return None
        return _parse_schedule(text)

    def list_all(self, tenant: str | None = None) -> list[Schedule]:
        """Return the schedules of one tenant or of all tenants, in the order of their names.
        Unreadable schedules are left out.
        """
        with self._connection.translate_errors():
            texts = self._connection.redis.hvals(keys.SCHEDULES)
        schedules: list[Schedule] = []
        for schedule in read_entries(texts, Schedule.from_json, keys.SCHEDULES):
            if tenant in (None, schedule.tenant):
                schedules.append(schedule)
        return sorted(schedules, key=lambda schedule: (schedule.name, schedule.tenant))

    def list_due(self) -> list[StoredSchedule]:
        """Return all schedules that a supervisor must check now. Unreadable schedules are left
        out: a supervisor of another version may read them.
        """
        now_ms = int(self._connection.now() * 1000)
        with self._connection.translate_errors():
            redis = self._connection.redis
            members = redis.zrangebyscore(keys.SCHEDULE_SLOTS, "-inf", now_ms)
            if not members:
                return []
            texts = redis.hmget(keys.SCHEDULES, members)
        return read_entries([text for text in texts if text], _parse_schedule, keys.SCHEDULES)

    def build_job(self, schedule: Schedule) -> ScheduledJob:
        """Return the job of a schedule.

        Raises:
            MalformedMessage: the job was lost, or a version that is not this one stored it.
            UnreadablePayload: the stored bytes are damaged, or encrypted with another key.
        """
        with self._connection.translate_errors():
            stored_form = self._connection.redis.get(keys.schedule_job(schedule.id))
        if stored_form is None:
            raise MalformedMessage("the job of the schedule is not stored")
        packed = self._connection.sealing.open_for(
            schedule.tenant, SCHEDULES, schedule.id, stored_form
        )
        return ScheduledJob.from_json(unpack(packed))

    def read_spent_microusd(self, schedule_id: str, month: str) -> int:
        """Return the money that the jobs of a month have spent, in micro-dollars."""
        with self._connection.translate_errors():
            counters = self._connection.redis.mget(
                keys.schedule_month(schedule_id, month), keys.verified_month(schedule_id, month)
            )
        counted_microusd, verified_microusd = counters
        return max(parse_figure(counted_microusd) or 0, parse_figure(verified_microusd) or 0)

    def _replace(self, schedule: Schedule, old: str, new: str) -> int:
        """Replace the text of a schedule. Return the answer of `replace_schedule.lua`.

        Args:
            old: the stored text; '': there must be none.
            new: '' to remove the schedule.
        """
        member = _build_member(schedule.tenant, schedule.name)
        due_ms = "" if schedule.due_at is None else int(schedule.due_at * 1000)
        script_keys = [keys.SCHEDULES, keys.SCHEDULE_SLOTS, keys.schedule_job(schedule.id)]
        arguments = [member, old, new, due_ms, MAX_SCHEDULES]
        return int(self._connection.run_script("replace_schedule", script_keys, arguments))


def _build_member(tenant: str, name: str) -> str:
    """Return the field of a schedule. A name has no slash, so the text is unique."""
    return f"{name}/{tenant}"


def _parse_schedule(text: bytes) -> StoredSchedule:
    return StoredSchedule(Schedule.from_json(text), text.decode())
