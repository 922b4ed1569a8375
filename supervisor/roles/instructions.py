"""Instructions of the supervisor's roles: one Markdown file each, in this folder."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from handoff_queue.shared.specialists import read_specialist
from handoff_queue.shared.types.specialist import SpecialistSpec


def read_role(name: str) -> SpecialistSpec:
    """Return the spec of a role in `shared.types.names.ROLES`. A role has no tools: its
    handoff has all of its inputs.
    """
    return read_specialist(Path(__file__).parent / f"{name}.md", tools=(), reserved=())


@lru_cache
def read_role_once(name: str) -> SpecialistSpec:
    """Return `read_role`, read from its file at the first call in this process."""
    return read_role(name)
