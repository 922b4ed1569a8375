"""Media types of documents by file name, and the text of a document's bytes. An error refuses
a document with a reason, and has advice about files that are not text.
"""

from __future__ import annotations

import codecs
import mimetypes
import re
from pathlib import PurePosixPath

from handoff_queue.shared.types.errors import HandoffError


class DocumentRefused(HandoffError):
    """A file cannot be read. The message follows the name of the file: it has the fault and,
    where possible, how to fix it.
    """


_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks and their encodings. UTF-32 comes before UTF-16, because its little-endian
mark begins with the mark of UTF-16.
"""
_CONTROLS = dict.fromkeys([*range(9), 11, *range(14, 27), 28, 29, 30, 31, 127])
"""Control characters that are removed: DEL and C0 without tab, line feed, form feed, return
and escape (which terminal logs contain).
"""
_MAX_CONTROLS = 0.005
"""Largest share of control characters in a text. One control character is always accepted."""
_MAX_HIGH_BYTES = 0.3
"""Largest share of bytes above 127 in Western European text without UTF-8. A text with more
uses another alphabet, which Latin-1 would garble.
"""


_SURROGATE = re.compile("[\ud800-\udfff]")
_C1_CONTROL = re.compile("[\x80-\x9f]")
"""Control characters of Latin-1. In Windows-1252 their bytes are printable characters."""


def decode(data: bytes, charset: str | None = None) -> str:
    """Decode bytes to text with `\\n` line ends, no byte order mark and no control characters.

    Args:
        charset: encoding that the sender declares. It is used if the bytes are valid in it and
            are not UTF-8.

    Raises:
        DocumentRefused: the bytes are binary, or their encoding is unknown.
    """
    return normalize_text(_decode_text(data, charset))


def normalize_text(text: str) -> str:
    """Return the text with `\\n` line ends, and without control characters and lone
    surrogates, which cannot be stored, shown or quoted.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)
    if _SURROGATE.search(text):
        return text.encode("utf-8", "replace").decode()
    return text


def _decode_text(data: bytes, charset: str | None) -> str:
    """Return the text of bytes in the first encoding that fits.

    The order is: the encoding of the byte order mark, UTF-8, `charset`, Latin-1, Windows-1252.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return _decode_strictly(data, encoding)
    if b"\0" in data:
        raise DocumentRefused("is binary, not text")
    for encoding in ("utf-8", charset or "utf-8"):
        try:
            return _refuse_binary_text(data.decode(encoding))
        except (UnicodeDecodeError, LookupError):
            continue
    high = 0
    for byte in data:
        high += byte >= 0x80
    if high > _MAX_HIGH_BYTES * len(data):
        raise DocumentRefused("is binary, or text in an unknown encoding: save it as UTF-8")
    text = _refuse_binary_text(data.decode("latin-1"))
    if _C1_CONTROL.search(text):
        try:
            return data.decode("cp1252")
        except UnicodeDecodeError:
            raise DocumentRefused(
                "is binary, or text in an unknown encoding: save it as UTF-8"
            ) from None
    return text


def _decode_strictly(data: bytes, encoding: str) -> str:
    """Return the text of bytes in the encoding of their byte order mark, or refuse them."""
    try:
        return _refuse_binary_text(data.decode(encoding).removeprefix("\ufeff"))
    except UnicodeDecodeError:
        raise DocumentRefused(
            f"begins like {encoding.removesuffix('-sig').upper()} text but is not: save it as UTF-8"
        ) from None


def _refuse_binary_text(text: str) -> str:
    """Return the text, or refuse it if it has more than a few control characters."""
    if len(text) - len(text.translate(_CONTROLS)) > max(1, _MAX_CONTROLS * len(text)):
        raise DocumentRefused("is binary, not text")
    return text


HTML = "text/html"
PDF = "application/pdf"
PLAIN = "text/plain"

_BY_SUFFIX = {
    ".md": "text/markdown", ".markdown": "text/markdown", ".mdx": "text/markdown",
    ".rst": "text/x-rst", ".adoc": "text/asciidoc",
    ".txt": PLAIN, ".log": PLAIN, ".html": HTML, ".htm": HTML, ".xhtml": HTML, ".pdf": PDF,
    ".csv": "text/csv", ".tsv": "text/tab-separated-values", ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml",
    ".xml": "application/xml",
    ".py": "text/x-python", ".js": "text/javascript", ".ts": "text/x-typescript",
    ".tsx": "text/x-typescript", ".go": "text/x-go",
    ".rs": "text/x-rust", ".java": "text/x-java", ".c": "text/x-c", ".h": "text/x-c",
    ".cpp": "text/x-c++", ".sql": "text/x-sql",
    ".sh": "text/x-shellscript", ".rb": "text/x-ruby", ".kt": "text/x-kotlin",
    ".swift": "text/x-swift", ".tex": "text/x-tex",
}  # fmt: skip
"""Media types by suffix. The host's table (`mimetypes`) is used only for other suffixes: it
calls .ts a video, and differs between machines.
"""

_OFFICE = frozenset(
    {
        ".doc",
        ".docx",
        ".odt",
        ".rtf",
        ".ppt",
        ".pptx",
        ".odp",
        ".xls",
        ".xlsx",
        ".ods",
        ".pages",
        ".key",
        ".numbers",
        ".epub",
    }
)
_TEXT_TYPES = frozenset(
    {
        "application/json",
        "application/xml",
        "application/yaml",
        "application/toml",
        "application/jsonl",
        "application/javascript",
    }
)
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml")


def get_media_type(name: str) -> str:
    """Return the media type for the suffix of a file name. An unknown suffix counts as plain
    text; decoding refuses a binary file later.
    """
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    guessed_type = None
    if suffix:
        guessed_type = mimetypes.guess_type("file" + suffix)[0]
    if guessed_type is not None and is_text(guessed_type):
        return guessed_type
    return PLAIN


def is_text(media_type: str) -> bool:
    """Return whether decoded bytes of this type are text."""
    return (
        media_type.startswith("text/")
        or media_type in _TEXT_TYPES
        or media_type.endswith(_TEXT_SUFFIXES)
    )


def is_html(media_type: str) -> bool:
    return media_type in (HTML, "application/xhtml+xml")


def advise_on_binary(name: str) -> str:
    """Return advice for a user about a file that is not text."""
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in _OFFICE:
        return "save it as PDF, Markdown or plain text"
    kind = None
    if suffix:
        kind = mimetypes.guess_type("file" + suffix)[0]
    if kind is not None and kind.startswith(("image/", "audio/", "video/")):
        return f"{kind.split('/', maxsplit=1)[0]} files cannot be read: move it out"
    return "move it out, or save it as text"
