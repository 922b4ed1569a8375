"""Each kind of process has its own Redis user. With the password of one process, an attacker runs
no command that only other processes may run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import kombu.transport.redis
import pytest
import redis
from redis.exceptions import NoPermissionError

from docs.generator.redis_keys import iterate_constants, iterate_functions
from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.install_redis import OLDEST_NAME
from handoff_queue.shared.local.redis_users import create_users
from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.acl import (
    CONNECTION,
    DATA,
    RedisDatabase,
    build_rules,
    build_worker_access,
)
from tests.doubles.jobs import (
    a_job,
)
from tests.hostile.redis_commands import (
    ADMINISTRATION_ON_REDIS_6,
    ATTACKS,
    FLEET,
    HANDOFFS_OF_OTHER_ROLES,
    JOBS,
    OTHER_JOB,
    OTHERS_WORK,
    TIMES_TO_LIVE,
    WITHOUT_KEY_PERMISSIONS,
    Command,
)
from tests.hostile.redis_with_users import WORKERS, Server
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

EXAMPLES = {"{JOB}": f"{{{OTHER_JOB}}}", "MONTH": "2026-11", "AGENT": "writer", "QUEUE": "writer"}
"""Values for the placeholders of the documented keys."""
LUA = Path(keys.__file__).parent / "lua"
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


def list_allowed_commands(
    server: Server, user: str, commands: Iterable[Command]
) -> list[tuple[Command, Any]]:
    """Run commands, and return each that Redis did not refuse for a lack of rights, with the
    answer or the error.
    """
    allowed: list[tuple[Command, Any]] = []
    with server.connected_as(user) as connection:
        for command in commands:
            try:
                allowed.append((command, connection.execute_command(*command)))
            except NoPermissionError:
                continue
            except redis.RedisError as error:
                allowed.append((command, error))
    return allowed


@pytest.mark.parametrize("user", ATTACKS)
def test_a_user_may_not_run_commands_of_others(server: Server, user: str) -> None:
    assert list_allowed_commands(server, user, ATTACKS[user]) == []


def test_a_script_of_a_worker_may_do_no_more_than_the_worker(server: Server) -> None:
    answers: dict[Command, str] = {}
    with (
        redis.Redis.from_url(server.address) as admin,
        server.connected_as("worker-analyst") as connection,
    ):
        for command in (*OTHERS_WORK, *HANDOFFS_OF_OTHER_ROLES, *JOBS, *TIMES_TO_LIVE, *FLEET):
            quoted = ", ".join(f"'{word}'" for word in command)
            digest = admin.script_load(f"return redis.call({quoted})")
            try:
                answers[command] = str(connection.evalsha(digest, 1, command[1]))
            except redis.ResponseError as error:
                answers[command] = str(error)

    assert [command for command, answer in answers.items() if "permission" not in answer] == []


@pytest.mark.parametrize("user", ["worker-analyst", "flower", "observer"])
def test_a_user_without_that_right_runs_no_script_of_its_own(server: Server, user: str) -> None:
    """An endless script stops Redis for all users."""
    with server.connected_as(user) as connection:
        for command in (("SCRIPT", "LOAD", "while true do end"), ("EVAL", "return 1", "0")):
            with pytest.raises(NoPermissionError):
                connection.execute_command(*command)


def keys_of(patterns: set[str]) -> list[str]:
    """Return a key for each pattern, and keys that match the beginning of one pattern and the end
    of another pattern.
    """
    endings = [""]
    for pattern in patterns:
        if pattern.startswith(("[", "*")):
            endings.append(pattern)
    keys_of_pairs: list[str] = []
    for pattern in patterns:
        joined = [pattern + ending for ending in endings if not ending or pattern.endswith("*")]
        for pair in joined:
            key = re.sub(r"\[[^]]*\]", "a", pair)
            keys_of_pairs.append(key.replace("*", "a").replace("?", "0"))
    return keys_of_pairs


def test_a_worker_can_store_values_of_one_type_only_in_each_key(server: Server) -> None:
    """Every script that reads a key fails if the key has a value of another type."""
    user = "worker-analyst"
    rules = " ".join(server.users.rules[user]).replace("(-@all +evalsha ~*)", "")
    patterns = set(re.findall(r"(?<![&\w])~([^ )]+)", rules))
    kinds_of: dict[str, list[str]] = {}
    with redis.Redis.from_url(server.address) as admin:
        for key in keys_of(patterns):
            kinds_of[key] = []
            for kind, (name, *values) in VALUES.items():
                answer = admin.execute_command("ACL", "DRYRUN", user, name, key, *values)
                if answer in (b"OK", "OK"):
                    kinds_of[key].append(kind)

    assert len(kinds_of) > len(WORKERS)
    assert {key: kinds for key, kinds in kinds_of.items() if len(kinds) > 1} == {}


def test_a_user_works_on_the_database_of_its_installation_only(server: Server) -> None:
    rules = build_rules(build_worker_access(["analyst"]), RedisDatabase(number=3))
    with redis.Redis.from_url(server.address) as admin:
        admin.execute_command("ACL", "SETUSER", "other", "on", ">word", *rules)
        port = admin.connection_pool.connection_kwargs["port"]
        with redis.Redis(port=port, db=3, username="other", password="word") as connection:
            assert connection.ping()
        elsewhere = redis.Redis(port=port, db=2, username="other", password="word")
        with elsewhere, pytest.raises(NoPermissionError):
            elsewhere.ping()
        admin.execute_command("ACL", "DELUSER", "other")


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

        assert job_id in supervisor.due_work.sweep().due

        admin.delete(keys.WRITE_CHECK)


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return the oldest Redis that we support, which has no rules for reading and writing."""
    users = create_users(WORKERS, RedisDatabase(has_key_permissions=False))
    folder = tmp_path_factory.mktemp("oldest")
    port = find_free_port()
    configuration = folder / "redis.conf"
    lines = [f"port {port}", "bind 127.0.0.1", f"dir {folder}", 'save ""', *users.build_lines()]
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


@pytest.mark.parametrize("user", ATTACKS)
def test_a_user_may_not_run_commands_of_administrators_on_redis_6(
    oldest: Server, user: str
) -> None:
    forbidden = [command for command in ATTACKS[user] if command in ADMINISTRATION_ON_REDIS_6]
    if user == "worker-analyst":
        forbidden += WITHOUT_KEY_PERMISSIONS

    assert forbidden
    assert list_allowed_commands(oldest, user, forbidden) == []


@pytest.mark.parametrize("user", ["supervisor", "flower", "worker-analyst"])
def test_a_connection_of_celery_runs_no_command_that_redis_6_refuses(
    oldest: Server, user: str
) -> None:
    """Each such command would be an attempt in the audit."""
    with redis.Redis.from_url(oldest.address) as admin:
        admin.acl_log_reset()
        app = make_app("test", oldest.users.build_url(user, oldest.address), Settings(), [])
        with app.connection_for_read() as connection:
            assert connection.default_channel.client.ping()
        assert app.backend.client.ping()

        assert admin.acl_log() == []


@pytest.fixture(scope="module")
def private(server: Server) -> Iterator[redis.Redis]:
    """Yield the user with all rights. The other users have the rights that `handoff up` gives."""
    with redis.Redis.from_url(server.address) as admin:
        for user, rules in create_users(
            WORKERS, RedisDatabase(), has_other_workers=True
        ).rules.items():
            if user != "admin":
                admin.execute_command("ACL", "SETUSER", f"private-{user}", "on", *rules)
        yield admin


def is_allowed(admin: Any, user: str, command: Command) -> bool:
    """Return whether a user of the private Redis may run a command."""
    answer = admin.execute_command("ACL", "DRYRUN", f"private-{user}", *command)
    return answer in (b"OK", "OK")


@pytest.mark.parametrize("user", [user for user in ATTACKS if not user.startswith("worker")])
def test_a_user_of_a_private_redis_may_not_run_commands_of_others(
    private: redis.Redis, user: str
) -> None:
    assert [command for command in ATTACKS[user] if is_allowed(private, user, command)] == []


@pytest.mark.parametrize("name", ["h", "hand", "handoff", "handoff-2", "handoffs", "orders", "z"])
def test_the_users_of_a_private_redis_may_use_the_queue_of_any_specialist(
    private: redis.Redis, name: str
) -> None:
    for user in ("client", "console", "flower", "observer", "supervisor"):
        assert is_allowed(private, user, ("LLEN", name))
    for key in (f"{keys.WAITING}{name}", f"{keys.FAIR}{name}", f"{keys.PAUSED_HANDOFFS}{name}"):
        assert is_allowed(private, "supervisor", ("ZADD", key, "1", "a"))
    assert is_allowed(private, "supervisor", ("LPUSH", name, "{}"))
    assert not is_allowed(private, "client", ("LPUSH", name, "{}"))


def test_no_rule_names_a_command_that_redis_7_0_does_not_know() -> None:
    """Redis refuses all users of an ACL file with an unknown command."""
    newer = {"client|setinfo", "client|no-touch", "cluster|myshardid", "waitaof"}
    for rules in create_users(WORKERS, RedisDatabase()).rules.values():
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


def test_each_key_of_the_store_has_a_user() -> None:
    """A new key of the store needs a place in `acl.py`."""
    users = create_users(WORKERS, RedisDatabase())
    patterns: list[str] = []
    for name, rules in users.rules.items():
        if name != "admin":
            patterns += re.findall(r"~([^ )]+)", " ".join(rules).replace("(-@all +evalsha ~*)", ""))
    keys_of_store = [key.strip("`") for key, *_ in (*iterate_constants(), *iterate_functions())]
    for key in keys_of_store:
        example = key
        for placeholder, value in EXAMPLES.items():
            example = example.replace(placeholder, value)
        assert any(fnmatchcase(example, pattern) for pattern in patterns), key
