"""The router's answer: one specialist or a team for a request, its name, and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.json_answers import LenientAnswer
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import NameField
from handoff_queue.shared.types.message import Message
from handoff_queue.supervisor.lifecycle.routing import all_rounder
from handoff_queue.supervisor.roles.answer_text import clip, name_of, parse

LONGEST_WHY = 2_000


class RouteChoice(StrEnum):
    SINGLE = "single"
    TEAM = "team"


class Route(Message):
    """Destination of a request."""

    team: bool
    specialist: NameField
    """The specialist that does it alone; for a team, the specialist that would do it alone."""
    why: str = ""


class RouteAnswer(LenientAnswer):
    route: str
    specialist: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class RouteFormat:
    """Reads the answer to `briefs.route_brief`. `AcceptedAnswer.output` is a `Route` as JSON; `Route.of`
    makes it one again.
    """

    specialists: tuple[str, ...]
    """Specialists that live workers announce."""

    @property
    def schema(self) -> Mapping[str, Any]:
        text = {"type": "string"}
        properties = {
            "route": {**text, "enum": [way.value for way in RouteChoice]},
            "specialist": {
                **text,
                "enum": sorted(self.specialists) or [all_rounder(())],
                "description": "the specialist that does it alone; for a team, the best single specialist",
            },
            "why": {**text, "description": "one sentence for the user"},
        }
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Read a route. A team's plan names its specialists later.

        Raises:
            InvalidAnswer: neither of the two routes, or an unknown specialist alone. On the last
                try the generalist takes the request instead.
        """
        answer = parse(RouteAnswer, text)
        team, notes = _way_of(answer.route) is RouteChoice.TEAM, tuple[str, ...]()
        named = ""
        if answer.specialist:
            named = name_of(answer.specialist)
        exists = named in self.specialists
        if not (exists or team):
            what = "no specialist was named"
            if named:
                what = f"there is no specialist {named}"
            if not last_try:
                there = ", ".join(sorted(self.specialists)) or all_rounder(())
                raise InvalidAnswer(
                    f"specialist must be the name of the specialist that does the request alone; {what} (there are: {there})"
                )
            notes = (
                f"the router chose an unknown specialist ({what}): {all_rounder(self.specialists)} takes it",
            )
        if exists:
            who = named
        else:
            who = all_rounder(self.specialists)
        route = Route(team=team, specialist=who, why=clip(answer.why or "", LONGEST_WHY))
        return AcceptedAnswer(ResultStatus.OK, route.model_dump(mode="json"), notes=notes)


def specialists_of_route_schema(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the specialists that a `RouteFormat.schema` offers: the specialists of its handoff,
    and not the ones that are served now.
    """
    return tuple(schema.get("properties", {}).get("specialist", {}).get("enum", ()))


def _way_of(text: str) -> RouteChoice:
    try:
        return RouteChoice(name_of(text))
    except ValueError as error:
        raise InvalidAnswer(
            f"route must be {RouteChoice.SINGLE} or {RouteChoice.TEAM}, not {clip(text, 40)!r}"
        ) from error
