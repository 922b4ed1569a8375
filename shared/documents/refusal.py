"""Why one file or page is not taken: internal to this room, where several become one `InvalidDocuments`."""

from __future__ import annotations

from handoff_queue.shared.types.errors import HandoffError


class Refused(HandoffError):
    """The message completes "NAME ...": what is wrong, and how to mend it."""
