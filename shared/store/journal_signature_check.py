"""The check of a journal's signatures: a reader uses only events that their writers may write.

An event is refused if its batch has no valid signature, if its signer may not write it, or if it is
a replay. `EventRefused` takes the place of a refused event, so that the versions stay the same.
`RefusedEvents` records which events supervisors have refused.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha1

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.handoff_info import read_agents
from handoff_queue.shared.store.redis.connection import Connection, ScriptCall
from handoff_queue.shared.store.script_arguments import (
    MAX_TEXT_BYTES,
    iterate_rows,
    parse_figure,
)
from handoff_queue.shared.trust.event_signatures import (
    DECISION,
    Stamp,
    check_batch,
    find_handoff,
    get_right,
    may_write,
    read_stamp,
    without_signature,
)
from handoff_queue.shared.trust.keyring import Right
from handoff_queue.shared.trust.signatures import Signer, Trust
from handoff_queue.shared.types.errors import MalformedMessage, StoreError, UntrustedMessage
from handoff_queue.shared.types.events import (
    CancelRequested,
    EventRefused,
    HandoffEnd,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobSubmitted,
    RecordedEvent,
    RetryRequested,
    parse_event,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.json_values import has_more_values
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST, ROLES

LONG_EVENT = "it is long, and was not read before the check of its signature"
"""The `problem` of an event with more than `MAX_UNSIGNED_VALUES` values."""
TOO_LONG = "it is too long for an event of a worker, and was not read"
"""The `problem` of a long event that no supervisor and no client has written."""
MAX_WORKER_VALUES = 2_000
"""JSON values of the longest event of a worker, and of the end of a job. An event of a worker has
at most about 400: 32 passages, 32 restated steps, and 60 origins.
"""
MAX_WORKER_BYTES = 65_536
"""Bytes of the longest entry of a worker, as in `parts/journal.lua`."""
MAX_BATCH_EVENTS = 10_000
"""Most events of one batch: a decision ends after 5,000 events."""
MAX_BATCH_BYTES = 8_000_000
"""Bytes of the events of one batch that are not longer than those of a worker. 5,000 handoffs have
about 3 million.
"""
MAX_REFUSED_BYTES, MAX_LATER_BYTES = 2_000, 100
"""Bytes of a refused event that stay for its dead letter."""
MANY_REFUSED = 1_000
"""Refused events after which less of their texts stays."""
MAX_FACTS_OF_HANDOFF = 1_000
"""Most questions about tool calls, and messages taken, of one handoff. A reply has few calls, and
each agent takes a message once. The state of a job keeps every question.
"""
NO_BATCH = Stamp("", 0, "", "")
"""The stamp of a text whose stamp cannot be read."""
_FINISHED = re.compile(rb'\{"type":"handoff_finished","handoff_id":"([^"]{1,200})"')
"""The beginning of the event of a result, as in `lease_job_evaluation.lua`."""
RECORDED_TO, RUNS = "recorded_to", "runs"
"""Fields of the hash of a job's refused events."""
BEGUN = "begun"
"""Field of the hash of a job that `commit.lua` writes, see `RefusedEvents.read_first_decision`."""
MIN_RUN = 100
"""Least events of a run of refused events that readers leave out without a check."""
MAX_RUNS = 1_000
"""Most runs of a job that supervisors record: the newest ones."""
LEFT_OUT = EventRefused(reason="a supervisor has refused it")
"""The place of an event in a recorded run."""


def read_ends(
    connection: Connection, job_id: JobId, events: Sequence[RecordedEvent]
) -> dict[HandoffId, HandoffEnd]:
    """Return the ends of the handoffs that these events end, if they have none, in at most two
    round trips.
    """
    handoff_ids: dict[HandoffId, None] = {}
    for recorded in events:
        handoff_id = find_ended_handoff(recorded)
        if handoff_id is not None and recorded.end is None:
            handoff_ids[handoff_id] = None
    return read_ends_of(connection, job_id, list(handoff_ids))


def read_ends_of(
    connection: Connection, job_id: JobId, handoff_ids: Sequence[HandoffId]
) -> dict[HandoffId, HandoffEnd]:
    """Return the ends of the handoffs that have ended, in at most two round trips."""
    agents = read_agents(connection, job_id, handoff_ids)
    calls: list[ScriptCall] = []
    arguments = [MAX_TEXT_BYTES, "fence", "end_version"]
    for handoff_id, agent in agents.items():
        calls.append(([keys.handoff(job_id, agent, handoff_id)], arguments))
    answers = connection.run_script_for_each("short_fields", calls)
    ends: dict[HandoffId, HandoffEnd] = {}
    for handoff_id, answer in zip(agents, answers, strict=True):
        if isinstance(answer, StoreError):
            raise answer
        fields = dict(iterate_rows(answer, 2))
        end = parse_end(fields.get(b"fence"), fields.get(b"end_version"))
        if end is not None:
            ends[handoff_id] = end
    return ends


def parse_end(fence: bytes | None, version: bytes | None) -> HandoffEnd | None:
    """Return the end of a handoff from the fields of its hash. None: it has not ended, or a worker
    has written a false version.
    """
    number = parse_figure(version)
    if fence and number is not None:
        return HandoffEnd(fence.decode(errors="replace"), number)
    return None


def find_ended_handoff(recorded: RecordedEvent) -> HandoffId | None:
    """Return the handoff that an event ends, or None. The event may be long and not parsed, or this
    version may not be able to read it.
    """
    if isinstance(recorded.event, HandoffFinished):
        return recorded.event.handoff_id
    if recorded.problem and (match := _FINISHED.match(recorded.raw)):
        return HandoffId(match[1].decode(errors="replace"))
    return None


def has_signature(recorded: RecordedEvent) -> bool:
    """Return whether an event has a signature. The last event of each batch has it."""
    return bool(without_signature(recorded.raw)[1])


@dataclass(slots=True)
class BatchRoom:
    """The room for the events of one batch. A worker can append any number of events that have no
    signature.
    """

    left_events: int = MAX_BATCH_EVENTS
    left_bytes: int = MAX_BATCH_BYTES

    def takes(self, entry: bytes) -> bool:
        """Return whether the batch has room for another event."""
        self.left_events -= 1
        if len(entry) <= MAX_WORKER_BYTES:
            self.left_bytes -= len(entry)
        return min(self.left_events, self.left_bytes) >= 0


def iterate_whole_batches(
    pages: Iterable[Sequence[RecordedEvent]],
) -> Iterator[list[RecordedEvent]]:
    """Yield the events of a journal in parts. No batch is in two parts."""
    rest: list[RecordedEvent] = []
    for page in pages:
        rest += page
        end = len(rest)
        while end and not has_signature(rest[end - 1]):
            end -= 1
        if not end:  # a later page may end the batch of the last events
            room, end = BatchRoom(), len(rest)
            while end and room.takes(rest[end - 1].raw):
                end -= 1
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def take_events_to_first_signature(events: Sequence[RecordedEvent]) -> list[RecordedEvent]:
    """Return the events up to the first event with a signature; all events if none has it."""
    first_events: list[RecordedEvent] = []
    for recorded in events:
        first_events.append(recorded)
        if has_signature(recorded):
            break
    return first_events


def parse_stamp(text: bytes) -> Stamp | None:
    """Return the stamp of the last event of a batch; None for the text of another event."""
    stamp = without_signature(text)[1]
    if not stamp:
        return None
    try:
        return read_stamp(stamp)
    except UntrustedMessage:
        return NO_BATCH


def is_signed_batch(trust: Trust, job_id: JobId, texts: Sequence[bytes], stamp: Stamp) -> bool:
    """Return whether the events with these texts have a valid signature. They are not parsed, so
    the rights of the signer are not checked.
    """
    if len(texts) != stamp.count:
        return False
    try:
        events = [without_signature(text)[0].decode() for text in texts]
        trust.find_signer(stamp.signature, stamp.kind, job_id, stamp.place, *events, codes=True)
    except (UntrustedMessage, UnicodeDecodeError):
        return False
    return True


def count_events_cut_off(events: Sequence[RecordedEvent]) -> int:
    """Return the number of events before these that are in the batch of the first event."""
    batch = take_events_to_first_signature(events)
    if not batch or not has_signature(batch[-1]):
        return 0
    try:
        stamp = read_stamp(without_signature(batch[-1].raw)[1])
    except UntrustedMessage:
        return 0
    return max(0, stamp.count - len(batch))


@dataclass(frozen=True, slots=True)
class SeenBatches:
    """The batches before the new events, by which the check finds replays."""

    decided: int = 0
    """Version of the last event of the last decision."""
    words: frozenset[str] = frozenset()
    """Random words of the facts, except results."""
    facts: Mapping[HandoffId, int] = field(default_factory=dict)
    """Number of the facts about each handoff, except results."""


NOTHING_SEEN = SeenBatches()


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    """The reason why no reader uses an event. A worker can cause any number of such events, so this
    does not have the event itself.
    """

    version: int
    type: str
    reason: str
    text: bytes
    """Its first `MAX_REFUSED_BYTES`, or `MAX_LATER_BYTES` after many refused events."""
    handoff_id: HandoffId | None
    """The handoff that it ends, or None."""
    end: HandoffEnd | None
    """The end of this handoff; None: the reader has not read it."""


@lru_cache(maxsize=100)
def build_refused_event(reason: str) -> EventRefused:
    """Return the event in the place of events that are refused for this reason."""
    return EventRefused(reason=reason)


@dataclass
class JournalCheck:
    """The check of new events of one job."""

    trust: Trust
    job_id: JobId
    ends: Mapping[HandoffId, HandoffEnd]
    """The ends of handoffs as the store has noted them, for events that do not have theirs."""
    seen: SeenBatches = NOTHING_SEEN
    open_agent: Callable[[HandoffId], str | None] | None = None
    """Returns the agent of a handoff that is open before the events, or None. Without this function
    the events are the first ones of the journal.
    """
    checked: list[RecordedEvent] = field(default_factory=list)
    """The events, with `EventRefused` in the place of refused ones."""
    refused_events: list[RefusedEvent] = field(default_factory=list)
    unread: MalformedMessage | None = None
    """Why this version cannot read a worker's event about a handoff that is open. The event may be
    of a newer version, so the reader leaves the job to a process of that version. None: there is no
    such event, or the job was cancelled or has ended after it.
    """
    _has_context: bool = True
    _has_begun: bool = False
    _issued: dict[HandoffId, str] = field(default_factory=dict)
    """Roles of the handoffs that these events issue."""
    _ended_handoffs: set[HandoffId] = field(default_factory=set)
    """Handoffs that these events end."""
    _dropped_handoffs: set[HandoffId] = field(default_factory=set)
    """Handoffs before the end or a cancel of the job."""
    _is_over: bool = False
    """True if the job was cancelled or has ended, and was not continued."""
    _words: set[str] = field(default_factory=set)
    """Words of the facts among these events, except results."""
    _facts: Counter[HandoffId] = field(default_factory=Counter)
    """Number of the facts about each handoff among these events, except results."""
    _unread_signers: set[str] = field(default_factory=set)
    """Workers with a long event that cannot be read."""

    def forget_context(self) -> None:
        """Check only signatures and rights, because the reader does not know the events before."""
        self._has_context = False

    def read(self, events: Sequence[RecordedEvent]) -> None:
        """Check new events, which are whole batches. A reader that leaves the job to a newer
        version raises `unread` after the last events.

        Raises:
            MalformedMessage: an event is signed, and not by a worker, and this version cannot read
                it.
        """
        self._has_begun = self._has_begun or self.open_agent is not None
        waiting: list[RecordedEvent] = []
        for recorded in events:
            waiting.append(recorded)
            _, text = without_signature(recorded.raw)
            if not text:
                continue
            try:
                stamp = read_stamp(text)
            except UntrustedMessage as error:
                self._refuse(waiting, str(error))
            else:
                self._refuse(waiting[: -stamp.count], "it has no signature")
                self._read_batch(waiting[-stamp.count :], stamp)
            waiting = []
        self._refuse(waiting, "it has no signature")
        if self._words:
            self.seen = replace(self.seen, words=self.seen.words | self._words)
            self._words.clear()
        if self._facts:
            self.seen = replace(self.seen, facts=self._facts + Counter(self.seen.facts))
            self._facts.clear()

    def _read_batch(self, batch: Sequence[RecordedEvent], stamp: Stamp) -> None:
        try:
            signer = find_signer_of_batch(self.trust, self.job_id, batch, stamp)
            if any(recorded.problem == LONG_EVENT for recorded in batch):
                batch = self._with_long_events(signer, batch)
                signer = find_signer_of_batch(self.trust, self.job_id, batch, stamp)
            _check_kind(signer, batch, stamp)
            if self._has_context:
                for recorded in batch:
                    self._check_agent(signer, recorded)
                self._check_place(batch, stamp)
            self._check_ends(signer, batch, stamp)
            for recorded in batch:
                if recorded.problem:
                    self._check_unreadable(signer, recorded)
        except UntrustedMessage as error:
            self._refuse(batch, str(error))
            return
        self._accept(batch, stamp)

    def _with_long_events(
        self, signer: Signer, batch: Sequence[RecordedEvent]
    ) -> list[RecordedEvent]:
        """Return a batch after its long events were parsed. After an event that cannot be read, no
        other long event of this worker is parsed, because a worker can sign any number of events.

        Raises:
            UntrustedMessage: a worker has signed the batch, and the events are too long for its
                events, or follow an event that cannot be read.
        """
        events: list[RecordedEvent] = []
        for recorded in batch:
            if _is_worker(signer) and has_more_values(recorded.raw, MAX_WORKER_VALUES):
                raise UntrustedMessage(
                    f"it is signed by {signer.name}, and too long for its events"
                )
            if recorded.problem == LONG_EVENT:
                if signer.name in self._unread_signers:
                    raise UntrustedMessage(
                        f"{signer.name} has signed other long events that cannot be read"
                    )
                recorded = _parse_long_event(recorded)  # noqa: PLW2901
                if recorded.problem and _is_worker(signer):
                    self._unread_signers.add(signer.name)
            events.append(recorded)
        return events

    def _check_unreadable(self, signer: Signer, recorded: RecordedEvent) -> None:
        """Refuse an event of a worker that this version cannot read. It may be of a newer version
        if it is about an open handoff of its agents, and then `unread` says so.

        Raises:
            UntrustedMessage: a worker has signed the event.
            MalformedMessage: another process has signed it.
        """
        problem = MalformedMessage(recorded.problem)
        if not _is_worker(signer):
            raise problem
        handoff_id = _find_named_handoff(recorded.raw)
        agent = self._find_agent(handoff_id)
        is_open = handoff_id not in self._dropped_handoffs and not self._is_over
        if agent is not None and is_open and _does_handoffs_of(signer, agent):
            self.unread = self.unread or problem
        raise UntrustedMessage(f"it is signed by {signer.name}, and cannot be read")

    def _check_agent(self, signer: Signer, recorded: RecordedEvent) -> None:
        """Check that an identity may do the work of the handoff that an event is about, and that
        the handoff is open. `_check_ends` checks this for a result, which may come late.
        """
        handoff_id = find_handoff(recorded.event)
        if handoff_id is None:
            return
        agent = self._find_agent(handoff_id)
        if not isinstance(recorded.event, HandoffFinished):
            if agent is None:
                raise UntrustedMessage(f"the handoff {handoff_id} is not open")
            facts = self.seen.facts.get(handoff_id, 0) + self._facts[handoff_id]
            if facts >= MAX_FACTS_OF_HANDOFF:
                raise UntrustedMessage(f"the handoff {handoff_id} has too many questions")
        if agent is not None and not _does_handoffs_of(signer, agent):
            raise UntrustedMessage(
                f"it is signed by {signer.name}, and the handoff {handoff_id} is for {agent}"
            )

    def _check_place(self, batch: Sequence[RecordedEvent], stamp: Stamp) -> None:
        """Check that a batch belongs to its place in the journal, and is not the copy of an earlier
        one. `_check_ends` finds the copy of a result.
        """
        first = batch[0]
        if not self._has_begun and not isinstance(first.event, JobSubmitted):
            raise UntrustedMessage("the job has no valid submission")
        if stamp.kind == DECISION:
            if not self.seen.decided <= int(stamp.place) < first.version:
                raise UntrustedMessage("it is a replay of an earlier decision")
        elif stamp.place in self.seen.words or stamp.place in self._words:
            raise UntrustedMessage("it is a replay of an earlier event")

    def _check_ends(self, signer: Signer, batch: Sequence[RecordedEvent], stamp: Stamp) -> None:
        """Check that each result of a batch is the end of its handoff, wherever it is in the batch.
        The store has noted the version of the end, and the fence of the claim. The fence is the
        word of the stamp. A supervisor's result of an open handoff needs neither.
        """
        if stamp.kind == DECISION:
            return
        decides = signer.may(Right.DECIDE)
        if decides and not self._has_context:
            return
        fence = sha1(stamp.place.encode(), usedforsecurity=False).hexdigest()
        for recorded in batch:
            if not isinstance(recorded.event, HandoffFinished):
                continue
            handoff_id = recorded.event.handoff_id
            end = recorded.end or self.ends.get(handoff_id)
            is_its_end = end is not None and end.version == batch[-1].version
            if self._find_agent(handoff_id) is None and not is_its_end:
                raise UntrustedMessage(f"it is a replay: the handoff {handoff_id} is not open")
            if not decides and (end is None or end.fence != fence):
                raise UntrustedMessage(f"its signer has no claim on the handoff {handoff_id}")

    def _accept(self, batch: Sequence[RecordedEvent], stamp: Stamp) -> None:
        self._has_begun = True
        for recorded in batch:
            event = recorded.event
            if isinstance(event, HandoffIssued):
                self._issued[event.handoff_id] = event.assigned_to
                self._ended_handoffs.discard(event.handoff_id)
            elif isinstance(event, HandoffFinished):
                self._ended_handoffs.add(event.handoff_id)
            elif (handoff_id := find_handoff(event)) is not None:
                self._facts[handoff_id] += 1
            elif isinstance(event, CancelRequested | JobEnded):
                self._dropped_handoffs.update(self._issued)
                self._is_over, self.unread = True, None
            elif isinstance(event, RetryRequested):
                self._is_over = False
            self.checked.append(recorded)
        if stamp.kind == DECISION:
            self.seen = replace(self.seen, decided=batch[-1].version)
        elif not isinstance(batch[0].event, HandoffFinished):
            self._words.add(stamp.place)

    def _refuse(self, events: Sequence[RecordedEvent], reason: str) -> None:
        for recorded in events:
            if recorded.event is LEFT_OUT:
                self.checked.append(recorded)
                continue
            why = TOO_LONG if recorded.problem == TOO_LONG else reason
            is_early = len(self.refused_events) < MANY_REFUSED
            text = recorded.raw[: MAX_REFUSED_BYTES if is_early else MAX_LATER_BYTES]
            handoff_id = find_ended_handoff(recorded)
            event = recorded.event
            self.refused_events.append(
                RefusedEvent(recorded.version, event.type, why, text, handoff_id, recorded.end)
            )
            self.checked.append(
                RecordedEvent(recorded.version, recorded.at, build_refused_event(why))
            )

    def _find_agent(self, handoff_id: HandoffId) -> str | None:
        """Return the agent of an open handoff; None: it is not open."""
        if handoff_id in self._ended_handoffs:
            return None
        if handoff_id in self._issued:
            return self._issued[handoff_id]
        if self.open_agent is not None:
            return self.open_agent(handoff_id)
        return None


def find_signer_of_batch(
    trust: Trust, job_id: JobId, batch: Sequence[RecordedEvent], stamp: Stamp
) -> Signer:
    """Return the identity that signed a batch.

    Raises:
        UntrustedMessage: the signature does not hold, or its identity may not write these events.
    """
    if len(batch) != stamp.count:
        raise UntrustedMessage("its signature is about more events")
    texts: list[str] = []
    for recorded in batch:
        event, _ = without_signature(recorded.raw)
        try:
            texts.append(event.decode())
        except UnicodeDecodeError as error:
            raise UntrustedMessage("it is not UTF-8") from error
    signer = check_batch(trust, job_id, texts, stamp, [recorded.event for recorded in batch])
    for recorded in batch:
        if not recorded.problem and not may_write(signer, recorded.event):
            raise UntrustedMessage(
                f"it is signed by {signer.name}, which may not sign {get_right(recorded.event)}"
            )
    return signer


def _is_worker(signer: Signer) -> bool:
    """Return whether an identity writes events of a worker only."""
    return not (signer.may(Right.DECIDE) or signer.may(Right.SUBMIT))


def _parse_long_event(recorded: RecordedEvent) -> RecordedEvent:
    """Return a long event after it was parsed. An event that cannot be read has a `problem`."""
    try:
        event = parse_event(without_signature(recorded.raw)[0])
    except MalformedMessage as error:
        return replace(recorded, problem=str(error))
    return replace(recorded, event=event, problem="")


def _find_named_handoff(raw: bytes) -> HandoffId:
    """Return the handoff that an unreadable event names; '' if it names none."""
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        return HandoffId("")
    handoff_id = fields.get("handoff_id") if isinstance(fields, dict) else None
    return HandoffId(handoff_id if isinstance(handoff_id, str) else "")


def _check_kind(signer: Signer, batch: Sequence[RecordedEvent], stamp: Stamp) -> None:
    """Check that a worker has not signed its events as a decision. A decision has no word, so
    nothing would bind its results to a claim.
    """
    if stamp.kind != DECISION or signer.may(Right.DECIDE):
        return
    for recorded in batch:
        if find_handoff(recorded.event) is not None:
            raise UntrustedMessage(f"it is signed by {signer.name}, which makes no decisions")


def _does_handoffs_of(signer: Signer, agent: str) -> bool:
    """Return whether an identity does the handoffs of an agent. The supervisor does the handoffs of
    its own roles, and child jobs do the handoffs of their steps.
    """
    if agent in (*ROLES, CHILD_JOB_SPECIALIST):
        return signer.may(Right.DECIDE)
    return signer.may(Right.RESULT) and signer.identity.serves(agent)


def read_runs(connection: Connection, job_id: JobId) -> list[tuple[int, int]]:
    """Return the first and the last version of each recorded run of refused events."""
    with connection.translate_errors():
        text = connection.redis.hget(keys.refused_events(job_id), RUNS)
    runs: list[tuple[int, int]] = []
    for run in (text or b"").decode().split():
        first, _, last = run.partition("-")
        runs.append((int(first), int(last)))
    return runs


def _add_to_runs(runs: Sequence[tuple[int, int]], versions: Sequence[int]) -> list[tuple[int, int]]:
    """Return the runs with further versions. Of the short runs, only the last one stays, because
    the next refused event may continue it.
    """
    new_runs = list(runs)
    for version in versions:
        if new_runs and new_runs[-1][1] == version - 1:
            new_runs[-1] = (new_runs[-1][0], version)
        else:
            new_runs.append((version, version))
    return [*filter(is_long_run, new_runs[:-1]), *new_runs[-1:]][-MAX_RUNS:]


def is_long_run(run: tuple[int, int]) -> bool:
    """Return whether readers leave out the events of a run."""
    return run[1] - run[0] >= MIN_RUN - 1


class RefusedEvents:
    """The refused events of all jobs. A refusal is recorded once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read_recorded_version(self, job_id: JobId) -> int:
        """Return the version up to which supervisors have recorded refused events; 0 if none."""
        with self._connection.translate_errors():
            version = self._connection.redis.hget(keys.refused_events(job_id), RECORDED_TO)
        return int(version or 0)

    def read_first_decision(self, job_id: JobId) -> int:
        """Return the version of the first event after the submission that a supervisor or a client
        has committed; 0 if there is none. No worker writes it.
        """
        with self._connection.translate_errors():
            version = self._connection.redis.hget(keys.job(job_id), BEGUN)
        return parse_figure(version) or 0

    def record(self, job_id: JobId, versions: Sequence[int], keep_s: int) -> None:
        """Record the refused events with these versions, in ascending order. So an event gets one
        dead letter, and clients do not check the events of long runs again.

        Args:
            keep_s: seconds for which the record stays.
        """
        runs = _add_to_runs(read_runs(self._connection, job_id), versions)
        text = " ".join(f"{first}-{last}" for first, last in runs)
        fields: dict[str, str | int] = {RECORDED_TO: versions[-1], RUNS: text}
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.hset(keys.refused_events(job_id), mapping=fields)
            pipe.expire(keys.refused_events(job_id), keep_s)
            pipe.execute()

    def reopen_handoff(self, job_id: JobId, handoff_id: HandoffId, version: int) -> bool:
        """Open a handoff again if the event at this version has ended it. Return whether it was
        opened.
        """
        return bool(
            self._connection.run_script("reopen_handoff", [keys.job(job_id)], [handoff_id, version])
        )
