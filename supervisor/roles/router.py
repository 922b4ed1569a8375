"""The router's answer: a team or one specialist for a request, and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer, LenientAnswer
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import NameField
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.plan import MAX_PLAN_WHY_CHARS
from handoff_queue.supervisor.lifecycle.routing import choose_default_specialist
from handoff_queue.supervisor.roles.answer_text import (
    build_id,
    build_object_schema,
    clip,
    list_values,
    parse,
)


class RouteChoice(StrEnum):
    SINGLE = "single"
    TEAM = "team"


class Route(Message):
    """The router's decision."""

    team: bool
    specialist: NameField
    """The specialist that does the request alone; for a team, the best single specialist."""
    why: str = ""


class RouteAnswer(LenientAnswer):
    route: str
    specialist: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class RouteFormat:
    """Format of the answer to `briefs.build_route_brief`. `AcceptedAnswer.output` is the JSON form
    of a `Route`.
    """

    specialists: tuple[str, ...]
    """Specialists that live workers announce."""

    @property
    def schema(self) -> Mapping[str, Any]:
        text = {"type": "string"}
        properties = {
            "route": {**text, "enum": list_values(RouteChoice)},
            "specialist": {
                **text,
                "enum": sorted(self.specialists) or [choose_default_specialist(())],
                "description": (
                    "the specialist that does it alone; for a team, the best single specialist"
                ),
            },
            "why": {**text, "description": "one sentence for the user"},
        }
        return build_object_schema(properties)

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Read a route. A team needs no valid specialist, because its plan names the
        specialists.

        Raises:
            InvalidAnswer: the route is neither of the two, or it is an unknown specialist alone. On
                the last try, the generalist replaces an unknown specialist, with a note.
        """
        answer = parse(RouteAnswer, text)
        is_team = _parse_choice(answer.route) is RouteChoice.TEAM
        specialist = ""
        if answer.specialist:
            specialist = build_id(answer.specialist)
        notes: tuple[str, ...] = ()
        if specialist not in self.specialists:
            if not is_team:
                notes = (self._describe_unknown_specialist(specialist, last_try=last_try),)
            specialist = choose_default_specialist(self.specialists)
        why = clip(answer.why or "", MAX_PLAN_WHY_CHARS)
        route = Route(team=is_team, specialist=specialist, why=why)
        return AcceptedAnswer(ResultStatus.OK, route.model_dump(mode="json"), notes=notes)

    def _describe_unknown_specialist(self, specialist: str, *, last_try: bool) -> str:
        """Return the note about a specialist that is not offered; '' means that none was
        named.

        Raises:
            InvalidAnswer: this is not the last try.
        """
        problem = "no specialist was named"
        if specialist:
            problem = f"there is no specialist {specialist}"
        if not last_try:
            known_specialists = ", ".join(sorted(self.specialists)) or choose_default_specialist(())
            raise InvalidAnswer(
                "specialist must be the name of the specialist that does the request alone;"
                f" {problem} (known: {known_specialists})"
            )
        return (
            f"the router chose an unknown specialist ({problem}):"
            f" {choose_default_specialist(self.specialists)} takes it"
        )


def find_route_specialists(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the specialists in a `RouteFormat.schema`. They were served when the handoff was
    issued.
    """
    return tuple(schema.get("properties", {}).get("specialist", {}).get("enum", ()))


def _parse_choice(text: str) -> RouteChoice:
    """Return the route in a text.

    Raises:
        InvalidAnswer: the text is neither of the two routes.
    """
    try:
        return RouteChoice(build_id(text))
    except ValueError as error:
        raise InvalidAnswer(
            f"route must be {RouteChoice.SINGLE} or {RouteChoice.TEAM}, not {clip(text, 40)!r}"
        ) from error
