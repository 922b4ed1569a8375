"""Runs labelled requests through the router: its brief, its prompt, the agent loop, and the
SDK's client with the offline model.

Labels are one JSON object a line. `route` is the right route. `specialist` is the specialist
of a `single` request. `specialists` are the user's own specialists with their descriptions, in
addition to the built-in ones. Results of `held_out` requests are not used to tune the offline
model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from handoff_queue.shared.agent.loop import Agent
from handoff_queue.shared.agent.opening_message import LoadedPayloads, build_opening
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.system_prompt import AnswerForm
from handoff_queue.shared.providers.anthropic.client_factory import create_model
from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.shared.specialists import load_specialists
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
from handoff_queue.shared.types.ids import StepId, build_handoff_id
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.model import Model
from handoff_queue.supervisor.lifecycle.routing import GENERALIST
from handoff_queue.supervisor.roles.briefs import Candidate, build_route_brief, read_role
from handoff_queue.supervisor.roles.router import Route, RouteFormat, find_route_specialists
from handoff_queue.workers.specialists import BUILT_IN
from tests.doubles.handoffs import JOB, a_tool_context
from tests.doubles.memory_checkpoints import MemoryCheckpoints

OWN_TOOLS = ("search_documents", "read_document")
"""Tools of the user's own specialists."""
REQUESTS = Path(__file__).parent / "requests.jsonl"


@dataclass(frozen=True, slots=True)
class Labelled:
    """A request and its right route."""

    request: str
    team: bool
    specialist: str | None
    """The right specialist; None: a team's plan decides."""
    own_specialists: Mapping[str, str] = field(default_factory=dict)
    """Specialists in addition to the built-in ones, with their descriptions."""
    held_out: bool = False


@dataclass(frozen=True, slots=True)
class RoutedRequest:
    """A labelled request and its actual route."""

    label: Labelled
    route: Route
    calls: int = 0

    @property
    def is_way_right(self) -> bool:
        return self.route.team == self.label.team

    @property
    def is_specialist_right(self) -> bool:
        """Return whether the specialist is right. Only asked for single requests; a team is
        wrong for them.
        """
        return not self.route.team and self.route.specialist == self.label.specialist

    @property
    def is_right(self) -> bool:
        return self.is_way_right and (self.label.team or self.is_specialist_right)


def load_labels() -> tuple[Labelled, ...]:
    items: list[Labelled] = []
    for line in REQUESTS.read_text(encoding="utf-8").splitlines():
        items.append(_parse_label(json.loads(line)))
    return tuple(items)


def make_constant_router(route: Route) -> Callable[[Labelled], RoutedRequest]:
    """Return a router that gives every request the same route, without a call."""
    return lambda label: RoutedRequest(label, route)


ALWAYS_SINGLE = make_constant_router(Route(team=False, specialist=GENERALIST))
ALWAYS_TEAM = make_constant_router(Route(team=True, specialist=GENERALIST))


def route_requests(labels: Iterable[Labelled]) -> Iterator[RoutedRequest]:
    """Run each request through the router, with the offline model."""
    built_in: list[Candidate] = []
    for spec in load_specialists(BUILT_IN).values():
        built_in.append(Candidate(spec.name, spec.description, spec.tools))
    model = create_model(Settings(offline=True))
    for label in labels:
        result = _build_result(
            label.request,
            [
                *built_in,
                *(
                    Candidate(name, description, OWN_TOOLS)
                    for name, description in label.own_specialists.items()
                ),
            ],
            model,
        )
        assert result.output is not None, f"{label.request[:60]}: {result.error}"
        yield RoutedRequest(label, Route.from_value(result.output), result.turns)


def compute_share(cases: Iterable[bool]) -> float:
    """Return the share of true cases, 0.0 to 1.0."""
    known = list(cases)
    return sum(known) / len(known)


def compute_way_accuracy(results: Iterable[RoutedRequest]) -> float:
    return compute_share(each.is_way_right for each in results)


def compute_specialist_accuracy(results: Iterable[RoutedRequest]) -> float:
    """Return the accuracy for requests for one specialist."""
    return compute_share(each.is_specialist_right for each in results if not each.label.team)


def _build_result(request: str, candidates: list[Candidate], model: Model) -> HandoffResult:
    spec = read_role("router")
    step = StepId(spec.name)
    handoff = AgentHandoff(
        handoff_id=build_handoff_id(step, 1),
        job_id=JOB,
        step_id=step,
        attempt=1,
        assigned_to=spec.name,
        specialist=compute_digest(spec.to_json()),
        task_description=build_route_brief(request, candidates),
        expected_output_format=dict(
            RouteFormat(tuple(candidate.name for candidate in candidates)).schema
        ),
        limits=HandoffLimits(max_turns=spec.max_turns, max_output_tokens=spec.max_output_tokens),
    )
    dependencies = RunDependencies(
        model=model,
        model_name=OFFLINE_MODEL,
        answer_format=RouteFormat(find_route_specialists(handoff.expected_output_format)),
        prices=Prices(is_free=True),
        tool_context=a_tool_context(),
    )
    agent = Agent(
        handoff,
        spec,
        build_opening(handoff, spec, LoadedPayloads(), form=AnswerForm.OWN),
        dependencies,
    )
    return agent.run(MemoryCheckpoints(), handoff.limits.deadline)


def _parse_label(line: Mapping[str, Any]) -> Labelled:
    own_specialists, held_out = line.get("specialists", {}), line.get("held_out", False)
    return Labelled(
        line["request"], line["route"] == "team", line["specialist"], own_specialists, held_out
    )
