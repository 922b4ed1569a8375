"""The fleet and the dead letters. Both concern all tenants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from handoff_queue.shared.store.fleet_load import FleetLoad, RunningHandoff
from handoff_queue.shared.store.metrics import OTHER
from handoff_queue.shared.store.pauses import Pause, PausedHandoff
from handoff_queue.shared.store.presence import LiveProcess
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.names import ROLES, ROLES_QUEUE, get_queue
from handoff_queue.supervisor.client.fleet_statistics import FleetStats, read_stats
from handoff_queue.supervisor.client.waiting_reasons import count_jobs_without_workers
from handoff_queue.supervisor.serve.console.pages import create_environment, go_to, render
from handoff_queue.supervisor.serve.console.session import OperatesFleet, ReadsFleet
from handoff_queue.supervisor.serve.fleet_routes import find_letter
from handoff_queue.supervisor.serve.problem_documents import Problem

MAX_HANDOFFS = 100
"""Most handoffs of each table of the page."""
MAX_PROCESSES = 50
"""Most processes of a version that the page names."""
MAX_LETTERS = 200
MAX_BODY_CHARS = 2_000
"""Most characters of a dead letter that the page shows."""

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Numbers of the ended handoffs of an agent since the store exists."""

    failed: int
    ended: int


@dataclass(frozen=True, slots=True)
class FleetPage:
    """The fleet at one moment."""

    stats: FleetStats
    load: FleetLoad
    versions: Mapping[str, tuple[LiveProcess, ...]]
    """Live processes by version."""
    paused_handoffs: tuple[PausedHandoff, ...]
    paused_count: int
    """Handoffs of paused agents. `paused_handoffs` has the oldest."""
    outcomes: Mapping[str, Outcomes]
    """Outcomes of the ended handoffs, by queue."""
    pauses: Mapping[str, Pause]
    alarms: tuple[str, ...]
    """One line for each queue that has work and that no process serves."""

    @property
    def running(self) -> list[RunningHandoff]:
        """Return the handoffs that have a slot."""
        return [handoff for handoff in self.load.at_work if handoff.deferred_until is None]

    @property
    def deferred(self) -> list[RunningHandoff]:
        """Return the handoffs that wait for their provider."""
        return [handoff for handoff in self.load.at_work if handoff.deferred_until is not None]


def read_fleet(store: Store) -> FleetPage:
    """Read the fleet."""
    load = store.fleet_load.now()
    stats = read_stats(store, load)
    agents = sorted({*load.waiting, *load.paused, *ROLES})
    paused_handoffs, paused_count = store.pauses.read_paused_handoffs(agents, MAX_HANDOFFS)
    return FleetPage(
        stats=stats,
        load=load,
        versions=_group_by_version(store.presence.list_processes()),
        paused_handoffs=tuple(paused_handoffs),
        paused_count=paused_count,
        outcomes=_collect_outcomes(stats, store.metrics.count_handoffs_by_outcome()),
        pauses=store.pauses.read_all(),
        alarms=tuple(_find_alarms(stats, count_jobs_without_workers(store))),
    )


def _collect_outcomes(
    stats: FleetStats, counts: Mapping[str, Mapping[str, int]]
) -> dict[str, Outcomes]:
    """Return the outcomes by queue. An agent without a count of its own is left out if some roles
    share a count.
    """
    outcomes: dict[str, Outcomes] = {}
    if OTHER not in counts:
        for agent_stats in (*stats.agents, stats.supervisor_roles):
            outcomes[agent_stats.agent] = Outcomes(0, 0)
    for agent, by_outcome in counts.items():
        queue = get_queue(agent)
        earlier = outcomes.get(queue, Outcomes(0, 0))
        failed = by_outcome.get(ResultStatus.FAILED, 0)
        ended = sum(by_outcome.get(status, 0) for status in ResultStatus)
        outcomes[queue] = Outcomes(earlier.failed + failed, earlier.ended + ended)
    return outcomes


def _group_by_version(processes: Iterable[LiveProcess]) -> dict[str, tuple[LiveProcess, ...]]:
    versions: dict[str, tuple[LiveProcess, ...]] = {}
    for process in processes:
        version = "a version that this server cannot read"
        if process.node:
            version = process.node.version or "unknown"
        versions[version] = (*versions.get(version, ()), process)
    return dict(sorted(versions.items()))


def _find_alarms(stats: FleetStats, unplanned: Mapping[tuple[str, ...], int]) -> list[str]:
    """Return the problems of the fleet, one text each, with the action that helps.

    Args:
        unplanned: number of jobs that wait for a worker of one of some specialists, by these.
    """
    alarms: list[str] = []
    for specialists, count in sorted(unplanned.items()):
        names = " or ".join(f"`{name}`" for name in specialists) or "any specialist"
        alarms.append(f"Jobs that wait for a worker of {names}: {count:,}. Start a worker.")
    for agent in stats.agents:
        if agent.queued and not agent.workers and not agent.is_paused:
            alarms.append(
                f"No worker serves {agent.agent}, and {agent.queued:,} handoffs wait for it: start"
                " a worker."
            )
    queued = stats.supervisor_roles.queued
    if (stats.open_jobs or queued) and not stats.supervisors:
        waiting = f" Handoffs of roles that wait: {queued:,}." if queued else ""
        alarms.append(
            f"No supervisor runs. Open jobs: {stats.open_jobs:,}.{waiting} Start a supervisor."
        )
    return alarms


@router.get("/fleet")
async def fleet(request: Request, visit: ReadsFleet) -> Response:
    """Show the fleet."""
    page = await run_in_threadpool(read_fleet, visit.access.store)
    return render(request, "fleet.html", visit, **_build_values(page))


@router.get("/fleet/live")
async def live(visit: ReadsFleet) -> Response:
    """Return the part of the page that changes."""
    page = await run_in_threadpool(read_fleet, visit.access.store)
    template = create_environment().get_template("fleet_live.html")
    text = template.render(visit=visit, csrf=visit.csrf, **_build_values(page))
    return Response(text, media_type="text/html")


def _build_values(page: FleetPage) -> dict[str, Any]:
    return {
        "page": page,
        "all_agents": (*page.stats.agents, page.stats.supervisor_roles),
        "most": MAX_HANDOFFS,
        "most_processes": MAX_PROCESSES,
        "roles": sorted(ROLES),
        "roles_queue": ROLES_QUEUE,
    }


@router.post("/fleet/pause")
async def pause(request: Request, visit: OperatesFleet) -> Response:
    """Pause an agent."""
    form = await request.form()
    await visit.access.jobs.pause(str(form.get("agent", "")), str(form.get("reason", "")))
    return go_to("/fleet")


@router.post("/fleet/unpause")
async def unpause(request: Request, visit: OperatesFleet) -> Response:
    """End the pause of an agent."""
    form = await request.form()
    await visit.access.jobs.unpause(str(form.get("agent", "")))
    return go_to("/fleet")


@router.get("/dead")
async def dead(request: Request, visit: ReadsFleet) -> Response:
    """Show the newest dead letters."""
    letters = await run_in_threadpool(visit.access.store.dead_letters.list_newest, MAX_LETTERS)
    return render(
        request, "dead.html", visit, letters=letters, most=MAX_LETTERS, max_chars=MAX_BODY_CHARS
    )


@router.post("/dead/{letter_id}/{action}")
async def act(visit: OperatesFleet, letter_id: str, action: str) -> Response:
    """Requeue or drop a dead letter."""
    letter = await find_letter(visit.access, letter_id)
    match action:
        case "requeue":
            await visit.access.jobs.requeue_dead(letter)
        case "drop":
            await visit.access.jobs.drop_dead(letter)
        case _:
            raise Problem(404, "there is no such action")
    return go_to("/dead")
