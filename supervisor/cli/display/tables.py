"""Tables that fit the width of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table. The first row is the heading."""
    escaped: list[list[str]] = []
    for row in rows:
        escaped.append([cell.replace("|", "\\|") for cell in row])
    widths: list[int] = []
    for column in zip(*escaped, strict=True):
        widths.append(max(map(len, column)))
    lines: list[str] = []
    for row in escaped:
        padded = map(str.ljust, row, widths)
        lines.append(f"| {' | '.join(padded)} |")
    rule = "|".join("-" * (width + 2) for width in widths)
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


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
    """Return the numbers of the rows that fit. Rows with a low rank are chosen first.

    The result is in the order of the least rank of a parent and its rows, and then in the
    order of the rows.

    Rank 0 takes at most half of the room if rank 1 needs it.

    Args:
        heads: for each row, the number of its parent row or its own number. A parent and its rows
            stay together.
        room: number of rows that fit.
    """
    of_head: dict[int, int] = {}
    for rank, head in zip(ranks, heads, strict=True):
        of_head[head] = min(rank, of_head.get(head, rank))
    weights: list[int] = []
    for n, (rank, head) in enumerate(zip(ranks, heads, strict=True)):
        if n == head:
            weights.append(of_head[n])
        else:
            weights.append(rank)
    first: list[int] = []
    rest: list[int] = []
    for n in sorted(range(len(ranks)), key=lambda n: (weights[n], n)):
        if weights[n]:
            rest.append(n)
        else:
            first.append(n)
    most_first = max(room // 2, room - weights.count(1))
    chosen = (first[:most_first] + rest)[:room]
    return sorted(chosen, key=lambda n: (of_head[heads[n]], n))


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
    """Return a table with the columns that fit a width in characters.

    Columns are left out by their weight. Columns of weight 0 stay, even if they do not fit.

    Args:
        rows: the cells of each row, and the style of the row.
    """
    whole: list[int] = []
    least: list[int] = []
    for n, column in enumerate(columns):
        longest = max([len(column.name), *(len(cells[n]) for cells, _ in rows)])
        whole.append(longest)
        if column.least is not None:
            longest = min(longest, column.least)
        least.append(longest)
    kept = sorted(range(len(columns)), key=lambda n: columns[n].weight)
    spare = width - sum(least) - _GAP * (len(kept) - 1)
    while spare < 0 and len(kept) > 1 and columns[kept[-1]].weight:
        spare += least[kept.pop()] + _GAP
    widths: dict[int, int] = {}
    for n in kept:
        more = max(0, min(spare, whole[n] - least[n]))
        widths[n], spare = least[n] + more, spare - more
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, _GAP - 1, 0, 0))
    kept.sort()
    for n in kept:
        table.add_column(
            columns[n].name,
            justify="left" if columns[n].is_text else "right",
            no_wrap=True,
            width=widths[n],
        )
    for cells, style in rows:
        table.add_row(*(Text(columns[n].cut(cells[n], widths[n])) for n in kept), style=style)
    return table
