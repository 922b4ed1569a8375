"""One thread that renews every lease of its process, and, by doing so, shows that the process is not frozen."""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog

from shared.ledger.claim import Claim
from shared.ledger.connection import Connection
from shared.wire.errors import Interrupted, LedgerError

RENEWALS_PER_LEASE = 3
SILENCE_PER_LEASE = 0.25
"""A renewal waits this part of a lease for Redis: less than until the next one is due, so that two of them fit into a lease."""
FROZEN_AFTER_LEASES = 3
"""A process whose threads could not run for so many leases holds its interpreter lock: it has lost its claims, and is ended."""

log = structlog.get_logger()


class Leases:
    """The claims that this process holds. Their renewals have a connection of their own: they never wait for other threads' calls."""

    def __init__(self, redis_url: str, lease_s: float, *, watchdog: bool) -> None:
        """`watchdog`: end the process if it freezes (its parent starts it again)."""
        self._connection = Connection(redis_url, timeout_s=lease_s * SILENCE_PER_LEASE)
        self._lease_s = lease_s
        self._watchdog = watchdog
        self._held: dict[int, Claim] = {}
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
            self._held[id(claim)] = claim
        try:
            yield
        finally:
            with self._lock:
                del self._held[id(claim)]

    def _renew_for_ever(self) -> None:
        self._show_life()
        while not self._stop.wait(self._lease_s / RENEWALS_PER_LEASE):
            self._show_life()
            try:
                self._renew()
            except Exception:  # without this thread, every claim of the process is lost
                log.exception("leases not renewed")
        self._connection.close()

    def _show_life(self) -> None:
        if self._watchdog:
            faulthandler.dump_traceback_later(self._lease_s * FROZEN_AFTER_LEASES, exit=True)

    def _renew(self) -> None:
        """All of them in one round trip: however many there are, a silent Redis holds this thread for one timeout."""
        with self._lock:
            held = list(self._held.values())
        if not held:
            return
        answers: list[bytes | LedgerError]
        try:
            answers = self._connection.script_for_each("renew", [claim.renewal() for claim in held])
        except LedgerError as error:
            answers = [error] * len(held)
        for claim, answer in zip(held, answers, strict=True):
            if not isinstance(answer, LedgerError):
                with suppress(Interrupted):  # the claim remembers it, for the thread that works on it
                    claim.heed(answer)
                continue
            log.warning("lease not renewed", job_id=claim.job_id, handoff_id=claim.handoff_id, why=str(answer))
