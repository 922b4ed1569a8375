"""Characters that Unicode or UTF-16 can spell in two ways, lone surrogates, and characters that a
person cannot see, such as zero-width and tag characters.

A lone surrogate is half of a character. JSON and file names can contain it. UTF-8 cannot, so
no process can store or send it. Invisible characters are removed from a text before a model reads
it.

The normal form of a text is for comparisons: letters that look alike are equal in it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any

_HALF = re.compile(r"[\ud800-\udfff]")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Characters without a shape, and characters that change the reading direction. An attacker can
spell an instruction with these characters, and only a model reads it.
"""
_RUN = re.compile("[\u061c\u180b-\u180d\u180f\u200c-\u200f\u2800\ufe0e\ufe0f]{3,}")
"""Joiners, direction marks, blanks and selectors that some scripts and emoji need, one or two at a
time. A longer run is invisible text.
"""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LOOKALIKES = dict(
    zip(
        "аеорсухіјѕһԁɡкмнтвАЕОРСУХІЈЅКМНТВαεορυικντχΑΕΟΡΥΙΚΝΤΧΒΗΜΖ"
        "ʙɢʜɪʟɴʀʏᴀᴄᴅᴇᴊᴋᴍᴏᴘᴛᴜᴠᴡᴢɐǝɟƃɥᴉɾʞlɯɹʇʌʍʎɔı",
        "aeopcyxijshdgkmhtbAEOPCYXIJSKMHTBaeopuikvtxAEOPYIKNTXBHMZ"
        "bghilnryacdejkmoptuvwzaefghijklmrtvwyci",
        strict=True,
    )
)
"""Letters of other alphabets, small capitals and turned letters that look like a Latin letter."""
_BRAILLE = dict(zip("⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚⠅⠇⠍⠝⠕⠏⠟⠗⠎⠞⠥⠧⠺⠭⠽⠵", _LETTERS, strict=True))
_FIRST_REGIONAL_INDICATOR = 0x1F1E6
_DROPPED = frozenset({"Mn", "Me", "Cf"})
"""Unicode categories of combining marks and of characters without a shape."""


def to_nfc(text: str) -> str:
    """Return the text in NFC. Texts that a reader cannot tell apart are then equal."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", text)


def has_lone_surrogate(text: str) -> bool:
    """Return whether the text contains a lone surrogate."""
    return not text.isascii() and _HALF.search(text) is not None


def replace_lone_surrogates(text: str) -> str:
    """Return the text with two adjacent surrogates joined, as after a cut in a stream, and
    other lone surrogates replaced (U+FFFD).
    """
    if not has_lone_surrogate(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def replace_all_lone_surrogates(value: Any) -> Any:
    """Return plain data with `replace_lone_surrogates` applied to all texts and names of fields."""
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, list | tuple):
        return type(value)(map(replace_all_lone_surrogates, value))
    if isinstance(value, dict):
        fields: dict[Any, Any] = {}
        for name, field_value in value.items():
            fields[replace_all_lone_surrogates(name)] = replace_all_lone_surrogates(field_value)
        return fields
    return value


def remove_invisible(text: str) -> str:
    """Return the text without the characters that a person cannot see."""
    if text.isascii():
        return text
    return _RUN.sub("", _INVISIBLE.sub("", text))


def replace_unprintable(text: str) -> str:
    """Return the text with U+FFFD in place of each character that is not printable, such as a
    line break or a terminal escape.
    """
    if text.isprintable():
        return text
    characters: list[str] = []
    for character in text:
        characters.append(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}")
    return "".join(characters)


def normalize_keeping_case(text: str) -> str:
    """Return the text in NFKC, without marks and invisible characters. It has ASCII digits, and a
    Latin letter in place of each letter that looks like it.
    """
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    table: dict[int, str] = {}
    for character in set(text):
        if not character.isascii():
            table[ord(character)] = _normalize_character(character)
    return text.translate(table)


def normalize(text: str) -> str:
    """Return the normal form in small letters."""
    return normalize_keeping_case(text).casefold()


@lru_cache(maxsize=4_096)
def _normalize_character(character: str) -> str:
    """Return the normal form of a character. Marks have none."""
    if character in _LOOKALIKES:
        return _LOOKALIKES[character]
    if character in _BRAILLE:
        return _BRAILLE[character]
    letter = ord(character) - _FIRST_REGIONAL_INDICATOR
    if 0 <= letter < len(_LETTERS):
        return _LETTERS[letter]
    characters: list[str] = []
    for part in unicodedata.normalize("NFD", character):
        if part.isdecimal():
            characters.append(str(unicodedata.decimal(part)))
        elif unicodedata.category(part) not in _DROPPED:
            characters.append(_LOOKALIKES.get(part, part))
    return "".join(characters)
