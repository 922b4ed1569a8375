"""Working time of a job, which a quote estimates. Waits for a person, and the time between an
end and a retry, do not count. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from handoff_queue.shared.types.events import Recorded
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.state import JobState


def working_seconds(job_id: JobId, journal: Iterable[Recorded]) -> float:
    """Return the seconds of work to the job's end, or to its last event."""
    earlier, latest = 0.0, 0.0
    state: JobState | None = None
    for recorded in journal:
        before, state = state, fold(job_id, state, [recorded])
        if state is None or (state.ended and before and before.ended):
            continue  # events after an end are no work
        if before and before.ended:
            earlier, latest = earlier + latest, 0.0
        latest = _worked_s(state, before)
    return earlier + latest


def _worked_s(state: JobState, before: JobState | None) -> float:
    """Return the seconds since the submission or the latest retry. An open question ends the
    count, also at the end of the job.
    """
    question = state.question or (before.question if before and state.ended else None)
    if question:
        return question.at - state.started_at - state.waited_s
    return state.worked_s
