"""Display of a running job: a live tree on a terminal, lines in a log, and the draft of the
answer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rich.live import Live

from handoff_queue.supervisor.cli.display.activity import EVERY_S, format_activity
from handoff_queue.supervisor.cli.display.answer import Draft
from handoff_queue.supervisor.cli.display.event_lines import list_changes
from handoff_queue.supervisor.cli.display.job_view import JobUpdate, JobView
from handoff_queue.supervisor.cli.display.terminal import get_stderr, print_progress, write
from handoff_queue.supervisor.cli.display.tree import render_tree

_FRAMES_PER_S = 8
"""Times in a second at which the screen is drawn again."""


class Screen:
    """Display of one job, for `with Screen(draft) as screen: screen.show(update)`.

    Without a draft, the answer is not shown while the model writes it.
    """

    def __init__(self, draft: Draft | None) -> None:
        self._draft = draft
        self._parts = ExitStack()
        self._live: Live | None = None
        self._before: JobView | None = None
        self._has_error = False
        self._activity_at: float | None = None
        """Time of the last line about activity in a log, in Unix seconds of Redis's clock."""

    def __enter__(self) -> Self:
        console = get_stderr()
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = self._parts.enter_context(
                Live(console=console, transient=True, refresh_per_second=_FRAMES_PER_S)
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_live()
        if self._draft is not None and self._draft.returned_text and kind is not None:
            write("\n")

    def show(self, moment: JobUpdate) -> None:
        """Draw the tree or print the new lines, then print the new part of the draft."""
        if moment.error is not None:
            if not self._has_error:
                self._print_line(f"{moment.error} (trying again)")
            self._has_error = True
            return
        if self._has_error:
            self._print_line("Redis is back")
        self._has_error = False
        if self._live is not None:
            self._live.update(render_tree(moment.view))
        elif not self._shares_the_terminal():
            for line in (*list_changes(self._before, moment), *self._iterate_activity(moment.view)):
                print_progress(line)
        self._before = moment.view
        self._print_draft(moment.view)

    def _iterate_activity(self, view: JobView) -> Iterator[str]:
        """Yield a line about activity every few seconds while handoffs run."""
        if self._activity_at is None:
            self._activity_at = view.now
        if view.now - self._activity_at < EVERY_S:
            return
        line = format_activity(view)
        if line:
            self._activity_at = view.now
            yield line

    def _print_draft(self, view: JobView) -> None:
        """Write the new part of the draft to stdout."""
        text = self._draft.take_new_part(view) if self._draft else ""
        if not text:
            return
        if sys.stdout.isatty():
            self._end_live()  # the tree would overwrite the answer
        write(text)

    def _shares_the_terminal(self) -> bool:
        """Return whether stdout, a terminal, already shows a part of the answer. Lines would
        mix with it.
        """
        return self._draft is not None and bool(self._draft.returned_text) and sys.stdout.isatty()

    def _print_line(self, line: str) -> None:
        """Print a line above the tree, or on stderr without a tree."""
        if self._live is not None:
            self._live.console.print(line)
        else:
            print_progress(line)

    def _end_live(self) -> None:
        self._parts.close()
        self._live = None
