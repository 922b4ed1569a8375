"""Processor time of a job with the counts for `/metrics` and the verified usage, without them,
and with encrypted texts: `python -m benchmarks.plain_forms`.

Each form has a supervisor, a worker and a Redis. The forms run the same jobs in turn. A ratio
compares a form with the product in the same turn. On a busy machine the ratios of jobs vary by
a tenth. `--parts` measures a decision instead.
"""

from __future__ import annotations

import argparse
import base64
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from operator import sub
from pathlib import Path
from statistics import median
from typing import Any

import redis

from benchmarks.arguments import parse_positive
from benchmarks.fleets import SLOTS, SUPERVISOR, WORKER, build_environment, fleet, private_redis
from handoff_queue.shared.types.plan import Synthesis

FORM = "BENCH_FORM"
PRODUCT = "product"
UNCOUNTED = "without metrics"
UNVERIFIED = "without verified usage"
ENCRYPTED = "with encryption"
FORMS = (PRODUCT, UNCOUNTED, UNVERIFIED, ENCRYPTED)
COUNTING = {
    "add_to_metric(more, name, ...)": "",
    "label(kind, value)": "value",
    "observe(ms, name, ...)": "",
    "count_call(job, h, used, is_open)": "",
    "sets_of_tenant(queue, member)": "{}",
}
"""Functions of the scripts that only the metrics need -> the value that they return instead."""
VERIFYING = {
    "verified_at(key)": "{ turns = 0, input_tokens = 0, output_tokens = 0, usd = 0 }",
    "record_verified_usage(job, verified, at)": "",
}
"""Functions of the scripts for the verified usage -> the value that they return instead."""


def use_plain_form() -> None:
    """Replace parts of the product in this process, before it imports their users."""
    form = os.environ[FORM]
    if form == UNCOUNTED:
        _replace_functions(COUNTING)
    if form == UNVERIFIED:
        _replace_functions(VERIFYING)
        from handoff_queue.supervisor.lifecycle.verified_usage import VerifiedUsage

        VerifiedUsage.with_result = lambda usage, *_, **__: usage  # type: ignore[method-assign]


def _replace_functions(functions: Mapping[str, str]) -> None:
    """Make functions of the scripts return a value at once.

    Args:
        functions: the functions with their arguments -> the values.
    """
    from handoff_queue.shared.store.redis import connection, script

    def read_source(name: str) -> str:
        source = script.build_source(name)
        for function, value in functions.items():
            head = f"local function {function}"
            source = source.replace(head, f"{head} do return {value} end", 1)
        return source

    connection.source_of = read_source  # type: ignore[attr-defined]


def measure_forms(
    forms: Sequence[str], jobs: int, repeats: int
) -> dict[str, list[tuple[float, float]]]:
    """Return milliseconds of processor time of a job, for each form and turn: of the
    supervisor and the worker, and of all processes.
    """
    from benchmarks.handoff_jobs import HandoffJobs
    from benchmarks.trips import measure_cost

    times: dict[str, list[tuple[float, float]]] = {}
    for form in forms:
        times[form] = []
    with ExitStack() as parts:
        folder = Path(parts.enter_context(tempfile.TemporaryDirectory()))
        systems: dict[str, tuple[Any, dict[str, int], Any]] = {}
        apps = [
            replace(SUPERVISOR, app="benchmarks.plain_supervisor"),
            replace(WORKER, app="benchmarks.plain_worker"),
        ]
        for number, form in enumerate(forms):
            url, server = parts.enter_context(private_redis(folder / f"redis{number}"))
            environment = build_environment(url, 0.0, Synthesis.MERGE) | {FORM: form}
            keys = None
            if form == ENCRYPTED:
                keys = _write_key(folder)
                environment |= {"HANDOFF_TENANT_KEYS": str(keys)}
            pids = parts.enter_context(
                fleet(folder / f"fleet{number}", environment, apps, slots=SLOTS)
            )
            runner = HandoffJobs(url, tenant_keys=keys)
            runner.warm_up()
            runner.run(20)
            systems[form] = (runner, pids | {"redis": server}, redis.Redis.from_url(url))
        for number in range(repeats):
            order = list(systems.items())
            if number % 2 == 0:
                order.reverse()
            for form, (runner, pids, client) in order:
                cost = measure_cost(runner.run, jobs, pids, client)
                own_ms = cost.cpu_ms[SUPERVISOR.name] + cost.cpu_ms[WORKER.name]
                times[form].append((own_ms, cost.total_ms))
    return times


def _write_key(folder: Path) -> Path:
    """Write a key of the default tenant. Return the folder of keys."""
    keys = folder / "keys"
    keys.mkdir()
    file = keys / "default.key"
    file.touch(mode=0o600)
    file.write_bytes(base64.b64encode(os.urandom(32)))
    return keys


def measure_verified_usage(repeats: int, commits: int = 500) -> None:
    """Print the microseconds of Redis's processor time of a decision with verified usage and
    without, and of one reading of the verified usage.
    """
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.shared.store import keys
    from handoff_queue.shared.store.commit import Commit, VerifiedAmounts
    from handoff_queue.shared.types.events import DEFAULT_TENANT, CancelRequested
    from handoff_queue.supervisor.client.client import connect
    from handoff_queue.supervisor.client.request import Request

    read_script = "local f = {'HMGET', KEYS[1], 'verified_turns', 'verified_usd'}"
    read_script += " for _ = 1, 1000 do redis.pcall(unpack(f)) end"
    with tempfile.TemporaryDirectory() as name, private_redis(Path(name)) as (url, _):
        jobs = connect(url, Settings(offline=True))
        job_id = jobs.submit(Request("Cancel it."))
        store, number, day = jobs.store, 0, int(time.time()) // 86_400
        # Honest workers have counted at least the usage of their results.
        counters = dict.fromkeys(("turns", "input_tokens", "output_tokens", "usd"), 10**9)
        for account in (keys.progress(job_id), keys.day(day), keys.day(day, DEFAULT_TENANT)):
            store.connection.redis.hset(account, mapping=counters)

        def read_redis_seconds() -> float:
            processor_times = store.connection.redis.info("cpu")
            return float(
                processor_times["used_cpu_user_main_thread"]
                + processor_times["used_cpu_sys_main_thread"]
            )

        def measure_commit(*, has_usage: bool) -> float:
            nonlocal number
            began = read_redis_seconds()
            for _ in range(commits):
                version = store.jobs.read([job_id])[0].version
                number += 1
                sums = (number, 300 * number, 80 * number, 50 * number)
                verified_amounts = VerifiedAmounts(sums, day, sums) if has_usage else None
                commit = Commit(
                    job_id, version, [CancelRequested(by="bench")], verified=verified_amounts
                )
                store.journal.commit(commit)
            return (read_redis_seconds() - began) / commits * 1e6

        turns = []
        for _ in range(repeats):
            turns.append((measure_commit(has_usage=False), measure_commit(has_usage=True)))
        began = read_redis_seconds()
        for _ in range(repeats):
            store.connection.redis.eval(read_script, 1, f"handoff:{{{job_id}}}")
        read_us = (read_redis_seconds() - began) / repeats * 1e3
    without_us, with_us = zip(*turns, strict=True)
    more = median(map(sub, with_us, without_us))
    print("| decision without verified usage, µs | with | more | one reading |\n|---|---|---|---|")
    print(f"| {median(without_us):.0f} | {median(with_us):.0f} | {more:.0f} | {read_us:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=parse_positive, default=80)
    parser.add_argument("--repeats", type=parse_positive, default=15)
    parser.add_argument("--form", choices=FORMS[1:], help="compare only this form")
    parser.add_argument("--parts", action="store_true", help="a decision only")
    options = parser.parse_args()
    if options.parts:
        measure_verified_usage(options.repeats)
        return
    forms = (PRODUCT, options.form) if options.form else FORMS
    times = measure_forms(forms, options.jobs, options.repeats)
    print(
        "| form | ms of supervisor and worker | ratio | ms in all | ratio |\n|---|---|---|---|---|"
    )
    for form, turns in times.items():
        cells: list[str] = []
        for place in (0, 1):
            ratios: list[float] = []
            for turn, product in zip(turns, times[PRODUCT], strict=True):
                ratios.append(turn[place] / product[place])
            cells.append(f"{median(turn[place] for turn in turns):.1f} | {median(ratios):.3f}")
        print(f"| {form} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
