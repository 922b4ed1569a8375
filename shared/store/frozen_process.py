"""When a process counts as frozen: its own watchdog (`leases.py`) and those who look after
what it held (`looks.py`) must agree.
"""

from __future__ import annotations

FROZEN_AFTER_LEASES = 3
"""A process whose threads could not run for so many leases holds its interpreter lock: it has
lost its claims, and is ended.

Its watchdog begins to count at its last sign of life, which may be a renewal before it froze,
and so waits that much longer: what it held has been given up when it starts again, and it does
not come beside it.
"""
