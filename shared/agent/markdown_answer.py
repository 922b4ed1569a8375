"""Reads and writes a Markdown answer: the text, and the block of notes at its end. Pure.

    The station has three pumps. [c1]

    <notes>
    status: partial
    problem: No document names their age.
    [c1] elm_pumps.md: "Three pumps of 45 kW each were installed."
    </notes>

All lines of the block are optional. A note is `[c1] SOURCE: "QUOTE"`. Without a source, or with the
source `same`, it has the source of the note before. The parts of a claim come before the source:
`[c1] SUBJECT | ATTRIBUTE | VALUE | UNIT | DATE | SOURCE: "QUOTE"`. A second source is a second
note with the same mark. A note without a quote has the parts of the claim, or its text.

The parser accepts small deviations. A block may have no end, or a code fence around it. Notes may
have list dashes, marks such as `[1]` and `[^c1]`, typographic quotation marks, and quotes over
several lines. A place such as `(page 3)` may follow a quote. An answer that only states a status
and its reason needs no tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from handoff_queue.shared.agent.claim_markers import find_sentences_by_claim
from handoff_queue.shared.types.citation_markers import split_claim_ids

PARTS = ("subject", "attribute", "value", "unit", "date")
"""Parts of a claim that states a value, in the order of a note."""
SAME_SOURCE = "same"
"""In a note: the source of the note before it."""
FIELDS = ("status", "problem", "needs", "confidence")
"""Fields of the answer envelope that the notes may have, in their usual order."""
_ONE_LINE = ("status", "confidence")
"""Fields whose value is one word or one number."""
_OPENING = re.compile(r"^[ \t]*<notes>", re.MULTILINE | re.IGNORECASE)
_CLOSING = re.compile(r"</notes>", re.IGNORECASE)
_BEHIND_BLOCK = " \t\n`~"
"""Characters that may follow the block."""
_OPEN_FENCE = re.compile(r"(?:\A|\n)[ \t]*(?:```|~~~)[a-zA-Z]*\s*\Z")
_CLOSE_FENCE = re.compile(r"\n[ \t]*```\s*\Z")
_MARKDOWN_FENCE = re.compile(r"\A\s*```(?:markdown|md)[ \t]*\n", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*```", re.MULTILINE)
_ID = r"(?:[a-z][a-z0-9_-]{0,47}\.)?c?[0-9]{1,4}"
_NOTE = re.compile(
    rf"\s*(?:[-*+•]\s+)?[*_`]*\[\^?({_ID}(?:\s*[,;]\s*{_ID})*)\][*_`]*:?(?:\s+(.*))?$"
)
_FIELD = re.compile(
    r"\s*(?:[-*+•]\s+)?[*_`]*(status|problem|needs|confidence)[*_`]*\s*:[*_`]*\s*(.*)$",
    re.IGNORECASE,
)
_MARKS = '"“”„‟«»「」『』'
"""Quotation marks. Some languages begin a quote with the mark that ends it in others."""
_CITED = re.compile(rf"([^\n{_MARKS}]*)(?<=[:：])\s*[{_MARKS}](.*)\Z", re.DOTALL)
"""A source and its quote."""
_QUOTE_ALONE = re.compile(rf"((?:[^\n|{_MARKS}]*+\|)*+)\s*+[{_MARKS}](.*)\Z", re.DOTALL)
"""The parts of a claim, and a quote without a source."""
_QUOTE_END = re.compile(rf"[{_MARKS}]\s*+(?:\([^(){_MARKS}\n]*+\)\s*+)?[.,;。]?\s*+\Z")
"""The end of a quote. A place in brackets may follow, such as `(page 3)`."""
_SIGN_OF_SOURCE = re.compile(r"[./#]")
"""A path, a URL and the name of a tool's result have one of these characters."""
_AROUND_SOURCE = " \t\n`*_<>'"
_BARE_MARKS = re.compile(r"(?<![A-Za-z0-9_\])\[])(?:\[\^?[0-9]{1,4}\])++(?![(\[:])")
"""Marks such as `[1][2]`, and no index or link. Chinese has no space before a mark."""
_BARE_MARK = re.compile(r"\[\^?([0-9]{1,4})\]")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NotedAnswer:
    """An answer whose notes were read."""

    text: str
    """The Markdown without the block of notes."""
    fields: dict[str, str] = field(default_factory=dict)
    """Values of `status`, `problem`, `needs` and `confidence`, as far as the notes have them."""
    claims: list[dict[str, Any]] = field(default_factory=list)
    """Claims in the form of the answer envelope."""
    unreadable: tuple[str, ...] = ()
    """Lines of the block that are neither a field nor a note."""
    is_closed: bool = False
    """True if the answer ends with the end of a block of notes."""


@dataclass(slots=True)
class _Entry:
    """A field or a note, with the lines that continue it."""

    name: str
    """Name of the field, or the ids of the note."""
    is_field: bool = False
    is_ended: bool = False
    """True after a blank line. Only an open quote continues after a blank line."""
    has_quote: bool = False
    has_open_quote: bool = False
    """True if a quotation mark begins a quote that has no end yet."""
    marks: int = 0
    """Straight quotation marks so far."""
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip()

    def add(self, line: str) -> None:
        """Add a line that is not blank."""
        quote = line
        if not self.has_quote and not self.is_field:
            cited = _CITED.match(line)
            if cited is None and not self.lines:
                cited = _QUOTE_ALONE.match(line)
            if cited is not None:
                self.has_quote = True
                quote = cited[2]
        self.is_ended = False
        self.lines.append(line)
        self.marks += line.count('"')
        self.has_open_quote = self.has_quote and not _QUOTE_END.search(quote)

    def add_blank_line(self) -> None:
        self.is_ended = True
        self.lines.append("")

    def takes(self, line: str, *, is_cut: bool) -> bool:
        """Return whether a line that begins no note is a part of this entry. In a block that may
        be text, fields have one line, and quotes have no blank lines.
        """
        if is_cut and (self.is_field or self.is_ended):
            return False
        if self.has_open_quote:
            return True
        if self.is_ended or _FIELD.match(line):
            return False
        if self.name in _ONE_LINE and self.text:
            return False
        # With an odd number of marks, the last one may belong to a word of the quote.
        return not self.has_quote or self.marks % 2 == 1


def read_noted_answer(text: str) -> NotedAnswer:
    """Return the text and the notes of an answer. Only the last block counts, and only at the end
    of the answer: another block is a part of the text.
    """
    text = text.replace("\r\n", "\n")
    openings = list(_OPENING.finditer(text))
    if not openings:
        if fields := _parse_status_alone(text):
            return NotedAnswer("", fields)
        return NotedAnswer(_without_fence(text))
    opening = openings[-1]
    closings = list(_CLOSING.finditer(text, opening.end()))
    block, behind = text[opening.end() :], ""
    if closings:
        block, behind = text[opening.end() : closings[-1].start()], text[closings[-1].end() :]
    entries, unreadable = _parse_entries(block, is_cut=not closings)
    is_block = bool(entries) or not block.strip()
    if behind.strip(_BEHIND_BLOCK) or not is_block or (unreadable and not closings):
        return NotedAnswer(_without_fence(text))
    before = _without_opening_fence(text[: opening.start()], behind)
    return _build_noted_answer(before, entries, unreadable, is_closed=bool(closings))


def _parse_status_alone(text: str) -> dict[str, str]:
    """Return the fields of an answer that only states a status and its reason, without the tags of
    a block; empty for every other text.
    """
    if not _FIELD.match(text.strip().partition("\n")[0]):
        return {}
    entries, unreadable = _parse_entries(text, is_cut=False)
    if unreadable or not all(entry.is_field for entry in entries):
        return {}
    fields = _build_noted_answer("", entries, (), is_closed=False).fields
    if "status" in fields and not fields.keys().isdisjoint({"problem", "needs"}):
        return fields
    return {}


def with_notes(answer: Mapping[str, Any]) -> str:
    """Return an answer envelope with a text as its output in Markdown. An output that ends with
    notes of another text gets its own block, which may be empty.
    """
    output = str(answer.get("output") or "")
    lines: list[str] = []
    for name in FIELDS:
        value = answer.get(name)
        if value not in (None, "", "ok"):
            lines.append(f"{name}: {value}")
    sentences, last = find_sentences_by_claim(output), ""
    for claim in answer.get("claims", ()):
        lines += _format_notes(claim, sentences.get(claim["id"], ""), last)
        for source in claim.get("sources", ()):
            last = source["source"]
    copied_answer = read_noted_answer(output)
    if not lines and not copied_answer.fields and not copied_answer.claims:
        return output
    block = "\n".join(["<notes>", *lines, "</notes>"])
    return f"{output}\n\n{block}".lstrip()


def _format_notes(claim: Mapping[str, Any], sentence: str, last: str) -> Iterator[str]:
    """Yield the notes of a claim. They have its text unless the marked sentence is the text.

    Args:
        last: source of the note before.
    """
    mark, text = f"[{claim['id']}]", claim.get("text") or ""
    if text and text != sentence:
        yield f"{mark} {text}"
    values = [str(claim.get(name) or "") for name in PARTS]
    while values and not values[-1]:
        values.pop()
    sources = claim.get("sources", ())
    if values and not sources:
        yield f"{mark} {' | '.join(values)}"
    for source in sources:
        names = [] if source["source"] == last else [f"{source['source']}:"]
        last, quote = source["source"], " ".join(source["quote"].split())
        head = " | ".join([*values, " ".join([*names, f'"{quote}"'])])
        yield f"{mark} {head}"
        values = []


def without_notes(text: str) -> str:
    """Return the text of an unfinished answer. A block of notes is left out from its first
    characters on.
    """
    openings = list(_OPENING.finditer(text))
    if openings:
        closings = list(_CLOSING.finditer(text, openings[-1].end()))
        if not closings or not text[closings[-1].end() :].strip(_BEHIND_BLOCK):
            return text[: openings[-1].start()].rstrip()
    last_line = text[text.rfind("\n") + 1 :]
    if last_line.strip() and "<notes>".startswith(last_line.strip().lower()):
        return text[: len(text) - len(last_line)].rstrip()
    return text


def _parse_entries(block: str, *, is_cut: bool) -> tuple[list[_Entry], list[str]]:
    """Return the entries of a block, and the lines that belong to none.

    Args:
        is_cut: True if the answer has no end of the block. Then the last line may be the beginning
            of a note, and is left out.
    """
    entries: list[_Entry] = []
    unreadable: list[str] = []
    lines = block.rstrip().split("\n")
    for number, line in enumerate(lines):
        last = entries[-1] if entries else None
        if not line.strip():
            if last is not None:
                last.add_blank_line()
            continue
        note = _NOTE.match(line)
        if note and not _is_quoted(note[1], last):
            entries.append(_Entry(note[1]))
            entries[-1].add(note[2] or "")
            continue
        if last is not None and last.takes(line, is_cut=is_cut):
            last.add(line)
            continue
        field_match = _FIELD.match(line)
        if field_match:
            entries.append(_Entry(field_match[1].lower(), is_field=True))
            entries[-1].add(field_match[2])
            continue
        is_beginning = is_cut and number == len(lines) - 1 and _is_begun(line)
        if line.strip("`~ ") and not is_beginning:
            unreadable.append(line.strip())
    return entries, unreadable


def _is_quoted(ids: str, last: _Entry | None) -> bool:
    """Return whether a line such as `[1] Smith` is a part of a quote. Its mark is a number, and the
    marks of the notes are not.
    """
    if last is None or last.is_field or not last.has_open_quote:
        return False
    return ids[0].isdigit() and not last.name[0].isdigit()


def _is_begun(line: str) -> bool:
    """Return whether a line may be the beginning of a field or of a note."""
    beginning = line.strip().lstrip("-*+• ").lower()
    return beginning.startswith("[") or any(name.startswith(beginning) for name in FIELDS)


def _build_noted_answer(
    text: str, entries: Iterable[_Entry], unreadable: Iterable[str], *, is_closed: bool
) -> NotedAnswer:
    fields: dict[str, str] = {}
    claims: dict[str, dict[str, Any]] = {}
    bare: set[str] = set()
    last = ""
    for entry in entries:
        if entry.is_field:
            fields[entry.name] = " ".join(entry.text.split()).strip("*`")
            continue
        for mark in split_claim_ids(entry.name):
            name = mark
            if mark.isdigit():
                bare.add(mark)
                name = f"c{mark}"
            claim = claims.setdefault(name, {"id": name, "text": "", "sources": []})
            last = _add_note_to_claim(claim, entry.text, last)
    if bare:
        text = _with_marks(text, bare)
    return NotedAnswer(text, fields, list(claims.values()), tuple(unreadable), is_closed)


def _add_note_to_claim(claim: dict[str, Any], note: str, last: str) -> str:
    """Add the source, the parts or the text of a note to a claim. Return the source, or `last`.

    Args:
        last: source of the note before.
    """
    head_and_quote = _split_at_quote(note)
    if last and head_and_quote is None and (alone := _QUOTE_ALONE.match(note)):
        head_and_quote = f"{alone[1]} {SAME_SOURCE}", alone[2]
    head = note
    quote = ""
    if head_and_quote:
        head, quote = head_and_quote
    segments = [segment.strip() for segment in head.split("|")]
    if head_and_quote:
        source = segments.pop().rstrip(":：").strip(_AROUND_SOURCE)
        if last and source.lower() == SAME_SOURCE:
            source = last
        last = source
        claim["sources"].append({"source": source, "quote": _QUOTE_END.sub("", quote).strip()})
    elif len(segments) == 1:
        claim["text"] = claim["text"] or note
        segments = []
    for name, value in zip(PARTS, segments, strict=False):
        claim.setdefault(name, value)
    return last


def _split_at_quote(note: str) -> tuple[str, str] | None:
    """Return the text before a quote, and the quote with its last quotation mark. None: the note
    has no quote.

    Behind a source without spaces, a quote needs no quotation marks, or no colon before them.
    """
    if match := _CITED.match(note):
        return match[1], match[2]
    head, _, quote = note.partition(": ")
    if quote.strip() and _ends_with_source(head):
        return head, re.sub(rf"\A\s*[{_MARKS}]", "", quote)
    if mark := re.search(f"[{_MARKS}]", note):
        head = note[: mark.start()].rstrip(" \t\n,;–—-")
        if _ends_with_source(head):
            return head, note[mark.end() :]
    return None


def _ends_with_source(head: str) -> bool:
    """Return whether the last part of a note is a source without spaces, or `SAME_SOURCE`."""
    source = head.rpartition("|")[2].strip()
    if source.lower() == SAME_SOURCE:
        return True
    return bool(_SIGN_OF_SOURCE.search(source)) and not re.search(r"\s", source)


def _with_marks(text: str, numbers: set[str]) -> str:
    """Return the text with `[c1]` in place of `[1]` and `[^1]`, except in code.

    Args:
        numbers: numbers of the notes.
    """

    def replace_mark(match: re.Match[str]) -> str:
        if match[1] in numbers:
            return f"[c{match[1]}]"
        return match[0]

    def replace_marks(match: re.Match[str]) -> str:
        return _BARE_MARK.sub(replace_mark, match[0])

    pieces: list[str] = []
    position = 0
    for code in _CODE.finditer(text):
        pieces += [_BARE_MARKS.sub(replace_marks, text[position : code.start()]), code[0]]
        position = code.end()
    return "".join(pieces) + _BARE_MARKS.sub(replace_marks, text[position:])


def _without_opening_fence(text: str, behind: str) -> str:
    """Return the text before a block without the beginning of a code fence that ends after the
    block.
    """
    if "```" in behind or "~~~" in behind:
        if _OPEN_FENCE.search(text) and len(_FENCE.findall(text)) % 2 == 1:
            text = _OPEN_FENCE.sub("", text)
        elif _MARKDOWN_FENCE.match(text):
            text = _MARKDOWN_FENCE.sub("", text)
    return _without_fence(text)


def _without_fence(text: str) -> str:
    """Return the content of a code fence for Markdown around the whole text."""
    if _MARKDOWN_FENCE.match(text) and len(_FENCE.findall(text)) == 2 and _CLOSE_FENCE.search(text):
        text = _CLOSE_FENCE.sub("", _MARKDOWN_FENCE.sub("", text))
    return text.strip()
