"""Why one file or page is not taken: internal to this room, where several become one `InvalidDocuments`."""

from __future__ import annotations


class Refused(Exception):
    """The message completes "NAME ...": what is wrong, and how to mend it."""
