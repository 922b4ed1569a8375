"""Every Redis key of the store. `{job}` is a hash tag, so that all keys of one job have the same
slot.
"""

from __future__ import annotations

from handoff_queue.shared.types.ids import HandoffId, JobId

PREFIX = "handoff:"

DUE = f"{PREFIX}due"
"""zset: `job` or `job/handoff` -> Unix ms at which the sweeper must look at it."""
JOBS = f"{PREFIX}jobs"
"""zset: job -> Unix ms of its submission, with a fraction that orders the jobs of one
millisecond. `lua/commit.lua` writes it.
"""
SERVING = f"{PREFIX}serving"
"""zset: `queue/process` -> Unix ms until which that process says that it serves that queue. A
supervisor serves `supervisor`.
"""
QUEUES = f"{PREFIX}queues"
"""hash: queue to which handoffs are sent -> 0."""
WAITING = f"{PREFIX}waiting:"
"""+ queue, zset: `job/handoff` that was published and not yet claimed -> Unix ms of its
publication. For `supervisor` and `submissions`: `job` that was woken and not looked at since
-> Unix ms of its wake-up.
"""
OUT = f"{PREFIX}out:"
"""+ queue, zset: entries that a process will publish or has taken -> time (Unix ms).
`lua/enqueue.lua` and `lua/dequeue.lua` write it, too.
"""
FAIR = f"{PREFIX}fair:"
"""+ queue, zset: `job/handoff TAG` or `job TAG` of a message that waits in the queue -> its
place in the fair order. `:messages`, hash: the same -> the message. `:next`, zset: a tenant ->
the place of its next message. `lua/enqueue.lua` and `lua/dequeue.lua` write them.
"""
SILENCE = f"{PREFIX}silence"
"""hash: the last lease message to Redis, and the last period in which no process could reach Redis
(Unix ms). `parts/outage_grace.lua` writes it.
"""
PAUSED = f"{PREFIX}paused"
"""hash: role -> since when and why, until it is resumed."""
HELD = f"{PREFIX}held:"
"""+ role, zset: `job/handoff` that waits for the role to be resumed -> Unix ms at which it was
held.
"""
ORPHANS = f"{PREFIX}orphans"
"""string: the random word of the supervisor that repairs unserved queues."""
CAPS = f"{PREFIX}caps"
"""hash: day_tokens, day_usd, tenant_day_tokens, tenant_day_usd: the most in a day, if there is
such a cap; since: when the supervisor that started last said so (Unix ms).
"""
DEAD = f"{PREFIX}dead"
"""list: messages that did not parse, newest first."""
SCORES = f"{PREFIX}scores"
"""list: how quotes turned out, the newest first. `commit.lua` writes it."""
NOTHING = f"{PREFIX}nothing"
"""A key that never exists: zero bytes are written to it to see whether Redis takes writes."""


def job(job_id: JobId) -> str:
    """hash: status, version, limits, spent and reserved."""
    return f"{PREFIX}{{{job_id}}}"


def log(job_id: JobId) -> str:
    """stream: the journal; entry n has the id `n-0`."""
    return f"{job(job_id)}:log"


def handoff(job_id: JobId, handoff_id: HandoffId) -> str:
    """hash: state, fence, lease, claims, reservation, result."""
    return f"{job(job_id)}:h:{handoff_id}"


def turns(job_id: JobId, handoff_id: HandoffId) -> str:
    """list: checkpoints of a handoff that has not ended."""
    return f"{job(job_id)}:t:{handoff_id}"


def blobs(job_id: JobId) -> str:
    """hash: digest -> compressed payload; `draft:HANDOFF` -> text that is being written."""
    return f"{job(job_id)}:blob"


def draft(handoff_id: HandoffId) -> str:
    """Return the field of `blobs` with a handoff's draft; `renew.lua`, `finish.lua` and
    `commit.lua` write and remove it.
    """
    return f"draft:{handoff_id}"


def fetched(job_id: JobId) -> str:
    """hash: URL -> the page that was fetched for this job, as a Document."""
    return f"{job(job_id)}:fetched"


def document(digest: str) -> str:
    """string: a document's extracted text, compressed; shared by all jobs."""
    return f"{PREFIX}doc:{digest}"


def pace(lane: str) -> str:
    """hash: capacity of a rate-limit bucket; `:line` and `:alive`, zsets: waiting claims.
    `parts/rate_limiter.lua` writes them.
    """
    return f"{PREFIX}pace:{lane}"


LANES = f"{PREFIX}lanes"
"""zset: lane -> Unix ms until which its hash is kept. `parts/rate_limiter.lua` writes it."""


def day(number: int | str, tenant: str | None = None) -> str:
    """hash: usage of a day, counted from 1970 in UTC, of all jobs or of one tenant's jobs.
    `parts/budgets.lua` keeps it.
    """
    return f"{PREFIX}day:{number}{f':{tenant}' if tenant else ''}"


def worker(worker_id: str) -> str:
    """string: announcement of one worker."""
    return f"{PREFIX}worker:{worker_id}"


def supervisor(worker_id: str) -> str:
    """string: the node name and the broker of one supervisor."""
    return f"{PREFIX}supervisor:{worker_id}"


def history(role: str) -> str:
    """list: cost and duration of a specialist's or role's handoffs, the newest first. `finish.lua`
    writes it.
    """
    return f"{PREFIX}history:{role}"
