"""`make bench`: this project, a bare Celery canvas, and LangGraph with its SQLite
checkpointer, with jobs of the same shape, in one run.

Each job is plan -> three steps in parallel -> review -> synthesis, with one call each. All use
the same model: a function that waits, or a server on loopback.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.arguments import filter_names, parse_positive
from benchmarks.fleets import BENCH, ROWS, SLOTS, list_installed_rows
from benchmarks.table import format_lines, format_targets, measure
from benchmarks.timed_model import TimedCall, Way
from handoff_queue.shared.local.fork_server import ForkServer
from handoff_queue.shared.types.plan import Synthesis

_CALLS = [TimedCall(0), *(TimedCall(1, way) for way in Way)]
CRITICAL_PATH_CALLS = {Synthesis.MERGE: 3, Synthesis.RECONCILE: 4}


def main(arguments: Sequence[str] | None = None, *, fork_server: ForkServer | None = None) -> None:
    """Measure, and print the table.

    Args:
        fork_server: see `table.measure`.
    """
    options = _parse_arguments(arguments)
    rows = []
    for row in list_installed_rows():
        if row.name in options.rows:
            rows.append(row)
    synthesis = Synthesis(options.synthesis)
    table = {}
    for table in measure(
        rows, options.calls, options.at_once, synthesis, options.repeats, fork_server
    ):
        print(
            f"{sum(map(len, table.values()))} of"
            f" {len(rows) * len(options.calls) * len(options.at_once) * options.repeats}",
            end="\r",
            file=sys.stderr,
        )
    shape = "plan, three at once, review, synthesis " + (
        "by a call" if synthesis is Synthesis.RECONCILE else "by code"
    )
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {options.repeats} repeats in"
        f" turn; {shape}"
    )
    print(
        f"Slots: {SLOTS} a process without latency; with it as many as 500 jobs need, shared by the"
        " processes of a kind\n"
    )
    print(
        "\n".join(
            [*format_lines(table), "", *format_targets(table, CRITICAL_PATH_CALLS[synthesis])]
        )
    )
    if options.quick:
        print(
            "\nSo few jobs only show that the benchmark works. The limits apply to the whole table:"
            " `make bench`."
        )
    if not BENCH.exists():
        print(
            "\nLangGraph is not among them: `make bench` installs it"
            f" ({len(ROWS) - len(list_installed_rows())} rows)"
        )


def _parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--repeats", type=parse_positive, default=3)
    parser.add_argument(
        "--calls",
        type=TimedCall.parse,
        nargs="+",
        default=_CALLS,
        help="seconds of a model call: 0, 1, 1:streamed, 1:whole",
    )
    parser.add_argument(
        "--at-once", type=parse_positive, nargs="+", default=[1, 50, 500], help="jobs"
    )
    parser.add_argument(
        "--synthesis",
        choices=list(Synthesis),
        default=Synthesis.RECONCILE,
        help="by a call (reconcile) or by code (merge)",
    )
    parser.add_argument(
        "--rows", nargs="*", default=[], help="only rows whose names contain one of these texts"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a few jobs, once: to see that it works"
    )
    options = parser.parse_args(arguments)
    options.rows = filter_names(
        parser, "--rows", options.rows, [row.name for row in list_installed_rows()]
    )
    if options.quick:
        options.repeats, options.at_once = 1, [1, 5]
        options.calls = [replace(call, seconds=call.seconds / 10) for call in options.calls]
    return options


if __name__ == "__main__":
    main()
