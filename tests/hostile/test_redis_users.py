"""Each kind of process has its own Redis user. With the password of one process, an attacker does
what the processes of this kind may do, and no more.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import redis
from pydantic import SecretStr
from redis.exceptions import NoPermissionError

from docs.generator.redis_keys import constant_rows, function_rows
from handoff_queue.shared.local.install_redis import OLDEST_NAME
from handoff_queue.shared.local.processes import ChildSpec, Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.local.redis_users import RedisUsers, new_users
from handoff_queue.shared.settings.ports import free_port
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.call_questions import answer_call
from handoff_queue.shared.store.fair_queue import ENQUEUE, FOR, enqueue_arguments
from handoff_queue.shared.store.redis.acl import CONNECTION, DATA, Database
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.access import AuditAction
from handoff_queue.shared.types.call_approval import CallAnswer
from handoff_queue.shared.types.events import AnsweredCall, Approved
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from tests.doubles.call_questions import ask
from tests.doubles.jobs import a_job, finish, granted_claim, issue, model_reply
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
    ("DEL", f"{JOB}:h:a.1"),
    ("DEL", f"{JOB}:blob"),
    ("DEL", keys.DUE),
    ("DEL", keys.SERVING),
    ("DEL", keys.DEAD),
    ("DEL", keys.document(DIGEST)),
    ("DEL", keys.day(1)),
)
"""Commands that read or remove the work of others."""
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
        ("LRANGE", f"{JOB}:t:a.1", "0", "-1"),
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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    users = new_users(WORKERS, Database())
    folder = tmp_path_factory.mktemp("redis")
    with Processes(folder) as processes:
        private = PrivateRedis(processes, folder, append_only=False, users=users.lines())
        yield Server(private.start(), users)


@pytest.mark.parametrize(("user", "command"), CASES, ids=name_of)
def test_a_user_may_not_run_commands_of_others(server: Server, user: str, command: Command) -> None:
    with server.connected_as(user) as connection, pytest.raises(NoPermissionError):
        connection.execute_command(*command)


@pytest.mark.parametrize("command", [*OTHERS_WORK, *FLEET], ids=name_of)
def test_a_script_of_a_worker_may_do_no_more_than_the_worker(
    server: Server, command: Command
) -> None:
    name, *arguments = command
    quoted = ", ".join(f"'{argument}'" for argument in (name, *arguments))
    with server.connected_as("worker-analyst") as connection:
        script = connection.register_script(f"return redis.call({quoted})")
        with pytest.raises(redis.ResponseError, match="permission"):
            script(keys=[arguments[0]])


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

    assert [row.job_id for row in jobs.newest()] == [job_id]


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


def test_supervisors_may_run_every_command_of_the_scripts() -> None:
    used: set[str] = set()
    for script in LUA.rglob("*.lua"):
        used |= set(re.findall(r"redis\.p?call\(\s*'(\w+)'", script.read_text()))

    assert {command.lower() for command in used} <= {*DATA, *CONNECTION}


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
