from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.answer_format import (
    AcceptedAnswer,
    InvalidAnswer,
)
from handoff_queue.shared.agent.quote_verification import Sources
from handoff_queue.shared.agent.system_prompt import AnswerForm
from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.providers.anthropic.request import make_strict
from handoff_queue.shared.types.handoff import Claim, Document, ResultStatus
from handoff_queue.shared.types.message import compute_digest
from tests.doubles.agent_runs import envelope
from tests.doubles.handoffs import STEP, a_manifest

MANIFEST, TEXT_OF = a_manifest(
    qdrant="Qdrant is a vector\n  database. It is written in Rust.",
    milvus="Milvus is written in Go.",
)
ELSEWHERE = Claim(id="other.c1", text="Milvus is written in Go.")
READING = EnvelopeFormat(
    STEP, {"type": "string"}, Sources(TEXT_OF, MANIFEST), {"other.c1": ELSEWHERE}
)


def read(value: Any, *, last_try: bool = False) -> AcceptedAnswer:
    return READING.read(json.dumps(value), last_try=last_try)


def schema_of(answer_format: EnvelopeFormat) -> dict[str, Any]:
    assert answer_format.schema is not None
    return dict(answer_format.schema)


def a_claim(quote: str, source: str = "qdrant.md", claim_id: str = "c1") -> dict[str, Any]:
    return {"id": claim_id, "text": "A fact.", "sources": [{"source": source, "quote": quote}]}


def test_claims_and_markers_are_qualified_with_the_step() -> None:
    answer = read(envelope("In Rust [c1]."))
    assert answer.output == "In Rust [find.c1]."
    assert [claim.id for claim in answer.claims] == ["find.c1"]


def test_a_quote_becomes_a_checked_citation_of_the_documents_own_characters() -> None:
    citation = read(envelope(claims=[a_claim("Qdrant is a vector database.")])).claims[0].sources[0]
    text = TEXT_OF(citation.digest)
    assert (
        text[citation.start : citation.end] == citation.quote == "Qdrant is a vector\n  database."
    )


def test_an_abridged_quote_becomes_a_citation_of_the_whole_passage() -> None:
    citation = read(envelope(claims=[a_claim("Qdrant is ... in Rust.")])).claims[0].sources[0]
    assert citation.quote == "Qdrant is a vector\n  database. It is written in Rust."


def test_a_tool_takes_no_abridged_quote() -> None:
    with pytest.raises(ToolFailed, match=r'this quote is not in "qdrant\.md"'):
        Sources(TEXT_OF, MANIFEST).prove("qdrant.md", "Qdrant is ... in Rust.")


def test_a_claim_without_a_text_has_the_passage_of_its_abridged_quote() -> None:
    claim = {**a_claim("Qdrant is ... database."), "text": ""}
    (claimed,) = read(envelope("Nothing of it.", claims=[claim]), last_try=True).claims
    assert claimed.text == "Qdrant is a vector database."


def test_claims_of_other_steps_that_the_output_points_to_are_carried_over() -> None:
    answer = read(envelope("In Rust [c1], the other in Go [other.c1]."))
    assert [claim.id for claim in answer.claims] == ["find.c1", "other.c1"]


def test_claims_of_other_steps_without_a_marker_in_the_output_are_omitted() -> None:
    assert [claim.id for claim in read(envelope()).claims] == ["find.c1"]


def test_a_claim_of_another_step_that_is_restated_keeps_its_own_sources() -> None:
    answer = read(
        envelope("[other.c1]", claims=[a_claim("It is written in Rust.", claim_id="other.c1")])
    )
    assert answer.claims == (ELSEWHERE,)


def test_a_claim_of_another_step_that_is_restated_is_carried_over_without_a_marker() -> None:
    answer = read(
        envelope(
            claims=[
                a_claim("It is written in Rust."),
                {"id": "other.c1", "text": "other.c1", "sources": []},
            ]
        )
    )
    assert (answer.claims[1], answer.notes) == (ELSEWHERE, ())


def test_a_new_claim_under_the_name_of_another_step_gets_a_name_of_the_own_step() -> None:
    """The reader of the other step's result would drop it."""
    own = a_claim("It is written in Rust.")
    new = a_claim("Qdrant is a vector database.", claim_id="other.c9")

    answer = read(envelope("Rust [c1]. A database [other.c9; c1].", claims=[own, new]))

    assert answer.output == "Rust [find.c1]. A database [find.c2][find.c1]."
    assert [claim.id for claim in answer.claims] == ["find.c1", "find.c2"]
    assert answer.claims[1].sources


def test_several_markers_in_one_bracket_are_separated() -> None:
    assert read(envelope("Both [c1, other.c1].")).output == "Both [find.c1][other.c1]."


def test_markers_are_renamed_wherever_the_output_holds_text() -> None:
    answer_format = EnvelopeFormat(STEP, {"type": "object"}, Sources(TEXT_OF, MANIFEST))
    answer = answer_format.read(
        json.dumps(envelope({"rows": [{"a": "x [c1]"}], "n": 1})), last_try=False
    )
    assert answer.output == {"rows": [{"a": "x [find.c1]"}], "n": 1}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (envelope(claims=[a_claim("written in Go")]), "this quote is not in"),
        (envelope(claims=[a_claim("x", source="nowhere.md")]), "there is no source"),
        (envelope("Rust [c7]."), "points to no claim"),
        (envelope(needs="the prices"), "names a fault or a gap: the prices"),
        (envelope(problem="I saw no price."), "names a fault or a gap: I saw no price."),
        (
            envelope(claims=[a_claim("Rust", claim_id="c1"), a_claim("Rust", claim_id="c1")]),
            "taken twice",
        ),
        (envelope(""), "the work itself"),
        (envelope("Task completed successfully."), "the work itself"),
        (envelope(status="needs_input"), 'name it in "needs"'),
        (envelope(None, status="failed"), "say why"),
        (envelope(status="great"), "status"),
        ({"answer": 1}, 'without "output"'),
        (envelope(None, status="partial"), "the work so far"),
        (envelope("Rust.", claims=[{"id": "c1", "text": " "}]), "c1: its text is empty"),
        (envelope(claims=[{**a_claim("Rust"), "text": "x" * 100_001}]), "longer than 100000"),
    ],
)
def test_the_required_repair_is_named(value: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidAnswer) as caught:
        read(value)
    assert message in caught.value.for_model


@pytest.mark.parametrize(
    "value",
    [envelope(claims=[a_claim("written in Go")]), envelope("Rust [c7].", claims=[])],
)
def test_on_the_last_try_unproven_claims_are_dropped_and_the_result_is_partial(
    value: dict[str, Any],
) -> None:
    answer = read(value, last_try=True)
    assert answer.notes
    assert all(claim.sources == () for claim in answer.claims)
    assert "c7" not in str(answer.output)
    assert (answer.status, answer.error) == (
        ResultStatus.PARTIAL,
        "nothing in it has a source that could be checked",
    )


def test_a_partial_result_gets_the_same_doubts_as_an_ok_result() -> None:
    value = envelope(status="partial", problem="no prices", claims=[a_claim("written in Go")])
    with pytest.raises(InvalidAnswer, match="nothing in it has a source that could be checked"):
        read(value)
    answer = read(value, last_try=True)
    assert answer.status is ResultStatus.PARTIAL
    assert answer.error == "nothing in it has a source that could be checked; no prices"


def test_a_partial_form_without_content_costs_a_turn() -> None:
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer_format = EnvelopeFormat(STEP, form, Sources(TEXT_OF, MANIFEST))
    text = json.dumps(envelope({"name": "..."}, claims=[], status="partial", problem="no name"))
    with pytest.raises(InvalidAnswer, match="only fills its form"):
        answer_format.read(text, last_try=False)


def test_a_claim_without_a_marker_gets_one_where_its_text_stands_in_the_output() -> None:
    answer = read(envelope("So: **qdrant is written in  Rust**. And more."))
    assert answer.output == "So: **qdrant is written in  Rust [find.c1]**. And more."


def test_a_claim_without_a_marker_gets_one_where_its_quote_stands_in_the_output() -> None:
    assert read(envelope("It is written in Rust, they say.")).output == (
        "It is written in Rust [find.c1], they say."
    )


def test_a_claim_that_has_no_place_in_the_output_costs_one_turn() -> None:
    value = envelope("The language is Rust.")
    with pytest.raises(InvalidAnswer, match="does not say where it uses 1 claim") as caught:
        read(value)
    assert "write [c1] after the statements" in caught.value.for_model
    answer = read(value, last_try=True)
    assert (answer.status, answer.output) == (ResultStatus.OK, "The language is Rust.")
    assert [len(claim.sources) for claim in answer.claims] == [1]


def test_a_claim_without_sources_needs_no_place_in_the_output() -> None:
    value = envelope("Rust.", claims=[{"id": "c1", "text": "Qdrant is old.", "sources": []}])
    assert read(value).output == "Rust."


def test_a_form_gets_no_markers_from_code() -> None:
    answer_format = EnvelopeFormat(STEP, {"type": "object"}, Sources(TEXT_OF, MANIFEST))
    answer = answer_format.read(
        json.dumps(envelope({"language": "Qdrant is written in Rust."})), last_try=False
    )
    assert answer.output == {"language": "Qdrant is written in Rust."}


def test_a_message_to_the_user_has_no_instruction_for_the_model() -> None:
    value = envelope(claims=[a_claim("written in Go")])
    with pytest.raises(InvalidAnswer) as caught:
        read(value)
    assert "copy the whole sentence letter by letter, or leave it out" in caught.value.for_model
    (note,) = read(value, last_try=True).notes
    assert note == 'dropped: c1: this quote is not in "qdrant.md": "written in Go"'
    assert "copy" not in str(caught.value)


@pytest.mark.parametrize(
    ("shown", "cause"),
    [
        ((), "was never opened"),
        (('{"source": "milvus.md", "text": "Milvus"}',), "was never opened"),
        (("qdrant.md\nmilvus.md",), "was never opened"),
        (('{"source": "qdrant.md", "text": "Qdrant"}',), "letter by letter"),
        (('[find.c1] qdrant.md: "Qdrant"',), "letter by letter"),
    ],
    ids=["nothing", "another document", "its name in a list", "the document", "a step's quote"],
)
def test_a_repair_says_whether_the_document_was_opened(shown: tuple[str, ...], cause: str) -> None:
    sources = Sources(TEXT_OF, MANIFEST, load_seen_texts=lambda: shown)
    answer_format = EnvelopeFormat(STEP, {"type": "string"}, sources)
    with pytest.raises(InvalidAnswer) as caught:
        answer_format.read(json.dumps(envelope(claims=[a_claim("written in Go")])), last_try=False)
    assert cause in caught.value.for_model


def test_one_proven_claim_among_unproven_claims_is_enough_to_be_ok() -> None:
    value = envelope(
        claims=[a_claim("It is written in Rust."), a_claim("written in Go", claim_id="c2")]
    )
    answer = read(value, last_try=True)
    assert (answer.status, answer.error, len(answer.notes)) == (ResultStatus.OK, None, 1)


def test_an_answer_that_never_meant_to_cite_is_ok_without_sources() -> None:
    answer = read(envelope("Queues fill and drain.", claims=[]))
    assert (answer.status, answer.error, answer.claims) == (ResultStatus.OK, None, ())


@pytest.mark.parametrize("fields", [{"needs": "the prices"}, {"problem": "the prices"}])
def test_a_result_that_is_ok_with_missing_parts_becomes_partial(
    fields: dict[str, str],
) -> None:
    answer = read(envelope(**fields), last_try=True)
    assert answer.status is ResultStatus.PARTIAL
    assert "the prices" in str(answer.error)


@pytest.mark.parametrize("empty", ["", " ", "none", "None.", "N/A", "null", "-"])
def test_needs_and_problems_with_the_text_none_count_as_none(empty: str) -> None:
    answer = read(envelope(needs=empty, problem=empty))
    assert (answer.status, answer.needs, answer.error) == (ResultStatus.OK, None, None)


def test_a_form_without_content_costs_a_turn_and_then_is_partial() -> None:
    form = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "price": {"type": "number"}},
    }
    answer_format = EnvelopeFormat(STEP, form, Sources(TEXT_OF, MANIFEST))
    text = json.dumps(envelope({"name": "string", "price": 0}, claims=[]))
    with pytest.raises(InvalidAnswer, match="only fills its form"):
        answer_format.read(text, last_try=False)
    assert answer_format.read(text, last_try=True).status is ResultStatus.PARTIAL


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("In Rust [c1].", "In Rust"),
        ("## Facts\n\n- **In Rust** [c0] [c1]\n- In Go", "In Rust"),
        ("It is fast. It is written in Rust [c0, c1].", "It is written in Rust"),
        ("Nothing of it.", "Qdrant is written in Rust."),
    ],
)
def test_a_claim_without_a_text_has_its_sentence_or_quote(output: str, text: str) -> None:
    claim = {**a_claim("Qdrant is written in Rust."), "text": ""}
    other = {**a_claim("It has another text."), "id": "c0"}
    answer = read(envelope(output, claims=[other, claim]), last_try=True)
    assert answer.claims[-1].text == text


def test_the_schema_has_only_the_claims_and_parts_that_are_needed() -> None:
    without = schema_of(replace(READING, has_claims=False))["properties"]
    assert "claims" not in without
    alone = schema_of(replace(READING, are_compared=False))["properties"]["claims"]["items"]
    assert list(alone["properties"]) == ["id", "text", "sources"]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(envelope("In Rust [c1].", claims=[a_claim("This is in no document.")])),
        'In Rust [c1].\n\n<notes>\n[c1] qdrant.md: "This is in no document."\n</notes>',
    ],
)
def test_a_wrong_claim_without_rules_for_claims_is_dropped_and_costs_no_turn(text: str) -> None:
    reading = replace(READING, has_claims=False, form=AnswerForm.MARKDOWN)
    answer = reading.read(text, last_try=False)
    assert answer == AcceptedAnswer(ResultStatus.OK, "In Rust .", confidence=answer.confidence)


def test_a_right_claim_without_rules_for_claims_stays() -> None:
    reading = replace(READING, has_claims=False)
    claims = [a_claim("Qdrant is a vector database.")]
    answer = reading.read(json.dumps(envelope("In Rust [c1].", claims=claims)), last_try=False)
    assert (answer.output, len(answer.claims)) == ("In Rust [find.c1].", 1)


def test_a_too_long_claim_is_dropped_with_a_note() -> None:
    text = "x" * 100_001
    value = envelope("In Rust [c2].", claims=[{"id": "c2", "text": text, "sources": []}])
    for answer in (read(value, last_try=True), READING.salvage(json.dumps(value))):
        assert answer is not None
        assert (answer.output, answer.claims) == ("In Rust .", ())
        assert answer.notes[0].startswith("dropped: c2: its text")


def test_a_source_may_be_named_by_the_end_of_its_path() -> None:
    document = Document(
        path="docs/sub/page.md", digest=compute_digest("text"), media_type="text/plain", chars=4
    )
    sources = Sources(lambda _digest: "text", load_fetched_pages=lambda: (document,))
    assert sources.find_documents("page.md") == [document]
    assert sources.find_documents("age.md") == []


def test_the_source_of_a_note_may_lack_its_document_if_only_one_note_fits() -> None:
    pages: list[Document] = []
    for path in ("memory:qdrant/licence (guide.md)", "memory:a/b (x.md)", "memory:a/b (y.md)"):
        digest = compute_digest(path)
        pages.append(Document(path=path, digest=digest, media_type="text/plain", chars=4))
    sources = Sources(lambda _digest: "text", load_fetched_pages=lambda: tuple(pages))
    assert sources.find_documents("memory:qdrant/licence") == pages[:1]
    assert sources.find_documents("memory:qdrant/lic") == []
    assert sources.find_documents("memory:a/b") == []


def test_a_quote_may_be_in_each_text_of_a_page_and_the_newest_comes_first() -> None:
    texts = {
        compute_digest(text): text
        for text in ("It is open until 18. Call us.", "Until 20. Call us.")
    }
    old, new = (
        Document(path="memory:hours", digest=digest, media_type="text/plain", chars=4)
        for digest in texts
    )
    sources = Sources(texts.__getitem__, load_fetched_pages=lambda: (new, old))
    quotes = ("Call us.", "Until 20.", "It is open until 18.")
    assert [sources.prove("memory:hours", quote).digest for quote in quotes] == [
        new.digest,
        new.digest,
        old.digest,
    ]
    with pytest.raises(ToolFailed, match="this quote is not in"):
        sources.prove("memory:hours", "Until 22.")


@pytest.mark.parametrize("name", ["caf\u00e9.md", "cafe\u0301.md", "sub/cafe\u0301.md"])
@pytest.mark.parametrize("path", ["sub/caf\u00e9.md", "sub/cafe\u0301.md"])
def test_a_source_may_be_named_in_another_normal_form(name: str, path: str) -> None:
    document = Document(path=path, digest=compute_digest("t"), media_type="text/plain", chars=1)
    sources = Sources(lambda _digest: "t", load_fetched_pages=lambda: (document,))
    assert sources.find_documents(name) == [document]


def test_the_parts_of_a_claim_are_compared_in_one_normal_form() -> None:
    claim = {**a_claim("It is written in Rust."), "subject": "Cafe\u0301 Central"}
    assert read(envelope(claims=[claim])).claims[0].subject == "Caf\u00e9 Central"


def test_pages_that_were_fetched_during_the_handoff_can_be_cited() -> None:
    page = Document(
        path="https://example.org/",
        digest=compute_digest("A page."),
        media_type="text/html",
        chars=7,
    )
    sources = Sources(lambda _digest: "A page.", load_fetched_pages=lambda: (page,))
    answer_format = EnvelopeFormat(STEP, {"type": "string"}, sources)
    answer = answer_format.read(
        json.dumps(envelope(claims=[a_claim("A page.", "https://example.org/")])), last_try=False
    )
    assert answer.claims[0].sources[0].source == "https://example.org/"


def test_an_out_of_range_confidence_is_clamped() -> None:
    assert read(envelope(confidence=7)).confidence == 1.0
    assert read(envelope(confidence=-1)).confidence == 0.0


def test_a_bare_output_is_accepted_on_the_last_try() -> None:
    answer_format = EnvelopeFormat(
        STEP, {"type": "object", "required": ["n"]}, Sources(TEXT_OF, MANIFEST)
    )
    assert answer_format.read('{"n": 1}', last_try=True).output == {"n": 1}


def test_a_truncated_envelope_is_salvaged_with_its_complete_claims() -> None:
    text = json.dumps(
        envelope(claims=[a_claim("It is written in Rust."), a_claim("x", claim_id="c2")])
    )
    answer = READING.salvage(text[: text.index('"c2"') + 3])
    assert answer is not None
    assert (answer.status, answer.output) == (
        ResultStatus.PARTIAL,
        "It is written in Rust [find.c1].",
    )
    assert [claim.id for claim in answer.claims] == ["find.c1"]


def test_nothing_is_salvaged_from_an_empty_text() -> None:
    assert READING.salvage("") is None
    assert READING.salvage('{"status": "ok", "outp') is None


def test_the_schema_of_a_text_envelope_can_be_enforced() -> None:
    assert make_strict(schema_of(READING)) is not None


def test_definitions_of_the_output_schema_are_moved_to_the_root() -> None:
    output = {
        "type": "array",
        "items": {"$ref": "#/$defs/Row"},
        "$defs": {"Row": {"type": "string"}},
    }
    schema = schema_of(EnvelopeFormat(STEP, output, Sources(TEXT_OF, MANIFEST)))
    assert schema["$defs"] == {"Row": {"type": "string"}}
    assert "$defs" not in schema["properties"]["output"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "text", "sources", "x"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(
        st.sampled_from(["status", "output", "claims", "confidence", "needs", "problem"]),
        json_values,
        max_size=6,
    ),
    st.booleans(),
)
def test_every_answer_is_read_or_gets_a_repair_instruction(
    value: dict[str, Any], last_try: bool
) -> None:
    with suppress(InvalidAnswer):
        assert read(value, last_try=last_try).status in ResultStatus


@given(st.text())
def test_any_text_can_be_salvaged_or_not(text: str) -> None:
    salvaged = READING.salvage(text)

    assert salvaged is None or salvaged.status is ResultStatus.PARTIAL


def test_a_claim_has_a_subject_an_attribute_and_a_value() -> None:
    parts = {"subject": "Qdrant", "attribute": "age", "value": 5, "unit": "years", "date": None}
    (claim,) = read(envelope(claims=[a_claim("It is written in Rust.") | parts])).claims

    assert (claim.subject, claim.attribute, claim.value, claim.unit, claim.date) == (
        "Qdrant",
        "age",
        "5",
        "years",
        None,
    )
    assert claim.is_comparable


@pytest.mark.parametrize("strange", [None, "", "n/a", [], {"a": 1}, "x" * 501])
def test_invalid_claim_parts_cost_no_turn(strange: object) -> None:
    (claim,) = read(
        envelope(claims=[a_claim("It is written in Rust.") | {"subject": strange, "value": True}])
    ).claims

    assert (claim.subject, claim.value, claim.is_comparable) == (None, "yes", False)


def test_a_partial_result_must_name_missing_parts() -> None:
    silent = {**envelope(), "status": "partial"}

    with pytest.raises(InvalidAnswer, match="does not name the missing part"):
        read(silent)

    assert read({**silent, "problem": "no prices"}).error == "no prices"
    assert read({**silent, "needs": "the price list"}).needs == "the price list"
    assert read(silent, last_try=True).status is ResultStatus.PARTIAL


def test_null_in_an_optional_property_of_the_output_means_not_given() -> None:
    form = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "born": {"type": "integer"},
            "works": {"type": "array", "items": {"$ref": "#/$defs/work"}},
        },
        "required": ["name"],
        "$defs": {"work": {"type": "object", "properties": {"year": {"type": "integer"}}}},
    }
    answer_format = EnvelopeFormat(STEP, form, Sources(TEXT_OF, MANIFEST))
    text = {"name": "Ada", "born": None, "works": [{"year": None}, {"year": 1843}]}

    answer = answer_format.read(json.dumps(envelope(text, claims=None)), last_try=False)
    assert answer.output == {"name": "Ada", "works": [{}, {"year": 1843}]}


def test_null_in_a_required_property_of_the_output_is_refused() -> None:
    form = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    answer_format = EnvelopeFormat(STEP, form, Sources(TEXT_OF, MANIFEST))
    with pytest.raises(InvalidAnswer):
        answer_format.read(json.dumps(envelope({"a": None})), last_try=False)


def test_null_that_the_schema_allows_is_kept() -> None:
    form = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
    answer_format = EnvelopeFormat(STEP, form, Sources(TEXT_OF, MANIFEST))
    text = {"a": None, "b": 1}
    assert answer_format.read(json.dumps(envelope(text)), last_try=False).output == text
