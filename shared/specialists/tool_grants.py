"""The tools, model and limits that a process grants to an agent. The specialist file of the
process sets the maximum, and a message from Redis may only narrow it.
"""

from __future__ import annotations

from typing import TypeVar

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.specialist import SpecialistSpec, build_placeholder_spec
from handoff_queue.shared.types.usage import to_microusd

Number = TypeVar("Number", int, float)
log = get_log(__name__)


def grant_spec(pinned: SpecialistSpec, own_spec: SpecialistSpec) -> SpecialistSpec:
    """Return the spec of a job, with no more power than this process's own file gives.

    The tools are the tools that both specs name. A call needs an approval if one of the specs
    says so. Equal handoffs share a run if both specs say so. Model, models, tier, effort,
    thinking, runner, context, hosts, Celery task, its queue and `repeatable` come from this
    process's file. Each limit is the lower one. A job that was planned while no worker announced
    the specialist has a placeholder. Then the spec of this process's file is returned.

    Args:
        pinned: spec of the job.
        own_spec: spec of this process's file.

    Raises:
        MalformedMessage: the spec belongs to another specialist.
    """
    if pinned.name != own_spec.name:
        raise MalformedMessage(f"the spec of {pinned.name} came with a handoff for {own_spec.name}")
    if pinned == build_placeholder_spec(own_spec.name):
        return own_spec
    granted_tools: list[str] = []
    refused_tools: list[str] = []
    for name in pinned.tools:
        if name in own_spec.tools:
            granted_tools.append(name)
        else:
            refused_tools.append(name[:64])
    if refused_tools:
        log.warning(
            "a specialist may not use some of its tools",
            specialist=own_spec.name,
            tools=refused_tools[:8],
        )
    asks = dict.fromkeys([*(pinned.ask or ()), *(own_spec.ask or ())])
    return pinned.model_copy(
        update={
            "tools": tuple(granted_tools),
            "ask": tuple(asks) or None,
            "model": own_spec.model,
            "models": own_spec.models,
            "tier": own_spec.tier,
            "effort": own_spec.effort,
            "thinking": own_spec.thinking,
            "runner": own_spec.runner,
            "context": own_spec.context,
            "hosts": own_spec.hosts,
            "share": (pinned.share and own_spec.share) or None,
            "max_turns": min(pinned.max_turns, own_spec.max_turns),
            "max_output_tokens": min(pinned.max_output_tokens, own_spec.max_output_tokens),
            "max_usd": _choose_lower(pinned.max_usd, own_spec.max_usd),
            "max_seconds": _choose_lower(pinned.max_seconds, own_spec.max_seconds),
            "celery_task": own_spec.celery_task,
            "celery_queue": own_spec.celery_queue,
            "repeatable": own_spec.repeatable,
        }
    )


def grant_limits(limits: HandoffLimits, own_spec: SpecialistSpec) -> HandoffLimits:
    """Return a handoff's limits, each no higher than the limit in this process's own file."""
    most_microusd = None
    if own_spec.max_usd is not None:
        most_microusd = max(1, to_microusd(own_spec.max_usd))
    return limits.model_copy(
        update={
            "max_turns": min(limits.max_turns, own_spec.max_turns),
            "max_output_tokens": min(limits.max_output_tokens, own_spec.max_output_tokens),
            "max_microusd": _choose_lower(limits.max_microusd, most_microusd),
            "max_seconds": _choose_lower(limits.max_seconds, own_spec.max_seconds),
        }
    )


def _choose_lower(first: Number | None, second: Number | None) -> Number | None:
    """Return the lower of two limits. None means no limit."""
    if first is None:
        return second
    if second is None:
        return first
    return min(first, second)
