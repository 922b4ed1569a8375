"""One process that imports everything once and then forks the Celery processes of an embedded run.

Importing Celery, the model's SDK and pydantic costs a second of processor time; four processes on two cores would take that second
one after the other. Forking is safe here: until the fork there is one thread, no connection and no client (importing a module starts
nothing, which a test of the house rules checks). Linux only, where the kernel ends the children with their parent.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from shared.local.leash import PR_SET_PDEATHSIG
from shared.local.processes import Deaths
from shared.readiness import READY_FILE
from supervisor.cli.celery_process import run_celery
from supervisor.cli.errors import BAD_INPUT, FAILED

WARM = ("celery.bin.celery", "celery.apps.worker", "celery.concurrency.thread", "celery.worker.consumer", "kombu.transport.redis")
LATER = ("shared.agent.anthropic_clients", "genai_prices", "re2")
"""What the rooms import when they need it: here that is before the fork, once for all."""
ROOMS = ("supervisor.assembly", "workers.assembly")
"""By name: the supervisor's code may not import the workers', no more than it does when it types `celery -A workers.app`."""


def nursery_command(
    folder: Path, children: dict[str, list[str]], *, own: Mapping[str, Mapping[str, str]] | None = None, is_hunted: bool = False
) -> list[str]:
    """`children`: name -> Celery's arguments. Logs and ready files go where `shared.local.processes` keeps those of its own.

    `own`: name -> environment variables of that child alone. `is_hunted`: they are killed on purpose, and forked again however often.
    """
    order = json.dumps({"folder": str(folder), "children": children, "own": own or {}, "is_hunted": is_hunted})
    return [sys.executable, "-P", "-m", "supervisor.cli.nursery", order]


class Nursery:
    """Forks its children, forks again those that die, and ends when it is asked to or when one cannot live."""

    def __init__(self, folder: Path, children: dict[str, list[str]], own: Mapping[str, Mapping[str, str]], *, is_hunted: bool) -> None:
        self._folder = folder
        self._children = children
        self._own = own
        self._pids: dict[int, str] = {}
        self._deaths = {name: Deaths(is_hunted=is_hunted) for name in children}
        self._ending = False
        self.exit_code = 0

    def tend(self) -> list[str] | None:
        """In a child: what it is to run. In the nursery: None, when the last child has ended."""
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        for name in self._children:
            if self._fork(name):
                return self._children[name]
        while self._pids:
            pid, status = os.wait()
            name = self._pids.pop(pid)
            if not self._ending and self._may_live(name, os.waitstatus_to_exitcode(status)) and self._fork(name):
                return self._children[name]
        return None

    def _may_live(self, name: str, exit_code: int) -> bool:
        deaths = self._deaths[name]
        deaths.one_more(time.monotonic())
        if exit_code == BAD_INPUT or deaths.too_many:
            self.exit_code = exit_code if exit_code == BAD_INPUT else FAILED
            self._end()
        return not self._ending

    def _end(self) -> None:
        self._ending = True
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _fork(self, name: str) -> bool:
        """True in the child. No SIGTERM in between: it would miss the child, or be its parent's."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        parent = os.getpid()
        self._file("ready", name).unlink(missing_ok=True)
        if pid := os.fork():
            self._pids[pid] = name
            with self._file("pids", name).open("a") as pids:  # the last is the one that runs
                pids.write(f"{pid}\n")
        else:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._settle_in(name, parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return not pid

    def _settle_in(self, name: str, parent: int) -> None:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(FAILED)
        log = os.open(self._folder / "logs" / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, sys.stdout.fileno())
        os.dup2(log, sys.stderr.fileno())
        os.close(log)
        os.environ |= {**self._own.get(name, {}), READY_FILE: str(self._file("ready", name))}

    def _file(self, kind: str, name: str) -> Path:
        return self._folder / kind / name


def main() -> int:
    order = json.loads(sys.argv[1])
    for module in (*WARM, *LATER, *ROOMS):
        import_module(module)
    gc.collect()
    gc.freeze()  # the children share these pages as long as nobody writes to them
    folder = Path(order["folder"])
    (folder / "pids").mkdir(exist_ok=True)
    nursery = Nursery(folder, order["children"], order["own"], is_hunted=order["is_hunted"])
    arguments = nursery.tend()
    return nursery.exit_code if arguments is None else run_celery(arguments)


if __name__ == "__main__":
    sys.exit(main())
