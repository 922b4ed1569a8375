"""Several containers of a service share the work, and each may stop at any time.

The model is a server on the host.
"""

from __future__ import annotations

import os
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

from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client import client
from handoff_queue.testing import Json, MessagesServer, Reply, first_message_text
from tests.compose.project import Project, run, running_project
from tests.e2e.fleet import Fleet, Script
from tests.running_system import RunningSystem
from tests.system_users import refused_commands
from tests.waiting import wait_until

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]
CALL_S = 1.0
"""Duration of each call of a researcher in seconds."""
LEASE_S = 60
"""Seconds. A wait for the end of such a lease is visible in the measurements."""
PAUSE_S = 5.0
"""Longest accepted pause in seconds. A start of a container takes ten seconds or more."""
NEXT = f"handoff-queue-next-{secrets.token_hex(3)}"
"""Name of the image of the next release."""
SERVED = ("redis", "supervisor", "researcher")


@dataclass(slots=True)
class CallMeter:
    """Script that gives each call of a step a duration, and counts concurrent calls."""

    script: Script
    now: int = 0
    most: int = 0
    began: dict[str, list[float]] = field(default_factory=dict)
    """`STEP of NAME` -> times of its calls."""
    ended_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Json) -> Reply:
        reply = self.script(request)
        step = re.search(r"Do ([\w-]+ of [\w-]+)\.</task>", first_message_text(request))
        if step is None:
            return reply
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.began.setdefault(step[1], []).append(time.monotonic())
        return replace(reply, duration_s=CALL_S, on_sent=self._out)

    def _out(self, _was_heard: bool) -> None:
        with self.lock:
            self.now -= 1
            self.ended_at = time.monotonic()


@dataclass(slots=True)
class ScaledProject:
    """The project, its model, and the calls that the model got."""

    project: Project
    fleet: Fleet
    meter: CallMeter

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
            lambda: len(self.fleet.jobs.store.presence.read_announcements()) == researchers,
            expected="the researchers",
        )

    def wait_for_calls(self, at_once: int) -> None:
        wait_until(lambda: self.meter.now >= at_once, expected=f"{at_once} calls at once")

    def submit(self, name: str, jobs: int, steps: int, turns: int = 1) -> list[JobId]:
        """Submit the jobs NAME-0, NAME-1 and so on, with independent steps."""
        names = [f"{name}-{number}" for number in range(jobs)]
        self.fleet.model.specialists |= dict.fromkeys(names, "researcher")
        return [
            self.fleet.submit(job, turns=turns, **{f"s{step}": "" for step in range(steps)})
            for job in names
        ]

    def hosts(self, job_ids: list[JobId], role: str) -> Counter[str]:
        """Return the number of handoffs of this role by container."""
        handoffs = (
            handoff
            for job_id in job_ids
            for handoff in self.fleet.jobs.result(job_id).handoffs
            if handoff["assigned_to"] == role
        )
        return Counter(handoff["worker"].partition(":")[0] for handoff in handoffs)

    def calls(self, name: str) -> Counter[tuple[str, str, int]]:
        """Return the number of calls of these jobs by (job, step or role, turn)."""
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
            time_of_call
            for step, times in self.meter.began.items()
            if f" of {name}-" in step
            for time_of_call in times
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
        """Return the longest time in seconds between two calls of one step."""
        began = [times for step, times in self.meter.began.items() if f" of {name}-" in step]
        return max(later - earlier for times in began for earlier, later in pairwise(times))


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScaledProject]:
    folder = tmp_path_factory.mktemp("scaling")
    host = run(
        ["docker", "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}"]
    ).strip()
    meter = CallMeter(Script())
    with (
        ExitStack() as cleanup,
        MessagesServer(meter, host) as server,
        Processes(folder) as processes,
    ):
        settings = {
            "WORKER_SLOTS": "1",
            "ANTHROPIC_BASE_URL": server.url,
            "HANDOFF_LEASE_S": str(LEASE_S),
        }
        cleanup.callback(subprocess.run, ["docker", "rmi", NEXT], check=False, capture_output=True)
        with running_project(folder, settings, *SERVED) as project:
            url, admin_url = project.url_of("client"), project.url_of("admin")
            jobs = client.connect(url, project.client_settings())
            admin = client.connect(admin_url, project.client_settings())
            system = RunningSystem(url, processes, {}, admin_url, admin)
            yield ScaledProject(project, Fleet(system, server, meter.script, jobs), meter)
            assert not (refused := refused_commands(admin.store.connection.redis)), refused
            admin.store.connection.close()
            jobs.store.connection.close()


def throughput(
    scaled: ScaledProject, name: str, supervisors: int, researchers: int
) -> tuple[list[JobId], float]:
    """Run jobs with 24 steps together. Return their ids and the steps per second."""
    scaled.scale(researchers, supervisors)
    scaled.meter.began.clear()
    scaled.meter.most = 0
    job_ids = scaled.submit(name, jobs=8, steps=3)
    for job_id in job_ids:
        scaled.fleet.wait_for_success(job_id, within_s=90)
    began = min(time_of_call for times in scaled.meter.began.values() for time_of_call in times)
    return job_ids, 24 / (scaled.meter.ended_at - began)


def test_four_researchers_and_two_supervisors_share_the_work_and_are_faster(
    scaled: ScaledProject,
) -> None:
    _, alone = throughput(scaled, "alone", supervisors=1, researchers=1)
    at_once = scaled.meter.most

    job_ids, shared = throughput(scaled, "shared", supervisors=2, researchers=4)

    print(
        f"{alone:.2f} steps a second with 1 researcher and 1 supervisor, {shared:.2f} with 4 and 2"
    )
    assert (at_once, scaled.meter.most) == (1, 4)
    for role, service in (("researcher", "researcher"), ("planner", "supervisor")):
        completed = scaled.hosts(job_ids, role)
        print(role, *completed.values())
        assert set(completed) == {
            container[:12] for container in scaled.project.containers(service)
        }
    assert shared > 2.5 * alone


def test_a_scale_down_in_the_middle_of_handoffs_repeats_no_call_and_waits_for_no_lease(
    scaled: ScaledProject,
) -> None:
    scaled.scale(4)
    job_ids = scaled.submit("down", jobs=1, steps=4, turns=6)
    scaled.wait_for_calls(at_once=4)

    scaled.scale(1)

    for job_id in job_ids:
        scaled.fleet.wait_for_success(job_id, within_s=90)
    assert max(scaled.hosts(job_ids, "researcher").values()) > 1, (
        "a remaining container continues handoffs of a stopped container"
    )
    assert set(scaled.calls("down").values()) == {1}, scaled.calls("down")
    gap_s = scaled.longest_gap_s("down")
    print(f"longest time between two turns of a handoff: {gap_s:.1f} s")
    assert gap_s < LEASE_S / 2


def test_a_rolling_update_during_jobs_repeats_no_call_and_stops_no_role(
    scaled: ScaledProject,
) -> None:
    scaled.scale(2, 2)
    run(["docker", "tag", "handoff-queue", NEXT])
    job_ids = []

    for number, service in enumerate(("supervisor", "researcher")):
        job_ids += scaled.submit(f"roll-{number}", jobs=3, steps=8, turns=4)
        scaled.wait_for_calls(at_once=2)
        scaled.roll(service, 2, NEXT)

    for job_id in job_ids:
        scaled.fleet.wait_for_success(job_id, within_s=90)
    pause_s = scaled.longest_pause_s("roll-1")
    print(f"longest time in which no call began while researchers were replaced: {pause_s:.1f} s")
    assert pause_s < PAUSE_S
    new = {container[:12] for container in scaled.project.containers("researcher")}
    assert new & set(scaled.hosts(job_ids, "researcher")), "the new containers did no work"
    assert set(scaled.calls("roll").values()) == {1}, scaled.calls("roll")


def test_another_machine_needs_the_image_and_the_keys_of_its_role(scaled: ScaledProject) -> None:
    """The new container is in no network of the project. It has the keys of its role."""
    scaled.scale(0)
    variables = [
        f"HANDOFF_REDIS_URL={scaled.project.url_of('worker-researcher')}",
        f"ANTHROPIC_BASE_URL={scaled.fleet.server.url}",
        "HANDOFF_KEYS=/etc/handoff/keys/keyring.json",
        "HANDOFF_SIGNING_KEY=/etc/handoff/keys/signing.key",
    ]
    settings = [argument for setting in variables for argument in ("--env", setting)]
    keys = scaled.project.keys / "worker-researcher"
    for path in (keys, *keys.iterdir()):
        os.chown(path, 10_001, 10_001)
    container = run(
        [
            "docker",
            "run",
            "--detach",
            "--rm",
            "--network",
            "host",
            "--init",
            "--volume",
            f"{keys}:/etc/handoff/keys:ro",
            *settings,
            "handoff-queue",
            "worker",
            "researcher",
        ]
    )
    try:
        wait_until(
            scaled.fleet.jobs.store.presence.read_announcements,
            timeout_s=60,
            expected="the other machine",
        )
        (job_id,) = scaled.submit("elsewhere", jobs=1, steps=2)
        assert scaled.fleet.wait_for_success(job_id, within_s=60)
    finally:
        run(["docker", "stop", container.strip()])


def test_a_container_that_runs_out_of_memory_repeats_only_its_call_in_flight(
    scaled: ScaledProject,
) -> None:
    scaled.scale(4, HANDOFF_LEASE_S="3")
    held = [scaled.fleet.model.hold("oom-0", f"s{step}") for step in range(4)]
    (job_id,) = scaled.submit("oom", jobs=1, steps=4, turns=2)
    assert all(call.arrived.wait(30) for call in held)
    victim = scaled.fleet.handoff_info(job_id, "s0.1").worker.partition(":")[0]

    run_out_of_memory(victim)
    for call in held:
        call.release.set()

    scaled.fleet.wait_for_success(job_id, within_s=60)
    repeated = {key: count for key, count in scaled.calls("oom").items() if count > 1}
    assert repeated == {("oom-0", "s0", 1): 2}


def run_out_of_memory(container: str) -> None:
    """Fill the container's memory with files. The kernel kills its largest process, and Docker
    restarts the container.
    """
    run(["docker", "update", "--memory", "200m", "--memory-swap", "200m", container])
    fill = ["dd", "if=/dev/zero", "of=/tmp/full", "bs=1M", "count=250"]
    subprocess.run(["docker", "exec", container, *fill], check=False, capture_output=True)
    wait_until(
        lambda: container_events(container)[-2:] == ["die", "start"], expected="another start"
    )
    assert "oom" in container_events(container)


def container_events(container: str) -> list[str]:
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
