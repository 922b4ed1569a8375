"""A plan that is reviewed when results arrive: real supervisors and workers, a scripted model
behind real HTTP.
"""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.types.events import HandoffIssued, PlanPatched
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.client import Request
from handoff_queue.supervisor.client.report import JobResult
from handoff_queue.testing import Json, Reply, first_message_text, json_reply, tool_call_reply
from tests.e2e.fleet import ENVELOPE, GO_ON, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

FINALIZE = {"decision": "finalize", "why": "All of it is there."}


def hands_off(fleet: Fleet, name: str, *steps: str, to: str = "analyst", after: str = "") -> Reply:
    """One call a step, all in one reply."""
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


def adaptive(fleet: Fleet, name: str, *looks: Reply, **plan: str) -> JobId:
    """Submit an adaptive job. `looks`: the replanner's answers. After the last answer, the plan
    stays.
    """
    fleet.model.replans[name] = lambda nth: (
        looks[nth - 1] if nth <= len(looks) else json_reply(GO_ON)
    )
    return submitted(fleet, name, plan)


def submitted(
    fleet: Fleet, name: str, plan: dict[str, str], limits: JobLimits | None = None
) -> JobId:
    fleet.model.plans[name] = plan
    return fleet.jobs.submit(
        Request(f"plan {name}", mode=Mode.ADAPTIVE, limits=limits or JobLimits())
    )


def patches(fleet: Fleet, job_id: JobId) -> list[PlanPatched]:
    return [
        one.event
        for one in fleet.jobs.events(job_id, follow=False)
        if isinstance(one.event, PlanPatched)
    ]


def handoff_of(result: JobResult, step: str) -> dict[str, Any]:
    return next(one for one in result.handoffs if one["step_id"] == step)


def looks_of(fleet: Fleet, name: str) -> int:
    return sum(
        count
        for (of, who, _), count in fleet.model.calls.items()
        if (of, who) == (name, "replanner")
    )


def test_a_finding_sends_the_next_step_to_another_specialist_with_that_result(
    fleet: Fleet,
) -> None:
    fleet.model.envelopes["elsewhere", "code"] = ENVELOPE | {
        "output": "No fault in the code: it looks like the configuration."
    }
    job_id = adaptive(
        fleet, "elsewhere", hands_off(fleet, "elsewhere", "config", after="code"), code=""
    )
    result = fleet.ends_well(job_id)

    added = handoff_of(result, "config")
    assert (added["assigned_to"], added["depends_on"]) == ("analyst", ["code"])
    assert [one["step_id"] for one in added["context"]] == ["code"]
    assert [step["id"] for step in (result.plan or {})["steps"]] == ["code", "config"]
    assert result.patches[0]["added"] == [{"id": "config", "specialist": "analyst"}]
    assert result.patches[0]["why"] == "It looks like the configuration."


def test_several_handoffs_of_one_reply_run_side_by_side_in_one_chord(fleet: Fleet) -> None:
    held = [fleet.model.hold("side-by-side", step) for step in ("x", "y")]
    job_id = adaptive(fleet, "side-by-side", hands_off(fleet, "side-by-side", "x", "y"), a="")

    assert all(one.arrived.wait(30) for one in held)
    for one in held:
        one.go.set()
    result = fleet.ends(job_id)
    assert handoff_of(result, "x")["group"] == handoff_of(result, "y")["group"]
    assert "synthesizer" in [one["assigned_to"] for one in result.handoffs], (
        "what came later speaks of the same question"
    )


def test_ready_steps_start_while_the_replanner_runs(fleet: Fleet) -> None:
    held = fleet.model.hold("thinks", "replanner")
    job_id = adaptive(
        fleet, "thinks", hands_off(fleet, "thinks", "d", after="c"), a="", b="a", c="b"
    )
    assert held.arrived.wait(30)

    wait_until(lambda: fleet.model.calls["thinks", "c", 1], what="the last step of the plan")
    assert patches(fleet, job_id) == []
    held.go.set()
    fleet.ends_well(job_id)


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
    job_id = adaptive(
        fleet, "changed", tool_call_reply(change, drop), a="", slow="", b="slow", c="b"
    )
    made = wait_until(lambda: patches(fleet, job_id), what="the patch")[0]
    slow.go.set()
    result = fleet.ends_well(job_id)

    assert (made.dropped, [step.id for step in made.changed]) == (("b",), ["c"])
    ran = {one["step_id"]: one["task_description"] for one in result.handoffs if one["group"]}
    assert ran == {"a": "Do a of changed.", "slow": "Do slow of changed.", "c": "Do cc of changed."}


def test_an_invalid_patch_goes_back_once_with_its_error_and_then_the_plan_stays(
    fleet: Fleet,
) -> None:
    wrong = hands_off(fleet, "wrong", "x", after="nowhere")
    job_id = adaptive(fleet, "wrong", wrong, wrong, a="")
    result = fleet.ends_well(job_id)

    told = said_to_the_replanner(fleet, "wrong")[-1]
    assert "step x depends on nowhere, which is not a step" in told
    assert looks_of(fleet, "wrong") == 2
    assert "depends on nowhere" in result.patches[0]["problem"]
    assert [step["id"] for step in (result.plan or {})["steps"]] == ["a"]


def said_to_the_replanner(fleet: Fleet, name: str) -> list[str]:
    """Return the last message of each of the replanner's calls."""
    said = [(first_message_text(request), request["messages"]) for request in fleet.server.requests]
    return [
        str(messages[-1]["content"])
        for first, messages in said
        if f"plan {name}" in first and "There are new results of" in first
    ]


def test_the_generalist_replaces_an_unknown_specialist(fleet: Fleet) -> None:
    job_id = adaptive(
        fleet, "nobody", hands_off(fleet, "nobody", "x", to="alchemist", after="a"), a=""
    )
    result = fleet.ends_well(job_id)

    assert handoff_of(result, "x")["assigned_to"] == "generalist"
    notes = next(one["notes"] for one in result.results if one["step_id"] == "replanner")
    assert notes == ["there is no specialist alchemist: generalist takes its steps"]


def test_a_planner_that_repeats_the_same_work_is_warned_once_and_then_not_asked_again(
    fleet: Fleet,
) -> None:
    task = "Read the logs of the checkout service and list every error with its message."
    fleet.model.tasks["rewords", "logs"] = task

    def again(nth: int) -> Reply:
        return tool_call_reply(
            (
                "hand_off_to_generalist",
                _step(f"again_{nth}", f"Please {task.lower()} Do logs of rewords."),
            )
        )

    fleet.model.replans["rewords"] = again
    job_id = submitted(fleet, "rewords", {"logs": "", "more": "logs", "last": "more"})
    result = fleet.ends_well(job_id)

    assert {one["step_id"] for one in result.handoffs if one["group"]} == {"logs", "more", "last"}
    assert looks_of(fleet, "rewords") == 2, "asked, and told once"
    assert (
        "asks for what logs was asked for already; its result is: ok, So it is."
        in said_to_the_replanner(fleet, "rewords")[-1]
    )
    assert any("asked for the same work again (again_2 is logs)" in note for note in result.notes)


def test_a_planner_that_keeps_adding_new_steps_ends_at_the_cap_with_the_reason(
    fleet: Fleet,
) -> None:
    fleet.model.replans["adds"] = lambda nth: hands_off(fleet, "adds", f"new-{nth}")
    job_id = submitted(fleet, "adds", {"a": ""}, JobLimits(max_rounds=3))
    result = fleet.ends(job_id)

    assert [one["step_id"] for one in result.handoffs if one["group"]] == [
        "a",
        "new-1",
        "new-2",
        "new-3",
    ]
    assert looks_of(fleet, "adds") == 3
    assert any(
        "was not changed any more: its limit of 3 rounds is reached" in note
        for note in result.notes
    )


def test_a_supervisor_killed_during_replanning_is_replaced_and_the_patch_is_applied_once(
    fleet: Fleet,
) -> None:
    held = fleet.model.hold("killed", "replanner")
    patch = hands_off(fleet, "killed", "x", after="a")
    job_id = adaptive(fleet, "killed", patch, patch, a="")
    assert held.arrived.wait(30)
    fleet.kill(fleet.pid_of(job_id, "replanner.1"))
    result = fleet.ends_well(job_id)

    assert looks_of(fleet, "killed") == 3, (
        "the call that was in the air, again, and a look at what was added"
    )
    assert [one.plan is not None for one in patches(fleet, job_id)] == [True, False]
    issued = [
        one.event
        for one in fleet.jobs.events(job_id, follow=False)
        if isinstance(one.event, HandoffIssued)
    ]
    assert [one.handoff_id for one in issued if one.group] == ["a.1", "x.1"]
    assert result.usage["cut"]["calls"] == 1
    held.go.set()


def test_after_a_final_patch_the_replanner_is_not_asked_and_no_new_step_begins(
    fleet: Fleet,
) -> None:
    slow = fleet.model.hold("finalizes", "slow")
    job_id = adaptive(fleet, "finalizes", json_reply(FINALIZE), a="", slow="", b="slow")
    made = wait_until(lambda: patches(fleet, job_id), what="the decision")[0]
    slow.go.set()
    result = fleet.ends(job_id)

    assert (made.is_final, made.dropped) == (True, ("b",))
    assert looks_of(fleet, "finalizes") == 1
    assert {one["step_id"] for one in result.handoffs if one["group"]} == {"a", "slow"}


def test_the_replanner_sees_results_and_plan_without_their_history(
    fleet: Fleet,
) -> None:
    fleet.model.envelopes["context", "a"] = ENVELOPE | {"output": "What a has found."}
    job_id = adaptive(fleet, "context", a="")
    fleet.model.turns["context"] = 2
    fleet.ends_well(job_id)

    request = next(
        one
        for one in fleet.server.requests
        if "There are new results of a" in first_message_text(one)
        and "plan context" in first_message_text(one)
    )
    shown = first_message_text(request)
    assert "What a has found." in shown
    assert (
        '{"step": "a", "specialist": "generalist", "task": "Do a of context.", "depends_on": [], "status": "ok"}'
        in shown
    )
    assert [message["role"] for message in request["messages"]] == ["user"]
    noise = (
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
    assert [word for word in noise if word in shown] == []
    assert {tool["name"] for tool in request["tools"]} >= {
        "hand_off_to_analyst",
        "hand_off_to_coder",
    }
    assert all(tool["name"].startswith("hand_off_to_") for tool in request["tools"]), (
        "no step is left that could be changed"
    )
