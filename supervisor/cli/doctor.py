"""`handoff doctor`: check a system and suggest fixes. One free request to the model's server
shows whether the model can be reached.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from http import HTTPStatus
from http.client import HTTPException
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from handoff_queue.shared.local.redis_server import OLDEST, find_server, read_version
from handoff_queue.shared.providers.model_facts import create_model_server, open_without_redirects
from handoff_queue.shared.settings.foreign_environment import NAME_A_BROKER
from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.settings.settings import Settings, load_settings
from handoff_queue.shared.specialists.policy_file import read_rules
from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.trust.keyring import NOT_SIGNED
from handoff_queue.shared.types.errors import StoreUnavailable, UnusableRedis, UserError
from handoff_queue.shared.types.events import DEFAULT_TENANT, JobStatus
from handoff_queue.shared.types.memory_notes import MAX_NOTES
from handoff_queue.shared.types.names import (
    RESERVED,
    ROLES_QUEUE,
    SUBMISSIONS_QUEUE,
    SUPERVISOR_QUEUE,
    UNROUTED_QUEUE,
)
from handoff_queue.shared.types.specialist import Tier
from handoff_queue.supervisor.cli.connection import START_A_SUPERVISOR, START_WORKERS, create_client
from handoff_queue.supervisor.cli.display.terminal import (
    format_clock,
    get_stdout,
    write_as_json,
)
from handoff_queue.supervisor.cli.doctor_models import (
    check_code_execution,
    check_contexts,
    check_managed_context,
    check_models,
    group_specialists_by_managed_model,
    group_specialists_by_model,
    group_specialists_by_option,
    list_configured_roles,
)
from handoff_queue.supervisor.cli.doctor_processes import (
    OFFLINE,
    CheckLevel,
    Finding,
    ask_for_queues,
    build_refused_queue_finding,
    check_brokers,
    check_live_processes,
    select_announced_processes,
)
from handoff_queue.supervisor.cli.errors import FAILED, OK
from handoff_queue.supervisor.cli.options import AsJson
from handoff_queue.supervisor.text.sanitizing import replace_unsafe

if TYPE_CHECKING:
    from pathlib import Path

    from handoff_queue.shared.store.daily_budgets import DaySpending, TodaysBudgets
    from handoff_queue.shared.store.health import QueueDepth, RedisFacts
    from handoff_queue.shared.store.pauses import Pause
    from handoff_queue.shared.store.presence import LiveProcess
    from handoff_queue.shared.types.presence import Announcement
    from handoff_queue.shared.types.specialist import SpecialistSpec
    from handoff_queue.supervisor.client.client import Client

_CHECK = "check the network, proxies and ANTHROPIC_BASE_URL"
_NO_REDIRECTS = "set ANTHROPIC_BASE_URL to the address that it redirects to"
_PROXY_REFUSES = (
    "the proxy needs a user and a password (407): HTTPS_PROXY (or HTTP_PROXY for an http:// server)"
    " looks like http://user:password@proxy.example:3128"
)
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


FULL = 0.7
"""Share of maxmemory above which a burst of payloads may be refused (Redis with noeviction)."""
MEMORY_FULL_FROM = 0.9
"""Share of `MAX_NOTES` from which on the memory of a tenant is almost full."""
NOBODY_LIVE = "no worker and no supervisor is alive on this broker"
START_ALL = (
    "start the whole system: `handoff up`, or `handoff supervisor` and `handoff worker --all`"
)
UNASKED = "its workers are unknown while Redis takes no writes"
_STYLE = {CheckLevel.OK: "green", CheckLevel.WARN: "yellow", CheckLevel.FAIL: "red"}


def doctor(as_json: AsJson = False) -> int:
    """Check Redis, all processes and the model, and suggest fixes.

    Each line is ok, warn or fail. Exit code 1: a check failed.
    """
    findings = list(examine(load_settings()))
    if as_json:
        write_as_json([asdict(finding) for finding in findings])
    else:
        console = get_stdout()
        for finding in findings:
            line = Text(f"{finding.level.value:<4}", style=_STYLE[finding.level])
            line.append(f"  {finding.about}: {finding.report}", style="default")
            if finding.fix:
                line.append(f" -> {finding.fix}", style="bold")
            console.print(line, soft_wrap=True)
    if any(finding.level is CheckLevel.FAIL for finding in findings):
        return FAILED
    return OK


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield all findings, the most basic first."""
    if settings.redis_url is None:
        yield from _without_broker()
        yield from _check_shell(settings)
    else:
        yield from _check_broker(settings)


def _check_shell(
    settings: Settings,
    *,
    is_fleet_live: bool = False,
    specialists: Collection[SpecialistSpec] = (),
) -> Iterator[Finding]:
    """Yield the ignored variables of this shell, and whether its model can be reached.

    If a fleet is alive, no finding is a failure: the fleet does not use the model of this
    shell.

    Args:
        specialists: the specialists of the fleet.
    """
    yield from find_ignored_variables(os.environ)
    if settings.policy_file is not None:
        yield _check_policy(settings.policy_file)
    access = check_model_access(settings)
    finding = Finding(access.level, "this shell: model", access.report, access.fix)
    if is_fleet_live:
        report = f"{access.report}; only processes that are started from this shell would use it"
        finding = replace(finding, report=report)
        if settings.is_offline:
            finding = replace(finding, level=CheckLevel.OK, fix="")
        elif access.level is CheckLevel.FAIL:
            finding = replace(finding, level=CheckLevel.WARN)
    yield finding
    if access.level is not CheckLevel.OK:
        return
    tiers = {Tier.CAPABLE: settings.supervisor_model, Tier.CHEAP: settings.specialist_model}
    managed = group_specialists_by_managed_model(specialists, tiers)
    if settings.model_provider == "anthropic":
        server = create_model_server(settings)
        models = group_specialists_by_model(tiers.values(), specialists)
        with_options = [*specialists, *list_configured_roles(settings)]
        options = group_specialists_by_option(with_options, tiers)
        yield from check_models(server, models, managed, options)
        yield from check_code_execution(server, settings, specialists)
    else:
        for name, users in managed.items():
            yield from check_managed_context({}, name, users)


def _check_policy(file: Path) -> Finding:
    """Return whether the policy of tools can be read."""
    about = "this shell: policy of tools"
    try:
        rules = read_rules(file)
    except UserError as error:
        return Finding(CheckLevel.FAIL, about, str(error), "correct this file")
    return Finding(CheckLevel.OK, about, f"{file}: {format_count(len(rules.rules), 'rule')}")


def _without_broker() -> Iterator[Finding]:
    yield Finding(
        CheckLevel.OK,
        "broker",
        "HANDOFF_REDIS_URL is not set: `handoff run` starts a private Redis and private workers",
    )
    try:
        server = find_server()
    except UserError as error:
        yield Finding(CheckLevel.FAIL, "private Redis", "there is no server binary", str(error))
    else:
        number = ".".join(str(part) for part in read_version(server))
        yield Finding(CheckLevel.OK, "private Redis", f"{server}, version {number}")


def _check_broker(settings: Settings) -> Iterator[Finding]:
    """Yield the findings about the broker, its live processes and its jobs, and those of this
    shell that depend on them.
    """
    processes: list[LiveProcess] = []
    specialists: dict[str, SpecialistSpec] = {}
    try:
        jobs = create_client(settings)
        facts = jobs.store.health.read_facts()
        refusal = jobs.store.health.find_refusal()
        processes = jobs.store.presence.list_processes()
        if not processes and refusal is None:
            yield Finding(CheckLevel.FAIL, "fleet", NOBODY_LIVE, START_ALL)
        if refusal is None:
            yield Finding(CheckLevel.OK, "broker and backend", "answers commands")
        else:
            yield _make_broker_finding(refusal)
        yield from check_persistence(facts)
        yield _check_signatures(jobs)
        nodes = None if refusal else ask_for_queues(settings)
        yield from check_live_processes(
            processes, jobs.store.connection.now(), version("handoff-queue")
        )
        yield from _check_supervisors(jobs, nodes)
        yield from _check_workers(jobs, can_announce=refusal is None)
        announcements = jobs.store.presence.read_announcements()
        for announcement in announcements:
            for spec in announcement.specialists:
                specialists[spec.name] = spec
        yield from check_contexts(announcements, settings.price_as)
        if nodes is not None:
            yield from check_brokers(select_announced_processes(processes), nodes)
        yield from find_paused_agents(jobs.store.pauses.read_all())
        yield from check_budgets(jobs.store.daily_budgets.read_today(DEFAULT_TENANT))
        yield from check_memory(jobs.store.notes.count(DEFAULT_TENANT))
        yield from _check_waiting_jobs(jobs)
        yield from _check_leftovers(jobs)
    except (StoreUnavailable, UnusableRedis) as error:
        yield _make_broker_finding(str(error))
    yield from _check_shell(
        settings, is_fleet_live=bool(processes), specialists=specialists.values()
    )


def _check_signatures(jobs: Client) -> Finding:
    """Return whether this shell signs its messages."""
    trust = jobs.store.trust
    if not trust.is_on:
        return Finding(
            CheckLevel.OK, "signatures", NOT_SIGNED, "handoff keys init DIR, and set HANDOFF_KEYS"
        )
    try:
        return Finding(CheckLevel.OK, "signatures", f"this shell signs as {trust.signer.name}")
    except UserError as error:
        return Finding(CheckLevel.WARN, "signatures", str(error))


def _make_broker_finding(why: str) -> Finding:
    problem, _, fix = why.partition(": ")
    return Finding(CheckLevel.FAIL, "broker", problem, fix or "check HANDOFF_REDIS_URL")


def check_persistence(facts: RedisFacts) -> Iterator[Finding]:
    """Yield findings about Redis: its version, role, persistence, eviction and memory. Pure."""
    version = ".".join(map(str, facts.version)) or "unknown"
    if facts.version >= OLDEST:
        yield Finding(CheckLevel.OK, "version", version)
    else:
        yield Finding(CheckLevel.FAIL, "version", version, "install Redis 6.2 or newer, or Valkey")
    if not facts.is_primary:
        yield Finding(
            CheckLevel.FAIL,
            "role",
            "this Redis is a replica",
            "point HANDOFF_REDIS_URL at the primary",
        )
    if facts.append_only:
        yield Finding(CheckLevel.OK, "persistence", "append-only file")
    else:
        report = "appendonly is off: a restart of Redis loses jobs"
        fix = "redis-cli CONFIG SET appendonly yes, and in redis.conf"
        yield Finding(CheckLevel.WARN, "persistence", report, fix)
    policy = f"maxmemory-policy {facts.eviction}"
    if facts.eviction == "noeviction":
        yield Finding(CheckLevel.OK, "eviction", policy)
    else:
        fix = "CONFIG SET maxmemory-policy noeviction: an evicted journal is a lost job"
        yield Finding(CheckLevel.FAIL, "eviction", policy, fix)
    limit = facts.max_memory_bytes
    if limit:
        percent = f"{100 * facts.used_memory_bytes // limit} % of maxmemory"
        if facts.used_memory_bytes > FULL * limit:
            fix = "raise maxmemory, or delete old jobs (handoff delete)"
            yield Finding(CheckLevel.WARN, "memory", percent, fix)
        else:
            yield Finding(CheckLevel.OK, "memory", percent)
    if not facts.limits_clients:
        report = "a client that reads no answer can fill the memory of Redis"
        fix = "redis-cli CONFIG SET client-output-buffer-limit 'normal 512mb 256mb 60'"
        yield Finding(CheckLevel.WARN, "clients", report, f"{fix}, and in redis.conf")


def _check_supervisors(
    jobs: Client, nodes: Mapping[str, Collection[str]] | None
) -> Iterator[Finding]:
    """Yield findings about supervisors.

    Args:
        nodes: the Celery nodes. None if they cannot be asked, because Redis takes no writes.
    """
    queue_names = (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)
    for queue, waiting in jobs.store.health.count_messages(queue_names).items():
        if nodes is None:
            yield Finding(CheckLevel.WARN, f"queue {queue}", f"{waiting} waiting; {UNASKED}")
            continue
        serving = sum(queue in queues for queues in nodes.values())
        report = f"{format_count(serving, 'process')}, {waiting} waiting"
        if serving:
            yield Finding(CheckLevel.OK, f"queue {queue}", report)
        else:
            yield Finding(CheckLevel.FAIL, f"queue {queue}", report, START_A_SUPERVISOR)


def _check_workers(jobs: Client, *, can_announce: bool) -> Iterator[Finding]:
    served = jobs.store.presence.load_served_specialists()
    if not served and not can_announce:
        yield Finding(CheckLevel.WARN, "workers", UNASKED)
    elif not served:
        yield Finding(CheckLevel.FAIL, "workers", "no worker serves any specialist", START_WORKERS)
    for name, specialist in served.items():
        processes = format_count(len(specialist.workers), "process")
        detail = f"{processes} with {specialist.slots} slots, {specialist.queued} waiting"
        yield Finding(CheckLevel.OK, f"queue {name}", detail)
    announcements = jobs.store.presence.read_announcements()
    yield from find_lost_slots(announcements)
    yield from find_not_served(announcements)
    depths = jobs.store.health.read_depths()
    for queue in jobs.store.connection.queue_access.refused:
        yield build_refused_queue_finding(queue, "this shell")
    yield from find_unserved_queues(depths, {*served, *RESERVED})


def find_not_served(announcements: Iterable[Announcement]) -> Iterator[Finding]:
    """Yield the specialists that a worker cannot serve on its machine."""
    for worker in announcements:
        for name, reason in sorted(worker.not_served.items()):
            yield Finding(
                CheckLevel.WARN,
                f"worker {replace_unsafe(worker.worker)}",
                f"it cannot serve {replace_unsafe(name)}: {replace_unsafe(reason)}",
                "correct this on its machine, or take `sandbox` or `runner` out of the"
                " specialist's file",
            )


def find_lost_slots(announcements: Iterable[Announcement]) -> Iterator[Finding]:
    """Yield workers with lost slots. It is a failure if a worker has no other slots. Pure."""
    for worker in announcements:
        if not worker.lost_slots:
            continue
        level = CheckLevel.FAIL if worker.lost_slots >= worker.slots else CheckLevel.WARN
        slots = format_count(worker.slots, "slot")
        report = f"{worker.lost_slots} of {slots} are lost: their tasks never ended"
        yield Finding(
            level, f"worker {replace_unsafe(worker.worker)}", report, "start this worker again"
        )


def find_ignored_variables(environment: Collection[str]) -> Iterator[Finding]:
    """Yield variables that name a broker for other Celery applications. Pure."""
    for name in NAME_A_BROKER:
        if name in environment:
            yield Finding(
                CheckLevel.OK,
                f"this shell: variable {name}",
                "set, and ignored: HANDOFF_REDIS_URL names the broker",
            )


def find_paused_agents(pauses: Mapping[str, Pause]) -> Iterator[Finding]:
    """Yield the paused agents. Pure."""
    for agent, pause in pauses.items():
        why = ""
        if pause.reason:
            why = f": {replace_unsafe(pause.reason)}"
        yield Finding(
            CheckLevel.WARN,
            f"agent {replace_unsafe(agent)}",
            f"paused since {format_clock(pause.at)}{why}",
            f"`handoff unpause {replace_unsafe(agent)}`",
        )


def check_budgets(today: TodaysBudgets) -> Iterator[Finding]:
    """Yield the spending of the day of all jobs and of the default tenant, with the limits.
    Pure.
    """
    yield _check_budget("budget of the day", today.installation, "HANDOFF_DAY_", today)
    if today.tenant.is_capped:
        about = f"budget of the day, tenant {DEFAULT_TENANT}"
        yield _check_budget(about, today.tenant, "HANDOFF_TENANT_DAY_", today)
    if today.most_open_jobs:
        yield _describe_open_jobs(today)


def check_memory(notes: int) -> Iterator[Finding]:
    """Yield a warning if the memory of the default tenant is full, or almost. Pure.

    Args:
        notes: number of its notes.
    """
    if notes < MEMORY_FULL_FROM * MAX_NOTES:
        return
    report = f"{notes:,} of {MAX_NOTES:,} notes"
    if notes >= MAX_NOTES:
        report += ": agents keep no new facts"
    fix = "`handoff memory` lists them, `handoff memory delete PATH` removes one"
    yield Finding(CheckLevel.WARN, f"memory of tenant {DEFAULT_TENANT}", report, fix)


def _describe_open_jobs(today: TodaysBudgets) -> Finding:
    about = f"open jobs, tenant {DEFAULT_TENANT}"
    count = f"{today.open_jobs:,} of {today.most_open_jobs:,}"
    if today.open_jobs < today.most_open_jobs:
        return Finding(CheckLevel.OK, about, count)
    fix = "wait until jobs end, or raise HANDOFF_TENANT_OPEN_JOBS for supervisors"
    return Finding(CheckLevel.WARN, about, f"{count}: no more jobs are accepted", fix)


def _check_budget(
    about: str, spending: DaySpending, settings: str, today: TodaysBudgets
) -> Finding:
    """Return the finding about a budget of the day.

    Args:
        settings: beginning of the names of the settings that limit it.
    """
    if not spending.is_capped and not spending.reached:
        return Finding(CheckLevel.OK, about, f"{spending}, no cap")
    if not spending.reached:
        return Finding(CheckLevel.OK, about, f"{spending}")
    fix = (
        f"{today.more}; or raise {settings}USD or {settings}TOKENS for supervisors, and start one"
        " again"
    )
    return Finding(CheckLevel.WARN, about, f"{spending}: spent{spending.need}", fix)


def find_unserved_queues(
    depths: Iterable[QueueDepth], served: Collection[str]
) -> Iterator[Finding]:
    """Yield queues with waiting messages and without a worker. Pure."""
    for depth in depths:
        if not depth.messages or depth.queue in served:
            continue
        name = replace_unsafe(depth.queue)
        report = f"{format_count(depth.messages, 'message')} waiting, and no worker serves it"
        if depth.waiting_handoffs:
            fix = (
                f"`handoff worker {name}` (with --specialists DIR for your own specialist), or"
                " `handoff cancel` for the waiting jobs"
            )
        else:
            fix = f"their jobs have ended: `redis-cli DEL {name}` removes them"
        yield Finding(CheckLevel.WARN, f"queue {name}", report, fix)


def _check_waiting_jobs(jobs: Client) -> Iterator[Finding]:
    """Yield the jobs that wait for a person. They are not a fault of the system."""
    waiting = list(jobs.store.jobs.iterate_matching(JobFilter(frozenset({JobStatus.WAITING}))))
    if not waiting:
        return
    asked_at: list[float] = []
    for info in jobs.store.jobs.read(waiting):
        if info.asked_at:
            asked_at.append(info.asked_at)
    since = ""
    if asked_at:
        since = f", the first since {format_clock(min(asked_at))}"
    yield Finding(
        CheckLevel.OK,
        "waiting for a person",
        f"{format_count(len(waiting), 'job')}{since}",
        "`handoff list --status waiting` shows the reasons",
    )


def _check_leftovers(jobs: Client) -> Iterator[Finding]:
    """Yield messages without a queue, and the number of dead letters."""
    unrouted = jobs.store.health.count_messages([UNROUTED_QUEUE])[UNROUTED_QUEUE]
    if unrouted:
        yield Finding(
            CheckLevel.WARN,
            f"queue {UNROUTED_QUEUE}",
            f"{unrouted} messages without a queue",
            "find the program that publishes them",
        )
    letters = len(jobs.store.dead_letters.list_newest())
    if not letters:
        yield Finding(CheckLevel.OK, "dead letters", "none")
        return
    yield Finding(
        CheckLevel.WARN,
        "dead letters",
        f"{format_count(letters, 'message')} could not be handled",
        "`handoff dead` lists them, `handoff dead show ID` shows one, `handoff dead drop --all`"
        " clears them",
    )


class ModelAccess(NamedTuple):
    """Whether the model's server can be used."""

    level: CheckLevel
    report: str
    fix: str = ""


def check_model_access(settings: Settings) -> ModelAccess:
    """Return whether the model of these settings can be used. The offline model is a warning."""
    if settings.is_offline:
        fix = "set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL for a server of your own"
        return ModelAccess(CheckLevel.WARN, OFFLINE, fix)
    names = f"{settings.supervisor_model}, {settings.specialist_model}"
    if settings.model_provider != "anthropic":
        return _check_provider(settings, names)
    server = create_model_server(settings)
    return _ask(server.base, dict(server.headers), names)


def _check_provider(settings: Settings, names: str) -> ModelAccess:
    """Check that a client can be made. No free request works with all providers."""
    try:
        check_extra("worker", "a worker", "worker")
        from handoff_queue.shared.runtime.models import create_provider_models  # imports the SDK

        create_provider_models(settings)
    except UserError as error:
        fix = "a worker started from here would refuse to start"
        return ModelAccess(CheckLevel.FAIL, str(error), fix)
    report = f"{settings.model_provider} ({names}); its first call checks the credentials"
    return ModelAccess(CheckLevel.OK, report)


def _ask(base: str, headers: dict[str, str], names: str) -> ModelAccess:
    """Ask the model's server for one model, which costs nothing.

    Args:
        names: the models that processes started from this shell would use.
    """
    try:
        request = urllib.request.Request(f"{base}/v1/models?limit=1", headers=headers)  # noqa: S310 (http and https only)
        with open_without_redirects(request):
            return ModelAccess(CheckLevel.OK, f"{base} accepts the key ({names})")
    except urllib.error.HTTPError as error:
        with error:  # its connection is open
            return _describe_refused_request(base, error.code, names)
    except (OSError, ValueError, HTTPException) as error:
        fix = _CHECK
        if "Tunnel connection failed: 407" in str(error):
            fix = _PROXY_REFUSES
        report = f"{base} cannot be reached ({_describe_reason(error)})"
        return ModelAccess(CheckLevel.FAIL, report, fix)


def _describe_refused_request(base: str, status: int, names: str) -> ModelAccess:
    """Return the meaning of an answer of a server or a proxy that lists no models.

    Args:
        status: HTTP status of the answer.
        names: see `_ask`.
    """
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return ModelAccess(CheckLevel.FAIL, f"{base} cannot be reached (407)", _PROXY_REFUSES)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        report = f"{base} redirects to another address ({status})"
        return ModelAccess(CheckLevel.FAIL, report, _NO_REDIRECTS)
    if status in _REFUSED:
        report = f"{base} refuses the key ({status})"
        return ModelAccess(CheckLevel.FAIL, report, "check ANTHROPIC_API_KEY")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ModelAccess(CheckLevel.WARN, f"{base} answers {status}", "try again later")
    report = f"{base} answers ({status} to a list of models; {names})"
    return ModelAccess(CheckLevel.OK, report)


def _describe_reason(error: Exception) -> str:
    """Return the operating system's text for a failed connection, or else the type of the
    error.

    Other texts may quote the request, which contains the key.
    """
    reason = getattr(error, "reason", error)
    if isinstance(reason, OSError):
        return str(reason)
    return type(reason).__name__
