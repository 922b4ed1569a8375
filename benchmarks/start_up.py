"""Cost of starting the processes of `handoff run`, with the fork server and with separate
processes: `python -m benchmarks.start_up`.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.cli.embedded_system import EmbeddedSystem
from handoff_queue.supervisor.client.client import connect

FORMS = ("fork server", "separate processes")
CAN_FORK = "handoff_queue.shared.local.celery_fork_server.is_supported"


def start(form: str) -> str:
    """Return a row: seconds until all processes are ready, their processor seconds up to their
    end, and their memory in MB. Shared pages are divided among the processes.
    """
    settings = Settings(offline=True)
    can_fork = form == FORMS[0]
    began = time.monotonic()
    with patch(CAN_FORK, lambda: can_fork), EmbeddedSystem(settings) as system:
        system.wait_until_ready(connect(system.url, system.client_settings()))
        ready_s = time.monotonic() - began
        memory_kb = 0
        for name, pid in system._processes.pids().items():
            if name != "redis":
                memory_kb += _pss_kb(pid)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        f"| {form} | {ready_s:.1f} | {used.ru_utime + used.ru_stime:.1f} | {memory_kb / 1024:.0f} |"
    )


def _pss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise ValueError(f"process {pid} has no proportional set size")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--form", choices=FORMS, help="start once in this process")
    options = parser.parse_args()
    if options.form:
        print(start(options.form))
        return
    print("| form | ready, s | processor time, s | memory, MB |\n|---|---|---|---|", flush=True)
    for _ in range(options.repeats):
        for form in FORMS:
            command = [sys.executable, "-m", "benchmarks.start_up", "--form", form]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
