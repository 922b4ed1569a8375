"""Give an environment the bytecode of this interpreter's packages: the first process in a new
environment spends most of its processor time on compilation.
"""

from __future__ import annotations

import csv
import struct
import sys
import sysconfig
from importlib.util import cache_from_source
from pathlib import Path

from benchmarks.installs import ROOT, Environment

_OWN_PACKAGE = "handoff_queue"
_FORMAT_B = 8
"""Length of the start of a bytecode file: its format and flags."""
_HEADER_B = 16
"""Length of the header: the start, and 4 bytes each for the source's time of change and size."""


def copy_bytecode(environment: Environment) -> None:
    """Write the bytecode of each module whose source is equal in this interpreter."""
    packages = Path(sysconfig.get_path("purelib"))
    target = environment.folder / packages.relative_to(sys.prefix)
    own_digests = _digests(packages)
    for name, digest in _digests(target).items():
        if name.startswith(f"{_OWN_PACKAGE}/"):
            own_source = ROOT / name
            is_equal = (target / name).read_bytes() == own_source.read_bytes()
        else:
            own_source = packages / name
            is_equal = digest == own_digests.get(name)
        code = _code_of(own_source) if is_equal else b""
        if code:
            source = target / name
            compiled = Path(cache_from_source(str(source)))
            compiled.parent.mkdir(exist_ok=True)
            compiled.write_bytes(code[:_FORMAT_B] + _time_and_size(source) + code[_HEADER_B:])


def _digests(packages: Path) -> dict[str, str]:
    """Return the digest of each installed module, by its path below the packages."""
    digests: dict[str, str] = {}
    for record in packages.glob("*.dist-info/RECORD"):
        with record.open(newline="") as lines:
            for name, digest, _ in csv.reader(lines):
                if name.endswith(".py"):
                    digests[name] = digest
    return digests


def _code_of(source: Path) -> bytes:
    """Return the bytecode file of a source. Return no byte if the file is missing or old."""
    compiled = Path(cache_from_source(str(source)))
    if not compiled.exists():
        return b""
    code = compiled.read_bytes()
    return code if code[_FORMAT_B:_HEADER_B] == _time_and_size(source) else b""


def _time_and_size(source: Path) -> bytes:
    status = source.stat()
    return struct.pack("<II", int(status.st_mtime), status.st_size)
