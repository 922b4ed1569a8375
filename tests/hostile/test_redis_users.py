"""Each kind of process has its own Redis user. With the password of one process, an attacker does
what the processes of this kind may do, and no more.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import kombu.transport.redis
import pytest
import redis
from pydantic import SecretStr
from redis.exceptions import NoPermissionError

from docs.generator.redis_keys import constant_rows, function_rows
from handoff_queue.shared.local.child_processes import ChildSpec, Processes
from handoff_queue.shared.local.install_redis import OLDEST_NAME
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.local.redis_users import RedisUsers, new_users
from handoff_queue.shared.settings.ports import free_port
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict
from handoff_queue.shared.store.daily_budget import DailyCaps
from handoff_queue.shared.store.fair_queue import ENQUEUE, FOR, enqueue_arguments
from handoff_queue.shared.store.fleet_load import FleetLoad
from handoff_queue.shared.store.journal import Commit, VerifiedAmounts
from handoff_queue.shared.store.redis.acl import CONNECTION, DATA, Database
from handoff_queue.shared.store.redis.script import source_of
from handoff_queue.shared.store.spending_history import DAY_S
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.store.tool_call_approvals import answer_call
from handoff_queue.shared.types.access import AuditAction
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.events import (
    AnsweredCall,
    Approved,
    CancelRequested,
    JobStatus,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.memory_notes import Note
from handoff_queue.shared.types.tool_call_approval import CallAnswer
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.administration import delete_job
from handoff_queue.supervisor.client.fleet_statistics import stats_now
from handoff_queue.supervisor.client.request import Request
from tests.doubles.call_questions import ask
from tests.doubles.jobs import (
    a_job,
    claim,
    finish,
    granted_claim,
    issue,
    model_reply,
    reservation_answer,
    version_of,
)
from tests.waiting import wait_until

WORKERS = {"worker-analyst": ["analyst"], "worker-writer": ["writer"]}
OTHER_JOB = "j-0123456789ab"
JOB = f"handoff:{{{OTHER_JOB}}}"
DIGEST = "0" * 64

EXAMPLES = {"{JOB}": f"{{{OTHER_JOB}}}", "MONTH": "2026-11", "ROLE": "writer", "QUEUE": "writer"}
"""Values for the placeholders of the documented keys."""

LUA = Path(keys.__file__).parent / "lua"

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
    ("XRANGE", f"{JOB}:log", "-", "+"),
    ("XREAD", "STREAMS", f"{JOB}:log", "0"),
    ("XTRIM", f"{JOB}:log", "MAXLEN", "0"),
    ("HGETALL", f"{JOB}:blob"),
    ("HKEYS", f"{JOB}:blob"),
    ("HVALS", f"{JOB}:blob"),
    ("HSCAN", f"{JOB}:blob", "0"),
    ("HRANDFIELD", f"{JOB}:blob"),
    ("HGETALL", JOB),
    ("DEL", JOB),
    ("UNLINK", f"{JOB}:log"),
    ("DEL", f"{JOB}:h:analyst:a.1"),
    ("DEL", f"{JOB}:blob"),
    ("DEL", keys.DUE),
    ("DEL", keys.SERVING),
    ("DEL", keys.DEAD),
    ("DEL", keys.document(DIGEST)),
    ("DEL", keys.day(1)),
)
"""Commands that read or remove the work of others."""
WRITERS_HANDOFF = keys.handoff(JobId(OTHER_JOB), "writer", HandoffId("write.1"))
WRITERS_TURNS = keys.turns(JobId(OTHER_JOB), "writer", HandoffId("write.1"))
PLANNERS_HANDOFF = keys.handoff(JobId(OTHER_JOB), "planner", HandoffId("planner.1"))
HANDOFFS_OF_OTHER_ROLES: tuple[Command, ...] = (
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
    ("HSET", f"{JOB}:roles", "write.1", "analyst"),
    ("HDEL", f"{JOB}:roles", "write.1"),
    ("HGETALL", f"{JOB}:roles"),
)
"""Commands on handoffs of roles that a worker does not serve."""
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
    ("PEXPIRE", f"{JOB}:roles", "1"),
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
        ("GET", keys.document(DIGEST)),
        ("HSET", JOB, "status", "ok"),
        ("XADD", f"{JOB}:log", "*", "e", "{}"),
        ("ZADD", keys.DUE, "0", OTHER_JOB),
        ("HGETALL", keys.TOKENS),
        ("XRANGE", keys.AUDIT, "-", "+"),
        ("LRANGE", keys.DEAD, "0", "-1"),
        ("LPUSH", "submissions", "{}"),
        ("HSET", keys.CAPS, "day_usd", "9"),
    ),
}
CASES = [(user, command) for user, commands in ATTACKS.items() for command in commands]
WITHOUT_KEY_PERMISSIONS: tuple[Command, ...] = (
    *[command for command in ADMINISTRATION if command[0] != "FUNCTION"],
    *SEARCHES[:3],
    ("HGETALL", keys.TOKENS),
    ("XRANGE", keys.AUDIT, "-", "+"),
    ("LPUSH", "writer", "{}"),
    ("LPUSH", "submissions", "{}"),
)
"""Commands that a worker may not run on Redis 6.2 either."""


def name_of(case: str | Command) -> str:
    """Return the name of a case: the user or the command."""
    if isinstance(case, str):
        return case
    return " ".join(case)[:60]


@dataclass(frozen=True)
class Server:
    """A Redis with a user for each kind of process."""

    address: str
    users: RedisUsers

    def connected_as(self, user: str) -> redis.Redis:
        return redis.Redis.from_url(self.users.url(user, self.address))

    def observed_fleet(self) -> FleetLoad:
        """Return the load of the fleet that an observer sees."""
        with self.store("observer") as store:
            return store.fleet_load.now()

    @contextmanager
    def store(self, user: str) -> Iterator[Store]:
        """Return a store that one user has opened."""
        url = self.users.url(user, self.address)
        store = open_store(url, Settings(redis_url=SecretStr(url)))
        yield store
        store.connection.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    users = new_users(WORKERS, Database())
    folder = tmp_path_factory.mktemp("redis")
    with Processes(folder) as processes:
        private = PrivateRedis(processes, folder, append_only=False, users=users.lines())
        server = Server(private.start(), users)
        with server.store("supervisor") as store:
            store.connection.load_scripts()
        yield server


@pytest.mark.parametrize(("user", "command"), CASES, ids=name_of)
def test_a_user_may_not_run_commands_of_others(server: Server, user: str, command: Command) -> None:
    with server.connected_as(user) as connection, pytest.raises(NoPermissionError):
        connection.execute_command(*command)


@pytest.mark.parametrize(
    "command", [*OTHERS_WORK, *HANDOFFS_OF_OTHER_ROLES, *JOBS, *TIMES_TO_LIVE, *FLEET], ids=name_of
)
def test_a_script_of_a_worker_may_do_no_more_than_the_worker(
    server: Server, command: Command
) -> None:
    name, *arguments = command
    quoted = ", ".join(f"'{argument}'" for argument in (name, *arguments))
    with redis.Redis.from_url(server.address) as admin:
        digest = admin.script_load(f"return redis.call({quoted})")
    with (
        server.connected_as("worker-analyst") as connection,
        pytest.raises(redis.ResponseError, match="permission"),
    ):
        connection.evalsha(digest, 1, arguments[0])


@pytest.mark.parametrize("user", ["worker-analyst", "flower", "observer"])
def test_a_user_without_that_right_runs_no_script_of_its_own(server: Server, user: str) -> None:
    """An endless script stops Redis for all users."""
    with server.connected_as(user) as connection:
        for command in (("SCRIPT", "LOAD", "while true do end"), ("EVAL", "return 1", "0")):
            with pytest.raises(NoPermissionError):
                connection.execute_command(*command)


def test_a_worker_waits_until_a_supervisor_has_loaded_the_scripts(server: Server) -> None:
    with (
        server.store("supervisor") as supervisor,
        server.store("worker-analyst") as worker,
        redis.Redis.from_url(server.address) as admin,
    ):
        job_id = a_job(supervisor)
        issue(supervisor, job_id, "find.1", role="analyst")
        claimed = granted_claim(worker, job_id, "find.1")
        admin.script_flush()

        with pytest.raises(StoreUnavailable, match="start a supervisor"):
            claimed.renew()
        with pytest.raises(StoreUnavailable, match="start a supervisor"):
            worker.connection.script_for_each("renew_lease", [claimed.renewal()])
        supervisor.connection.load_scripts()
        claimed.renew()
        assert worker.connection.script_for_each("renew_lease", [claimed.renewal()]) == [b"ok"]


VALUES: Mapping[str, Command] = {
    "string": ("SET", "1"),
    "counter": ("INCRBY", "1"),
    "hash": ("HSET", "a", "b"),
    "list": ("LPUSH", "a"),
    "set": ("SADD", "a"),
    "sorted set": ("ZADD", "1", "a"),
    "stream": ("XADD", "*", "a", "b"),
}
"""Type of a value -> a command that stores such a value in a new key, without the key."""


def test_a_worker_can_store_values_of_one_type_only_in_each_key(server: Server) -> None:
    """Every script that reads a key fails if the key has a value of another type."""
    user = "worker-analyst"
    rules = " ".join(server.users.rules[user]).replace("(-@all +evalsha ~*)", "")
    patterns = set(re.findall(r"(?<![&\w])~([^ )]+)", rules))
    found: dict[str, list[str]] = {}
    with redis.Redis.from_url(server.address) as admin:
        for pattern in patterns:
            key = pattern.replace("[^_]", "a").replace("*", "a").replace("?", "0")
            found[key] = []
            for kind, (name, *values) in VALUES.items():
                answer = admin.execute_command("ACL", "DRYRUN", user, name, key, *values)
                if answer in (b"OK", "OK"):
                    found[key].append(kind)

    assert len(found) > len(WORKERS)
    assert {key: kinds for key, kinds in found.items() if len(kinds) > 1} == {}


def test_no_user_writes_to_the_key_of_unknown_handoffs(server: Server) -> None:
    """With a value in this key, every sweep would fail that looks for an unknown handoff."""
    writes = [*VALUES.values(), ("SETRANGE", "0", "x")]
    allowed: list[str] = []
    with redis.Redis.from_url(server.address) as admin:
        for user in set(server.users.rules) - {"admin"}:
            for name, *values in writes:
                answer = admin.execute_command("ACL", "DRYRUN", user, name, keys.NOTHING, *values)
                if answer in (b"OK", "OK"):
                    allowed.append(f"{user}: {name}")

    assert allowed == []


@pytest.mark.parametrize("user", ["observer", "worker-analyst"])
def test_a_sweep_looks_for_unknown_handoffs_after_each_write_of_a_user(
    server: Server, user: str
) -> None:
    with server.connected_as(user) as attacker:
        for key in (keys.NOTHING, keys.WRITE_CHECK):
            with suppress(NoPermissionError):
                attacker.setrange(key, 0, "x")
    with server.store("supervisor") as supervisor, redis.Redis.from_url(server.address) as admin:
        supervisor.connection.redis.zadd(f"{keys.OUT}supervisor", {f"{OTHER_JOB}/lost.1": 1})
        supervisor.connection.redis.zadd(f"{keys.FAIR}supervisor", {f"{OTHER_JOB}/lost.1 tag": 1})
        messages = f"{keys.FAIR}supervisor:messages"
        supervisor.connection.redis.hset(messages, f"{OTHER_JOB}/lost.1 tag", "{}")
        job_id = a_job(supervisor)
        supervisor.connection.redis.zadd(keys.DUE, {job_id: 1})

        assert job_id in supervisor.jobs.sweep().due

        admin.delete(keys.WRITE_CHECK)


FOREIGN_MEMBERS = ("zzz", "zzz/b.1", "/", "a/", "j-0123456789ab}:h:analyst:x", "\x1b]0;x\x07/a.1")
"""Members of a set of jobs that name no job."""


@pytest.mark.parametrize("key", [keys.DUE, f"{keys.OUT}supervisor", f"{keys.WAITING}analyst"])
def test_a_supervisor_sweeps_past_members_that_a_worker_has_invented(
    server: Server, key: str
) -> None:
    with server.connected_as("worker-analyst") as connection:
        connection.zadd(key, dict.fromkeys(FOREIGN_MEMBERS, 1))
    with server.store("supervisor") as supervisor:
        job_id = a_job(supervisor)
        issue(supervisor, job_id, "find.1", role="analyst")
        supervisor.connection.redis.zadd(keys.DUE, {job_id: 2})

        assert job_id in supervisor.jobs.sweep().due

        assert set(supervisor.connection.redis.zrange(key, 0, -1)).isdisjoint(
            member.encode() for member in FOREIGN_MEMBERS
        )


def test_a_hash_that_a_worker_has_made_is_no_job(server: Server) -> None:
    forged = f"{OTHER_JOB}}}:h:analyst:x"
    with server.connected_as("worker-analyst") as connection:
        connection.hset(f"{keys.PREFIX}{{{forged}}}", mapping={"status": "queued"})
        connection.zadd(keys.DUE, {forged: 1})

    with server.store("supervisor") as supervisor:
        assert forged not in supervisor.jobs.sweep().fresh


@pytest.mark.parametrize("text", ["x", "", "nan", "-1e999", "0x10", "[" * 5_000])
def test_fields_of_a_handoff_that_cannot_be_read_stop_no_sweep_and_no_cancel(
    server: Server, text: str
) -> None:
    with server.store("supervisor") as supervisor, server.store("worker-analyst") as worker:
        job_id, other = a_job(supervisor), a_job(supervisor)
        issue(supervisor, job_id, "find.1", role="analyst")
        granted_claim(worker, job_id, "find.1")
        handoff = keys.handoff(job_id, "analyst", HandoffId("find.1"))
        attacker = worker.connection.redis
        fields = [*READ_FIELDS, *map(bytes.decode, supervisor.connection.redis.hkeys(handoff))]
        attacker.hset(handoff, mapping={**dict.fromkeys(fields, text), "state": "running"})
        attacker.hset(keys.progress(job_id), mapping=dict.fromkeys(("tally", "calls", "g:x"), text))
        attacker.zadd(keys.DUE, {f"{job_id}/find.1": 1, other: 2})

        assert other in supervisor.jobs.sweep().due
        assert server.observed_fleet()
        version = version_of(supervisor, job_id)
        decision = Commit(job_id, version, [CancelRequested()], drop=[HandoffId("find.1")])
        assert supervisor.journal.commit(decision)


def test_a_worker_changes_only_the_progress_of_a_job(server: Server) -> None:
    """The title, the status and the children of a job are facts of its hash."""
    with server.store("supervisor") as supervisor, server.store("worker-analyst") as worker:
        job_id, victim = a_job(supervisor), a_job(supervisor, "acme")
        facts = {"title": "Forged", "status": "ok", "children": victim, "parent": f"{victim}/a.1"}
        worker.connection.redis.hset(keys.progress(job_id), mapping={**facts, "cancelled": "1"})

        summary = supervisor.job_summaries.of(job_id).job
        for standing in (*supervisor.jobs.standings([job_id]), summary):
            assert standing.title != "Forged"
            assert standing.status is JobStatus.RUNNING
            assert standing.children == ()
            assert standing.parent is None
            assert not standing.cancelled


def test_the_deletion_of_a_job_deletes_no_job_that_a_worker_has_named(server: Server) -> None:
    with server.store("supervisor") as supervisor, server.store("worker-analyst") as worker:
        job_id, victim = a_job(supervisor), a_job(supervisor, "acme")
        for ended in (job_id, victim):
            supervisor.connection.redis.hset(keys.job(ended), "status", "ok")
        worker.connection.redis.hset(keys.progress(job_id), "children", victim)

        delete_job(supervisor, job_id)

        assert supervisor.jobs.owner(job_id) is None
        assert supervisor.jobs.owner(victim) == "acme"


@pytest.mark.parametrize("text", [b"x", b"\xff", b"nan", b"-1", b"9" * 400])
def test_a_wrong_progress_leaves_a_job_readable(server: Server, text: bytes) -> None:
    """A job that cannot be read cannot be cancelled."""
    names = ["usd", "turns", "input_tokens", "asked_at", "asked_last", "calls", "tally"]
    names += [
        "failed_last",
        "dropped_last",
        "cut_usd",
        "taken:1",
        f"approval:{text.decode('latin1')}",
    ]
    with server.store("supervisor") as supervisor, server.store("worker-analyst") as worker:
        job_id = a_job(supervisor)
        worker.connection.redis.hset(keys.progress(job_id), mapping=dict.fromkeys(names, text))

        (standing,) = supervisor.jobs.standings([job_id])

        assert standing.status is not JobStatus.UNREADABLE
        assert supervisor.job_summaries.of(job_id).job.title == standing.title


def test_a_wrong_count_of_a_group_stops_no_result_of_another_role(server: Server) -> None:
    with (
        server.store("supervisor") as supervisor,
        server.store("worker-writer") as honest,
        server.connected_as("worker-analyst") as attacker,
    ):
        job_id = a_job(supervisor)
        issue(supervisor, job_id, "write.1", role="writer")
        handoff = keys.handoff(job_id, "writer", HandoffId("write.1"))
        counts = {"group": "team", "counts": json.dumps({"join": 1})}
        supervisor.connection.redis.hset(handoff, mapping=counts)
        claimed = granted_claim(honest, job_id, "write.1")
        attacker.hset(
            keys.progress(job_id), mapping={"g:team": "x", "in:join": "9" * 400, "turns": "x"}
        )

        finish(claimed)

        assert supervisor.connection.redis.hget(handoff, "state") == b"done"


@pytest.mark.parametrize(
    "text", [b"x", b"\xff", b"x 2 lost w", b"9" * 400, b"-1 -1 x y", b"1 9007199254740992 x y"]
)
def test_a_handoff_with_fields_of_a_worker_stays_readable(server: Server, text: bytes) -> None:
    handoff_id = HandoffId("find.1")
    with server.store("supervisor") as supervisor, server.store("worker-analyst") as worker:
        job_id = a_job(supervisor)
        issue(supervisor, job_id, "find.1", role="analyst")
        handoff = keys.handoff(job_id, "analyst", handoff_id)
        fields = [*READ_FIELDS, "worker", "doing", "status", "result", "child", "started_at"]
        worker.connection.redis.hset(handoff, mapping=dict.fromkeys(fields, text))

        record = supervisor.job_summaries.handoffs(job_id, [handoff_id])[handoff_id]

        assert record.standing.past_claims == ()
        assert record.standing.started_at is None


@pytest.mark.parametrize("expiry", [float("inf"), 1e300, 2.0**60])
def test_an_expiry_that_is_no_time_stops_no_note(server: Server, expiry: float) -> None:
    note = Note(path="a/b", text="A fact.", author="ann", at=1, expires_at=4e9, origins=("user",))
    with server.connected_as("worker-analyst") as attacker, server.store("client") as store:
        attacker.zadd(keys.note_expiry("acme"), {"x": expiry})

        assert store.notes.write("acme", note, None)

        store.connection.redis.delete(keys.notes("acme"), keys.note_expiry("acme"))


def test_an_entry_of_a_worker_without_a_time_leaves_a_job_readable(server: Server) -> None:
    with server.store("supervisor") as supervisor, server.store("worker-analyst") as worker:
        job_id = a_job(supervisor)
        worker.connection.redis.xadd(keys.log(job_id), {"x": "y"}, id="99-0")

        summary = supervisor.job_summaries.of(job_id)

        assert summary.tail == (summary.first,)


@pytest.mark.parametrize("version", [{}, [], None, True, 1.5, "\x00", "x" * 5_000])
def test_questions_that_cannot_be_read_stop_no_cancel(server: Server, version: object) -> None:
    with server.store("supervisor") as supervisor, server.store("worker-analyst") as worker:
        job_id = a_job(supervisor)
        issue(supervisor, job_id, "find.1", role="analyst")
        handoff = keys.handoff(job_id, "analyst", HandoffId("find.1"))
        worker.connection.redis.hset(handoff, "asks", json.dumps({"toolu_1": version}))

        decision = Commit(
            job_id, version_of(supervisor, job_id), [CancelRequested()], drop=[HandoffId("find.1")]
        )
        assert supervisor.journal.commit(decision)


def test_a_flood_of_questions_keeps_redis_for_a_short_time(server: Server) -> None:
    """During that time, Redis runs no other command, and cannot stop a script that has written."""
    versions = list(map(str, range(MANY)))
    with (
        server.store("supervisor") as supervisor,
        server.store("worker-analyst") as worker,
        redis.Redis.from_url(server.address) as admin,
    ):
        job_id = a_job(supervisor)
        issue(supervisor, job_id, "find.1", role="analyst")
        attacker, progress = worker.connection.redis, keys.progress(job_id)
        handoff = keys.handoff(job_id, "analyst", HandoffId("find.1"))
        attacker.hset(handoff, "asks", json.dumps(dict(zip(versions, versions, strict=True))))
        attacker.hset(progress, "calls", " ".join(f"{version}:tool" for version in versions))
        attacker.hset(progress, mapping={f"approval:{version}": "tools" for version in versions})
        before = calls_of(admin, "hget")

        decision = Commit(
            job_id, version_of(supervisor, job_id), [CancelRequested()], drop=[HandoffId("find.1")]
        )
        assert supervisor.journal.commit(decision)

        assert calls_of(admin, "hget") - before < 100


def test_a_handoff_that_names_a_foreign_job_as_its_child_cancels_nothing(server: Server) -> None:
    with server.store("supervisor") as supervisor, server.store("worker-analyst") as worker:
        job_id, victim = a_job(supervisor), a_job(supervisor)
        issue(supervisor, job_id, "find.1", role="analyst")
        handoff = keys.handoff(job_id, "analyst", HandoffId("find.1"))
        worker.connection.redis.hset(handoff, "child", victim)

        version = version_of(supervisor, job_id)
        drop = [HandoffId("find.1")]
        supervisor.journal.commit(Commit(job_id, version, [CancelRequested()], drop=drop))

        assert not supervisor.connection.redis.hexists(keys.job(victim), "cancelled")


def test_an_announcement_of_an_unknown_role_stops_no_statistics(server: Server) -> None:
    """The console may not read the queue of a role that the installation does not have."""
    with server.connected_as("worker-analyst") as attacker, server.store("console") as console:
        soon = time.time() * 1000 + 30_000
        attacker.zadd(keys.SERVING, {"tailor/h:1": soon, "writer/h:1": soon})

        assert "writer" in {
            role.role for role in stats_now(console, console.fleet_load.now()).roles
        }

        attacker.zrem(keys.SERVING, "tailor/h:1", "writer/h:1")


def test_a_worker_that_lowers_the_counters_of_a_day_raises_no_cap(server: Server) -> None:
    used = VerifiedAmounts((1, 100, 20, 5), int(time.time()) // DAY_S, (1, 100, 20, 5))
    with server.store("supervisor") as supervisor, server.store("worker-writer") as honest:
        supervisor.daily_budgets.set_caps(DailyCaps(tenant_day_usd=6))
        job_id = a_job(supervisor, "acme")
        issue(supervisor, job_id, "write.1", role="writer")
        claimed = granted_claim(honest, job_id, "write.1")
        claimed.checkpoint(model_reply())
        finish(claimed)
        issue(supervisor, job_id, "write.2", role="writer")
        version = version_of(supervisor, job_id)
        supervisor.journal.commit(Commit(job_id, version, [CancelRequested()], verified=used))
        with server.connected_as("worker-analyst") as attacker:
            attacker.hincrby(keys.day(used.day, "acme"), "usd", -1_000)

        answer = reservation_answer(granted_claim(honest, job_id, "write.2"), WorstCase(1, 1, 2))
        supervisor.daily_budgets.set_caps(DailyCaps())

    assert answer == [b"limit", b"tenant", b"max_usd"]


def test_a_flood_of_labels_makes_no_sweep_long(server: Server) -> None:
    labels = f"{keys.METRICS}:tenant"
    with server.connected_as("worker-analyst") as attacker:
        attacker.sadd(labels, *range(MANY))
        attacker.zadd(f"{keys.WAITING}analyst", {f"{OTHER_JOB}/lost.1": 1})
    with server.store("supervisor") as supervisor, redis.Redis.from_url(server.address) as admin:
        admin.hset(keys.QUEUES, "analyst", 0)
        before = calls_of(admin, "zrem")

        supervisor.jobs.sweep()

        assert calls_of(admin, "zrem") - before < MANY
        admin.delete(labels)


def test_a_flood_of_fields_of_a_rate_limit_is_not_read(server: Server) -> None:
    """Every model call reads its bucket, so a call would take seconds."""
    bucket = keys.bucket("account:model")
    with server.connected_as("worker-analyst") as attacker:
        attacker.hset(bucket, mapping=dict.fromkeys(map(str, range(MANY)), "1"))
        attacker.zadd(keys.BUCKETS, {"account:model": 2**52})
    with redis.Redis.from_url(server.address) as admin, server.store("worker-writer") as honest:
        before = calls_of(admin, "hgetall")
        report = {"bucket": "account:model", "window": 60_000, "asked_at": 1, "limits": {}}

        honest.connection.script("record_provider_answer", [bucket], ["j/a.1", json.dumps(report)])
        server.observed_fleet()

        # the list of running handoffs reads only pauses whole
        assert calls_of(admin, "hgetall") - before == 0
        admin.delete(bucket, keys.BUCKETS)


def test_a_flood_of_announcements_ends_with_the_next_announcement(server: Server) -> None:
    with server.connected_as("worker-analyst") as attacker:
        attacker.zadd(keys.SERVING, {f"writer/x{number}": 2**52 for number in range(MANY)})
    with server.store("supervisor") as supervisor, redis.Redis.from_url(server.address) as admin:
        assert supervisor.presence.processes() == []

        supervisor.presence.announce_supervisor("h:1")

        assert [process.name for process in supervisor.presence.processes()] == ["h:1"]
        assert admin.zcard(keys.SERVING) == 1
        admin.delete(keys.SERVING)


def test_a_flood_of_samples_of_a_role_is_not_read(server: Server) -> None:
    with server.connected_as("worker-analyst") as attacker:
        attacker.lpush(keys.history("analyst"), *['{"at": 1}'] * MANY, *[SAMPLE] * MANY)
    with server.store("supervisor") as supervisor, redis.Redis.from_url(server.address) as admin:
        samples, _ = supervisor.history.read(["analyst"])

        assert len(samples["analyst"]) < MANY
        admin.delete(keys.history("analyst"))


SAMPLE = '{"at": 1, "usd": 1, "ms": 1, "waited_ms": 0, "turns": 1, "bucket": null}'

MANY = 2_000
"""Values of a label, many more than a script writes."""


def calls_of(connection: redis.Redis, command: str) -> int:
    """Return how often Redis has run a command."""
    return int(connection.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


READ_FIELDS = (
    "asks",
    "claimed_at",
    "deferred",
    "group",
    "heartbeat",
    "lease",
    "lost_claims",
    "past_claims",
    "r_day",
    "r_in",
    "r_out",
    "r_turns",
    "r_usd",
    "turn_at",
    "turns",
    "usd",
)
"""Fields of a handoff that a sweep, the end of the handoff or a list of running handoffs reads."""

ENDLESS_S = 5
"""Seconds after which a script counts as endless."""


def endless_commit(job_id: JobId) -> list[str | int]:
    """Return a commit that ends a handoff with countless arguments."""
    decision = {"expected": 1, "tip": -1, "events": 0, "fields": {}, "due": -1, "keep_ms": 1}
    text = json.dumps({**decision, "evaluation": "", "ends": 10**15})
    return [3, keys.job(job_id), keys.DUE, keys.JOBS, text]


def endless_search(connection: redis.Redis, job_id: JobId) -> list[str | int]:
    """Return a search in a list of jobs of the worker's own, whose job is its own child."""
    own_list, loop = f"{keys.FAIR}analyst", f"{job_id}}}:h:analyst:x"
    connection.hset(f"{keys.PREFIX}{{{loop}}}", mapping={"status": "queued", "children": loop})
    connection.zadd(own_list, {loop: 1})
    return [1, own_list, "+inf", "10", "j-"]


@pytest.mark.parametrize("script", ["commit", "find_jobs"])
def test_a_worker_makes_no_script_endless(server: Server, script: str) -> None:
    with server.store("supervisor") as supervisor:
        job_id = a_job(supervisor)
    url = server.users.url("worker-analyst", server.address)
    digest = hashlib.sha1(source_of(script).encode(), usedforsecurity=False).hexdigest()
    with (
        redis.Redis.from_url(url, socket_timeout=ENDLESS_S, retry=None) as connection,
        redis.Redis.from_url(server.address) as admin,
    ):
        if script == "commit":
            arguments = endless_commit(job_id)
        else:
            arguments = endless_search(connection, job_id)
        try:
            with suppress(redis.ResponseError):
                connection.execute_command("EVALSHA", digest, *arguments)
        except redis.TimeoutError:
            admin.script_kill()
            pytest.fail(f"the script {script} does not end")
        admin.delete(f"{keys.FAIR}analyst")


def test_a_refused_command_is_in_the_audit_once(server: Server) -> None:
    with server.connected_as("worker-writer") as connection:
        for _ in range(2):
            with pytest.raises(NoPermissionError):
                connection.execute_command("HGETALL", keys.TOKENS)
    url = server.users.url("supervisor", server.address)
    for _ in range(2):  # two supervisors
        store = open_store(url, Settings(redis_url=SecretStr(url)))
        store.refusals.copy_commands()
        store.connection.close()

    jobs = client.connect(server.address)
    entries = [entry for entry in jobs.audit(count=1_000) if "worker-writer" in entry.subject]

    assert [(entry.action, entry.detail) for entry in entries] == [
        (AuditAction.REFUSE, f"key {keys.TOKENS}")
    ]


def test_a_user_without_right_to_read_the_log_copies_nothing(server: Server) -> None:
    url = server.users.url("client", server.address)
    store = open_store(url, Settings(redis_url=SecretStr(url)))

    assert store.refusals.copy_commands() == 0
    store.connection.close()


def test_a_client_with_its_own_user_submits_a_job(server: Server) -> None:
    jobs = client.connect(server.users.url("client", server.address))

    job_id = jobs.submit(Request("Which database is the best?"))

    assert jobs.newest()[0].job_id == job_id


def test_a_supervisor_announces_a_waiting_job_and_the_server_counts_it(server: Server) -> None:
    counts: dict[str, dict[tuple[str, ...], int]] = {}
    for user in ("supervisor", "console", "client", "observer"):
        url = server.users.url(user, server.address)
        store = open_store(url, Settings(redis_url=SecretStr(url)))
        if user == "supervisor":
            job_id, now = JobId(OTHER_JOB), store.connection.now()
            store.presence.announce_unplanned(job_id, ("tailor",), now)
        counts[user] = store.presence.unplanned()
        store.connection.close()

    assert counts == {user: {("tailor",): 1} for user in counts}


def test_a_worker_with_its_own_user_asks_about_a_call_and_gets_the_answer(server: Server) -> None:
    stores: dict[str, Store] = {}
    for user in ("client", "supervisor", "worker-analyst"):
        url = server.users.url(user, server.address)
        stores[user] = open_store(url, Settings(redis_url=SecretStr(url)))
    worker, supervisor = stores["worker-analyst"], stores["supervisor"]
    job_id = a_job(supervisor)
    issue(supervisor, job_id, "find.1", role="analyst")
    claimed = granted_claim(worker, job_id, "find.1")
    claimed.checkpoint(model_reply(), deferrable=True)
    ask(claimed)
    handoff_id = HandoffId("find.1")
    call = AnsweredCall(handoff_id=handoff_id, call_id="toolu_1")
    approved = Approved(asked=supervisor.journal.read(job_id)[-1].version, call=call)
    connection, trust = stores["client"].connection, stores["client"].trust

    assert answer_call(connection, trust, job_id, approved, handoff_id, [])

    again = granted_claim(worker, job_id, "find.1")
    assert again.call_answers() == {"toolu_1": CallAnswer(is_approved=True)}
    finish(again)
    for store in stores.values():
        store.connection.close()


def test_a_process_that_names_an_unknown_handoff_is_no_attacker(server: Server) -> None:
    """Redis may have lost the handoff."""
    with (
        server.store("supervisor") as supervisor,
        server.store("worker-analyst") as worker,
        server.store("observer") as observer,
    ):
        job_id, lost = a_job(supervisor), HandoffId("lost.1")
        supervisor.connection.redis.zadd(keys.DUE, {f"{job_id}/{lost}": 1})

        assert claim(worker, job_id, lost).verdict is ClaimVerdict.UNKNOWN
        at_work = [running.handoff_id for running in observer.fleet_load.now().at_work]
        assert lost not in at_work
        supervisor.jobs.sent(job_id, [lost])
        supervisor.jobs.sweep()
        supervisor.journal.commit(
            Commit(job_id, version_of(supervisor, job_id), [CancelRequested()], drop=[lost])
        )


def test_an_observer_reads_the_statistics_with_the_spending_of_today(server: Server) -> None:
    with server.store("supervisor") as supervisor, server.store("observer") as observer:
        today = int(supervisor.connection.now()) // DAY_S
        supervisor.connection.redis.delete(keys.spending(today))  # of other tests
        for name, more in (("input", 200), ("cached", 150)):
            field = f"{name}\tdefault\twriter\tm\tteam"
            supervisor.connection.redis.hincrby(keys.spending(today), field, more)
        stats = stats_now(observer, observer.fleet_load.now())
        supervisor.connection.redis.delete(keys.spending(today))

    assert stats.cached_share == 0.75


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return the oldest Redis that we support, which has no rules for reading and writing."""
    users = new_users(WORKERS, Database(has_key_permissions=False))
    folder = tmp_path_factory.mktemp("oldest")
    port = free_port()
    configuration = folder / "redis.conf"
    lines = [f"port {port}", "bind 127.0.0.1", f"dir {folder}", 'save ""', *users.lines()]
    configuration.write_text("\n".join(lines) + "\n")
    program = Path(sys.prefix) / "bin" / OLDEST_NAME
    with Processes(folder) as processes:
        spec = ChildSpec("redis", [str(program), str(configuration)])
        processes.start(spec)
        server = Server(f"redis://127.0.0.1:{port}/0", users)
        with redis.Redis.from_url(server.address) as admin:
            wait_until(lambda: is_answering(admin), expected="the start of Redis 6.2")
        yield server


def is_answering(connection: redis.Redis) -> bool:
    """Return whether Redis answers."""
    try:
        return bool(connection.ping())
    except redis.ConnectionError:
        return False


@pytest.mark.parametrize("command", WITHOUT_KEY_PERMISSIONS, ids=name_of)
def test_a_worker_may_not_run_commands_of_others_on_redis_6(
    oldest: Server, command: Command
) -> None:
    with oldest.connected_as("worker-analyst") as connection, pytest.raises(NoPermissionError):
        connection.execute_command(*command)


def test_no_rule_names_a_command_that_redis_7_0_does_not_know() -> None:
    """Redis refuses all users of an ACL file with an unknown command."""
    newer = {"client|setinfo", "client|no-touch", "cluster|myshardid", "waitaof"}
    for rules in new_users(WORKERS, Database()).rules.values():
        named = set(re.findall(r"[+-]([a-z|-]+)", " ".join(rules)))
        assert not named & newer


def test_supervisors_may_run_every_command_of_the_scripts() -> None:
    used: set[str] = set()
    for script in LUA.rglob("*.lua"):
        used |= set(re.findall(r"redis\.p?call\(\s*'(\w+)'", script.read_text()))

    assert {command.lower() for command in used} <= {*DATA, *CONNECTION}


def test_no_user_has_a_command_that_no_process_runs() -> None:
    texts = [Path(kombu.transport.redis.__file__).read_text()]
    for part in ("shared", "supervisor"):
        texts += [file.read_text() for file in (LUA.parents[2] / part).rglob("*.py")]
    texts += [script.read_text() for script in LUA.rglob("*.lua")]
    text = "".join(texts)
    called = set(re.findall(r"\.(\w+)\(", text))
    called |= {name.lower() for name in re.findall(r"['\"]([A-Z]+)['\"]", text)}

    assert set(DATA) <= called


def test_a_worker_wakes_a_supervisor_while_other_wake_ups_wait(server: Server) -> None:
    with server.connected_as("worker-writer") as connection:
        for number in range(3):
            message = {
                "headers": {FOR: f"j-00000000000{number}"},
                "properties": {"delivery_tag": f"tag-{number}"},
            }
            ENQUEUE.run(connection, enqueue_arguments("supervisor", [message], is_first=False))
    with redis.Redis.from_url(server.address) as admin:
        assert admin.llen("supervisor") == 3
        admin.delete("supervisor")


def test_each_key_of_the_store_has_a_user() -> None:
    """A new key of the store needs a place in `acl.py`."""
    users = new_users(WORKERS, Database())
    patterns: list[str] = []
    for name, rules in users.rules.items():
        if name != "admin":
            patterns += re.findall(r"~([^ )]+)", " ".join(rules).replace("(-@all +evalsha ~*)", ""))
    keys_of_store = [key.strip("`") for key, *_ in (*constant_rows(), *function_rows())]
    for key in keys_of_store:
        example = key
        for placeholder, value in EXAMPLES.items():
            example = example.replace(placeholder, value)
        assert any(fnmatchcase(example, pattern) for pattern in patterns), key
