"""The pages of docs/, taken apart: code blocks by language, tables by heading, sections, and
whatever stands in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
"""A block of code. In a list its lines begin with the spaces of its fence."""


def text_of(name: str) -> str:
    return (DOCS / f"{name}.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of a language, in order, without the indentation of their fence."""
    return [
        re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)
        for indent, found, body in _FENCED.findall(text)
        if found == language
    ]


def sections(text: str) -> dict[str, str]:
    """`## ` sections by heading, without what stands in code blocks' headings."""
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
    """What stands in the first backticks of a cell; the cell itself if there are none."""
    found = re.search(r"`([^`]+)`", cell)
    return found[1] if found else cell


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
