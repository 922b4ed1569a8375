"""Commands that a user of Redis may not run, by user."""

from __future__ import annotations

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST

OTHER_JOB = "j-0123456789ab"
JOB = f"handoff:{{{OTHER_JOB}}}"
DIGEST = "0" * 64
Command = tuple[str, ...]
ADMINISTRATION: tuple[Command, ...] = (
    ("ACL", "LIST"),
    ("ACL", "SETUSER", "worker-analyst", "+@all"),
    ("BGSAVE",),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("CLIENT", "LIST"),
    ("CLIENT", "PAUSE", "1"),
    ("CLIENT", "TRACKING", "ON"),
    ("CLIENT", "UNBLOCK", "1"),
    ("CONFIG", "GET", "requirepass"),
    ("CONFIG", "SET", "maxmemory", "1"),
    ("EVAL", "return 1", "0"),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("FUNCTION", "LOAD", "#!lua name=a\nredis.register_function('a', function() end)"),
    ("MIGRATE", "127.0.0.1", "1", "handoff:jobs", "0", "1"),
    ("MODULE", "LIST"),
    ("MONITOR",),
    ("REPLICAOF", "127.0.0.1", "1"),
    ("SCRIPT", "FLUSH"),
    ("SELECT", "1"),
    ("SHUTDOWN", "NOSAVE"),
    ("SLOWLOG", "GET"),
    ("SWAPDB", "0", "1"),
)
"""Commands on the server."""
SEARCHES: tuple[Command, ...] = (
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("RANDOMKEY",),
    ("DBSIZE",),
    ("DUMP", "handoff:jobs"),
    ("COPY", JOB, "handoff:copy"),
    ("RENAME", JOB, "handoff:{j-ffffffffffff}"),
    ("OBJECT", "ENCODING", JOB),
    ("SORT", "handoff:jobs"),
)
"""Commands that find keys or move them."""
OTHERS_WORK: tuple[Command, ...] = (
    ("ZRANGE", keys.shared_run("writer", DIGEST), "0", "-1"),
    ("ZADD", keys.shared_run("writer", DIGEST), "0", f"{OTHER_JOB}/a.1"),
    ("DEL", keys.shared_run("writer", DIGEST)),
    ("ZRANGE", keys.JOBS, "0", "-1"),
    ("ZREM", keys.JOBS, OTHER_JOB),
    ("ZRANGE", keys.DUE, "0", "-1"),
    ("ZADD", keys.DUE, "9999999999999", OTHER_JOB),
    ("ZREM", keys.DUE, OTHER_JOB),
    ("ZADD", keys.due("writer"), "9999999999999", f"{OTHER_JOB}/write.1"),
    ("ZREM", keys.due("writer"), f"{OTHER_JOB}/write.1"),
    ("ZRANGE", keys.due("writer"), "0", "-1"),
    ("ZRANGE", keys.due("analyst"), "0", "-1"),
    ("LRANGE", f"{JOB}:log", "0", "-1"),
    ("LINDEX", f"{JOB}:log", "0"),
    ("LPOS", f"{JOB}:log", "x"),
    ("LTRIM", f"{JOB}:log", "1", "0"),
    ("LSET", f"{JOB}:log", "0", "x"),
    ("LREM", f"{JOB}:log", "0", "x"),
    ("LPUSH", f"{JOB}:log", "x"),
    ("LINSERT", f"{JOB}:log", "BEFORE", "x", "y"),
    ("LPOP", f"{JOB}:log"),
    ("RPOP", f"{JOB}:log"),
    ("BRPOP", f"{JOB}:log", "1"),
    ("LMPOP", "1", f"{JOB}:log", "LEFT"),
    ("LMOVE", f"{JOB}:log", "researcher", "LEFT", "LEFT"),
    ("RPOPLPUSH", f"{JOB}:log", "researcher"),
    ("SORT", f"{JOB}:log", "ALPHA"),
    ("HSET", f"{JOB}:blob", DIGEST, "x"),
    ("HDEL", f"{JOB}:blob", DIGEST),
    ("HINCRBY", f"{JOB}:blob", DIGEST, "1"),
    ("HGETALL", f"{JOB}:blob"),
    ("HKEYS", f"{JOB}:blob"),
    ("HVALS", f"{JOB}:blob"),
    ("HSCAN", f"{JOB}:blob", "0"),
    ("HRANDFIELD", f"{JOB}:blob"),
    ("HGETALL", JOB),
    ("GET", f"{JOB}:title"),
    ("SET", f"{JOB}:title", "x"),
    ("DEL", JOB),
    ("UNLINK", f"{JOB}:log"),
    ("DEL", f"{JOB}:h:analyst:a.1"),
    ("DEL", f"{JOB}:blob"),
    ("DEL", keys.DUE),
    ("DEL", keys.SERVING),
    ("DEL", keys.DEAD),
    ("DEL", keys.document(DIGEST)),
    ("SET", keys.document(DIGEST), "x"),
    ("SETNX", keys.document(DIGEST), "x"),
    ("PEXPIRE", keys.document(DIGEST), "1"),
    ("GETEX", keys.document(DIGEST), "PX", "1"),
    ("ZADD", keys.USED_DOCUMENTS, "1", keys.document(DIGEST)),
    ("LTRIM", f"{JOB}:fetched", "1", "0"),
    ("LSET", f"{JOB}:fetched", "0", "x"),
    ("PEXPIRE", f"{JOB}:fetched", "1"),
    ("DEL", keys.day(1)),
)
"""Commands that read or remove the work of others."""
WRITERS_HANDOFF = keys.handoff(JobId(OTHER_JOB), "writer", HandoffId("write.1"))
WRITERS_TURNS = keys.turns(JobId(OTHER_JOB), "writer", HandoffId("write.1"))
WRITERS_DRAFT = keys.draft(JobId(OTHER_JOB), "writer", HandoffId("write.1"))
ANALYSTS_DRAFT = keys.draft(JobId(OTHER_JOB), "analyst", HandoffId("a.1"))
PLANNERS_HANDOFF = keys.handoff(JobId(OTHER_JOB), "planner", HandoffId("planner.1"))
TEAMS_HANDOFF = keys.handoff(JobId(OTHER_JOB), CHILD_JOB_SPECIALIST, HandoffId("team.1"))
HANDOFFS_OF_OTHER_ROLES: tuple[Command, ...] = (
    ("HGET", TEAMS_HANDOFF, "digest"),
    ("HMGET", TEAMS_HANDOFF, "result"),
    ("HMGET", WRITERS_HANDOFF, "state"),
    ("HSET", WRITERS_HANDOFF, "state", "issued"),
    ("HDEL", WRITERS_HANDOFF, "fence"),
    ("HINCRBY", WRITERS_HANDOFF, "max_usd", "9"),
    ("PEXPIRE", WRITERS_HANDOFF, "1"),
    ("LRANGE", WRITERS_TURNS, "0", "-1"),
    ("RPUSH", WRITERS_TURNS, "{}"),
    ("DEL", WRITERS_TURNS),
    ("HSET", PLANNERS_HANDOFF, "state", "issued"),
    ("RPUSH", f"{JOB}:t:planner:planner.1", "{}"),
    ("GET", WRITERS_DRAFT),
    ("SET", WRITERS_DRAFT, "Pay to account 4711."),
    ("DEL", WRITERS_DRAFT),
    ("GET", ANALYSTS_DRAFT),
    ("GET", keys.draft(JobId(OTHER_JOB), "synthesizer", HandoffId("synthesizer.1"))),
    ("HSET", f"{JOB}:agents", "write.1", "analyst"),
    ("HDEL", f"{JOB}:agents", "write.1"),
    ("HGETALL", f"{JOB}:agents"),
)
"""Commands on handoffs of roles that a worker does not serve, and on drafts of other workers."""
LONGER_NAME = "analyst-de"
"""A role whose name begins with the name of the attacker's role."""
HANDOFFS_OF_A_LONGER_NAME: tuple[Command, ...] = (
    ("HSET", keys.handoff(JobId(OTHER_JOB), LONGER_NAME, HandoffId("a.1")), "state", "issued"),
    ("RPUSH", keys.turns(JobId(OTHER_JOB), LONGER_NAME, HandoffId("a.1")), "{}"),
    ("SET", keys.draft(JobId(OTHER_JOB), LONGER_NAME, HandoffId("a.1")), "Pay to account 4711."),
    ("ZADD", keys.due(LONGER_NAME), "9999999999999", f"{OTHER_JOB}/a.1"),
    ("ZADD", keys.shared_run(LONGER_NAME, DIGEST), "0", f"{OTHER_JOB}/a.1"),
    ("SET", keys.prompt_prefix(LONGER_NAME, DIGEST), "1"),
    ("LPUSH", keys.history(LONGER_NAME), "{}"),
    ("ZADD", f"{keys.WAITING}{LONGER_NAME}", "0", f"{OTHER_JOB}/a.1"),
    ("LPUSH", LONGER_NAME, "{}"),
)
JOBS: tuple[Command, ...] = (
    ("HSET", JOB, "tenant", "evil"),
    ("HSET", JOB, "max_usd", "999999999"),
    ("HSET", JOB, "status", "ok"),
    ("HSET", JOB, "cancelled", "1"),
    ("HSET", JOB, "message:1", "{}"),
    ("HSETNX", JOB, "month", "handoff:schedule:a:2026-11"),
    ("HINCRBY", JOB, "max_turns", "9"),
    ("HINCRBYFLOAT", JOB, "max_usd", "9"),
    ("HINCRBY", JOB, "verified_usd", "-9"),
    ("HDEL", JOB, "max_usd"),
    ("HDEL", JOB, "cancelled"),
    ("HSET", keys.handoff(JobId(OTHER_JOB), "supervisor", HandoffId("team.1")), "state", "done"),
)
"""Commands that change the tenant, the limits or the status of a job."""
TIMES_TO_LIVE: tuple[Command, ...] = (
    ("PEXPIRE", JOB, "1"),
    ("EXPIRE", JOB, "1"),
    ("PEXPIREAT", JOB, "1"),
    ("PERSIST", JOB),
    ("PEXPIRE", f"{JOB}:progress", "1"),
    ("PEXPIRE", f"{JOB}:log", "1"),
    ("PEXPIRE", f"{JOB}:blob", "1"),
    ("PEXPIRE", f"{JOB}:agents", "1"),
    ("PEXPIRE", f"{JOB}:h:analyst:a.1", "1"),
    ("DEL", f"{JOB}:progress"),
    ("LTRIM", keys.DEAD, "1", "0"),
    ("PEXPIRE", keys.DEAD, "1"),
)
"""Commands that remove the data of a job, or dead letters."""
FLEET: tuple[Command, ...] = (
    ("HSET", keys.CAPS, "day_usd", "999999999"),
    ("DEL", keys.CAPS),
    ("HSET", keys.PAUSED, "writer", "{}"),
    ("HGETALL", keys.TOKENS),
    ("HSET", keys.TOKENS, "a", "{}"),
    ("SET", keys.requests("a", 1), "0"),
    ("XRANGE", keys.AUDIT, "-", "+"),
    ("DEL", keys.AUDIT),
    ("HGETALL", keys.SCHEDULES),
    ("HSET", keys.SCHEDULES, "a/default", "{}"),
    ("GET", keys.schedule_job("a")),
    ("SET", keys.supervisor("h:1"), "{}"),
    ("GET", keys.worker("h:1")),
    ("LRANGE", keys.DEAD, "0", "-1"),
    ("LRANGE", keys.SCORES, "0", "-1"),
    ("LPUSH", keys.history("writer"), "{}"),
    ("ZADD", keys.open_jobs("acme"), "1", "a"),
    ("HINCRBY", keys.verified_usage(1), "verified_usd", "-9"),
    ("HINCRBY", keys.verified_usage(1, "acme"), "verified_usd", "-9"),
    ("PEXPIRE", keys.verified_usage(1), "1"),
    ("DEL", keys.verified_usage(1, "acme")),
    ("INCRBY", keys.verified_month("a", "2026-11"), "-9"),
    ("SET", keys.ORPHANS, "a"),
)
"""Commands on the state of the fleet."""
QUEUES: tuple[Command, ...] = (
    ("LPUSH", "writer", "{}"),
    ("LRANGE", "writer", "0", "-1"),
    ("RPOP", "writer"),
    ("BRPOP", "writer", "1"),
    ("HSET", f"{keys.FAIR}writer:messages", "a", "{}"),
    ("LPUSH", "submissions", "{}"),
    ("LPUSH", "roles", "{}"),
    ("RPOP", "roles"),
    ("LRANGE", "supervisor", "0", "-1"),
    ("DEL", "supervisor"),
    ("RPOP", "supervisor"),
    ("PUBLISH", "/0.another", "{}"),
    ("PSUBSCRIBE", "*"),
    ("SUBSCRIBE", "__keyevent@0__:set"),
)
"""Commands on queues and channels of others."""
ATTACKS: dict[str, tuple[Command, ...]] = {
    "worker-analyst": (
        *ADMINISTRATION,
        *SEARCHES,
        *OTHERS_WORK,
        *HANDOFFS_OF_OTHER_ROLES,
        *HANDOFFS_OF_A_LONGER_NAME,
        *JOBS,
        *TIMES_TO_LIVE,
        *FLEET,
        *QUEUES,
        ("PSUBSCRIBE", "/0.handoff.events/*"),
    ),
    "client": (
        *ADMINISTRATION,
        *SEARCHES[:4],
        ("HGETALL", keys.TOKENS),
        ("HSET", keys.TOKENS, "a", "{}"),
        ("XRANGE", keys.AUDIT, "-", "+"),
        ("DEL", keys.AUDIT),
        ("HSET", keys.CAPS, "day_usd", "9"),
        ("HSET", keys.PAUSED, "writer", "{}"),
        ("SET", keys.worker("h:1"), "{}"),
        ("SET", keys.supervisor("h:1"), "{}"),
        ("ZADD", keys.SERVING, "1", "writer/h:1"),
        ("LPUSH", "writer", "{}"),
        ("RPOP", "writer"),
        ("LPUSH", "roles", "{}"),
        ("DEL", keys.DEAD),
    ),
    "console": (
        *ADMINISTRATION,
        *SEARCHES[:4],
        ("HSET", keys.CAPS, "day_usd", "9"),
        ("SET", keys.worker("h:1"), "{}"),
        ("SET", keys.supervisor("h:1"), "{}"),
        ("LPUSH", "writer", "{}"),
        ("RPOP", "writer"),
        ("LPUSH", "roles", "{}"),
    ),
    "supervisor": (
        *ADMINISTRATION,
        *SEARCHES[:4],
        ("HGETALL", keys.TOKENS),
        ("HSET", keys.TOKENS, "a", "{}"),
        ("SET", keys.requests("a", 1), "0"),
        ("XRANGE", keys.AUDIT, "-", "+"),
        ("DEL", keys.worker("h:1"), "{}"),
    ),
    "flower": (
        *ADMINISTRATION,
        *SEARCHES,
        *OTHERS_WORK,
        *FLEET,
        *QUEUES,
        ("HMGET", f"{JOB}:blob", DIGEST),
        ("HMGET", JOB, "status"),
        ("LPUSH", "analyst", "{}"),
        ("LPUSH", "supervisor", "{}"),
        ("GET", keys.document(DIGEST)),
    ),
    "observer": (
        *ADMINISTRATION,
        *SEARCHES[:7],
        ("HMGET", f"{JOB}:blob", DIGEST),
        ("HGETALL", f"{JOB}:blob"),
        ("LRANGE", WRITERS_TURNS, "0", "-1"),
        ("GET", WRITERS_DRAFT),
        ("GET", keys.document(DIGEST)),
        ("HSET", JOB, "status", "ok"),
        ("RPUSH", f"{JOB}:log", "1 {}"),
        ("ZADD", keys.DUE, "0", OTHER_JOB),
        ("HGETALL", keys.TOKENS),
        ("XRANGE", keys.AUDIT, "-", "+"),
        ("LRANGE", keys.DEAD, "0", "-1"),
        ("LPUSH", "submissions", "{}"),
        ("HSET", keys.CAPS, "day_usd", "9"),
    ),
}
ADMINISTRATION_ON_REDIS_6 = [command for command in ADMINISTRATION if command[0] != "FUNCTION"]
"""Commands that no user may run on Redis 6.2 either."""
WITHOUT_KEY_PERMISSIONS: tuple[Command, ...] = (
    *SEARCHES[:3],
    ("HGETALL", keys.TOKENS),
    ("XRANGE", keys.AUDIT, "-", "+"),
    ("LPUSH", "writer", "{}"),
    ("LPUSH", "submissions", "{}"),
)
"""Further commands that a worker may not run there."""


def name_of(case: str | Command) -> str:
    """Return the name of a case: the user or the command."""
    if isinstance(case, str):
        return case
    return " ".join(case)[:60]
