"""Docstrings, comments and docs are plain English: short sentences without banned phrases."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("shared", "supervisor", "workers", "chaos", "benchmarks", "handoff_queue", "tests")
MOST_WORDS = 30
"""Longest sentence of a docstring or a comment, in words."""

NOT_YET_PLAIN = (
    "README.md",
    "benchmarks",
    "chaos",
    "docs",
    "handoff_queue",
    "shared",
    "supervisor",
    "workers",
    "tests/docs",
    "tests/oracle",
    "tests/shared/providers/offline",
    "tests/supervisor/cli",
)
"""Folders and files that are not checked yet. A folder leaves the list when it is clean."""

BANNED = {
    "a clause in place of a noun": (
        r"\bwhat (?:is|are|was|were|has|have|had|it|they|can|could|may|must|comes?|came|stands?"
        r"|follows?|does|did|ends?|runs?|waits?|needs?|belongs?|goes|went|would|will|we|you|one"
        r"|else|others?|both|each)\b(?![^.]{0,120}\?)"
    ),
    "`who` as a subject": (
        r"(?:^|[.;:(] ?|\band |\bor |\bof |\bfor |\bby |\bto )(?:who|whoever|whom|whomever)\b"
    ),
    "a pronoun without its noun": (
        r"\b(?:one that|ones that|none that|none of|those that|those who|that of|of its own"
        r"|of it|of them|of theirs|of ours|of these|of those)\b"
    ),
    "an archaic word": (
        r"\b(?:anew|whatever|whichever|thereof|therein|wherein|whereby|hence|beside|meanwhile"
        r"|nobody|somebody|so much|so many|is to be|are to be|was to be|lest|likewise|as yet)\b"
    ),
    "a fragment": r"^(?:Of|For|With|By|In|On|To|As|From|Whether|Why|How|Where) [^.,:]{1,60}[.;]$",
}
PATTERNS = {
    name: re.compile(pattern, 0 if name == "a fragment" else re.IGNORECASE)
    for name, pattern in BANNED.items()
}
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`(*\d\"])")
SECTION = re.compile(r"\n\s*(?:Args|Raises|Returns|Yields|Attributes):")
COMMENT = re.compile(r"(?:[^#]*\S  |\s*)#+ ?(.+)")
DIRECTIVE = ("noqa", "type:", "pragma", "fmt:", "!")
LIST_ITEM = re.compile(r"^(?:[-*+]|\d+\.)\s+")

Text = tuple[int, str]
"""Line of the first word, and the text."""


def docstrings(tree: ast.Module) -> Iterator[Text]:
    """Yield docstrings, also below constants and fields."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for item in body if isinstance(body, list) else []:
            if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant):
                text = item.value.value
                if isinstance(text, str):
                    yield item.lineno, SECTION.split(text)[0]


def comments(source: str, tree: ast.Module) -> Iterator[Text]:
    """Yield comments. Lines that follow each other are one comment.

    A regular expression and the syntax tree find them five times faster than `tokenize`.
    """
    within_strings = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    first, last, words = 0, -1, list[str]()
    for number, line in enumerate(source.splitlines(), start=1):
        match = COMMENT.match(line)
        if match is None or number in within_strings or match[1].startswith(DIRECTIVE):
            continue
        if number != last + 1:
            yield first, " ".join(words)
            first, words = number, []
        last = number
        words.append(match[1])
    yield first, " ".join(words)


def paragraphs(markdown: str) -> Iterator[Text]:
    """Yield paragraphs and list items, without code blocks, tables, headings and quotations."""
    markdown = re.sub(
        r"```.*?```|<!--.*?-->|^---\n.*?\n---\n",
        lambda match: "\n" * match[0].count("\n"),
        markdown,
        flags=re.DOTALL | re.MULTILINE,
    )
    first, words = 1, list[str]()
    for number, line in enumerate([*markdown.split("\n"), ""], start=1):
        text = line.strip()
        is_prose = bool(text) and not text.startswith(("#", "|", ">"))
        if words and (not is_prose or LIST_ITEM.match(text)):
            yield first, " ".join(words)
            words = []
        if is_prose:
            first = first if words else number
            words.append(LIST_ITEM.sub("", text))


def sentences(text: str) -> Iterator[str]:
    text = re.sub(r"``[^`]*``|`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"[*_]{1,2}([^*_]+)[*_]{1,2}", r"\1", text)
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in SENTENCE_END.split(" ".join(paragraph.split())):
            if len(sentence.split()) > 2:
                yield sentence


def problems(sentence: str, most_words: int | None) -> list[str]:
    found = [name for name, pattern in PATTERNS.items() if pattern.search(sentence)]
    count = len(sentence.split())
    if most_words is not None and count > most_words:
        found.append(f"{count} words")
    return found


def problems_in(path: Path) -> Iterator[str]:
    """Yield the problems of a file, each with its place and its sentence."""
    source = path.read_text()
    if path.suffix == ".md":
        texts, most_words = list(paragraphs(source)), None
    else:
        tree = ast.parse(source)
        texts, most_words = [*docstrings(tree), *comments(source, tree)], MOST_WORDS
    for line, text in texts:
        for sentence in sentences(text):
            if found := problems(sentence, most_words):
                place = f"{path.relative_to(ROOT)}:{line}"
                yield f"{place}: {', '.join(found)}: {sentence}"


def is_checked(path: Path) -> bool:
    shown = path.relative_to(ROOT).as_posix()
    return not any(shown == entry or shown.startswith(f"{entry}/") for entry in NOT_YET_PLAIN)


def files_of(room: str) -> list[Path]:
    if room == "docs":
        return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", [*ROOMS, "docs"])
def test_texts_are_plain_english(room: str) -> None:
    found = [
        problem for path in files_of(room) if is_checked(path) for problem in problems_in(path)
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "sentence",
    [
        "Return what is due now.",
        "A process of whoever asked.",
        "The first of them is taken.",
        "Start the worker anew.",
        "For a job that waits.",
        "word " * 31,
    ],
)
def test_a_bad_sentence_is_found(sentence: str) -> None:
    assert problems(sentence, MOST_WORDS)


@pytest.mark.parametrize(
    "sentence",
    [
        "Return the due jobs.",
        "A supervisor with no free role slot waits 20 ms before it delegates.",
        "For a job that waits, return the reason.",
        "What is a lease?",
        "word " * 30,
    ],
)
def test_a_good_sentence_is_accepted(sentence: str) -> None:
    assert not problems(sentence, MOST_WORDS)


def test_each_text_has_the_line_of_its_first_word() -> None:
    source = '"""Module."""\nX = 1\n"""Constant."""\n# One\n# comment.\n\nY = """\n# no comment\n"""\nZ = 2  # Tail.\n'
    markdown = "# Title\n\nOne\ntwo.\n- Item\n  three.\n```\ncode\n```\nLast.\n"

    tree = ast.parse(source)

    assert list(docstrings(tree)) == [(1, "Module."), (3, "Constant.")]
    assert list(comments(source, tree))[1:] == [(4, "One comment."), (10, "Tail.")]
    assert list(paragraphs(markdown)) == [(3, "One two."), (5, "Item three."), (10, "Last.")]
