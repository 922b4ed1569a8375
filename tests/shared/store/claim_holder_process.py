"""Program that holds three claims under the watchdog: `python -m ... URL LEASE_S lives|freezes`.

It prints `held` and waits for a line. Then it prints `alive` after twice the watchdog's time, or
freezes with the interpreter lock.
"""

from __future__ import annotations

import re
import sys
import threading
from contextlib import ExitStack

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.job_evaluation_lease import FROZEN_AFTER_LEASES
from handoff_queue.shared.store.leases import Leases
from handoff_queue.shared.store.store import open_store
from tests.doubles.jobs import a_job, granted_claim, issue

NAMES = ("find.1", "look.1", "read.1")


def main(url: str, lease_s: float, ending: str) -> None:
    store = open_store(url, Settings(lease_s=lease_s))
    leases = Leases(url, lease_s, watchdog=True)
    leases.start()
    job_id = a_job(store)
    issue(store, job_id, *NAMES)
    with ExitStack() as claims:
        for name in NAMES:
            claims.enter_context(leases.keep_renewed(granted_claim(store, job_id, name)))
        print("held", flush=True)
        sys.stdin.readline()
        if ending == "freezes":
            re.match("(a+)+$", "a" * 40 + "b")
        threading.Event().wait(2 * FROZEN_AFTER_LEASES * lease_s)
        print("alive", flush=True)
    leases.stop()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
