"""The Redis users of the kinds of processes, as lines of a Redis ACL file.

Each user has the keys that its processes use, and no others. No worker may list keys, jobs or
journals, so a worker uses a job only if it knows the id. `docs/security-measures.md` names the
borders that these rules do not hold.

A worker may use the notes of each tenant whose secret name it knows. Clients and supervisors make
the names (`shared.store.memory_notes`).
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.names import (
    CHILD_JOB_SPECIALIST,
    ROLES,
    ROLES_QUEUE,
    SUBMISSIONS_QUEUE,
    SUPERVISOR_QUEUE,
    UNROUTED_QUEUE,
)


@dataclass(frozen=True, slots=True)
class Selector:
    """Commands that are allowed on some keys or channels only. A pattern is a glob of Redis."""

    commands: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RedisRights:
    """The commands, keys and channels of a user."""

    commands: tuple[str, ...]
    """Commands that are allowed on the keys of `writable_keys`."""
    writable_keys: tuple[str, ...] = ()
    """Keys that the user may read and write."""
    read_only_keys: tuple[str, ...] = ()
    """Keys that the user may only read."""
    channels: tuple[str, ...] = ()
    selectors: tuple[Selector, ...] = ()


CONNECTION = (
    "auth",
    "hello",
    "ping",
    "time",
    "info",
    "multi",
    "exec",
    "discard",
    "watch",
    "unwatch",
    "script|exists",
)
"""Commands without a key."""
LOADS_SCRIPTS = ("script|load",)
"""A script gives no rights, because Redis checks each of its commands against the user that runs
the script. But an endless script stops Redis, so workers run the scripts of supervisors only.
"""
OWN_CLIENT = (
    "+client",
    "-client|caching",
    "-client|getredir",
    "-client|kill",
    "-client|list",
    "-client|no-evict",
    "-client|pause",
    "-client|reply",
    "-client|tracking",
    "-client|trackinginfo",
    "-client|unblock",
    "-client|unpause",
)
"""The rules for `CLIENT SETNAME` and `CLIENT SETINFO`, which redis-py sends. Redis 7.0 has no
`SETINFO`, and refuses a rule that names it.
"""
OWN_CLIENT_OF_REDIS_6 = ("+client|setinfo", "+client|setname")
STRINGS = ("get", "set", "mget", "getrange", "setrange", "incrby")
HASHES = (
    "hget",
    "hmget",
    "hset",
    "hsetnx",
    "hdel",
    "hincrby",
    "hlen",
    "hexists",
    "hstrlen",
)
WHOLE_HASHES = ("hgetall", "hkeys", "hvals")
LISTS = (
    "llen",
    "lpush",
    "rpush",
    "lrange",
    "ltrim",
    "brpop",
    "rpop",
    "lrem",
    "lindex",
    "lset",
)
SETS = ("sadd", "srem", "scard", "sismember", "smembers")
SORTED_SETS = (
    "zadd",
    "zrem",
    "zcard",
    "zscore",
    "zrange",
    "zrangebyscore",
    "zrevrangebyscore",
    "zremrangebyscore",
    "zrank",
    "zcount",
    "zpopmin",
)
STREAMS = ("xadd", "xrevrange", "xread")
KEYS = (
    "del",
    "unlink",
    "exists",
    "expire",
    "pexpire",
    "pexpireat",
    "persist",
    "pttl",
    "type",
)
DATA = (*STRINGS, *HASHES, *WHOLE_HASHES, *LISTS, *SETS, *SORTED_SETS, *STREAMS, *KEYS)
PUBSUB = ("publish", "psubscribe", "punsubscribe", "subscribe", "unsubscribe")

FIELDS = ("hget", "hmget", "hexists", "hset", "hsetnx", "hdel", "hincrby")
"""Commands on fields of a hash whose names are known."""
LABELS = ("sadd", "scard", "sismember")
"""Commands on the values of the labels `agent` and `model`."""
PLACES = ("zadd", "zcard", "zrangebyscore", "zrank", "zrem", "zremrangebyscore", "pexpire")
"""Commands on the lines of waiting calls."""

ANY_SCRIPT = Selector(("evalsha",), ("*",))
"""A script may be called with any key, because Redis checks each command of the script."""

KOMBU_SETS = ("_kombu.binding.*", "_kombu.binding_permanent.*")
KOMBU_SORTED_SETS = ("_kombu.binding_deadlines",)
_UUID = "-".join("[0-9a-f]" * digits for digits in (8, 4, 4, 4, 12))
KOMBU_LISTS = (f"{_UUID}.reply.{{prefix}}handoff.control.pidbox", "{prefix}handoff.events.*")
"""The names of reply queues begin with a UUID. No key of the store begins with it, also not of an
installation with another prefix. So no program can store a list in a key of another type.
"""
KOMBU_NODES = ("[^_]*@*handoff.control.pidbox",)
"""Queues of the processes for control commands. They are always empty, because kombu publishes
these commands.
"""
KOMBU = (*KOMBU_SETS, *KOMBU_SORTED_SETS, *KOMBU_LISTS, *KOMBU_NODES, "unacked*")
"""Keys of kombu: bindings, and the queues of control commands and events."""
CONTROL = "/{database}.{prefix}handoff.control.pidbox"
EVENTS = "/{database}.{prefix}handoff.events/*"
"""Channels of kombu. The names of its exchanges, and of the queues of its events, begin with the
prefix of the installation. Redis compares the pattern of a subscription letter by letter, so the
number of the database is not a `*`.
"""

SENDS_EVENTS = Selector(("publish",), channels=(EVENTS,))
"""Celery's events name jobs and tasks of all agents, so only Flower may subscribe to them."""

_ID = "j-????????????*"
"""The ids of jobs, and the id of a job that never exists (`key_of` in `parts/jobs.lua`)."""
_JOB = f"{keys.PREFIX}{{{_ID}}}"
_HANDOFF = f"{_JOB}:h:*"
_TURNS = f"{_JOB}:t:*"
_DRAFTS = f"{_JOB}:draft:*"
_AGENTS = f"{_JOB}:agents"
_PROGRESS = f"{_JOB}:progress"
_TITLE = f"{_JOB}:title"
_BLOB = f"{_JOB}:blob"
_LOG = f"{_JOB}:log"
_NEWEST = f"{_JOB}:newest"
_FETCHED = f"{_JOB}:fetched"
_REFUSED = f"{_JOB}:refused"
_WHOLE_JOB = (
    _JOB,
    _PROGRESS,
    _TITLE,
    _AGENTS,
    _HANDOFF,
    _TURNS,
    _DRAFTS,
    _BLOB,
    _LOG,
    _NEWEST,
    _FETCHED,
    _REFUSED,
)
_NOTES = (
    Selector(("hget", "hset", "hdel", "hlen", "hkeys", "hstrlen", "pexpireat"), (keys.notes("*"),)),
    Selector(("zadd", "zrem", "zrange", "zrangebyscore", "pexpireat"), (keys.note_expiry("*"),)),
    # not `hget`: a note must not open the job that wrote it
    Selector(("hset", "hdel", "pexpireat"), (keys.note_jobs("*"),)),
)
"""Commands on notes whose secret name is known."""
_MONTHS = f"{keys.PREFIX}schedule:*:????-??"
_UNPLANNED = (keys.UNPLANNED, f"{keys.UNPLANNED}:*")
_EVERY_PROCESS = (
    Selector(("setrange",), (keys.WRITE_CHECK,)),
    Selector(("hget", "hmget", "hexists", "pttl"), (keys.NOTHING,)),
)
"""The check of every process whether Redis accepts writes, and look-ups of unknown handoffs. The
keys differ: with a value in the key of the look-ups, every script that looks there would fail.
"""
_ANNOUNCEMENTS = (keys.worker("*", "*"), keys.announced_workers("*"))
_LABELS = f"{keys.METRICS}:*"
_LINES = (keys.bucket_line("*"), keys.bucket_alive("*"), keys.BUCKETS)
_FIGURES = (
    keys.day("*"),
    keys.spending("*"),
    keys.METRICS,
    keys.OUTAGE,
    keys.bucket("*"),
)
_VERIFIED_USAGE = (keys.verified_usage("*"), keys.verified_month("*", "????-??"))
"""Sums of the results, which bound the counters from below. Only supervisors write them, and the
console removes those of a deleted tenant.
"""
_AUDIT = (keys.AUDIT, keys.AUDIT_REFUSALS)
_COUNTERS = (*_FIGURES, _LABELS, *_LINES, _MONTHS)
"""Counters that every process that calls a model keeps together with the others."""


def _match_orders(name: str) -> tuple[str, ...]:
    """Return the patterns of the sorted sets of one queue."""
    waiting = f"{keys.WAITING}{name}"
    fair = f"{keys.FAIR}{name}"
    return (
        fair,
        f"{fair}:next",
        waiting,
        f"{waiting}/*",
        f"{keys.OUT}{name}",
        f"{keys.PAUSED_HANDOFFS}{name}",
    )


def _name_messages(name: str) -> str:
    """Return the key of the hash with the messages of one queue."""
    return f"{keys.FAIR}{name}:messages"


ANY_SPECIALIST = "*"
"""Stands for all specialists of a private Redis, also for those whose workers start later."""


def _match_any_name() -> tuple[str, ...]:
    """Return the patterns of all names of specialists. They match no key of the store, because
    they exclude its prefix.
    """
    letters = string.ascii_lowercase.replace(keys.PREFIX[0], "")
    patterns = [f"[{letters}]*"]
    for place in range(1, len(keys.PREFIX)):
        beginning, next_letter = keys.PREFIX[:place], keys.PREFIX[place]
        patterns += [beginning, f"{beginning}[^{next_letter}]*"]
    return tuple(patterns)


def _match_lists(names: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns of the lists of some queues: a list has the name of its queue."""
    patterns: list[str] = []
    for name in names:
        if name == ANY_SPECIALIST:
            patterns.extend(_match_any_name())
        else:
            patterns.append(name)
    return tuple(patterns)


def _match_queue(name: str) -> tuple[str, ...]:
    """Return the patterns of the keys of one queue."""
    return (*_match_lists([name]), *_match_orders(name), _name_messages(name))


def _match_queues(names: Iterable[str]) -> tuple[str, ...]:
    patterns: list[str] = []
    for name in names:
        patterns.extend(_match_queue(name))
    return tuple(patterns)


OWN_QUEUES = (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE, UNROUTED_QUEUE)


def _match_handoffs(specialists: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns of the keys with the states of the handoffs of some specialists."""
    return tuple(f"{_JOB}:h:{name}:*" for name in specialists)


def _match_prefixes(agents: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns of the keys with the prefixes that some agents have sent."""
    return tuple(keys.prompt_prefix(agent, "*") for agent in agents)


def _match_turns(specialists: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns of the keys with the turns of the handoffs of some specialists."""
    return tuple(f"{_JOB}:t:{name}:*" for name in specialists)


def _match_drafts(specialists: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns of the keys with the drafts of the handoffs of some specialists."""
    return tuple(f"{_JOB}:draft:{name}:*" for name in specialists)


def build_worker_access(
    specialists: Sequence[str], without_memory: Collection[str] = ()
) -> RedisRights:
    """Return the access of the workers that serve some specialists.

    They know a job only by its id, so they may use the keys of every job, but the handoffs of
    their own specialists only. They cannot list a job's payloads, and cannot read its journal. A
    worker wakes a supervisor, so it may add to the queue of wake-ups. It reads no wake-up, and no
    other value with the id of a job in which its specialists have no handoff.

    Each key has the commands of one type only. With commands of two types, a worker could store a
    value of the wrong type, and every script that reads the key would fail.

    Args:
        specialists: the specialists that they serve.
        without_memory: specialists that do not have the tool `memory`.
    """
    notes: tuple[Selector, ...] = _NOTES
    if set(specialists) <= set(without_memory):
        notes = ()
    orders: list[str] = []
    for specialist in specialists:
        orders.extend(_match_orders(specialist))
    return RedisRights(
        commands=(*CONNECTION, *DATA, *PUBSUB),
        read_only_keys=(keys.CAPS, keys.PAUSED, keys.verified_usage("*")),
        channels=(CONTROL,),
        selectors=(
            ANY_SCRIPT,
            SENDS_EVENTS,
            Selector((*LISTS, *KEYS), (*specialists, *KOMBU_LISTS)),
            Selector(("llen", *KEYS), KOMBU_NODES),
            Selector((*SORTED_SETS, *KEYS), (*orders, *KOMBU_SORTED_SETS)),
            Selector((*HASHES, *WHOLE_HASHES, *KEYS), tuple(map(_name_messages, specialists))),
            Selector((*SETS, *KEYS), KOMBU_SETS),
            Selector(("hget", "hmget", "hexists", "exists", "pttl"), (_JOB,)),
            Selector((*FIELDS, "type"), (_PROGRESS, *_match_handoffs(specialists))),
            # not `hset`, `hdel`: a worker changes and removes no payload
            Selector(("hget", "hstrlen", "hexists", "hsetnx"), (_BLOB,)),
            # not `hget`: the digests of its task and of its result open the texts
            Selector(("exists", "hexists"), _match_handoffs((CHILD_JOB_SPECIALIST,))),
            Selector(("rpush", "llen", "lrange", "del", "pexpire"), _match_turns(specialists)),
            Selector(("set", "del"), _match_drafts(specialists)),
            Selector(("hget",), (_AGENTS,)),
            # not `lset`, `ltrim`: a worker changes and removes no event
            Selector(("rpush", "llen"), (_LOG,)),
            Selector(("xadd",), (_NEWEST,)),
            Selector(("rpush", "llen", "lrange"), (_FETCHED,)),
            Selector(("mget",), (keys.document("*"),)),
            Selector((*FIELDS, "hgetall", "hlen", "pexpire", "type"), _FIGURES),
            Selector(("incrby", "pexpire"), (_MONTHS,)),
            Selector(LABELS, (f"{keys.METRICS}:agent", f"{keys.METRICS}:model")),
            # not `sadd`: sweeps read this set whole
            Selector(("scard", "sismember", "smembers"), (f"{keys.METRICS}:tenant",)),
            Selector(PLACES, _LINES),
            *notes,
            Selector(("zadd", "zrem"), tuple(map(keys.due, specialists))),
            Selector(("lpush", "ltrim", "pexpire"), tuple(map(keys.history, specialists))),
            *_EVERY_PROCESS,
            Selector(
                ("zadd", "zrem", "zscore", "zrange", "pttl", "pexpire", "del"),
                tuple(keys.shared_run(name, "*") for name in specialists),
            ),
            Selector(("lpush",), (keys.DEAD, keys.REFUSALS)),
            Selector(("zadd", "zrem", "zremrangebyscore", "expire"), (keys.SERVING,)),
            Selector(("set", "del"), tuple(keys.worker(name, "*") for name in specialists)),
            Selector(
                ("zadd", "zrem", "zremrangebyscore", "expire"),
                tuple(map(keys.announced_workers, specialists)),
            ),
            Selector(("get", "set", "del"), _match_prefixes(specialists)),
            # no command that reads a wake-up, because it names the job of another
            Selector(("lpush", "rpush", "llen"), (SUPERVISOR_QUEUE,)),
            Selector(
                ("exists", "zadd", "zrem", "zcard", "zscore"), _match_orders(SUPERVISOR_QUEUE)
            ),
            Selector(("hset",), (_name_messages(SUPERVISOR_QUEUE),)),
        ),
    )


def build_supervisor_access(specialists: Sequence[str]) -> RedisRights:
    """Return the access of the supervisors. They have all jobs and all queues, but no token, no
    request of the HTTP API, and no announcement of a worker.
    """
    return RedisRights(
        commands=(*CONNECTION, *LOADS_SCRIPTS, *DATA, *PUBSUB, "acl|log"),
        writable_keys=(
            *_match_queues([*OWN_QUEUES, *specialists]),
            *_WHOLE_JOB,
            *_COUNTERS,
            *_VERIFIED_USAGE,
            *KOMBU,
            keys.document("*"),
            keys.DUE,
            keys.due("*"),
            keys.JOBS,
            keys.QUEUES,
            keys.BATCHES,
            keys.CAPS,
            keys.PAUSED,
            keys.ORPHANS,
            keys.DEAD,
            keys.SCORES,
            keys.SERVING,
            keys.SCHEDULES,
            keys.SCHEDULE_SLOTS,
            keys.schedule_job("*"),
            keys.ID_SECRET,
            keys.history("*"),
            keys.supervisor("*"),
            *_match_prefixes(ROLES),
            keys.open_jobs("*"),
            keys.REFUSED_COMMANDS,
            keys.REFUSALS,
            keys.deletion("*"),
            keys.USED_DOCUMENTS,
            keys.shared_run("*", "*"),
            *_UNPLANNED,
            *_match_paused_handoffs(),
        ),
        read_only_keys=_ANNOUNCEMENTS,
        channels=(CONTROL,),
        selectors=(
            ANY_SCRIPT,
            SENDS_EVENTS,
            *_EVERY_PROCESS,
            Selector(("xadd",), (*_AUDIT, keys.audit_refusals_of("*"))),
            Selector(("get", "set", "expire"), (keys.notes_name("*"),)),
        ),
    )


def build_client_access(specialists: Sequence[str]) -> RedisRights:
    """Return the access of a program that submits and follows jobs of all tenants."""
    return RedisRights(
        commands=(*CONNECTION, *LOADS_SCRIPTS, *DATA, *PUBSUB),
        writable_keys=(
            *_match_queues([SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE]),
            *_WHOLE_JOB,
            *_COUNTERS,
            *KOMBU,
            keys.document("*"),
            keys.DUE,
            keys.due("*"),
            keys.JOBS,
            keys.SCORES,
            keys.SCHEDULES,
            keys.SCHEDULE_SLOTS,
            keys.schedule_job("*"),
            keys.ID_SECRET,
            keys.open_jobs("*"),
            keys.deletion("*"),
            keys.USED_DOCUMENTS,
            keys.EVALUATIONS,
            keys.notes_name("*"),
            keys.notes("*"),
            keys.note_jobs("*"),
            keys.note_expiry("*"),
        ),
        read_only_keys=(
            *_match_queues([*specialists, ROLES_QUEUE, UNROUTED_QUEUE]),
            *_match_paused_handoffs(),
            *_ANNOUNCEMENTS,
            keys.supervisor("*"),
            keys.history("*"),
            keys.SERVING,
            *_UNPLANNED,
            *_VERIFIED_USAGE,
            keys.QUEUES,
            keys.CAPS,
            keys.PAUSED,
            keys.DEAD,
        ),
        channels=(CONTROL,),
        selectors=(
            ANY_SCRIPT,
            SENDS_EVENTS,
            *_EVERY_PROCESS,
            Selector(("xadd",), (*_AUDIT, keys.audit_of("*"))),
            Selector(("sadd",), (keys.AUDIT_CALLERS,)),
            # `handoff mcp` asks whether there are tokens
            Selector(("hlen",), (keys.TOKENS,)),
        ),
    )


def build_console_access(specialists: Sequence[str]) -> RedisRights:
    """Return the access of `handoff serve`: the access of a client, and the tokens, the audit,
    the pauses and the dead letters.
    """
    client = build_client_access(specialists)
    return RedisRights(
        commands=client.commands,
        writable_keys=(
            *client.writable_keys,
            keys.TOKENS,
            f"{keys.PREFIX}requests:*",
            *_AUDIT,
            keys.AUDIT_CALLERS,
            keys.audit_of("*"),
            keys.PAUSED,
            keys.DEAD,
            keys.EXPORTED,
            *(f"{keys.PAUSED_HANDOFFS}{agent}" for agent in (*specialists, *ROLES)),
        ),
        read_only_keys=(
            *client.read_only_keys,
            keys.REFUSED_COMMANDS,
            keys.audit_refusals_of("*"),
        ),
        channels=client.channels,
        selectors=(
            *client.selectors,
            # of a deleted tenant
            Selector(("del",), (keys.verified_usage("*", "*"), f"{keys.WAITING}*/*")),
        ),
    )


def build_flower_access(specialists: Sequence[str]) -> RedisRights:
    """Return the access of Flower: Celery's events and replies, and the names and the lengths of
    the queues.
    """
    return RedisRights(
        commands=(*CONNECTION, *DATA, *PUBSUB),
        writable_keys=KOMBU,
        channels=(CONTROL, EVENTS),
        selectors=(
            ANY_SCRIPT,
            Selector(("llen",), _match_lists((*OWN_QUEUES, *specialists))),
            Selector(("hkeys",), (keys.QUEUES,)),
            Selector(("zrangebyscore",), (keys.SERVING,)),
        ),
    )


def build_observer_access(specialists: Sequence[str]) -> RedisRights:
    """Return the access of a reader of figures: `handoff list`, `stats` and `top`. It opens no
    payload, no turn and no token.
    """
    return RedisRights(
        commands=(*CONNECTION, *DATA),
        read_only_keys=(
            *_match_queues([*OWN_QUEUES, *specialists]),
            *_match_paused_handoffs(),
            *_COUNTERS,
            *_VERIFIED_USAGE,
            _JOB,
            _PROGRESS,
            _TITLE,
            _HANDOFF,
            _AGENTS,
            _LOG,
            _NEWEST,
            _REFUSED,
            keys.DUE,
            keys.due("*"),
            keys.JOBS,
            keys.open_jobs("*"),
            keys.SCORES,
            keys.EVALUATIONS,
            *_ANNOUNCEMENTS,
            keys.supervisor("*"),
            keys.history("*"),
            keys.SERVING,
            *_UNPLANNED,
            keys.QUEUES,
            keys.CAPS,
            keys.PAUSED,
        ),
        selectors=(ANY_SCRIPT, *_EVERY_PROCESS, Selector(("llen",), (keys.DEAD,))),
    )


def _match_paused_handoffs() -> tuple[str, ...]:
    return tuple(f"{keys.PAUSED_HANDOFFS}{role}" for role in ROLES)


ACCESS: Mapping[str, Callable[[Sequence[str]], RedisRights]] = {
    "client": build_client_access,
    "console": build_console_access,
    "flower": build_flower_access,
    "observer": build_observer_access,
    "supervisor": build_supervisor_access,
}
"""Name of a user -> function that returns its access for all specialists of the installation."""


@dataclass(frozen=True, slots=True)
class RedisDatabase:
    """The part of a Redis that an installation uses."""

    number: int = 0
    prefix: str = ""
    """Prefix of all keys, from `?prefix=` in the Redis URL."""
    has_key_permissions: bool = True
    """True for Redis 7 and Valkey: rules for reading, for writing, and selectors. Redis 6.2 has
    no such rules, so its users may run each of their commands on each of their keys.
    """


def build_rules(access: RedisRights, database: RedisDatabase) -> list[str]:
    """Return the rules of a user in the order of the ACL file, without name and passwords."""
    rules = ["resetkeys", "resetchannels", "-@all", *_allow_rules(access.commands)]
    # Another installation may use another database of the server, with the same keys.
    rules.append(f"+select|{database.number}")
    if database.has_key_permissions:
        rules += OWN_CLIENT
        rules += _build_key_rules("~", access.writable_keys, database)
        rules += _build_key_rules("%R~", access.read_only_keys, database)
        for selector in access.selectors:
            rules.append(_build_selector_rule(selector, database))
    else:
        rules += OWN_CLIENT_OF_REDIS_6
        patterns = [*access.writable_keys, *access.read_only_keys]
        for selector in access.selectors:
            rules += _allow_rules(selector.commands)
            if selector is not ANY_SCRIPT:
                patterns += selector.patterns
            rules += _build_channel_rules(selector.channels, database)
        rules += _build_key_rules("~", dict.fromkeys(patterns), database)
    return [*rules, *_build_channel_rules(access.channels, database)]


def build_user_line(name: str, passwords: Iterable[str], rules: Iterable[str]) -> str:
    """Return the line of a user in an ACL file. It holds digests in place of the passwords."""
    digests: list[str] = []
    for password in passwords:
        digests.append("#" + hashlib.sha256(password.encode()).hexdigest())
    return " ".join(["user", name, "on", *digests, *rules])


ADMIN = "admin"
"""Name of the user of a person who operates the fleet and the Redis users."""
ADMIN_RULES = ("~*", "&*", "+@all")


def _allow_rules(commands: Iterable[str]) -> list[str]:
    return [f"+{command}" for command in commands]


def _build_key_rules(mark: str, patterns: Iterable[str], database: RedisDatabase) -> list[str]:
    rules: list[str] = []
    for pattern in patterns:
        rules.append(f"{mark}{database.prefix}{pattern.replace('{prefix}', database.prefix)}")
    return rules


def _build_channel_rules(patterns: Iterable[str], database: RedisDatabase) -> list[str]:
    rules: list[str] = []
    for pattern in patterns:
        rules.append(f"&{pattern.format(database=database.number, prefix=database.prefix)}")
    return rules


def _build_selector_rule(selector: Selector, database: RedisDatabase) -> str:
    rules = [
        "-@all",
        *_allow_rules(selector.commands),
        *_build_channel_rules(selector.channels, database),
    ]
    if selector is ANY_SCRIPT:
        rules.append("~*")
    else:
        rules += _build_key_rules("~", selector.patterns, database)
    return f"({' '.join(rules)})"
