"""An assessor demands a point that the result already has. The judge rules for the writer, and the
answer is complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from handoff_queue.shared.types.events import Arbitrated, HandoffIssued, JobStatus
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import Json, Reply, answer_properties, first_message_text, json_reply
from tests.e2e.fleet import SPECIALIST, Fleet

pytestmark = pytest.mark.slow

POINT = "The year of the survey is missing: name it beside the height."
OUTPUT = "It is 330 m high, as the survey of 2022 says."
ENVELOPE = {
    "status": "ok",
    "output": OUTPUT,
    "claims": [],
    "confidence": 0.9,
    "needs": None,
    "problem": None,
}


class Script:
    """Model whose assessor overlooks the year twice, and whose judge rules for the writer."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    def __call__(self, request: Json) -> Reply:
        prompt, properties = first_message_text(request), answer_properties(request)
        if "steps" in properties:
            steps = [
                {
                    "id": "look",
                    "specialist": SPECIALIST,
                    "task": "Look it up.",
                    "depends_on": [],
                    "fallback": "-",
                }
            ]
            return json_reply({"steps": steps, "synthesis": "merge", "why": "One place."})
        if "rulings" in properties:
            self.judged.append(prompt)
            return json_reply(
                {"rulings": [{"point": "look", "why": "2022 stands in it.", "right": "writer"}]}
            )
        if "verdict" in properties:
            return json_reply(
                {
                    "verdict": "REVISE",
                    "revisions": [{"step": "look", "problem": POINT}],
                    "open_points": [],
                }
            )
        return json_reply(ENVELOPE)


@pytest.fixture
def script(fleet: Fleet) -> Iterator[Script]:
    previous, fleet.server.script = fleet.server.script, Script()
    yield fleet.server.script
    fleet.server.script = previous


def test_the_judge_settles_a_dispute_between_writer_and_assessor(
    fleet: Fleet, script: Script
) -> None:
    job_id = fleet.jobs.submit(Request("How high is the tower? In English, please."))
    result = fleet.jobs.result(job_id, wait_s=60)

    assert result.status is JobStatus.OK, result.notes
    assert f"Settled for the writer: look: {POINT} (the judge: 2022 stands in it.)" in result.notes
    assert "Open points" not in str(result.answer)
    (question,) = script.judged
    assert re.search("survey of 2022", question)
    assert "In English" not in question, "the judge does not see the request"
    events = [recorded.event for recorded in fleet.jobs.events(job_id, follow=False)]
    (ruling,) = [event for event in events if isinstance(event, Arbitrated)]
    assert ruling.writer == ("look",)
    (issued,) = [
        event
        for event in events
        if isinstance(event, HandoffIssued) and event.assigned_to == "judge"
    ]
    assert issued.closes
