"""Tables that fit the width of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text


def table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the heading."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*escaped, strict=True)]
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
"""Figures without which a row still says how it goes."""


def middle(text: str, most: int) -> str:
    """Cut in the middle: names of many steps differ at their ends."""
    if len(text) <= most:
        return text
    kept = max(1, most - 1)
    return f"{text[: kept // 2]}…{text[len(text) - (kept - kept // 2) :]}"


def cut_name(who: str, most: int) -> str:
    """`step (role)` in so many characters: of the step as much as there is room for, its role
    only where that leaves half of them.
    """
    if len(who) <= most:
        return who
    step, bracket, rest = who.partition(" (")
    role = bracket + rest
    return (
        middle(step, most - len(role)) + role
        if len(role) <= most - max(_LEAST_NAME, most // 2)
        else middle(step, most)
    )


def cut_words(what: str, most: int) -> str:
    """Parts with two spaces between them, in so many characters: figures of less weight go
    first, then the end of the longest part.
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
    """Which of these rows are shown, in which order, where there is room for so many: those of
    low rank first, else as they stand.

    `heads`: of each row the number of the one that it stands below, or its own; they stay
    together. Those of rank 0 take no more than half of the room from those of rank 1.
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
    """Of a table that fits its terminal."""

    name: str
    weight: int
    """The column with the greatest is left out first; 0: it always stands."""
    is_text: bool = False
    least: int | None = None
    """Characters that its cells may be cut to; None: they are not cut."""
    cut: Callable[[str, int], str] = middle


def fit_table(
    columns: Sequence[Column], rows: Sequence[tuple[Sequence[str], str]], width: int
) -> Table:
    """A table of so many characters at most. `rows`: cells, and their style."""
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
