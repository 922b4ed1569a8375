"""A claim: the exclusive, leased, fenced right to run one handoff; its checkpoints and its
share of the budget.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.drain import Drain
from handoff_queue.shared.store.finish_request import (
    CHORD_SILENCE_S,
    URGENT,
    FinishReply,
    FinishRequest,
)
from handoff_queue.shared.store.payloads import pack, payload_arguments
from handoff_queue.shared.store.rate_limiter import RateLimiter
from handoff_queue.shared.store.redis.connection import Connection, retry_until_answered
from handoff_queue.shared.store.script_arguments import (
    json_argument,
    retention_arguments,
    worst_case_argument,
)
from handoff_queue.shared.types.checkpoints import (
    Checkpoint,
    ModelCallFailed,
    ModelReplied,
    ToolObserved,
    WorstCase,
)
from handoff_queue.shared.types.errors import (
    WHOSE,
    Cancelled,
    Draining,
    Interrupted,
    LeaseLost,
    Level,
    LimitReached,
    Paused,
    StoreUnavailable,
)
from handoff_queue.shared.types.events import Event
from handoff_queue.shared.types.handoff import HandoffResult, ref
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.presence import RateLimitWait, is_news
from handoff_queue.shared.types.rate_limits import NOTHING_SAID, Expected, RateLimits, Wait

BEAT_EVERY_S = 2.0
"""Seconds between two heartbeats of a handoff: 500 running handoffs make 250 small round trips a
second.
"""
NEWS_EVERY_S = 0.4
"""Least seconds between two heartbeats with a change: another activity, or more text of the answer.
"""
RESERVE_RETRY_S = 0.2
"""Between two tries while other reservations of the job are out."""
OUTAGE_S = 900.0
"""Seconds that a claim waits for an unreachable Redis, if the handoff has that much time left."""
LATE_S = 60.0
"""Seconds after the handoff's own deadline in which a claim may still store its last results."""


class ClaimVerdict(StrEnum):
    """Outcome of an attempt to claim a handoff."""

    GRANTED = "granted"
    EXHAUSTED = "exhausted"
    """Granted for one purpose: to end it as failed; it was claimed too often."""
    PARKED = "parked"
    """The handoff waits for its provider, and its message came too early."""
    PAUSED = "paused"
    """The role is paused: the handoff waits until an operator resumes the role."""
    BUSY = "busy"
    """Another worker has it, and is alive."""
    DUPLICATE = "duplicate"
    """The handoff has ended, or no job needs it."""
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """The store has no such handoff with this content: forged, or deleted."""


@dataclass(slots=True)
class Claim:
    """A granted claim. Implements `shared.agent.checkpoint_store.CheckpointStore`. All methods
    raise `Interrupted` after the claim is lost.
    """

    connection: Connection
    job_id: JobId
    handoff_id: HandoffId
    fence: str
    lease_s: float
    keep_s: int
    verdict: ClaimVerdict
    pacing: RateLimiter
    look: str = ""
    """Evaluation that continues when the handoff has finished: see `ClaimRequest`."""
    checkpoints: tuple[Checkpoint, ...] = ()
    unreadable: str | None = None
    """Reason why the checkpoints of earlier claims cannot be read. The handoff can only be ended
    then.
    """
    reserved: bool = False
    """The first call's worst case was set aside with the claim."""
    drain: Drain = field(default_factory=Drain)
    deadline: float | None = None
    """The handoff's; Unix time in seconds, by Redis's clock."""
    ends_at: float | None = None
    """Unix time at which the work must end: the deadline, or earlier if the handoff's seconds run
    out. A claim does not wait for budget after this time.
    """
    started_at: float | None = None
    """Time of the handoff's first claim, or None if there was none."""
    is_first: bool = True
    """True if no earlier claim was lost. After a lost claim each checkpoint is stored at once, so
    that a crash does not cost one call each time.
    """
    keeps_turns: bool = False
    """True if the turns stay as long as the job, for readers of its trace."""
    _interrupted: Interrupted | None = None
    _beaten_at: float = field(default_factory=time.monotonic)
    held_at: float = field(default_factory=time.monotonic)
    """Send time of the latest message after which the store confirmed the claim (monotonic)."""
    _doing: str = "starting"
    _unsent_draft: str = ""
    _stored: int = field(init=False)
    """Checkpoints that are known to be in the store."""
    _unwritten: list[tuple[Checkpoint, bytes]] = field(default_factory=list)
    """Later checkpoints, in the store's form, that wait for the next message to the store."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._stored = len(self.checkpoints)

    def so_far(self) -> tuple[Checkpoint, ...]:
        return self.checkpoints

    def reserve(self, worst: WorstCase, expected: Expected | None = None) -> Wait | None:
        self._check_drain()
        if self.reserved:
            self.reserved = False
            self._check_lease()
            return None
        while (answer := self._turn(worst=worst, expected=expected))[0] == b"wait":
            self.beat(str(RateLimitWait("budget")))
            if self.ends_at is not None and self.connection.now() >= self.ends_at:
                raise LimitReached(
                    "deadline", "while waiting for budget that others have set aside"
                )
            time.sleep(RESERVE_RETRY_S)
            self._check_drain()
        if answer[0] == b"limit":
            level, limit = Level(answer[1].decode()), answer[2].decode()
            raise LimitReached(
                limit, f"{WHOSE[level]} does not allow another model call", level=level
            )
        if answer[0] == b"pace":
            return Wait(int(answer[1]) / 1000, answer[2].decode())
        self.pacing.record_admission(expected, answer[1:])
        self._check_lease()
        return None

    def heard(self, limits: RateLimits) -> None:
        self.pacing.heard(limits)

    def refused(
        self, why: str, retry_after_s: float | None, limits: RateLimits = NOTHING_SAID
    ) -> None:
        self.pacing.refused(why, retry_after_s, limits)

    def checkpoint(self, *checkpoints: Checkpoint, may_wait: bool = False) -> None:
        """Store the checkpoints before this returns, unless they may wait."""
        if may_wait and self.is_first:
            self._check_claim()
            for item in checkpoints:
                self._unwritten.append((item, pack(item.to_json())))
        else:
            self._turn(checkpoints, gets_further=not may_wait)

    def write_down(self) -> None:
        """Store the checkpoints that have waited, if there are any."""
        if self._unwritten:
            self._turn()

    def beat(self, doing: str, draft: str | None = None) -> None:
        self.check()
        now = time.monotonic()
        since = now - self._beaten_at
        changed, self._doing = is_news(doing, self._doing), doing
        self._unsent_draft = draft or self._unsent_draft
        if since >= (NEWS_EVERY_S if changed or draft else BEAT_EVERY_S):
            with suppress(
                StoreUnavailable
                # The call in flight is paid for: the next checkpoint waits for Redis, and the fence
                # decides
            ):
                self.renew()

    def check(self) -> None:
        """Check the claim without a round trip.

        Raises:
            Interrupted: the claim is known to be lost.
        """
        if self._interrupted is not None:
            raise self._interrupted
        if self.drain.is_over:
            raise Draining(f"{self.handoff_id} goes back to its queue")

    def renew(self) -> None:
        """Renew the lease, and check that the claim holds."""
        self.apply_answer(self.connection.script("renew", *self.renewal()))

    def renewal(self) -> tuple[list[str], list[Any]]:
        """Return the keys and arguments of `renew.lua`. The caller passes its answer to `apply_answer`."""
        self._beaten_at = time.monotonic()
        draft, self._unsent_draft = self._unsent_draft, ""
        shown = pack(draft) if draft else ""
        return self._keys, [
            self.handoff_id,
            self.fence,
            int(self.lease_s * 1000),
            self._doing,
            shown,
            *retention_arguments(self.keep_s, self.deadline),
        ]

    def end(
        self, result: HandoffResult, events: Sequence[Event], payloads: Sequence[str] = ()
    ) -> FinishRequest:
        """Return the request that ends this handoff, for `finish`.

        Args:
            payloads: digests that the events refer to, in addition to the result.
        """
        text, used = (
            result.to_json(),
            self._used([item for item, _ in self._unwritten]) or self._open_charge,
        )
        if self.keeps_turns:
            kept = [as_stored for _, as_stored in self._unwritten]
        else:
            kept = []
        silence_ms, is_urgent = int(CHORD_SILENCE_S * 1000), int(result.status in URGENT)
        order = [
            self.handoff_id,
            self.fence,
            self.keep_s * 1000,
            silence_ms,
            ref(text).digest,
            used,
            len(events),
            is_urgent,
        ]
        order += [
            int(self.keeps_turns),
            self.look,
            result.status.value,
            self.pacing.usage_of_lane(result.usage),
            len(kept),
        ]
        return FinishRequest(
            events,
            (
                *order,
                *(event.to_json() for event in events),
                *kept,
                *payload_arguments((text, *payloads)),
            ),
        )

    def finish(self, end: FinishRequest) -> FinishReply:
        """Store the end of the handoff. The first writer wins; a later one gets `Interrupted`."""
        return self.reply_to_finish(end, self._run_until_answered("finish", end.order))

    def reply_to_finish(self, end: FinishRequest, answer: Sequence[Any]) -> FinishReply:
        """Return the store's reply to this end, from the answer of either script."""
        if answer[0] != b"ok":
            self.apply_answer(answer[0])
        return end.finished(answer)

    def release(self) -> None:
        """Hand it back: it does not count as a claim."""
        with suppress(Interrupted):
            self.write_down()
        self.connection.script(
            "release", self._keys, [self.handoff_id, self.fence, self._open_charge]
        )

    def park(self, seconds: float, why: str) -> bool:
        """Release the handoff for some seconds; the release does not count as a claim.

        Returns False if this process no longer held the claim.
        """
        order = [self.handoff_id, self.fence, int(seconds * 1000), why, self.pacing.lane]
        return bool(self.connection.script("defer", self._keys, order))

    @property
    def _open_charge(self) -> str:
        """Return the charge for a reservation that is open when the claim ends.

        It is zero if the call that the claim came with was never made. The empty string stands for
        the worst case: a call was made and not settled.
        """
        if self.reserved:
            return json_argument(
                {"turns": 0, "input": 0, "output": 0, "usd": 0} | self.pacing.returned_share(None)
            )
        return ""

    @property
    def _keys(self) -> list[str]:
        return [keys.job(self.job_id), keys.DUE]

    def _turn(
        self,
        new: Sequence[Checkpoint] = (),
        *,
        worst: WorstCase | None = None,
        expected: Expected | None = None,
        gets_further: bool = True,
    ) -> list[Any]:
        """Run `turn.lua` and return its answer.

        Args:
            gets_further: True if new checkpoints are progress, so that earlier lost claims no
                longer count.
        """
        with self._lock:
            self._check_claim()
            written = [*self._unwritten, *((item, pack(item.to_json())) for item in new)]
            items = [item for item, _ in written]
            lease_ms, keep = (
                int(self.lease_s * 1000),
                retention_arguments(self.keep_s, self.deadline),
            )
            order = [self.handoff_id, self.fence, lease_ms, *keep, self._used(items)]
            order += [
                worst_case_argument(worst, self.pacing.admission_arguments(expected)),
                self._doing,
                self._stored,
            ]
            order += [
                sum(isinstance(item, ToolObserved) for item in items),
                int(gets_further),
                *(as_stored for _, as_stored in written),
            ]
            answer: list[Any] = self._run_until_answered("turn", order)
            if answer[0] not in (b"lost", b"dropped"):
                self._stored += len(items)
                self._unwritten.clear()
            self.apply_answer(answer[0])
            return answer

    def _used(self, checkpoints: Sequence[Checkpoint]) -> str:
        """Return the usage of the model call in these checkpoints, or '' if there is no call. There
        is at most one call, because each is settled before the next is made.
        """
        usage = None
        for item in checkpoints:
            if isinstance(item, ModelReplied | ModelCallFailed):
                usage = item.usage
                break
        if usage is None:
            return ""
        if usage.cost_microusd is None:
            usd = -1
        else:
            usd = usage.cost_microusd
        if usage.cut_calls:
            cut = {"cut": True}
        else:
            cut = {}
        used = {"turns": 1, "input": usage.input_tokens, "output": usage.output_tokens, "usd": usd}
        return json_argument(used | cut | self.pacing.returned_share(usage))

    def _run_until_answered(self, script: str, order: Sequence[Any]) -> Any:
        """Run the script until Redis answers. Paid work is worth the wait, and the fence decides
        whether the work is still wanted.

        Raises:
            StoreUnavailable: the handoff's time, or this process's time, is over.
        """
        until = time.monotonic() + OUTAGE_S

        def is_worth_it() -> bool:
            in_time = self.deadline is None or self.connection.now() < self.deadline + LATE_S
            return in_time and not self.drain.is_over and time.monotonic() < until

        def say() -> Any:
            self._beaten_at = time.monotonic()
            return self.connection.script(script, self._keys, list(order))

        return retry_until_answered(say, is_worth_it)

    def _check_drain(self) -> None:
        if self.drain.has_begun:
            raise Draining(f"{self.handoff_id} goes back to its queue")

    def _check_lease(self) -> None:
        """Renew the lease if this process was stopped since the last answer of the store. Another
        process may hold the claim by now, and both would make the same call.
        """
        if time.monotonic() - self.held_at > self.lease_s:
            self.apply_answer(b"lost")

    def _check_claim(self) -> None:
        """Check the claim as `check` does, but ignore a drain: paid work is stored in any case."""
        if self._interrupted is not None:
            raise self._interrupted

    def apply_answer(self, answer: bytes) -> None:
        """Read the store's answer about this claim.

        Raises:
            Interrupted: the claim no longer holds.
        """
        if answer == b"ok":
            self.held_at = self._beaten_at
        elif answer == b"lost":
            self._interrupted = LeaseLost(f"{self.handoff_id}: the lease is gone")
        elif answer == b"dropped":
            self._interrupted = Cancelled(f"{self.handoff_id}: its job does not want it any more")
        elif answer == b"paused":
            self._interrupted = Paused(f"{self.handoff_id}: its role is paused")
        elif answer == b"cancelled":
            self._interrupted = Cancelled(f"{self.job_id} was cancelled")
        self._check_claim()
