"""Two specialists contradict each other. The judge settles one conflict, and the answer names the
other as disputed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import Json, Reply, answer_properties, first_message_text, json_reply
from tests.e2e.fleet import SPECIALIST, Fleet

pytestmark = pytest.mark.slow

OFFICIAL = "Measured by the operator in 2022, the tower is 330 m high."
GUIDE = "The tower, some say, is 1,024 feet high."
PLATE = "It was opened on 31 March 1889."
BOOK = "It was opened on 6 May 1889."
FACTS = {
    "left": [
        ("height", "330", "m", "official.md", OFFICIAL),
        ("opening date", "31 March 1889", None, "official.md", PLATE),
    ],
    "right": [
        ("height", "1,024", "feet", "guide.md", GUIDE),
        ("date of opening", "1889-05-06", None, "guide.md", BOOK),
    ],
}


class Script:
    """Model whose specialists `left` and `right` contradict each other on the height and the date.

    Its judge settles the height, and leaves the date open.
    """

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.assessed: list[str] = []

    def __call__(self, request: Json) -> Reply:
        prompt, properties = first_message_text(request), answer_properties(request)
        if "steps" in properties:
            steps = [
                {
                    "id": name,
                    "specialist": SPECIALIST,
                    "task": f"Look {name}.",
                    "depends_on": [],
                    "fallback": "-",
                }
                for name in FACTS
            ]
            return json_reply({"steps": steps, "synthesis": "merge", "why": "Two places."})
        if "settlements" in properties:
            self.judged.append(prompt)
            return json_reply(
                {
                    "settlements": [
                        {"conflict": "k1", "why": "It was measured.", "stands": ["left.c1"]},
                        {"conflict": "k2", "why": "Both are bare statements.", "stands": []},
                    ]
                }
            )
        if "verdict" in properties:
            self.assessed.append(prompt)
            return json_reply({"verdict": "PASS", "revisions": [], "open_points": []})
        (step,) = re.findall(r"<task>Look (\w+)\.", prompt)
        return json_reply(_envelope(step))


def _envelope(step: str) -> Json:
    claims = [
        {
            "id": f"c{number}",
            "text": f"Its {attribute} is {value}.",
            "subject": "the tower",
            "attribute": attribute,
            "value": value,
            "unit": unit,
            "date": None,
            "sources": [{"source": source, "quote": quote}],
        }
        for number, (attribute, value, unit, source, quote) in enumerate(FACTS[step], start=1)
    ]
    output = "It is as high as this [c1], and was opened then [c2]."
    return {
        "status": "ok",
        "output": output,
        "claims": claims,
        "confidence": 0.9,
        "needs": None,
        "problem": None,
    }


@pytest.fixture
def script(fleet: Fleet) -> Iterator[Script]:
    previous, fleet.server.script = fleet.server.script, Script()
    yield fleet.server.script
    fleet.server.script = previous


def test_a_conflict_that_the_judge_cannot_settle_is_in_the_answer_with_both_sources(
    fleet: Fleet, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "official.md").write_text(f"# Tower\n\n{OFFICIAL}\n\n{PLATE}\n")
    (tmp_path / "guide.md").write_text(f"# Tower\n\n{GUIDE}\n\n{BOOK}\n")

    job_id = fleet.jobs.submit(Request("Tell me about the tower, in English.", documents=tmp_path))
    result = fleet.jobs.result(job_id, wait_s=60)

    assert result.status is JobStatus.OK
    assert isinstance(result.answer, str)
    disputed = result.answer.partition("**Disputed:**")[2].partition(
        "**Contradicted, and settled:**"
    )[0]
    cited = {int(number) for number in re.findall(r"\[(\d+)\]", disputed)}
    assert {citation["quote"] for citation in result.citations if citation["n"] in cited} == {
        PLATE,
        BOOK,
    }
    assert "It was measured." in result.answer.partition("**Contradicted, and settled:**")[2]
    assert [(conflict["id"], conflict["stands"]) for conflict in result.conflicts] == [
        ("k1", ["left.c1"]),
        ("k2", []),
    ]
    (question,) = script.judged
    assert "in English" not in question, "the judge does not see the request"
    assert "as high as this" not in question, "the judge does not see the text around the claims"
    assert all(quote in question for quote in (OFFICIAL, GUIDE, PLATE, BOOK))
    (settlement,) = [
        json.loads(line) for line in script.assessed[0].splitlines() if '"do_not_use"' in line
    ]
    assert (settlement["stands"], settlement["do_not_use"]) == (["left.c1"], ["right.c1"])
    assert not any(
        quote in recorded.event.to_json()
        for recorded in fleet.jobs.events(job_id, follow=False)
        for quote in ("operator", "opening")
    )
