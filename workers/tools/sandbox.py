"""The sandbox for code of a model: bubblewrap, with a filter of system calls and limits.

The code has no network, a read-only root with Python and the system's programs, and a folder in
memory. It sees no file of the worker and no process outside.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.types.json_values import has_more_values
from handoff_queue.workers.tools.sandbox_limits import (
    FOLDERS_IN_MEMORY,
    SandboxLimits,
    find_exceeded_limit,
)
from handoff_queue.workers.tools.seccomp_filter import build_sandbox_filter

MAX_RESULT_VALUES = 1_000
"""JSON values of one result. A true result has fewer than 30: its fields and its files."""
MAX_LEFT_OUT = 10**9
AT_ONCE = 2
"""Sandboxes of one worker process that run at the same time. Other calls wait."""
CHECK_EVERY_S = 0.1
"""Seconds between two checks of the limits."""
PACKED_WITHIN_S = 10.0
"""Seconds from the limit of time to the result of the run."""
PROGRAM = Path(__file__).with_name("sandbox_program.py")
_STARTED_WITHIN_S = 30.0
_FIRST_USER, _USERS = 2_000_000_000, 100_000_000
"""Ids of users that no system gives to its own users."""
_SYSTEM_FOLDERS = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin")
_PYTHON_FOLDERS = ("bin", "lib", "lib64", "share/zoneinfo")
_free = threading.BoundedSemaphore(AT_ONCE)


class SandboxRun(BaseModel):
    """The end of a run. The code may have forged each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    exit_code: Annotated[int, Field(ge=-1_000, le=1_000)]
    stopped: str = Field(pattern=r"^(time|output|)$")
    """Limit that ended the run, or ""."""
    stdout: str
    stderr: str
    files: dict[Annotated[str, Field(max_length=1_000)], str]
    """Path below `outputs` -> content as base64."""
    left_out: int = Field(ge=0, le=MAX_LEFT_OUT)
    """Files that are not plain files, or too many, or too large."""

    def decode_contents(self) -> dict[str, bytes]:
        """Return the contents of the output files by path.

        Raises:
            ValueError: a content is not base64.
        """
        return {name: b64decode(data, validate=True) for name, data in self.files.items()}


@cache
def find_sandbox_fault() -> str:
    """Return the reason why this machine has no sandbox, or "". It is tried once in a process."""
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return "the kernel does not show the children of a process (CONFIG_PROC_CHILDREN)"
    code = f"import time\ntime.sleep({3 * CHECK_EVERY_S})\nprint('ready')"  # it is measured, too
    try:
        run = run_in_sandbox(code, {})
    except (ToolFailed, OSError) as error:
        return " ".join(str(error).split())[:300]
    if run.stdout != "ready\n":
        return " ".join(f"Python does not start in it: {run.stderr}".split())[:300]
    return ""


def run_in_sandbox(
    code: str,
    inputs: Mapping[str, bytes],
    limits: SandboxLimits | None = None,
    is_abandoned: Callable[[], bool] = lambda: False,
    python: Path | None = None,
) -> SandboxRun:
    """Run Python code in a new sandbox, and return its output.

    Args:
        code: the program.
        inputs: content of each file in the folder `inputs`, by name.
        limits: limits of the run. None: the defaults.
        is_abandoned: returns whether to give the run up.
        python: interpreter. None: the interpreter of this process, without its virtual environment.

    Raises:
        ToolFailed: there is no sandbox, or the run has no result.
    """
    limits = limits or SandboxLimits()
    request = {
        "code": code,
        "inputs": {name: b64encode(data).decode() for name, data in inputs.items()},
        "limits": asdict(limits),
        "user": _FIRST_USER + secrets.randbelow(_USERS),
    }
    while not _free.acquire(timeout=CHECK_EVERY_S):
        if is_abandoned():
            raise ToolFailed("the run was given up")
    try:
        output = _run(json.dumps(request).encode(), limits, is_abandoned, python)
    finally:
        _free.release()
    return parse_run(output)


def parse_run(output: bytes) -> SandboxRun:
    """Return the end of a run from all that its sandbox has written.

    Raises:
        ToolFailed: the text is not a result.
    """
    if not has_more_values(output, MAX_RESULT_VALUES):
        with suppress(ValidationError):
            return SandboxRun.model_validate_json(output)
    raise ToolFailed("the code ended its sandbox without a result")


def _run(
    request: bytes, limits: SandboxLimits, is_abandoned: Callable[[], bool], python: Path | None
) -> bytes:
    """Return everything that the sandbox writes.

    Raises:
        ToolFailed: the sandbox did not start, or was ended.
    """
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        raise ToolFailed("bubblewrap is not installed (apt-get install bubblewrap)")
    try:
        program = build_sandbox_filter()
    except OSError as error:
        raise ToolFailed(str(error)) from None
    with os.fdopen(os.memfd_create("filter"), "w+b") as seccomp:
        seccomp.write(program)
        seccomp.seek(0)
        process = subprocess.Popen(
            [bubblewrap, *_build_arguments(limits, seccomp.fileno(), python)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},
            pass_fds=[seccomp.fileno()],
            start_new_session=True,
        )
    try:
        return _Run(process, limits).wait_for_result(request, is_abandoned)
    finally:
        process.kill()  # the kernel ends the sandbox with its first process
        process.wait()


class _Run:
    """A running sandbox."""

    def __init__(self, process: subprocess.Popen[bytes], limits: SandboxLimits) -> None:
        self._process = process
        self._limits = limits
        self._output = bytearray()
        self._errors = bytearray()

    def wait_for_result(self, request: bytes, is_abandoned: Callable[[], bool]) -> bytes:
        """Return the result of the run.

        Raises:
            ToolFailed: the run has no result.
        """
        ends_at = time.monotonic() + _STARTED_WITHIN_S
        has_started = False
        limit = self._limits.max_result_bytes
        streams = (
            threading.Thread(target=self._write, args=(request,), daemon=True),
            threading.Thread(target=self._read, args=(self._output, limit), daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        )
        for stream in streams:
            stream.start()
        while streams[1].is_alive():
            streams[1].join(CHECK_EVERY_S)
            if is_abandoned():
                raise ToolFailed("the run was given up")
            if self._output and not has_started:  # the packer writes a line break first
                has_started = True
                ends_at = time.monotonic() + self._limits.seconds + PACKED_WITHIN_S
            if time.monotonic() > ends_at:
                raise ToolFailed(self._describe_timeout(has_started))
            if exceeded := self._find_exceeded_limit():
                raise ToolFailed(exceeded)
        if len(self._output) > limit:
            raise ToolFailed(f"the result has more than {limit:,} bytes")
        if not self._output.strip():
            raise ToolFailed(self._describe_failure())
        return bytes(self._output)

    def _find_exceeded_limit(self) -> str:
        try:
            return find_exceeded_limit(self._process.pid, self._limits)
        except PermissionError as error:
            return f"the worker cannot measure its sandbox: {error}"

    def _describe_timeout(self, has_started: bool) -> str:
        if has_started:
            return f"the code did not end within {self._limits.seconds} s"
        return f"the sandbox did not start within {_STARTED_WITHIN_S:.0f} s"

    def _describe_failure(self) -> str:
        """Return the reason why there is no result."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STARTED_WITHIN_S)
        errors = " ".join(self._errors.decode("utf-8", "replace").split())
        if errors.startswith("bwrap:"):
            return f"the kernel allows no sandbox ({errors[:200]})"
        if self._process.returncode == 128 + signal.SIGKILL:
            return "the code was killed; it may need too much memory"
        return f"the code ended its sandbox without a result ({errors[-200:]})"

    def _write(self, request: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError), self._process.stdin as stdin:
            stdin.write(request)

    def _read(self, buffer: bytearray, limit: int) -> None:
        assert self._process.stdout is not None
        with suppress(OSError), self._process.stdout as stdout:
            while len(buffer) <= limit and (piece := os.read(stdout.fileno(), 65_536)):
                buffer += piece

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with suppress(OSError), self._process.stderr as stderr:
            while piece := os.read(stderr.fileno(), 65_536):
                self._errors += piece[: 4_000 - len(self._errors)]


def _build_arguments(limits: SandboxLimits, seccomp: int, python: Path | None) -> list[str]:
    """Return the arguments of bubblewrap."""
    python = python or Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    arguments = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", "--hostname", "sandbox"]
    arguments += ["--die-with-parent", "--new-session"]
    if os.geteuid() == 0:  # the program inside becomes another user
        for capability in ("CAP_SETUID", "CAP_SETGID"):
            arguments += ["--cap-add", capability]
    else:
        arguments += ["--unshare-user", "--disable-userns"]
    for name, value in _VARIABLES.items():
        arguments += ["--setenv", name, value]
    arguments += ["--perms", "0755", "--dir", "/etc", "--ro-bind", "/usr", "/usr"]
    for folder in map(Path, _SYSTEM_FOLDERS):
        if folder.is_symlink():
            arguments += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            arguments += ["--ro-bind", str(folder), str(folder)]
    arguments += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    arguments += ["--proc", "/proc", *_build_devices()]
    for folder_in_memory in FOLDERS_IN_MEMORY:
        arguments += ["--size", str(limits.file_bytes), "--perms", "1777"]
        arguments += ["--tmpfs", folder_in_memory]
    arguments += _build_python_folders(python.parent.parent)
    arguments += ["--remount-ro", "/", "--chdir", "/work"]
    arguments += ["--seccomp", str(seccomp)]
    return [*arguments, "--", str(python), "-I", "-c", PROGRAM.read_text(encoding="utf-8")]


def _build_python_folders(prefix: Path) -> list[str]:
    """Return the arguments that show an interpreter outside of /usr. The prefix may be the home
    of a user, so the sandbox sees only the folders that Python needs.
    """
    if prefix == Path("/") or prefix.is_relative_to("/usr"):
        return []
    arguments: list[str] = []
    for folder in (*reversed(prefix.parents[:-1]), prefix, prefix / "share"):
        arguments += ["--perms", "0755", "--dir", str(folder)]
    for name in _PYTHON_FOLDERS:
        arguments += ["--ro-bind-try", str(prefix / name), str(prefix / name)]
    return arguments


def _build_devices() -> list[str]:
    """Return the arguments that make /dev. It has no terminals, because the whole machine shares
    their number, and no /dev/zero, because memory behind that is not counted.
    """
    arguments = ["--perms", "0755", "--dir", "/dev"]
    for name in ("full", "null", "random", "urandom"):
        arguments += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        arguments += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]
    return [*arguments, "--symlink", "/proc/self/fd", "/dev/fd"]


_VARIABLES = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/work",
    "LANG": "C.UTF-8",
    "MALLOC_ARENA_MAX": "2",  # an arena of a thread reserves 64 MiB of the limit of memory
    "OPENBLAS_NUM_THREADS": "1",
}
