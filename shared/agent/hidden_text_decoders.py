"""Decoders that find private text which a tool call hides in an encoding, such as Base64. Pure.

Each decoder takes a text, and yields the texts that a program without a key can read from it.
A decoder that finds nothing yields nothing.
"""

from __future__ import annotations

import base64
import codecs
import html
import re
import zlib
from binascii import Error as NotBase32
from binascii import a2b_base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from urllib.parse import unquote

_MAX_UNPACKED_BYTES = 4_000
"""Most bytes that a compressed text is unpacked to."""
_MIN_CODE_CHARS = 8
"""Characters of the shortest text that is read as base45 or base85, or as base64 without its
separators. Bytes of the shortest text that is compressed without a header. The patterns below have
the lengths of other codes.
"""
_MAX_DIGITS = 300
"""Characters of the longest text that is read as one number."""
_MIN_PRINTABLE = 0.75
"""Share of the bytes of a decoded text that are printable. Random bytes have less."""
_ESCAPE = re.compile(
    r"(?:\\u|%u)([0-9a-f]{4})|(?:\\x|=)([0-9a-f]{2})|\\([0-7]{3})", re.ASCII | re.IGNORECASE
)
_UTF7 = re.compile(r"\+([A-Za-z0-9+/]{3,})-?")
_PUNYCODE = re.compile(r"xn--([a-z0-9-]+)", re.ASCII | re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{6,}")
_STANDARD_64 = str.maketrans("-_", "+/")
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/_-]+")
_BASE32 = re.compile(r"[A-Z0-9]{8,}", re.ASCII | re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]{8,}", re.ASCII | re.IGNORECASE)
_NO_HEX = re.compile(r"0x|\\x|[^0-9a-z]", re.ASCII | re.IGNORECASE)
_TOKEN = re.compile(r"[0-9A-Za-z]{8,}")
_NUMBER = re.compile(r"[0-9]+")
_DIGITS = re.compile(r"[0-9]{12,}")
_MORSE = re.compile(r"[.\-_\u00b7\u2212]{1,5}")
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_UPPER, _LOWER = _BASE36[10:].upper(), _BASE36[10:]
_BASES = (
    _BASE58,
    f"0123456789{_UPPER}{_LOWER}",
    f"0123456789{_LOWER}{_UPPER}",
    f"{_UPPER}{_LOWER}0123456789",
)
_STANDARD_32 = f"{_UPPER}234567"
_BASES_32 = tuple(
    str.maketrans(digits, _STANDARD_32)
    for digits in (
        _STANDARD_32,
        "0123456789ABCDEFGHIJKLMNOPQRSTUV",
        "0123456789ABCDEFGHJKMNPQRSTVWXYZ",
        "YBNDRFG8EJKMCPQXOT1UWISZA345H769",
    )
)
_BASE45 = f"0123456789{_UPPER} $%*+-./:"
_FROM_Z85 = str.maketrans(
    f"0123456789{_LOWER}{_UPPER}.-:+=^!/*?&<>()[]{{}}@%$#",
    f"0123456789{_UPPER}{_LOWER}!#$%&()*+-;<=>?@^_`{{|}}~",
)
_MORSE_LETTERS = dict(
    zip(
        ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...-"
        " .-- -..- -.-- --.. ----- .---- ..--- ...-- ....- ..... -.... --... ---.. ----.".split(),
        f"{_LOWER}0123456789",
        strict=True,
    )
)
_DIGIT_NAMES = dict(
    zip("zero one two three four five six seven eight nine".split(), "0123456789", strict=True)
)
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_NUMBER_NAMES = {
    **{name: int(digit) for name, digit in _DIGIT_NAMES.items()},
    **{name: number for number, name in enumerate(_TEENS, 10)},
    **{name: 10 * number for number, name in enumerate(_TENS, 2)},
}
_POWERS = {"thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_NUMBER_WORD = re.compile(
    "|".join(sorted((*_NUMBER_NAMES, *_POWERS, "hundred", "and"), key=len, reverse=True))
)
_NUMBER_WORDS = re.compile(rf"(?:(?:{_NUMBER_WORD.pattern})[\W_]*){{2,}}")
_DIGIT_NAME = re.compile("|".join(_DIGIT_NAMES), re.ASCII | re.IGNORECASE)


def decode_percent_encodings(text: str) -> str:
    """Return the text without percent encodings, also where they are encoded again."""
    for _ in range(8):
        plain = unquote(text, errors="ignore")
        if plain == text:
            break
        text = plain
    return text


def _decode_escapes(text: str) -> Iterator[str]:
    """Yield the text without escapes of JSON, C, HTML, UTF-7 and quoted-printable, without
    markup, and with the letters of Punycode.
    """
    yield decode_percent_encodings(text)
    yield _ESCAPE.sub(_decode_character, text)
    if "&" in text:
        yield html.unescape(text)
    if "<" in text:
        end = text.rfind(">") + 1  # the search for a missing ">" would take quadratic time
        yield _TAG.sub("", text[:end]) + text[end:]
    if "+" in text:
        yield _UTF7.sub(lambda match: _decode_utf16(match[1]), text)
    for label in _PUNYCODE.findall(text):
        try:
            yield label.encode("ascii", "ignore").decode("punycode")
        except UnicodeError:
            continue


def _decode_character(match: re.Match[str]) -> str:
    if match[3]:
        return chr(int(match[3], 8))
    return chr(int(match[1] or match[2], 16))


def _decode_utf16(code: str) -> str:
    return _decode_base64_bytes(code).decode("utf-16-be", "ignore")


def _decode_base64_bytes(code: str) -> bytes:
    """Return the bytes of base64 without padding. A last character without a byte is left out."""
    code = code[: len(code) - (len(code) % 4 == 1)].translate(_STANDARD_64)
    return a2b_base64(code + "=" * (-len(code) % 4))


def _decode_hexadecimal(text: str) -> Iterator[str]:
    """Yield the texts of hexadecimal digits, also with separators."""
    codes = _HEX.findall(text)
    squeezed_text = _NO_HEX.sub("", text)
    if _HEX.fullmatch(squeezed_text):
        codes.append(squeezed_text)
    for code in codes:
        for digits in (code[len(code) % 2 :], code[::-1][len(code) % 2 :]):
            yield from _decode_text(bytes.fromhex(digits))


def _decode_base64(text: str) -> Iterator[str]:
    """Yield the texts of base64 in both alphabets, from each of the four places at which a
    group of four characters can begin.
    """
    codes = _BASE64.findall(text)
    squeezed_text = _NO_BASE64.sub("", text)
    if squeezed_text not in codes and len(squeezed_text) >= _MIN_CODE_CHARS:
        codes.append(squeezed_text)
    for code in codes:
        for start in range(4):
            yield from _decode_text(_decode_base64_bytes(code[start:]))


def _decode_base32(text: str) -> Iterator[str]:
    """Yield the texts of base32 in the alphabets of RFC 4648, of Crockford and of z-base-32."""
    for match in _BASE32.findall(text.replace("=", "")):
        code = match[: len(match) - (len(match) % 8 in (1, 3, 6))].upper()
        padding = "=" * (-len(code) % 8)
        for digits in _BASES_32:
            try:
                yield from _decode_text(base64.b32decode(code.translate(digits) + padding))
            except NotBase32:
                continue


def _decode_base85(text: str) -> Iterator[str]:
    """Yield the texts of base85, ASCII85 and Z85."""
    code = "".join(text.split())
    if len(code) < _MIN_CODE_CHARS:
        return
    for decode, spelled_text in (
        (base64.b85decode, code),
        (base64.a85decode, code),
        (base64.b85decode, code.translate(_FROM_Z85)),
    ):
        try:
            yield from _decode_text(decode(spelled_text))
        except ValueError:
            continue


def _decode_base45(text: str) -> Iterator[str]:
    """Yield the text of base45 (RFC 9285): three characters are two bytes."""
    if len(text) < _MIN_CODE_CHARS or not set(text) <= set(_BASE45):
        return
    data = bytearray()
    for at in range(0, len(text), 3):
        group = text[at : at + 3]
        value = 0
        for place, digit in enumerate(group):
            value += _BASE45.index(digit) * 45**place
        size = len(group) - 1
        if value >= 256**size:
            return
        data += value.to_bytes(size, "big")
    yield from _decode_text(bytes(data))


def _decode_long_numbers(text: str) -> Iterator[str]:
    """Yield the texts of tokens that are one number in base 36, 58 or 62."""
    for token in _TOKEN.findall(text):
        if len(token) > _MAX_DIGITS:
            continue
        yield from _decode_text(_to_bytes(int(token, 36)))
        for digits in _BASES:
            value = _parse_digits(token, digits)
            if value is not None:
                yield from _decode_text(_to_bytes(value))


def _parse_digits(token: str, digits: str) -> int | None:
    """Return the number of a token in a base; None: it has a character that is not a digit.

    Args:
        digits: the digits of the base in order.
    """
    value = 0
    for character in token:
        digit = digits.find(character)
        if digit < 0:
            return None
        value = value * len(digits) + digit
    return value


def _to_bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _decode_character_codes(text: str) -> Iterator[str]:
    """Yield the texts of numbers that are codes of characters, or places in the alphabet."""
    numbers = _NUMBER.findall(text)
    for run in _DIGITS.findall(text):
        yield from _decode_numbers(_split_into_groups(run, 3))
        if set(run) <= {"0", "1"}:
            for size in (5, 7, 8):
                yield from _decode_numbers(_split_into_groups(run, size))
    if len(numbers) >= 4:
        yield from _decode_numbers(numbers)


def _split_into_groups(run: str, size: int) -> list[str]:
    """Return the characters of a run in groups. The last group may be shorter."""
    return [run[start : start + size] for start in range(0, len(run), size)]


def _decode_numbers(numbers: Sequence[str]) -> Iterator[str]:
    """Yield the texts of numbers in base 2, 8 and 10."""
    for base in (2, 8, 10):
        try:
            values = [int(number, base) for number in numbers if len(number) <= 8]
        except ValueError:
            continue
        if values and all(32 <= value < 0x3000 for value in values):
            yield "".join(map(chr, values))
        elif values and all(0 <= value <= 26 for value in values):
            yield "".join(f" {_LOWER}"[value] for value in values)
            yield "".join(f"{_LOWER} "[value] for value in values)


def _decode_morse_and_number_names(text: str) -> Iterator[str]:
    """Yield the text of Morse code, and a text with digits in place of their names."""
    tokens = _MORSE.findall(text)
    if len(tokens) >= 4:
        letters: list[str] = []
        for token in tokens:
            signs = re.sub("[_\u2212]", "-", token).replace("\u00b7", ".")
            letters.append(_MORSE_LETTERS.get(signs, " "))
        yield "".join(letters)
    for words in _NUMBER_WORDS.findall(text.casefold()):
        yield str(_parse_number_words(_NUMBER_WORD.findall(words)))
    if _DIGIT_NAME.search(text):
        yield _DIGIT_NAME.sub(lambda match: _DIGIT_NAMES[match[0].casefold()], text)


def _parse_number_words(words: Sequence[str]) -> int:
    """Return the number that English words name, such as "forty eight thousand and one"."""
    total = part = 0
    for word in words:
        if word == "hundred":
            part = (part or 1) * 100
        elif word in _POWERS:
            total += (part or 1) * _POWERS[word]
            part = 0
        else:
            part += _NUMBER_NAMES.get(word, 0)
    return total + part


def _decode_text(data: bytes) -> Iterator[str]:
    """Yield the text of bytes, if most bytes are printable. Compressed bytes are unpacked."""
    if data[:2] == b"\x1f\x8b" or data[:1] == b"\x78":
        with suppress(zlib.error):
            data = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data, _MAX_UNPACKED_BYTES)
    elif len(data) >= _MIN_CODE_CHARS and not data.isascii():
        with suppress(zlib.error):
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, _MAX_UNPACKED_BYTES) or data
    data = data.replace(b"\0", b"")
    text = data.decode("utf-8", "ignore")
    text = "".join(filter(str.isprintable, text))
    if len(data) >= 3 and len(text.encode()) >= _MIN_PRINTABLE * len(data):
        yield text


def list_turned_texts(text: str) -> tuple[str, ...]:
    """Return the text from right to left, in rot13, in rot47, and with its case swapped."""
    return text[::-1], codecs.encode(text, "rot13"), text.translate(_ROT47), text.swapcase()


_ROT47 = {33 + place: 33 + (place + 47) % 94 for place in range(94)}
Decoder = Callable[[str], Iterator[str]]
DECODERS: tuple[Decoder, ...] = (
    _decode_escapes,
    _decode_hexadecimal,
    _decode_base64,
    _decode_base32,
    _decode_base85,
    _decode_base45,
    _decode_long_numbers,
    _decode_character_codes,
    _decode_morse_and_number_names,
)
"""Decoders whose texts can hold a code again."""
