"""A user's message to a running step is shown to its model once, whenever the worker is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from handoff_queue.chaos.fleet import arm
from handoff_queue.shared.observability.failpoints import FAILPOINTS
from handoff_queue.shared.types.events import UserMessageTaken
from handoff_queue.shared.types.ids import JobId
from handoff_queue.testing import Json, MessagesServer, answer_properties
from tests.e2e.fleet import SHORT_LEASES, Fleet, Script
from tests.e2e.test_adaptive import hand_off_reply, submit_adaptive
from tests.running_system import ALL_SPECIALISTS, SUPERVISOR, model_environment, running_system
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder whose files arm failpoints in the workers."""
    return tmp_path_factory.mktemp("failpoints")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, armed: Path) -> Iterator[Fleet]:
    """Start a supervisor and two workers."""
    script = Script()
    with (
        MessagesServer(script) as server,
        running_system(
            tmp_path_factory.mktemp("fleet"),
            (SUPERVISOR,),
            model_environment(server, **SHORT_LEASES),
        ) as system,
    ):
        _, app, queues = ALL_SPECIALISTS
        for name in ("w1", "w2"):
            spec = system.celery_worker(name, app, queues, 2, variables={FAILPOINTS: str(armed)})
            system.processes.start(replace(spec, is_killed_on_purpose=True))
        system.processes.wait_until_ready()
        fleet = Fleet(system, server, script, system.jobs())
        yield fleet
        script.release_all()
        fleet.jobs.store.connection.close()


def shown(fleet: Fleet, text: str, name: str, step: str) -> list[int]:
    """Return how often each request for a step of the job NAME contains the text."""
    counts: list[int] = []
    for request in fleet.server.requests:
        if f"Do {step} of {name}.</task>" in _text(request):
            counts.append(_text(request).count(text))
    return counts


def _text(request: Json) -> str:
    return json.dumps(request["messages"])


def taken(fleet: Fleet, job_id: JobId) -> list[tuple[str, int]]:
    """Return the handoff and the turn of each taken message."""
    events = [recorded.event for recorded in fleet.jobs.events(job_id, follow=False)]
    return [
        (event.handoff_id, event.turn) for event in events if isinstance(event, UserMessageTaken)
    ]


def test_a_running_step_takes_a_message_before_its_next_turn(fleet: Fleet) -> None:
    held = fleet.model.hold("say-plain", "a")
    job_id = fleet.submit("say-plain", turns=3, a="")
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.jobs.say(job_id, "Plainly now.", "a")
    held.release.set()

    fleet.wait_for_success(job_id)

    assert shown(fleet, "Plainly now.", "say-plain", "a") == [0, 1, 1]
    assert taken(fleet, job_id) == [("a.1", 2)]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_worker_killed_while_it_takes_a_message_loses_and_repeats_nothing(
    fleet: Fleet, armed: Path, moment: str
) -> None:
    wait_until(fleet.is_complete, timeout_s=60, expected="the fleet")
    name, text = f"say-{moment}", f"Shorter, {moment}."
    held = fleet.model.hold(name, "a")
    job_id = fleet.submit(name, turns=2, a="")
    assert held.arrived.wait(MAX_WAIT_S)
    point = f"script.take_messages.{moment}"
    arm(armed, point, "kill")
    fleet.jobs.say(job_id, text, "a")
    held.release.set()

    fleet.wait_for_success(job_id)

    assert list(armed.glob(f"{point}@*")), "the worker was killed"
    assert fleet.handoff_info(job_id, "a.1").claims >= 1
    assert shown(fleet, text, name, "a") == [0, 1], "no call is repeated, and one has the message"
    assert taken(fleet, job_id) == [("a.1", 2)]


def test_a_worker_killed_before_it_could_take_a_message_leaves_it_to_the_next_claim(
    fleet: Fleet,
) -> None:
    wait_until(fleet.is_complete, timeout_s=60, expected="the fleet")
    held = fleet.model.hold("say-cut", "a")
    job_id = fleet.submit("say-cut", turns=2, a="")
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.jobs.say(job_id, "Shorter, please.", "a")
    fleet.kill(fleet.pid_of(job_id, "a.1"))

    fleet.wait_for_success(job_id)

    assert shown(fleet, "Shorter, please.", "say-cut", "a") == [0, 1, 1]
    ((handoff_id, _),) = taken(fleet, job_id)
    assert handoff_id == "a.1"
    held.release.set()


def test_a_message_during_the_last_turn_gets_another_turn(fleet: Fleet) -> None:
    held = fleet.model.hold("say-last", "a")
    job_id = fleet.submit("say-last", a="")
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.jobs.say(job_id, "One more thing.")
    held.release.set()

    fleet.wait_for_success(job_id)

    assert shown(fleet, "One more thing.", "say-last", "a") == [0, 1]
    assert taken(fleet, job_id) == [("a.1", 2)]


def test_a_worker_killed_before_it_stores_a_result_leaves_a_message_to_the_next_claim(
    fleet: Fleet, armed: Path
) -> None:
    wait_until(fleet.is_complete, timeout_s=60, expected="the fleet")
    held = fleet.model.hold("say-end", "a")
    job_id = fleet.submit("say-end", a="")
    assert held.arrived.wait(MAX_WAIT_S)
    arm(armed, "script.finish.before", "kill")
    fleet.jobs.say(job_id, "At the very end.")
    held.release.set()

    fleet.wait_for_success(job_id)

    assert list(armed.glob("script.finish.before@*")), "the worker was killed"
    assert shown(fleet, "At the very end.", "say-end", "a")[-1] == 1
    ((handoff_id, _),) = taken(fleet, job_id)
    assert handoff_id == "a.1"


def test_the_assessor_gets_a_message_to_a_step_that_has_ended(fleet: Fleet) -> None:
    held = fleet.model.hold("say-ended", "b")
    job_id = fleet.submit("say-ended", a="", b="")
    assert held.arrived.wait(MAX_WAIT_S)
    wait_until(
        lambda: [event.handoff_id for event in fleet.finished(job_id)][-1:] == ["a.1"],
        expected="the end of step a",
    )
    fleet.jobs.say(job_id, "Mind the units.", "a")
    held.release.set()

    fleet.wait_for_success(job_id)

    assert shown(fleet, "Mind the units.", "say-ended", "a") == [0]
    assert shown(fleet, "Mind the units.", "say-ended", "b") == [0]
    reviews = [request for request in fleet.server.requests if "plan say-ended" in _text(request)]
    assert [_text(request).count("Mind the units.") for request in reviews] == [0, 1]
    assert taken(fleet, job_id) == []


def replanner_requests(fleet: Fleet, name: str) -> list[str]:
    """Return the messages of each request of the replanner of the job NAME, in order."""
    texts: list[str] = []
    for request in fleet.server.requests:
        if f"plan {name}" in _text(request) and "decision" in answer_properties(request):
            texts.append(_text(request))
    return texts


def end_of_first_step(fleet: Fleet, job_id: JobId) -> None:
    """Wait until step a of a job has ended."""
    wait_until(
        lambda: "a.1" in [event.handoff_id for event in fleet.finished(job_id)],
        expected="the end of step a",
    )


def test_the_replanner_that_begins_later_gets_a_message_to_a_step_that_has_ended(
    fleet: Fleet,
) -> None:
    name, text = "say-replanned", "Mind the Brazilian price."
    held = fleet.model.hold(name, "b")
    more = hand_off_reply(fleet, name, "c", to="analyst")
    job_id = submit_adaptive(fleet, name, more, a="", b="")
    assert held.arrived.wait(MAX_WAIT_S)
    end_of_first_step(fleet, job_id)
    fleet.jobs.say(job_id, text, "a")
    held.release.set()

    result = fleet.wait_for_success(job_id)

    briefs = [request.count(text) for request in replanner_requests(fleet, name)]
    assert briefs[0] == 1, "the first brief of the replanner has the message"
    assert [patch["added"] for patch in result.patches][:1] == [
        [{"id": "c", "specialist": "analyst"}]
    ]
    assert [shown(fleet, text, name, step) for step in ("a", "b", "c")] == [[0], [0], [0]]
    assert taken(fleet, job_id) == [], "the message was in the task of the replanner"


def requests_of_the_assessor(fleet: Fleet, name: str) -> list[str]:
    """Return the messages of each request of the assessor of the job NAME, in order."""
    texts: list[str] = []
    for request in fleet.server.requests:
        if f"plan {name}" in _text(request) and "verdict" in answer_properties(request):
            texts.append(_text(request))
    return texts


def test_an_assessor_that_runs_takes_a_message_to_a_step_that_has_ended(fleet: Fleet) -> None:
    name, text = "say-reviewed", "Mind the currency."
    held = fleet.model.hold(name, "assessor")
    job_id = fleet.submit(name, a="")
    assert held.arrived.wait(MAX_WAIT_S)
    sent = fleet.jobs.say(job_id, text, "a")
    held.release.set()

    fleet.wait_for_success(job_id)

    assert sent.running == ("assessor",)
    reviews = requests_of_the_assessor(fleet, name)
    assert [request.count(f"(to step a) {text}") for request in reviews] == [0, 1]
    assert taken(fleet, job_id) == [("assessor.1", 2)]


def test_a_replanner_that_runs_takes_a_message_to_a_step_that_has_ended(fleet: Fleet) -> None:
    name, text = "say-replanning", "Mind the Chilean price."
    held = fleet.model.hold(name, "replanner")
    job_id = submit_adaptive(fleet, name, a="")
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.jobs.say(job_id, text, "a")
    held.release.set()

    fleet.wait_for_success(job_id)

    requests = replanner_requests(fleet, name)
    assert [request.count(f"(to step a) {text}") for request in requests] == [0, 1]
    assert taken(fleet, job_id) == [("replanner.1", 2)]
