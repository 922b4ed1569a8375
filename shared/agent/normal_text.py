"""The normal form of a text, in which two spellings of a word are equal. Pure."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

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


def normal_case_kept(text: str) -> str:
    """Return the text in NFKC, without marks and invisible characters, with ASCII digits, and with
    a Latin letter in place of each letter that looks like it.
    """
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    table: dict[int, str] = {}
    for character in set(text):
        if not character.isascii():
            table[ord(character)] = _simple(character)
    return text.translate(table)


def normal(text: str) -> str:
    """Return the normal form in small letters."""
    return normal_case_kept(text).casefold()


@lru_cache(maxsize=4_096)
def _simple(character: str) -> str:
    """Return the normal form of a character. Marks have none."""
    if character in _LOOKALIKES:
        return _LOOKALIKES[character]
    if character in _BRAILLE:
        return _BRAILLE[character]
    letter = ord(character) - _FIRST_REGIONAL_INDICATOR
    if 0 <= letter < len(_LETTERS):
        return _LETTERS[letter]
    kept: list[str] = []
    for part in unicodedata.normalize("NFD", character):
        if part.isdecimal():
            kept.append(str(unicodedata.decimal(part)))
        elif unicodedata.category(part) not in _DROPPED:
            kept.append(_LOOKALIKES.get(part, part))
    return "".join(kept)
