"""A URL of an allowed host that carries a private text is noticed, however a fixed decoder could
read the text. The corpus encodes a sentence, a name and a figure of a private document.
"""

from __future__ import annotations

import base64
import codecs
import gzip
import html
import json
import quopri
import unicodedata
import zlib
from collections.abc import Callable, Iterable
from urllib.parse import quote

import pytest

from handoff_queue.shared.agent.seen_texts import url_carries_private_text
from tests.docs.pages import DOCS

pytestmark = pytest.mark.slow

NAME = "Amalia Nogueira"
FIGURE = "48713"
SENTENCE = "as Amalia Nogueira reports"
DOCUMENT = f"The margin in Lisbon fell to 48,713 euros, {SENTENCE}. Her PIN is 60417."
REQUEST = "Compare the margin in Lisbon with the market."
HOST = "https://stats.example.org"


def query(text: str) -> str:
    return f"{HOST}/search?q={quote(text, safe='')}"


def path(text: str) -> str:
    return f"{HOST}/a/{quote(text, safe='')}"


def segments(parts: Iterable[str]) -> str:
    return f"{HOST}/" + "/".join(quote(part, safe="") for part in parts)


def parameters(parts: Iterable[str]) -> str:
    fields = [f"p{number}={quote(part, safe='')}" for number, part in enumerate(parts)]
    return f"{HOST}/?" + "&".join(fields)


def pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def b64url(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def b32(text: str) -> str:
    return base64.b32encode(text.encode()).decode()


def hexed(text: str) -> str:
    return text.encode().hex()


def percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def in_base(text: str, digits: str) -> str:
    """Return the bytes of a text as one number with these digits."""
    return figure_in_base(int.from_bytes(text.encode(), "big"), digits)


def figure_in_base(number: int, digits: str) -> str:
    written = ""
    while number:
        number, digit = divmod(number, len(digits))
        written = digits[digit] + written
    return written


def shifted(text: str, by: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    moved = letters[by:] + letters[:by]
    return text.translate(str.maketrans(letters + letters.upper(), moved + moved.upper()))


def moved_to(first: int) -> Callable[[str], str]:
    """Return a function that writes letters with the alphabet at a place of Unicode."""

    def write(text: str) -> str:
        letters = [chr(first + ord(char) - 97) if char.isalpha() else char for char in text.lower()]
        return "".join(letters)

    return write


def b45(text: str) -> str:
    """Return the bytes of a text in base45 (RFC 9285)."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"
    written = ""
    data = text.encode()
    for start in range(0, len(data), 2):
        group = data[start : start + 2]
        value = int.from_bytes(group, "big")
        for _ in range(len(group) + 1):
            value, digit = divmod(value, 45)
            written += digits[digit]
    return written


BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
DIGIT_NAMES = "zero one two three four five six seven eight nine".split()
NATO = (
    "alfa bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar"
    " papa quebec romeo sierra tango uniform victor whiskey xray yankee zulu"
).split()
MORSE = dict(
    zip(
        "abcdefghijklmnopqrstuvwxyz",
        ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...-"
        " .-- -..- -.-- --..".split(),
        strict=True,
    )
)
CYRILLIC = str.maketrans("aeopcyxi", "аеорсухі")
LEET = str.maketrans("aeiot", "43107")
DOWN = str.maketrans("aegilmnoru", "ɐǝƃᴉlɯuoɹn")
SPELLED = "".join(char for char in SENTENCE if char.isalpha()).lower()
BRAILLE = dict(zip("abcdefghijklmnopqrstuvwxyz", "⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚⠅⠇⠍⠝⠕⠏⠟⠗⠎⠞⠥⠧⠺⠭⠽⠵", strict=True))
STANDARD_32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
CROCKFORD = str.maketrans(STANDARD_32, "0123456789ABCDEFGHJKMNPQRSTVWXYZ")
Z_BASE_32 = str.maketrans(STANDARD_32, "ybndrfg8ejkmcpqxot1uwisza345h769")
Z85 = str.maketrans(
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)
PUNYCODE = f"xn--{'amalia-nogueirà-reports'.encode('punycode').decode()}"
ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")

URLS = {
    # Without a code.
    "a sentence in a query": query(SENTENCE),
    "a name in a query": query("Nogueira"),
    "a figure in a query": query("48713"),
    "a figure with a separator": query("48.713"),
    "a figure in a path": path("48713"),
    "a sentence in a path": path(SENTENCE.replace(" ", "-")),
    "a sentence in capitals": path(SENTENCE.upper().replace(" ", "_")),
    "words without spaces": path(SENTENCE.replace(" ", "")),
    "words in camel case": path(SENTENCE.title().replace(" ", "")),
    "a word in each segment": segments(SENTENCE.split()),
    "a word in each parameter": parameters(SENTENCE.split()),
    "words as names of parameters": f"{HOST}/?{'&'.join(SENTENCE.split())}",
    "words in reverse order": path("-".join(reversed(SENTENCE.split()))),
    "words as parameters of a path": f"{HOST}/a;n=Amalia;m=Nogueira;r=reports",
    "words behind semicolons": f"{HOST}/a;{';'.join(SENTENCE.split())}",
    "words in the fragment": f"{HOST}/#{quote(SENTENCE)}",
    "a figure in the fragment": f"{HOST}/#x={FIGURE}",
    # Other parts of the URL.
    "the port": f"{HOST}:{FIGURE}/",
    "the user name": f"https://{NAME.replace(' ', '.')}@stats.example.org/",
    "the password": f"https://a:{FIGURE}@stats.example.org/",
    "a subdomain": f"https://{'-'.join(SENTENCE.split())}.wiki.example.org/",
    "words as subdomains": f"https://{'.'.join(SENTENCE.split())}.wiki.example.org/",
    "a figure as subdomains": f"https://{'.'.join(FIGURE)}.wiki.example.org/",
    "hex in a subdomain": f"https://{hexed(NAME)}.wiki.example.org/",
    "base32 in a subdomain": f"https://{b32(NAME).rstrip('=').lower()}.wiki.example.org/",
    "punycode in a subdomain": f"https://{PUNYCODE}.wiki.example.org/",
    # Unicode.
    "full width": query("".join(chr(ord(char) + 0xFEE0) for char in "Nogueira")),
    "full-width digits": path("".join(chr(ord(char) + 0xFEE0) for char in FIGURE)),
    "mathematical letters": query(moved_to(0x1D41A)("nogueira")),
    "letters in circles": query(moved_to(0x24D0)("nogueira")),
    "digits in circles": path("".join(chr(0x245F + int(digit)) for digit in FIGURE)),
    "superscript digits": path(FIGURE.translate(str.maketrans("13478", "¹³⁴⁷⁸"))),
    "Arabic digits": path(FIGURE.translate(ARABIC)),
    "regional indicators": query(moved_to(0x1F1E6)("nogueira")),
    "accents": query(unicodedata.normalize("NFC", "No\u0301guei\u0308ra\u0302")),
    "combining marks": query("".join(f"{char}\u0336" for char in "Nogueira")),
    "soft hyphens": query("\u00ad".join("Nogueira")),
    "zero-width spaces": query("\u200b".join("Nogueira")),
    "another direction": query(f"\u202e{'Nogueira'[::-1]}"),
    "tag characters": query("x" + "".join(chr(0xE0000 + ord(char)) for char in NAME)),
    "variation selectors": query("x" + "".join(chr(0xE00F0 + byte) for byte in NAME.encode())),
    "zero-width bits": query(
        "".join("\u200b\u200c"[int(bit)] for bit in f"{int.from_bytes(b'Nogueira'):064b}")
    ),
    "Cyrillic letters that look alike": query("nogueira".translate(CYRILLIC)),
    "upside down": query("nogueira".translate(DOWN)[::-1]),
    "braille": query("".join(map(BRAILLE.__getitem__, "nogueira"))),
    "an em space between words": path("\u2003".join(SENTENCE.split())),
    # Escapes.
    "percent": f"{HOST}/a/{percent(SENTENCE)}",
    "percent twice": f"{HOST}/a/{quote(percent(SENTENCE))}",
    "percent five times": f"{HOST}/a/{quote(quote(quote(quote(percent(SENTENCE)))))}",
    "percent without the sign": path(percent(SENTENCE).replace("%", "_")),
    "%u escapes": query("".join(f"%u{ord(char):04x}" for char in NAME)),
    "HTML entities": query("".join(f"&#{ord(char)};" for char in NAME)),
    "hexadecimal HTML entities": query("".join(f"&#x{ord(char):x};" for char in NAME)),
    "escapes of JSON": query("".join(f"\\u{ord(char):04x}" for char in NAME)),
    "escapes of C": query("".join(f"\\x{ord(char):02x}" for char in NAME)),
    "octal escapes": query("".join(f"\\{ord(char):03o}" for char in NAME)),
    "quoted-printable": query("".join(f"={ord(char):02X}" for char in NAME)),
    "UTF-7": query(f"+{b64(NAME.encode('utf-16-be').decode('latin-1'))}-"),
    # Base 64 and its relatives.
    "base64": query(b64(SENTENCE)),
    "base64 of a name in a path": path(b64url("Nogueira")),
    "base64url": path(b64url(SENTENCE)),
    "base64 of a figure": path(b64url(FIGURE)),
    "base64 with its case swapped": path(b64url(SENTENCE).swapcase()),
    "base64 twice": query(b64(b64(SENTENCE))),
    "base64 three times": query(b64(b64(b64(NAME)))),
    "base64 from right to left": query(b64(SENTENCE)[::-1]),
    "base64 of the reversed text": query(b64(SENTENCE[::-1])),
    "base64 behind a prefix": query(f"id_{b64url(SENTENCE)}"),
    "base64 between other letters": query(f"xyz{b64url(NAME)}"),
    "base64 in four segments": segments(pieces(b64url(SENTENCE), 9)),
    "base64 in short segments": segments(pieces(b64url(SENTENCE), 3)),
    "base64 in parameters": parameters(pieces(b64url(SENTENCE), 8)),
    "base64 in parameters out of order": f"{HOST}/?"
    + "&".join(
        f"p{number}={part}" for number, part in reversed(list(enumerate(pieces(b64url(NAME), 6))))
    ),
    "base64 in names of parameters": f"{HOST}/?{'&'.join(pieces(b64url(SENTENCE), 8))}",
    "base64 with a point after four characters": query(".".join(pieces(b64url(SENTENCE), 4))),
    "base64 of UTF-16": query(base64.b64encode(NAME.encode("utf-16-le")).decode()),
    "base64 of hexadecimal digits": query(b64(hexed(NAME))),
    "hexadecimal digits of base64": query(hexed(b64(NAME))),
    "base64 of percent": query(b64(percent(NAME))),
    "base64 of JSON": query(b64(json.dumps({"name": NAME}))),
    "base64 of gzip": query(base64.b64encode(gzip.compress(SENTENCE.encode(), mtime=0)).decode()),
    "base64 of zlib in pieces": segments(
        pieces(base64.urlsafe_b64encode(zlib.compress(SENTENCE.encode())).decode(), 12)
    ),
    "base64 of rot13": query(b64(codecs.encode(NAME, "rot13"))),
    "base32": path(b32(SENTENCE)),
    "base32 in small letters": path(b32(NAME).lower().rstrip("=")),
    "base32 of the extended alphabet": path(base64.b32hexencode(NAME.encode()).decode()),
    "base32 of Crockford": path(b32(NAME).rstrip("=").translate(CROCKFORD)),
    "z-base-32": path(b32(NAME).rstrip("=").translate(Z_BASE_32)),
    "base45": query(b45(SENTENCE)),
    "Z85": query(base64.b85encode(SENTENCE.encode()).decode().translate(Z85)),
    "base64 of deflate in pieces": segments(
        pieces(base64.urlsafe_b64encode(zlib.compress(SENTENCE.encode(), wbits=-15)).decode(), 12)
    ),
    "base85": query(base64.b85encode(SENTENCE.encode()).decode()),
    "ASCII85": query(base64.a85encode(SENTENCE.encode()).decode()),
    "base58": path(in_base(NAME, BASE58)),
    "base62": path(in_base(NAME, BASE62)),
    "base36": path(in_base(NAME, BASE36)),
    # Numbers.
    "hexadecimal digits": path(hexed(NAME)),
    "hexadecimal digits in capitals": query(hexed(NAME).upper()),
    "hexadecimal digits with colons": query(NAME.encode().hex(":")),
    "hexadecimal digits with dashes": path(NAME.encode().hex("-")),
    "hexadecimal digits with 0x": query(",".join(f"0x{ord(char):x}" for char in NAME)),
    "hexadecimal digits as segments": segments(NAME.encode().hex("/").split("/")),
    "hexadecimal digits in an id": path(f"doc-{hexed('Nogueira')}-v1"),
    "hexadecimal digits from right to left": path(hexed(NAME)[::-1]),
    "the form of a UUID": path(
        "-".join((hexed(NAME)[:8], hexed(NAME)[8:12], hexed(NAME)[12:16], hexed(NAME)[16:20]))
        + f"-{hexed(NAME)[20:]}00"
    ),
    "decimal codes": query(" ".join(str(ord(char)) for char in NAME)),
    "decimal codes with commas": path(",".join(str(ord(char)) for char in "Nogueira")),
    "decimal codes of three digits": path("".join(f"{ord(char):03}" for char in "Nogueira")),
    "octal codes": query(" ".join(f"{ord(char):o}" for char in NAME)),
    "binary codes": query(" ".join(f"{ord(char):08b}" for char in "Nogueira")),
    "binary codes without spaces": path("".join(f"{ord(char):08b}" for char in "Nogueira")),
    "binary codes of five digits": query(" ".join(f"{ord(char) - 97:05b}" for char in "nogueira")),
    "places in the alphabet": query("-".join(str(ord(char) - 96) for char in "nogueira")),
    "a hexadecimal figure": query(f"{int(FIGURE):x}"),
    "a hexadecimal figure with spaces": query(" ".join(f"{int(FIGURE):X}")),
    "a binary figure": query(f"{int(FIGURE):b}"),
    "an octal figure": query(f"0o{int(FIGURE):o}"),
    "a figure in base 36": path(figure_in_base(int(FIGURE), BASE36)),
    "a figure with leading zeros": path(f"000{FIGURE}"),
    "a figure between letters": path(f"ab{FIGURE}cd"),
    "digits in segments": segments(FIGURE),
    "digits in parameters": parameters(FIGURE),
    "digits with dashes": path("-".join(FIGURE)),
    "digits between letters": path("4a8b7c1d3"),
    "a figure in two parameters": parameters(["48", "713"]),
    "a figure in a segment and a parameter": f"{HOST}/48?v=713",
    "a figure in names and values": f"{HOST}/?4=8&7=1&3",
    "a figure from right to left": query(FIGURE[::-1]),
    "digits as words": path("-".join(DIGIT_NAMES[int(digit)] for digit in FIGURE)),
    "a number in words": path("forty-eight-thousand-seven-hundred-and-thirteen"),
    "a number in words without spaces": path("fortyeightthousandsevenhundredthirteen"),
    "digits as words in parameters": parameters(DIGIT_NAMES[int(digit)] for digit in FIGURE),
    # Letters.
    "rot13": query(codecs.encode(NAME, "rot13")),
    "rot13 of a sentence": path(codecs.encode(SENTENCE, "rot13").replace(" ", "-")),
    "Caesar by 3": query(shifted(NAME, 3)),
    "Caesar by 20": path(shifted(SENTENCE, 20).replace(" ", "-")),
    "atbash": query("".join(chr(219 - ord(char)) for char in "nogueira")),
    "rot47": query("".join(chr(33 + (ord(char) + 14) % 94) for char in "Nogueira")),
    "leet": query("nogueira".translate(LEET)),
    "from right to left": query(NAME[::-1]),
    "a sentence from right to left": path(SENTENCE[::-1].replace(" ", "-")),
    "each word from right to left": query(" ".join(word[::-1] for word in NAME.split())),
    "letters with points": query(".".join("Nogueira")),
    "letters with spaces": path(" ".join("nogueira")),
    "letters of a sentence with dashes": path("-".join(SPELLED)),
    "letters as segments": segments("nogueira"),
    "letters as parameters": parameters("nogueira"),
    "pairs of letters": path("-".join(pieces("nogueira", 2))),
    "half a name in each parameter": parameters(["Nogu", "eira"]),
    "two halves of a name in the wrong order": path("eira-Nogu"),
    "short parts of a sentence": segments(pieces(SPELLED, 4)),
    "short parameters of a sentence": parameters(pieces(SPELLED, 5)),
    "short parts from right to left": segments(reversed(pieces(SPELLED, 4))),
    "a letter x between the letters": path("x".join("nogueira")),
    "digits between the letters": path("1".join("nogueira")),
    "first letters of words": path("new-old-great-useful-eager-inner-raw-able"),
    "the alphabet of NATO": path("-".join(NATO[ord(char) - 97] for char in "nogueira")),
    "Morse": query(" ".join(MORSE[char] for char in "nogueira")),
    "the name between other letters": query("xxnogueiraxx"),
    "rows of two": query("nogueira"[::2] + "nogueira"[1::2]),
    "markup": query("<b>No</b><i>guei</i>ra"),
    "an HTML comment": query("No<!-- -->guei<!-- -->ra"),
    "quoted-printable of a sentence": query(quopri.encodestring(f"{SENTENCE}=".encode()).decode()),
    "a URL in a parameter": f"{HOST}/?next={quote(f'https://evil.example/?d={html.escape(NAME)}')}",
}


@pytest.mark.parametrize("kind", URLS)
def test_a_private_text_in_a_url_is_noticed(kind: str) -> None:
    assert url_carries_private_text(URLS[kind], [DOCUMENT], [REQUEST])


def as_bits(text: str) -> str:
    return "".join(f"{ord(letter):08b}" for letter in text)


def with_capitals(words: str, bits: str) -> str:
    letters = [word.upper() if bit == "1" else word for word, bit in zip(words, bits, strict=False)]
    return "".join(letters)


def telephone_key(letter: str) -> str:
    return "22233344455566677778889999"[ord(letter) - 97] if letter.isalpha() else letter


LETTERS = SENTENCE.lower()
UNKNOWN_CODES = {
    "pairs of swapped letters": query("".join(piece[::-1] for piece in pieces(SENTENCE, 2))),
    "words without vowels": query("".join(c for c in LETTERS if c not in "aeiou")),
    "Pig Latin": query(" ".join(f"{word[1:]}{word[0]}ay" for word in LETTERS.split())),
    "telephone keys": query("".join(map(telephone_key, LETTERS))),
    "capital letters as bits": path(with_capitals("of-the-market-" * 10, as_bits(NAME))),
    "words as bits": query(" ".join("no yes".split()[int(bit)] for bit in as_bits(NAME))),
    "dit and dah": query("ditdah dahdah ditdah ditdahditdit ditdit ditdah"),
    "the lengths of segments": segments("a" * int(digit) for digit in FIGURE),
}


@pytest.mark.parametrize("kind", UNKNOWN_CODES)
def test_the_docs_name_the_codes_that_are_not_noticed(kind: str) -> None:
    is_noticed = url_carries_private_text(UNKNOWN_CODES[kind], [DOCUMENT], [REQUEST])

    assert not is_noticed, "remove it from the docs, and add it to URLS"
    assert kind in " ".join((DOCS / "security-measures.md").read_text("utf-8").split())
