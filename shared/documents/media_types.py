"""Media types of documents by file name, and advice about files that are not text."""

from __future__ import annotations

import mimetypes
from pathlib import PurePosixPath

HTML = "text/html"
PDF = "application/pdf"
PLAIN = "text/plain"

_BY_SUFFIX = {
    ".md": "text/markdown", ".markdown": "text/markdown", ".mdx": "text/markdown", ".rst": "text/x-rst", ".adoc": "text/asciidoc",
    ".txt": PLAIN, ".log": PLAIN, ".html": HTML, ".htm": HTML, ".xhtml": HTML, ".pdf": PDF,
    ".csv": "text/csv", ".tsv": "text/tab-separated-values", ".json": "application/json", ".jsonl": "application/jsonl",
    ".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml", ".xml": "application/xml",
    ".py": "text/x-python", ".js": "text/javascript", ".ts": "text/x-typescript", ".tsx": "text/x-typescript", ".go": "text/x-go",
    ".rs": "text/x-rust", ".java": "text/x-java", ".c": "text/x-c", ".h": "text/x-c", ".cpp": "text/x-c++", ".sql": "text/x-sql",
    ".sh": "text/x-shellscript", ".rb": "text/x-ruby", ".kt": "text/x-kotlin", ".swift": "text/x-swift", ".tex": "text/x-tex",
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


def media_type_of(name: str) -> str:
    """Return the media type for the suffix of a file name. An unknown suffix counts as plain
    text; decoding refuses a binary file later.
    """
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    guessed = None
    if suffix:
        guessed = mimetypes.guess_type("file" + suffix)[0]
    if guessed is not None and is_text(guessed):
        return guessed
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


def what_to_do_with_binary(name: str) -> str:
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
