"""Findings of `handoff doctor` about the live processes, and the queues that the live Celery nodes
report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from handoff_queue.shared.settings.settings import OFFLINE_MODEL
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.cli.display.terminal import shorten

if TYPE_CHECKING:
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.shared.store.presence import LiveProcess
    from handoff_queue.shared.types.presence import ModelCalls, Node

COUNT_FOR_S = 1.0
"""Seconds that the command waits after the last reply of a Celery node. A node replies within
some ms, but the number of nodes is unknown.
"""


class CheckLevel(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    level: CheckLevel
    about: str
    report: str
    fix: str = ""


MAX_NAMED = 5
"""Processes, models or agents that one line names."""
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


def select_announced_processes(processes: Iterable[LiveProcess]) -> list[AnnouncedProcess]:
    """Return the processes whose announcement this version can read."""
    announced: list[AnnouncedProcess] = []
    for process in processes:
        if process.node is not None:
            announced.append(AnnouncedProcess(process.kind, process.name, process.node))
    return announced


def check_live_processes(
    processes: Sequence[LiveProcess], now: float, own_version: str
) -> Iterator[Finding]:
    """Yield the facts of all live processes, their failing model calls, and their differences.

    Args:
        now: Unix seconds.
        own_version: version of the package that runs this command.
    """
    announced = select_announced_processes(processes)
    yield from _check_unreadable(processes)
    yield from _iterate_facts(announced, now)
    yield from check_failing_models(announced, now)
    yield from check_refused_queues(announced)
    yield from check_mixtures(announced, own_version)
    if announced and all(process.node.model == OFFLINE_MODEL for process in announced):
        fix = (
            "start workers and supervisors with ANTHROPIC_API_KEY, or with ANTHROPIC_BASE_URL for a"
            " server of your own"
        )
        yield Finding(CheckLevel.WARN, "model of the fleet", OFFLINE, fix)


def _check_unreadable(processes: Iterable[LiveProcess]) -> Iterator[Finding]:
    for process in processes:
        if process.node is None:
            yield Finding(
                CheckLevel.WARN,
                f"{process.kind} {shorten(process.name, 100)}",
                "its announcement cannot be read: another version may have written it",
                "start it again with the version of this command",
            )


def _iterate_facts(processes: Iterable[AnnouncedProcess], now: float) -> Iterator[Finding]:
    """Yield one line for all processes of a kind that announce the same."""
    alike: dict[tuple[str, ...], list[AnnouncedProcess]] = defaultdict(list)
    for process in processes:
        node = process.node
        models = _join_names(sorted(set(node.models.values())))
        facts = (process.kind, node.version, node.broker, node.model, node.server, models)
        alike[facts].append(process)
    for (_, version, broker, provider, server, models), group in alike.items():
        slots = sum(process.node.slots for process in group)
        if provider == OFFLINE_MODEL:
            model = provider
        else:
            model = f"{provider} ({models})"
        address = ""
        if server:
            address = f" at {server}"
        parts = [
            f"version {version or 'unknown'}",
            format_count(slots, "slot"),
            f"broker {broker or 'unknown'}",
            f"model {model}{address}",
            _describe_newest_call(group, now),
        ]
        if len(group) > 1:
            parts.append(_join_names([process.name for process in group]))
        yield Finding(CheckLevel.OK, _process_names(group), shorten(", ".join(parts), 1_000))


def _describe_newest_call(group: Iterable[AnnouncedProcess], now: float) -> str:
    states: list[ModelCalls] = []
    for process in group:
        states += process.node.calls
    if not states:
        return "no model call yet"
    newest = max(states, key=lambda calls: calls.called_at)
    outcome = "succeeded"
    if newest.failures:
        outcome = "failed"
    return f"last model call {outcome} {_format_ago(newest.called_at, now)}"


def check_failing_models(processes: Iterable[AnnouncedProcess], now: float) -> Iterator[Finding]:
    """Yield each model whose newest calls failed, with the words of its server.

    The check fails for a default model of the process, and for the model of its newest call. A
    model that only one job asked for is a warning after other calls succeed. A short overload
    is a warning, too.
    """
    alike: dict[tuple[str, str, str], list[tuple[AnnouncedProcess, ModelCalls]]] = defaultdict(list)
    for process in processes:
        for calls in process.node.calls:
            if calls.failures:
                alike[process.kind, calls.model, calls.error].append((process, calls))
    for (_, model, error), group in alike.items():
        level = CheckLevel.WARN
        failures = 0
        newest = 0.0
        failing: list[AnnouncedProcess] = []
        for process, calls in group:
            failing.append(process)
            failures += calls.failures
            newest = max(newest, calls.failed_at or 0.0)
            if _is_failure(process, calls, now):
                level = CheckLevel.FAIL
        yield Finding(
            level,
            f"model {shorten(model, 100)}",
            f"{_describe_last_calls(failures)} of {_process_names(failing)} failed,"
            f" the newest {_format_ago(newest, now)}: {shorten(error, 400)}",
            CHECK_THE_SERVER,
        )


def check_refused_queues(processes: Iterable[AnnouncedProcess]) -> Iterator[Finding]:
    """Yield each queue that live processes leave out, because their Redis user may not use it."""
    processes_by_queue: dict[str, list[AnnouncedProcess]] = defaultdict(list)
    for process in processes:
        for queue in process.node.refused_queues:
            processes_by_queue[queue].append(process)
    for queue, group in sorted(processes_by_queue.items()):
        yield build_refused_queue_finding(queue, _process_names(group))


def build_refused_queue_finding(queue: str, processes: str) -> Finding:
    """Return the finding that some processes, named in words, leave out a queue."""
    name = shorten(queue, 100)
    return Finding(
        CheckLevel.WARN,
        f"queue {name}",
        f"Redis does not let {processes} use this queue, so its steps fail",
        f"`handoff keys init DIR --redis URL --specialist {name}` adds a specialist to the Redis"
        " users; or stop the worker that announces an unknown name",
    )


def _is_failure(process: AnnouncedProcess, calls: ModelCalls, now: float) -> bool:
    if calls.is_busy and now - (calls.failing_since or now) < BUSY_FOR_S:
        return False
    is_newest = calls.called_at >= max(other.called_at for other in process.node.calls)
    return is_newest or calls.model in process.node.models.values()


def _describe_last_calls(count: int) -> str:
    if count == 1:
        return "the last call"
    return f"the last {count} calls"


def check_mixtures(processes: Sequence[AnnouncedProcess], own_version: str) -> Iterator[Finding]:
    """Yield the differences between processes that should be alike: versions, providers,
    servers, and the models of an agent.
    """
    versions = _collect_values(processes, "version") - {""}
    if len(versions) > 1:
        values = _group_by_value(processes, "version")
        yield _build_difference("versions", values, "start all processes again with one version")
    elif versions and own_version not in versions:
        yield Finding(
            CheckLevel.WARN,
            "this shell: version",
            f"{own_version}, and the fleet runs {_join_names(sorted(versions))}",
            "use the version of the fleet here",
        )
    if len(_collect_values(processes, "model")) > 1:
        fix = "give all processes the same key, or HANDOFF_OFFLINE=true"
        yield _build_difference("providers", _group_by_value(processes, "model"), fix)
    elif len(_collect_values(processes, "server")) > 1:
        fix = "give all processes the same ANTHROPIC_BASE_URL"
        yield _build_difference("model servers", _group_by_value(processes, "server"), fix)
    differing = _list_agent_models(processes)
    if differing:
        fix = (
            "give all processes the same HANDOFF_SUPERVISOR_MODEL, HANDOFF_SPECIALIST_MODEL and"
            " HANDOFF_REVIEW_MODEL"
        )
        yield _build_difference("models", _join_names(differing), fix)


def _build_difference(about: str, values: str, fix: str) -> Finding:
    return Finding(CheckLevel.WARN, about, f"processes differ: {values}", fix)


def _collect_values(processes: Iterable[AnnouncedProcess], field: str) -> set[str]:
    """Return the different values of a field of the announcements."""
    return {getattr(process.node, field) for process in processes}


def _list_agent_models(processes: Iterable[AnnouncedProcess]) -> list[str]:
    """Return `agent: model or model` of each agent that processes of the same provider run with
    different models.
    """
    by_agent: dict[tuple[str, str], set[str]] = defaultdict(set)
    for process in processes:
        for agent, model in process.node.models.items():
            by_agent[process.node.model, agent].add(model)
    differing: list[str] = []
    for (_, agent), models in sorted(by_agent.items()):
        if len(models) > 1:
            differing.append(f"{agent}: {' or '.join(sorted(models))}")
    return differing


def check_brokers(
    processes: Iterable[AnnouncedProcess], answering: Collection[str]
) -> Iterator[Finding]:
    """Yield a line for each process that does not answer on this broker, and one for the
    others.

    Args:
        answering: the Celery nodes that answer on this broker.
    """
    broker_urls = set[str]()
    for process in processes:
        node = process.node
        if node.node in answering:
            broker_urls.add(shorten(node.broker, 200))
            continue
        yield Finding(
            CheckLevel.WARN,
            f"process {shorten(node.node, 100)}",
            "does not answer on this broker; it takes its messages from"
            f" {shorten(node.broker, 200)}",
            "start it again, with the HANDOFF_REDIS_URL of this command",
        )
    if broker_urls:
        yield Finding(CheckLevel.OK, "broker of processes", ", ".join(sorted(broker_urls)))


def _group_by_value(processes: Sequence[AnnouncedProcess], field: str) -> str:
    """Return the values of a field with their processes: `0.1 (worker h:1), 0.2 (2 workers)`."""
    groups: dict[str, dict[str, list[AnnouncedProcess]]] = defaultdict(lambda: defaultdict(list))
    for process in processes:
        groups[getattr(process.node, field) or "unknown"][process.kind].append(process)
    parts: list[str] = []
    for value, by_kind in sorted(groups.items()):
        kinds = ", ".join(_process_names(group) for _, group in sorted(by_kind.items()))
        parts.append(f"{value} ({kinds})")
    return _join_names(parts)


def _process_names(group: Sequence[AnnouncedProcess]) -> str:
    if len(group) == 1:
        return f"{group[0].kind} {shorten(group[0].name, 100)}"
    return format_count(len(group), group[0].kind)


def _join_names(names: Sequence[str]) -> str:
    more = ""
    if len(names) > MAX_NAMED:
        more = f" and {len(names) - MAX_NAMED} more"
    return ", ".join(shorten(name, 200) for name in names[:MAX_NAMED]) + more


def _format_ago(at: float, now: float) -> str:
    seconds = max(0.0, now - at)
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min ago"
    return f"{seconds / 3_600:.0f} h ago"


def ask_for_queues(settings: Settings) -> dict[str, set[str]]:
    """Return the queues of each live Celery node."""
    from kombu.exceptions import SerializationError

    from handoff_queue.shared.broker.celery_app import make_app
    from handoff_queue.shared.settings.settings import get_redis_url

    app = make_app("cli", get_redis_url(settings), settings, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE))
    queues_of: dict[str, set[str]] = {}

    def record(reply: object) -> None:
        queues_of.update(parse_queues(reply))

    # A worker that was taken over may send a reply that kombu cannot read.
    with suppress(TypeError, ValueError, RecursionError, SerializationError):
        app.control.broadcast("active_queues", reply=True, timeout=COUNT_FOR_S, callback=record)
    return queues_of


def parse_queues(reply: object) -> dict[str, set[str]]:
    """Return the queues of the nodes in a reply. Every program that reaches Redis can send one."""
    queues_of: dict[str, set[str]] = {}
    if not isinstance(reply, Mapping):
        return queues_of
    for node, queues in reply.items():
        names = queues_of.setdefault(str(node), set())
        if not isinstance(queues, list):
            continue
        for queue in queues:
            if isinstance(queue, Mapping) and isinstance(queue.get("name"), str):
                names.add(queue["name"])
    return queues_of
