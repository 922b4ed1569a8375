"""Parts of the pages of docs/: code blocks, tables, sections and code spans."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
"""A block of code. Its lines begin with the spaces of its fence if it is in a list."""


def text_of(name: str) -> str:
    return (DOCS / f"{name}.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of a language, in order, without the indentation of their fence."""
    return [
        re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)
        for indent, fence_language, body in _FENCED.findall(text)
        if fence_language == language
    ]


def sections(text: str) -> dict[str, str]:
    """Return the `## ` sections by heading. A `#` in a code block begins no section."""
    hidden = _FENCED.sub(lambda match: match[0].replace("\n#", "\n\0#"), text)
    parts = re.split(r"^## (.+)$", hidden, flags=re.MULTILINE)
    return {
        heading.strip(): body.replace("\0", "")
        for heading, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def rows(text: str) -> Iterator[list[str]]:
    """The rows of all tables, without their headings; `\\|` in a cell is a bar."""
    lines = text.splitlines()
    for above, line in zip([None, *lines], lines, strict=False):
        is_heading = above is None or not above.startswith("|")
        if line.startswith("|") and not is_heading and not set(line) <= set("|-: "):
            yield [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def coded(cell: str) -> str:
    """Return the first code span of a cell, or the whole cell if it has no code span."""
    span = re.search(r"`([^`]+)`", cell)
    return span[1] if span else cell


def spans(text: str) -> list[str]:
    """Everything in single backticks, and every line that is typed at a prompt in a console
    block, without its comment.
    """
    typed = [
        re.sub(r"\s+# .*$", "", line[2:].strip())
        for block in blocks(text, "console")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    return [*re.findall(r"`([^`\n]+)`", _FENCED.sub("", text)), *typed]


def build_site(folder: Path, config: Path = ROOT / "mkdocs.yml") -> tuple[int, str]:
    """Build a site in a folder with the command of `make docs`. Return the exit code and the
    output of MkDocs.
    """
    command = re.search(r"/mkdocs (build.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert command
    place = ["--config-file", str(config), "--site-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *command[1].split(), *place],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
