"""Tables that fit the width of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table. The first row is the heading."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths: list[int] = []
    for column in zip(*escaped, strict=True):
        widths.append(max(map(len, column)))
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in escaped
    ]
    return "\n".join(
        [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
    )


_GAP = 2
"""Characters between two columns."""
_LEAST_NAME = 8
_SECONDARY = (" token", " tokens", " tool call", " tool calls")
"""Figures that are left out first on a narrow screen."""


def middle(text: str, most: int) -> str:
    """Cut a text in the middle, because the names of copies differ at the end."""
    if len(text) <= most:
        return text
    kept = max(1, most - 1)
    return f"{text[: kept // 2]}…{text[len(text) - (kept - kept // 2) :]}"


def cut_name(who: str, most: int) -> str:
    """Cut `step (role)` to this number of characters. The role stays if it takes at most half."""
    if len(who) <= most:
        return who
    step, bracket, rest = who.partition(" (")
    role = bracket + rest
    if len(role) <= most - max(_LEAST_NAME, most // 2):
        return middle(step, most - len(role)) + role
    return middle(step, most)


def cut_words(what: str, most: int) -> str:
    """Cut parts with two spaces between them to this number of characters.

    Secondary figures go first, then the end of the longest part.
    """
    parts = what.split("  ")
    while len("  ".join(parts)) > most and (
        less := [part for part in parts if part.endswith(_SECONDARY)]
    ):
        parts.remove(less[0])
    excess = len("  ".join(parts)) - most
    if excess > 0 and len(parts) > 1:
        longest = max(range(len(parts)), key=lambda n: len(parts[n]))
        parts[longest] = parts[longest][: max(1, len(parts[longest]) - excess - 1)].rstrip() + "…"
    return "  ".join(parts)


def choose_rows(ranks: Sequence[int], heads: Sequence[int], room: int) -> list[int]:
    """Return the numbers of the rows that fit, in order. Rows with a low rank are chosen first.

    Rank 0 takes at most half of the room if rank 1 needs it.

    Args:
        heads: for each row, the number of its parent row or its own number. A parent and its rows
            stay together.
        room: number of rows that fit.
    """
    of_head: dict[int, int] = {}
    for rank, head in zip(ranks, heads, strict=True):
        of_head[head] = min(rank, of_head.get(head, rank))
    weight = [
        of_head[n] if n == head else rank
        for n, (rank, head) in enumerate(zip(ranks, heads, strict=True))
    ]
    order = sorted(range(len(ranks)), key=lambda n: (weight[n], n))
    most_first = max(room // 2, room - weight.count(1))
    first = [n for n in order if not weight[n]][:most_first]
    rest = [n for n in order if weight[n]]
    return sorted((first + rest)[:room], key=lambda n: (of_head[heads[n]], n))


@dataclass(frozen=True)
class Column:
    """A column of a table that fits the terminal."""

    name: str
    weight: int
    """The column with the greatest weight is left out first. 0: the column is always shown."""
    is_text: bool = False
    least: int | None = None
    """Least characters to which a cell may be cut. None: cells are not cut."""
    cut: Callable[[str, int], str] = middle


def fit_table(
    columns: Sequence[Column], rows: Sequence[tuple[Sequence[str], str]], width: int
) -> Table:
    """Return a table of at most this width in characters.

    Args:
        rows: the cells of each row, and the style of the row.
    """
    whole = [
        max([len(column.name), *(len(cells[n]) for cells, _ in rows)])
        for n, column in enumerate(columns)
    ]
    least = [
        full if column.least is None else min(full, column.least)
        for column, full in zip(columns, whole, strict=True)
    ]
    kept = sorted(range(len(columns)), key=lambda n: columns[n].weight)
    while (
        len(kept) > 1
        and columns[kept[-1]].weight
        and sum(least[n] for n in kept) + _GAP * (len(kept) - 1) > width
    ):
        kept.pop()
    spare, widths = width - sum(least[n] for n in kept) - _GAP * (len(kept) - 1), dict[int, int]()
    for n in kept:
        more = max(0, min(spare, whole[n] - least[n]))
        widths[n], spare = least[n] + more, spare - more
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, _GAP - 1, 0, 0))
    for n in sorted(kept):
        table.add_column(
            columns[n].name,
            justify="left" if columns[n].is_text else "right",
            no_wrap=True,
            width=widths[n],
        )
    for cells, style in rows:
        table.add_row(
            *(Text(columns[n].cut(cells[n], widths[n])) for n in sorted(kept)), style=style
        )
    return table
