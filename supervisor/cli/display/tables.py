"""Tables that fit the width of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table. The first row is the heading."""
    escaped: list[list[str]] = []
    for row in rows:
        escaped.append([cell.replace("|", "\\|") for cell in row])
    widths = [max(map(len, column)) for column in zip(*escaped, strict=True)]
    lines: list[str] = []
    for row in escaped:
        padded = map(str.ljust, row, widths)
        lines.append(f"| {' | '.join(padded)} |")
    rule = "|".join("-" * (width + 2) for width in widths)
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


_GAP = 2
"""Characters between two columns."""
_MIN_NAME = 8
_SECONDARY = (" token", " tokens", " tool call", " tool calls")
"""Figures that are left out first on a narrow screen."""


def cut_middle(text: str, limit: int) -> str:
    """Cut a text in the middle, because the names of copies differ at the end."""
    if len(text) <= limit:
        return text
    kept_chars = max(1, limit - 1)
    begin_chars = kept_chars // 2
    end_chars = kept_chars - begin_chars
    return f"{text[:begin_chars]}…{text[-end_chars:]}"


def cut_name(name: str, limit: int) -> str:
    """Cut `step (role)` to this number of characters. The role stays if it takes at most half."""
    if len(name) <= limit:
        return name
    step, bracket, rest = name.partition(" (")
    role = bracket + rest
    if len(role) <= limit - max(_MIN_NAME, limit // 2):
        return cut_middle(step, limit - len(role)) + role
    return cut_middle(step, limit)


def cut_words(text: str, limit: int) -> str:
    """Cut parts with two spaces between them to this number of characters.

    Secondary figures go first, then the end of the longest part.
    """
    parts = text.split("  ")
    for part in list(parts):
        if len("  ".join(parts)) > limit and part.endswith(_SECONDARY):
            parts.remove(part)
    excess = len("  ".join(parts)) - limit
    if excess > 0 and len(parts) > 1:
        longest = max(parts, key=len)
        kept_chars = max(1, len(longest) - excess - 1)
        parts[parts.index(longest)] = longest[:kept_chars].rstrip() + "…"
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
    least_ranks: dict[int, int] = {}  # of a parent row and its rows, by the number of the parent
    for rank, head in zip(ranks, heads, strict=True):
        least_ranks[head] = min(rank, least_ranks.get(head, rank))
    weights: list[int] = []
    for n, (rank, head) in enumerate(zip(ranks, heads, strict=True)):
        is_head = n == head
        weights.append(least_ranks[n] if is_head else rank)
    rank_0: list[int] = []
    others: list[int] = []
    for n in sorted(range(len(ranks)), key=lambda n: (weights[n], n)):
        if weights[n] == 0:
            rank_0.append(n)
        else:
            others.append(n)
    most_of_rank_0 = max(room // 2, room - weights.count(1))
    chosen_rows = (rank_0[:most_of_rank_0] + others)[:room]
    return sorted(chosen_rows, key=lambda n: (least_ranks[heads[n]], n))


@dataclass(frozen=True)
class Column:
    """A column of a table that fits the terminal."""

    name: str
    weight: int
    """The column with the greatest weight is left out first. 0: the column is always shown."""
    is_text: bool = False
    least: int | None = None
    """Least characters to which a cell may be cut. None: cells are not cut."""
    shorten_cell: Callable[[str, int], str] = cut_middle


def fit_table(
    columns: Sequence[Column], rows: Sequence[tuple[Sequence[str], str]], width: int
) -> Table:
    """Return a table with the columns that fit a width in characters.

    Columns are left out by their weight. Columns of weight 0 stay, even if they do not fit.

    Args:
        rows: the cells of each row, and the style of the row.
    """
    full_widths: list[int] = []
    least_widths: list[int] = []
    for n, column in enumerate(columns):
        longest = max([len(column.name), *(len(cells[n]) for cells, _ in rows)])
        full_widths.append(longest)
        if column.least is not None:
            longest = min(longest, column.least)
        least_widths.append(longest)
    kept_columns = sorted(range(len(columns)), key=lambda n: columns[n].weight)
    spare = width - sum(least_widths) - _GAP * (len(kept_columns) - 1)
    while spare < 0 and len(kept_columns) > 1 and columns[kept_columns[-1]].weight:
        spare += least_widths[kept_columns.pop()] + _GAP
    widths: dict[int, int] = {}
    for n in kept_columns:
        more = max(0, min(spare, full_widths[n] - least_widths[n]))
        widths[n] = least_widths[n] + more
        spare -= more
    fitted = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, _GAP - 1, 0, 0)
    )
    kept_columns.sort()
    for n in kept_columns:
        fitted.add_column(
            columns[n].name,
            justify="left" if columns[n].is_text else "right",
            no_wrap=True,
            width=widths[n],
        )
    for cells, style in rows:
        texts = [Text(columns[n].shorten_cell(cells[n], widths[n])) for n in kept_columns]
        fitted.add_row(*texts, style=style)
    return fitted
