"""Cost of starting the processes of `handoff run`, with the fork server, without keys, and with
separate processes: `python -m benchmarks.start_up`.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

from benchmarks.arguments import parse_positive
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.cli.embedded_system import EmbeddedSystem
from handoff_queue.supervisor.client.client import connect

PRODUCT, UNSIGNED, SEPARATE = "fork server", "fork server, no keys", "separate processes"
FORMS = (PRODUCT, UNSIGNED, SEPARATE)
CAN_FORK = "handoff_queue.shared.local.fork_server.is_supported"


def start(form: str) -> str:
    """Return a row: seconds until all processes are ready, processor seconds until they end, and
    their memory in MB. The processor seconds include those of this process. Shared pages are
    divided among the processes.
    """
    settings = Settings(offline=True)
    can_fork = form != SEPARATE
    if form == UNSIGNED:
        EmbeddedSystem._make_keys = _make_no_keys  # type: ignore[assignment, method-assign]
    began = time.monotonic()
    with patch(CAN_FORK, lambda: can_fork), EmbeddedSystem(settings) as system:
        system.wait_until_ready(connect(system.url, system.build_client_settings()))
        ready_s = time.monotonic() - began
        memory_kb = 0
        for name, pid in system._processes.get_pids().items():
            if name != "redis":
                memory_kb += _read_pss(pid)
    used_s = 0.0
    for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(whose)
        used_s += usage.ru_utime + usage.ru_stime
    return f"| {form} | {ready_s:.2f} | {used_s:.2f} | {memory_kb / 1024:.0f} |"


def _make_no_keys(system: EmbeddedSystem) -> None:
    system._keys = system._folder / "no-keys"


def _read_pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise ValueError(f"process {pid} has no proportional set size")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=parse_positive, default=3)
    parser.add_argument("--form", choices=FORMS, help="start once in this process")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS)
    options = parser.parse_args()
    if options.form:
        print(start(options.form))
        return
    print("| form | ready, s | processor time, s | memory, MB |\n|---|---|---|---|", flush=True)
    for _ in range(options.repeats):
        for form in options.forms:
            command = [sys.executable, "-m", "benchmarks.start_up", "--form", form]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
