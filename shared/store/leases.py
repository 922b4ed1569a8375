"""Renewal of leases: one thread renews every lease of its process. Its renewals are heartbeats:
they show that the process and its evaluations of jobs are not frozen. `HandoffClaim.heartbeat`
sends a heartbeat at once when an agent does something else.

A watchdog ends a process that freezes. The parent process starts it again. The scripts that recover
the work of a frozen process (`job_evaluation_lease.py`) use the same limit, `FROZEN_AFTER_LEASES`.
"""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.store.job_evaluation_lease import FROZEN_AFTER_LEASES
from handoff_queue.shared.store.redis.connection import Connection, ScriptCall
from handoff_queue.shared.types.errors import Interrupted, StoreError

log = get_log(__name__)

RENEWALS_PER_LEASE = 3
RENEW_EVERY_S = 4.0
"""Longest interval between renewals, in seconds. A renewal is a heartbeat, and `handoff watch`
promises a heartbeat of each handoff within 5 s.
"""
SILENCE_PER_LEASE = 0.25
"""Part of a lease for which a renewal waits for Redis. It is shorter than the interval, so
that two renewals fit into a lease.
"""
RETRY_PER_LEASE = 1 / 12
"""Part of a lease after which a failed renewal is repeated. All leases are renewed within a
third of a lease after Redis is back, which is less than the grace of `parts/outage_grace.lua`.
"""


def compute_renewal_interval_s(lease_s: float) -> float:
    """Return the seconds between two renewals of a lease of `lease_s` seconds."""
    return min(lease_s / RENEWALS_PER_LEASE, RENEW_EVERY_S)


def compute_retry_interval_s(lease_s: float) -> float:
    """Return the seconds until the next try after a failed renewal."""
    return min(lease_s * RETRY_PER_LEASE, RENEW_EVERY_S)


class Leases:
    """The thread that renews the leases of this process and sends the heartbeats of its
    evaluations. It has a separate connection, so that it never waits for calls of other
    threads.
    """

    def __init__(self, redis_url: str, lease_s: float, *, watchdog: bool) -> None:
        """Make the thread without starting it.

        Args:
            watchdog: True to end the process if it freezes. Its parent process starts it again.
        """
        self._connection = Connection(redis_url, timeout_s=lease_s * SILENCE_PER_LEASE)
        self._lease_s = lease_s
        self._watchdog = (
            Watchdog(lease_s, compute_renewal_interval_s(lease_s)) if watchdog else None
        )
        self._claims: dict[int, HandoffClaim] = {}
        self._evaluations: dict[int, tuple[ScriptCall, float]] = {}
        """Heartbeats of evaluations, with the monotonic time at which each began."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew_for_ever, name="leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._watchdog:
            self._watchdog.stop()

    @contextmanager
    def keep_renewed(self, claim: HandoffClaim) -> Iterator[None]:
        """Renew this claim until the block ends."""
        with self._lock:
            self._claims[id(claim)] = claim
        try:
            yield
        finally:
            with self._lock:
                del self._claims[id(claim)]

    @contextmanager
    def evaluating(self, heartbeat: ScriptCall) -> Iterator[None]:
        """Send this heartbeat until the block ends, so that a long evaluation does not count
        as frozen. No heartbeat is sent in the first third of a lease.

        Args:
            heartbeat: keys and arguments of `lease_job_evaluation.lua`.
        """
        with self._lock:
            self._evaluations[id(heartbeat)] = (heartbeat, time.monotonic())
        try:
            yield
        finally:
            with self._lock:
                del self._evaluations[id(heartbeat)]

    def _renew_for_ever(self) -> None:
        self._reset_watchdog()
        is_renewed = True
        while not self._stop.wait(
            compute_renewal_interval_s(self._lease_s)
            if is_renewed
            else compute_retry_interval_s(self._lease_s)
        ):
            try:
                self._reset_watchdog()
                is_renewed = self._renew() and self._send_heartbeats()
            except BaseException:  # without this thread, the process would lose all its claims
                log.exception("cannot renew the leases")
        self._connection.close()

    def _reset_watchdog(self) -> None:
        if self._watchdog:
            self._watchdog.reset()

    def _renew(self) -> bool:
        """Renew all leases in one round trip, so a silent Redis holds this thread for one
        timeout. Return False if a renewal failed.
        """
        with self._lock:
            claims = list(self._claims.values())
        if not claims:
            return True
        answers: list[bytes | StoreError]
        try:
            answers = self._connection.run_script_for_each(
                "renew_lease", [claim.build_renewal() for claim in claims]
            )
        except StoreError as error:
            answers = [error] * len(claims)
        all_renewed = True
        for claim, answer in zip(claims, answers, strict=True):
            if isinstance(answer, StoreError):
                all_renewed = False
                log.warning(
                    "cannot renew the lease",
                    job_id=claim.job_id,
                    handoff_id=claim.handoff_id,
                    why=str(answer),
                )
                continue
            with suppress(Interrupted):  # the claim raises it again in the thread that works on it
                claim.apply_answer(answer)
        return all_renewed

    def _send_heartbeats(self) -> bool:
        """Send the heartbeats of all long evaluations in one round trip. Return False if one
        failed.
        """
        before = time.monotonic() - self._lease_s / RENEWALS_PER_LEASE
        heartbeats: list[ScriptCall] = []
        with self._lock:
            for heartbeat, began in self._evaluations.values():
                if began <= before:
                    heartbeats.append(heartbeat)
        if not heartbeats:
            return True
        try:
            answers = self._connection.run_script_for_each("lease_job_evaluation", heartbeats)
        except StoreError as error:
            answers = [error]
        all_sent = True
        for answer in answers:
            if isinstance(answer, StoreError):
                all_sent = False
                log.warning("cannot send the heartbeat of an evaluation", why=str(answer))
        return all_sent


class Watchdog:
    """Ends the process unless a thread calls `reset` in time. A thread that holds the interpreter
    lock for too long prevents this call.
    """

    def __init__(self, lease_s: float, reset_every_s: float) -> None:
        """Make a watchdog that does not run before the first `reset`.

        Args:
            reset_every_s: longest time in seconds between two calls of `reset`.
        """
        self._limit_s = lease_s * FROZEN_AFTER_LEASES + reset_every_s

    def reset(self) -> None:
        """Start the watchdog's time again. `faulthandler` ends the process when the time is
        over, and writes the stacks of all threads to standard error.
        """
        faulthandler.dump_traceback_later(self._limit_s, exit=True)

    def stop(self) -> None:
        faulthandler.cancel_dump_traceback_later()
