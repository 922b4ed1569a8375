"""The offline model fills a schema with claims and nothing else."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.providers.offline.citations import find_markers
from handoff_queue.shared.providers.offline.conversation import OfflineClaim
from handoff_queue.shared.providers.offline.json_schema_filling import Filled, fill
from tests.machine_pace import measure
from tests.shared.providers.offline.answer_schemas import SCHEMAS, TREES, object_schema
from tests.shared.providers.offline.offline_requests import (
    EXAMPLES,
    Library,
    envelope_schema,
    work,
)

TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}
QDRANT = ("Qdrant is released under the Apache License 2.0.", "Qdrant is written in Rust.")
AERO = ("The Aero has a weight of 1.1 kg.", "The Aero is waterproof.")
FJORD = ("The Fjord has a weight of 990 grams.", "It runs for 12 hours.")


def claims_of(*texts: str, first: int = 1) -> tuple[OfflineClaim, ...]:
    return tuple(
        OfflineClaim(f"c{number}", text, "a.md") for number, text in enumerate(texts, first)
    )


def fill_form(form: dict[str, Any], *texts: str, **subjects: tuple[str, ...]) -> Filled:
    by_subject = {}
    every = list(claims_of(*texts))
    for name, subject_texts in subjects.items():
        by_subject[name] = claims_of(*subject_texts, first=len(every) + 1)
        every += by_subject[name]
    return fill(form, every, by_subject)


def optional_value(schema: dict[str, Any], name: str, *texts: str) -> Any:
    """Return the value of an optional property, or `...` if it is missing."""
    form = {"type": "object", "properties": {name: schema}}
    return fill_form(form, *texts).value.get(name, ...)


@pytest.mark.parametrize(
    ("name", "schema", "text", "value"),
    [
        ("weight_kg", NUMBER, AERO[0], 1.1),
        ("weight", NUMBER, FJORD[0], 990),
        ("ordersLost", WHOLE, "1,240 orders were lost at 09:14.", 1240),
        ("language", {"enum": ["C", "C++", "Rust"]}, "Its language is C++.", "C++"),
        ("version", {**TEXT, "maxLength": 30}, "The version is 1.9.", "The version is 1.9 [c1]."),
        ("license", TEXT, QDRANT[0], "Qdrant is released under the Apache License 2.0 [c1]."),
        ("weight", {"anyOf": [{"type": "null"}, NUMBER]}, AERO[0], 1.1),
        ("weight", {"type": ["null", "number"]}, AERO[0], 1.1),
    ],
)
def test_a_value_comes_from_a_claim_about_the_property(
    name: str, schema: dict[str, Any], text: str, value: Any
) -> None:
    assert optional_value(schema, name, text, "Nothing of interest.") == value


@pytest.mark.parametrize(
    ("name", "schema", "text"),
    [
        ("price_usd", NUMBER, "The price is 1,299 euros."),
        ("weight", NUMBER, "Its weight is 1.1 kg, or 2.4 pounds."),
        ("founded", WHOLE, "It has 4 fans."),
        ("depth", WHOLE, "It is 1.5 cm in depth."),
        ("share", {**NUMBER, "maximum": 1}, "The share is 7."),
        ("language", {"enum": ["C", "Go"]}, "Its language is C++."),
        ("language", {"enum": ["Rust"]}, "Its language is not Rust."),
        ("waterproof", {"type": "boolean"}, AERO[1]),
        ("released", {**TEXT, "format": "date"}, "It was released last year."),
        ("owner", TEXT, QDRANT[0]),
        ("tags", {"type": "array", "items": TEXT}, QDRANT[0]),
    ],
)
def test_a_field_without_a_claim_is_left_out_or_null_or_named(
    name: str, schema: dict[str, Any], text: str
) -> None:
    facts = {"type": "array", "items": TEXT}
    nullable = {"anyOf": [schema, {"type": "null"}]}
    required = fill_form(object_schema(facts=facts, **{name: schema}), text)

    assert optional_value(schema, name, text) is ...
    assert fill_form(object_schema(facts=facts, **{name: nullable}), text).value[name] is None
    assert (name in required.value, required.missing) == (False, (name,))


def test_a_list_of_objects_has_one_for_each_subject() -> None:
    item = object_schema(name=TEXT, weight=NUMBER, waterproof={"type": ["boolean", "null"]})
    filled_form = fill_form({"type": "array", "items": item}, Aero=AERO, Fjord=FJORD)

    assert filled_form.value == [
        {"name": "Aero", "weight": 1.1, "waterproof": None},
        {"name": "Fjord", "weight": 990, "waterproof": None},
    ]
    assert (filled_form.used_ids, filled_form.missing) == (("c1", "c3"), ())


def test_a_property_with_the_name_of_a_subject_is_about_that_subject() -> None:
    form = object_schema(aero=object_schema(weight=NUMBER), Fjord=object_schema(weight=NUMBER))

    assert fill_form(form, Aero=AERO, Fjord=FJORD).value == {
        "aero": {"weight": 1.1},
        "Fjord": {"weight": 990},
    }


def test_missing_values_are_named_by_their_place() -> None:
    form = object_schema(laptops={"type": "array", "items": object_schema(name=TEXT, hours=NUMBER)})
    filled_form = fill_form(form, Aero=("The Aero runs for 9 hours.",), Fjord=FJORD[:1])

    assert filled_form.value == {"laptops": [{"name": "Aero", "hours": 9}, {"name": "Fjord"}]}
    assert filled_form.missing == ("laptops[1].hours",)


def test_without_claims_everything_required_is_missing() -> None:
    assert fill_form(object_schema(name=TEXT, count=WHOLE)) == Filled(
        None, missing=("name", "count")
    )


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("texts", [QDRANT + AERO, ()], ids=["with claims", "without"])
def test_a_value_is_valid_or_names_its_missing_fields(
    schema: dict[str, Any], texts: tuple[str, ...]
) -> None:
    check_validity(fill_form(schema, *texts), schema)


@given(TREES, st.sampled_from([QDRANT, AERO, ()]))
def test_any_form_gets_a_valid_value_or_names_its_missing_fields(
    schema: dict[str, Any], texts: tuple[str, ...]
) -> None:
    filled_form = fill_form(schema, *texts)

    check_validity(filled_form, schema)
    assert set(filled_form.used_ids) <= {claim.id for claim in claims_of(*texts)}


def check_validity(filled_form: Filled, schema: dict[str, Any]) -> None:
    if not filled_form.missing:
        jsonschema.validate(filled_form.value, schema, format_checker=jsonschema.FormatChecker())


def test_no_pattern_takes_long() -> None:
    schema = {**TEXT, "pattern": "^(a+)+$"}
    text = f"The license is {'a' * 200}b."

    assert measure(lambda: optional_value(schema, "license", text), limit_s=1) < 1
    assert optional_value(schema, "license", text) is ...


def test_an_answer_with_missing_fields_is_partial_and_names_them() -> None:
    answer = work(
        "<task>Research Qdrant with regard to licence.</task>",
        Library.of(EXAMPLES),
        output_format=object_schema(license=TEXT, price_usd=NUMBER),
    )

    assert (answer["status"], answer["problem"]) == (
        "partial",
        "no value was found for price_usd",
    )
    assert list(answer["output"]) == ["license"]
    assert find_markers(answer["output"]["license"]) <= {claim["id"] for claim in answer["claims"]}


def test_a_form_that_documents_fill_is_ok_and_brings_the_claims_of_its_values() -> None:
    docs = Library({"aero.md": "# Aero\n\nAero is a laptop. It has a weight of 1.1 kg."})
    form = object_schema(weight_kg=NUMBER, colour={"type": ["string", "null"]})
    answer = work("<task>Research Aero with regard to weight.</task>", docs, output_format=form)

    assert (answer["status"], answer["output"]) == ("ok", {"weight_kg": 1.1, "colour": None})
    assert [claim["sources"][0]["quote"] for claim in answer["claims"]] == [
        "It has a weight of 1.1 kg."
    ]


def test_a_form_without_any_value_is_a_failure_with_a_reason() -> None:
    answer = work(
        "<task>Research Qdrant with regard to licence.</task>",
        Library.of(EXAMPLES),
        output_format=NUMBER,
    )

    assert (answer["status"], answer["output"], answer["problem"]) == (
        "failed",
        None,
        "no value was found for the answer itself",
    )


def test_a_schema_in_the_system_prompt_is_the_form_of_the_answer() -> None:
    answer = work("<task>Research Qdrant.</task>", Library.of(EXAMPLES), is_schema_in_words=True)

    jsonschema.validate(answer, envelope_schema())
    assert answer["status"] == "ok"
