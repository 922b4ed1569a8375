"""Routing: the specialist or the plan of a job, decided before its first step."""

from __future__ import annotations

from collections.abc import Collection
from typing import assert_never

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST, Role
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import OnFailure, Step
from handoff_queue.supervisor.lifecycle.commands import Command, IssueRole, MakePlan, SetMode
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.state import JobState

GENERALIST = "generalist"
"""The specialist for work that no other specialist fits."""
SINGLE_STEP_ID = StepId("answer")
"""The one step of a plan that is the whole request."""


def choose_route(state: JobState, observations: Observations) -> tuple[Command, ...]:
    """Return the command that chooses one specialist or a team: the router decides, unless
    only one specialist is served. Empty while the router works, or no worker announces a
    specialist.
    """
    if state.has_open(Role.ROUTER) or not observations.specialists:
        return ()
    if len(observations.specialists) == 1:  # a call could not choose otherwise
        return (SetMode(Mode.SINGLE, *observations.specialists),)
    return (ask_role(state, Role.ROUTER),)


def plan(state: JobState, observations: Observations) -> tuple[Command, ...]:
    """Return the command that plans the job. A planner plans for a team; code makes every
    other plan. Empty while the planner works, or no worker announces a specialist.
    """
    if state.has_open(Role.PLANNER) or not observations.specialists:
        return ()
    match state.mode:
        case Mode.PIPELINE:
            return (MakePlan(),)
        case Mode.SINGLE:
            specialist = None
            if state.routed:
                specialist = state.routed.specialist
            return (MakePlan(specialist or choose_default_specialist(observations.specialists)),)
        case Mode.TEAM | Mode.ADAPTIVE:
            return (ask_role(state, Role.PLANNER),)
        case Mode.AUTO:
            raise AssertionError("a job is routed before it is planned")
        case _:
            assert_never(state.mode)


def choose_default_specialist(specialists: Collection[str]) -> str:
    """Return the specialist for a whole request: the generalist if it is served, or else the
    first served specialist by name. If no specialist is served, it is the generalist: the
    handoff waits in its queue, and the job reports that no worker serves the queue.
    """
    agents: list[str] = []
    for name in specialists:
        if name != CHILD_JOB_SPECIALIST:
            agents.append(name)
    if GENERALIST in agents or not agents:
        return GENERALIST
    return min(agents)


def build_plan_of_one_step(
    request: str, specialist: str, why: str, given_steps: tuple[StepId, ...]
) -> Plan:
    """Return a plan with the whole request as one step, with the given inputs."""
    step = Step(
        id=SINGLE_STEP_ID,
        specialist=specialist,
        task=request,
        depends_on=given_steps,
        on_failure=OnFailure.RETRY,
    )
    return Plan(steps=(step,), given=given_steps, why=why)


def ask_role(state: JobState, role: Role) -> IssueRole:
    """Return the command that issues the next attempt of a role."""
    return IssueRole(role, state.role_attempts.get(role, 0) + 1)
