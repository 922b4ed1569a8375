"""The first program in a sandbox: it runs the code, and packs its output and its files.

`sandbox.py` passes this file as text to `python -c`, so it uses the standard library only. It
reads one JSON object from its stdin, and writes one to its stdout. The worker trusts nothing of
the latter, because the code may disturb this program.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import resource
import selectors
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path("/work")
_PIECE = 65_536
_MAX_PATH_CHARS = 1_000
"""Longest path of an output file, as in `SandboxRun`."""
_PR_SET_DUMPABLE = 4
_PR_SET_THP_DISABLE = 41
_NICE = 10
"""Without it, many busy processes slow down the worker in the same container. `confine` of tools
has the same value.
"""
_MAX_SIGNALS = 128
"""Signals that wait at the same time, for all processes."""


def main() -> None:
    request = json.load(sys.stdin)
    limits = request["limits"]
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)  # the kernel does not count all of a huge page
    Path("/proc/self/oom_score_adj").write_text("1000")  # the kernel ends the code before others
    os.nice(_NICE)
    _become(request["user"])
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # the code cannot look into this process
    _set_limits(limits)
    os.umask(0o022)
    (FOLDER / "inputs").mkdir()
    (FOLDER / "outputs").mkdir()
    for name, data in request["inputs"].items():
        (FOLDER / "inputs" / name).write_bytes(base64.b64decode(data))
    (FOLDER / "code.py").write_text(request["code"], encoding="utf-8")
    sys.stdout.write("\n")  # from here on, the worker measures the time
    sys.stdout.flush()
    result = _run(limits)
    result["files"], result["left_out"] = _read_outputs(limits)
    json.dump(result, sys.stdout)


def _become(user: int) -> None:
    """Become a user whom no other process has. Root has no limit of processes."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def _set_limits(limits: dict[str, int]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (limits["memory_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits["file_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"],) * 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits["open_files"],) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_s"], limits["cpu_s"] + 1))
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (_MAX_SIGNALS,) * 2)
    for none in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
        resource.setrlimit(none, (0, 0))


def _run(limits: dict[str, int]) -> dict[str, Any]:
    """Run the code to its end, or until it has printed or waited too much. Then end everything
    that it has started.
    """
    until = time.monotonic() + limits["seconds"]
    kept_output: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    printed = 0
    stopped = ""
    with subprocess.Popen(
        [sys.executable, "-I", "code.py"],
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    ) as process:
        ready = selectors.DefaultSelector()
        ready.register(process.stdout, selectors.EVENT_READ, "stdout")  # type: ignore[arg-type]
        ready.register(process.stderr, selectors.EVENT_READ, "stderr")  # type: ignore[arg-type]
        ready.register(os.pidfd_open(process.pid), selectors.EVENT_READ, "end")
        while not stopped:
            names = _wait_for_output(ready, until)
            if "end" in names:
                break
            for name in names:
                piece = os.read(getattr(process, name).fileno(), _PIECE)
                printed += len(piece)
                _keep_end(kept_output[name], piece, limits["kept_bytes"])
                if not piece:
                    ready.unregister(getattr(process, name))
            if time.monotonic() > until:
                stopped = "time"
            elif printed > limits["printed_bytes"]:
                stopped = "output"
        _end_all()
        for name in ("stdout", "stderr"):  # all writers have ended
            rest = getattr(process, name).read(_PIECE) or b""
            _keep_end(kept_output[name], rest, limits["kept_bytes"])
        code = process.wait()
    texts = {name: data.decode("utf-8", "replace") for name, data in kept_output.items()}
    return {"exit_code": code, "stopped": stopped, **texts}


def _keep_end(buffer: bytearray, piece: bytes, limit: int) -> None:
    """Add a piece of an output, and keep only the last bytes, because errors are at the end."""
    buffer += piece
    del buffer[:-limit]


def _wait_for_output(ready: selectors.BaseSelector, until: float) -> list[str]:
    """Return the names of all streams with output; "end" if the process has ended."""
    events = ready.select(max(0.0, until - time.monotonic()) + 0.01)
    return [key.data for key, _ in events]


def _end_all() -> None:
    """Kill all other processes of the sandbox. A process may start others in the meantime."""
    for _ in range(100):
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return


def _read_outputs(limits: dict[str, int]) -> tuple[dict[str, str], int]:
    """Return the content of each plain file as base64, and the number of other files."""
    files: dict[str, str] = {}
    left_out, size = 0, 0
    top = FOLDER / "outputs"
    for path in _iterate_paths(top):
        name = str(path.relative_to(top)).encode("utf-8", "replace").decode()
        data = None
        if len(name) <= _MAX_PATH_CHARS and len(files) < limits["output_files"]:
            data = _read_content(path, limits["output_bytes"] - size)
        if data is None:
            left_out += 1
            continue
        size += len(data)
        files[name] = base64.b64encode(data).decode()
    return files, left_out


def _iterate_paths(top: Path) -> Iterator[Path]:
    """Yield the paths of all files in a folder, and of folders that cannot be read. The code may
    have put a link in the place of the folder, or folders without end.
    """
    waiting = [] if top.is_symlink() else [top]
    if not waiting:
        yield top
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError:
            yield folder
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
            else:
                yield Path(entry.path)


def _read_content(path: Path, max_bytes: int) -> bytes | None:
    """Return the bytes of a plain file of at most this size, else None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
            return None
        return file.read(max_bytes)


if __name__ == "__main__":
    main()
