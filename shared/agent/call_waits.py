"""Waits before a model call, within the working time of a handoff."""

from __future__ import annotations

from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.types.errors import LimitReached
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.presence import HandoffWait

WAIT_SLICE_S = 0.25
"""Seconds between two heartbeats and deadline checks of a waiting call."""


def check_deadline(dependencies: RunDependencies) -> None:
    """Check that the handoff has working time left.

    Raises:
        LimitReached: the working time is over.
    """
    if dependencies.left_s <= 0:
        raise LimitReached(StopReason.DEADLINE, "the time for this step is over")


def wait_for_call(
    dependencies: RunDependencies, seconds: float, why: str, shown_s: float | None = None
) -> None:
    """Wait before a model call, with heartbeats.

    Args:
        seconds: time to wait.
        why: short reason for the heartbeat.
        shown_s: seconds that the heartbeat shows first, if the whole wait is longer.

    Raises:
        Interrupted: this process must stop its work on the handoff.
        LimitReached: the working time is over.
    """
    until = dependencies.now() + seconds
    more_s = (shown_s or seconds) - seconds
    left_s = seconds
    while left_s > 0:
        handoff_wait = HandoffWait(why, max(1, round(left_s + more_s)))
        dependencies.checkpoints.heartbeat(str(handoff_wait))
        check_deadline(dependencies)
        dependencies.wait(min(left_s, WAIT_SLICE_S))
        left_s = until - dependencies.now()
