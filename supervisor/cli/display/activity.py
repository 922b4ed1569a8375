"""Activity of a job: its running handoffs, and the handoffs without a heartbeat. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.names import ROLES
from handoff_queue.shared.types.presence import WAITS_FOR
from handoff_queue.supervisor.cli.display.job_status import (
    format_usage_and_quote,
    list_usage_and_limits,
)
from handoff_queue.supervisor.cli.display.job_view import JobView
from handoff_queue.supervisor.cli.display.terminal import shorten

EVERY_S = 4.5
"""Seconds between two lines about activity in a log. With one tick of the view this stays
below 5 seconds, the longest time without a line about a running handoff.
"""
SILENT_AFTER_S = 5.0
"""Seconds after which a handoff counts as silent. `shared.store.leases` writes a heartbeat
more often, so its process or its Redis has a problem.
"""
MAX_HANDOFFS_A_LINE = 4
"""Most handoffs in one line. Silent handoffs come first."""


def format_name(event: HandoffIssued) -> str:
    """Return a name such as `left (researcher)`, `planner`, or `left (researcher) 2` for
    attempt 2.
    """
    name = event.assigned_to
    if event.assigned_to not in ROLES:
        name = f"{event.step_id} ({event.assigned_to})"
    if event.attempt == 1:
        return name
    return f"{name} {event.attempt}"


def describe_silence(now: float, info: HandoffInfo) -> str:
    """Return a text such as `no heartbeat for 7 s`, or an empty text."""
    if info.heartbeat_at is None or now - info.heartbeat_at <= SILENT_AFTER_S:
        return ""
    return f"no heartbeat for {now - info.heartbeat_at:.0f} s"


def is_deferred(info: HandoffInfo, now: float) -> bool:
    """Return whether a handoff waits without a slot, such as for the rate limits of its
    provider.
    """
    if info.state in ("running", "done", "dropped"):
        return False
    return info.deferred_until is not None and info.deferred_until > now


def describe_deferral(info: HandoffInfo, now: float) -> str:
    """Return how long a deferred handoff waits, and why: `waits 40 s: rate limit`, or `waits for
    approval of send_mail`, or `waits for batch msgbatch_1 since 2026-11-29 09:00:00 UTC`.
    """
    if info.doing.startswith(WAITS_FOR):
        return info.doing
    return f"waits {(info.deferred_until or now) - now:.0f} s: {info.doing}"


def describe_tools(info: HandoffInfo | None) -> str:
    """Return a text such as `3 tool calls`, or an empty text before the first answered call."""
    if info and info.tool_calls:
        return format_count(info.tool_calls, "tool call")
    return ""


def describe_lost_claims(count: int) -> str:
    """Return a text such as `1 lost claim`, or an empty text. A handoff runs again after a claim
    whose process was lost.
    """
    return format_count(count, "lost claim") if count else ""


def format_activity(view: JobView) -> str | None:
    """Return a line about the running and deferred handoffs of the job and its child jobs.

    The line begins with the usage of the job, and silent handoffs come first. Return None if
    there is no such handoff.
    """
    silent: list[str] = []
    others: list[str] = []
    for activity in _iterate_activities(view):
        if activity.is_silent:
            silent.append(activity.text)
        else:
            others.append(activity.text)
    activities = silent + others
    if not activities or view.job is None or view.state is None:
        return None
    visible_activities = activities[:MAX_HANDOFFS_A_LINE]
    if len(activities) > MAX_HANDOFFS_A_LINE:
        visible_activities.append(f"and {len(activities) - MAX_HANDOFFS_A_LINE} more")
    so_far = ", ".join(list_usage_and_limits(view.job, view.state.submitted.limits))
    quote_text = ""
    quote = format_usage_and_quote(view)
    if quote:
        quote_text = f" ({quote})"
    return f"so far {so_far}{quote_text}; running: {'; '.join(visible_activities)}"


class _Activity(NamedTuple):
    """A running or deferred handoff."""

    text: str
    is_silent: bool = False


def _iterate_activities(view: JobView, before: str = "") -> Iterator[_Activity]:
    """Yield the running and deferred handoffs of a job and its child jobs.

    Args:
        before: beginning of each text.
    """
    for job_id in view.child_handoffs:
        child = view.children.get(job_id)
        if child:
            yield from _iterate_activities(child, f"{job_id} ")
    for event in view.issued:
        info = view.handoffs.get(event.handoff_id)
        if info is None or event.child is not None or event.handoff_id in view.finished:
            continue
        if is_deferred(info, view.now):
            yield _Activity(f"{before}{format_name(event)} {describe_deferral(info, view.now)}")
        elif info.state == "running":
            running_s = max(0.0, view.now - (info.started_at or view.now))
            silent = describe_silence(view.now, info)
            parts = [
                f"{before}{format_name(event)} turn {info.turns + 1}",
                shorten(info.doing or "starting", 60),
                describe_tools(info),
                f"{running_s:.0f} s",
                silent,
            ]
            yield _Activity(", ".join(filter(None, parts)), bool(silent))
