"""`handoff stats`: what the fleet has to do, for people and for autoscalers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shared.wire.events import DEFAULT_TENANT
from shared.wire.names import ROLES, THINK_QUEUE
from supervisor.cli.errors import OK
from supervisor.cli.jobs import client_of_broker
from supervisor.cli.options import AsJson
from supervisor.cli.terminal import figures, plain, stdout, write_line
from supervisor.fleet_stats import FleetStats, RoleStats, stats_of

if TYPE_CHECKING:
    from shared.ledger.ledger import Ledger
    from shared.ledger.load import Lane, Load


def stats(as_json: AsJson = False) -> int:
    """What the fleet has to do: slots, queues, quota, spending.

    `wanted_slots` of a role is what an autoscaler scales by: slots that would have something to do, and that the limits of
    the model that it calls would let work.

      handoff stats --json | jq '.roles[] | {role, wanted_slots}'
    """
    ledger = client_of_broker().ledger
    found = stats_now(ledger, ledger.loads.now())
    if as_json:
        write_line(json.dumps(found.as_json(), ensure_ascii=False))
    else:
        stdout().print(shown(found))
    return OK


def stats_now(ledger: Ledger, load: Load) -> FleetStats:
    """With who is there, what handoffs have taken, and what was spent today.

    Raises:
        LedgerUnavailable: Redis is away.
    """
    served = ledger.roles.served()
    samples, _ = ledger.history.read({*served, *load.waiting, *ROLES})
    return stats_of(load, served, samples, ledger.days.today(DEFAULT_TENANT).installation, ledger.loads.window_s)


def shown(found: FleetStats) -> RenderableType:
    """A table of the roles, and a line for each of the rest."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("role", "workers", "slots", "busy", "queued", "oldest", "parked", "a handoff", "wanted"):
        table.add_column(name, justify="left" if name == "role" else "right", no_wrap=True)
    for role in (*found.roles, found.thinking):
        table.add_row(*_cells(role), style=_style(role))
    return Group(Text(headline(found)), table, *(Text(line, style="yellow") for line in _lines(found)))


def headline(found: FleetStats) -> str:
    """`3 open jobs  2 supervisors  $0.5 of $2, 1,200 tokens today`."""
    who = figures(found.supervisors, "supervisor") if found.supervisors else "no supervisor"
    memory = f"Redis {found.used_memory_bytes / 1e6:.0f} MB" + (f" of {found.max_memory_bytes / 1e6:.0f}" if found.max_memory_bytes else "")
    return "  ".join((figures(found.open_jobs, "open job"), who, f"{found.spent_today} today", memory))


def _cells(role: RoleStats) -> tuple[str, ...]:
    name = plain(role.role) + (" (paused)" if role.is_paused else "")
    return (
        name,
        str(role.workers) if role.workers else "-",
        str(role.slots) if role.slots else "-",
        str(role.busy),
        str(role.queued),
        "" if role.oldest_s is None else f"{role.oldest_s:.0f} s",
        str(role.parked or ""),
        "" if role.seconds is None else f"{role.seconds:.1f} s",
        str(role.wanted_slots),
    )


def _style(role: RoleStats) -> str:
    if role.queued and not role.slots and role.role != THINK_QUEUE:
        return "red"
    return "yellow" if role.is_paused or role.wanted_slots > role.slots > 0 else "default" if role.busy or role.queued else "dim"


def _lines(found: FleetStats) -> Iterator[str]:
    yield from (_lane(lane, found.at) for lane in found.lanes)
    if found.dead_letters:
        yield f"{figures(found.dead_letters, 'dead letter')}: handoff dead list"


def _lane(lane: Lane, at: float) -> str:
    left = ", ".join(f"{name} {one.remaining:,} of {one.limit:,} left" for name, one in lane.limits.items())
    held = f"; no call for {lane.refused_until - at:.0f} s: {plain(lane.why)}" if lane.refused_until else ""
    line = f"; {figures(lane.waiting, 'call')} in line" if lane.waiting else ""
    return f"{plain(lane.model)}: {left or 'no limits known'}{held}{line}"
