"""The invariants of a run: compares the promises with the records of the model's server, the
store and the killer. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import inf

from handoff_queue.chaos.api_user import ApiRecords
from handoff_queue.chaos.expected_handoffs import compute_expected_handoffs, list_keys
from handoff_queue.chaos.expected_outcomes import (
    NO_RECORD,
    TOO_MANY_CLAIMS,
    StoredJob,
    find_wrong_end,
)
from handoff_queue.chaos.faults import Fault, Strike
from handoff_queue.chaos.features import FeatureRecords
from handoff_queue.chaos.fleet import CONSOLE
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_jobs import CallKey, PlannedJob
from handoff_queue.chaos.unwanted_calls import (
    CallsInFlight,
    SeenClaim,
    UnneededPeriods,
    count_strikes,
)
from handoff_queue.shared.store.claim_requests import MAX_CLAIMS, MAX_FAILED_EVALUATIONS
from handoff_queue.shared.types.budget_measures import MEASURES
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits


def find_overruns(
    jobs: Sequence[PlannedJob], calls: Sequence[Call], job_records: Mapping[str, StoredJob]
) -> list[str]:
    """Return one line for each limit that a job and its children have exceeded."""
    overruns: list[str] = []
    for measure in MEASURES:
        amounts = Counter[str]()
        for call in calls:
            amounts[call.key.job] += measure.get_used_amount(call)
        for job in jobs:
            most = measure.get_limit(_get_limits(job, job_records[job.name]))
            used_amount = sum(amounts[member.name] for member in job.family)
            if most is not None and used_amount > most:
                overruns.append(f"{job.name}: {measure.text(used_amount)} of {measure.text(most)}")
    return overruns


def _get_limits(job: PlannedJob, job_record: StoredJob) -> JobLimits:
    """Return the limits of the job. Those of a child are its slice of its parent's budget."""
    if job.parent and job_record.limits:
        return job_record.limits
    return job.limits


EVALUATION_ENDING_FAULTS = (Fault.KILL_SUPERVISOR, Fault.KILL_REDIS, Fault.FREEZE)
"""Faults that can end an evaluation of a job."""
Handoff = tuple[str, str]
"""Name of a job, and id of a handoff."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Recovery of a handoff whose process was struck: until its next call, its end or its
    job's end.
    """

    strike: Strike
    handoff: Handoff
    seconds: float
    """Seconds since the strike."""
    is_alone: bool
    """True if no other process was struck during the recovery."""


@dataclass(frozen=True)
class RunRecords:
    """Records of a run."""

    jobs: Sequence[PlannedJob]
    """Jobs that users submitted; `everyone` adds their children."""
    calls: Sequence[Call]
    strikes: Sequence[Strike]
    job_records: Mapping[str, StoredJob]
    """Records by job's name, including children."""
    lease_s: float
    left_behind: Sequence[str] = ()
    not_reached: Sequence[str] | None = None
    """Failpoints that no process reached; None: the run tried no failpoints."""
    not_happened: Sequence[str] = ()
    """Other planned actions that did not happen."""
    stored_at: Mapping[CallKey, float] = field(default_factory=dict)
    """Time at which the store was first seen with the reply to a call."""
    claims_seen: Mapping[Handoff, Sequence[SeenClaim]] = field(default_factory=dict)
    """The claims of each handoff, in order."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Promises and faults that the system does not have: name in the report -> reason."""
    refused_requests: Sequence[str] = ()
    """Rules of the Messages API that requests to the model broke."""
    api: ApiRecords | None = None
    """Records of the users of the HTTP API; None if the system has no API."""
    features: Sequence[FeatureRecords] = ()
    """Records of the features that only this system has."""

    @cached_property
    def _calls_by_handoff(self) -> dict[Handoff, list[Call]]:
        calls = defaultdict[Handoff, list[Call]](list)
        for call in sorted(self.calls, key=lambda call: call.at):
            calls[call.key.job, call.key.handoff].append(call)
        return calls

    @cached_property
    def everyone(self) -> list[PlannedJob]:
        """All jobs. Children that the store does not know are left out: no handoff needed them."""
        planned_jobs: list[PlannedJob] = []
        for job in self.jobs:
            for member in job.family:
                if member is job or self.job_records.get(member.name, NO_RECORD).status:
                    planned_jobs.append(member)
        return planned_jobs

    @property
    def ended(self) -> int:
        """Number of users' jobs that have ended."""
        total = 0
        for job in self.jobs:
            total += bool(self.job_records[job.name].ended_at)
        return total

    @property
    def modes(self) -> dict[str, int]:
        """Number of users' jobs by mode, without modes that no job has."""
        counts = Counter(job.mode for job in self.jobs)
        return {mode.value: counts[mode] for mode in Mode if counts[mode]}

    @property
    def children(self) -> int:
        """Number of child jobs that have begun."""
        return len(self.everyone) - len(self.jobs)

    @property
    def lost(self) -> list[str]:
        """Jobs that have not ended."""
        names: list[str] = []
        for job in self.everyone:
            if not self.job_records[job.name].ended_at:
                names.append(job.name)
        return names

    @property
    def ended_twice(self) -> list[str]:
        """Jobs whose journal has more than one end."""
        return [
            name for name, job_record in self.job_records.items() if len(job_record.ended_at) > 1
        ]

    @property
    def finished_twice(self) -> list[str]:
        """Handoffs with more than one result."""
        lines: list[str] = []
        for name, job_record in self.job_records.items():
            for id_, at in job_record.finished_at.items():
                if len(at) > 1:
                    lines.append(f"{name} {id_}")
        return lines

    @property
    def spoilt(self) -> dict[str, str]:
        """Jobs that ended otherwise than planned: name -> deviation."""
        deviations: dict[str, str] = {}
        for job in self.everyone:
            job_record = self.job_records[job.name]
            if not job_record.ended_at:
                continue
            deviation = find_wrong_end(job, self.job_records) or self._find_early_give_up(job.name)
            if deviation:
                deviations[job.name] = f"{deviation} ({job_record.why})"
        return deviations

    def _find_early_give_up(self, name: str) -> str:
        """Return why the job or one of its handoffs should not have been given up: there were
        too few strikes. Return '' if there is no such fault.
        """
        job_record = self.job_records[name]
        if (
            job_record.is_given_up
            and (struck := self._count_struck_evaluations(name)) < MAX_FAILED_EVALUATIONS
        ):
            return f"not evaluated any more, though supervisors were struck only {struck} times"
        for handoff in sorted(job_record.find_handoffs_stopped_by(TOO_MANY_CLAIMS)):
            claims = self.claims_seen.get((name, handoff), ())
            struck = count_strikes(
                claims, self.strikes, min(job_record.finished_at.get(handoff, (inf,)))
            )
            if struck < MAX_CLAIMS:
                return f"{handoff}: given up, though only {struck} of its claims were struck"
        return ""

    def _count_struck_evaluations(self, name: str) -> int:
        """Return the number of strikes that may have ended an evaluation of a job. No record
        says which evaluations there were.
        """
        began_at = min((call.at for call in self.calls if call.key.job == name), default=inf)
        if began_at == inf:  # each evaluation ended before the first call
            began_at = self.job_records[name].submitted_at
        ended_at = min(self.job_records[name].ended_at)
        total = 0
        for strike in self.strikes:
            total += (
                strike.fault in EVALUATION_ENDING_FAULTS
                and began_at - self.lease_s <= strike.at <= ended_at
            )
        return total

    @property
    def given_up(self) -> list[str]:
        """Jobs that were given up, or that have a handoff that was given up. The reason is
        three kills in a row during evaluations of the job, or during one turn of the handoff.
        """
        names: list[str] = []
        for name, job_record in self.job_records.items():
            if job_record.find_handoffs_stopped_by(TOO_MANY_CLAIMS) or job_record.is_given_up:
                names.append(name)
        return names

    @property
    def call_count(self) -> int:
        """Number of calls."""
        return len(self.calls)

    @cached_property
    def needed(self) -> int:
        """Number of calls in a run of the same jobs with only the provider's planned faults.

        An optional call counts if it was made. Timing decides which results satisfy a join,
        which evaluation finds all results, and how far a cancelled job has come.
        """
        total = 0
        for job in self.everyone:
            total += min(job.most_calls, self._count_needed_calls(job))
        return total

    @cached_property
    def _refusals(self) -> frozenset[Call]:
        """The planned refusals by one of several models: the last one by each model in each
        handoff. An earlier one is a repeated call, because a handoff remembers a refusal.
        """
        last: dict[tuple[Handoff, str], Call] = {}
        for handoff, calls in self._calls_by_handoff.items():
            for call in calls:
                if call.is_refused:
                    last[handoff, call.model] = call
        return frozenset(last.values())

    @cached_property
    def _refusal_counts(self) -> Counter[CallKey]:
        """Number of planned refusals by call."""
        return Counter(call.key for call in self._refusals)

    def _count_needed_calls(self, job: PlannedJob) -> int:
        """Return the number of needed calls of a job, without regard to its budget."""
        total = 0
        for handoff in compute_expected_handoffs(job).values():
            if handoff.instead_of:
                continue
            is_sure = handoff.is_needed and self.job_records[job.name].status != "cancelled"
            for key in list_keys(job, handoff):
                tries = job.count_tries(key) + self._refusal_counts[key]
                if not is_sure:
                    tries = min(tries, len(self._find_copies(key)))
                total += tries
        return total

    def _find_copies(self, key: CallKey) -> list[Call]:
        """Return the call and its repetitions, in order."""
        calls = self._calls_by_handoff.get((key.job, key.handoff), ())
        return [call for call in calls if call.key == key]

    @cached_property
    def _surplus(self) -> Counter[CallKey]:
        """Number of repetitions of each call that the provider's planned faults do not explain."""
        surplus = Counter(call.key for call in self.calls)
        for key in surplus:
            if job := self._jobs_by_name.get(key.job):
                surplus[key] -= self._count_planned_tries(job, key) + self._refusal_counts[key]
        return +surplus

    def _count_planned_tries(self, job: PlannedJob, key: CallKey) -> int:
        """Return the number of tries until a call is answered; 0 for a call that was not
        planned.
        """
        handoff = compute_expected_handoffs(job).get(key.handoff)
        if handoff is None or key.turn > handoff.turns:
            return 0
        if not self.job_records[job.name].is_there(handoff):
            return 0
        return job.count_tries(key)

    @property
    def repeated(self) -> int:
        """Number of calls that were made without need."""
        return self._surplus.total()

    @cached_property
    def unexplained(self) -> list[CallKey]:
        """Repeated calls without a strike that explains them, once for each such repetition."""
        call_keys: list[CallKey] = []
        for key, surplus in self._surplus.items():
            explained_count = sum(map(bool, self._explain_repetitions(key)))
            call_keys += [key] * (surplus - explained_count)
        return call_keys

    def _explain_repetitions(self, key: CallKey) -> Iterator[list[Strike]]:
        """Yield the strikes that explain each repetition. A repetition after the provider's
        planned fault needs no explanation, and is left out.
        """
        copies = self._find_copies(key)
        planned = len(copies) - self._surplus[key] - self._refusal_counts[key]
        pairs = [pair for pair in pairwise(copies) if pair[0] not in self._refusals]
        for first, second in pairs[max(0, planned - 1) :]:
            yield [strike for strike in self.strikes if self._explains(strike, first, second)]

    def describe_copies(self, key: CallKey) -> str:
        """Return the copies of a call and the strikes near them, for the report. Times are
        seconds after the first copy.
        """
        copies = self._find_copies(key)
        began, last = copies[0].at, copies[-1].at
        calls: list[str] = []
        for copy in copies:
            calls.append(
                f"{copy.at - began:.1f} s by {copy.process} ({_describe_answer(copy, began)})"
            )
        strikes: list[str] = []
        for strike in self.strikes:
            if began - self.lease_s <= strike.at <= last:
                text = f"{strike.at - began:.1f} s {strike.fault} {strike.target} {strike.point}"
                strikes.append(text.strip())
        return (
            f"{key.job} {key.handoff}, turn {key.turn}: called {', '.join(calls)}; strikes:"
            f" {', '.join(strikes) or 'nothing'}"
        )

    @cached_property
    def repeated_by(self) -> Counter[Fault]:
        """Number of explained repetitions by the fault of the last strike that explains each."""
        faults = Counter[Fault]()
        for key in self._surplus:
            for strikes in self._explain_repetitions(key):
                if strikes:
                    faults[max(strikes, key=lambda strike: strike.at).fault] += 1
        return faults

    def _explains(self, strike: Strike, first: Call, second: Call) -> bool:
        """Return whether a strike between two copies of a call can be the reason of the second."""
        if self._calls_in_flight.has_held_back(strike, second, first.at):
            return True  # another process made the call in the meantime
        return (
            strike.at <= second.at
            and self._calls_in_flight.was_in_flight(first, strike)
            and not self._calls_in_flight.is_too_late(second)
        )

    @cached_property
    def _calls_in_flight(self) -> CallsInFlight:
        settled_at: dict[CallKey, float] = {}
        for call in self.calls:
            if times := self._find_times_with_reply(call.key):
                settled_at[call.key] = min(times)
        return CallsInFlight(self.calls, self.strikes, settled_at)

    def _find_times_with_reply(self, key: CallKey) -> list[float]:
        """Return times at which the store had the reply: it was seen there, the handoff made
        its next call, or it had finished.
        """
        times = list(self.job_records[key.job].finished_at.get(key.handoff, ()))
        if key in self.stored_at:
            times.append(self.stored_at[key])
        for call in self._calls_by_handoff[key.job, key.handoff]:
            if call.key.turn > key.turn:
                times.append(call.at)
        return times

    @property
    def in_flight(self) -> int:
        """Number of calls in flight in processes that were struck: so many may be repeated."""
        return self._calls_in_flight.most_repeated

    @property
    def was_hit(self) -> bool:
        """True if a strike hit a process with a running handoff whose recovery has a promised
        time.
        """
        for strike in self.strikes:
            if any(map(self._has_promised_time, self._find_hit_handoffs(strike))):
                return True
        return False

    def _has_promised_time(self, handoff: Handoff) -> bool:
        """Return whether there is a promise for the recovery of a handoff. There is none for the
        Claude Agent SDK: the next process first starts a program of 400 MB.
        """
        name, handoff_id = handoff
        return not self._jobs_by_name[name].is_external_step(handoff_id)

    @cached_property
    def _jobs_by_name(self) -> dict[str, PlannedJob]:
        return {job.name: job for job in self.everyone}

    def _find_hit_handoffs(self, strike: Strike) -> list[Handoff]:
        """Return the running handoffs whose last caller was struck."""
        hit: list[Handoff] = []
        for handoff, calls in self._calls_by_handoff.items():
            if not calls or calls[0].at > strike.until or self._first_ends[handoff] <= strike.at:
                continue  # a comparison excludes most handoffs
            count = bisect_right(calls, strike.until, key=lambda call: call.at)
            if strike.hits(calls[count - 1].process):
                hit.append(handoff)
        return hit

    @cached_property
    def _first_ends(self) -> dict[Handoff, float]:
        """Time after which each handoff needs no more work, infinite if there is none."""
        return {
            handoff: min(self._find_end_times(handoff), default=inf)
            for handoff in self._calls_by_handoff
        }

    def _find_end_times(self, handoff: Handoff) -> list[float]:
        """Return the times after which a handoff needs no more work."""
        name, handoff_id = handoff
        job_record = self.job_records[name]
        times = [*job_record.finished_at.get(handoff_id, ()), *job_record.ended_at]
        if handoff_id in job_record.given_up_at:
            times.append(job_record.given_up_at[handoff_id])
        return times

    @cached_property
    def recoveries(self) -> list[Recovery]:
        """Recovery of each struck handoff that recovered."""
        recoveries: list[Recovery] = []
        for strike in self.strikes:
            for handoff in self._find_hit_handoffs(strike):
                until = self._find_recovery_time(handoff, strike)
                if until is not None:
                    alone = not any(strike.at < other.at < until for other in self._worker_strikes)
                    recoveries.append(Recovery(strike, handoff, until - strike.at, alone))
        return recoveries

    @cached_property
    def _worker_strikes(self) -> list[Strike]:
        """Strikes on processes that work on jobs. The HTTP servers do not."""
        return [strike for strike in self.strikes if not strike.target.startswith(CONSOLE)]

    def _find_recovery_time(self, handoff: Handoff, strike: Strike) -> float | None:
        """Return the time of the first action of a handoff after a strike: its next
        call, its end, or the end of its job.
        """
        times = self._find_end_times(handoff)
        for call in self._calls_by_handoff[handoff]:
            if not _is_of_the_struck(call, strike):
                times.append(call.at)
        return min((at for at in times if at > strike.at), default=None)

    @property
    def promised_recoveries(self) -> list[Recovery]:
        """Recoveries that have a promised time: those without another strike."""
        recoveries: list[Recovery] = []
        for recovery in self.recoveries:
            if recovery.is_alone and self._has_promised_time(recovery.handoff):
                recoveries.append(recovery)
        return recoveries

    @property
    def longest_recovery_s(self) -> float | None:
        """Longest of the promised recoveries in seconds; None if there was none."""
        return max((recovery.seconds for recovery in self.promised_recoveries), default=None)

    @property
    def longest_joint_recovery_s(self) -> float | None:
        """Longest recovery in seconds, also with other strikes, each of which may restart it."""
        return max((recovery.seconds for recovery in self.recoveries), default=None)

    @property
    def overruns(self) -> list[str]:
        return find_overruns(self.everyone, self.calls, self.job_records)

    @cached_property
    def unneeded_calls(self) -> list[str]:
        """Calls that arrived when no job needed their results. Calls of a process that was
        stopped just before the call are left out.
        """
        unneeded_periods = UnneededPeriods(self._jobs_by_name, self.job_records)
        lines: list[str] = []
        for call in self.calls:
            since = unneeded_periods.find_time_without_need(call.key, call.at)
            if since is not None and not self._calls_in_flight.is_held_back(call, since):
                lines.append(
                    f"{call.key.job} {call.key.handoff}, turn {call.key.turn},"
                    f" {call.at - since:.1f} s after, by {call.process}"
                )
        return lines

    def count(self, fault: Fault) -> int:
        """Return the number of strikes with this fault."""
        return sum(strike.fault is fault for strike in self.strikes)


def _describe_answer(call: Call, began: float) -> str:
    if call.out_at is None:
        return "never answered"
    return f"answered {call.out_at - began:.1f} s{'' if call.was_heard else ', unheard'}"


def _is_of_the_struck(call: Call, strike: Strike) -> bool:
    """Return whether the struck process sent the call before the strike. The server may have
    read it after the strike, but it is not a sign of recovery.
    """
    return call.at <= strike.until and strike.hits(call.process)
