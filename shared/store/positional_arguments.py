"""The first arguments of the Lua scripts with more than six arguments by position.

Each script gives its arguments the names of these fields, in the same order. A caller passes them
by name, and appends the lists that follow them. Fields with the same name mean the same:

- `handoff`, `fence`: the id of the handoff, and the word that proves its claim.
- `lease_ms`: milliseconds that the claim is valid without a renewal.
- `keep_ms`: milliseconds that Redis keeps the job after its deadline.
"""

from __future__ import annotations

from typing import NamedTuple


class ClaimArguments(NamedTuple):
    """Arguments of `claim` in `parts/claims.lua`."""

    handoff: str
    digest: str
    """Digest of the message."""
    worker: str
    lease_ms: int
    most_claims: int
    """Most claims without progress. The next claim may only end the handoff as failed."""
    keep_ms: int
    deadline: int
    """Unix time in ms; 0: none."""
    worst_json: str
    """Upper bound of the first call as JSON; empty: none."""
    fence: str
    max_microusd: int | str
    """Most micro-dollars of the handoff by the file of this process; empty: no limit."""
    run_name: str
    """Name of the run that equal handoffs share; empty: none."""


class FinishArguments(NamedTuple):
    """Arguments of `finish` in `parts/results.lua`. The events, the checkpoints, and pairs of
    digest and compressed payload follow.
    """

    handoff: str
    fence: str
    keep_ms: int
    silence_ms: int
    """Time until the sweeper wakes a job whose chord body did not come."""
    digest: str
    """Digest of the result."""
    used_json: str
    """Usage of the last call as JSON; empty: none."""
    events: int
    """Number of events."""
    urgent: int
    """1 or 0."""
    keeps_turns: int
    """1 or 0."""
    evaluation: str
    """Evaluation that continues after this end; empty: none."""
    status: str
    """Status of the result."""
    bucket_use: str
    """Tokens that count for the bucket of the rate limits, as JSON."""
    checkpoints: int
    """Number of checkpoints to keep."""
    takes_messages: int
    """1 or 0."""
    sharing: str
    """See `HandoffClaim._build_sharing_argument`."""


class TurnArguments(NamedTuple):
    """Arguments of `turn.lua`. The new checkpoints follow."""

    handoff: str
    fence: str
    lease_ms: int
    keep_ms: int
    deadline: int
    """Unix time in ms; 0: none."""
    used_json: str
    """Usage of the last call as JSON; empty: none."""
    worst_json: str
    """Upper bound of the next call as JSON; empty: none."""
    doing: str
    """Activity of the agent in words, for `watch`."""
    known: int
    """Number of checkpoints that the claim knows to be stored."""
    tool_calls: int
    """Number of new checkpoints that are a tool's answer."""
    gets_further: int
    """1 if the new checkpoints are progress after lost claims, or 0."""
    batch_id: str
    """Id of the batch of the reserved call, and name of the call there; empty: unchanged."""


class TakeMessagesArguments(NamedTuple):
    """Arguments of `take_messages.lua`. The events follow, and then as many checkpoints."""

    handoff: str
    fence: str
    lease_ms: int
    keep_ms: int
    deadline: int
    """Unix time in ms; 0: none."""
    known: int
    """Number of checkpoints that the claim knows to be stored."""
    knows: int
    """Number of messages that the handoff knows after this call."""
    events: int
    """Number of events."""


class BeginEvaluationArguments(NamedTuple):
    """Arguments of `lease_job_evaluation.lua` for the beginning of an evaluation. Other actions
    have only the first two.
    """

    name: str
    """Name of the evaluation."""
    action: str
    version: int
    """The events after this version are read."""
    most_events: int
    """Most events that the script returns."""
    most_evaluations: int
    """Evaluations that never ended, in a row, after which the script refuses another one."""
    frozen_ms: int
    """Age in ms after which the process of an evaluation counts as frozen."""
    together_ms: int
    """Time in ms within which evaluations count as one."""
    lease_ms: int
    wants_ends: int
    """1 to return the ends of handoffs, which a check of signatures needs, or 0."""
    most_bytes: int
    """Most bytes of the events."""


class MemoryNoteArguments(NamedTuple):
    """Arguments of `store_memory_note.lua`."""

    path: str
    old: bytes
    """Empty: there must be no note."""
    new: bytes
    """Empty: the note is removed."""
    now: int
    """Unix time in ms."""
    until_ms: int
    """Unix time at which the note expires."""
    most: int
    """Most notes of the tenant."""
    moved_from: str
    """Path of a note that the new value replaces; empty: none."""
    moved: bytes
    """Value of that note."""
    job: str
    """The job whose agent writes the note; empty: a person writes it."""


class JobFilterArguments(NamedTuple):
    """Arguments of the scripts with `parts/job_filter.lua`. The statuses follow; none: any."""

    place: str
    """Score to start from: `+inf`, or `(` and a score to start below."""
    lowest: str
    """Lowest score."""
    most_read: int
    """Most jobs to read."""
    most: int
    """Most jobs to return."""
    tenant: str
    """`=` and the name, or empty for any. The same form has each condition without its own text."""
    mode: str
    priority: str
    text: str
    """Text in the title or the id, in small letters; empty: any."""
    min_usd: int | str
    """Least micro-dollars; empty: any."""
    assigned: str
    failed: str
