"""`python -m benchmarks.pace`: many worker processes against a server that allows few requests
a minute.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.arguments import parse_positive, parse_seconds
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    answer_properties,
    first_message_text,
    json_reply,
)
from tests.doubles.rate_limited_model import Bucket, RateLimited
from tests.running_system import SUPERVISOR, model_environment, running_system

if TYPE_CHECKING:
    from handoff_queue.shared.types.ids import JobId
    from handoff_queue.shared.types.job_events import JobStatus

STEPS = 20
MODEL = "claude-haiku-5-5"
"""Model of the specialists. The supervisor's roles have another bucket."""
ANSWER = {
    "status": "ok",
    "output": "So it is.",
    "claims": [],
    "confidence": 0.9,
    "needs": None,
    "problem": None,
}
PASS = {"verdict": "PASS", "revisions": [], "open_points": []}


@dataclass(frozen=True, slots=True)
class Paced:
    """Calls that the server received for each model, the duration in seconds, and the statuses
    of the jobs.
    """

    buckets: Mapping[str, Bucket]
    took_s: float
    statuses: tuple[str, ...]

    @property
    def bucket(self) -> Bucket:
        """Return the bucket of the specialists' model."""
        return self.buckets[MODEL]

    @property
    def refused(self) -> int:
        """Number of refused calls, of any model."""
        total = 0
        for each in self.buckets.values():
            total += len(each.refused)
        return total


def reply(request: Json) -> Reply:
    """Plan parallel steps, answer each step in one turn, and pass the review."""
    properties = answer_properties(request)
    if "steps" in properties:
        text = first_message_text(request)
        count = int((re.search(r"plan (\d+)", text) or ["", "1"])[1])
        steps: list[dict[str, Any]] = []
        for n in range(count):
            steps.append(
                {
                    "id": f"s{n}",
                    "specialist": "generalist",
                    "task": f"Do part {n}.",
                    "depends_on": [],
                    "fallback": "-",
                }
            )
        return json_reply({"steps": steps, "synthesis": "merge", "why": ""})
    return json_reply(PASS if "verdict" in properties else ANSWER)


def measure_pace(
    folder: Path, *, workers: int, slots: int, limit: int, window_s: float, calls: int
) -> Paced:
    """Run jobs with this number of calls on this number of worker processes, and return the
    server's counts.
    """
    limited_model = RateLimited(reply, limit=limit, window_s=window_s, answers_after_s=0.2)
    with (
        MessagesServer(limited_model) as server,
        running_system(
            folder, (SUPERVISOR,), model_environment(server, HANDOFF_RATE_WINDOW_S=str(window_s))
        ) as system,
    ):
        for n in range(workers):
            system.start_worker(f"w{n}", "handoff_queue.workers.app", "generalist", slots)
        system.processes.wait_until_ready()
        jobs = system.jobs()
        began = time.monotonic()
        ids: list[JobId] = []
        for at in range(0, calls, STEPS):
            ids.append(jobs.submit(Request(f"plan {min(STEPS, calls - at)}", mode=Mode.TEAM)))
        statuses: list[JobStatus] = []
        for job_id in ids:
            statuses.append(jobs.wait(job_id, 60 + 3 * calls * window_s / limit))
        jobs.store.connection.close()
        return Paced(
            limited_model.buckets,
            time.monotonic() - began,
            tuple(status.value for status in statuses),
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pace", description=__doc__)
    parser.add_argument("--workers", type=parse_positive, default=8, help="processes")
    parser.add_argument("--slots", type=parse_positive, default=8, help="of each")
    parser.add_argument("--limit", type=parse_positive, default=50, help="requests in a window")
    parser.add_argument("--window", type=parse_seconds, default=60.0, help="seconds")
    parser.add_argument(
        "--calls", type=parse_positive, default=200, help="of the specialists, in all"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        seen = measure_pace(
            Path(folder),
            workers=options.workers,
            slots=options.slots,
            limit=options.limit,
            window_s=options.window,
            calls=options.calls,
        )
    bucket = seen.bucket
    print(
        f"{options.workers} worker processes of {options.slots} slots, {options.limit} requests in"
        f" {options.window:g} s"
    )
    print(f"calls answered   {len(bucket.taken)} in {bucket.taken[-1] - bucket.taken[0]:.1f} s")
    print(f"refused with 429 {seen.refused}")
    print(f"quota used       {bucket.used:.1%}")
    print(
        "jobs            "
        f" {', '.join(f'{seen.statuses.count(status)} {status}' for status in sorted(set(seen.statuses)))}"  # noqa: E501
    )


if __name__ == "__main__":
    main()
