"""Claims of an answer are compared with the facts that its user knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.gates.facts import read_facts
from handoff_queue.testing import Json, Reply, first_message_text, result_reply
from tests.doubles.facts import a_database
from tests.e2e.fleet import Fleet

pytestmark = pytest.mark.slow

TOWER = ("Eiffel Tower", "height", "330", "m", "2022", "survey.pdf")


class Script:
    """Model that states a wrong height until its prompt contains the known fact."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, request: Json) -> Reply:
        self.prompts.append(first_message_text(request))
        metres = "330" if "survey.pdf" in self.prompts[-1] else "324"
        parts = {
            "subject": "the Eiffel Tower",
            "attribute": "total height",
            "value": metres,
            "unit": "metres",
            "date": "2022",
        }
        claim = {"id": "c1", "text": f"It is {metres} m high.", **parts, "sources": []}
        return result_reply(f"It is {metres} m high, they say.", claims=[claim])


@pytest.fixture
def script(fleet: Fleet) -> Iterator[Script]:
    previous, fleet.server.script = fleet.server.script, Script()
    yield fleet.server.script
    fleet.server.script = previous


def test_a_claim_that_contradicts_the_facts_goes_back_with_claim_fact_and_source(
    fleet: Fleet, script: Script, tmp_path: Path
) -> None:
    facts = read_facts(a_database(tmp_path / "facts.db", rows=[TOWER]), table="facts")
    job_id = fleet.jobs.submit(Request("How high is it?", mode=Mode.SINGLE, facts=facts))
    (tmp_path / "facts.db").unlink()
    result = fleet.jobs.result(job_id, wait_s=60)

    assert result.status is JobStatus.OK, result.notes
    assert result.answer is not None
    assert "330 m" in str(result.answer)
    assert (
        "(answer.c1) contradicts the facts: Eiffel Tower, height: 330 m (2022), from survey.pdf"
        in script.prompts[1]
    )
    assert result.gates is not None
    assert (result.gates["from"], result.gates["facts"]) == ("job", 1)
    assert [(len(check["vetoes"]), check["sent_back"]) for check in result.gates["answers"]] == [
        (1, True),
        (0, False),
    ]
