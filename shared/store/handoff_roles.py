"""The roles of a job's handoffs, which are a part of the names of their keys."""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection, translated_errors
from handoff_queue.shared.types.ids import HandoffId, JobId


def roles_of(
    connection: Connection, job_id: JobId, handoff_ids: Sequence[HandoffId]
) -> dict[HandoffId, str]:
    """Return the role of each handoff; unknown handoffs are left out."""
    if not handoff_ids:
        return {}
    with translated_errors():
        stored = connection.redis.hmget(keys.roles(job_id), handoff_ids)
    roles: dict[HandoffId, str] = {}
    for handoff_id, role in zip(handoff_ids, stored, strict=True):
        if role is not None:
            roles[handoff_id] = role.decode()
    return roles
