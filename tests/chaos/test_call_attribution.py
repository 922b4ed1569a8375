"""The model server finds the handoff that makes a call from the text of the request."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.chaos.model_server import RESOLVER, CallAttribution
from handoff_queue.chaos.planned_jobs import CallKey
from handoff_queue.chaos.shortened_requests import SUMMARY


def request(text: str, *properties: str, turn: int = 1) -> dict[str, Any]:
    turns: list[dict[str, Any]] = [{"role": "assistant", "content": []}] * (turn - 1)
    output_config: dict[str, Any] = {
        "format": {"schema": {"properties": {name: {} for name in properties}}}
    }
    return {
        "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}, *turns],
        "output_config": output_config,
    }


POINT = '{"point": "a", "assessor": "Say it of 7-3.", "writer": "So it is.", "evidence": []}'
FACT_CHECK = (
    '<task>Check the facts of an answer before it leaves.\n\nThe request:\n"chaos'
    ' 7-3"</task>\n\n<result step="a">{}</result>'
)
RETRY = '<feedback author="supervisor">The attempt before this one failed.</feedback>'
REVISION = '<feedback author="assessor">Fix it.</feedback>'
TASK, WHOLE, ROLE = (
    "<task>Do a of 7-3.</task>",
    "<task>chaos 7-3</task>",
    "<task>{}\n\nRequest:\nchaos 7-3</task>",
)


@pytest.mark.parametrize(
    ("model_request", "key"),
    [
        (request(TASK, turn=2), CallKey("7-3", "a.1", 2)),
        (request("<task>Do d of 7-3-fork.</task>"), CallKey("7-3-fork", "d.1", 1)),
        (
            request(ROLE.format('Judge.\n{"id": "d", "task": "Do d of 7-3-fork."}'), "verdict"),
            CallKey("7-3-fork", "assessor.1", 1),
        ),
        (request(f"{TASK}\n\n{REVISION}"), CallKey("7-3", "a.2", 1)),
        (request(f"{TASK}\n\n{REVISION}\n\n{REVISION}"), CallKey("7-3", "a.3", 1)),
        (
            request("<task>Do d of 7-3.\n\nNot here, and not waited for: c.</task>"),
            CallKey("7-3", "d.1", 1),
        ),
        (request(WHOLE), CallKey("7-3", "answer.1", 1)),
        (request("<task>chaos 7-3-x</task>"), CallKey("7-3-x", "answer.1", 1)),
        (request(f"<task>chaos 7-3-x</task>\n\n{RETRY}"), CallKey("7-3", "x.2", 1)),
        (request(f"{WHOLE}\n\n{REVISION}"), CallKey("7-3", "answer.2", 1)),
        (request(ROLE.format("Decide."), "route"), CallKey("7-3", "router.1", 1)),
        (request(ROLE.format("Make the plan."), "steps"), CallKey("7-3", "planner.1", 1)),
        (
            request(ROLE.format('Rejected plans:\n{"note": "Not so.", "steps": []}'), "steps"),
            CallKey("7-3", "planner.2", 1),
        ),
        (request(ROLE.format("Resolve."), "resolutions"), CallKey("7-3", RESOLVER, 1)),
        (
            request(ROLE.format("Judge the results of it. This is round 2: go."), "verdict"),
            CallKey("7-3", "assessor.2", 1),
        ),
        (
            request(ROLE.format("Write the one answer."), "output"),
            CallKey("7-3", "synthesizer.1", 1),
        ),
        (
            request(
                '<task>Decide.\n{"claims": [{"id": "a.c1", "subject": "tower 7-3"}]}</task>',
                "settlements",
            ),
            CallKey("7-3", "judge.1", 1),
        ),
        (request(f"<task>Decide.\n{POINT}</task>", "rulings"), CallKey("7-3", "judge.1", 1)),
        (request(FACT_CHECK, "output"), CallKey("7-3", "fact_gate.1", 1)),
    ],
    ids=lambda value: (
        f"{value.handoff}/{value.turn} of {value.job}" if isinstance(value, CallKey) else ""
    ),
)
def test_the_request_identifies_the_call(model_request: dict[str, Any], key: CallKey) -> None:
    assert CallAttribution().find_key(model_request) == key


def test_the_turns_that_a_summary_replaces_count() -> None:
    after_the_summary = request(TASK, turn=2)
    summary = {"type": "compaction", "content": SUMMARY.format(5)}
    after_the_summary["messages"][0]["content"].insert(0, summary)

    assert CallAttribution().find_key(after_the_summary) == CallKey("7-3", "a.1", 7)


def test_a_fact_check_of_another_answer_is_the_next_round() -> None:
    attribution = CallAttribution()

    assert [
        attribution.find_key(request(text)).handoff
        for text in (FACT_CHECK, FACT_CHECK.replace("{}", "corrected"), FACT_CHECK)
    ] == [
        "fact_gate.1",
        "fact_gate.2",
        "fact_gate.1",
    ]


def test_a_replanner_with_the_same_request_is_in_the_same_round() -> None:
    attribution, first, second = (
        CallAttribution(),
        *(request(ROLE.format(f"Results of {step}."), "decision") for step in "ab"),
    )

    assert [
        attribution.find_key(model_request).handoff for model_request in (first, second, first)
    ] == [
        "replanner.1",
        "replanner.2",
        "replanner.1",
    ]
