"""`handoff top`: show the fleet live on a terminal."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from handoff_queue.shared.store.queue_load import FleetLoad, RunningHandoff
from handoff_queue.shared.text.durations import DurationRange, in_units
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.usage import cost_usd
from handoff_queue.supervisor.cli import stats
from handoff_queue.supervisor.cli.connection import client_of_broker
from handoff_queue.supervisor.cli.display.job_view import JobView, heard, look, look_below
from handoff_queue.supervisor.cli.display.tables import Column, fit_table
from handoff_queue.supervisor.cli.display.terminal import figures, money, note, short, stdout
from handoff_queue.supervisor.cli.display.terminal_input import ESCAPE, GONE, key_presses
from handoff_queue.supervisor.cli.display.tree import picture
from handoff_queue.supervisor.cli.errors import OK, end_like_ctrl_c
from handoff_queue.supervisor.client.fleet import FleetStats

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client

EVERY_S = 1.0
MINUTE_S = 60.0
MOST_HANDOFFS = 15
"""Most rows of running handoffs. The longest-running handoffs are shown, and the others are
counted.
"""
KEYS = "123456789"
"""Keys that open the job of a row. Later rows have no key."""


@dataclass
class Spending:
    """Spending over the last minute, in money and tokens."""

    _samples: deque[tuple[float, int, int]] = field(default_factory=deque)

    def add(self, at: float, microusd: int, tokens: int) -> None:
        if self._samples and tokens < self._samples[-1][2]:  # a new day
            self._samples.clear()
        self._samples.append((at, microusd, tokens))
        while len(self._samples) > 1 and self._samples[1][0] <= at - MINUTE_S:
            self._samples.popleft()

    def seen(self) -> tuple[float, int, float]:
        """Return USD, tokens, and the seconds between the first and the last sample."""
        (begun, paid, tokens), (now, more_paid, more_tokens) = self._samples[0], self._samples[-1]
        return cost_usd(more_paid - paid), more_tokens - tokens, now - begun

    def __str__(self) -> str:
        usd, tokens, seconds = self.seen()
        if seconds < 1:
            return "spending is measured from now on"
        return f"{money(usd)}, {figures(tokens, 'token')} in the last {'minute' if seconds >= MINUTE_S else f'{seconds:.0f} s'}"


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

    A digit opens the job of that row, Esc goes back, q ends. If the output is not a terminal, the
    command prints the same as `handoff stats`, once.
    """
    if sys.stdin.isatty() and stdout().is_dumb_terminal:
        note(
            "this terminal cannot show `handoff top` (TERM=dumb): use `handoff stats`, or `handoff watch` for one job"
        )
        return OK
    jobs = client_of_broker()
    if not (sys.stdin.isatty() and stdout().is_terminal):
        stdout().print(stats.StatsColumns(stats.stats_now(jobs.store, jobs.store.fleet_load.now())))
        return OK
    from handoff_queue.supervisor.client.client import onlooker_of

    end_like_ctrl_c()
    with key_presses() as pressed, Live(console=stdout(), screen=True, auto_refresh=False) as live:
        screen, key = FleetScreen(onlooker_of(jobs)), ""
        while key not in ("q", GONE):
            screen.press(key)
            live.update(screen.draw(), refresh=True)
            key = pressed(every)
    return OK


class FleetScreen:
    """Screen with the fleet, or with one job."""

    def __init__(self, jobs: Client) -> None:
        self._jobs = jobs
        self._spending = Spending()
        self._rows: tuple[RunningHandoff, ...] = ()
        self._open: JobView | None = None

    def press(self, key: str) -> None:
        if key == ESCAPE:
            self._open = None
        elif self._open is None and (job_id := job_of(self._rows, key)):
            self._open = JobView(job_id)

    def draw(self) -> RenderableType:
        try:
            if self._open is None:
                return self._fleet()
            return self._job(self._open)
        except StoreUnavailable as error:
            return Text(f"{error} (trying again)", style="yellow")

    def _fleet(self) -> RenderableType:
        load = self._jobs.store.fleet_load.now()
        found = stats.stats_now(self._jobs.store, load)
        self._spending.add(found.at, found.spent_today.microusd, found.spent_today.tokens)
        self._rows = longest(load)
        return fleet(found, load.at, self._rows, self._spending)

    def _job(self, view: JobView) -> RenderableType:
        events = self._jobs.store.journal.read(view.job_id, view.version)
        seen, _ = look_below(self._jobs, look(self._jobs, heard(self._jobs, view, events)))
        keys = Text("Esc: back   q: end", style="dim")
        if seen.books is None:
            return Group(Text(f"{view.job_id} was deleted", style="yellow"), keys)
        self._open = seen
        return Group(picture(seen, below=1), keys)


def longest(load: FleetLoad) -> tuple[RunningHandoff, ...]:
    """Return the running handoffs, the longest-running first."""
    return tuple(sorted(load.at_work, key=lambda one: (one.since, one.job_id, one.handoff_id)))


_COLUMNS = (
    Column("", 0, is_text=True),
    Column("job", 4, is_text=True),
    Column("handoff", 0, is_text=True, least=14),
    Column("role", 5, is_text=True),
    Column("for", 1),
    Column("turn", 2),
    Column("doing", 3, is_text=True, least=12, cut=short),
)
_HEADING = 3
"""Lines around the rows of the table: an empty line, the heading and a rule."""
_LEAST_ROWS = 3
_LEAST_ABOVE = 9
"""Least lines for the fleet with its busy roles. With fewer lines, running handoffs are only
counted.
"""


@dataclass(frozen=True)
class _Fleet:
    """The part of the fleet that fits the terminal. Idle roles are left out first; the keys always
    stay.
    """

    found: FleetStats
    at: float
    rows: tuple[RunningHandoff, ...]
    spending: Spending

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        most = self.rows[:MOST_HANDOFFS]
        height, inside = (
            options.size.height if console.is_terminal else sys.maxsize,
            options.update(height=None),
        )
        for folds_idle in (False, True):
            above = console.render_lines(
                Group(stats.StatsColumns(self.found, folds_idle), Text(str(self.spending))), inside
            )
            room = height - len(above) - _HEADING - 1
            if room >= len(most):
                break
        rows = most[: max(0, min(_LEAST_ROWS, height - _HEADING - 1), room)]
        table = len(rows) + _HEADING
        if height - table - 1 < min(len(above), _LEAST_ABOVE):
            rows, table = (), 0
        left = len(self.rows) - len(rows)
        if left:
            if rows:
                more = f"   and {left:,} more running"
            else:
                more = f"   {left:,} running"
        else:
            more = ""
        hint = Text(
            f"1-9: open a job   q: end{more}", style="dim", no_wrap=True, overflow="ellipsis"
        )
        for line in above[: max(0, height - table - 1)]:
            yield from (*line, Segment.line())
        if table:
            yield from (Text(""), _at_work(rows, self.at, options.max_width))
        yield hint


def fleet(
    found: FleetStats, at: float, rows: tuple[RunningHandoff, ...], spending: Spending
) -> RenderableType:
    """Return the whole screen. Pure."""
    return _Fleet(found, at, rows, spending)


def _at_work(rows: tuple[RunningHandoff, ...], at: float, width: int) -> RenderableType:
    cells = []
    for n, one in enumerate(rows):
        if one.parked_until is not None:
            doing = f"waits: {one.doing}"
        else:
            doing = one.doing or "starting"
        lasted, key = f"{max(0.0, at - one.since):.0f} s", KEYS[n] if n < len(KEYS) else ""
        cells.append(
            (
                (
                    key,
                    one.job_id,
                    one.handoff_id,
                    one.role,
                    lasted,
                    str(one.turns + 1),
                    short(doing, 60),
                ),
                "default",
            )
        )
    return fit_table(_COLUMNS, cells, width)


def job_of(rows: tuple[RunningHandoff, ...], key: str) -> JobId | None:
    """Return the job of the row with this key."""
    if len(key) == 1:
        n = KEYS.find(key)
    else:
        n = -1
    if 0 <= n < len(rows):
        return rows[n].job_id
    return None
