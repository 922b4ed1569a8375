"""Shorthands for the supervisor's commands, with plain strings as arguments."""

from __future__ import annotations

from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.supervisor.lifecycle.commands import (
    AbandonSteps,
    IssueGroup,
    PublishAgain,
    RunRole,
)


def group(name: str, *steps: str) -> IssueGroup:
    return IssueGroup(name, tuple(map(StepId, steps)))


def given_up(reason: str, *steps: str) -> AbandonSteps:
    return AbandonSteps(tuple(map(StepId, steps)), reason)


def again(*handoffs: str) -> PublishAgain:
    return PublishAgain(tuple(map(HandoffId, handoffs)))


def run(handoff: str) -> RunRole:
    return RunRole(HandoffId(handoff))
