"""Looks: what a supervisor does at a job outside any claim, counted until it comes to its end.

What freezes a process holds its interpreter lock until the watchdog ends it; in a handoff its
claims count that. A look has no claim, so it is noted in the job's hash by the script that
reads the journal, and struck out by the script with which it ends: `commit`, `due` or
`stumble`, which run anyway. What is done afterwards is no part of it: a role's handoff that
runs in place has its claim, which what follows from the result is decided under; or, where
that cannot stand in the journal with the result, the script that ends the handoff notes the
look again, for it is decided without another reading then. Nothing counts what
is told or sent then: wake-ups, messages, webhooks, what a child tells its parent.

Any number of looks at one job may go on at once, for wake-ups overlap, so what is noted are
looks, each with a word of its own and the time when it was last heard of by Redis's clock, its
beginning for most, and not a number:

- A look that comes to its end strikes out itself and all that began before it. So what is noted are those in a row that did not end.
- One is given up when nothing was heard of it for `FROZEN_AFTER_LEASES` leases, which is just before the watchdog ends a frozen process: it
  froze, or its process was killed, which cannot be told apart, as with claims. Time in which
  nobody could speak to Redis does not count (`silence.lua`). Of one that takes longer than a
  third of a lease, the thread that renews the leases of its process says that it lives.
- Those that began before the first of them was given up count as one: processes that are killed in quick succession, or a machine that is
  switched off, are no reason to end a job. After `MAX_LOOKS` times it ends.
- Until one is given up, a frozen one's wake-up is taken for lost, and others begin: `MAX_LOOKS` at the most, those of one moment counted as
  one (`TOGETHER_S`). Once the job has failed so, one at a time shows whether it still does,
  and one at a time tries to end it, for what that takes may be what froze the others. Whoever
  comes beside them does not begin.

A look that is told to end (SIGTERM) comes to its end first. One that lost Redis, or was
interrupted otherwise, says so as soon as it is heard; if it never is, the next look that ends
strikes it out. A supervisor of a version without looks neither notes nor strikes out any: it
is not counted, and takes nothing from what others have noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claims import MAX_LOOKS
from handoff_queue.shared.store.frozen_process import FROZEN_AFTER_LEASES
from handoff_queue.shared.store.journal import READ_AT_MOST, Journal, parse_stream_entry
from handoff_queue.shared.store.redis.connection import Connection, ScriptCall
from handoff_queue.shared.types.errors import PoisonJob, StoreUnavailable, TooManyEvaluators
from handoff_queue.shared.types.events import Recorded
from handoff_queue.shared.types.ids import JobId, new_word

TOGETHER_S = 0.5
"""Between looks that wake-ups of one moment have led to; while too many may be frozen, the
next one is tried as soon.
"""


@dataclass(frozen=True, slots=True)
class EvaluationLease:
    """One look at a job, from its beginning to its end."""

    connection: Connection
    journal: Journal
    lease_s: float
    job_id: JobId
    name: str = field(default_factory=new_word)
    """A word that only this look knows; the scripts that end it are told."""

    def begin(self, after: int = 0) -> list[Recorded]:
        """Note it, and read the events after a version, oldest first. Said again, it is the
        same look.

        Raises:
            LooksFrozen: `MAX_LOOKS` times in a row none came to its end. This one is noted.
            LooksCrowded: as many as may be are at it just now. It is not noted, and the job is
            due again soon.
        """
        most = [READ_AT_MOST, MAX_LOOKS]
        times_ms = [
            int(seconds * 1000)
            for seconds in (self.lease_s * FROZEN_AFTER_LEASES, TOGETHER_S, self.lease_s)
        ]
        verdict, entries = self._say("begin", after, *most, *times_ms)
        if verdict == b"frozen":
            raise PoisonJob(
                f"looks at {self.job_id} were never heard of again, {MAX_LOOKS} times in a row"
            )
        if verdict == b"crowded":
            raise TooManyEvaluators(f"those who look at {self.job_id} just now may be frozen")
        found = [
            parse_stream_entry((entry_id, dict(zip(fields[::2], fields[1::2], strict=True))))
            for entry_id, fields in entries
        ]
        return (
            found
            if len(found) < READ_AT_MOST
            else found + self.journal.read(self.job_id, found[-1].version)
        )

    @property
    def sign_of_life(self) -> ScriptCall:
        """What says that it goes on, for `Leases`."""
        return self._names, [self.name, "lives"]

    def interrupted(self) -> None:
        """It ends through no fault of the job, and no other script says so; with Redis away,
        nothing can be said.
        """
        with suppress(StoreUnavailable):
            self._say("end")

    def _say(self, *order: Any) -> Sequence[Any]:
        answer: Sequence[Any] = self.connection.script("look", self._names, [self.name, *order])
        return answer

    @property
    def _names(self) -> list[str]:
        return [keys.job(self.job_id), keys.DUE, keys.log(self.job_id)]


class EvaluationLeases:
    """Where looks are begun."""

    def __init__(self, connection: Connection, journal: Journal, lease_s: float) -> None:
        self._connection = connection
        self._journal = journal
        self._lease_s = lease_s

    def at(self, job_id: JobId) -> EvaluationLease:
        """A look that has not begun yet."""
        return EvaluationLease(self._connection, self._journal, self._lease_s, job_id)
