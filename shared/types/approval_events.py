"""What can happen to a job that a person has a say in. `shared.types.events` has all events, and what they have in common.

What a person has written is a payload, like what a model has: an event refers to it. An answer names the question that it is for, by its
version in the journal: one that comes late, or second, answers nothing.
"""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from handoff_queue.shared.types.approval import ApprovalOf
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import StepIdField
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.step_events import PlanMade


class ApprovalAsked(Message):
    """The job waits until somebody has approved or rejected."""

    type: Literal["approval_asked"] = "approval_asked"
    what: ApprovalOf
    why: str
    wait_s: PositiveInt
    """It waits so long at most."""
    steps: tuple[StepIdField, ...] = ()
    """The steps that failed, or that are ready to begin."""
    draft: BlobRef | None = None
    """The `shared.types.answer.Answer` that would leave, as JSON."""


class ApprovalReminded(Message):
    """Nobody has answered yet."""

    type: Literal["approval_reminded"] = "approval_reminded"
    asked: PositiveInt
    number: PositiveInt
    """1 for the first reminder of this question."""


class Approved(Message):
    """The job may go on."""

    type: Literal["approved"] = "approved"
    asked: PositiveInt
    by: Literal["user", "timeout"] = "user"
    note: BlobRef | None = None
    steps: tuple[StepIdField, ...] = ()
    """The steps that may begin. Empty: all that were asked about."""
    plan: PlanMade | None = None
    """It takes the place of the plan that was asked about."""


class Rejected(Message):
    """It may not go on like this."""

    type: Literal["rejected"] = "rejected"
    asked: PositiveInt
    note: BlobRef | None = None
    """What is to be mended."""
    steps: tuple[StepIdField, ...] = ()
    """To do again; empty: those that make the answer."""
    own_plan: BlobRef | None = None
    """The `shared.types.plan.Plan` that the person would make, as JSON: a draft for the planner."""


ApprovalEvent = ApprovalAsked | ApprovalReminded | Approved | Rejected
