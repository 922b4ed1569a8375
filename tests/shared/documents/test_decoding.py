"""Bytes become the right text, or are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.documents.media_types import DocumentRefused, decode, normalize_text

PRINTABLE = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1)


@given(PRINTABLE, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]))
def test_any_text_survives_every_unicode_encoding(text: str, encoding: str) -> None:
    text = text.removeprefix("\ufeff")

    assert decode(text.encode(encoding)).removeprefix("\ufeff") == text


@given(st.binary())
def test_any_bytes_become_text_that_can_be_stored_or_are_refused(data: bytes) -> None:
    try:
        text = decode(data)
    except DocumentRefused:
        return
    text.encode()
    assert "\r" not in text
    assert "\0" not in text


@given(st.text())
def test_a_tidied_text_stays_as_it_is(text: str) -> None:
    once = normalize_text(text)

    assert normalize_text(once) == once
    once.encode()


def test_western_text_without_utf8_is_read() -> None:
    assert decode("Déjà vu, señor".encode("latin-1")) == "Déjà vu, señor"


def test_windows_quotes_are_read() -> None:
    assert decode("“curly” – and €5".encode("cp1252")) == "“curly” – and €5"


def test_another_alphabet_without_utf8_is_refused_rather_than_garbled() -> None:
    with pytest.raises(DocumentRefused, match="save it as UTF-8"):
        decode("Привет, мир".encode("cp1251"))


def test_a_declared_charset_is_believed_when_the_bytes_agree() -> None:
    assert decode("Привет, мир".encode("cp1251"), "windows-1251") == "Привет, мир"


def test_an_unknown_charset_is_passed_over() -> None:
    assert decode("olé, olé".encode("latin-1"), "x-nonsense") == "olé, olé"


@pytest.mark.parametrize(
    "data", [b"\x7fELF\0\0", b"\x1f\x8b\x08\x01\x02\x03", bytes(range(1, 256))]
)
def test_binary_is_refused(data: bytes) -> None:
    with pytest.raises(DocumentRefused):
        decode(data)


def test_a_broken_utf16_file_says_so() -> None:
    with pytest.raises(DocumentRefused, match="begins like UTF-16"):
        decode(b"\xff\xfe\x00\xd8\x41")


def test_a_stray_control_character_is_dropped() -> None:
    assert (
        decode(b"a long enough line with a bell\x07 in it\r\n")
        == "a long enough line with a bell in it\n"
    )
