"""The samples of the documents: every block of code, with its page, heading and language."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

from tests.docs.pages import DOCS, ROOT

PROMPT = "$ "
_SEPARATORS = re.compile(r"[();<>|&]+")
_ARITHMETIC = re.compile(r"\$\(\(.*?\)\)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


@dataclass(frozen=True)
class Sample:
    """One block of code."""

    page: str
    """The path from the root of the repository."""
    line: int
    heading: str
    """The nearest heading above, of any level."""
    language: str
    """Empty: the block is indented, or its fence names no language."""
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return all documents that hold samples for readers."""
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "examples").glob("*.md")),
        *sorted(DOCS.rglob("*.md")),
    ]


@cache
def samples() -> tuple[Sample, ...]:
    return tuple(sample for page in pages() for sample in samples_in(page))


def samples_in(page: Path) -> Iterator[Sample]:
    """Yield the samples of a page. The parser finds blocks only, which takes half the time."""
    name, heading = str(page.relative_to(ROOT)), ""
    tokens = MarkdownIt().disable("inline").parse(page.read_text())
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and before.type == "heading_open":
            heading = token.content
        if token.type in ("fence", "code_block") and token.map:
            yield Sample(name, token.map[0] + 1, heading, token.info.strip(), token.content)


def commands(text: str) -> list[str]:
    """Return the lines behind a prompt, which a reader types. The other lines are output."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]


@dataclass(frozen=True)
class TypedCommand:
    """One line that a reader types, with the things on the page that belong to it."""

    sample: Sample
    line: str
    environment: tuple[tuple[str, str], ...]
    """Variables that the sample has exported before."""
    output: tuple[str, ...]
    """The output that the sample shows below the line."""

    def __str__(self) -> str:
        return f"{self.sample}: {self.line}"


def typed_commands(sample: Sample) -> list[TypedCommand]:
    """Return the lines of a console sample that call a program, in order."""
    exported: dict[str, str] = {}
    commands = []
    for part in f"\n{sample.text}".split(f"\n{PROMPT}")[1:]:
        line, *output = part.replace("\\\n", " ").splitlines()
        if line.startswith("export "):
            exported |= assignments(line)
        if calls(line):
            commands.append(TypedCommand(sample, line, tuple(exported.items()), tuple(output)))
    return commands


def of_page(page: str, language: str, holding: str = "") -> str:
    """Return the first sample of a page and language that holds these words."""
    return next(
        sample.text
        for sample in samples()
        if (sample.page, sample.language) == (page, language) and holding in sample.text
    )


def assignments(command: str) -> dict[str, str]:
    """Return the variables that a line of shell sets or exports, without their values' quotes."""
    words = shlex.split(command, comments=True)
    pairs = (word.partition("=") for word in words if _ASSIGNMENT.fullmatch(word))
    return {name: value for name, _, value in pairs if name.isupper()}


def calls(command: str) -> list[list[str]]:
    """Return the words of each program that a line of shell calls.

    Assignments and redirections are left out.
    """
    lexer = shlex.shlex(_ARITHMETIC.sub("1", command), posix=True, punctuation_chars=True)
    lexer.wordchars += "$@%:+{},[]^!"
    called: list[list[str]] = [[]]
    is_file = False
    for word in lexer:
        if _SEPARATORS.fullmatch(word):
            is_file = word[0] in "<>"
            if not is_file:
                called.append([])
        elif is_file:
            is_file = False
        elif called[-1] or not (_ASSIGNMENT.fullmatch(word) or word in ("export", "$")):
            called[-1].append(word)
    return [words for words in called if words]
