"""Program that starts child processes, prints their process ids, and waits until it is killed."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.local.run_directory import RunDirectory

UNSTOPPABLE = (
    "import signal; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGINT,"
    " signal.SIGHUP)]; signal.pause()"
)
"""Program that ignores all signals that a program can ignore."""


def main() -> None:
    with RunDirectory(Path(sys.argv[1])) as run, Processes(run.path) as processes:
        url = PrivateRedis(processes, run.path).start()
        worker = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "tests.shared.minimal_celery_app",
            "worker",
            "-Q",
            "known",
        ]
        processes.start(ChildSpec("worker", worker, {"HANDOFF_REDIS_URL": url}))
        processes.start(
            ChildSpec("deaf", [sys.executable, "-c", UNSTOPPABLE], is_ready=lambda: True)
        )
        processes.wait_until_ready()
        print(json.dumps(processes.get_pids()), flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
