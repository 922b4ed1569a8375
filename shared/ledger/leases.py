"""One thread that renews every lease of its process, and, by doing so, shows that the process is not frozen."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from shared.ledger.claims import Claim
from shared.wire.errors import Interrupted, LedgerUnavailable

RENEWALS_PER_LEASE = 3
FROZEN_AFTER_LEASES = 3
"""A process whose threads could not run for so many leases holds its interpreter lock: it has lost its claims, and is ended."""

log = structlog.get_logger()


class Leases:
    """The claims that this process holds."""

    def __init__(self, lease_s: float, *, watchdog: bool) -> None:
        """`watchdog`: end the process if it freezes (its parent starts it again)."""
        self._lease_s = lease_s
        self._watchdog = watchdog
        self._held: dict[int, tuple[Claim, float]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew_for_ever, name="leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._watchdog:
            faulthandler.cancel_dump_traceback_later()

    @contextmanager
    def held(self, claim: Claim) -> Iterator[None]:
        """Renew this claim until the block ends."""
        with self._lock:
            self._held[id(claim)] = (claim, time.monotonic())
        try:
            yield
        finally:
            with self._lock:
                del self._held[id(claim)]

    def _renew_for_ever(self) -> None:
        while not self._stop.wait(self._lease_s / RENEWALS_PER_LEASE):
            if self._watchdog:
                faulthandler.dump_traceback_later(self._lease_s * FROZEN_AFTER_LEASES, exit=True)
            with self._lock:
                held = list(self._held.values())
            for claim, renewed_at in held:
                self._renew(claim, renewed_at)

    def _renew(self, claim: Claim, renewed_at: float) -> None:
        try:
            claim.renew()
        except Interrupted:
            return
        except LedgerUnavailable as error:
            if time.monotonic() - renewed_at > self._lease_s:
                claim.presume_lost()
            log.warning("lease not renewed", job_id=claim.job_id, handoff_id=claim.handoff_id, why=str(error))
            return
        with self._lock:
            if id(claim) in self._held:
                self._held[id(claim)] = (claim, time.monotonic())
