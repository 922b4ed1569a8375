"""The standing of a handoff: the state in its hash in the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim_history import PastClaim, past_claims_of
from handoff_queue.shared.store.handoff_roles import roles_of
from handoff_queue.shared.store.redis.connection import Connection, translated_errors
from handoff_queue.shared.store.script_arguments import (
    figure_in,
    name_in,
)
from handoff_queue.shared.types.budget_measures import SPENT, SpentAmounts, spent_fields
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import LATEST_TIME_S


@dataclass(frozen=True, slots=True)
class HandoffStanding(SpentAmounts):
    """State of one handoff in the store. Times are Unix seconds."""

    state: str
    """issued, running, done or dropped."""
    lease_until: float | None = None
    lost: bool = False
    """True if its message or its claim was lost, and the sweeper must publish it again."""
    held: bool = False
    """True while its role is paused, its message is a dead letter, or it is deferred."""
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


def hashes_of(
    connection: Connection, job_id: JobId, handoff_ids: Sequence[HandoffId]
) -> dict[HandoffId, dict[bytes, bytes]]:
    """Return the hashes of handoffs, in two or three round trips; unknown handoffs are left out.
    The amounts of a handoff that a child job does are those of the child job.
    """
    roles = roles_of(connection, job_id, handoff_ids)
    with translated_errors():
        pipe = connection.redis.pipeline(transaction=False)
        for handoff_id, role in roles.items():
            pipe.hgetall(keys.handoff(job_id, role, handoff_id))
        answers = pipe.execute()
    hashes: dict[HandoffId, dict[bytes, bytes]] = {}
    for handoff_id, fields in zip(roles, answers, strict=True):
        if fields:
            hashes[handoff_id] = fields
    _add_amounts_of_children(connection, hashes.values())
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
    with translated_errors():
        pipe = connection.redis.pipeline(transaction=False)
        for fields in done_by_children:
            pipe.hmget(keys.progress(JobId(name_in(fields[b"child"]))), SPENT)
        answers = pipe.execute()
    for fields, amounts in zip(done_by_children, answers, strict=True):
        for name, amount in zip(SPENT, amounts, strict=True):
            if amount is not None:
                before = figure_in(fields.get(f"before_{name}".encode())) or 0
                fields[name.encode()] = str((figure_in(amount) or 0) - before).encode()


def handoff_standing(fields: Mapping[bytes, bytes]) -> HandoffStanding:
    """Return the standing of a handoff from the fields of its hash. A field that cannot be read
    counts as missing: a worker may have written it.
    """

    def seconds(name: bytes) -> float | None:
        ms = figure_in(fields.get(name))
        is_time = ms is not None and 0 <= ms / 1000 <= LATEST_TIME_S
        return ms / 1000 if ms is not None and is_time else None

    def number(name: bytes) -> int:
        return figure_in(fields.get(name)) or 0

    return HandoffStanding(
        state=name_in(fields.get(b"state", b"issued")),
        lease_until=seconds(b"lease"),
        lost=b"lost" in fields,
        held=b"held" in fields,
        deferred_until=seconds(b"deferred"),
        asked_at=seconds(b"asks_since"),
        queue=name_in(fields.get(b"queue", b"")),
        worker=name_in(fields.get(b"worker", b"")),
        claims=number(b"claims"),
        lost_claims=number(b"lost_claims"),
        past_claims=past_claims_of(fields),
        claimed_at=seconds(b"claimed_at"),
        tool_calls=number(b"tools"),
        **spent_fields(number, is_priced=b"unpriced" not in fields),
        doing=name_in(fields.get(b"doing", b"")),
        issued_at=seconds(b"issued_at"),
        started_at=seconds(b"started_at"),
        finished_at=seconds(b"finished_at"),
        heartbeat_at=seconds(b"heartbeat"),
    )
