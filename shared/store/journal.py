"""Journals of jobs: read events, commit a decision (compare-and-append), append a fact."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import redis

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import (
    Commit,
    build_conflict_error,
    build_records,
    commit_fields,
    describe_valid_events,
)
from handoff_queue.shared.store.journal_signature_check import (
    LEFT_OUT,
    LONG_EVENT,
    MAX_BATCH_EVENTS,
    MAX_WORKER_VALUES,
    TOO_LONG,
    BatchRoom,
    JournalCheck,
    build_refused_event,
    count_events_cut_off,
    has_signature,
    is_long_run,
    is_signed_batch,
    iterate_whole_batches,
    parse_stamp,
    read_ends,
    read_runs,
    take_events_to_first_signature,
)
from handoff_queue.shared.store.payloads import build_page_entry, build_payload_arguments
from handoff_queue.shared.store.redis.bounded_answers import LongAnswer
from handoff_queue.shared.store.redis.connection import Connection, ScriptCall, read_answers
from handoff_queue.shared.store.script_arguments import encode_json
from handoff_queue.shared.trust.event_signatures import sign_events, without_signature
from handoff_queue.shared.trust.signatures import NO_TRUST, Trust
from handoff_queue.shared.types.errors import (
    HandoffError,
    MalformedMessage,
    StoreError,
    StoreUnavailable,
    UnknownJob,
)
from handoff_queue.shared.types.events import (
    DEFAULT_TENANT,
    OPEN_STATUSES,
    CancelRequested,
    Event,
    JobEnded,
    RecordedEvent,
    parse_event,
)
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.json_values import has_more_values

NEWEST_EVENTS = 5
"""Events of a job that `read_end_reasons` reads. Only deliveries to the caller follow the end."""
MAX_EVENTS_A_READ = 5_000
"""Events in one round trip."""
MAX_PAGE_BYTES = 4_000_000
"""Bytes of the entries in one round trip, unless it reads only one entry."""
MAX_REST_EVENTS = 1_000
"""Events in one round trip that looks for the end of a batch."""
MAX_EVENT_BYTES = 64_000_000
"""Bytes of the longest event: the plan of a job of 100,000 steps has about 30 million."""
MAX_UNSIGNED_VALUES = 100
"""JSON values of the longest event that is validated before its signature is checked. A worker that
was taken over may append any text. A validator takes 10 microseconds for each wrong value, while
all threads of the process wait. The check parses the longer events after their signature.
"""
CUT_OFF = b" bytes are too long for an event of a worker]"
"""The end of an entry of which only the beginning was read, as in `parts/journal.lua`."""
MAX_TIME_DIGITS = 14
"""Digits of the time of an event: Unix ms have 13 digits until the year 2286, and 14 until the year
5138. Python has no date after the year 9999.
"""
MAX_EVENTS_OF_EACH = 200
"""Events of one job in one round trip that reads several jobs."""
MAX_BYTES_OF_EACH = 1_000_000
"""Bytes of these events, unless there is only one."""


POLL_FOR_S = 60.0
"""Seconds without a blocking read after one whose answer was too long."""
POLL_EVERY_S = 0.25
"""Seconds between two reads of the lengths of the journals in that time."""
MAX_RETRY_DELAY_MS = 300_000
"""Longest time between two evaluations of a job whose evaluations fail. A process of another
version or an operator may repair the job in that time.
"""

log = logging.getLogger(__name__)  # each command imports this module, and structlog takes time


class Journal:
    """The journals of all jobs."""

    def __init__(self, connection: Connection, keep_s: int, trust: Trust = NO_TRUST) -> None:
        """Write journals.

        Args:
            trust: the keys of this process, which sign its events.
        """
        self._connection = connection
        self._trust = trust
        self._keep_ms = keep_s * 1000
        self._polls_until = 0.0

    @property
    def checks_signatures(self) -> bool:
        """Return whether the readers of journals check signatures."""
        return self._trust.is_on

    def commit(self, commit: Commit) -> list[RecordedEvent]:
        """Append all events of the decision, or none, and return them with their versions.

        A commit that only issues steps, or that forces the end, is valid even if results of
        other steps arrived after `expected`. A job of thousands of steps gets results all the
        time.

        Raises:
            VersionConflict: the journal is not at `expected`, or the parent's handoff was
                abandoned; nothing was written.
            StoreRefusesWrites: the job `after` does not exist; nothing was written.
            TooManyOpenJobs: the commit would open a job, and its tenant may have no more open jobs;
                nothing was written.
        """
        return build_records(commit, self.run_commit(commit))

    def run_commit(
        self, commit: Commit, claim: Sequence[Any] = (), end: Sequence[Any] = ()
    ) -> Sequence[Any]:
        """Run `commit.lua` and return its answer.

        With an end, any other result that arrived in the meantime makes the commit fail. The
        handoff may have run for minutes, and the wake-up of that result has had no effect.

        Args:
            claim: arguments that claim a handoff which the commit issues.
            end: arguments that finish the handoff whose result led to the decision.
        """
        answer: Sequence[Any] = self._connection.run_script(
            "commit", *self._build_arguments(commit, claim, end)
        )
        return answer

    def commit_each(self, commits: Sequence[Commit]) -> list[StoreError | None]:
        """Commit each decision separately, in one round trip. Return None or the error of
        `commit` for each.

        Raises:
            StoreUnavailable: it is unknown which decisions were written.
        """
        answers = self._connection.run_script_for_each(
            "commit", list(map(self._build_arguments, commits))
        )
        errors: list[StoreError | None] = []
        for commit, answer in zip(commits, answers, strict=True):
            if isinstance(answer, StoreError):
                errors.append(answer)
            elif answer[0]:
                errors.append(None)
            else:
                errors.append(build_conflict_error(commit, answer))
        return errors

    def _build_arguments(
        self, commit: Commit, claim: Sequence[Any] = (), end: Sequence[Any] = ()
    ) -> tuple[list[str], list[Any]]:
        """Return keys and arguments of `commit.lua`."""
        arguments = commit_fields(commit, self._keep_ms)
        if commit.drop:
            arguments["cancels"] = self._build_cancel_events(commit)
        if not end and (newer := describe_valid_events(commit)):
            arguments["regardless"] = newer
        if commit.answered:
            arguments["decided"] = self._build_answers(commit)
        if commit.creates:
            tenant = str(commit.fields.get("tenant", DEFAULT_TENANT))
            self._connection.sealing.record_tenant(commit.job_id, tenant)
        if claim:
            arguments["claim"] = claim
        if end:
            arguments["ends"] = len(end)
        sealing = self._connection.sealing
        return [keys.job(commit.job_id), keys.DUE, keys.JOBS], [
            encode_json(arguments),
            *end,
            *sign_events(self._trust, commit.job_id, commit.events, commit.expected),
            *[build_page_entry(sealing, commit.job_id, page) for page in commit.pages],
            *build_payload_arguments(sealing, commit.job_id, commit.payloads),
        ]

    def _build_answers(self, commit: Commit) -> list[dict[str, Any]]:
        """Return the answers to questions about tool calls. A worker reads the answer to its
        question. The other events of the commit may be about other agents. So each answer has a
        separate signature.
        """
        answers: list[dict[str, Any]] = []
        for call in commit.answered:
            event = commit.events[call.place - 1]
            (text,) = sign_events(self._trust, commit.job_id, [event], commit.expected)
            answers.append({"asked": call.asked, "handoff": call.handoff_id, "event": text})
        return answers

    def _build_cancel_events(self, commit: Commit) -> dict[str, str]:
        """Return the event for the journal of each child job whose handoff is dropped."""
        event = CancelRequested(by=commit.job_id)
        cancels = {"*": event.to_json()}
        for child in commit.dropped_children:
            cancels[child] = sign_events(self._trust, child, [event])[0]
        return cancels

    def append(
        self, job_id: JobId, event: Event, fields: Mapping[str, str | int] | None = None
    ) -> int:
        """Append an event at any version, and return the new version. The sweeper evaluates
        the job a second later.

        Args:
            fields: fields to set in the job's hash. A field set to '' is removed.

        Raises:
            UnknownJob: the job does not exist.
        """
        return self._append(job_id, event, fields)

    def append_unless_ended(
        self,
        job_id: JobId,
        event: Event,
        fields: Mapping[str, str | int] | None = None,
        payloads: Sequence[str] = (),
    ) -> int:
        """Append an event and its payloads unless the job has ended. Return the new version,
        or 0 if the job has ended.

        Raises:
            UnknownJob: the job does not exist.
        """
        return max(0, self._append(job_id, event, fields, OPEN_STATUSES, payloads))

    def _append(
        self,
        job_id: JobId,
        event: Event,
        fields: Mapping[str, str | int] | None,
        statuses: Sequence[str] = (),
        payloads: Sequence[str] = (),
    ) -> int:
        arguments = [
            sign_events(self._trust, job_id, [event])[0],
            json.dumps(dict(fields or {})),
            json.dumps(list(statuses)),
            *build_payload_arguments(self._connection.sealing, job_id, payloads),
        ]
        version = int(
            self._connection.run_script("append_commuting", [keys.job(job_id), keys.DUE], arguments)
        )
        if not version:
            raise UnknownJob.for_job(job_id)
        return version

    def read(self, job_id: JobId, after: int = 0, limit: int | None = None) -> list[RecordedEvent]:
        """Return the events after a version, oldest first. With a keyring, `EventRefused` is in the
        place of each event whose signature does not hold.

        Args:
            limit: most events. None: all events.

        Raises:
            UserError: this process has public keys, and no private key that codes are for.
            MalformedMessage: this version cannot read an event.
        """
        if not self._trust.is_on:
            return self.read_all(job_id, after, limit)
        self._trust.check_reader()
        check = JournalCheck(self._trust, job_id, {})
        if after:
            check.forget_context()
        for events in self._complete_batches(job_id, after, limit):
            check.ends = read_ends(self._connection, job_id, events)
            check.read(events)
        if check.unread is not None:
            raise check.unread
        return [recorded for recorded in check.checked if recorded.version > after][:limit]

    def read_all(
        self, job_id: JobId, after: int = 0, limit: int | None = None
    ) -> list[RecordedEvent]:
        """Return the events after a version, oldest first, without a check. Parse them as `parse`.

        Args:
            limit: most events. None: all events.
        """
        return list(chain.from_iterable(self.iterate_pages(job_id, after, limit)))

    def iterate_pages(
        self,
        job_id: JobId,
        after: int = 0,
        limit: int | None = None,
        *,
        leaves_out: bool = False,
    ) -> Iterator[list[RecordedEvent]]:
        """Yield the events after a version, oldest first, without a check. A page has at most
        `MAX_EVENTS_A_READ` events, and `MAX_PAGE_BYTES` bytes or one event. Parse them as `parse`.

        Args:
            limit: most events. None: all events.
            leaves_out: True if `LEFT_OUT` is in the place of the events of a long journal that are
                in a run which a supervisor has refused.
        """
        runs: list[tuple[int, int]] = []
        while limit is None or limit > 0:
            count = MAX_EVENTS_A_READ if limit is None else min(MAX_EVENTS_A_READ, limit)
            entries, version = self._read_entries(job_id, after, count)
            if not entries:
                return
            # a worker may append faster than this process reads
            left = version - after
            limit = (left if limit is None else min(left, limit)) - len(entries)
            yield self.parse(after, entries, runs)
            after += len(entries)
            if limit and leaves_out and not runs:
                runs = [*filter(is_long_run, read_runs(self._connection, job_id))]

    def _read_entries(self, job_id: JobId, after: int, count: int) -> tuple[list[bytes], int]:
        """Return at most `count` entries after a version, which are not parsed, and the version of
        the journal.
        """
        arguments = [after, count, MAX_PAGE_BYTES]
        entries, version = self._connection.run_script(
            "read_journal", [keys.job(job_id)], arguments
        )
        return entries, version

    def _complete_batches(
        self, job_id: JobId, after: int, limit: int | None
    ) -> Iterator[list[RecordedEvent]]:
        """Yield the events after a version in parts, and the rest of the first and of the last
        batch. The signature of a batch holds for all its events together.
        """
        parts = iterate_whole_batches(self.iterate_pages(job_id, after, limit, leaves_out=True))
        events, is_first = next(parts, []), True
        while events:
            later = next(parts, [])
            if not later and not has_signature(events[-1]):
                last = events[-1].version
                events += self.parse(last, self._read_end_of_batch(job_id, last))
            if is_first and (cut_off_count := min(after, count_events_cut_off(events))):
                batch = [recorded.raw for recorded in take_events_to_first_signature(events)]
                begin = self._find_batch_begin(job_id, after, cut_off_count, batch)
                events = self.parse(after - len(begin), begin) + events
            yield events
            events, is_first = later, False

    def _read_end_of_batch(self, job_id: JobId, version: int) -> list[bytes]:
        """Return the entries after a version that are in the batch of this version. A worker can
        append any number of entries there. So an entry is parsed only if its signature is valid.
        """
        end: list[bytes] = []
        room = BatchRoom()
        while True:
            entries = self._read_entries_after(job_id, version + len(end), MAX_REST_EVENTS)
            if not entries:
                return []
            for entry in entries:
                end.append(entry)
                if not room.takes(entry):
                    return []
                stamp = parse_stamp(get_text(entry))
                if stamp is None:
                    continue
                before = stamp.count - len(end)
                if not 0 < before <= min(version, MAX_BATCH_EVENTS):
                    return []
                begin = self._read_entries_after(job_id, version - before, before)
                texts = [get_text(other) for other in (*begin, *end)]
                is_signed = is_signed_batch(self._trust, job_id, texts, stamp)
                return end if is_signed else []

    def _find_batch_begin(
        self, job_id: JobId, version: int, count: int, batch: Sequence[bytes]
    ) -> list[bytes]:
        """Return the last entries up to a version, which are in a batch with a valid signature.

        Args:
            count: number of these entries.
            batch: texts of the other events of the batch.
        """
        stamp = parse_stamp(batch[-1])
        if stamp is None or count > MAX_BATCH_EVENTS:
            return []
        begin = self._read_entries_after(job_id, version - count, count)
        texts = [*map(get_text, begin), *batch]
        return begin if is_signed_batch(self._trust, job_id, texts, stamp) else []

    def _read_entries_after(self, job_id: JobId, after: int, count: int) -> list[bytes]:
        """Return at most `count` entries after a version, which are not parsed. They have at most
        the size of a batch.
        """
        all_entries: list[bytes] = []
        room = BatchRoom()
        while (missing := count - len(all_entries)) > 0:
            entries, _ = self._read_entries(job_id, after + len(all_entries), missing)
            all_entries += entries
            if not entries or not all(map(room.takes, entries)):
                break
        return all_entries

    def parse(
        self, after: int, entries: Sequence[bytes], runs: Sequence[tuple[int, int]] = ()
    ) -> list[RecordedEvent]:
        """Return the events of entries after a version.

        With a keyring, an event that this version cannot read has a `problem`. The check of the
        signatures refuses such an event, or raises `MalformedMessage` if the event is signed. A
        long event has a `problem`, too, and this check parses it.

        Args:
            runs: runs of refused events, which are not parsed; each with its first and last
                version.

        Raises:
            MalformedMessage: this version cannot read an event, and there is no keyring.
        """
        events: list[RecordedEvent] = []
        left_out: set[int] = set()
        for first, last in runs:
            left_out.update(range(max(first, after + 1), min(last, after + len(entries)) + 1))
        for version, entry in enumerate(entries, start=after + 1):
            if version in left_out:
                events.append(RecordedEvent(version, _split_entry(entry)[0] or 0.0, LEFT_OUT))
                continue
            if entry.endswith(CUT_OFF):
                if not self._trust.is_on:
                    raise MalformedMessage(f"entry: {TOO_LONG}")
                events.append(build_unreadable_event(version, entry, TOO_LONG))
                continue
            if self._trust.is_on and has_more_values(entry, MAX_UNSIGNED_VALUES):
                events.append(build_unreadable_event(version, entry, LONG_EVENT))
                continue
            try:
                events.append(parse_entry(version, entry))
            except MalformedMessage as error:
                if not self._trust.is_on:
                    raise
                events.append(build_unreadable_event(version, entry, str(error)))
        return events

    def read_first_events(self, job_ids: Sequence[JobId]) -> dict[JobId, Event]:
        """Return the first event of each existing job, in one round trip.

        A worker can append to the journal of a job that does not exist. It cannot write the hash of
        a job, and the submission of a job replaces such a journal.
        """
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.exists(keys.job(job_id))
                pipe.lindex(keys.log(job_id), 0)
            answers = pipe.execute()
        first_events: dict[JobId, Event] = {}
        for job_id, exists, entry in zip(job_ids, answers[::2], answers[1::2], strict=True):
            if exists and entry is not None:
                first_events[job_id] = parse_entry(1, entry).event
        return first_events

    def read_end_reasons(self, job_ids: Sequence[JobId]) -> dict[JobId, str]:
        """Return why each job ended. A job whose end is not in its newest events, or has no reason,
        is left out. With a keyring, the signature of the end is checked.
        """
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.llen(keys.log(job_id))
            versions = read_answers(pipe)
        calls: list[ScriptCall] = []
        for job_id, version in zip(job_ids, versions, strict=True):
            after = max(0, (version or 0) - NEWEST_EVENTS)
            calls.append(([keys.job(job_id)], [after, NEWEST_EVENTS, MAX_BYTES_OF_EACH]))
        answers = self._connection.run_script_for_each("read_journal", calls)
        reasons: dict[JobId, str] = {}
        for job_id, (_, arguments), answer in zip(job_ids, calls, answers, strict=True):
            if isinstance(answer, StoreUnavailable):
                raise answer
            if isinstance(answer, StoreError) or not any(map(_parse_end_reason, answer[0])):
                continue
            for reason in self._parse_end_reasons(job_id, arguments[0], answer[0]):
                reasons[job_id] = reason
        return reasons

    def _parse_end_reasons(self, job_id: JobId, after: int, entries: Sequence[bytes]) -> list[str]:
        """Return the reasons of the ends among the newest entries of a job, the oldest first."""
        if not self._trust.is_on:
            return [reason for entry in entries if (reason := _parse_end_reason(entry))]
        reasons: list[str] = []
        with suppress(MalformedMessage):
            for recorded in self.read(job_id, after, len(entries)):
                if isinstance(recorded.event, JobEnded) and recorded.event.reason:
                    reasons.append(recorded.event.reason)
        return reasons

    def follow(self, job_id: JobId, after: int, wait_s: float) -> list[RecordedEvent]:
        """Return the events after a version, checked as by `read`. Wait up to `wait_s` seconds for
        the first one.
        """
        news = self._wait_for_events({job_id: after}, wait_s)
        events = self.read(job_id, after, MAX_EVENTS_A_READ)
        if news and not events:
            time.sleep(wait_s)  # a worker has written a wrong version
        return events

    def follow_each(
        self, positions: Mapping[JobId, int], wait_s: float
    ) -> dict[JobId, list[RecordedEvent] | MalformedMessage]:
        """Wait for new events of several jobs, over one connection, and return these as
        `read_each`.

        Args:
            positions: job -> last known version. Not empty.
            wait_s: seconds to wait until one of the jobs has a new event.

        Raises:
            StoreUnavailable: see `translate_errors`.
        """
        news = self._wait_for_events(positions, wait_s)
        events_by_job = self.read_each({job_id: positions[job_id] for job_id in news})
        if news and not events_by_job:
            time.sleep(wait_s)  # a worker has written a wrong version
        return events_by_job

    def read_each(
        self, positions: Mapping[JobId, int]
    ) -> dict[JobId, list[RecordedEvent] | MalformedMessage]:
        """Return the new events of each job that has some, oldest first, checked as by `read`, and
        at most `MAX_EVENTS_OF_EACH` of a job.

        A `MalformedMessage` replaces the events of a job with an event that this version cannot
        read. The same holds for any other error in one journal, so that it ends only the streams of
        its job.

        Args:
            positions: job -> last known version.
        """
        calls: list[ScriptCall] = []
        for job_id, after in positions.items():
            calls.append(([keys.job(job_id)], [after, MAX_EVENTS_OF_EACH, MAX_BYTES_OF_EACH]))
        answers = self._connection.run_script_for_each("read_journal", calls)
        events_by_job: dict[JobId, list[RecordedEvent] | MalformedMessage] = {}
        for (job_id, after), answer in zip(positions.items(), answers, strict=True):
            try:
                events = self._read_new_events(job_id, after, answer)
            except MalformedMessage as error:
                events_by_job[job_id] = error
                continue
            except HandoffError:  # Redis cannot be reached, or this process has no key
                raise
            except Exception as error:
                log.exception("the journal of %s cannot be read", job_id)
                why = f"the journal of {job_id} cannot be read: {type(error).__name__}"
                events_by_job[job_id] = MalformedMessage(why)
                continue
            if events:  # the job may have been deleted in the meantime
                events_by_job[job_id] = events
        return events_by_job

    def _read_new_events(
        self, job_id: JobId, after: int, answer: Sequence[Any] | StoreError
    ) -> list[RecordedEvent]:
        """Return new events as `read` returns them.

        Args:
            answer: of `read_journal.lua`.

        Raises:
            MalformedMessage: an event cannot be read, or another program has written the key.
        """
        if isinstance(answer, StoreUnavailable):
            raise answer
        if isinstance(answer, StoreError):
            raise MalformedMessage(f"the journal of {job_id} cannot be read: {answer}")
        entries, _ = answer
        if entries and self._trust.is_on:
            return self.read(job_id, after, len(entries))
        return self.parse(after, entries)

    def _wait_for_events(self, positions: Mapping[JobId, int], wait_s: float) -> list[JobId]:
        """Wait until jobs have a version after their position, and return these jobs. A worker can
        write a wrong version.

        Args:
            positions: job -> last known version.
        """
        if time.monotonic() < self._polls_until:
            return self._poll_for_events(positions, wait_s)
        streams: dict[str, str] = {}
        jobs: dict[bytes, JobId] = {}
        for job_id, version in positions.items():
            key = keys.newest_event(job_id)
            streams[key] = f"{version}-0"
            jobs[f"{self._connection.prefix}{key}".encode()] = job_id
        began_at = time.monotonic()
        with self._connection.translate_errors(), suppress(LongAnswer, redis.ConnectionError):
            answer = self._connection.waiting.xread(
                streams, block=max(1, int(wait_s * 1000)), count=1
            )
            return [jobs[stream] for stream, _ in answer or ()]
        # Redis itself closes a connection whose unread answer is too long
        news = self._poll_for_events(positions, began_at + wait_s - time.monotonic())
        self._polls_until = time.monotonic() + POLL_FOR_S  # not in an outage
        return news

    def _poll_for_events(self, positions: Mapping[JobId, int], wait_s: float) -> list[JobId]:
        """Wait as `_wait_for_events`, and read only the lengths of the journals. A worker may have
        written an entry of any length to the streams of the newest versions.
        """
        until = time.monotonic() + wait_s
        while True:
            with self._connection.translate_errors():
                pipe = self._connection.redis.pipeline(transaction=False)
                for job_id in positions:
                    pipe.llen(keys.log(job_id))
                versions = pipe.execute(raise_on_error=False)
            news: list[JobId] = []
            for (job_id, position), version in zip(positions.items(), versions, strict=True):
                if isinstance(version, redis.RedisError) or version > position:
                    news.append(job_id)
            left_s = until - time.monotonic()
            if news or left_s <= 0:
                return news
            time.sleep(min(left_s, POLL_EVERY_S))

    def set_due(
        self, job_id: JobId, due_at: float | None, version: int, evaluation_id: str = ""
    ) -> None:
        """Set the time at which the sweeper must evaluate the job again.

        If the journal is no longer at `version`, the time stays: the event that arrived in the
        meantime has set it.

        Args:
            due_at: Unix time in seconds, or None for never.
            evaluation_id: id of the evaluation that ends with this call; empty if none.
        """
        if due_at is None:
            due_ms = -1
        else:
            due_ms = int(due_at * 1000)
        self._connection.run_script(
            "set_next_evaluation", [keys.job(job_id), keys.DUE], [version, due_ms, evaluation_id]
        )

    def record_failure(self, job_id: JobId, evaluation_id: str = "") -> int:
        """Record a failed evaluation. The sweeper wakes the job again after a delay that
        doubles with each failure.

        Returns the number of failures in a row without a new event; 0 if the job does not
        exist.

        Args:
            evaluation_id: id of the evaluation that ends with this call; empty if none.
        """
        return int(
            self._connection.run_script(
                "record_failed_evaluation",
                [keys.job(job_id), keys.DUE],
                [MAX_RETRY_DELAY_MS, evaluation_id],
            )
        )


def _parse_end_reason(entry: bytes) -> str | None:
    """Return the reason of an entry that ends a job; None for any other entry, or for an entry
    that this version cannot read. The end of a job is short.
    """
    if has_more_values(entry, MAX_WORKER_VALUES):
        return None
    try:
        event = parse_entry(0, entry).event
    except MalformedMessage:
        return None
    if isinstance(event, JobEnded):
        return event.reason
    return None


def parse_entry(version: int, entry: bytes) -> RecordedEvent:
    """Parse an entry of a journal.

    Args:
        version: place of the entry, from 1.
        entry: time of the event (Unix ms), a space, and the event as JSON.

    Raises:
        MalformedMessage: this version cannot read the event.
    """
    at, text = _split_entry(entry)
    if at is None:
        raise MalformedMessage("entry: it has no time")
    if len(text) > MAX_EVENT_BYTES:
        raise MalformedMessage("entry: it is too long for an event")
    event = parse_event(without_signature(text)[0])
    return RecordedEvent(version=version, at=at, event=event, raw=text)


def build_unreadable_event(version: int, entry: bytes, problem: str) -> RecordedEvent:
    """Return an entry that this version cannot read. Its time is 0 if it has none."""
    at, text = _split_entry(entry)
    event = build_refused_event("it cannot be read")
    return RecordedEvent(version=version, at=at or 0.0, event=event, raw=text, problem=problem)


def get_text(entry: bytes) -> bytes:
    """Return the text of an entry without its time."""
    return _split_entry(entry)[1]


def _split_entry(entry: bytes) -> tuple[float | None, bytes]:
    """Return the Unix time in seconds of an entry (None: it has no time), and its text. The scripts
    read the same time (`entry_time` of `journal.lua`): otherwise no decision would be valid.
    """
    digits, space, text = entry.partition(b" ")
    if not space or not digits.isdigit() or len(digits) > MAX_TIME_DIGITS:
        return None, entry
    return int(digits) / 1000, text
