"""Adaptive jobs: the replanner changes the plan when results arrive."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.types.events import HandoffIssued, PlanPatched
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import Json, Reply, first_message_text, json_reply, tool_call_reply
from tests.e2e.fleet import ENVELOPE, KEEP_PLAN, Fleet
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

FINALIZE = {"decision": "finalize", "why": "All of it is there."}


def hand_off_reply(
    fleet: Fleet, name: str, *steps: str, to: str = "analyst", after: str = ""
) -> Reply:
    """Return the replanner's reply that hands off these steps, with one tool call for each."""
    return tool_call_reply(
        *((f"hand_off_to_{to}", _step(step, fleet.model.task(name, step), after)) for step in steps)
    )


def _step(step: str, task: str, after: str = "") -> Json:
    return {
        "id": step,
        "task": task,
        "depends_on": after.split(),
        "why": "It looks like the configuration.",
    }


def submit_adaptive(fleet: Fleet, name: str, *replies: Reply, **plan: str) -> JobId:
    """Submit an adaptive job with these replies of the replanner. After the last reply, the plan
    stays.
    """
    fleet.model.replans[name] = lambda number: (
        replies[number - 1] if number <= len(replies) else json_reply(KEEP_PLAN)
    )
    return submit_with_plan(fleet, name, plan)


def submit_with_plan(
    fleet: Fleet, name: str, plan: dict[str, str], limits: JobLimits | None = None
) -> JobId:
    fleet.add_plan(name, plan)
    return fleet.jobs.submit(
        Request(f"plan {name}", mode=Mode.ADAPTIVE, limits=limits or JobLimits())
    )


def patches(fleet: Fleet, job_id: JobId) -> list[PlanPatched]:
    return [
        recorded.event
        for recorded in fleet.jobs.events(job_id, follow=False)
        if isinstance(recorded.event, PlanPatched)
    ]


def handoff_of(result: JobResult, step: str) -> dict[str, Any]:
    return next(handoff for handoff in result.handoffs if handoff["step_id"] == step)


def replanner_calls(fleet: Fleet, name: str) -> int:
    return sum(
        count
        for (name_of_call, role, _), count in fleet.model.calls.items()
        if (name_of_call, role) == (name, "replanner")
    )


def test_a_finding_sends_the_next_step_to_another_specialist_with_that_result(
    fleet: Fleet,
) -> None:
    fleet.model.envelopes["elsewhere", "code"] = ENVELOPE | {
        "output": "No fault in the code: it looks like the configuration."
    }
    job_id = submit_adaptive(
        fleet, "elsewhere", hand_off_reply(fleet, "elsewhere", "config", after="code"), code=""
    )
    result = fleet.wait_for_success(job_id)

    added = handoff_of(result, "config")
    assert (added["assigned_to"], added["depends_on"]) == ("analyst", ["code"])
    assert [item["step_id"] for item in added["context"]] == ["code"]
    assert [step["id"] for step in (result.plan or {})["steps"]] == ["code", "config"]
    assert result.patches[0]["added"] == [{"id": "config", "specialist": "analyst"}]
    assert result.patches[0]["why"] == "It looks like the configuration."


def test_several_handoffs_of_one_reply_run_side_by_side_in_one_chord(fleet: Fleet) -> None:
    held = [fleet.model.hold("side-by-side", step) for step in ("x", "y")]
    job_id = submit_adaptive(
        fleet, "side-by-side", hand_off_reply(fleet, "side-by-side", "x", "y"), a=""
    )

    assert all(call.arrived.wait(MAX_WAIT_S) for call in held)
    for call in held:
        call.release.set()
    result = fleet.wait_for_end(job_id)
    assert handoff_of(result, "x")["group"] == handoff_of(result, "y")["group"]
    assert "synthesizer" in [handoff["assigned_to"] for handoff in result.handoffs], (
        "an answer from added steps needs a synthesis"
    )


def test_ready_steps_start_while_the_replanner_runs(fleet: Fleet) -> None:
    held = fleet.model.hold("thinks", "replanner")
    job_id = submit_adaptive(
        fleet, "thinks", hand_off_reply(fleet, "thinks", "d", after="c"), a="", b="a", c="b"
    )
    assert held.arrived.wait(MAX_WAIT_S)

    wait_until(lambda: fleet.model.calls["thinks", "c", 1], expected="the last step of the plan")
    assert patches(fleet, job_id) == []
    held.release.set()
    fleet.wait_for_success(job_id)


def test_a_step_that_has_not_begun_is_dropped_and_another_changed(fleet: Fleet) -> None:
    change = (
        "change_step",
        {
            "step": "c",
            "task": "Do cc of changed.",
            "depends_on": ["a"],
            "why": "b says nothing new.",
        },
    )
    drop = ("drop_step", {"step": "b", "why": "b says nothing new."})
    slow = fleet.model.hold("changed", "slow")
    job_id = submit_adaptive(
        fleet, "changed", tool_call_reply(change, drop), a="", slow="", b="slow", c="b"
    )
    patch = wait_until(lambda: patches(fleet, job_id), expected="the patch")[0]
    slow.release.set()
    result = fleet.wait_for_success(job_id)

    assert (patch.dropped, [step.id for step in patch.changed]) == (("b",), ["c"])
    tasks = {
        handoff["step_id"]: handoff["task_description"]
        for handoff in result.handoffs
        if handoff["group"]
    }
    assert tasks == {
        "a": "Do a of changed.",
        "slow": "Do slow of changed.",
        "c": "Do cc of changed.",
    }


def test_an_invalid_patch_goes_back_once_with_its_error_and_then_the_plan_stays(
    fleet: Fleet,
) -> None:
    invalid = hand_off_reply(fleet, "wrong", "x", after="nowhere")
    job_id = submit_adaptive(fleet, "wrong", invalid, invalid, a="")
    result = fleet.wait_for_success(job_id)

    message = replanner_messages(fleet, "wrong")[-1]
    assert "step x depends on nowhere, which is not a step" in message
    assert replanner_calls(fleet, "wrong") == 2
    assert "depends on nowhere" in result.patches[0]["problem"]
    assert [step["id"] for step in (result.plan or {})["steps"]] == ["a"]


def replanner_messages(fleet: Fleet, name: str) -> list[str]:
    """Return the last message of each of the replanner's calls."""
    requests = [
        (first_message_text(request), request["messages"]) for request in fleet.server.requests
    ]
    return [
        str(messages[-1]["content"])
        for opening, messages in requests
        if f"plan {name}" in opening and "There are new results of" in opening
    ]


def test_the_generalist_replaces_an_unknown_specialist(fleet: Fleet) -> None:
    job_id = submit_adaptive(
        fleet, "nobody", hand_off_reply(fleet, "nobody", "x", to="alchemist", after="a"), a=""
    )
    result = fleet.wait_for_success(job_id)

    assert handoff_of(result, "x")["assigned_to"] == "generalist"
    notes = next(
        step_result["notes"]
        for step_result in result.results
        if step_result["step_id"] == "replanner"
    )
    assert notes == ["there is no specialist alchemist: generalist takes its steps"]


def test_a_replanner_that_repeats_the_same_work_is_warned_once_and_then_not_asked_again(
    fleet: Fleet,
) -> None:
    task = "Read the logs of the checkout service and list every error with its message."
    fleet.model.tasks["rewords", "logs"] = task

    def repeat(number: int) -> Reply:
        return tool_call_reply(
            (
                "hand_off_to_generalist",
                _step(f"again_{number}", f"Please {task.lower()} Do logs of rewords."),
            )
        )

    fleet.model.replans["rewords"] = repeat
    job_id = submit_with_plan(fleet, "rewords", {"logs": "", "more": "logs", "last": "more"})
    result = fleet.wait_for_success(job_id)

    assert {handoff["step_id"] for handoff in result.handoffs if handoff["group"]} == {
        "logs",
        "more",
        "last",
    }
    assert replanner_calls(fleet, "rewords") == 2, "the first call, and one warning"
    assert (
        "asks for what logs was asked for already; its result is: ok, So it is."
        in replanner_messages(fleet, "rewords")[-1]
    )
    assert any("asked for the same work again (again_2 is logs)" in note for note in result.notes)


def test_a_replanner_that_keeps_adding_new_steps_is_stopped_at_its_limit_with_the_reason(
    fleet: Fleet,
) -> None:
    fleet.model.replans["adds"] = lambda number: hand_off_reply(fleet, "adds", f"new-{number}")
    job_id = submit_with_plan(fleet, "adds", {"a": ""}, JobLimits(max_rounds=3))
    result = fleet.wait_for_end(job_id)

    assert [handoff["step_id"] for handoff in result.handoffs if handoff["group"]] == [
        "a",
        "new-1",
        "new-2",
        "new-3",
    ]
    assert replanner_calls(fleet, "adds") == 3
    assert any(
        "was not changed any more: its limit of 3 rounds is reached" in note
        for note in result.notes
    )


def test_a_supervisor_killed_during_replanning_is_replaced_and_the_patch_is_applied_once(
    fleet: Fleet,
) -> None:
    held = fleet.model.hold("killed", "replanner")
    patch = hand_off_reply(fleet, "killed", "x", after="a")
    job_id = submit_adaptive(fleet, "killed", patch, patch, a="")
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.kill(fleet.pid_of(job_id, "replanner.1"))
    result = fleet.wait_for_success(job_id)

    assert replanner_calls(fleet, "killed") == 3, (
        "the interrupted call, its repetition, and the call after the added step"
    )
    assert [patch.plan is not None for patch in patches(fleet, job_id)] == [True, False]
    issued = [
        recorded.event
        for recorded in fleet.jobs.events(job_id, follow=False)
        if isinstance(recorded.event, HandoffIssued)
    ]
    assert [event.handoff_id for event in issued if event.group] == ["a.1", "x.1"]
    assert result.usage["cut"]["calls"] == 1
    held.release.set()


def test_after_a_final_patch_the_replanner_is_not_asked_and_no_new_step_begins(
    fleet: Fleet,
) -> None:
    slow = fleet.model.hold("finalizes", "slow")
    job_id = submit_adaptive(fleet, "finalizes", json_reply(FINALIZE), a="", slow="", b="slow")
    patch = wait_until(lambda: patches(fleet, job_id), expected="the decision")[0]
    slow.release.set()
    result = fleet.wait_for_end(job_id)

    assert (patch.is_final, patch.dropped) == (True, ("b",))
    assert replanner_calls(fleet, "finalizes") == 1
    assert {handoff["step_id"] for handoff in result.handoffs if handoff["group"]} == {"a", "slow"}


def test_the_replanner_sees_results_and_plan_without_their_history(
    fleet: Fleet,
) -> None:
    fleet.model.envelopes["context", "a"] = ENVELOPE | {"output": "What a has found."}
    job_id = submit_adaptive(fleet, "context", a="")
    fleet.model.turns["context"] = 2
    fleet.wait_for_success(job_id)

    request = next(
        request
        for request in fleet.server.requests
        if "There are new results of a" in first_message_text(request)
        and "plan context" in first_message_text(request)
    )
    prompt = first_message_text(request)
    assert "What a has found." in prompt
    assert (
        '{"step": "a", "specialist": "generalist", "task": "Do a of context.",'
        ' "status": "ok"}' in prompt
    )
    assert [message["role"] for message in request["messages"]] == ["user"]
    internal_words = (
        "tool_use",
        "toolu_",
        "worker",
        "handoff_id",
        "attempt",
        "tokens",
        "lease",
        "planner",
        job_id,
    )
    assert [word for word in internal_words if word in prompt] == []
    (tool,) = request["tools"]  # no waiting step is left to change
    assert tool["name"] == "hand_off"
    assert {"analyst", "coder"} <= {*tool["input_schema"]["properties"]["specialist"]["enum"]}
