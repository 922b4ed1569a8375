"""State of a handoff, from its hash in the store, and its past claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection, ScriptCall
from handoff_queue.shared.store.script_arguments import (
    MAX_TEXT_BYTES,
    iterate_rows,
    parse_figure,
    parse_name,
    parse_time,
)
from handoff_queue.shared.types.budget_measures import (
    SPENT_FIELDS,
    SpentAmounts,
    build_spent_fields,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST

FIELDS = [
    *SPENT_FIELDS,
    *(f"before_{name}" for name in SPENT_FIELDS),
    *("agent", "asks_since", "child", "claimed_at", "claims", "deferred", "digest", "doing"),
    *("finished_at", "group", "heartbeat", "issued_at", "lease", "lost", "lost_claims"),
    *("past_claims", "queue", "result", "started_at", "state", "status", "tool_calls", "waits"),
    "worker",
]
"""Fields of a handoff that its readers use. A worker may write other fields, of any number."""


class ClaimEnd(StrEnum):
    """Reason why a claim ended without a result."""

    LOST = "lost"
    """The process died."""
    RELEASED = "released"
    """The claim was handed back, because its process shuts down."""
    DEFERRED = "deferred"
    """The handoff was deferred until the rate limits of its provider allow a call."""
    PAUSED = "paused"
    """The agent was paused."""
    ASKED = "asked"
    """The handoff waits for a person's approval of a tool call."""


@dataclass(frozen=True, slots=True)
class PastClaim:
    """A claim of a handoff. Times are Unix seconds."""

    worker: str
    began_at: float
    ended_at: float | None
    """End of the claim, or None while it holds. A lost claim ends at its last heartbeat."""
    left: str = ""
    """How the claim ended without a result, such as `lost` or `released`; otherwise empty."""

    def compute_duration_s(self, now: float) -> float:
        """Return the duration in seconds, up to `now` for an open claim."""
        end = now if self.ended_at is None else self.ended_at
        return max(0.0, end - self.began_at)


def parse_past_claims(fields: Mapping[bytes, bytes]) -> tuple[PastClaim, ...]:
    """Return the claims that ended without a result, in order, from a handoff's hash. The
    store keeps the newest 20. A line that a worker wrote in another form is left out.
    """
    past_claims: list[PastClaim] = []
    for line in parse_name(fields.get(b"past_claims", b"")).splitlines():
        began_text, _, rest = line.partition(" ")
        ended_text, _, rest = rest.partition(" ")
        left, _, worker = rest.partition(" ")
        began_at, ended_at = parse_time(began_text.encode()), parse_time(ended_text.encode())
        if began_at is not None and ended_at is not None:
            past_claims.append(PastClaim(worker, began_at, ended_at, left))
    return tuple(past_claims)


@dataclass(frozen=True, slots=True)
class HandoffInfo(SpentAmounts):
    """State of one handoff in the store. Times are Unix seconds."""

    state: str
    """issued, running, done or dropped."""
    lease_until: float | None = None
    lost: bool = False
    """True if its message or its claim was lost, and the sweeper must publish it again."""
    waits: bool = False
    """True while it has no message: it is paused or deferred, or its message is a dead letter."""
    deferred_until: float | None = None
    """Time until which it waits for its provider, with the reason in `doing`; None if it does
    not.
    """
    queue: str = ""
    """Queue of its message; empty while the supervisor runs a role's handoff in its own process."""
    worker: str = ""
    claims: int = 0
    """Claims since the handoff last made progress."""
    lost_claims: int = 0
    """Claims of the handoff that were lost with their process."""
    past_claims: tuple[PastClaim, ...] = ()
    """Claims that ended without a result, in order."""
    claimed_at: float | None = None
    """Beginning of the claim that holds or that ended with a result; None if there is none."""
    turns: int = 0
    tool_calls: int = 0
    """Tool calls that were answered."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microusd: int | None = 0
    """None: the price of a call is unknown."""
    cut_calls: int = 0
    cut_tokens: int = 0
    cut_microusd: int = 0
    """The upper-bound part of these figures, as in `Usage`."""
    asked_at: float | None = None
    """Time since which it waits for a person's approval of a tool call, with the tool in `doing`;
    None if it does not.
    """
    doing: str = ""
    """Its current activity, or the reason of its deferral."""
    issued_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    heartbeat_at: float | None = None


def read_agents(
    connection: Connection, job_id: JobId, handoff_ids: Sequence[HandoffId]
) -> dict[HandoffId, str]:
    """Return the agent of each handoff; unknown handoffs are left out."""
    if not handoff_ids:
        return {}
    with connection.translate_errors():
        values = connection.redis.hmget(keys.agents(job_id), handoff_ids)
    agents: dict[HandoffId, str] = {}
    for handoff_id, agent in zip(handoff_ids, values, strict=True):
        if agent is not None:
            agents[handoff_id] = agent.decode()
    return agents


def read_hashes(
    connection: Connection, job_id: JobId, handoff_ids: Sequence[HandoffId]
) -> dict[HandoffId, dict[bytes, bytes]]:
    """Return `FIELDS` of handoffs, in two or three round trips; unknown handoffs are left out.
    The amounts of a handoff that a child job does are those of the child job.
    """
    if not handoff_ids:
        return {}
    agents = read_agents(connection, job_id, handoff_ids)
    calls: list[ScriptCall] = []
    for handoff_id, agent in agents.items():
        calls.append(([keys.handoff(job_id, agent, handoff_id)], [MAX_TEXT_BYTES, *FIELDS]))
    answers = connection.run_script_for_all("short_fields", calls)
    hashes: dict[HandoffId, dict[bytes, bytes]] = {}
    done_by_children: list[dict[bytes, bytes]] = []
    for (handoff_id, agent), answer in zip(agents.items(), answers, strict=True):
        fields = dict(iterate_rows(answer, 2))
        if fields:
            hashes[handoff_id] = fields
        # workers write the hashes of other agents, and could name any key as the child job
        if fields and agent == CHILD_JOB_SPECIALIST:
            done_by_children.append(fields)
    _add_amounts_of_children(connection, done_by_children)
    return hashes


def _add_amounts_of_children(connection: Connection, hashes: Iterable[dict[bytes, bytes]]) -> None:
    """Add the spent amounts of child jobs to the hashes of the handoffs that they do. A handoff
    whose child job has gone on for a later handoff has its amounts already.
    """
    done_by_children: list[dict[bytes, bytes]] = []
    for fields in hashes:
        if b"child" in fields and b"turns" not in fields:
            done_by_children.append(fields)
    if not done_by_children:
        return
    calls: list[ScriptCall] = []
    for fields in done_by_children:
        key = keys.progress(JobId(parse_name(fields[b"child"])))
        calls.append(([key], [MAX_TEXT_BYTES, *SPENT_FIELDS]))
    answers = connection.run_script_for_all("short_fields", calls)
    for fields, answer in zip(done_by_children, answers, strict=True):
        amounts = dict(iterate_rows(answer, 2))
        for name in SPENT_FIELDS:
            amount = amounts.get(name.encode())
            if amount is not None:
                before = parse_figure(fields.get(f"before_{name}".encode())) or 0
                fields[name.encode()] = str((parse_figure(amount) or 0) - before).encode()


def parse_handoff_info(fields: Mapping[bytes, bytes]) -> HandoffInfo:
    """Return the information in the fields of a handoff's hash. A field that cannot be read counts
    as missing: a worker may have written it.
    """

    def read_seconds(name: bytes) -> float | None:
        return parse_time(fields.get(name))

    def read_figure(name: bytes) -> int:
        return parse_figure(fields.get(name)) or 0

    return HandoffInfo(
        state=parse_name(fields.get(b"state", b"issued")),
        lease_until=read_seconds(b"lease"),
        lost=b"lost" in fields,
        waits=b"waits" in fields,
        deferred_until=read_seconds(b"deferred"),
        asked_at=read_seconds(b"asks_since"),
        queue=parse_name(fields.get(b"queue", b"")),
        worker=parse_name(fields.get(b"worker", b"")),
        claims=read_figure(b"claims"),
        lost_claims=read_figure(b"lost_claims"),
        past_claims=parse_past_claims(fields),
        claimed_at=read_seconds(b"claimed_at"),
        tool_calls=read_figure(b"tool_calls"),
        **build_spent_fields(read_figure, is_priced=b"unpriced" not in fields),
        doing=parse_name(fields.get(b"doing", b"")),
        issued_at=read_seconds(b"issued_at"),
        started_at=read_seconds(b"started_at"),
        finished_at=read_seconds(b"finished_at"),
        heartbeat_at=read_seconds(b"heartbeat"),
    )
