"""Jobs as `handoff list` shows them: a line each where there is room, a few short ones where there is not. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from shared.ledger.jobs import JobStanding
from shared.wire.usage import cost_usd
from supervisor.cli.terminal import clock, figures, money, short

LINE_COLUMNS = 120
"""Below, a job's title would be a word or two."""
_MOST_TITLE_CHARS = 60


def listed(job: JobStanding, columns: int) -> Iterator[str]:
    """The job's id stands first and whole, however narrow the terminal is."""
    tokens, at_most = job.input_tokens + job.output_tokens, job.cut_calls > 0
    cost = money(cost_usd(job.cost_microusd), at_most=at_most)
    took = (figures(job.turns, "turn"), figures(tokens, "token", at_most=at_most), cost)
    if columns >= LINE_COLUMNS:
        line = f"{job.job_id}  {job.status:<9}  {clock(job.submitted_at)}  {took[0]:>9}  {took[1]:>16}  {took[2]:>12}  "
        yield line + short(job.title, min(_MOST_TITLE_CHARS, columns - len(line)))
        yield from (f"    {line}" for line in job.waiting_for.split("; ") if line)
        return
    yield f"{job.job_id}  {job.status}  {clock(job.submitted_at)}"
    yield f"  {'  '.join(took)}"
    yield f"  {short(job.title, max(20, columns - 2))}"
    for line in job.waiting_for.split("; "):
        yield from textwrap.wrap(
            line,
            max(20, columns),
            initial_indent="  ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
