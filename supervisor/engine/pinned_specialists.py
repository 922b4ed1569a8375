"""A job keeps the specialists that it started with, whatever workers announce later."""

from __future__ import annotations

from handoff_queue.shared.runtime.payload_cache import Library
from handoff_queue.shared.store.presence import Roles
from handoff_queue.shared.types.specialist import SpecialistSpec, spec_from, unannounced_spec
from handoff_queue.supervisor.lifecycle.state import JobState


def pinned_spec(
    state: JobState, name: str, library: Library, roles: Roles
) -> tuple[SpecialistSpec, str, str | None]:
    """The spec that the job started with, or, the first time, what workers announce now (and its text, to be stored), and its digest."""
    pinned = state.specialists.get(name)
    if pinned:
        return spec_from(library.payloads(state.job_id, [pinned])[pinned]), pinned, None
    served = roles.served().get(name)
    if served is None:  # its workers have gone, or have not announced themselves since a restart
        spec = unannounced_spec(name)
        return spec, spec.content_digest, spec.to_json()
    return served.spec, served.digest, served.spec.to_json()
