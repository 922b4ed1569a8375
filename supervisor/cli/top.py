"""`handoff top`: show the fleet live on a terminal."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from handoff_queue.shared.store.fleet_load import RunningHandoff
from handoff_queue.shared.text.times import DurationRange, in_units
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.presence import WAITS_FOR
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.cli import stats
from handoff_queue.supervisor.cli.connection import connect_to_broker
from handoff_queue.supervisor.cli.display.job_view import (
    JobView,
    with_children,
    with_events,
    with_fresh_info,
)
from handoff_queue.supervisor.cli.display.tables import Column, fit_table
from handoff_queue.supervisor.cli.display.terminal import (
    END_OF_INPUT,
    ESCAPE,
    format_money,
    get_stdout,
    key_presses,
    print_progress,
    shorten,
)
from handoff_queue.supervisor.cli.display.tree import render_tree
from handoff_queue.supervisor.cli.errors import OK, end_like_ctrl_c
from handoff_queue.supervisor.client.fleet_statistics import FleetStats, read_stats

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client

EVERY_S = 1.0
MINUTE_S = 60.0
MAX_HANDOFFS = 15
"""Most rows of running handoffs. The longest-running handoffs are shown, and the others are
counted.
"""
KEYS = "123456789"
"""Keys that open the job of a row. Later rows have no key."""


@dataclass
class MinuteSpending:
    """Spending over the last minute, in money and tokens."""

    _samples: deque[tuple[float, int, int]] = field(default_factory=deque)

    def add(self, at: float, microusd: int, tokens: int) -> None:
        """Record the spending of the day so far, and forget samples older than a minute.

        Args:
            at: Unix seconds.
        """
        if self._samples and tokens < self._samples[-1][2]:  # a new day
            self._samples.clear()
        self._samples.append((at, microusd, tokens))
        while len(self._samples) > 1 and self._samples[1][0] <= at - MINUTE_S:
            self._samples.popleft()

    def in_last_minute(self) -> tuple[float, int, float]:
        """Return the spent USD and tokens, and the seconds in which they were spent, at most
        60.

        With samples that are far apart, the seconds can be more than 60.
        """
        first_at, first_microusd, first_tokens = self._samples[0]
        last_at, last_microusd, last_tokens = self._samples[-1]
        usd = to_usd(last_microusd - first_microusd)
        return usd, last_tokens - first_tokens, last_at - first_at

    def __str__(self) -> str:
        usd, tokens, seconds = self.in_last_minute()
        if seconds < 1:
            return "spending is measured from now on"
        period = "minute"
        if seconds < MINUTE_S:
            period = f"{seconds:.0f} s"
        return f"{format_money(usd)}, {format_count(tokens, 'token')} in the last {period}"


def top(
    every: Annotated[
        float,
        typer.Option(
            "--every",
            metavar="TIME",
            parser=DurationRange(0.2, 60),
            show_default=in_units(EVERY_S),
            help="Time between two updates: 500ms, 5s.",
        ),
    ] = EVERY_S,
) -> int:
    """Show the fleet live: slots, queues, handoffs and spending.

    A digit opens the job of that row, Esc goes back, q ends. If the output is not a terminal,
    the command prints the same as `handoff stats`, once.
    """
    if sys.stdin.isatty() and get_stdout().is_dumb_terminal:
        print_progress(
            "this terminal cannot show `handoff top` (TERM=dumb): use `handoff stats`, or"
            " `handoff watch` for one job"
        )
        return OK
    jobs = connect_to_broker()
    if not (sys.stdin.isatty() and get_stdout().is_terminal):
        get_stdout().print(stats.StatsColumns(read_stats(jobs.store, jobs.store.fleet_load.now())))
        return OK
    from handoff_queue.supervisor.client.client import connect_onlooker

    end_like_ctrl_c()
    with (
        key_presses() as pressed,
        Live(console=get_stdout(), screen=True, auto_refresh=False) as live,
    ):
        screen = TopScreen(connect_onlooker(jobs))
        key = ""
        while key not in ("q", END_OF_INPUT):
            screen.press(key)
            live.update(screen.draw(), refresh=True)
            key = pressed(every)
    return OK


class TopScreen:
    """Screen with the fleet, or with one job."""

    def __init__(self, jobs: Client) -> None:
        self._jobs = jobs
        self._spending = MinuteSpending()
        self._rows: tuple[RunningHandoff, ...] = ()
        self._job_view: JobView | None = None

    def press(self, key: str) -> None:
        """Open the job of the row with this key, or go back with Esc. Other keys do nothing."""
        if key == ESCAPE:
            self._job_view = None
            return
        job_id = find_job_by_key(self._rows, key)
        if self._job_view is None and job_id:
            self._job_view = JobView(job_id)

    def draw(self) -> RenderableType:
        """Return the screen with fresh figures, or a line about the error while Redis is away."""
        try:
            if self._job_view is None:
                return self._draw_overview()
            return self._draw_job(self._job_view)
        except StoreUnavailable as error:
            return Text(f"{error} (trying again)", style="yellow")

    def _draw_overview(self) -> RenderableType:
        load = self._jobs.store.fleet_load.now()
        fleet_stats = read_stats(self._jobs.store, load)
        self._spending.add(
            fleet_stats.at, fleet_stats.spent_today.microusd, fleet_stats.spent_today.tokens
        )
        self._rows = sort_by_start(load.at_work)
        return FleetOverview(fleet_stats, load.at, self._rows, self._spending)

    def _draw_job(self, view: JobView) -> RenderableType:
        events = self._jobs.store.journal.read(view.job_id, view.version)
        fresh = with_fresh_info(self._jobs, with_events(self._jobs, view, events))
        fresh, _ = with_children(self._jobs, fresh)
        keys = Text("Esc: back   q: end", style="dim")
        if fresh.job is None:
            return Group(Text(f"{view.job_id} was deleted", style="yellow"), keys)
        self._job_view = fresh
        return Group(render_tree(fresh, below=1), keys)


def sort_by_start(handoffs: Iterable[RunningHandoff]) -> tuple[RunningHandoff, ...]:
    """Return the handoffs, the longest-running first."""
    return tuple(sorted(handoffs, key=attrgetter("since", "job_id", "handoff_id")))


_COLUMNS = (
    Column("", 0, is_text=True),
    Column("job", 4, is_text=True),
    Column("handoff", 0, is_text=True, least=14),
    Column("agent", 5, is_text=True),
    Column("for", 1),
    Column("turn", 2),
    Column("doing", 3, is_text=True, least=12, shorten_cell=shorten),
)
_HEADING = 3
"""Lines around the rows of the table: an empty line, the heading and a rule."""
_MIN_ROWS = 3
_MIN_ABOVE = 9
"""Least lines for the fleet with its busy agents. With fewer lines, running handoffs are only
counted.
"""


@dataclass(frozen=True)
class FleetOverview:
    """The screen with the part of the fleet that fits the terminal. Idle agents are left out
    first; the keys always stay.
    """

    fleet_stats: FleetStats
    at: float
    rows: tuple[RunningHandoff, ...]
    spending: MinuteSpending

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self.rows[:MAX_HANDOFFS]
        height = sys.maxsize
        if console.is_terminal:
            height = options.size.height
        for folds_idle in (False, True):
            columns = stats.StatsColumns(self.fleet_stats, folds_idle)
            load = Group(columns, Text(str(self.spending)))
            above = console.render_lines(load, options.update(height=None))
            room = height - len(above) - _HEADING - 1
            if room >= len(rows):
                break
        min_rows = min(_MIN_ROWS, height - _HEADING - 1)
        rows = rows[: max(0, min_rows, room)]
        table_height = len(rows) + _HEADING
        if height - table_height - 1 < min(len(above), _MIN_ABOVE):
            rows = ()
            table_height = 0
        left = len(self.rows) - len(rows)
        more = ""
        if left and rows:
            more = f"   and {left:,} more running"
        elif left:
            more = f"   {left:,} running"
        hint = Text(
            f"1-9: open a job   q: end{more}", style="dim", no_wrap=True, overflow="ellipsis"
        )
        for line in above[: max(0, height - table_height - 1)]:
            yield from line
            yield Segment.line()
        if table_height:
            yield Text("")
            yield _build_running_table(rows, self.at, options.max_width)
        yield hint


def _build_running_table(rows: tuple[RunningHandoff, ...], at: float, width: int) -> RenderableType:
    """Return the table of the running handoffs."""
    table_rows: list[tuple[tuple[str, ...], str]] = []
    for n, handoff in enumerate(rows):
        if handoff.deferred_until is not None and not handoff.doing.startswith(WAITS_FOR):
            doing = f"waits: {handoff.doing}"
        else:
            doing = handoff.doing or "starting"
        cells = (
            KEYS[n : n + 1],
            handoff.job_id,
            handoff.handoff_id,
            handoff.agent,
            f"{max(0.0, at - handoff.since):.0f} s",
            str(handoff.turns + 1),
            shorten(doing, 60),
        )
        table_rows.append((cells, "default"))
    return fit_table(_COLUMNS, table_rows, width)


def find_job_by_key(rows: tuple[RunningHandoff, ...], key: str) -> JobId | None:
    """Return the job of the row with this key, or None if no row has the key."""
    if len(key) != 1 or key not in KEYS:
        return None
    n = KEYS.index(key)
    if n < len(rows):
        return rows[n].job_id
    return None
