"""Renewal of leases: one thread renews every lease of its process. Its renewals show that the
process and its evaluations of jobs are not frozen.
"""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.store.claim import Claim
from handoff_queue.shared.store.frozen_process import FROZEN_AFTER_LEASES
from handoff_queue.shared.store.redis.connection import Connection, ScriptCall
from handoff_queue.shared.types.errors import Interrupted, StoreError

RENEWALS_PER_LEASE = 3
SIGN_EVERY_S = 4.0
"""Longest interval of renewals, in seconds. A renewal is a heartbeat, and `watch` promises a
heartbeat of each handoff within 5 s.
"""
SILENCE_PER_LEASE = 0.25
"""Part of a lease that a renewal waits for Redis. It is shorter than the interval, so that two
renewals fit into a lease.
"""
RETRY_PER_LEASE = 1 / 12
"""Part of a lease after which a failed renewal is repeated. All leases are renewed within a third
of a lease after Redis is back, which is less than the grace of `parts/outage_grace.lua`.
"""
log = log_of(__name__)


def renews_every_s(lease_s: float) -> float:
    """Return the seconds between two renewals of a lease of `lease_s` seconds."""
    return min(lease_s / RENEWALS_PER_LEASE, SIGN_EVERY_S)


def retries_every_s(lease_s: float) -> float:
    """Return the seconds until the next try after a failed renewal."""
    return min(lease_s * RETRY_PER_LEASE, SIGN_EVERY_S)


class Leases:
    """The claims that this process holds. Their renewals have a separate connection: they never
    wait for other threads' calls.
    """

    def __init__(self, redis_url: str, lease_s: float, *, watchdog: bool) -> None:
        """Start without leases.

        Args:
            watchdog: True to end the process if it freezes; its parent starts it again.
        """
        self._connection = Connection(redis_url, timeout_s=lease_s * SILENCE_PER_LEASE)
        self._lease_s = lease_s
        self._watchdog = watchdog
        self._held: dict[int, Claim] = {}
        self._shown: dict[int, tuple[ScriptCall, float]] = {}
        """Heartbeats of evaluations, with the monotonic time at which each began."""
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

    @contextmanager
    def shown(self, sign_of_life: ScriptCall) -> Iterator[None]:
        """Send this heartbeat until the block ends, so that a long evaluation does not count as
        frozen. A block that ends before the first renewal costs nothing.

        Args:
            sign_of_life: keys and arguments of `evaluate.lua`.
        """
        with self._lock:
            self._shown[id(sign_of_life)] = (sign_of_life, time.monotonic())
        try:
            yield
        finally:
            with self._lock:
                del self._shown[id(sign_of_life)]

    def _renew_for_ever(self) -> None:
        self._show_life()
        is_renewed = True
        while not self._stop.wait(
            renews_every_s(self._lease_s) if is_renewed else retries_every_s(self._lease_s)
        ):
            try:
                self._show_life()
                is_renewed = self._renew() and self._give_signs()
            except BaseException:  # without this thread, every claim of the process is lost
                log.exception("leases not renewed")
        self._connection.close()

    def _show_life(self) -> None:
        if self._watchdog:
            faulthandler.dump_traceback_later(
                self._lease_s * FROZEN_AFTER_LEASES + renews_every_s(self._lease_s), exit=True
            )

    def _renew(self) -> bool:
        """Renew all leases in one round trip, so a silent Redis holds this thread for one timeout.
        Return False if a renewal failed.
        """
        with self._lock:
            held = list(self._held.values())
        if not held:
            return True
        answers: list[bytes | StoreError]
        try:
            answers = self._connection.script_for_each("renew", [claim.renewal() for claim in held])
        except StoreError as error:
            answers = [error] * len(held)
        for claim, answer in zip(held, answers, strict=True):
            if not isinstance(answer, StoreError):
                with suppress(
                    Interrupted
                ):  # the claim remembers it, for the thread that works on it
                    claim.heed(answer)
                continue
            log.warning(
                "lease not renewed",
                job_id=claim.job_id,
                handoff_id=claim.handoff_id,
                why=str(answer),
            )
        return not any(isinstance(answer, StoreError) for answer in answers)

    def _give_signs(self) -> bool:
        """Send the heartbeats of all long evaluations in one round trip. Return False if one
        failed.
        """
        before = time.monotonic() - self._lease_s / RENEWALS_PER_LEASE
        with self._lock:
            signs: list[tuple[list[str], list[Any]]] = []
            for sign, began in self._shown.values():
                if began <= before:
                    signs.append(sign)
        if not signs:
            return True
        try:
            answers = self._connection.script_for_each("evaluate", signs)
        except StoreError as error:
            answers = [error]
        for why in (str(answer) for answer in answers if isinstance(answer, StoreError)):
            log.warning("no sign of life given", why=why)
        return not any(isinstance(answer, StoreError) for answer in answers)
