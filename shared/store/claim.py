"""A claim is the exclusive, leased, fenced right to run one handoff. It has checkpoints, a share of
the budget, and the request that ends the handoff with a result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from handoff_queue.shared.agent.checkpoint_store import CallAnswer, CallQuestion
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import with_versions
from handoff_queue.shared.store.encryption_at_rest import build_draft_place, build_turns_place
from handoff_queue.shared.store.graceful_shutdown import Drain
from handoff_queue.shared.store.payloads import (
    SHORT_BYTES,
    build_payload_arguments,
    pack,
    verify_payload,
)
from handoff_queue.shared.store.positional_arguments import (
    FinishArguments,
    TakeMessagesArguments,
    TurnArguments,
)
from handoff_queue.shared.store.rate_limiter import RateLimiter
from handoff_queue.shared.store.redis.connection import Connection, retry_until_answered
from handoff_queue.shared.store.script_arguments import (
    build_retention_arguments,
    build_settled_usage,
    build_worst_case_argument,
    encode_json,
    iterate_rows,
    parse_name,
)
from handoff_queue.shared.store.tool_call_approvals import (
    CallQuestions,
    parse_call_answers,
)
from handoff_queue.shared.trust.event_signatures import sign_events
from handoff_queue.shared.trust.signatures import NO_TRUST, Trust, prove_run
from handoff_queue.shared.types.budget_measures import AMOUNTS, MEASURES
from handoff_queue.shared.types.checkpoints import (
    BatchClosed,
    BatchCreated,
    Checkpoint,
    ModelCallFailed,
    ModelReplied,
    ToolObserved,
    UserPrompted,
    WorstCase,
)
from handoff_queue.shared.types.errors import (
    BUDGET_NAMES,
    ApprovalAwaited,
    Cancelled,
    Draining,
    Interrupted,
    LeaseLost,
    Level,
    LimitReached,
    MessagesWaiting,
    Paused,
    StoreUnavailable,
)
from handoff_queue.shared.types.events import Event, RecordedEvent, UserMessageTaken
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, make_ref
from handoff_queue.shared.types.ids import Digest, HandoffId, JobId, parse_step_id
from handoff_queue.shared.types.presence import HandoffWait, has_activity_changed
from handoff_queue.shared.types.rate_limits import NO_RATE_LIMITS, ExpectedUsage, RateLimits, Wait
from handoff_queue.shared.types.usage import to_usd

CHORD_SILENCE_S = 3.0
"""Seconds that the body of a chord may take after the last part has ended. Then the sweeper wakes
the job. A job waits this long if a worker dies before it sends the body
(`docs/decisions/0018-parts-are-results.md`). If the body is only late, the second evaluation has
nothing to do. The value is chosen, not measured.
"""
URGENT = (ResultStatus.FAILED, ResultStatus.NEEDS_INPUT)
"""Statuses that wake the supervisor at once, before the other parts of the chord end."""


HEARTBEAT_EVERY_S = 2.0
"""Seconds between two heartbeats of a handoff without a change. 500 running handoffs make 250
small round trips a second.
"""
CHANGED_HEARTBEAT_EVERY_S = 0.4
"""Least seconds between two heartbeats with a change: another activity, or more text of the
answer.
"""
RESERVE_RETRY_S = 0.2
"""Seconds between two tries to reserve while other reservations use up the budget. A handoff that
waits makes five round trips a second. The value is chosen, not measured.
"""
OUTAGE_S = 900.0
"""Seconds that a claim waits for an unreachable Redis, if the handoff has that much time left."""
LATE_S = 60.0
"""Seconds after the handoff's deadline in which a claim may store its last results. This limit cuts
the wait of `OUTAGE_S`. The value is chosen, not measured.
"""


@dataclass(frozen=True, slots=True)
class FinishReply:
    """Reply of the store after a handoff has ended."""

    parts_left: int
    """Handoffs of its group that have not ended; -1 if it has no group."""
    wakes: bool
    """True if the supervisor is woken now, before the group ends."""
    recorded: tuple[RecordedEvent, ...]
    """The events of the end, with their versions in the journal."""


@dataclass(frozen=True, slots=True)
class FinishRequest:
    """Request to end a handoff with a result and its events. The store applies a request that
    is sent twice once.
    """

    events: Sequence[Event]
    arguments: Sequence[Any]
    """Arguments of `finish` in `parts/results.lua`."""

    def parse_reply(self, answer: Sequence[Any]) -> FinishReply:
        """Return the reply in the script's answer, which is not a refusal."""
        _, parts_left, version, at_ms, wakes = answer
        recorded = with_versions(self.events, int(version), int(at_ms) / 1000)
        return FinishReply(int(parts_left), bool(wakes), tuple(recorded))


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has ended well, whose result an equal handoff may copy."""

    job_id: JobId
    handoff_id: HandoffId
    result: Digest
    proof: str
    """Signature by the worker of the run; empty without keys."""

    @classmethod
    def parse(cls, answer: Sequence[bytes]) -> EndedRun:
        """Return the run in the answer of a script. A worker may have written its parts."""
        job_id, handoff_id, result, proof = map(parse_name, answer)
        return cls(JobId(job_id), HandoffId(handoff_id), result, proof)


class ClaimVerdict(StrEnum):
    """Outcome of an attempt to claim a handoff."""

    GRANTED = "granted"
    EXHAUSTED = "exhausted"
    """The claim is granted only to end the handoff as failed, because it was claimed too often."""
    DEFERRED = "deferred"
    """The handoff waits for its provider, and its message came too early."""
    FOLLOWING = "following"
    """An equal handoff runs, and this one waits for its result."""
    PAUSED = "paused"
    """The agent is paused: the handoff waits until an operator unpauses the agent."""
    BUSY = "busy"
    """Another process has the claim, and its lease is valid."""
    DUPLICATE = "duplicate"
    """The handoff has ended, or no job needs it."""
    CANCELLED = "cancelled"
    """The job, or a job above it, was cancelled."""
    UNKNOWN = "unknown"
    """The store has no such handoff with this message: the job was deleted, or the message is
    forged.
    """


@dataclass(slots=True)
class HandoffClaim:
    """The claim of this process on one handoff. It implements
    `shared.agent.checkpoint_store.CheckpointStore`. Its methods raise `Interrupted` after the
    claim is lost.
    """

    connection: Connection
    job_id: JobId
    handoff_id: HandoffId
    fence: str
    lease_s: float
    keep_s: int
    verdict: ClaimVerdict
    limiter: RateLimiter
    trust: Trust = NO_TRUST
    """The keys of this process, which sign the claim's events."""
    evaluation_id: str = ""
    """Id of the evaluation that continues when the handoff has ended: see `ClaimRequest`."""
    checkpoints: tuple[Checkpoint, ...] = ()
    unreadable: str | None = None
    """Reason why the checkpoints of earlier claims cannot be read, or None. With a reason, the
    handoff can only be ended.
    """
    reserved: bool = False
    """True if the claim has reserved the first call's worst case, until `reserve` uses it."""
    drain: Drain = field(default_factory=Drain)
    deadline: float | None = None
    """Deadline of the handoff, in Unix seconds by Redis's clock."""
    ends_at: float | None = None
    """Unix time at which the work must end: the deadline, or earlier if the handoff's seconds
    run out. A claim does not wait for budget after this time.
    """
    started_at: float | None = None
    """Time of the handoff's first claim, or None if there was none."""
    is_first: bool = True
    """True if no earlier claim ended without progress. Otherwise each checkpoint is stored at
    once, so that repeated crashes do not repeat the same call.
    """
    keeps_turns: bool = False
    """True if the checkpoints stay as long as the job, for readers of its trace."""
    run_name: str = ""
    """Name of the run that equal handoffs share: see `ClaimRequest`."""
    copied_run: EndedRun | None = None
    """Run of an equal handoff whose result this handoff may copy."""
    took_messages: bool = False
    """True if the agent has taken messages of users under this claim."""
    has_messages: bool = False
    """True if the store has reported messages of users that the agent has not taken."""
    _interrupted: Interrupted | None = None
    _heartbeat_at: float = field(default_factory=time.monotonic)
    confirmed_at: float = field(default_factory=time.monotonic)
    """Send time of the latest message after which the store confirmed the claim (monotonic)."""
    _doing: str = "starting"
    _unsent_draft: str = ""
    _stored_count: int = field(init=False)
    """Number of checkpoints that are known to be in the store."""
    _unwritten: list[tuple[Checkpoint, bytes]] = field(default_factory=list)
    """Later checkpoints, each with its stored form, that wait for the next message to the store."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._stored_count = len(self.checkpoints)

    def load_earlier_checkpoints(self) -> tuple[Checkpoint, ...]:
        return self.checkpoints

    def reserve(
        self,
        worst: WorstCase,
        expected: ExpectedUsage | None = None,
        *,
        takes_messages: bool = False,
        is_last: bool = False,
    ) -> Wait | None:
        self._check_drain()
        if self.reserved:
            self.reserved = False
            self._check_lease()
            return None

        def ask() -> list[Any]:
            return self._run_turn_script(
                worst=worst, expected=expected, takes_messages=takes_messages, is_last=is_last
            )

        answer = ask()
        while answer[0] == b"wait":
            self.heartbeat(str(HandoffWait("budget")))
            if self.ends_at is not None and self.connection.now() >= self.ends_at:
                raise LimitReached(
                    "deadline", "while it waited for budget that other calls have reserved"
                )
            time.sleep(RESERVE_RETRY_S)
            self._check_drain()
            answer = ask()
        if answer[0] == b"messages":
            raise MessagesWaiting(f"users have sent messages to {self.handoff_id}")
        if answer[0] == b"limit":
            level = Level(answer[1].decode())
            limit = answer[2].decode()
            raise LimitReached(
                limit, _describe_refusal(BUDGET_NAMES[level], limit, worst), level=level
            )
        if answer[0] == b"rate_limit":
            return Wait(int(answer[1]) / 1000, parse_name(answer[2]))
        self.limiter.record_admission(expected, answer[1:])
        self._check_lease()
        return None

    def report_limits(self, limits: RateLimits) -> None:
        self.limiter.report_limits(limits)

    def report_refusal(
        self, why: str, retry_after_s: float | None, limits: RateLimits = NO_RATE_LIMITS
    ) -> None:
        self.limiter.report_refusal(why, retry_after_s, limits)

    def checkpoint(self, *checkpoints: Checkpoint, deferrable: bool = False) -> None:
        """Store the checkpoints. If they may wait and no earlier claim was lost, the next
        message to the store has them.
        """
        if deferrable and self.is_first:
            self._check_claim()
            self._unwritten.extend(map(self._pack_checkpoint, checkpoints))
        else:
            self._run_turn_script(checkpoints, gets_further=not deferrable)

    def _pack_checkpoint(self, checkpoint: Checkpoint) -> tuple[Checkpoint, bytes]:
        """Return a checkpoint with its stored form."""
        packed = pack(checkpoint.to_json())
        place = build_turns_place(self.handoff_id)
        return checkpoint, self.connection.sealing.seal(self.job_id, place, packed)

    def take_messages(self, turn: int) -> tuple[UserPrompted, ...]:
        """Take the messages of users. A message is stored once, also if its script is sent
        twice or this process dies.

        Raises:
            UnreadablePayload: the text of a message is damaged, or was replaced.
        """
        self.store_waiting_checkpoints()
        fence = [self.handoff_id, self.fence]
        answer = self._run_until_answered("untaken_messages", fence, self._keys)
        if answer[0] != b"ok":
            self.apply_answer(answer[0])
        self.has_messages = False
        taken_events: list[UserMessageTaken] = []
        prompts: list[UserPrompted] = []
        own_step = parse_step_id(self.handoff_id)
        sealing = self.connection.sealing
        known = int(answer[1])
        for message_id, digest, stored_form, step in iterate_rows(answer[2:], 4):
            name = digest.decode()
            # another worker may have replaced the text, which the model obeys
            text = verify_payload(name, sealing.open(self.job_id, name, stored_form), SHORT_BYTES)
            if step and step.decode() != own_step:  # this handoff is of a role
                text = f"(to step {step.decode()}) {text}"
            prompt = UserPrompted(message_id=message_id.decode(), text=text)
            taken_event = UserMessageTaken(
                message_id=prompt.message_id, handoff_id=self.handoff_id, turn=turn
            )
            prompts.append(prompt)
            taken_events.append(taken_event)
        if prompts:
            self.took_messages = True
            events = sign_events(self.trust, self.job_id, taken_events)
            self._store_messages(known, events, prompts)
        return tuple(prompts)

    def _store_messages(
        self, known: int, events: Sequence[str], prompts: Sequence[UserPrompted]
    ) -> None:
        """Store taken messages with their events.

        Args:
            known: number of messages of the job that the agent knows then.
        """
        with self._lock:
            self._check_claim()
            keep_ms, deadline = build_retention_arguments(self.keep_s, self.deadline)
            arguments = TakeMessagesArguments(
                handoff=self.handoff_id,
                fence=self.fence,
                lease_ms=int(self.lease_s * 1000),
                keep_ms=keep_ms,
                deadline=deadline,
                known=self._stored_count,
                knows=known,
                events=len(events),
            )
            stored_forms = [self._pack_checkpoint(prompt)[1] for prompt in prompts]
            answer = self._run_until_answered("take_messages", [*arguments, *events, *stored_forms])
            if answer == b"ok":
                self._stored_count += len(prompts)
            self.apply_answer(answer)

    def read_call_answers(self) -> dict[str, CallAnswer]:
        """Return the answers to questions about calls of this handoff, by the id of the call. With
        a keyring, an answer counts only if a user's process, or the supervisor, has signed it.
        """
        fence = [self.handoff_id, self.fence]
        answer = self._run_until_answered("tool_call_approval_answers", fence, self._keys)
        self.apply_answer(answer[0])
        return parse_call_answers(
            answer[1:], self.trust, self.job_id, self.handoff_id, self.connection.sealing
        )

    def ask_about_calls(self, questions: Sequence[CallQuestion], wait_s: int) -> None:
        """Ask a person about calls, and end this claim. The handoff waits in the store. If a
        call has an answer by now, the claim stays, and nothing is asked.

        Args:
            wait_s: longest wait for an answer in seconds.

        Raises:
            ApprovalAwaited: the questions are stored, and the claim has ended.
        """
        self.store_waiting_checkpoints()
        open_questions = CallQuestions(self.handoff_id, questions, wait_s)
        arguments = open_questions.build_arguments(
            self.job_id,
            self.trust,
            self.connection.sealing,
            self.fence,
            self.keep_s,
            self.deadline,
        )
        with self._lock:
            self._check_claim()
            answer = self._run_until_answered("ask_tool_call_approval", arguments)
            if answer == b"ok":
                self._interrupted = ApprovalAwaited(f"{self.handoff_id} {open_questions.activity}")
            self.apply_answer(answer)

    def store_waiting_checkpoints(self) -> None:
        """Store the checkpoints that have waited, if there are any."""
        if self._unwritten:
            self._run_turn_script()

    def heartbeat(self, doing: str, draft: str | None = None) -> None:
        self.check()
        has_news = bool(draft) or has_activity_changed(doing, self._doing)
        self._doing = doing
        self._unsent_draft = draft or self._unsent_draft
        every_s = CHANGED_HEARTBEAT_EVERY_S if has_news else HEARTBEAT_EVERY_S
        if time.monotonic() - self._heartbeat_at >= every_s:
            # Without Redis the work goes on, because the call in flight is paid for. The next
            # checkpoint waits for Redis, and the fence decides whether it is stored.
            with suppress(StoreUnavailable):
                self.renew()

    def check(self) -> None:
        """Check the claim without a round trip.

        Raises:
            Interrupted: the claim is known to be lost, or the grace of the drain is over.
        """
        if self._interrupted is not None:
            raise self._interrupted
        if self.drain.is_over:
            raise Draining(f"{self.handoff_id} goes back to its queue")

    def renew(self) -> None:
        """Renew the lease.

        Raises:
            Interrupted: the claim is lost.
        """
        self.apply_answer(self.connection.run_script("renew_lease", *self.build_renewal()))

    def build_renewal(self) -> tuple[list[str], list[Any]]:
        """Return the keys and arguments of `renew_lease.lua`. The caller passes its answer to
        `apply_answer`.
        """
        self._heartbeat_at = time.monotonic()
        draft = self._unsent_draft
        self._unsent_draft = ""
        sealed_draft: str | bytes = ""
        if draft:
            place = build_draft_place(self.handoff_id)
            sealed_draft = self.connection.sealing.seal(self.job_id, place, pack(draft))
        lease_ms = int(self.lease_s * 1000)
        return self._keys, [self.handoff_id, self.fence, lease_ms, self._doing, sealed_draft]

    def build_finish_request(
        self,
        result: HandoffResult,
        events: Sequence[Event],
        payloads: Sequence[str] = (),
        *,
        takes_messages: bool = False,
    ) -> FinishRequest:
        """Return the request that ends this handoff, for `finish`.

        Args:
            events: events that enter the journal with the result.
            payloads: texts that the events refer to by digest, in addition to the result.
            takes_messages: True if the agent can still change its result. Then the store refuses
                the request while users' messages wait for the agent.
        """
        text = result.to_json()
        digest = make_ref(text).digest
        unwritten, stored_forms = _unzip_checkpoints(self._unwritten)
        kept_forms = stored_forms if self.keeps_turns else []
        arguments = FinishArguments(
            handoff=self.handoff_id,
            fence=self.fence,
            keep_ms=self.keep_s * 1000,
            silence_ms=int(CHORD_SILENCE_S * 1000),
            digest=digest,
            used_json=self._build_usage_argument(unwritten) or self._open_charge,
            events=len(events),
            urgent=int(result.status in URGENT),
            keeps_turns=int(self.keeps_turns),
            evaluation=self.evaluation_id,
            status=result.status.value,
            bucket_use=self.limiter.encode_bucket_usage(result.usage),
            checkpoints=len(kept_forms),
            takes_messages=int(takes_messages),
            sharing=self._build_sharing_argument(result, digest),
        )
        lists = (
            *sign_events(self.trust, self.job_id, events, word=self.fence),
            *kept_forms,
            *build_payload_arguments(self.connection.sealing, self.job_id, (text, *payloads)),
        )
        return FinishRequest(events, (*arguments, *lists))

    def _build_sharing_argument(self, result: HandoffResult, digest: Digest) -> str:
        """Return how this handoff shares its run, for `parts/results.lua`. The value is `copy` with
        the saved micro-dollars and the model, `run` with the proof of the run, or ''.

        Others may copy an `ok` result of a run without effects and without messages of users. The
        script refuses a run about whose calls a person was asked.
        """
        if result.shared is not None:
            saved_microusd = result.shared.saved_microusd
            saved_text = "" if saved_microusd is None else str(saved_microusd)
            return f"copy{saved_text} {result.model or ''}"
        if not self.run_name or result.status is not ResultStatus.OK:
            return ""
        if result.acted or self._has_taken_messages:
            return ""
        proof = prove_run(self.trust, self.job_id, self.handoff_id, self.run_name, digest)
        return f"run{proof}"

    @property
    def _has_taken_messages(self) -> bool:
        """Return whether the agent has taken messages of users, under this or an earlier claim."""
        if self.took_messages:
            return True
        return any(isinstance(checkpoint, UserPrompted) for checkpoint in self.checkpoints)

    def finish(self, end: FinishRequest) -> FinishReply:
        """Store the end of the handoff.

        Raises:
            Interrupted: the claim is lost, or another process has ended the handoff.
            MessagesWaiting: the agent must first take messages of users; nothing is stored.
        """
        return self.parse_finish_reply(end, self._run_until_answered("finish", end.arguments))

    def parse_finish_reply(self, end: FinishRequest, answer: Sequence[Any]) -> FinishReply:
        """Return the reply to the request `end`, from the answer of `finish.lua`, or from that
        part of the answer of `commit.lua`.

        Raises:
            Interrupted: the store refused the request.
            MessagesWaiting: see `finish`.
        """
        if answer[0] != b"ok":
            self.apply_answer(answer[0])
        if answer[0] == b"messages":
            raise MessagesWaiting(f"users have sent messages to {self.handoff_id}")
        return end.parse_reply(answer)

    def release(self) -> None:
        """Hand the claim back after storing its waiting checkpoints. It does not count as a
        claim.
        """
        with suppress(Interrupted):
            self.store_waiting_checkpoints()
        self.connection.run_script(
            "release", self._keys, [self.handoff_id, self.fence, self._open_charge]
        )

    def defer(self, seconds: float, why: str) -> bool:
        """Defer the handoff for some seconds. The claim ends and does not count.

        Returns False if this process no longer had the claim.
        """
        arguments = [self.handoff_id, self.fence, int(seconds * 1000), why, self.limiter.bucket]
        return bool(self.connection.run_script("defer", self._keys, arguments))

    @property
    def _open_charge(self) -> str:
        """Return the charge for a reservation that is open when the claim ends, as JSON.

        It is zero if the claim reserved the first call, and the call was not made. The empty
        string means the worst case, because a call was made and not settled.
        """
        if self.reserved:
            return self._encode_zero_usage()
        return ""

    def _encode_zero_usage(self) -> str:
        """Return the usage of a reserved call that costs nothing, as JSON."""
        return encode_json(
            {amount.name: 0 for amount in AMOUNTS} | self.limiter.release_unused_share(None)
        )

    @property
    def _keys(self) -> list[str]:
        return [keys.job(self.job_id)]

    def _run_turn_script(
        self,
        new: Sequence[Checkpoint] = (),
        *,
        worst: WorstCase | None = None,
        expected: ExpectedUsage | None = None,
        takes_messages: bool = False,
        is_last: bool = False,
        gets_further: bool = True,
    ) -> list[Any]:
        """Run `turn.lua` and return its answer.

        Args:
            new: checkpoints to store after the waiting ones.
            worst: worst case of the next call to reserve, or None.
            expected: expected use of the provider's rate limits by that call, or None.
            takes_messages: see `reserve`.
            is_last: see `reserve`.
            gets_further: True if new checkpoints are progress, so that earlier lost claims no
                longer count.

        Raises:
            Interrupted: the claim is lost.
        """
        with self._lock:
            self._check_claim()
            checkpoints, stored_forms = _unzip_checkpoints(
                [*self._unwritten, *map(self._pack_checkpoint, new)]
            )
            usage_json = self._build_usage_argument(checkpoints)
            call = self.limiter.build_admission_arguments(expected)
            keep_ms, deadline = build_retention_arguments(self.keep_s, self.deadline)
            arguments = TurnArguments(
                handoff=self.handoff_id,
                fence=self.fence,
                lease_ms=int(self.lease_s * 1000),
                keep_ms=keep_ms,
                deadline=deadline,
                used_json=usage_json,
                worst_json=build_worst_case_argument(
                    worst, call, takes_messages=takes_messages, is_last=is_last
                ),
                doing=self._doing,
                known=self._stored_count,
                tool_calls=sum(isinstance(checkpoint, ToolObserved) for checkpoint in checkpoints),
                gets_further=int(gets_further),
                batch_id=_find_batch(checkpoints),
            )
            answer: list[Any] = self._run_until_answered("turn", [*arguments, *stored_forms])
            if answer[0] not in (b"lost", b"dropped"):
                self._stored_count += len(checkpoints)
                self._unwritten.clear()
            self.apply_answer(answer[0])
            return answer

    def _build_usage_argument(self, checkpoints: Sequence[Checkpoint]) -> str:
        """Return the usage of the model call in these checkpoints as JSON, or '' if there is
        no call. There is at most one call, because each is settled before the next is made.
        """
        call = _find_ended_call(checkpoints)
        if call is None:
            return ""
        if isinstance(call, BatchClosed):
            return self._encode_zero_usage()
        figures = build_settled_usage(call.usage)
        if isinstance(call, ModelCallFailed):
            figures["failed"] = True
        return encode_json(figures | self.limiter.release_unused_share(call.usage))

    def _run_until_answered(
        self, script: str, arguments: Sequence[Any], script_keys: Sequence[str] | None = None
    ) -> Any:
        """Run the script until Redis answers. Paid work is worth the wait. If another process
        has taken over, the fence refuses the message.

        Raises:
            StoreUnavailable: Redis did not answer within `OUTAGE_S`, by `LATE_S` after the
                deadline, or until the grace of the drain was over.
        """
        until = time.monotonic() + OUTAGE_S

        def is_worth_it() -> bool:
            in_time = self.deadline is None or self.connection.now() < self.deadline + LATE_S
            return in_time and not self.drain.is_over and time.monotonic() < until

        def run() -> Any:
            self._heartbeat_at = time.monotonic()
            return self.connection.run_script(
                script, list(script_keys or self._keys), list(arguments)
            )

        return retry_until_answered(run, is_worth_it)

    def _check_drain(self) -> None:
        """Raise `Draining` if the drain has begun."""
        if self.drain.has_begun:
            raise Draining(f"{self.handoff_id} goes back to its queue")

    def _check_lease(self) -> None:
        """Treat the claim as lost if the store has not confirmed it for a lease, for example
        because this process was stopped. Another process may have the claim now, and both
        would make the same call.

        Raises:
            LeaseLost: the lease may be over.
        """
        if time.monotonic() - self.confirmed_at > self.lease_s:
            self.apply_answer(b"lost")

    def _check_claim(self) -> None:
        """Check the claim like `check`, but ignore the drain: paid work is stored in any case."""
        if self._interrupted is not None:
            raise self._interrupted

    def apply_answer(self, answer: bytes) -> None:
        """Apply the status in a script's answer to this claim. `ok` confirms the claim; other
        statuses, such as `wait`, change nothing.

        Raises:
            Interrupted: the claim is lost.
        """
        if answer in (b"ok", b"messages"):
            self.confirmed_at = self._heartbeat_at
            self.has_messages = self.has_messages or answer == b"messages"
        elif answer == b"lost":
            self._interrupted = LeaseLost(f"{self.handoff_id}: its lease is lost")
        elif answer == b"dropped":
            self._interrupted = Cancelled(f"{self.handoff_id}: its job no longer needs it")
        elif answer == b"paused":
            self._interrupted = Paused(f"{self.handoff_id}: its agent is paused")
        elif answer == b"cancelled":
            self._interrupted = Cancelled(f"{self.job_id} was cancelled")
        self._check_claim()


def _describe_refusal(whose: str, limit: str, worst: WorstCase) -> str:
    """Return why a budget does not allow a call, and the amount that the call needs."""
    text = f"{whose} does not allow another model call"
    if limit == "max_usd" and worst.microusd is not None:
        return f"{text}, which may cost up to ${to_usd(worst.microusd):.4f}"
    if limit == "max_usd":
        return (
            f"{whose} has a limit in money, and the price of {worst.model} is not known: set"
            " HANDOFF_PRICE_AS of the worker to a model with a known price"
        )
    for measure in MEASURES:
        if measure.stored_limit == limit and not measure.counts_calls:
            return f"{text}, which may take up to {measure.get_worst(worst):,} {measure.name}"
    return text


def _unzip_checkpoints(
    packed: Sequence[tuple[Checkpoint, bytes]],
) -> tuple[list[Checkpoint], list[bytes]]:
    """Return the checkpoints, and their stored forms."""
    checkpoints: list[Checkpoint] = []
    stored_forms: list[bytes] = []
    for checkpoint, stored_form in packed:
        checkpoints.append(checkpoint)
        stored_forms.append(stored_form)
    return checkpoints, stored_forms


def _find_batch(checkpoints: Sequence[Checkpoint]) -> str:
    """Return the id of the batch that was created and the name of its call, or ''."""
    for checkpoint in checkpoints:
        if isinstance(checkpoint, BatchCreated):
            return f"{checkpoint.batch_id} {checkpoint.custom_id}"
    return ""


def _find_ended_call(
    checkpoints: Sequence[Checkpoint],
) -> ModelReplied | ModelCallFailed | BatchClosed | None:
    """Return the first end of a model call in these checkpoints, or None if no call has ended."""
    for checkpoint in checkpoints:
        if isinstance(checkpoint, ModelReplied | ModelCallFailed | BatchClosed):
            return checkpoint
    return None
