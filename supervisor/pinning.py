"""A job keeps the specialists that it started with, whatever workers announce later."""

from __future__ import annotations

from shared.ledger.roles import Roles
from shared.library import Library
from shared.wire.specialist import SpecialistSpec, spec_from
from supervisor.lifecycle.state import JobState

_NOBODY = (
    "You are a careful specialist. Do the task as it is put, from the material that you are given."
)


def pinned_spec(
    state: JobState, name: str, library: Library, roles: Roles
) -> tuple[SpecialistSpec, str, str | None]:
    """The spec that the job started with, or, the first time, what workers announce now (and its text, to be stored), and its digest."""
    pinned = state.specialists.get(name)
    if pinned:
        return spec_from(library.payloads(state.job_id, [pinned])[pinned]), pinned, None
    served = roles.served().get(name)
    if (
        served is None
    ):  # its workers have gone since the plan was made: its queue waits for others with the same name
        spec = SpecialistSpec(
            name=name, description=f"{name}: no worker announces it", instructions=_NOBODY
        )
        return spec, spec.content_digest, spec.to_json()
    return served.spec, served.digest, served.spec.to_json()
