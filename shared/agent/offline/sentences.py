"""Sentences of Markdown and plain text, each verbatim, with the headings above it: what the offline model is able to say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_ABBREVIATIONS = frozenset(
    {"e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.", "dr.", "mr.", "mrs.", "ms.", "prof.", "no.", "fig.", "st.", "al."}
)
CLOSING = "\"')]”’*_"
"""What may stand between a full stop and the end of its sentence."""
_BREAK = re.compile(rf"(?<=[.!?])[{re.escape(CLOSING)}]*(\s+)(?=\S)")
_FEWEST_WORDS, _MOST_WORDS = 4, 60


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence as it stands in a document, white space folded."""

    quote: str
    source: str
    title: str
    heading: str
    order: int

    @property
    def text(self) -> str:
        """The sentence as plain text: without Markdown's emphasis, links and footnote marks."""
        plain = re.sub(r"!?\[([^\]]+)\]\([^)]*\)", r"\1", self.quote)
        plain = re.sub(r"\s*\[\^?\d+\]", "", plain)
        return re.sub(r"\*\*|__|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)", "", plain).strip()

    @property
    def standing_alone(self) -> str:
        """The text with its document's title in front when it leans on it: "Vespa: it is written in Java"."""
        text = self.text
        leans = re.match(r"(?:It|Its)\b", text) and self.title.lower() not in text.lower()
        return f"{self.title}: {text[:1].lower()}{text[1:]}" if leans else text


@lru_cache(maxsize=256)
def sentences_of(text: str, source: str, *, starts_whole: bool = True, ends_whole: bool = True) -> tuple[Sentence, ...]:
    """Every whole sentence of running text and list items; not of headings, tables and code. A cut edge loses its fragment."""
    title = heading = ""
    found: list[Sentence] = []
    blocks = list(_blocks(text))
    for number, (kind, block) in enumerate(blocks):
        if kind == "heading":
            heading = block
            title = title or block
            continue
        pieces = split(block)
        if number == 0 and not starts_whole:
            pieces = pieces[1:]
        if number == len(blocks) - 1 and not ends_whole:
            pieces = [piece for piece in pieces if piece[-1] in ".!?"]
        found += [
            Sentence(piece, source, title or title_of(source), heading, len(found) + index)
            for index, piece in enumerate(pieces)
            if _is_statement(piece, kind)
        ]
    return tuple(found)


def title_of(source: str) -> str:
    """A readable name of a document that shows no title of its own: from its path."""
    stem = source.rstrip("/").rsplit("/", 1)[-1].rsplit(".", 1)[0]
    return re.sub(r"[-_]+", " ", stem) or source


def words_of(text: str) -> list[str]:
    """Lower-case words; a word may hold inner dots, pluses and hyphens (c++, write-ahead, 1.0)."""
    return re.findall(r"[a-z0-9]+(?:[.'’+#-]*[a-z0-9+#]+)*", text.lower())


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """("heading" | "item" | "text", folded text), without code, tables and front matter."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^(```|~~~).*?(^\1\s*$|\Z)", "\n", text, flags=re.DOTALL | re.MULTILINE)
    kind, lines = "text", list[str]()
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        starts_item = re.match(r"(?:[-*+]|\d{1,2}[.)])\s+(.*)", stripped)
        heading = re.match(r"#{1,6}\s+(.+?)\s*#*$", stripped)
        if lines and (not stripped or starts_item or heading or stripped.startswith("|")):
            yield kind, " ".join(" ".join(lines).split())
            kind, lines = "text", []
        if heading:
            yield "heading", heading.group(1)
        elif starts_item:
            kind, lines = "item", [starts_item.group(1)]
        elif stripped and not stripped.startswith("|") and not re.fullmatch(r"[=*_-]{3,}", stripped):
            lines.append(stripped.removeprefix("> "))


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
    """Whether the full stop belongs to an abbreviation, a number or an initial. "It is written in C." ends; "Donald E." does not."""
    *others, last = before.split(" ")
    plain = last.lower().lstrip("(")
    is_initial = re.fullmatch(r"\(?[A-Z]\.", last) is not None and (not others or others[-1].lstrip("(")[:1].isupper())
    return plain in _ABBREVIATIONS or is_initial or re.fullmatch(r"\d{1,2}\.", before) is not None


def _is_statement(piece: str, kind: str) -> bool:
    count = len(piece.split())
    ended = piece.rstrip(CLOSING)[-1:] in (".", "!") or (kind == "item" and piece[-1:] not in ":?,;")
    return ended and _FEWEST_WORDS <= count <= _MOST_WORDS
