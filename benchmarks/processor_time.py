"""Processor time and memory of a process, and processor time of its single functions by the clock
of each thread.

On a busy machine, the times of two whole systems differ by more than a function costs. The share of
a function in the time of one run is exact.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read_cpu_seconds(pid: int) -> float:
    """Return the seconds so far, in the process and in the kernel."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS_PER_S


def forget_peak(pid: int) -> None:
    """Reset the peak memory to the current memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def read_peak_memory(pid: int) -> float:
    """Return the peak memory in MB, including memory that it shares with other processes."""
    match = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match
    return int(match[1]) / 1024


CLOCK_FOLDER = "BENCH_CLOCK_FOLDER"
"""Variable with the folder of the sums. Not set: nothing is measured."""
WRITE_EVERY_S = 0.2
SIGNATURES, USAGE = "signatures and codes", "verified usage"

_seconds: dict[str, float] = {}
_lock = threading.Lock()
_running = threading.local()


def measure_from_now_on() -> None:
    """Measure signatures and verified usage in this process, if `CLOCK_FOLDER` is set."""
    folder = os.environ.get(CLOCK_FOLDER)
    if not folder:
        return
    from handoff_queue.shared.trust.signatures import Trust
    from handoff_queue.supervisor.lifecycle.verified_usage import VerifiedUsage

    for name in ("sign_for", "sign_handoff", "sign_events", "code_events", "signer_of"):
        setattr(Trust, name, _add_clock(SIGNATURES, getattr(Trust, name)))
    VerifiedUsage.with_result = _add_clock(USAGE, VerifiedUsage.with_result)  # type: ignore[method-assign]
    file = Path(folder) / str(os.getpid())
    threading.Thread(target=_write_for_ever, args=(file,), daemon=True).start()


def sum_seconds(folder: Path) -> Mapping[str, float]:
    """Return the processor seconds of all processes so far: of signatures, and of verified
    usage.
    """
    time.sleep(2 * WRITE_EVERY_S)
    sums: dict[str, float] = {SIGNATURES: 0.0, USAGE: 0.0}
    for file in folder.iterdir():
        if not file.suffix:
            for part, seconds in json.loads(file.read_text()).items():
                sums[part] += seconds
    return sums


def _add_clock(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that measures its outermost call."""

    @wraps(function)
    def call_and_measure(*arguments: Any, **named_arguments: Any) -> Any:
        if getattr(_running, "is_inner", False):
            return function(*arguments, **named_arguments)
        _running.is_inner = True
        began = time.thread_time()
        try:
            return function(*arguments, **named_arguments)
        finally:
            used_s = time.thread_time() - began
            _running.is_inner = False
            with _lock:
                _seconds[part] = _seconds.get(part, 0.0) + used_s

    return call_and_measure


def _write_for_ever(file: Path) -> None:
    draft = file.with_suffix(".new")
    with suppress(FileNotFoundError):  # the benchmark has ended
        while True:
            time.sleep(WRITE_EVERY_S)
            with _lock:
                text = json.dumps(_seconds)
            draft.write_text(text)
            draft.replace(file)
