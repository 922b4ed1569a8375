"""An unknown name gets suggestions."""

from __future__ import annotations

import pytest

from handoff_queue.shared.text.word_forms import close_names, suggest_name, with_article

ROLES = ["analyst", "coder", "researcher", "reviewer", "writer"]


@pytest.mark.parametrize(
    "typed", ["reseacher", "resercher", "Researcher", "RESEARCHER", "researchers"]
)
def test_a_misspelled_name_is_suggested_in_any_case(typed: str) -> None:
    assert suggest_name(typed, ROLES) == "did you mean researcher?"


def test_a_hyphen_counts_as_an_underscore() -> None:
    assert close_names("max-turns", ["max_turns", "max_usd"]) == ["max_turns"]
    assert close_names("--max_turns", ["--max-usd", "--max-turns"]) == ["--max-turns"]


def test_a_name_without_a_similar_name_gets_the_list_of_all_names() -> None:
    assert suggest_name("poet", ["coder", "analyst"]) == "use one of coder, analyst"
    assert suggest_name("poet", []) == "there are none"
    assert (
        suggest_name("poet", ["coder"], otherwise="name one of these")
        == "name one of these (known: coder)"
    )


def test_several_close_names_can_be_asked_for() -> None:
    assert suggest_name("re-viewer", ["viewer", "reviewer"], limit=2) == (
        "did you mean reviewer or viewer?"
    )


def test_a_long_list_is_cut_and_a_long_name_is_compared_by_its_beginning() -> None:
    many = [f"step{number}" for number in range(50)]

    assert suggest_name("x" * 1_000_000, many).endswith("step28, step29 and 20 more")


def test_a_noun_that_begins_with_a_vowel_gets_an() -> None:
    assert [with_article(noun) for noun in ("int", "str", "Object")] == [
        "an int",
        "a str",
        "an Object",
    ]
