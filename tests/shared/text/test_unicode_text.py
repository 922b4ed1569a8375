from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.text.unicode_text import (
    has_lone_surrogate,
    replace_all_lone_surrogates,
    replace_lone_surrogates,
)

halves = st.text(st.characters(categories=["Cs"]) | st.characters())


@given(halves)
def test_every_text_becomes_storable(text: str) -> None:
    whole = replace_lone_surrogates(text)
    assert whole.encode().decode() == whole
    assert not has_lone_surrogate(whole)


@given(st.text())
def test_a_text_of_complete_characters_stays_unchanged(text: str) -> None:
    assert replace_lone_surrogates(text) is text


@given(st.characters(min_codepoint=0x10000))
def test_two_halves_of_a_surrogate_pair_are_one_character(character: str) -> None:
    spelled = character.encode("utf-16-le")
    apart = "".join(spelled[at : at + 2].decode("utf-16-le", "surrogatepass") for at in (0, 2))
    assert (len(apart), replace_lone_surrogates(f"a{apart}b")) == (2, f"a{character}b")


def test_names_and_values_are_cleaned_at_any_depth() -> None:
    assert replace_all_lone_surrogates({"\ud83d": ("a", ["\ude00", 1, None])}) == {
        "\ufffd": ("a", ["\ufffd", 1, None])
    }
