"""Processor time of a job with the message writer, the counts for `/metrics` and the verified
usage, without them, and with encrypted texts: `python -m benchmarks.plain_forms`.

Each form has a supervisor, a worker and a Redis. The forms run the same jobs in turn. A ratio
compares a form with the product in the same turn. On a busy machine the ratios of jobs vary by
a tenth. `--parts` measures a message and a decision instead.
"""

from __future__ import annotations

import argparse
import base64
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import redis
from celery import Celery
from pydantic import SecretStr

from benchmarks.fleets import SLOTS, SUPERVISOR, WORKER, environment_of, fleet, private_redis
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE
from handoff_queue.shared.types.plan import Synthesis

if TYPE_CHECKING:
    from handoff_queue.shared.broker.message_publisher import TaskMessage

FORM = "BENCH_FORM"
PRODUCT, SEND_TASK = "product", "send_task"
UNCOUNTED = "without metrics"
UNVERIFIED = "without verified usage"
ENCRYPTED = "with encryption"
FORMS = (PRODUCT, SEND_TASK, UNCOUNTED, UNVERIFIED, ENCRYPTED)
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
    if form == SEND_TASK:
        from handoff_queue.shared.broker import message_publisher

        message_publisher._send = _send_each
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

    def source_of(name: str) -> str:
        source = script.source_of(name)
        for function, value in functions.items():
            head = f"local function {function}"
            source = source.replace(head, f"{head} do return {value} end", 1)
        return source

    connection.source_of = source_of  # type: ignore[attr-defined]


def _send_each(app: Celery, messages: Iterable[TaskMessage], put: Any) -> None:
    """Send each message with Celery's `send_task`."""
    from handoff_queue.shared.broker.message_publisher import RETRY
    from handoff_queue.shared.store.fair_queue import FIRST_HEADER, MEMBER_HEADER

    with app.producer_pool.acquire(block=True) as producer:
        for message in messages:
            headers: dict[str, Any] = {MEMBER_HEADER: message.member}
            if message.is_first:
                headers[FIRST_HEADER] = True
            chord: dict[str, Any] = {}
            if message.part:
                chord = {
                    "group_id": message.part.group_id,
                    "group_index": message.part.index,
                    "chord": message.part.body,
                }
            app.send_task(
                message.task,
                args=message.args,
                task_id=message.task_id,
                queue=message.queue,
                argsrepr=message.shown,
                kwargsrepr="{}",
                ignore_result=True,
                headers=headers,
                producer=producer,
                retry_policy=dict(RETRY),
                **chord,
            )


def measured(forms: Sequence[str], jobs: int, repeats: int) -> dict[str, list[tuple[float, float]]]:
    """Return milliseconds of processor time of a job, for each form and turn: of the
    supervisor and the worker, and of all processes.
    """
    from benchmarks.handoff_jobs import HandoffJobs
    from benchmarks.trips import cost_of

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
            environment = environment_of(url, 0.0, Synthesis.MERGE) | {FORM: form}
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
            for form, (runner, pids, client) in order if number % 2 else reversed(order):
                cost = cost_of(runner.run, jobs, pids, client)
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


def measure_parts(repeats: int) -> None:
    """Print the microseconds of processor time of one message, and of three messages to
    one queue.
    """
    from handoff_queue.shared.broker import message_publisher
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.supervisor.assembly import make_supervisor_app

    with tempfile.TemporaryDirectory() as name, private_redis(Path(name)) as (url, _):
        app = make_supervisor_app(Settings(redis_url=SecretStr(url), offline=True))
        messages = []
        for n in range(3):
            messages.append(
                message_publisher.TaskMessage(
                    "bench", f"id{n}", SUBMISSIONS_QUEUE, ("job",), "('job')", f"j/{n}"
                )
            )
        product = message_publisher._send

        def sent(send: Any, count: int) -> Callable[[], None]:
            def publish() -> None:
                message_publisher._send = send
                message_publisher.publish_each(app, messages[:count])

            return publish

        pairs = {
            "one message": (sent(product, 1), sent(_send_each, 1)),
            "three messages": (sent(product, 3), sent(_send_each, 3)),
        }
        print("| | product, µs | plain, µs |\n|---|---|---|")
        for what, (project, theirs) in pairs.items():
            project_us: list[float] = []
            theirs_us: list[float] = []
            for _ in range(repeats):
                project_us.append(_micros(project))
                theirs_us.append(_micros(theirs))
            print(f"| {what} | {median(project_us):.0f} | {median(theirs_us):.0f} |")


def measure_verified_usage(repeats: int, commits: int = 500) -> None:
    """Print the microseconds of Redis's processor time of a decision with verified usage and
    without, and of one reading of the verified usage.
    """
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.shared.store import keys
    from handoff_queue.shared.store.commit import Commit, VerifiedAmounts
    from handoff_queue.shared.types.events import DEFAULT_TENANT, CancelRequested
    from handoff_queue.supervisor.client import client as clients

    read = "local f = {'HMGET', KEYS[1], 'verified_turns', 'verified_usd'}"
    read += " for _ = 1, 1000 do redis.pcall(unpack(f)) end"
    with tempfile.TemporaryDirectory() as name, private_redis(Path(name)) as (url, _):
        jobs = clients.connect(url, Settings(offline=True))
        job_id = jobs.submit(clients.Request("Cancel it."))
        store, number, day = jobs.store, 0, int(time.time()) // 86_400
        # Honest workers have counted at least the usage of their results.
        counters = dict.fromkeys(("turns", "input_tokens", "output_tokens", "usd"), 10**9)
        for account in (keys.progress(job_id), keys.day(day), keys.day(day, DEFAULT_TENANT)):
            store.connection.redis.hset(account, mapping=counters)

        def redis_s() -> float:
            processor_times = store.connection.redis.info("cpu")
            return float(
                processor_times["used_cpu_user_main_thread"]
                + processor_times["used_cpu_sys_main_thread"]
            )

        def micros(*, has_usage: bool) -> float:
            nonlocal number
            began = redis_s()
            for _ in range(commits):
                version = store.jobs.standings([job_id])[0].version
                number += 1
                sums = (number, 300 * number, 80 * number, 50 * number)
                verified = VerifiedAmounts(sums, day, sums) if has_usage else None
                commit = Commit(job_id, version, [CancelRequested(by="bench")], verified=verified)
                store.journal.commit(commit)
            return (redis_s() - began) / commits * 1e6

        turns = []
        for _ in range(repeats):
            turns.append((micros(has_usage=False), micros(has_usage=True)))
        began = redis_s()
        for _ in range(repeats):
            store.connection.redis.eval(read, 1, f"handoff:{{{job_id}}}")
        read_us = (redis_s() - began) / repeats * 1e3
    without, with_usage = (median(turn[place] for turn in turns) for place in (0, 1))
    more = median(turn[1] - turn[0] for turn in turns)
    print(
        "\n| decision without verified usage, µs | with | more | one reading |\n|---|---|---|---|"
    )
    print(f"| {without:.0f} | {with_usage:.0f} | {more:.0f} | {read_us:.1f} |")


def _micros(call: Callable[[], Any], count: int = 200) -> float:
    """Return the microseconds of processor time of one call."""
    began = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - began) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=80)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--form", choices=FORMS[1:], help="compare only this form")
    parser.add_argument("--parts", action="store_true", help="single parts only")
    options = parser.parse_args()
    if options.parts:
        measure_parts(options.repeats)
        measure_verified_usage(options.repeats)
        return
    forms = (PRODUCT, options.form) if options.form else FORMS
    times = measured(forms, options.jobs, options.repeats)
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
