"""Sentences of Markdown and plain text, each verbatim, with the headings above it: what the
offline model is able to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from handoff_queue.shared.providers.offline.tables import (
    cells_of,
    delimiter_of,
    rows_of_file,
    table_lines,
    wording,
)

_ABBREVIATIONS = frozenset(
    {
        "e.g.",
        "i.e.",
        "etc.",
        "vs.",
        "cf.",
        "approx.",
        "dr.",
        "mr.",
        "mrs.",
        "ms.",
        "prof.",
        "no.",
        "fig.",
        "st.",
        "al.",
    }
)
CLOSING = "\"')]”’*_"
"""What may stand between a full stop and the end of its sentence."""
_BREAK = re.compile(rf"(?<=[.!?])[{re.escape(CLOSING)}]*(\s+)(?=\S)")
_FEWEST_WORDS, _MOST_WORDS = 4, 60
_MOST_TITLE_WORDS = 8
_LABELLED = re.compile(r"[^\W\d][\w ()/%-]{0,30}:\s+\S")
"""`Price: $499` says something, however short."""
_STAMPED = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]")
"""A line of a log."""
_MOST_LABELLED_WORDS = 12
_MARKED_UP = frozenset({"", ".md", ".markdown", ".mdx", ".txt", ".rst", ".html", ".htm"})
"""Suffixes of documents that may hold Markdown. Every other document is quoted as it stands."""
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_LINK = re.compile(r"(?<![\w\])])!?\[([^\[\]]+)\]\([^()\s]*\)")
_FOOTNOTE = re.compile(r"(?<=[.,;:!?)])\[\^?\d+\]|\s\[\^?\d+\](?=[\s.,;:]|$)|\[\^\d+\]")
_EMPHASIS = re.compile(
    r"(?<![\w*\\])(?P<stars>\*\*?)(?=[\w\"'“(`])(?P<strong>[^*]+?)(?<=[\w.!?)\"'”%`])(?P=stars)(?![\w*])"
    r"|(?<![\w\\])(?P<lines>__?)(?=\w)(?P<set>[^_]+ [^_]+?)(?<=\S)(?P=lines)(?!\w)"
)
"""Emphasis around whole words. `2**attempt`, `*args` and `__init__` are none."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence as it stands in a document, white space folded."""

    quote: str
    source: str
    title: str
    heading: str
    order: int
    said: str = ""
    """What a row of a table says in words: "Price: $499", "Ember: Price $499, Weight 1.9 kg";
    empty: what is quoted says it.
    """
    is_verbatim: bool = False
    """Whether the document holds no Markdown: the text of the sentence is the quote."""

    @property
    def text(self) -> str:
        """The sentence as plain text: without Markdown's emphasis, links and footnote marks."""
        text = self.said or self.quote
        return text if self.is_verbatim else _without_markdown(text)

    @property
    def standing_alone(self) -> str:
        """The text with its document's title in front when it leans on it: "Vespa: it is
        written in Java".
        """
        text = self.text
        if self.title.lower() in text.lower() or (
            self.heading and text.startswith(f"{self.heading}: ")
        ):
            return text
        leans = _LABELLED.match(text) or re.match(r"(?:It|Its)\b", text)
        if re.match(r"Its?\b", text):
            text = f"i{text[1:]}"
        return f"{self.title}: {text}" if leans else text


@lru_cache(maxsize=256)
def sentences_of(
    text: str, source: str, *, starts_whole: bool = True, ends_whole: bool = True
) -> tuple[Sentence, ...]:
    """Every whole sentence of running text, list items and rows of tables; not of headings and
    code. A cut edge loses its fragment.
    """
    if delimiter := delimiter_of(source, text):
        rows = rows_of_file(text, delimiter, starts_whole=starts_whole, ends_whole=ends_whole)
        return tuple(
            Sentence(quote, source, title_of(source), "", number, said, is_verbatim=True)
            for number, (quote, said) in enumerate(rows)
        )
    title = heading = ""
    is_verbatim = PurePosixPath(source).suffix.lower() not in _MARKED_UP and "://" not in source
    found: list[Sentence] = []
    blocks = list(_blocks(text))
    for number, (kind, block, said) in enumerate(blocks):
        is_title = (
            number == 0
            and starts_whole
            and kind == "text"
            and block[-1].isalnum()
            and len(block.split()) <= _MOST_TITLE_WORDS
        )
        if kind == "heading" or is_title:
            heading = block
            title = title or block
            continue
        pieces = [block] if said else split(block)
        if number == 0 and not starts_whole:
            pieces = pieces[1:]
        if number == len(blocks) - 1 and not ends_whole:
            pieces = [piece for piece in pieces if piece[-1] in ".!?"]
        found += [
            Sentence(
                piece,
                source,
                title or title_of(source),
                heading,
                len(found) + index,
                said,
                is_verbatim,
            )
            for index, piece in enumerate(pieces)
            if said or _is_statement(piece, kind)
        ]
    return tuple(found)


def title_of(source: str) -> str:
    """A readable name of a document that shows no title of its own: from its path."""
    stem = source.rstrip("/").rsplit("/", 1)[-1].rsplit(".", 1)[0]
    return re.sub(r"[-_]+", " ", stem) or source


def words_of(text: str) -> list[str]:
    """Lower-case words; a word may hold inner dots, pluses and hyphens (c++, write-ahead, 1.0)."""
    return re.findall(r"[a-z0-9]+(?:[.'’+#-]*[a-z0-9+#]+)*", text.lower())


def _blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """("heading" | "item" | "text" | "row", folded text, what a row says), without code and
    front matter.
    """
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^(```|~~~).*?(^\1\s*$|\Z)", "\n", text, flags=re.DOTALL | re.MULTILINE)
    kind, lines = "text", list[str]()
    all_lines = [*text.splitlines(), ""]
    rows = table_lines(all_lines)
    for number, line in enumerate(all_lines):
        stripped = line.strip()
        item, heading, underline = (
            _item_in(stripped),
            re.match(r"#{1,6}\s+(.+?)\s*#*$", stripped),
            re.fullmatch(r"[=-]{3,}", stripped),
        )
        is_row = number in rows
        if lines and (not stripped or item or heading or underline or is_row):
            yield (
                "heading" if underline and kind == "text" and len(lines) == 1 else kind,
                " ".join(" ".join(lines).split()),
                "",
            )
            kind, lines = "text", []
        if heading:
            yield "heading", heading.group(1), ""
        elif is_row:
            columns = rows[number]
            yield from () if columns is None else _row(stripped, columns)
        elif item:
            kind, lines = "item", [item]
        elif stripped and not re.fullmatch(r"[=*_-]{3,}", stripped):
            lines.append(stripped.removeprefix("> "))


def _item_in(line: str) -> str | None:
    """What a line says that begins something new without a blank line before it: a list's
    item, a labelled value, a line of a log.
    """
    item = re.match(r"(?:[-*+]|\d{1,2}[.)])\s+(.*)", line)
    if item:
        return item.group(1)
    is_labelled = (
        _LABELLED.match(line)
        and len(line.split()) <= _MOST_LABELLED_WORDS
        and line[-1] not in ".,;"
    )
    return line if is_labelled or _STAMPED.match(line) else None


def _row(line: str, columns: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield a row of a table that says something: one with two or more cells."""
    cells = cells_of(line)
    if any(cells[1:]):
        yield "row", " ".join(line.strip("|").split()), wording(cells, columns)


def _without_markdown(text: str) -> str:
    """Return a text without emphasis, links and footnote marks. Code between backticks stays."""
    parts, end = list[str](), 0
    for code in _CODE.finditer(text):
        parts += [_plain(text[end : code.start()]), code.group()]
        end = code.end()
    return "".join([*parts, _plain(text[end:])]).strip()


def _plain(text: str) -> str:
    text = _FOOTNOTE.sub("", _LINK.sub(r"\1", text))
    return _EMPHASIS.sub(lambda found: found["strong"] or found["set"], text)


def split(block: str) -> list[str]:
    """The sentences of a paragraph. Whoever drafts and whoever reviews must find the same ones."""
    pieces, start = [], 0
    for found in _BREAK.finditer(block):
        before = block[start : found.start(1)].strip()
        if _is_open(before):
            continue
        pieces.append(before)
        start = found.end()
    pieces.append(block[start:].strip())
    return [piece for piece in pieces if piece]


def _is_open(before: str) -> bool:
    """Whether the full stop belongs to an abbreviation, a number or an initial. "It is written
    in C." ends; "Donald E." does not.
    """
    *others, last = before.split(" ")
    plain = last.lower().lstrip("(")
    is_initial = re.fullmatch(r"\(?[A-Z]\.", last) is not None and (
        not others or others[-1].lstrip("(")[:1].isupper()
    )
    return plain in _ABBREVIATIONS or is_initial or re.fullmatch(r"\d{1,2}\.", before) is not None


def _is_statement(piece: str, kind: str) -> bool:
    count = len(piece.split())
    if _LABELLED.match(piece) and 2 <= count <= _MOST_LABELLED_WORDS:
        return piece[-1] not in ":?,;"
    ended = piece.rstrip(CLOSING)[-1:] in (".", "!") or (
        kind == "item" and piece[-1:] not in ":?,;"
    )
    return ended and _FEWEST_WORDS <= count <= _MOST_WORDS
