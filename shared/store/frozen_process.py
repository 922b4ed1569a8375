"""The time after which a process counts as frozen. The watchdog (`leases.py`) and the scripts
that recover its work (`evaluation_lease.py`) use the same value.
"""

from __future__ import annotations

FROZEN_AFTER_LEASES = 3
"""Leases after which a process counts as frozen. Its threads could not run for that time, so
its interpreter lock is held. It has lost its claims, and the watchdog ends it.

The watchdog counts from the last heartbeat, which may be one renewal before the freeze. So it
waits longer than the store does: the work starts again elsewhere before the process ends.
"""
