"""The fleet: specialists, statistics, budgets, dead letters and pauses."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from handoff_queue.shared.store.daily_budgets import DaySpending
from handoff_queue.shared.store.dead_letters import DeadLetter
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.client.argument_types import MAX_TENANT_CHARS
from handoff_queue.supervisor.client.fleet_statistics import read_stats
from handoff_queue.supervisor.client.json_forms import convert_letter, convert_specialist
from handoff_queue.supervisor.serve.authentication import (
    Access,
    OperatesFleet,
    Reads,
    ReadsFleet,
    choose_tenant,
)
from handoff_queue.supervisor.serve.problem_documents import Problem
from handoff_queue.supervisor.serve.request_body import PauseBody, describe_body, read_body

router = APIRouter(prefix="/v1", tags=["fleet"])


class Spending(BaseModel):
    """The spending of today."""

    usd: float
    tokens: int
    most_usd: float | None
    """The limit. Null: no limit."""
    most_tokens: int | None


class Budgets(BaseModel):
    """The daily budgets."""

    tenant: str
    of_tenant: Spending
    of_installation: Spending | None
    """Null: the token belongs to one tenant."""
    left_s: float
    """Seconds until the next day begins, at 00:00 UTC."""
    open_jobs: int
    """The jobs of the tenant that have not ended."""
    most_open_jobs: int | None
    """The limit of open jobs. Null: no limit."""


class AgentChange(BaseModel):
    """The effect on an agent."""

    agent: str
    is_paused: bool
    waited: int | None = None
    """The number of handoffs that waited; null: the agent was not paused."""


Agent = Annotated[str, Path(description="A specialist, or a role of the supervisor.")]
LetterId = Annotated[str, Path(description="The id of a dead letter.")]


@router.get("/specialists", summary="List the specialists")
async def specialists(access: Reads) -> list[dict[str, Any]]:
    """Return the specialists of live workers, as `handoff specialists --json` prints them.

    A token of a tenant does not see the fields about workers.
    """
    return await run_in_threadpool(list_specialists, access)


def list_specialists(access: Access) -> list[dict[str, Any]]:
    """Return the specialists of live workers. A tenant does not see the fields about workers."""
    specialists: list[dict[str, Any]] = []
    for specialist in access.store.presence.load_served_specialists().values():
        live_specialist = specialist if access.tenant is None else None
        specialists.append(convert_specialist(specialist.spec, live_specialist))
    return specialists


@router.get("/stats", summary="Read the load of the fleet")
async def stats(access: ReadsFleet) -> dict[str, Any]:
    """Return slots, queues, rate limits and spending, as `handoff stats --json` prints them."""
    fleet = await run_in_threadpool(lambda: read_stats(access.store, access.store.fleet_load.now()))
    return fleet.as_json()


@router.get("/budgets", response_model=Budgets, summary="Read the daily budgets")
async def budgets(
    access: Reads,
    tenant: Annotated[
        str | None,
        Query(min_length=1, max_length=MAX_TENANT_CHARS, description="Default: the token's."),
    ] = None,
) -> Budgets:
    """Return the spending of today and its limits."""
    tenant_name = choose_tenant(access.caller, tenant) or DEFAULT_TENANT
    today = await run_in_threadpool(access.store.daily_budgets.read_today, tenant_name)
    of_installation = None
    if access.tenant is None:
        of_installation = _build_spending(today.installation)
    return Budgets(
        tenant=tenant_name,
        of_tenant=_build_spending(today.tenant),
        of_installation=of_installation,
        left_s=today.left_s,
        open_jobs=today.open_jobs,
        most_open_jobs=today.most_open_jobs or None,
    )


def _build_spending(spending: DaySpending) -> Spending:
    return Spending(
        usd=to_usd(spending.microusd),
        tokens=spending.tokens,
        most_usd=to_usd(spending.most_microusd) if spending.most_microusd else None,
        most_tokens=spending.most_tokens or None,
    )


@router.get("/dead-letters", summary="List the dead letters")
async def dead_letters(
    access: ReadsFleet, limit: Annotated[int, Query(ge=1, le=1_000)] = 100
) -> list[dict[str, Any]]:
    """Return the newest dead letters, as `handoff dead --json` prints them."""
    letters = await run_in_threadpool(access.store.dead_letters.list_newest, limit)
    return [convert_letter(letter) for letter in letters]


async def find_letter(access: Access, letter_id: str) -> DeadLetter:
    """Return a dead letter.

    Raises:
        Problem: there is no such letter.
    """
    try:
        return await run_in_threadpool(access.store.dead_letters.find, letter_id)
    except UserError as error:
        raise Problem(404, str(error)) from error


@router.post(
    "/dead-letters/{letter_id}/requeue",
    status_code=204,
    response_class=Response,
    summary="Requeue a dead letter",
)
async def requeue(access: OperatesFleet, letter_id: LetterId) -> Response:
    """Publish the message again, and drop the letter. Fix the cause first."""
    await access.jobs.requeue_dead(await find_letter(access, letter_id))
    return Response(status_code=204)


@router.delete(
    "/dead-letters/{letter_id}",
    status_code=204,
    response_class=Response,
    summary="Drop a dead letter",
)
async def drop(access: OperatesFleet, letter_id: LetterId) -> Response:
    """Delete the letter. Its message is lost."""
    letter = await find_letter(access, letter_id)
    await access.jobs.drop_dead(letter)
    return Response(status_code=204)


@router.post(
    "/agents/{agent}/pause",
    response_model=AgentChange,
    summary="Pause an agent",
    openapi_extra=describe_body(PauseBody),
)
async def pause(http: HttpRequest, access: OperatesFleet, agent: Agent) -> AgentChange:
    """Stop a specialist or a role on all machines. Its handoffs wait."""
    body = await read_body(http, access, PauseBody)
    await access.jobs.pause(agent, body.reason)
    return AgentChange(agent=agent, is_paused=True)


@router.post("/agents/{agent}/unpause", response_model=AgentChange, summary="Unpause an agent")
async def unpause(access: OperatesFleet, agent: Agent) -> AgentChange:
    """Start a paused specialist or role again."""
    return AgentChange(agent=agent, is_paused=False, waited=await access.jobs.unpause(agent))
