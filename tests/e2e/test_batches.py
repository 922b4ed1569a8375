"""Calls of a job with the priority batch and a deadline go through the provider's batches. A kill
of a worker at any point pays for no call twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from handoff_queue.chaos.fleet import arm
from handoff_queue.shared.observability.failpoints import FAILPOINTS
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    answer_properties,
    first_message_text,
    json_reply,
    result_reply,
)
from handoff_queue.testing.batches import Batch
from tests.doubles.jobs import nothing_reserved
from tests.e2e.commands import HandoffInProcess
from tests.e2e.fleet import SHORT_LEASES
from tests.running_system import (
    SUPERVISOR,
    RunningSystem,
    model_environment,
    running_system,
)
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

WORKER = ("handoff_queue.workers.app", "writer")
HANDOFF_ID = HandoffId("answer.1")
"""The only handoff of a job with the mode single."""
PROCESSES = {"supervisor": SUPERVISOR[1:], "w1": WORKER, "w2": WORKER}
"""App and queues of each process, by name."""


@dataclass(frozen=True, slots=True)
class Batched:
    """A system whose provider has batches."""

    system: RunningSystem
    server: MessagesServer
    jobs: Client
    armed: Path
    """The folder whose files arm failpoints."""

    def submit(
        self,
        name: str,
        deadline_s: int = 600,
        mode: Mode = Mode.SINGLE,
        gates: Gates | None = None,
    ) -> JobId:
        return self.jobs.submit(
            Request(
                f"Write about {name}.",
                mode=mode,
                gates=gates,
                specialists=("writer",),
                priority=Priority.BATCH,
                deadline_s=deadline_s,
            )
        )

    def calls_of(self, name: str) -> int:
        """Return the number of paid calls of a job: in batches, and live."""
        self.server.batches.advance()
        return sum(f"Write about {name}." in str(request) for request in self.server.requests)

    def batches_of(self, name: str) -> int:
        created = self.server.batches.created
        return sum(f"Write about {name}." in str(batch.requests) for batch in created)

    def wait_for_batch(self, job_id: JobId, handoff_id: HandoffId) -> Batch:
        """Wait until the store has the id of the batch of a handoff, and return the batch."""

        def find() -> Batch | None:
            handoffs = self.jobs.store.jobs.read_handoffs(job_id, [handoff_id])
            doing = handoffs[handoff_id].doing if handoffs else ""
            for batch in self.server.batches.created:
                if f"waits for batch {batch.batch_id}" in doing:
                    return batch
            return None

        batch = wait_until(find, expected="the batch")
        assert batch is not None
        return batch


def reply(request: Json) -> Reply:
    properties = answer_properties(request)
    if "steps" in properties:
        name = first_message_text(request).partition("Write about ")[2].partition(".")[0]
        task = {"task": f"Write about {name}.", "fallback": "-", "depends_on": []}
        step = {"id": "text", "specialist": "writer", **task}
        return json_reply({"steps": [step], "synthesis": "merge", "why": "-"})
    if "verdict" in properties:
        return json_reply({"verdict": "PASS", "revisions": [], "open_points": []})
    if "verdict" in properties.get("output", {}).get("properties", {}):
        return result_reply({"verdict": "PASS", "wrong": [], "why": "-"})
    return result_reply("It is open.")


@pytest.fixture(scope="module")
def batched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batched]:
    """Start a supervisor and two workers. Their failpoints can be armed."""
    armed = tmp_path_factory.mktemp("failpoints")
    settings = {**SHORT_LEASES, "HANDOFF_BATCH_POLL_S": "0.5"}
    with (
        MessagesServer(reply) as server,
        running_system(
            tmp_path_factory.mktemp("system"),
            (),
            model_environment(server, **settings),
        ) as system,
    ):
        for name, (app, queues) in PROCESSES.items():
            spec = system.celery_worker(name, app, queues, 2, variables={FAILPOINTS: str(armed)})
            system.processes.start(replace(spec, is_killed_on_purpose=True))
        system.processes.wait_until_ready()
        jobs = client.connect(system.redis_url, Settings(offline=True))
        yield Batched(system, server, jobs, armed)
        jobs.store.connection.close()


POINTS = {
    "when the intention is stored": "batch.create.before",
    "when the provider has created the batch": "batch.create.after",
    "when the id of the batch is stored": "script.defer.before",
    "when the result is read": "batch.read.after",
}
"""Points of a worker. tests/shared/agent/test_batch_calls.py has all checkpoints."""


@pytest.mark.parametrize("moment", POINTS)
def test_a_kill_at_any_point_pays_no_call_twice(batched: Batched, moment: str) -> None:
    name, point = moment.replace(" ", "-"), POINTS[moment]
    arm(batched.armed, point, "kill")
    job_id = batched.submit(name)
    result = batched.jobs.result(job_id, wait_s=MAX_WAIT_S)
    assert list(batched.armed.glob(f"{point}@*")), "a worker was killed"
    assert result.status == "ok"
    assert (batched.batches_of(name), batched.calls_of(name)) == (1, 1)


def test_a_lost_answer_to_the_creation_pays_no_call_twice(batched: Batched) -> None:
    arm(batched.armed, "batch.create.after", "drop")
    result = batched.jobs.result(batched.submit("lost"), wait_s=MAX_WAIT_S)
    assert result.status == "ok"
    assert (batched.batches_of("lost"), batched.calls_of("lost")) == (1, 1)


def test_a_reply_from_a_batch_costs_half(batched: Batched) -> None:
    live = batched.jobs.submit(
        Request("Write about live.", mode=Mode.SINGLE, specialists=("writer",))
    )
    usual = batched.jobs.result(live, wait_s=MAX_WAIT_S).usage
    cheap = batched.jobs.result(batched.submit("cheap"), wait_s=MAX_WAIT_S).usage
    assert cheap["cost_usd"] == usual["cost_usd"] / 2


def test_the_plan_the_review_and_the_fact_check_of_a_team_go_through_batches(
    batched: Batched,
) -> None:
    job_id = batched.submit("teams", mode=Mode.TEAM, gates=Gates(fact_checker="writer"))
    result = batched.jobs.result(job_id, wait_s=MAX_WAIT_S)
    assert result.status == "ok"
    assert batched.batches_of("teams") == 4, "of planner, writer, assessor and fact-checker"
    assert batched.calls_of("teams") == 4


@pytest.mark.parametrize("moment", POINTS)
def test_a_kill_of_the_supervisor_in_a_batch_of_the_plan_pays_no_call_twice(
    batched: Batched, moment: str
) -> None:
    name, point = f"plans-{moment.replace(' ', '-')}", POINTS[moment]
    earlier = {*batched.armed.glob(f"{point}@*")}
    arm(batched.armed, point, "kill")
    result = batched.jobs.result(batched.submit(name, mode=Mode.TEAM), wait_s=MAX_WAIT_S)
    assert {*batched.armed.glob(f"{point}@*")} > earlier, "the supervisor was killed"
    assert result.status == "ok"
    assert (batched.batches_of(name), batched.calls_of(name)) == (3, 3)


def test_a_live_call_follows_when_the_slack_ends(batched: Batched) -> None:
    batched.server.batches.duration_s = 3_600
    try:
        result = batched.jobs.result(batched.submit("urgent", 8), wait_s=MAX_WAIT_S)
    finally:
        batched.server.batches.duration_s = 0
    assert result.status == "ok"
    assert (batched.batches_of("urgent"), batched.calls_of("urgent")) == (1, 1)
    assert result.usage["cut"]["calls"] == 0


def test_a_cancelled_job_cancels_its_batch_and_does_not_pay_for_it(batched: Batched) -> None:
    batched.server.batches.duration_s = 3_600
    try:
        job_id = batched.submit("unwanted")
        batch = batched.wait_for_batch(job_id, HANDOFF_ID)
        batched.jobs.cancel(job_id)
        wait_until(lambda: batch.canceled_at is not None, expected="the cancellation")
        store = batched.jobs.store
        wait_until(lambda: nothing_reserved(store, job_id), expected="the result of the batch")
    finally:
        batched.server.batches.duration_s = 0
    assert batched.calls_of("unwanted") == 0
    usage = batched.jobs.result(job_id, wait_s=MAX_WAIT_S).usage
    assert (usage["cost_usd"], usage["input_tokens"], usage["cut"]["calls"]) == (0, 0, 0)


POINTS_OF_A_CANCEL = {
    "before the provider cancels the batch": "batch.cancel.before",
    "when the provider has cancelled the batch": "batch.cancel.after",
    "before the call is settled": "script.settle_batch.before",
    "when the call is settled": "script.settle_batch.after",
}


@pytest.mark.parametrize("moment", POINTS_OF_A_CANCEL)
def test_a_kill_of_the_supervisor_while_it_cancels_a_batch_settles_the_call_once(
    batched: Batched, moment: str
) -> None:
    name, point = moment.replace(" ", "-"), POINTS_OF_A_CANCEL[moment]
    store, batches = batched.jobs.store, batched.server.batches
    batches.duration_s, batches.keeps_replies = 3_600, True
    try:
        job_id = batched.submit(name)
        batch = batched.wait_for_batch(job_id, HANDOFF_ID)
        arm(batched.armed, point, "kill")
        batched.jobs.cancel(job_id)
        wait_until(lambda: [*batched.armed.glob(f"{point}@*")], expected="the kill")
        wait_until(lambda: nothing_reserved(store, job_id), expected="the settlement")
    finally:
        batches.duration_s, batches.keeps_replies = 0, False
    usage = batched.jobs.result(job_id, wait_s=MAX_WAIT_S).usage
    assert batch.canceled_at is not None
    assert (usage["turns"], usage["cut"]["calls"]) == (1, 0), "the reply is paid once"


def test_a_command_submits_a_batched_job_and_shows_the_batch(
    batched: Batched, handoff: HandoffInProcess
) -> None:
    def run(*words: str) -> str:
        url = batched.system.redis_url
        return handoff.run(*words, HANDOFF_REDIS_URL=url, HANDOFF_OFFLINE="true").stdout

    batched.server.batches.duration_s = 3_600
    try:
        options = ("--mode", "single", "--priority", "batch", "--deadline", "6h")
        job_id = run("submit", "Write about shown.", *options).strip()
        wait_until(lambda: batched.batches_of("shown"), expected="the batch")
        batch = batched.server.batches.created[-1]
        line = f"waits for batch {batch.batch_id} since"
        wait_until(lambda: line in run("show", job_id), expected=line)
    finally:
        batched.server.batches.duration_s = 0
    batch.ends_at = 0
    result = batched.jobs.result(JobId(job_id), wait_s=MAX_WAIT_S)
    assert (result.status, batched.calls_of("shown")) == ("ok", 1)
    (own,) = result.results
    assert (own["usage"]["batch_calls"], own["usage"]["batch_saved_microusd"] > 0) == (1, True)
