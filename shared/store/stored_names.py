"""Names and ids as Redis returns them: bytes."""

from __future__ import annotations

from handoff_queue.shared.types.ids import HandoffId, JobId


def name_in(stored: bytes) -> str:
    """Return a name. A byte that is not UTF-8 becomes a replacement character."""
    return stored.decode(errors="replace")


def job_id_in(stored: bytes) -> JobId:
    """Return a job id."""
    return JobId(stored.decode())


def handoff_id_in(stored: bytes) -> HandoffId:
    """Return a handoff id."""
    return HandoffId(stored.decode())
