"""`handoff doctor`: what is wrong with a system, and how to mend it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.text import Text

from shared.config import Settings, load_settings
from shared.local.redis_server import OLDEST, find_server, version_of
from shared.wire.errors import HandoffError, LedgerUnavailable, UserError
from shared.wire.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE, THINK_QUEUE, UNROUTED_QUEUE
from supervisor.cli.errors import FAILED, OK
from supervisor.cli.fleet_state import START_A_SUPERVISOR, START_WORKERS, queues_by_node
from supervisor.cli.model_access import model_access
from supervisor.cli.options import AsJson
from supervisor.cli.terminal import figures, stdout, write_line

if TYPE_CHECKING:
    from supervisor.client import Client

FULL = 0.7
"""Of maxmemory: above, a burst of payloads may be refused (facts of Redis with noeviction)."""

COUNT_FOR_S = 1.0
"""How long nodes get to make themselves known: all of them are waited for, not the first."""


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    level: Level
    about: str
    found: str
    mend: str = ""


_STYLE = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


def doctor(as_json: AsJson = False) -> int:
    """Check broker, persistence, supervisors, workers, dead letters and model access; say what is wrong and how to mend it.

    Exit code 1 when anything fails.
    """
    findings = list(examine(load_settings()))
    if as_json:
        write_line(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False))
    else:
        console = stdout()
        for finding in findings:
            line = Text(f"{finding.level.value:<4}", style=_STYLE[finding.level])
            line.append(f"  {finding.about}: {finding.found}", style="default")
            line.append(f" -> {finding.mend}" if finding.mend else "", style="bold")
            console.print(line, soft_wrap=True)
    return FAILED if any(finding.level is Level.FAIL for finding in findings) else OK


def examine(settings: Settings) -> Iterator[Finding]:
    """Everything, in the order in which one would mend it."""
    if settings.redis_url is None:
        yield from _without_broker()
    else:
        yield from _broker(settings)
    level, found, mend = model_access(settings)
    yield Finding(Level(level), "model", found, mend)


def _without_broker() -> Iterator[Finding]:
    yield Finding(Level.OK, "broker", "HANDOFF_REDIS_URL is not set: `handoff run` starts a private Redis and workers of its own")
    try:
        server = find_server()
    except UserError as error:
        yield Finding(Level.FAIL, "private Redis", "there is no server binary", str(error))
    else:
        yield Finding(Level.OK, "private Redis", f"{server}, version {'.'.join(map(str, version_of(server)))}")


def _broker(settings: Settings) -> Iterator[Finding]:
    from supervisor import client

    try:
        jobs = client.connect(settings=settings)
        facts = _facts(jobs)
    except LedgerUnavailable as error:
        what, _, mend = str(error).partition(": ")
        yield Finding(Level.FAIL, "broker", what, mend or "check HANDOFF_REDIS_URL")
        return
    yield Finding(Level.OK, "broker and backend", "reached, and takes commands")
    yield from persistence(facts)
    yield from _processes(jobs, settings)
    yield from _leftovers(jobs)


def _facts(jobs: Client) -> dict[str, Any]:
    """Redis's own account of itself; `config` is empty where a hosted Redis does not tell."""
    from shared.ledger.connection import in_our_words

    redis = jobs.ledger.connection.redis
    with in_our_words():
        facts = dict(redis.info())
    try:
        with in_our_words():
            config = {name: redis.config_get(name).get(name) for name in ("appendonly", "appendfsync", "maxmemory-policy", "save")}
    except HandoffError:
        config = {}
    return {**facts, "config": config}


def persistence(facts: dict[str, Any]) -> Iterator[Finding]:
    """What Redis's settings mean for jobs. Pure."""
    version = str(facts.get("redis_version", "0"))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    old = "install Redis 6.2 or newer, or Valkey"
    yield Finding(Level.OK if numbers >= OLDEST else Level.FAIL, "version", version, "" if numbers >= OLDEST else old)
    if facts.get("role") not in (None, "master"):
        yield Finding(Level.FAIL, "role", f"this Redis is a {facts['role']}", "point HANDOFF_REDIS_URL at the primary")
    config = facts.get("config") or {}
    durable = config.get("appendonly") == "yes" or facts.get("aof_enabled") in (1, "1")
    mend = "redis-cli CONFIG SET appendonly yes, and in redis.conf"
    lost = "appendonly is off: a restart of Redis loses jobs"
    yield Finding(Level.OK if durable else Level.WARN, "persistence", "append-only file" if durable else lost, "" if durable else mend)
    policy = config.get("maxmemory-policy") or facts.get("maxmemory_policy") or "unknown"
    keeps = policy == "noeviction"
    evicts = "CONFIG SET maxmemory-policy noeviction: an evicted journal is a lost job"
    yield Finding(Level.OK if keeps else Level.FAIL, "eviction", f"maxmemory-policy {policy}", "" if keeps else evicts)
    most, used = int(facts.get("maxmemory") or 0), int(facts.get("used_memory") or 0)
    if most:
        full = used > FULL * most
        more = "raise maxmemory, or delete old jobs (handoff delete)"
        yield Finding(Level.WARN if full else Level.OK, "memory", f"{100 * used // most} % of maxmemory", more if full else "")


def _processes(jobs: Client, settings: Settings) -> Iterator[Finding]:
    nodes = queues_by_node(settings, within_s=COUNT_FOR_S)
    for queue in (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, THINK_QUEUE):
        serving = sorted(node for node, queues in nodes.items() if queue in queues)
        waiting = _depth(jobs, queue)
        found = f"{figures(len(serving), 'process')}, {waiting} waiting"
        yield Finding(Level.OK if serving else Level.FAIL, f"queue {queue}", found, "" if serving else START_A_SUPERVISOR)
    served = jobs.ledger.roles.served()
    if not served:
        yield Finding(Level.FAIL, "workers", "no worker serves any specialist", START_WORKERS)
    for name, one in served.items():
        yield Finding(Level.OK, f"queue {name}", f"{figures(len(one.workers), 'process')} with {one.slots} slots, {one.queued} waiting")
    models = {model for one in served.values() for model in one.models}
    if len(models) > 1:
        mend = "give all of them the same key, or HANDOFF_OFFLINE=true"
        yield Finding(Level.WARN, "workers' models", f"workers differ: {', '.join(sorted(models))}", mend)


def _leftovers(jobs: Client) -> Iterator[Finding]:
    unrouted = _depth(jobs, UNROUTED_QUEUE)
    if unrouted:
        yield Finding(
            Level.WARN, f"queue {UNROUTED_QUEUE}", f"{unrouted} messages that no queue was named for", "look at who publishes them"
        )
    letters = len(jobs.ledger.dead.newest())
    found = f"{letters} messages could not be taken" if letters else "none"
    yield Finding(Level.WARN if letters else Level.OK, "dead letters", found, "`handoff dead` shows them" if letters else "")


def _depth(jobs: Client, queue: str) -> int:
    from shared.ledger.connection import in_our_words

    with in_our_words():
        return int(jobs.ledger.connection.redis.llen(queue))
