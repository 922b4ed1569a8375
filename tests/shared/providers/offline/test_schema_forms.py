"""A form holds what claims say, and nothing else."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.providers.offline.conversation import KnownClaim
from handoff_queue.shared.providers.offline.schema_forms import Filled, Subject, fill_in
from handoff_queue.shared.providers.offline.statements import markers_in
from tests.shared.providers.offline.asking_the_model import (
    EXAMPLES,
    Library,
    ask,
    envelope_schema,
    work,
)
from tests.shared.providers.offline.forms_asked_for import SCHEMAS, TREES, an_object, wrongs

TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}
QDRANT = ("Qdrant is released under the Apache License 2.0.", "Qdrant is written in Rust.")
AERO, FJORD = (
    ("The Aero weighs 1.1 kg and costs $1,299.", "It is not waterproof."),
    ("The Fjord weighs 990 grams.", "It runs for 12 hours."),
)


def claims(*texts: str, first: int = 1) -> tuple[KnownClaim, ...]:
    return tuple(KnownClaim(f"c{number}", text, "a.md") for number, text in enumerate(texts, first))


def filled(form: dict[str, Any], *texts: str, **subjects: tuple[str, ...]) -> Filled:
    of_each, first = [], len(texts) + 1
    for name, said in subjects.items():
        of_each.append(Subject(name, claims(*said, first=first)))
        first += len(said)
    return fill_in(
        form,
        (*claims(*texts), *(claim for subject in of_each for claim in subject.claims)),
        of_each,
    )


def one(schema: dict[str, Any], name: str, *texts: str) -> Any:
    """What a form's only and optional property is filled with; `...`: it is left out."""
    return filled({"type": "object", "properties": {name: schema}}, *texts).value.get(name, ...)


# What is said


@pytest.mark.parametrize(
    ("name", "schema", "text", "value"),
    [
        ("price_usd", NUMBER, AERO[0], 1299),
        ("weight_kg", NUMBER, AERO[0], 1.1),
        ("weight", NUMBER, AERO[0], 1.1),
        ("batteryHours", WHOLE, "Its batteries last for 9 hours.", 9),
        ("ordersLost", WHOLE, "1,240 orders were lost at 09:14.", 1240),
        ("language", {"enum": ["C", "C++", "Rust"]}, "It is written in C++.", "C++"),
        (
            "license",
            {"enum": ["apache_2.0", "mit"]},
            "It has the Apache 2.0 license.",
            "apache_2.0",
        ),
        ("waterproof", {"type": "boolean"}, AERO[1], False),
        ("is_waterproof", {"type": "boolean"}, "It is waterproof.", True),
        ("released", {**TEXT, "format": "date"}, "It was released on 2024-05-06.", "2024-05-06"),
        ("version", {**TEXT, "pattern": r"^v\d+\.\d+$"}, "The newest version is v1.9.", "v1.9"),
        ("license", TEXT, QDRANT[0], "Qdrant is released under the Apache License 2.0 [c1]."),
        (
            "license",
            {"type": ["string", "null"]},
            QDRANT[0],
            "Qdrant is released under the Apache License 2.0 [c1].",
        ),
        ("price", {"anyOf": [{"type": "null"}, NUMBER]}, AERO[0], 1299),
    ],
)
def test_what_a_claim_says_is_the_value(
    name: str, schema: dict[str, Any], text: str, value: Any
) -> None:
    assert one(schema, name, text, "Nothing of interest.") == value


def test_each_thing_compared_has_an_item_of_its_own() -> None:
    form = {
        "type": "array",
        "items": an_object(name=TEXT, weight=NUMBER, waterproof={"type": ["boolean", "null"]}),
    }
    found = filled(form, Aero=AERO, Fjord=FJORD)
    assert found.value == [
        {"name": "Aero", "weight": 1.1, "waterproof": False},
        {"name": "Fjord", "weight": 990, "waterproof": None},
    ]
    assert (found.used, found.missing) == (("c1", "c2", "c3"), ())


def test_a_property_that_is_called_like_a_thing_is_about_that_thing_only() -> None:
    form = an_object(aero=an_object(weight=NUMBER), Fjord=an_object(weight=NUMBER))
    assert filled(form, Aero=AERO, Fjord=FJORD).value == {
        "aero": {"weight": 1.1},
        "Fjord": {"weight": 990},
    }
    by_name = {"type": "object", "additionalProperties": an_object(weight=NUMBER)}
    assert filled(by_name, Aero=AERO, Fjord=FJORD).value == {
        "Aero": {"weight": 1.1},
        "Fjord": {"weight": 990},
    }


def test_a_list_holds_every_statement_or_choice_that_is_named() -> None:
    assert one({"type": "array", "items": TEXT}, "facts", *QDRANT) == [
        "Qdrant is released under the Apache License 2.0 [c1].",
        "Qdrant is written in Rust [c2].",
    ]
    choices = {"type": "array", "items": {"enum": ["Java", "Go", "Rust"]}}
    assert one(
        choices, "languages", "It is written in Rust.", "Clients are written in Rust and Go."
    ) == ["Rust", "Go"]


# What is not said


@pytest.mark.parametrize(
    ("name", "schema", "text"),
    [
        ("price_usd", NUMBER, "It costs 1,299 euros."),
        ("price_per_month_usd", NUMBER, "It costs $1,299."),
        ("weight_kg", NUMBER, FJORD[0]),
        ("founded", WHOLE, "It has 4 fans."),
        ("language", {"enum": ["C", "Go"]}, "It is written in C++."),
        ("language", {"enum": ["Rust"]}, "It is not written in Rust."),
        ("touchscreen", {"type": "boolean"}, "It is waterproof."),
        ("released", {**TEXT, "format": "date"}, "It was released last year."),
        ("owner", TEXT, QDRANT[0]),
        ("tags", {"type": "array", "items": TEXT}, QDRANT[0]),
        ("depth", WHOLE, "It is 1.5 cm in depth."),
    ],
)
def test_what_no_claim_says_is_left_out_or_null_or_named(
    name: str, schema: dict[str, Any], text: str
) -> None:
    assert one(schema, name, text) is ...
    nullable = {"anyOf": [schema, {"type": "null"}]}
    assert (
        filled(an_object(facts={"type": "array", "items": TEXT}, **{name: nullable}), text).value[
            name
        ]
        is None
    )
    required = filled(an_object(facts={"type": "array", "items": TEXT}, **{name: schema}), text)
    assert (name in required.value, required.missing) == (False, (name,))


def test_what_is_missing_is_named_by_its_place() -> None:
    form = an_object(laptops={"type": "array", "items": an_object(name=TEXT, price=NUMBER)})
    found = filled(form, Aero=AERO, Fjord=FJORD)
    assert found.value == {"laptops": [{"name": "Aero", "price": 1299}, {"name": "Fjord"}]}
    assert found.missing == ("laptops[1].price",)


def test_without_claims_there_is_an_empty_form_and_everything_required_is_missing() -> None:
    assert filled(an_object(name=TEXT, count=WHOLE)) == Filled(
        {}, missing=("name", "count"), is_there=False
    )


# Any form


@pytest.mark.parametrize(
    "schema", SCHEMAS, ids=lambda schema: "-".join(schema.get("properties", schema))[:40]
)
@pytest.mark.parametrize("texts", [QDRANT + AERO, ()], ids=["with claims", "without"])
def test_what_is_filled_in_is_valid_and_what_is_not_is_named(
    schema: dict[str, Any], texts: tuple[str, ...]
) -> None:
    is_filled_validly(filled(schema, *texts), schema)


@given(TREES, st.sampled_from([QDRANT, AERO, ()]))
def test_any_form_is_filled_validly_or_says_what_it_lacks(
    schema: dict[str, Any], texts: tuple[str, ...]
) -> None:
    found = filled(schema, *texts)
    is_filled_validly(found, schema)
    assert set(found.used) <= {claim.id for claim in claims(*texts)}


def is_filled_validly(found: Filled, schema: dict[str, Any]) -> None:
    """Whatever it lacks, nothing that stands in it is wrong; and it says so exactly when it
    lacks something.
    """
    if found.is_there:
        assert wrongs(found.value, schema) == []
    if not found.missing:
        jsonschema.validate(found.value, schema, format_checker=jsonschema.FormatChecker())


def test_no_pattern_takes_long() -> None:
    before = time.process_time()
    assert (
        one({**TEXT, "pattern": "^(a+)+$"}, "license", "The license is " + "a" * 200 + "b.") is ...
    )
    assert time.process_time() - before < 1


# Through the model


def test_a_form_that_lacks_something_is_partial_and_says_what() -> None:
    wanted = an_object(license=TEXT, price_usd=NUMBER)
    answer = work(
        "<task>Research Qdrant with regard to licence.</task>",
        Library.of(EXAMPLES),
        schema=envelope_schema(wanted),
    )
    assert (answer["status"], answer["problem"]) == (
        "partial",
        "the documents do not say: price_usd",
    )
    assert "Apache" in answer["output"]["license"]
    assert "price_usd" not in answer["output"]
    assert markers_in(answer["output"]["license"]) <= {claim["id"] for claim in answer["claims"]}


def test_a_form_that_documents_can_fill_is_ok_and_brings_the_claims_of_its_figures() -> None:
    docs = Library({"aero.md": "# Aero\n\nAero is a laptop. It weighs 1.1 kg and costs $1,299."})
    wanted = an_object(weight_kg=NUMBER, colour={"type": ["string", "null"]})
    answer = work(
        "<task>Research Aero with regard to weight.</task>", docs, schema=envelope_schema(wanted)
    )
    assert (answer["status"], answer["output"]) == ("ok", {"weight_kg": 1.1, "colour": None})
    assert [claim["sources"][0]["quote"] for claim in answer["claims"]] == [
        "It weighs 1.1 kg and costs $1,299."
    ]


def test_a_form_without_any_value_is_a_failure_that_says_so() -> None:
    answer = work(
        "<task>Research Qdrant with regard to licence.</task>",
        Library.of(EXAMPLES),
        schema=envelope_schema(NUMBER),
    )
    assert (answer["status"], answer["output"], answer["problem"]) == (
        "failed",
        None,
        "the documents do not say: the answer itself",
    )


def test_a_schema_that_comes_in_words_is_obeyed_too() -> None:
    schema = an_object(answer=TEXT, score={"type": "integer", "minimum": 3})
    said = f"Be brief. Your final answer is one JSON value and nothing else. It matches this JSON Schema: {json.dumps(schema)}"
    jsonschema.validate(json.loads(ask("What is Qdrant?", system=said)), schema)
