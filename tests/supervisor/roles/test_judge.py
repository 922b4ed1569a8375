"""The judge sees claims with their evidence. Its answer becomes rulings."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from handoff_queue.shared.agent.answer_format import InvalidAnswer
from handoff_queue.shared.agent.opening_message import LoadedPayloads, build_opening
from handoff_queue.shared.agent.system_prompt import AnswerForm
from handoff_queue.shared.providers.offline.conversation import RequestParts
from handoff_queue.shared.providers.offline.transport import reply_to
from handoff_queue.shared.types.events import ConflictsFound
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.review import ClaimConflict, Conflicts, Settlement, Settlements
from handoff_queue.supervisor.lifecycle.handoffs import build_role_handoff
from handoff_queue.supervisor.roles.briefs import read_role
from handoff_queue.supervisor.roles.judge import (
    MAX_SHOWN_CHARS,
    JudgeFormat,
    build_judge_brief,
    build_judge_format,
    parse_judge_format,
    select_conflicts_for_brief,
)
from tests.doubles.conflicting_claims import a_claim
from tests.doubles.simulated_job import planned

ONE = ClaimConflict(id="k1", claims=(a_claim("a.c1", "330", "m"), a_claim("b.c1", "984", "feet")))
TWO = ClaimConflict(id="k2", claims=(a_claim("a.c2", "7.3", "kt"), a_claim("b.c2", "10.1", "kt")))
CONFLICTS = Conflicts(conflicts=(ONE, TWO))
READING = build_judge_format(CONFLICTS)


def answer(**stands: list[str]) -> str:
    return json.dumps(
        {
            "settlements": [
                {"conflict": conflict, "why": "So.", "stands": claims}
                for conflict, claims in stands.items()
            ]
        }
    )


def settlements_in(text: str, *, last_try: bool = False) -> list[Settlement]:
    return list(Settlements.from_value(READING.read(text, last_try=last_try).output).settlements)


def test_the_judge_sees_which_evidence_is_output_of_the_authors_code() -> None:
    claim = a_claim("a.c1", "330", "m")
    (document,) = claim.sources
    printed = document.model_copy(update={"source": "tool:a.1/run_code#1"})
    claim = claim.model_copy(update={"sources": (document, printed)})
    conflict = ONE.model_copy(update={"claims": (claim, *ONE.claims[1:])})

    line = build_judge_brief(Conflicts(conflicts=(conflict,))).splitlines()[1]

    first, second = json.loads(line)["claims"][0]["evidence"]
    assert "is" not in first
    assert second["is"] == "output of code that the author of the claim wrote"


def test_the_judges_context_holds_the_claims_and_their_evidence_and_nothing_else() -> None:
    job = planned(a="", b="")
    job.state = job.state.model_copy(
        update={
            "submitted": job.state.submitted.model_copy(
                update={"manifest": make_ref("documents"), "document_count": 3}
            )
        }
    )
    spec = read_role("judge")
    brief = build_judge_brief(CONFLICTS)
    handoff = build_role_handoff(
        job.state, spec, spec.content_digest, 1, task=brief, about=(), schema=READING.schema
    )
    (prompt,) = [
        block["text"]
        for block in build_opening(handoff, spec, LoadedPayloads(), form=AnswerForm.OWN).message[
            "content"
        ]
    ]

    assert (handoff.artifacts, handoff.context, handoff.feedback) == ((), (), ())
    assert prompt == f"<task>{brief}</task>"
    first, *lines = brief.splitlines()
    assert first == "Decide, for each conflict below, which of its claims stand. One a line:"
    assert [json.loads(line)["conflict"] for line in lines] == ["k1", "k2"]
    assert json.loads(lines[0])["claims"][1] == {
        "id": "b.c1",
        "text": "Eiffel Tower: height: 984 feet.",
        "subject": "Eiffel Tower",
        "attribute": "height",
        "value": "984",
        "unit": "feet",
        "date": "2022",
        "evidence": [{"source": "b.md", "quote": "Eiffel Tower: height: 984 feet"}],
    }


def test_an_answer_that_fits_the_schema_settles_or_leaves_disputed() -> None:
    text = answer(k1=["a.c1"], k2=[])
    jsonschema.validate(json.loads(text), READING.schema)

    assert [(ruling.conflict, ruling.stands, ruling.why) for ruling in settlements_in(text)] == [
        ("k1", ("a.c1",), "So."),
        ("k2", (), "So."),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (answer(k1=["a.c1"]), "k2 is missing"),
        (answer(k1=["a.c2"], k2=[]), "k1 has only the claims a.c1, b.c1"),
        ("{}", "k1 is missing; k2 is missing"),
        ("no", "plain text"),
    ],
)
def test_an_error_in_an_answer_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidAnswer, match=message):
        READING.read(text, last_try=False)


def test_on_the_last_try_unusable_rulings_stay_disputed() -> None:
    text = answer(k1=["a.c2"], k2=["b.c2"], k9=["a.c1"])

    assert [(ruling.conflict, ruling.stands) for ruling in settlements_in(text, last_try=True)] == [
        ("k2", ("b.c2",))
    ]
    assert READING.read(text, last_try=True).notes == ("the judge said nothing usable of k1",)


def test_the_answer_format_can_be_rebuilt_from_the_schema_and_the_journal() -> None:
    named = tuple(tuple(claim.id for claim in conflict.claims) for conflict in (ONE, TWO))

    assert (
        parse_judge_format(READING.schema, ConflictsFound(conflicts=(*named, ("a.c3", "b.c3"))))
        == READING
    )


def test_conflicts_over_the_prompt_size_are_not_asked_about() -> None:
    many = Conflicts(
        conflicts=tuple(ONE.model_copy(update={"id": f"k{n}"}) for n in range(1, 1_000))
    )

    assert 1 < len(select_conflicts_for_brief(many)) < 999
    assert len(build_judge_brief(many)) < MAX_SHOWN_CHARS + 1_000
    assert set(build_judge_format(many).conflicts) == {
        conflict.id for conflict in select_conflicts_for_brief(many)
    }


@pytest.mark.parametrize(("more", "stands"), [((), ()), (("extra.md",), ("a.c1",))])
def test_the_offline_judge_takes_the_claim_with_more_sources(
    more: tuple[str, ...], stands: tuple[str, ...]
) -> None:
    first, second = ONE.claims
    sources = (
        *first.sources,
        *(first.sources[0].model_copy(update={"source": source}) for source in more),
    )
    conflicts = Conflicts(
        conflicts=(
            ONE.model_copy(
                update={"claims": (first.model_copy(update={"sources": sources}), second)}
            ),
        )
    )

    (settlement,) = Settlements.from_value(_offline(conflicts)).settlements
    assert settlement.stands == stands


def _offline(conflicts: Conflicts) -> Any:
    conversation = RequestParts(
        task=build_judge_brief(conflicts), schema=build_judge_format(conflicts).schema
    )
    return (
        JudgeFormat({"k1": ("a.c1", "b.c1")})
        .read(reply_to(conversation)[0]["text"], last_try=False)
        .output
    )
