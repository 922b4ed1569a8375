"""One service in several containers: faster, each does its part, and each may go at any time.
The model is a server on the host.
"""

from __future__ import annotations

import re
import secrets
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from handoff_queue.shared.local.processes import Processes
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client import client
from handoff_queue.testing import Json, MessagesServer, Reply, first_message_text
from tests.compose.project import Project, run, running_project
from tests.e2e.fleet import Fleet, Script
from tests.running_system import RunningSystem
from tests.waiting import wait_until

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]
CALL_S = 1.0
"""Duration of each call of a researcher in seconds."""
LEASE_S = 60
"""Long enough that a process that waits for the end of a lease is visible in the measurement."""
PAUSE_S = 5.0
"""Longest accepted pause in seconds. A start of a container takes ten seconds or more."""
NEXT = f"handoff-queue-next-{secrets.token_hex(3)}"
"""The image of the next release."""
SERVED = ("redis", "supervisor", "researcher")


@dataclass(slots=True)
class Gauge:
    """The script, with a duration for each call of a step, and the number of concurrent calls."""

    script: Script
    now: int = 0
    most: int = 0
    began: dict[str, list[float]] = field(default_factory=dict)
    """`STEP of NAME` -> when its calls came in."""
    ended_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Json) -> Reply:
        reply = self.script(request)
        found = re.search(r"Do ([\w-]+ of [\w-]+)\.</task>", first_message_text(request))
        if found is None:
            return reply
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.began.setdefault(found[1], []).append(time.monotonic())
        return replace(reply, duration_s=CALL_S, on_sent=self._out)

    def _out(self, _was_heard: bool) -> None:
        with self.lock:
            self.now -= 1
            self.ended_at = time.monotonic()


@dataclass(slots=True)
class Scaled:
    """The project, its model, and the calls that the model got."""

    project: Project
    fleet: Fleet
    gauge: Gauge

    def scale(self, researchers: int, supervisors: int = 1, **environment: str) -> None:
        """Set the number of containers. Compose recreates services whose configuration changed."""
        self.project.up(
            "--scale",
            f"researcher={researchers}",
            "--scale",
            f"supervisor={supervisors}",
            *SERVED,
            **environment,
        )
        wait_until(
            lambda: len(self.fleet.jobs.store.presence.announcements()) == researchers,
            what="the researchers",
        )

    def wait_for_calls(self, at_once: int) -> None:
        wait_until(lambda: self.gauge.now >= at_once, what=f"{at_once} calls at once")

    def submit(self, name: str, jobs: int, steps: int, turns: int = 1) -> list[JobId]:
        """Jobs NAME-0, NAME-1 and so on, of steps that do not wait for each other."""
        names = [f"{name}-{number}" for number in range(jobs)]
        self.fleet.model.specialists |= dict.fromkeys(names, "researcher")
        return [
            self.fleet.submit(one, turns=turns, **{f"s{step}": "" for step in range(steps)})
            for one in names
        ]

    def hosts(self, job_ids: list[JobId], role: str) -> Counter[str]:
        """Return the number of handoffs of this role by container."""
        done = (
            one
            for job_id in job_ids
            for one in self.fleet.jobs.result(job_id).handoffs
            if one["assigned_to"] == role
        )
        return Counter(one["worker"].partition(":")[0] for one in done)

    def calls(self, name: str) -> Counter[tuple[str, str, int]]:
        """Of the jobs of this name: (job, step or role, turn) -> calls."""
        return Counter(
            {
                key: count
                for key, count in self.fleet.model.calls.items()
                if key[0].startswith(f"{name}-")
            }
        )

    def longest_pause_s(self, name: str) -> float:
        """Return the longest time without the start of a model call, between the first and the
        last.
        """
        began = sorted(
            at for step, each in self.gauge.began.items() if f" of {name}-" in step for at in each
        )
        return max(later - earlier for earlier, later in pairwise(began))

    def roll(self, service: str, copies: int, image: str) -> None:
        """Update a service as docs/operations.md says: add new containers, then remove the old
        ones.
        """
        old = self.project.containers(service)
        self.project.up(
            "--no-deps", "--no-recreate", "--scale", f"{service}={2 * copies}", service, IMAGE=image
        )
        run(["docker", "stop", *old])
        run(["docker", "rm", *old])
        assert len(self.project.containers(service)) == copies

    def longest_gap_s(self, name: str) -> float:
        """Between a call of a step and its next."""
        began = [at for step, at in self.gauge.began.items() if f" of {name}-" in step]
        return max(later - earlier for at in began for earlier, later in pairwise(at))


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scaled]:
    folder = tmp_path_factory.mktemp("scaling")
    host = run(
        ["docker", "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}"]
    ).strip()
    gauge = Gauge(Script())
    with (
        ExitStack() as at_the_end,
        MessagesServer(gauge, host) as server,
        Processes(folder) as processes,
    ):
        settings = {
            "WORKER_SLOTS": "1",
            "ANTHROPIC_BASE_URL": server.url,
            "HANDOFF_LEASE_S": str(LEASE_S),
        }
        at_the_end.callback(
            subprocess.run, ["docker", "rmi", NEXT], check=False, capture_output=True
        )
        with running_project(folder, settings, *SERVED) as project:
            jobs = client.connect(project.redis_url, Settings(offline=True))
            yield Scaled(
                project,
                Fleet(RunningSystem(project.redis_url, processes, {}), server, gauge.script, jobs),
                gauge,
            )
            jobs.store.connection.close()


def throughput(
    scaled: Scaled, name: str, supervisors: int, researchers: int
) -> tuple[list[JobId], float]:
    """Run jobs with 24 steps together. Return their ids and the steps per second."""
    scaled.scale(researchers, supervisors)
    scaled.gauge.began.clear()
    scaled.gauge.most = 0
    job_ids = scaled.submit(name, jobs=8, steps=3)
    for job_id in job_ids:
        scaled.fleet.ends_well(job_id, within_s=90)
    began = min(at for one in scaled.gauge.began.values() for at in one)
    return job_ids, 24 / (scaled.gauge.ended_at - began)


def test_four_researchers_and_two_supervisors_share_the_work_and_do_more(
    scaled: Scaled,
) -> None:
    _, alone = throughput(scaled, "alone", supervisors=1, researchers=1)
    at_once = scaled.gauge.most

    job_ids, shared = throughput(scaled, "shared", supervisors=2, researchers=4)

    print(
        f"{alone:.2f} steps a second with 1 researcher and 1 supervisor, {shared:.2f} with 4 and 2"
    )
    assert (at_once, scaled.gauge.most) == (1, 4)
    for role, service in (("researcher", "researcher"), ("planner", "supervisor")):
        done = scaled.hosts(job_ids, role)
        print(role, *done.values())
        assert set(done) == {container[:12] for container in scaled.project.containers(service)}
    assert shared > 2.5 * alone


def test_a_scale_down_in_the_middle_of_handoffs_repeats_no_call_and_waits_for_no_lease(
    scaled: Scaled,
) -> None:
    scaled.scale(4)
    job_ids = scaled.submit("down", jobs=1, steps=4, turns=6)
    scaled.wait_for_calls(at_once=4)

    scaled.scale(1)

    for job_id in job_ids:
        scaled.fleet.ends_well(job_id, within_s=90)
    assert max(scaled.hosts(job_ids, "researcher").values()) > 1, (
        "nobody went on with what another had begun"
    )
    assert set(scaled.calls("down").values()) == {1}, scaled.calls("down")
    gap_s = scaled.longest_gap_s("down")
    print(f"longest time between two turns of a handoff: {gap_s:.1f} s")
    assert gap_s < LEASE_S / 2


def test_a_rolling_update_during_jobs_repeats_no_call_and_stops_no_role(
    scaled: Scaled,
) -> None:
    scaled.scale(2, 2)
    run(["docker", "tag", "handoff-queue", NEXT])
    job_ids = []

    for number, service in enumerate(("supervisor", "researcher")):
        job_ids += scaled.submit(f"roll-{number}", jobs=3, steps=8, turns=4)
        scaled.wait_for_calls(at_once=2)
        scaled.roll(service, 2, NEXT)

    for job_id in job_ids:
        scaled.fleet.ends_well(job_id, within_s=90)
    pause_s = scaled.longest_pause_s("roll-1")
    print(f"longest time in which no call began while researchers were replaced: {pause_s:.1f} s")
    assert pause_s < PAUSE_S
    new = {container[:12] for container in scaled.project.containers("researcher")}
    assert new & set(scaled.hosts(job_ids, "researcher")), "the update came when all was done"
    assert set(scaled.calls("roll").values()) == {1}, scaled.calls("roll")


def test_another_machine_needs_the_image_and_the_url_of_redis(scaled: Scaled) -> None:
    """The new container is in no network of the project."""
    scaled.scale(0)
    reach = [
        f"HANDOFF_REDIS_URL={scaled.project.redis_url}",
        f"ANTHROPIC_BASE_URL={scaled.fleet.server.url}",
    ]
    settings = [part for setting in reach for part in ("--env", setting)]
    container = run(
        [
            "docker",
            "run",
            "--detach",
            "--rm",
            "--network",
            "host",
            "--init",
            *settings,
            "handoff-queue",
            "worker",
            "researcher",
        ]
    )
    try:
        wait_until(
            scaled.fleet.jobs.store.presence.announcements, timeout_s=60, what="the other machine"
        )
        (job_id,) = scaled.submit("elsewhere", jobs=1, steps=2)
        assert scaled.fleet.ends_well(job_id, within_s=60)
    finally:
        run(["docker", "stop", container.strip()])


def test_a_container_that_is_killed_for_its_memory_costs_the_call_that_was_in_the_air(
    scaled: Scaled,
) -> None:
    scaled.scale(4, HANDOFF_LEASE_S="3")
    held = [scaled.fleet.model.hold("oom-0", f"s{step}") for step in range(4)]
    (job_id,) = scaled.submit("oom", jobs=1, steps=4, turns=2)
    assert all(one.arrived.wait(30) for one in held)
    victim = scaled.fleet.standing(job_id, "s0.1").worker.partition(":")[0]

    run_out_of_memory(victim)
    for one in held:
        one.go.set()

    scaled.fleet.ends_well(job_id, within_s=60)
    repeated = {key: count for key, count in scaled.calls("oom").items() if count > 1}
    assert repeated == {("oom-0", "s0", 1): 2}


def run_out_of_memory(container: str) -> None:
    """Fill the container's memory with files. The kernel kills its largest process, and Docker
    restarts the container.
    """
    run(["docker", "update", "--memory", "200m", "--memory-swap", "200m", container])
    fill = ["dd", "if=/dev/zero", "of=/tmp/full", "bs=1M", "count=250"]
    subprocess.run(["docker", "exec", container, *fill], check=False, capture_output=True)
    wait_until(lambda: happened_to(container)[-2:] == ["die", "start"], what="another start")
    assert "oom" in happened_to(container)


def happened_to(container: str) -> list[str]:
    """Return the container's recent events without health checks."""
    query = [
        "--since",
        "2m",
        "--until",
        "0s",
        "--filter",
        f"container={container}",
        "--format",
        "{{.Action}}",
    ]
    return [
        line
        for line in run(["docker", "events", *query]).splitlines()
        if line in ("oom", "die", "start")
    ]
