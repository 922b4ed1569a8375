"""Granting of claims: for a handoff whose message arrived, or together with the commit that
issues the handoff.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from typing import Any

from pydantic import ValidationError

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import (
    ClaimVerdict,
    EndedRun,
    FinishReply,
    FinishRequest,
    HandoffClaim,
)
from handoff_queue.shared.store.commit import Commit, build_records
from handoff_queue.shared.store.encryption_at_rest import build_turns_place
from handoff_queue.shared.store.graceful_shutdown import Drain
from handoff_queue.shared.store.handoff_info import read_agents
from handoff_queue.shared.store.journal import Journal
from handoff_queue.shared.store.payloads import unpack
from handoff_queue.shared.store.positional_arguments import ClaimArguments
from handoff_queue.shared.store.rate_limiter import RateLimiter
from handoff_queue.shared.store.redis.connection import (
    Connection,
    ScriptCall,
    retry_until_answered,
)
from handoff_queue.shared.store.script_arguments import (
    build_retention_arguments,
    build_worst_case_argument,
)
from handoff_queue.shared.trust.signatures import NO_TRUST, Trust
from handoff_queue.shared.types.checkpoints import Checkpoint, WorstCase, checkpoint_adapter
from handoff_queue.shared.types.errors import UnreadablePayload
from handoff_queue.shared.types.events import RecordedEvent
from handoff_queue.shared.types.ids import Digest, HandoffId, JobId
from handoff_queue.shared.types.message import describe_problems
from handoff_queue.shared.types.rate_limits import ExpectedUsage

MAX_CLAIMS = 3
"""Claims of a handoff without progress. A handoff that was claimed this often probably freezes
its process, so the next claim ends it as failed.
"""
MAX_FAILED_EVALUATIONS = MAX_CLAIMS
"""Evaluations of a job that may fail to end before the job fails (`job_evaluation_lease.py`)."""
MAX_TURNS_BYTES = 64_000_000
"""Bytes of the checkpoints of a handoff that are read, as in `parts/claims.lua`. A request to the
provider has at most 32 MB. A worker of the same specialist that was taken over may write more.
"""
FENCE_BYTES = 16
"""Random bytes of a fence."""
CLAIM_PATIENCE_S = 3.0
"""Seconds for which a claim is repeated while Redis does not answer. Most restarts take less,
and a repeated claim counts once.
"""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Request of one process to run one handoff."""

    job_id: JobId
    handoff_id: HandoffId
    digest: Digest
    """Digest of its message. The store refuses a message that is not byte for byte the issued
    one.
    """
    worker: str
    first: WorstCase | None = None
    """Worst case of the first model call, which is reserved in the same round trip if the
    budget allows it. None: nothing is reserved.
    """
    expected: ExpectedUsage | None = None
    """Expected use of the provider's rate limits by the first call, or None if the provider
    has no known limits.
    """
    deadline: float | None = None
    """Deadline of the handoff, in Unix seconds."""
    max_seconds: int | None = None
    """Seconds that the handoff may take, counted from its first claim."""
    max_microusd: int | None = None
    """Micro-dollars that the handoff may spend by the specialist file of this process. The store
    keeps the lower one of this limit and of the limit that the handoff has.
    """
    run_name: str = ""
    """Name of the run that equal handoffs share (`shared.runtime.shared_run`); empty: none."""
    evaluation_id: str = ""
    """Evaluation id of the supervisor that runs the handoff in its own process and decides the
    next step. The end of the handoff resumes that evaluation; the next commit ends it. Empty:
    none.
    """
    fence: str = field(default_factory=partial(token_hex, FENCE_BYTES))
    """Random word that only this claim knows. A script refuses a message without it, and
    applies a message that is sent twice once. It is not a counter: a restored Redis could
    issue an old number again. It is a secret: Redis holds only its SHA-1.
    """


@dataclass(frozen=True, slots=True)
class FinishedWithCommit:
    """A handoff that has ended, and the commit in the same script."""

    finished: FinishReply
    recorded: tuple[RecordedEvent, ...] = ()
    """Events of the commit; empty if the commit was a conflict."""
    claim: HandoffClaim | None = None
    """Claim on the handoff that the commit issued, if the caller asked for one."""


class Claims:
    """Grants claims."""

    def __init__(
        self,
        connection: Connection,
        journal: Journal,
        settings: Settings,
        drain: Drain,
        trust: Trust = NO_TRUST,
    ) -> None:
        self._connection = connection
        self._trust = trust
        self._journal = journal
        self._settings = settings
        self._drain = drain

    def claim(self, request: ClaimRequest) -> HandoffClaim:
        """Try to claim the handoff. The verdict of the returned claim says whether it was
        granted.

        Raises:
            StoreUnavailable: Redis did not answer within `CLAIM_PATIENCE_S`.
        """
        asked_at = time.monotonic()
        until = asked_at + CLAIM_PATIENCE_S
        script_keys, arguments = [keys.job(request.job_id)], list(self._build_arguments(request))
        answer = retry_until_answered(
            lambda: self._connection.run_script("claim", script_keys, arguments),
            lambda: time.monotonic() < until,
        )
        return self._build_claim(request, answer, asked_at)

    def commit_and_claim(
        self, commit: Commit, request: ClaimRequest
    ) -> tuple[list[RecordedEvent], HandoffClaim]:
        """Commit a decision and claim a handoff that it issues, in one script.

        Raises:
            VersionConflict: see `Journal.commit`.
        """
        asked_at = time.monotonic()
        answer = self._journal.run_commit(commit, claim=self._build_arguments(request))
        return build_records(commit, answer), self._build_claim(request, answer[3], asked_at)

    def end_and_commit(
        self, claim: HandoffClaim, end: FinishRequest, commit: Commit, request: ClaimRequest | None
    ) -> FinishedWithCommit:
        """End a handoff, commit the decision on its result, and claim a handoff that the
        decision issues, in one script. If the commit is a conflict, the handoff ends, and no
        error is raised.

        Args:
            claim: claim on the handoff that ends.
            end: from `HandoffClaim.build_finish_request`.
            commit: its `expected` is the version before the end of the handoff.
            request: the request for the next handoff, or None.

        Raises:
            Interrupted: the claim is lost; nothing was written.
            MessagesWaiting: the agent must first take messages of users; nothing was written.
        """
        asked_at = time.monotonic()
        claim_arguments = self._build_arguments(request) if request else ()
        answer = self._journal.run_commit(commit, claim=claim_arguments, end=end.arguments)
        is_committed, _, _, claim_answer, finish_answer = answer
        finished = claim.parse_finish_reply(end, finish_answer)
        if not is_committed:
            return FinishedWithCommit(finished)
        next_claim = None
        if request:
            next_claim = self._build_claim(request, claim_answer, asked_at)
        return FinishedWithCommit(finished, tuple(build_records(commit, answer)), next_claim)

    def open_claim_of_child(
        self, job_id: JobId, handoff_id: HandoffId, child: JobId
    ) -> HandoffClaim:
        """Return the claim of a child job on its parent's handoff, so that the child can end
        that handoff with a result. `Journal.commit` has made the claim in the store.
        """
        request = ClaimRequest(job_id, handoff_id, digest="", worker=child, fence=child)
        return self._build_claim(request, (b"granted", 0, ()), time.monotonic())

    def read_checkpoints(
        self, job_id: JobId, handoff_ids: Sequence[HandoffId]
    ) -> dict[HandoffId, tuple[Checkpoint, ...]]:
        """Return the stored checkpoints of the given handoffs, in two round trips. Handoffs
        without checkpoints, or with checkpoints that this version cannot read, are left out.
        """
        agents = read_agents(self._connection, job_id, handoff_ids)
        calls: list[ScriptCall] = []
        for handoff_id, agent in agents.items():
            calls.append(([keys.turns(job_id, agent, handoff_id)], []))
        answers = self._connection.run_script_for_all("read_checkpoints", calls)
        turns: dict[HandoffId, tuple[Checkpoint, ...]] = {}
        for handoff_id, answer in zip(agents, answers, strict=True):
            checkpoints, _ = self._read(job_id, handoff_id, answer)
            if checkpoints:
                turns[handoff_id] = checkpoints
        return turns

    def _read(
        self, job_id: JobId, handoff_id: HandoffId, stored_checkpoints: Sequence[bytes]
    ) -> tuple[tuple[Checkpoint, ...], str | None]:
        """Return the checkpoints and None, or no checkpoints and the reason why they cannot be
        read. The error is returned and not raised, because the process must end its claim in any
        case.
        """
        checkpoints: list[Checkpoint] = []
        place, room = build_turns_place(handoff_id), MAX_TURNS_BYTES
        try:
            for stored_form in stored_checkpoints:
                if not stored_form:
                    return (), f"they are longer than {MAX_TURNS_BYTES:,} bytes"
                packed = self._connection.sealing.open(job_id, place, stored_form)
                text = unpack(packed, room)
                room -= len(text)
                checkpoints.append(checkpoint_adapter.validate_json(text))
        except ValidationError as error:
            return (), describe_problems(error)
        except UnreadablePayload as error:
            return (), str(error)
        except ValueError as error:
            return (), type(error).__name__
        return tuple(checkpoints), None

    def _build_arguments(self, request: ClaimRequest) -> ClaimArguments:
        call = self._get_limiter(request).build_admission_arguments(request.expected)
        keep_ms, deadline = build_retention_arguments(self._settings.retention_s, request.deadline)
        return ClaimArguments(
            handoff=request.handoff_id,
            digest=request.digest,
            worker=request.worker,
            lease_ms=int(self._settings.lease_s * 1000),
            most_claims=MAX_CLAIMS,
            keep_ms=keep_ms,
            deadline=deadline,
            worst_json=build_worst_case_argument(request.first, call, takes_messages=True),
            fence=request.fence,
            max_microusd=request.max_microusd or "",
            run_name=request.run_name,
        )

    def _get_limiter(self, request: ClaimRequest) -> RateLimiter:
        bucket = ""
        if request.expected:
            bucket = request.expected.bucket
        return RateLimiter(
            self._connection,
            f"{request.job_id}/{request.handoff_id}",
            self._settings.rate_window_s,
            bucket,
        )

    def _build_claim(
        self, request: ClaimRequest, answer: Sequence[Any], asked_at: float
    ) -> HandoffClaim:
        """Return the claim for the script's answer.

        Args:
            asked_at: monotonic time at which the request was sent.
        """
        verdict, is_reserved, stored_checkpoints, *details = answer
        if details:
            admission, began_ms, earlier_claims, waited_ms, copied_run = details
        else:
            admission, began_ms, earlier_claims, waited_ms, copied_run = (), 0, 0, 0, ()
        limiter = self._get_limiter(request)
        if is_reserved:
            limiter.record_admission(request.expected, admission)
        checkpoints: tuple[Checkpoint, ...] = ()
        unreadable = None
        if verdict in (b"granted", b"exhausted"):
            checkpoints, unreadable = self._read(
                request.job_id, request.handoff_id, stored_checkpoints
            )
        started_at = int(began_ms) / 1000 if began_ms else None
        counted_from = (int(began_ms) + int(waited_ms)) / 1000
        seconds_end_at = _add_seconds(counted_from, request.max_seconds)
        return HandoffClaim(
            connection=self._connection,
            job_id=request.job_id,
            handoff_id=request.handoff_id,
            fence=request.fence,
            trust=self._trust,
            evaluation_id=request.evaluation_id,
            lease_s=self._settings.lease_s,
            keep_s=self._settings.retention_s,
            verdict=ClaimVerdict(verdict.decode()),
            limiter=limiter,
            checkpoints=checkpoints,
            unreadable=unreadable,
            reserved=bool(is_reserved),
            confirmed_at=asked_at,
            drain=self._drain,
            deadline=request.deadline,
            started_at=started_at,
            ends_at=_choose_earlier(request.deadline, seconds_end_at),
            keeps_turns=self._settings.keep_turns,
            is_first=not earlier_claims,
            run_name=request.run_name,
            copied_run=EndedRun.parse(copied_run) if copied_run else None,
        )


def _add_seconds(time_s: float, seconds: int | None) -> float | None:
    """Return the time after some seconds; None without seconds."""
    if seconds is None:
        return None
    return time_s + seconds


def _choose_earlier(first: float | None, second: float | None) -> float | None:
    """Return the earlier of two times. None is later than any time."""
    if first is None:
        return second
    if second is None:
        return first
    return min(first, second)
