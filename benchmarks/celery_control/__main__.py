"""`python -m benchmarks.celery_control`: kill processes of plain Celery as `handoff chaos`
does, try every failpoint, and try the five gaps of chords in both systems.

The exit code is 1 if plain Celery broke a promise.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from collections.abc import Sequence

from benchmarks.arguments import parse_not_negative, parse_positive
from benchmarks.celery_control.run import (
    convert_control,
    format_control,
    is_everything_kept,
    run_control,
)
from benchmarks.celery_control.system import ROOT
from handoff_queue.chaos.fleet import Size
from handoff_queue.chaos.run import Options


def main(arguments: Sequence[str] | None = None) -> int:
    namespace = _parse_arguments(arguments)
    os.environ["PYTHONPATH"] = str(ROOT)  # the workers import `benchmarks.celery_control.app`
    options = Options(
        namespace.seed,
        namespace.jobs,
        namespace.kills,
        size=Size(namespace.workers, namespace.supervisors),
    )
    _tell(f"seed {namespace.seed}")
    control = run_control(options, _tell)
    if namespace.json:
        print(json.dumps(convert_control(control) | {"seed": namespace.seed}))
    else:
        print(format_control(control))
    return int(not is_everything_kept(control))


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def _parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.celery_control", description=__doc__
    )
    parser.add_argument("--jobs", type=parse_positive, default=50, help="number of jobs")
    parser.add_argument("--kills", type=parse_not_negative, default=20, help="number of SIGKILLs")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--workers", type=parse_positive, default=4, help="worker processes")
    parser.add_argument(
        "--supervisors", type=parse_positive, default=3, help="supervisor processes"
    )
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
