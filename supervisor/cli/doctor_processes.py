"""Findings of `handoff doctor` about the live processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from handoff_queue.shared.settings.settings import OFFLINE_MODEL
from handoff_queue.supervisor.cli.display.terminal import figures, short

if TYPE_CHECKING:
    from handoff_queue.shared.store.presence import LiveProcess
    from handoff_queue.shared.types.presence import ModelCalls, Node


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
    fix: str = ""


MOST_NAMED = 5
"""Processes, models or roles that one line names."""
BUSY_FOR_S = 60.0
"""Seconds of a rate limit or an overload until it counts as a failure."""
OFFLINE = "the offline model: it only quotes and arranges documents"
CHECK_THE_SERVER = (
    "check the key, ANTHROPIC_BASE_URL and the network of these processes;"
    " the next call that succeeds clears this line"
)


@dataclass(frozen=True, slots=True)
class AnnouncedProcess:
    """A live process whose announcement can be read."""

    kind: str
    name: str
    node: Node


def readable_ones(processes: Iterable[LiveProcess]) -> list[AnnouncedProcess]:
    """Return the processes whose announcement this version can read."""
    ones: list[AnnouncedProcess] = []
    for one in processes:
        if one.node is not None:
            ones.append(AnnouncedProcess(one.kind, one.name, one.node))
    return ones


def live_processes(
    processes: Sequence[LiveProcess], now: float, own_version: str
) -> Iterator[Finding]:
    """Yield the facts of all live processes, their failing model calls, and their differences.
    `now`: Unix seconds.
    """
    told = readable_ones(processes)
    yield from _unreadable(processes)
    yield from _facts(told, now)
    yield from failing_models(told, now)
    yield from mixtures(told, own_version)
    if told and all(one.node.model == OFFLINE_MODEL for one in told):
        fix = "start workers and supervisors with ANTHROPIC_API_KEY, or with ANTHROPIC_BASE_URL for a server of your own"
        yield Finding(Level.WARN, "model of the fleet", OFFLINE, fix)


def _unreadable(processes: Iterable[LiveProcess]) -> Iterator[Finding]:
    for one in processes:
        if one.node is None:
            yield Finding(
                Level.WARN,
                f"{one.kind} {short(one.name, 100)}",
                "its announcement cannot be read: another version may have written it",
                "start it again with the version of this command",
            )


def _facts(told: Iterable[AnnouncedProcess], now: float) -> Iterator[Finding]:
    """Yield a line for the processes of a kind that announce the same."""
    alike: dict[tuple[str, ...], list[AnnouncedProcess]] = defaultdict(list)
    for one in told:
        node = one.node
        models = _listed(sorted(set(node.models.values())))
        same = (one.kind, node.version, node.broker, node.model, node.server, models)
        alike[same].append(one)
    for (_, version, broker, provider, server, models), group in alike.items():
        slots = sum(one.node.slots for one in group)
        if provider == OFFLINE_MODEL:
            model = provider
        else:
            model = f"{provider} ({models})"
        parts = [
            f"version {version or 'unknown'}",
            figures(slots, "slot"),
            f"broker {broker or 'unknown'}",
            f"model {model or 'unknown'}{f' at {server}' if server else ''}",
            _newest_call(group, now),
        ]
        if len(group) > 1:
            parts.append(_listed([one.name for one in group]))
        yield Finding(Level.OK, _who(group), short(", ".join(parts), 1_000))


def _newest_call(group: Iterable[AnnouncedProcess], now: float) -> str:
    states: list[ModelCalls] = []
    for process in group:
        states += process.node.calls
    if not states:
        return "no model call yet"
    newest = max(states, key=lambda calls: calls.called_at)
    outcome = "succeeded"
    if newest.failures:
        outcome = "failed"
    return f"last model call {outcome} {_ago(newest.called_at, now)}"


def failing_models(told: Iterable[AnnouncedProcess], now: float) -> Iterator[Finding]:
    """Yield each model whose newest calls failed, with the words of its server.

    The check fails for a default model of the process, and for the model of its newest call. A
    model that only one job asked for is a warning after other calls succeed. A short overload
    is a warning, too.
    """
    alike: dict[tuple[str, str, str], list[tuple[AnnouncedProcess, ModelCalls]]] = defaultdict(list)
    for one in told:
        for calls in one.node.calls:
            if calls.failures:
                alike[one.kind, calls.model, calls.error].append((one, calls))
    for (_, model, error), group in alike.items():
        count = sum(calls.failures for _, calls in group)
        newest = max(calls.failed_at or 0.0 for _, calls in group)
        fails = any(_is_failure(one, calls, now) for one, calls in group)
        who = _who([one for one, _ in group])
        yield Finding(
            Level.FAIL if fails else Level.WARN,
            f"model {short(model, 100)}",
            f"{_last_calls(count)} of {who} failed, the newest {_ago(newest, now)}: {short(error, 400)}",
            CHECK_THE_SERVER,
        )


def _is_failure(one: AnnouncedProcess, calls: ModelCalls, now: float) -> bool:
    if calls.is_busy and now - (calls.failing_since or now) < BUSY_FOR_S:
        return False
    is_newest = calls.called_at >= max(other.called_at for other in one.node.calls)
    return is_newest or calls.model in one.node.models.values()


def _last_calls(count: int) -> str:
    if count == 1:
        return "the last call"
    return f"the last {count} calls"


def mixtures(told: Sequence[AnnouncedProcess], own_version: str) -> Iterator[Finding]:
    """Yield the differences between processes that should be alike: versions, providers,
    servers, and the models of a role.
    """
    versions = {one.node.version for one in told} - {""}
    if len(versions) > 1:
        fix = "start all of them again with one version"
        yield Finding(Level.WARN, "versions", f"processes differ: {_by(told, 'version')}", fix)
    elif versions and own_version not in versions:
        yield Finding(
            Level.WARN,
            "this shell: version",
            f"{own_version}, and the fleet runs {_listed(sorted(versions))}",
            "use the version of the fleet here",
        )
    if len({one.node.model for one in told}) > 1:
        fix = "give all of them the same key, or HANDOFF_OFFLINE=true"
        yield Finding(Level.WARN, "providers", f"processes differ: {_by(told, 'model')}", fix)
    elif len({one.node.server for one in told}) > 1:
        fix = "give all of them the same ANTHROPIC_BASE_URL"
        yield Finding(Level.WARN, "model servers", f"processes differ: {_by(told, 'server')}", fix)
    if differing := _models_of_a_role(told):
        fix = "give all of them the same HANDOFF_SUPERVISOR_MODEL, HANDOFF_SPECIALIST_MODEL and HANDOFF_REVIEWER_MODEL"
        yield Finding(Level.WARN, "models", f"processes differ: {_listed(differing)}", fix)


def _models_of_a_role(told: Iterable[AnnouncedProcess]) -> list[str]:
    """Return `role: model or model` of each role that processes of the same provider run with
    different models.
    """
    by_role: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one in told:
        for role, model in one.node.models.items():
            by_role[one.node.model, role].add(model)
    return [
        f"{role}: {' or '.join(sorted(models))}"
        for (_, role), models in sorted(by_role.items())
        if len(models) > 1
    ]


def brokers(told: Iterable[AnnouncedProcess], answering: Collection[str]) -> Iterator[Finding]:
    """Yield whether each process takes its messages from this broker. `answering`: the Celery
    nodes that answer on this broker.
    """
    used = set[str]()
    for one in told:
        if one.node.node in answering:
            used.add(short(one.node.broker, 200))
            continue
        yield Finding(
            Level.WARN,
            f"process {short(one.node.node, 100)}",
            f"does not answer on this broker; it takes its messages from {short(one.node.broker, 200)}",
            "start it again, with the HANDOFF_REDIS_URL of this command",
        )
    if used:
        yield Finding(Level.OK, "broker of processes", ", ".join(sorted(used)))


def _by(told: Sequence[AnnouncedProcess], field: str) -> str:
    """Return `0.1 (worker h:1), 0.2 (2 workers)`."""
    groups: dict[str, list[AnnouncedProcess]] = defaultdict(list)
    for one in told:
        groups[getattr(one.node, field) or "unknown"].append(one)
    kinds = {
        value: ", ".join(
            _who([one for one in group if one.kind == kind])
            for kind in sorted({one.kind for one in group})
        )
        for value, group in groups.items()
    }
    return _listed([f"{value} ({who})" for value, who in sorted(kinds.items())])


def _who(group: Sequence[AnnouncedProcess]) -> str:
    if len(group) == 1:
        return f"{group[0].kind} {short(group[0].name, 100)}"
    return figures(len(group), group[0].kind)


def _listed(names: Sequence[str]) -> str:
    more = ""
    if len(names) > MOST_NAMED:
        more = f" and {len(names) - MOST_NAMED} more"
    return ", ".join(short(name, 200) for name in names[:MOST_NAMED]) + more


def _ago(at: float, now: float) -> str:
    seconds = max(0.0, now - at)
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min ago"
    return f"{seconds / 3_600:.0f} h ago"
