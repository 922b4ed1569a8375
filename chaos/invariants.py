"""The invariants of a run: compares the promises with the records of the model's server, the
journals and the killer. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import inf

from handoff_queue.chaos.expected_handoffs import course_of, keys_of
from handoff_queue.chaos.expected_outcomes import NO_STORY, TOO_MANY_CLAIMS, Story, wrong_end
from handoff_queue.chaos.model import Call
from handoff_queue.chaos.plan import CallKey, PlannedJob
from handoff_queue.chaos.spending import overruns_of
from handoff_queue.chaos.strikes import Fault, Strike
from handoff_queue.chaos.unwanted_calls import Air, Held, Quiet, strikes_at
from handoff_queue.shared.store.claims import MAX_CLAIMS, MAX_LOOKS
from handoff_queue.shared.types.job_options import Mode

ENDS_LOOKS = (Fault.KILL_SUPERVISOR, Fault.KILL_REDIS, Fault.FREEZE)
"""Faults after which a look at a job may never be heard of again."""
Handoff = tuple[str, str]
"""Job's name, handoff's id."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Recovery of a handoff whose process was struck during a call, until its next heartbeat."""

    strike: Strike
    handoff: Handoff
    seconds: float
    is_alone: bool
    """True if no other process was struck during the recovery."""


@dataclass(frozen=True)
class Books:
    """Records of a run."""

    jobs: Sequence[PlannedJob]
    """Jobs that users submitted; `everyone` adds their children."""
    calls: Sequence[Call]
    strikes: Sequence[Strike]
    stories: Mapping[str, Story]
    """Records by job's name, including children."""
    lease_s: float
    left_behind: Sequence[str] = ()
    not_reached: Sequence[str] | None = None
    """Failpoints that no process reached; None: the run had no failpoints."""
    not_happened: Sequence[str] = ()
    """Other planned actions that did not happen before the end of the run."""
    stored_at: Mapping[CallKey, float] = field(default_factory=dict)
    """Time at which the store was first seen with the reply to a call."""
    held: Mapping[Handoff, Sequence[Held]] = field(default_factory=dict)
    """The claims of each handoff, in order."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Promises and faults that the system does not have: as the report calls them, and why."""
    refused_requests: Sequence[str] = ()
    """Rules of the Messages API that requests to the model broke."""

    @cached_property
    def _by_handoff(self) -> dict[Handoff, list[Call]]:
        calls = defaultdict[Handoff, list[Call]](list)
        for call in sorted(self.calls, key=lambda call: call.at):
            calls[call.key.job, call.key.handoff].append(call)
        return calls

    @cached_property
    def everyone(self) -> list[PlannedJob]:
        """Return all jobs. A child may never have begun, if no handoff needed it."""
        planned_jobs: list[PlannedJob] = []
        for job in self.jobs:
            for member in job.family:
                if member is job or self.stories.get(member.name, NO_STORY).status:
                    planned_jobs.append(member)
        return planned_jobs

    @property
    def ended(self) -> int:
        total = 0
        for job in self.jobs:
            total += bool(self.stories[job.name].ended_at)
        return total

    @property
    def modes(self) -> dict[str, int]:
        """Return the number of users' jobs by mode."""
        modes: dict[str, int] = {}
        for mode in Mode:
            if count := sum(job.mode is mode for job in self.jobs):
                modes[mode.value] = count
        return modes

    @property
    def children(self) -> int:
        """Child jobs that have begun."""
        return len(self.everyone) - len(self.jobs)

    @property
    def lost(self) -> list[str]:
        """Jobs that have not ended."""
        names: list[str] = []
        for job in self.everyone:
            if not self.stories[job.name].ended_at:
                names.append(job.name)
        return names

    @property
    def ended_twice(self) -> list[str]:
        items: list[str] = []
        for name, story in self.stories.items():
            if len(story.ended_at) > 1:
                items.append(name)
        return items

    @property
    def finished_twice(self) -> list[str]:
        """Handoffs with two results."""
        lines: list[str] = []
        for name, story in self.stories.items():
            for id_, at in story.finished_at.items():
                if len(at) > 1:
                    lines.append(f"{name} {id_}")
        return lines

    @property
    def spoilt(self) -> dict[str, str]:
        """Jobs that have ended, but not as they were to, and why."""
        ended = [job for job in self.everyone if self.stories[job.name].ended_at]
        wrong = {
            job.name: wrong_end(job, self.stories) or self._given_up_for_nothing(job.name)
            for job in ended
        }
        by_name: dict[str, str] = {}
        for name, what in wrong.items():
            if what:
                by_name[name] = f"{what} ({self.stories[name].why})"
        return by_name

    def _given_up_for_nothing(self, name: str) -> str:
        """Return a handoff or job that was given up with too few strikes; '' if there is none."""
        if (
            self.stories[name].is_not_looked_at_any_more
            and (struck := self._struck_looks(name)) < MAX_LOOKS
        ):
            return f"looked at no more, though supervisors were struck only {struck} times"
        for handoff in sorted(self.stories[name].broken_off(TOO_MANY_CLAIMS)):
            struck = strikes_at(
                self.held.get((name, handoff), ()),
                self.strikes,
                min(self.stories[name].finished_at.get(handoff, (inf,))),
            )
            if struck < MAX_CLAIMS:
                return f"{handoff}: given up, though only {struck} of its claims were struck"
        return ""

    def _struck_looks(self, name: str) -> int:
        """Return the strikes that may have ended an evaluation of a job. Evaluations are not
        recorded.
        """
        began = min((call.at for call in self.calls if call.key.job == name), default=inf)
        if began == inf:  # each evaluation ended before the first call
            began = self.stories[name].submitted_at
        ends = (
            strike
            for strike in self.strikes
            if strike.fault in ENDS_LOOKS and strike.at >= began - self.lease_s
        )
        total = 0
        for end in ends:
            total += end.at <= min(self.stories[name].ended_at)
        return total

    @property
    def given_up(self) -> list[str]:
        """Jobs with a handoff that was killed three times in a row in one turn, or looks at
        which were: the promised end of such ones.
        """
        items: list[str] = []
        for name, story in self.stories.items():
            if story.broken_off(TOO_MANY_CLAIMS) or story.is_not_looked_at_any_more:
                items.append(name)
        return items

    @property
    def made(self) -> int:
        return len(self.calls)

    @cached_property
    def needed(self) -> int:
        """Return the calls of a run of the same jobs with only the provider's planned faults.

        An optional call counts if it was made. Timing decides which results satisfy a join, which
        evaluation finds all results, and how far a cancelled job has come.
        """
        total = 0
        for job in self.everyone:
            total += min(job.most_calls, self._needs(job))
        return total

    def _needs(self, job: PlannedJob) -> int:
        made = Counter(call.key for call in self.calls if call.key.job == job.name)
        is_cancelled = self.stories[job.name].status == "cancelled"
        planned = [one for one in course_of(job).values() if not one.instead_of]
        return sum(
            job.tries(key) if one.is_needed and not is_cancelled else min(job.tries(key), made[key])
            for one in planned
            for key in keys_of(job, one)
        )

    @cached_property
    def _surplus(self) -> Counter[CallKey]:
        made = Counter(call.key for call in self.calls)
        planned = {job.name: job for job in self.everyone}

        def need(key: CallKey) -> int:
            job = planned.get(key.job)
            handoff = None
            if job:
                handoff = course_of(job).get(key.handoff)
            is_planned = (
                job
                and handoff
                and key.turn <= handoff.turns
                and self.stories[key.job].is_there(handoff)
            )
            if job and is_planned:
                return job.tries(key)
            return 0

        return made - Counter({key: need(key) for key in made})

    @property
    def repeated(self) -> int:
        """Calls that were made once more than needed."""
        return self._surplus.total()

    @cached_property
    def unexplained(self) -> list[CallKey]:
        """Return the repeated calls without a strike on their process between two copies."""
        call_keys: list[CallKey] = []
        for key, surplus in self._surplus.items():
            for _ in range(surplus - sum(map(bool, self._explained(key)))):
                call_keys.append(key)
        return call_keys

    def _explained(self, key: CallKey) -> Iterator[list[Strike]]:
        """Yield the strikes that explain each repetition. A repetition after the provider's planned
        fault needs no explanation.
        """
        copies: list[Call] = []
        for call in self._by_handoff[key.job, key.handoff]:
            if call.key == key:
                copies.append(call)
        planned = len(copies) - self._surplus[key]
        for first, second in list(pairwise(copies))[max(0, planned - 1) :]:
            yield [strike for strike in self.strikes if self._explains(strike, first, second)]

    def story_of(self, key: CallKey) -> str:
        """Return a call's copies and the events between them, in seconds after the first."""
        copies: list[Call] = []
        for call in self._by_handoff[key.job, key.handoff]:
            if call.key == key:
                copies.append(call)
        began = copies[0].at
        calls: list[str] = []
        for copy in copies:
            calls.append(f"{copy.at - began:.1f} s by {copy.process} ({_answered(copy, began)})")
        near = [
            strike for strike in self.strikes if began - self.lease_s <= strike.at <= copies[-1].at
        ]
        struck = [
            f"{strike.at - began:.1f} s {strike.fault} {strike.target} {strike.point}".strip()
            for strike in near
        ]
        return f"{key.job} {key.handoff}, turn {key.turn}: called {', '.join(calls)}; meanwhile {', '.join(struck) or 'nothing'}"

    @cached_property
    def repeated_by(self) -> Counter[Fault]:
        """The kinds of strikes that explain them: of each, the last one between the one call
        and the other.
        """
        by = [strikes for key in self._surplus for strikes in self._explained(key) if strikes]
        return Counter(max(strikes, key=lambda strike: strike.at).fault for strikes in by)

    def _explains(self, strike: Strike, first: Call, second: Call) -> bool:
        if self._air.has_held_back(strike, second, first.at):
            return True  # another process made the call in the meantime
        return (
            strike.at <= second.at
            and self._air.had(first, strike)
            and not self._air.is_too_late(second)
        )

    @cached_property
    def _air(self) -> Air:
        return Air(
            self.calls,
            self.strikes,
            {
                key: min(at)
                for key in {call.key for call in self.calls}
                if (at := self._settled(key))
            },
        )

    def _settled(self, key: CallKey) -> list[float]:
        """Return the times at which the store had the reply: it was seen, the handoff continued
        from it, or it had finished.
        """
        if key in self.stored_at:
            stored = [self.stored_at[key]]
        else:
            stored = []
        later: list[float] = []
        for call in self._by_handoff[key.job, key.handoff]:
            if call.key.turn > key.turn:
                later.append(call.at)
        return [*stored, *later, *self.stories[key.job].finished_at.get(key.handoff, ())]

    @property
    def in_the_air(self) -> int:
        """Calls that processes had in the air when struck: the most that may be repeated."""
        return self._air.most_repeated

    @property
    def was_hit(self) -> bool:
        """Return whether any strike hit a process with a running handoff."""
        return any(self._hit_by(strike) for strike in self.strikes)

    def _hit_by(self, strike: Strike) -> list[Handoff]:
        return [
            handoff
            for handoff, calls in self._by_handoff.items()
            if (last := bisect_right(calls, strike.until, key=lambda call: call.at))
            and strike.hits(calls[last - 1].process)
            and not any(at <= strike.at for at in self._ends_of(handoff))
        ]

    def _ends_of(self, handoff: Handoff) -> tuple[float, ...]:
        """Return the times after which a handoff needs no more work."""
        story = self.stories[handoff[0]]
        given_up = (story.given_up_at[handoff[1]],) if handoff[1] in story.given_up_at else ()
        return (*story.finished_at.get(handoff[1], ()), *given_up, *story.ended_at)

    @cached_property
    def recoveries(self) -> list[Recovery]:
        """Return the recovery of every struck handoff: until its next call, its end, or the end of
        its job.
        """
        recoveries = []
        for strike in self.strikes:
            for handoff in self._hit_by(strike):
                signs = [
                    *(
                        call.at
                        for call in self._by_handoff[handoff]
                        if not _is_of_the_struck(call, strike)
                    ),
                    *self._ends_of(handoff),
                ]
                if after := [at for at in signs if at > strike.at]:
                    until = min(after)
                    alone = not any(strike.at < other.at < until for other in self.strikes)
                    recoveries.append(Recovery(strike, handoff, until - strike.at, alone))
        return recoveries

    @property
    def longest_recovery_s(self) -> float | None:
        """Return the longest recovery without another strike; None if there was no such recovery."""
        return max(
            (recovery.seconds for recovery in self.recoveries if recovery.is_alone), default=None
        )

    @property
    def longest_recovery_in_a_row_s(self) -> float | None:
        """Return the longest recovery with other strikes, each of which may restart it."""
        return max((recovery.seconds for recovery in self.recoveries), default=None)

    @property
    def overruns(self) -> list[str]:
        return overruns_of(self.everyone, self.calls, self.stories)

    @cached_property
    def for_nobody(self) -> list[str]:
        """Return calls that arrived when no job needed their results."""
        quiet = Quiet({job.name: job for job in self.everyone}, self.stories)
        unneeded = []
        for call in self.calls:
            since = quiet.since(call.key, call.at)
            if since is not None and not any(
                self._air.has_held_back(strike, call, since) for strike in self.strikes
            ):
                unneeded.append(
                    f"{call.key.job} {call.key.handoff}, turn {call.key.turn}, {call.at - since:.1f} s after, by {call.process}"
                )
        return unneeded

    def count(self, fault: Fault) -> int:
        total = 0
        for strike in self.strikes:
            total += strike.fault is fault
        return total


def _answered(call: Call, began: float) -> str:
    if call.out_at is None:
        return "never answered"
    return f"answered {call.out_at - began:.1f} s{'' if call.was_heard else ', unheard'}"


def _is_of_the_struck(call: Call, strike: Strike) -> bool:
    """Return whether the call was in flight from the struck process. The server read it after the
    strike, so it is no heartbeat.
    """
    return call.at <= strike.until and strike.hits(call.process)
