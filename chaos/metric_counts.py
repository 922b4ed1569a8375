"""The counts of `/metrics` against the jobs that the store has: each fact is counted once."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from handoff_queue.shared.store import keys

TALLIED = ("issued", "ok", "partial", "needs_input", "failed", "dropped")
"""The numbers in the field `tally` of a job's hash, in order."""
SPENT = {
    "turns": "model_calls",
    "input_tokens": "tokens input",
    "output_tokens": "tokens output",
    "usd": "cost_usd",
}
"""Field of a job's budget -> the same amount in `counted`."""


def find_wrong_counts(client: Any) -> list[str]:
    """Return one line for each count that is not the sum over all jobs. No job may have been
    deleted, and none may be running.
    """
    counts, job_sums = read_counts(client), of_jobs(client)
    lines: list[str] = []
    for name in sorted(job_sums.keys() | counts.keys()):
        if counts[name] != job_sums[name]:
            lines.append(
                f"{keys.METRICS}: {counts[name]} {name}, and the jobs have {job_sums[name]}"
            )
    daily_sums = of_days(client)
    for name in SPENT.values():
        if daily_sums[name] != job_sums[name]:
            lines.append(f"{keys.spending('*')}: {daily_sums[name]} {name}, not {job_sums[name]}")
    return lines


def of_days(client: Any) -> Counter[str]:
    """Return the calls, tokens and money that the days have counted for the money page."""
    names = {"calls": "model_calls", "usd": "cost_usd"}
    names |= {"input": "tokens input", "output": "tokens output"}
    sums = Counter[str]()
    for key in client.scan_iter(match=keys.spending("*"), count=1_000):
        for field, value in client.hgetall(key).items():
            name = names.get(field.decode().partition("\t")[0])
            if name:
                sums[name] += int(value)
    return sums


def read_counts(client: Any) -> Counter[str]:
    """Return the counts of ended jobs, handoffs by outcome, calls, tokens and money."""
    counts = Counter[str]()
    for field, value in client.hgetall(keys.METRICS).items():
        name, *labels = field.decode().split("\t")
        if name in ("handoffs", "tokens"):
            counts[f"{name} {labels[-1]}"] += int(value)
        elif name in ("model_calls", "cost_usd", "jobs_submitted"):
            counts[name] += int(value)
    return counts


def of_jobs(client: Any) -> Counter[str]:
    """Return the same numbers from the progress of the jobs. A child's calls are in the budget of
    its parent.
    """
    submitted = {member.decode() for member in client.zrange(keys.JOBS, 0, -1)}
    sums = Counter(jobs_submitted=len(submitted))
    for name in client.scan_iter(match=f"{keys.PREFIX}{{*}}:progress", count=1_000):
        match = re.fullmatch(r"handoff:\{([^}]+)\}:progress", name.decode())
        if match is None:
            continue
        tally, *amounts = client.hmget(name, "tally", *SPENT)
        for outcome, number in zip(TALLIED, (tally or b"").split(), strict=False):
            if outcome != "issued":
                sums[f"handoffs {outcome}"] += int(number)
        if match[1] in submitted:
            for amount, value in zip(SPENT.values(), amounts, strict=True):
                sums[amount] += int(value or 0)
    return sums
