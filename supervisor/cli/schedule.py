"""`handoff schedule`: add, list, show, pause, unpause, run and remove schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.limits import MAX_USD
from handoff_queue.shared.types.schedule import Missed, Overlap
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.cli.connection import connect_to_broker
from handoff_queue.supervisor.cli.display.terminal import (
    format_money,
    print_message,
    shorten,
    write_as_json,
    write_line,
)
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import (
    ADVANCED,
    AfterLast,
    AsJson,
    RequestText,
    convert_amount,
    list_given_options,
)
from handoff_queue.supervisor.cli.request_options import (
    JobOptions,
    build_request,
    read_request_text,
    with_job_options,
)

if TYPE_CHECKING:
    from handoff_queue.shared.types.schedule import ScheduleStatus
    from handoff_queue.supervisor.client.client import Client
    from handoff_queue.supervisor.client.schedules import ScheduleOptions

SCHEDULE = "Schedule"
LAST = "last"
"""Value of `--after`: the last job of the schedule."""


class ScheduleAction(StrEnum):
    """Actions of `handoff schedule`."""

    LIST = "list"
    ADD = "add"
    SHOW = "show"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    RUN = "run"
    REMOVE = "remove"


_TAKES = {
    ScheduleAction.LIST: "--tenant and --json",
    ScheduleAction.SHOW: "a NAME, --tenant and --json",
    ScheduleAction.PAUSE: "a NAME, --tenant and --json",
    ScheduleAction.UNPAUSE: "a NAME, --tenant and --json",
    ScheduleAction.RUN: "a NAME and --tenant",
    ScheduleAction.REMOVE: "a NAME and --tenant",
}
"""The options and arguments of each action. The action `add` takes all options."""


@partial(with_job_options, own_annotations={"after": AfterLast})
def schedule(
    context: typer.Context,
    job: JobOptions,
    action: Annotated[
        ScheduleAction,
        typer.Argument(
            metavar="ACTION", help="list, add, show, pause, unpause, run (now) or remove."
        ),
    ] = ScheduleAction.LIST,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The name of the schedule.")
    ] = None,
    request: RequestText = None,
    cron: Annotated[
        str | None,
        typer.Option(
            metavar="CRON",
            help='Minute, hour, day, month and weekday, such as "0 9 * * mon-fri"; or @daily.',
            rich_help_panel=SCHEDULE,
        ),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE",
            help="The zone of the times: Europe/Berlin. Default: UTC.",
            rich_help_panel=SCHEDULE,
        ),
    ] = None,
    overlap: Annotated[
        Overlap | None,
        typer.Option(
            help="What happens while an earlier job runs. Default: skip the slot.",
            rich_help_panel=SCHEDULE,
        ),
    ] = None,
    missed: Annotated[
        Missed | None,
        typer.Option(
            help="Slots to make up for if no supervisor ran. Default: last.",
            rich_help_panel=SCHEDULE,
        ),
    ] = None,
    max_usd_per_month: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            min=0,
            max=MAX_USD,
            help="Skip slots after the jobs of a month have spent this.",
            rich_help_panel=SCHEDULE,
        ),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The URL that gets a signed POST when a job ends.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Start a job at the times of a cron expression.

    The supervisors start each slot once. `--after last` lets each job continue the last one.

    handoff schedule add weekly --cron "0 9 * * mon" -- "What is new?"

    handoff schedule pause weekly
    """
    if action is ScheduleAction.ADD:
        if name is None or cron is None or request is None:
            values = {"a NAME": name, "--cron": cron, "a REQUEST": request}
            missing = [part for part, value in values.items() if value is None]
            raise UserError(
                f"`handoff schedule add` needs a NAME, --cron and a REQUEST: add"
                f" {' and '.join(missing)}"
            )
        options = _build_schedule_options(job, cron, timezone, overlap, missed, max_usd_per_month)
        request_options = replace(job, after=None).build_request_options()
        request_options = replace(
            request_options, request=read_request_text(request, load_settings()), webhook=webhook
        )
        jobs = connect_to_broker()
        entry = jobs.add_schedule(name, build_request(request_options, jobs), options)
        _print([entry], job.tenant, as_json=as_json)
        return OK
    others = {cron, timezone, overlap, missed, max_usd_per_month, webhook, request}
    if others != {None} or replace(job, tenant=DEFAULT_TENANT) != JobOptions():
        raise UserError(f"`handoff schedule {action}` takes {_TAKES[action]} only")
    if action is ScheduleAction.LIST:
        if name is not None:
            raise UserError(f"`handoff schedule list` takes no NAME: use `show {name[:48]}`")
        tenant = None
        if "--tenant" in list_given_options(context):
            tenant = job.tenant
        _print(connect_to_broker().schedules(tenant), tenant, as_json=as_json)
        return OK
    if as_json and action in (ScheduleAction.RUN, ScheduleAction.REMOVE):
        raise UserError(f"`handoff schedule {action}` takes no --json: leave it out")
    if name is None:
        raise UserError(f"`handoff schedule {action}` needs a NAME (see `handoff schedule list`)")
    _act(connect_to_broker(), action, name, job.tenant, as_json=as_json)
    return OK


def _build_schedule_options(
    job: JobOptions,
    cron: str,
    timezone: str | None,
    overlap: Overlap | None,
    missed: Missed | None,
    max_usd_per_month: float | None,
) -> ScheduleOptions:
    """Return the options of a schedule. Options without a value get their defaults.

    Raises:
        UserError: `--after` names another job than the schedule's own last job, or the amount
            cannot be used.
    """
    from handoff_queue.supervisor.client.schedules import ScheduleOptions

    if job.after not in (None, LAST):
        raise UserError("a schedule continues its own last job only: write --after last")
    return ScheduleOptions(
        cron=cron,
        timezone="UTC" if timezone is None else timezone,
        overlap=overlap or Overlap.SKIP,
        missed=missed or Missed.LAST,
        max_microusd_per_month=convert_amount("--max-usd-per-month", max_usd_per_month),
        follows_last=job.after == LAST,
    )


def _act(jobs: Client, action: ScheduleAction, name: str, tenant: str, *, as_json: bool) -> None:
    match action:
        case ScheduleAction.SHOW:
            _print_schedule(jobs.schedule(name, tenant), as_json=as_json)
        case ScheduleAction.PAUSE:
            _print([jobs.pause_schedule(name, tenant)], tenant, as_json=as_json)
        case ScheduleAction.UNPAUSE:
            _print([jobs.unpause_schedule(name, tenant)], tenant, as_json=as_json)
        case ScheduleAction.RUN:
            write_line(jobs.run_schedule(name, tenant))
        case ScheduleAction.REMOVE:
            jobs.remove_schedule(name, tenant)
            write_line(f"schedule {name} is removed; its jobs stay")
        case ScheduleAction.LIST | ScheduleAction.ADD:
            raise AssertionError("these actions need no schedule")


def _print(schedules: Sequence[ScheduleStatus], tenant: str | None, *, as_json: bool) -> None:
    """Print a line for each schedule.

    Args:
        tenant: tenant of the schedules; None: all tenants.
    """
    if as_json:
        write_as_json([entry.model_dump(mode="json") for entry in schedules])
        return
    for entry in schedules:
        owner = ""
        if entry.tenant != DEFAULT_TENANT:
            owner = f"  tenant {shorten(entry.tenant, 40)}"
        write_line(f"{entry.name}  {entry.cron}  {_next(entry)}{owner}  {shorten(entry.title, 60)}")
        if entry.note:
            write_line(f"  {shorten(entry.note, 200)}")
    if not schedules:
        owner = ""
        if tenant is not None:
            owner = f" of tenant {shorten(tenant, 40)}"
        print_message(
            f"there are no schedules{owner} (`handoff schedule add NAME --cron ... -- REQUEST`)"
        )


def _print_schedule(entry: ScheduleStatus, *, as_json: bool) -> None:
    if as_json:
        write_as_json(entry.model_dump(mode="json"))
        return
    spending = format_money(to_usd(entry.spent_microusd))
    if entry.max_microusd_per_month is not None:
        spending += f" of {format_money(to_usd(entry.max_microusd_per_month))}"
    waiting = ""
    if entry.waiting:
        waiting = f"{len(entry.waiting)} slots"
    facts = {
        "request": shorten(entry.title, 100),
        "tenant": shorten(entry.tenant, 100),
        "cron": f"{entry.cron} ({entry.timezone})",
        "next": _next(entry).removeprefix("next "),
        "overlap": entry.overlap,
        "missed": entry.missed,
        "this month": spending,
        "jobs": f"{entry.started} started, {entry.skipped} slots skipped",
        "waiting": waiting,
        "running": " ".join(entry.running),
        "last job": entry.last_job or "",
        "after": LAST if entry.follows_last else "",
        "note": shorten(entry.note, 200),
    }
    write_line(entry.name)
    for label, fact in facts.items():
        if fact:
            write_line(f"  {label + ':':12} {fact}")


def _next(entry: ScheduleStatus) -> str:
    """Return the next slot in words."""
    from handoff_queue.supervisor.client.cron import format_slot

    if entry.next_slot is None:
        return "paused"
    return f"next {format_slot(entry.next_slot, entry.timezone)}"
