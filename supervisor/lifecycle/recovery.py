"""What was lost on the way, and is set going again."""

from __future__ import annotations

from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.supervisor.lifecycle.commands import Command, PublishAgain, RunRole, StartChild
from handoff_queue.supervisor.lifecycle.observations import Seen
from handoff_queue.supervisor.lifecycle.state import JobState


def recoveries(state: JobState, seen: Seen, now: float) -> tuple[Command, ...]:
    """Messages that are published again, roles that are run again, child jobs that have not begun."""
    again: list[HandoffId] = []
    commands: list[Command] = []
    for handoff_id, found in seen.handoffs.items():
        issued = state.open.get(handoff_id)
        if issued is None or found.held:
            continue
        abandoned = found.state == "running" and (found.lease_until or 0.0) < now
        if issued.child:
            if found.state == "issued":
                commands.append(StartChild(handoff_id))
        elif issued.group is None:
            if abandoned or (found.state == "issued" and (found.lost or not found.queued)):
                commands.append(RunRole(handoff_id))
        elif abandoned or (found.state == "issued" and found.lost):
            again.append(handoff_id)
    return (
        (PublishAgain(tuple(again)), *commands) if again else tuple(commands)
    )  # running a role takes as long as its model does
