"""The specialists that the workers of a new system cannot serve on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.display.terminal import print_progress
from handoff_queue.supervisor.text.sanitizing import replace_unsafe

if TYPE_CHECKING:
    from handoff_queue.shared.types.presence import Announcement


def find_unserved(announcements: Iterable[Announcement]) -> dict[str, str]:
    """Return the specialists that no worker of these announcements serves, by name, with the
    reason that a worker gives.
    """
    served: set[str] = set()
    reasons: dict[str, str] = {}
    for worker in announcements:
        served.update(spec.name for spec in worker.specialists)
        reasons |= worker.not_served
    return {name: reasons[name] for name in sorted(reasons) if name not in served}


def print_unserved(unserved: Mapping[str, str]) -> None:
    """Print a line for each specialist that no worker serves, with the reason."""
    for name, reason in unserved.items():
        print_progress(f"no worker serves {replace_unsafe(name)}: {replace_unsafe(reason)}")


def check_served(
    named_specialists: Iterable[tuple[str, str]],
    allowed_specialists: Sequence[str],
    unserved: Mapping[str, str],
) -> None:
    """Check that a job does not need a specialist that no worker serves.

    Args:
        named_specialists: the specialists that the job needs, each after its place in the request.
        allowed_specialists: the specialists that the job may use; empty: all.

    Raises:
        UserError: the job needs such a specialist. The message has the reason.
    """
    for where, name in named_specialists:
        if name in unserved:
            raise UserError(f"{where}: no worker of this run serves {name}: {unserved[name]}")
    if allowed_specialists and all(name in unserved for name in allowed_specialists):
        name = allowed_specialists[0]
        raise UserError(f"no worker of this run serves {name}: {unserved[name]}")
