"""Declarations of the tools of AgentDojo's suites, as an operator writes them for a policy."""

from __future__ import annotations

from collections.abc import Collection

from benchmarks.injection.suite import (
    ACTS,
    READS_PRIVATE,
    READS_PUBLIC,
    SENDS,
    Declaration,
)

_SENDING = {
    # workspace
    "send_email",
    "add_calendar_event_participants",
    "create_calendar_event",
    "reschedule_calendar_event",
    "cancel_calendar_event",
    "share_file",
    # banking
    "send_money",
    "schedule_transaction",
    "update_scheduled_transaction",
    # slack
    "add_user_to_channel",
    "get_webpage",
    "invite_user_to_slack",
    "post_webpage",
    "send_channel_message",
    "send_direct_message",
    # travel
    "reserve_car_rental",
    "reserve_hotel",
    "reserve_restaurant",
}
"""Tools that reach another person or host. An invitation or a reservation carries text out, and
the address of a page does, too.
"""
_ACTING = {
    "append_to_file",
    "create_file",
    "delete_email",
    "delete_file",
    "remove_user_from_slack",
    "update_password",
    "update_user_info",
}
"""Tools that change the user's own data only."""
_PUBLIC_PARTS = ("_hotels", "_restaurants", "_car_", "_flight_", "restaurant_opening_hours")
"""Parts of the names of tools that read directories of hotels, restaurants, cars and flights."""
_PUBLIC = {"get_current_day", "get_rating_reviews_for_car_rental"}


def declaration_of(tool: str) -> Declaration:
    """Return the declaration of a tool. An unknown tool is a private source that only reads."""
    if tool in _SENDING:
        return SENDS
    if tool in _ACTING:
        return ACTS
    if tool in _PUBLIC or any(part in tool for part in _PUBLIC_PARTS):
        return READS_PUBLIC
    return READS_PRIVATE


def undeclared(tools: Collection[str]) -> set[str]:
    """Return the tools that the tables above do not place, by the form of their names."""
    reading = ("get_", "search_", "read_", "list_", "check_")
    return {
        tool
        for tool in tools
        if not declaration_of(tool).has_effect and not tool.startswith(reading)
    }
