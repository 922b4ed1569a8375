"""Statements of an output: giving them their markers, finding those that have none, and the
line that names gaps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from handoff_queue.shared.providers.offline.sentences import CLOSING, split
from handoff_queue.shared.providers.offline.tables import cells_of
from handoff_queue.shared.types.citation_markers import MARKER

NOT_FOUND = "Not found in the documents"
CANNOT_ANSWER = "The offline model cannot answer this"
_UNCITED_MAY_BE_SHORTER_THAN = 4
"""Words: a label is not a statement."""


def marked(text: str, marker: str) -> str:
    """A statement with its marker before the full stop, so that whoever splits sentences keeps
    the two together.
    """
    text = text.strip()
    end = re.search(rf"[.!][{re.escape(CLOSING)}]*$", text)
    return f"{text[: end.start()]} [{marker}]{end.group()}" if end else f"{text} [{marker}]."


def not_found(labels: list[str]) -> str:
    """The line that names gaps. It claims nothing, and so needs no marker."""
    return f"{NOT_FOUND}: {'; '.join(labels)}."


def gaps_in(output: str) -> list[str]:
    """What an output says it did not find."""
    lines = re.findall(rf"^\W*{NOT_FOUND}:\s*(.+?)\.?\s*$", output, re.MULTILINE)
    return [gap.strip() for line in lines for gap in line.split(";") if gap.strip()]


def unmarked_statements(output: str) -> Iterator[str]:
    """Sentences, list items and table cells that state something and point to no claim."""
    text = re.sub(r"^(```|~~~).*?(^\1\s*$|\Z)", "", output, flags=re.DOTALL | re.MULTILINE)
    lines = text.splitlines()
    for number, line in enumerate(each.strip() for each in lines):
        is_header = (
            number + 1 < len(lines)
            and re.fullmatch(r"[\s|:-]*-[\s|:-]*", lines[number + 1]) is not None
        )
        if (
            not line
            or line.startswith("#")
            or NOT_FOUND in line
            or CANNOT_ANSWER in line
            or is_header
            or re.fullmatch(r"[\s|:*_-]+", line)
        ):
            continue
        pieces = (
            cells_of(line)[1:]
            if line.startswith("|")
            else split(re.sub(r"^(?:[-*+]|\d+[.)])\s+", "", line))
        )
        yield from (piece for piece in pieces if _states_something(piece))


def _states_something(piece: str) -> bool:
    bare = re.sub(r"[*_`]", "", piece).strip()
    if (
        MARKER.search(piece)
        or bare.endswith((":", "?"))
        or bare.lower() in ("not found", "-", "—", "")
    ):
        return False
    return len(bare.split()) >= _UNCITED_MAY_BE_SHORTER_THAN


def markers_in(output: str) -> set[str]:
    """The claims that an output points to."""
    return {name.strip() for found in MARKER.findall(output) for name in re.split("[,;]", found)}
