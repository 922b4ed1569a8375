"""`python -m tests.fuzz`: run each target with atheris for some seconds, one process each.

    python -m tests.fuzz --seconds 60
    python -m tests.fuzz yaml schema --seconds 600

The inputs that reach new code stay in build/fuzz/TARGET, and the next run begins with them. An
input that breaks a promise is written to build/fuzz/TARGET-crash-..., and the exit code is 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.arguments import parse_positive
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="default: all")
    parser.add_argument("--seconds", type=parse_positive, default=60, help="seconds of each target")
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    failed = [name for name in names if not _passes(name, options.seconds)]
    print("\n".join(f"broken promise: {name}" for name in failed))
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed")
    return min(1, len(failed))


def _passes(name: str, seconds: int) -> bool:
    """Fuzz a target in a separate process, because libFuzzer ends the process."""
    print(f"== {name}", flush=True)
    command = [sys.executable, "-m", "tests.fuzz.run", name, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stderr + done.stdout).splitlines()
    if done.returncode == 0:
        lines = [line for line in lines if "number_of_executed_units" in line]
    print("\n".join(lines[-40:]), flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
