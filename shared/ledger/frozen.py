"""When a process counts as frozen: its own watchdog (`leases.py`) and those who look after what it held (`looks.py`) must agree."""

from __future__ import annotations

FROZEN_AFTER_LEASES = 3
"""A process whose threads could not run for so many leases holds its interpreter lock: it has lost its claims, and is ended."""
