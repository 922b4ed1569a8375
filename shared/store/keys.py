"""All Redis keys of the store. The job id in a key is a hash tag (`{ID}`). A comment gives the
type of the key, and `member -> score` or `field -> value`.
"""

from __future__ import annotations

from handoff_queue.shared.types import names
from handoff_queue.shared.types.ids import HandoffId, JobId

PREFIX = "handoff:"

DUE = f"{PREFIX}due"
"""zset: `job`, or `job/handoff` of a supervisor's own role -> Unix ms at which the sweeper must
evaluate it. No worker writes it.
"""
JOBS = f"{PREFIX}jobs"
"""zset: job -> Unix ms of its submission, with a fraction that orders the jobs of one
millisecond. `lua/commit.lua` writes it.
"""
SERVING = f"{PREFIX}serving"
"""zset: `queue/process` -> Unix ms at which the announcement expires that the process serves
the queue. A supervisor serves `supervisor`. Every worker may change it, so it is for lists only.
"""
UNPLANNED = f"{PREFIX}unplanned"
"""zset: names of specialists, with spaces between; empty: any -> Unix ms at which the newest
announcement expires. A job that waits for a worker of these specialists announces itself. With
`:NAMES`, zset: job -> Unix ms at which its announcement expires.
"""
QUEUES = f"{PREFIX}queues"
"""hash: queue to which a handoff was ever sent -> 0."""
WAITING = f"{PREFIX}waiting:"
"""+ queue, zset: `job/handoff` that was published and not yet claimed -> Unix ms of its
publication. For `supervisor` and `submissions`: `job` that was woken and not evaluated since
-> Unix ms of its wake-up. With `/TENANT`: the tenant's part of the set of a specialist's queue.
"""
OUT = f"{PREFIX}out:"
"""+ queue, zset: members of the queue's waiting set that a process will publish or has taken
-> time (Unix ms).
"""
FAIR = f"{PREFIX}fair:"
"""+ queue, zset: `job/handoff TAG` or `job TAG` of a message in the queue -> its place in the
fair order; TAG is the delivery tag. With `:messages`, hash: the same -> the message. With
`:next`, zset: tenant -> the place of its next message. `lua/parts/fair_order.lua` writes them.
"""
OUTAGE = f"{PREFIX}outage"
"""hash: time of the last call of a script that checks leases, and the last period in which no
process could reach Redis (Unix ms). `parts/outage_grace.lua` writes it.
"""
PAUSED = f"{PREFIX}paused"
"""hash: paused agent -> its `Pause` as JSON."""
PAUSED_HANDOFFS = f"{PREFIX}paused_handoffs:"
"""+ agent, zset: `job/handoff` that waits for the agent to be unpaused -> Unix ms at which it
was paused.
"""
ORPHANS = f"{PREFIX}orphans"
"""string: the random word of the supervisor that repairs unserved queues."""
CAPS = f"{PREFIX}caps"
"""hash: the caps of a day that are set (day_tokens, day_usd, tenant_day_tokens, tenant_day_usd,
tenant_open_jobs). Money is in micro-dollars. `since` is the time in Unix ms at which the caps were
set.
"""
DEAD = f"{PREFIX}dead"
"""list: dead letters, the newest first."""
SCORES = f"{PREFIX}scores"
"""list: accuracy of quotes, the newest first. `commit.lua` writes it."""
TOKENS = f"{PREFIX}tokens"
"""hash: id of a token of the HTTP API -> the token and the SHA-256 of its secret, as JSON."""
ID_SECRET = f"{PREFIX}id_secret"
"""string: the secret of the installation, from which the ids of jobs with an idempotency key
follow. Only clients and supervisors read it.
"""
AUDIT = f"{PREFIX}audit"
"""stream: actions of users on the fleet, and deletions of jobs, each an `AuditEntry` as JSON.
It has about 100,000 entries at most.
"""
AUDIT_CALLERS = f"{PREFIX}audit_callers"
"""set: the callers of the HTTP API and the console that have an audit stream."""
AUDIT_REFUSALS = f"{PREFIX}audit_refusals"
"""stream: the messages that workers have refused, wrong passwords, and the numbers of lost
refusals, each an `AuditEntry` as JSON. It has about 10,000 entries at most. A worker can cause any
number of refusals, so they remove no action of a user from `AUDIT`.
"""
REFUSED_COMMANDS = f"{PREFIX}refused_commands"
"""hash: `copied` -> time and number of the last entry of Redis's log that is in the audit. Other
fields have the last minute in which entries of a Redis user were copied, and the number of these
entries. `copy_refused_commands.lua` writes it.
"""
REFUSALS = f"{PREFIX}refusals"
"""list: messages that workers refused, each an `AuditEntry` as JSON. A supervisor moves them into
the audit stream, to which no worker may write.
"""
METRICS = f"{PREFIX}metrics"
"""hash: a metric of `handoff serve` with the values of its labels -> its count.
`lua/parts/metrics.lua` writes it. With `:KIND` (tenant, agent or model), set: the
values of that label with separate time series.
"""
EXPORTED = f"{PREFIX}metrics_exported"
"""string: a server has sent the metrics to OpenTelemetry in this interval."""
SCHEDULES = f"{PREFIX}schedules"
"""hash: `name/tenant` of a schedule -> its `Schedule` as JSON. `lua/replace_schedule.lua` writes
it.
"""
SCHEDULE_SLOTS = f"{PREFIX}schedule_slots"
"""zset: `name/tenant` of a schedule -> Unix ms at which a supervisor must check it. A paused
schedule is not a member.
"""
EVALUATIONS = f"{PREFIX}evaluations"
"""list: ended evaluations, each an `EvaluationRun` as JSON, the newest first."""
BATCHES = f"{PREFIX}batches"
"""zset: batch of the provider whose handoff has ended, with its job, handoff, call and model ->
Unix ms. This is the time of the note, or of the last question about the batch. The commit of a drop
and the sweep write it. A supervisor cancels the batch, and settles the reservation of its call.
"""
NOTHING = f"{PREFIX}nothing"
"""A key that never exists, because no user may write to it. Scripts read the state of an unknown
handoff there.
"""
WRITE_CHECK = f"{PREFIX}write_check"
"""A key that no process and no script reads. `Health.find_refusal` writes zero bytes to it to see
whether Redis accepts writes.
"""


def audit_of(caller: str) -> str:
    """stream: as `AUDIT`, the actions of one caller of the HTTP API or the console, about 10,000 at
    most. So no caller removes the actions of others.
    """
    return f"{PREFIX}audit_of:{caller}"


def due(agent: str) -> str:
    """zset: `job/handoff` of a specialist's handoff, or `job` of its result -> Unix ms at which
    the sweeper must evaluate it. Workers of the agent write it. The set of a supervisor's own role
    is `DUE`.
    """
    if agent in (*names.ROLES, names.CHILD_JOB_SPECIALIST):
        return DUE
    return f"{DUE}:{agent}"


def requests(caller: str, window: int) -> str:
    """string: the HTTP requests of a caller of `handoff serve` in one minute, or the wrong tokens
    of an address. `window` counts the minutes of Unix time.
    """
    return f"{PREFIX}requests:{caller}:{window}"


def audit_refusals_of(user: str) -> str:
    """stream: as `AUDIT_REFUSALS`, the refused commands of one Redis user, about 10,000 at most. So
    a flood of one user does not remove the refusals of others.
    """
    return f"{AUDIT_REFUSALS}:{user}"


def schedule_job(schedule_id: str) -> str:
    """string: the job that a schedule starts, with the texts of its documents, compressed."""
    return f"{PREFIX}schedule:{schedule_id}:job"


def schedule_month(schedule_id: str, month: str) -> str:
    """string: micro-dollars that the jobs of a schedule have spent in one month.
    `parts/budgets.lua` writes it.
    """
    return f"{PREFIX}schedule:{schedule_id}:{month}"


def verified_month(schedule_id: str, month: str) -> str:
    """string: micro-dollars of the results of a schedule's jobs in one month. Only supervisors
    write it, in `parts/verified_usage.lua`.
    """
    return f"{schedule_month(schedule_id, month)}:verified"


def job(job_id: JobId) -> str:
    """hash: status, tenant, limits, options, messages of users. Workers only read it."""
    return f"{PREFIX}{{{job_id}}}"


def title(job_id: JobId) -> str:
    """string: the first characters of the request. No worker may read it, because a worker may read
    the hash of every job whose id it knows.
    """
    return f"{job(job_id)}:title"


def progress(job_id: JobId) -> str:
    """hash: spent and reserved amounts, numbers of handoffs, failed
    agents, open questions. Workers write it, too.
    """
    return f"{job(job_id)}:progress"


def log(job_id: JobId) -> str:
    """list: the journal; entry n is event n: its time (Unix ms), a space, and the event as JSON.
    Workers may only append to it. An entry with more than 65,536 bytes counts only if the field
    `long_events` of the job has its number.
    """
    return f"{job(job_id)}:log"


def newest_event(job_id: JobId) -> str:
    """stream: the id of its only entry is the version of the newest event (`n-0`). Readers wait for
    this entry. Workers write it, too.
    """
    return f"{job(job_id)}:newest"


def agents(job_id: JobId) -> str:
    """hash: handoff -> its agent, which is a part of its keys. Workers only read it."""
    return f"{job(job_id)}:agents"


def handoff(job_id: JobId, agent: str, handoff_id: HandoffId) -> str:
    """hash: state, SHA-1 of the fence, lease, claims, reservation, result, answers about calls.
    Only clients, supervisors and workers of the agent use it.
    """
    return f"{job(job_id)}:h:{agent}:{handoff_id}"


def turns(job_id: JobId, agent: str, handoff_id: HandoffId) -> str:
    """list: checkpoints of a handoff that has not ended. Only supervisors and workers of the agent
    write it.
    """
    return f"{job(job_id)}:t:{agent}:{handoff_id}"


def blobs(job_id: JobId) -> str:
    """hash: digest -> compressed payload."""
    return f"{job(job_id)}:blob"


def draft(job_id: JobId, agent: str, handoff_id: HandoffId) -> str:
    """string: the answer that a running handoff is writing, compressed. Only supervisors and
    workers of the agent write it, in `renew_lease.lua`; `parts/results.lua` and `commit.lua` remove
    it.
    """
    return f"{job(job_id)}:draft:{agent}:{handoff_id}"


def refused_events(job_id: JobId) -> str:
    """hash: `recorded_to` -> version up to which the refused events of the journal are recorded;
    `runs` -> versions of long runs of refused events. An example is `3-60002`. No worker may use
    it.
    """
    return f"{job(job_id)}:refused"


def fetched_pages(job_id: JobId) -> str:
    """list: the pages that were fetched for this job, each as a `Document` in JSON. The newest is
    the last. The first entry is empty. Workers may only append to it.
    """
    return f"{job(job_id)}:fetched"


def document(digest: str) -> str:
    """string: a document's extracted text, compressed. All jobs share it under its digest. For a
    tenant with a key the text is encrypted, and its name is `s` and a keyed digest.
    """
    return f"{PREFIX}doc:{digest}"


def bucket(bucket_name: str) -> str:
    """hash: limits and state of a rate-limit bucket. `parts/rate_limiter.lua` writes it."""
    return f"{PREFIX}bucket:{bucket_name}"


def bucket_line(bucket_name: str) -> str:
    """zset: SHA-1 of `job/handoff` of a call that waits for a rate-limit bucket -> Unix ms at which
    it began to wait. `parts/rate_limiter.lua` writes it.
    """
    return f"{PREFIX}bucket_line:{bucket_name}"


def bucket_alive(bucket_name: str) -> str:
    """zset: SHA-1 of `job/handoff` of a call that waits for a rate-limit bucket -> Unix ms until
    which its place in the line holds. `parts/rate_limiter.lua` writes it.
    """
    return f"{PREFIX}bucket_alive:{bucket_name}"


def shared_run(agent: str, run_name: str) -> str:
    """zset: `job/handoff` of a handoff -> 0 if it runs for all equal handoffs of its tenant. Else
    the value is the Unix ms at which it began to wait for that run. `parts/shared_runs.lua` writes
    it.
    """
    return f"{PREFIX}shared_run:{agent}:{run_name}"


BUCKETS = f"{PREFIX}buckets"
"""zset: rate-limit bucket -> Unix ms at which its hash expires. `parts/rate_limiter.lua`
writes it.
"""


def day(number: int | str, tenant: str | None = None) -> str:
    """hash: usage of all jobs, or of one tenant's jobs, on one day, which is a number of days
    since 1970 in UTC. `parts/budgets.lua` writes it.
    """
    return f"{PREFIX}day:{number}{_build_suffix(tenant)}"


def verified_usage(number: int | str, tenant: str | None = None) -> str:
    """hash: sums of the results of one day, of all jobs or of one tenant's jobs: at least these
    amounts are used. Only supervisors write it, in `parts/verified_usage.lua`. The deletion of a
    tenant removes it.
    """
    return f"{PREFIX}verified_usage:{number}{_build_suffix(tenant)}"


def _build_suffix(tenant: str | None) -> str:
    if tenant is None:
        return ""
    return f":{tenant}"


def open_jobs(tenant: str) -> str:
    """zset: job of a tenant that has not ended -> Unix ms at which a script last checked the entry.
    `parts/open_jobs.lua` writes it.
    """
    return f"{PREFIX}open:{tenant}"


def deletion(tenant: str) -> str:
    """set: names of the documents of the jobs that a deletion of the tenant has removed."""
    return f"{PREFIX}deletion:{tenant}"


USED_DOCUMENTS = f"{PREFIX}used_documents"
"""zset: key of a document -> Unix ms at which a job last needed the document. `extend_ttl.lua`
writes it while a deletion of a tenant looks for unused documents.
"""


def notes_name(tenant: str) -> str:
    """string: the random name of the notes of the tenant's memory. No worker may use it: a worker
    learns the name from a handoff. So it reaches the notes of no other tenant.
    """
    return f"{PREFIX}notes_name:{tenant}"


def notes(name: str) -> str:
    """hash: path of a note of a tenant's memory -> the `Note` as JSON, compressed and, for a
    tenant with a key, encrypted. `lua/store_memory_note.lua` writes it.
    """
    return f"{PREFIX}notes:{name}"


def note_jobs(name: str) -> str:
    """hash: path of a note -> the job whose agent wrote it. No worker may read it: a worker must
    not learn ids of jobs from notes. `lua/store_memory_note.lua` writes it.
    """
    return f"{PREFIX}notes_jobs:{name}"


def note_expiry(name: str) -> str:
    """zset: path of a note -> Unix ms of its expiry. `lua/store_memory_note.lua` writes it."""
    return f"{PREFIX}notes_expiry:{name}"


def spending(number: int | str) -> str:
    """hash: an amount of the model calls of one day, with the tenant, the agent, the model and the
    mode -> its sum. `number` counts the days since 1970 in UTC. `parts/budgets.lua` writes it.
    """
    return f"{PREFIX}spending:{number}"


def worker(agent: str, worker_id: str) -> str:
    """string: `Announcement` of one worker as JSON. The agent is its first specialist.
    Workers of other specialists may neither write nor remove it.
    """
    return f"{PREFIX}worker:{agent}/{worker_id}"


def announced_workers(agent: str) -> str:
    """zset: worker with an announcement at `handoff:worker:AGENT/WORKER` -> Unix ms at which the
    announcement expires.
    """
    return f"{PREFIX}announced:{agent}"


def supervisor(worker_id: str) -> str:
    """string: `Node` of one supervisor as JSON."""
    return f"{PREFIX}supervisor:{worker_id}"


def history(agent: str) -> str:
    """list: cost and duration of a specialist's or role's handoffs, the newest first.
    `parts/results.lua` writes it.
    """
    return f"{PREFIX}history:{agent}"


def prompt_prefix(agent: str, digest: str) -> str:
    """string: `sent` for some seconds after a process has sent a prefix of model calls, `cached`
    while the provider keeps the prefix.
    """
    return f"{PREFIX}prefix:{agent}:{digest}"
