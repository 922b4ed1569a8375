"""The jobs of a run: their modes and steps, their budgets, and the faults and durations of
their model calls. Pure. `chaos.job_generator` draws the jobs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from handoff_queue.chaos.job_shapes import PLANNED, TIGHT, Shape
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.types.ids import parse_step_id
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.usage import Usage

SPECIALISTS = ("generalist", "analyst", "writer")
FACT_CHECKER = "analyst"
SWITCHING = "relay"
"""Specialist with several models, in the folder `chaos/specialists`."""
SWITCHED_MODELS = ("claude-haiku-4-5", "claude-opus-4-5")
"""Its models, in the order of its file. No other agent of a run has them, because a storm stops all
calls of a model. The second model is five times as dear.
"""
KEEPER = "keeper"
"""Specialist with the tool `memory`, in the same folder."""
SHARING = "clerk"
"""Specialist for which equal handoffs share one run, in the same folder."""
EXTERNAL = "guest"
"""Specialist that the Claude Agent SDK runs, in the same folder."""
SKIMMER = "skimmer"
"""Specialist whose requests the provider shortens, in the same folder."""
FINDS_AT = 2
"""Turns of a job that finds a note: the search, and the answer."""
FORK_SUFFIX = "-fork"
"""End of the name of a fork. The rest is the name of the forked job."""
REFUSING = (SWITCHED_MODELS[0], *SWITCHED_MODELS)
"""The model that turns calls of a handoff away is drawn from these. Without a refusal of the first
model, the second one is rarely called.
"""
STORM_S = 4.0
"""Seconds for which a refused model asks all calls to wait. The other model comes first if a wait
is longer than 2 s.
"""
ROOMY_TURNS = 60
"""Turns of a budget that a job does not reach, even with repeated calls."""
ROOMY_TREE_TURNS = 240
"""Turns of the budget of a tree of jobs, in which each child has a slice."""
UNTIL_CANCELLED_S = 30.0
"""Seconds of a call that a cancel interrupts: enough to type `handoff cancel` on a busy machine."""
LATE_S = 2.5
"""Seconds of a call of a late step."""
TROUBLE_SHARE = 0.06
"""Share of the model calls whose first try may have a fault of the provider."""
TAKES_S = (0.02, 0.2, 0.5, 0.9)
"""Durations of model calls in seconds. They are long enough for kills to hit calls in flight."""
TENANTS = ("ann", "bob", "cyd")
TIGHT_CALLS = 4
"""Calls that a tight budget allows without faults: the plan, two of twelve steps, the review."""
TIGHT_TREE_CALLS = 2 + 2 * TIGHT_CALLS
"""Calls of the plan and the review, and of two children with a slice of four calls each."""
TIGHT_MODEL = "claude-haiku-5-5"
"""Model of all agents of a job that is tight in money. With the agents' own models, one call
of its planner costs more than all of its steps.
"""
PLAIN_USAGE = Usage(input_tokens=100, output_tokens=20)
GREEDY_USAGE = Usage(input_tokens=4_000, output_tokens=6_000)
"""Usage of a call of a job that is tight in tokens or money: near its upper bound (about 6,500
to 11,100, and 8,192).
"""
TIGHT_USAGE = Usage(input_tokens=36_500, output_tokens=47_500)
"""Budget of a tight job. Half is reserved for the review, which has twelve results to read and
could cost more. The worst case of one more call fits into the other half next to the plan and one
step. It does not fit next to the plan and two steps.
"""


class Trouble(StrEnum):
    """A fault of the provider at the first try of a call."""

    BUSY = "429"
    OVERLOADED = "529"
    GARBAGE = "garbage"
    CUT = "cut"


class ModelRefusal(StrEnum):
    """How a model turns a call away that another model can serve."""

    BUSY = "429"
    """It refuses one call."""
    OVERLOADED = "529"
    """The same."""
    DECLINED = "declined"
    """It declines to answer, also when it is called again."""

    @property
    def is_storm(self) -> bool:
        return self is not ModelRefusal.DECLINED


class PlannedOutcome(StrEnum):
    """Outcome of an attempt at a step, in its specialist's words."""

    OK = "ok"
    FAILED = "failed"
    NEEDS_INPUT = "needs_input"


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A planned step: its specialist, its dependencies, its turns."""

    id: str
    specialist: str
    after: tuple[str, ...] = ()
    turns: int = 1
    """Turns of its first attempt; later attempts take one turn."""
    attempts: tuple[PlannedOutcome, ...] = (PlannedOutcome.OK,)
    enough: int | None = None
    """Number of results of `after` that suffice; None: all."""
    team: PlannedJob | None = None
    """The child job that does the step, or None if a specialist does it."""
    is_added: bool = False
    """True if the replanner adds it."""
    is_dropped: bool = False
    """True if the replanner drops it, unless it has begun."""
    helps: str = ""
    """Step whose question this step answers. The planner adds this step after the question."""

    @property
    def last(self) -> str:
        """Id of the handoff with the step's last planned attempt."""
        return f"{self.id}.{len(self.attempts)}"

    @property
    def is_in_first_plan(self) -> bool:
        """True if the step is in the first plan."""
        return not self.is_added and not self.helps


@dataclass(frozen=True, slots=True, order=True)
class CallKey:
    """Identity of a model call. Repetitions of a call have the same key."""

    job: str
    """Name of the job."""
    handoff: str
    """Id of the handoff."""
    turn: int
    """Number of the turn, from 1."""


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A planned job. `name` is unique within the run and part of every text of the job, so
    that the server knows the job of each call.
    """

    name: str
    shape: Shape
    steps: tuple[PlannedStep, ...]
    seed: int
    trouble_share: float = TROUBLE_SHARE
    mode: Mode = Mode.TEAM
    takes_from: tuple[float, ...] = TAKES_S
    """Possible durations of its calls in seconds."""
    parent: str = ""
    """Name of the parent of a child job; empty for other jobs."""
    follows: str = ""
    """Name of the job that it follows; empty for other jobs."""
    then: PlannedJob | None = None
    """Next job of the same user."""
    is_uncounted: bool = False
    """True if its calls are not compared with a plan: a schedule starts it several times, or
    messages change its turns.
    """

    @property
    def tenant(self) -> str:
        """Tenant of the job. Daily budgets and the fair order of queues are kept for each
        tenant. A job has the tenant of the job that it follows.
        """
        name = self.follows or self.name
        return random.Random(f"{self.seed} tenant {name}").choice(TENANTS)  # noqa: S311

    @property
    def priority(self) -> Priority:
        return random.Random(f"{self.seed} priority {self.name}").choice(list(Priority))  # noqa: S311

    @property
    def request(self) -> str:
        return f"chaos {self.name}"

    @property
    def is_tight(self) -> bool:
        """True if the job needs more than its budget."""
        return self.shape in TIGHT

    @property
    def is_planned(self) -> bool:
        """True if a planner plans the job."""
        return self.mode in PLANNED and self.shape is not Shape.ALONE

    @property
    def first_steps(self) -> list[PlannedStep]:
        """Steps of the first plan."""
        return [step for step in self.steps if step.is_in_first_plan]

    @property
    def has_team(self) -> bool:
        """True if an assessor reviews the results of the job."""
        return self.is_planned or self.mode is Mode.PIPELINE

    @property
    def max_turns(self) -> int:
        if self.shape is Shape.TIGHT_TREE:
            return TIGHT_TREE_CALLS
        if self.shape is Shape.TIGHT:
            return TIGHT_CALLS
        if any(step.team for step in self.steps):
            return ROOMY_TREE_TURNS
        return ROOMY_TURNS

    @property
    def limits(self) -> JobLimits:
        limits = JobLimits(max_turns=self.max_turns)
        if self.shape is Shape.TIGHT_TOKENS:
            return limits.model_copy(update={"max_tokens": TIGHT_USAGE.total_tokens})
        if self.shape is Shape.TIGHT_MONEY:
            cost = compute_price(TIGHT_USAGE, TIGHT_MODEL)
            return limits.model_copy(update={"max_microusd": cost})
        return limits

    @property
    def most_calls(self) -> int:
        """Number of calls that the budget of the job allows, without faults."""
        if self.is_tight:
            return TIGHT_CALLS
        return ROOMY_TURNS

    @property
    def model(self) -> str | None:
        """Model of all agents of the job; None: each agent has its own model."""
        if self.shape is Shape.TIGHT_MONEY:
            return TIGHT_MODEL
        return None

    @property
    def usage(self) -> Usage:
        """Usage of each call of the job."""
        if self.shape in (Shape.TIGHT_TOKENS, Shape.TIGHT_MONEY):
            return GREEDY_USAGE
        return PLAIN_USAGE

    @property
    def family(self) -> Iterator[PlannedJob]:
        """The job and all its descendants."""
        yield self
        for step in self.steps:
            if step.team:
                yield from step.team.family

    def count_tries(self, key: CallKey) -> int:
        """Return the number of tries until the call is answered."""
        return 1 + (self.draw_fault(key) is not None)

    def draw_fault(self, key: CallKey) -> Trouble | None:
        """Return the fault of the first try of this call, or None. Each handoff has at most
        one fault, because its specialist's turns allow no more.
        """
        for turn in range(1, key.turn):
            if self._draw_fault_of_turn(replace(key, turn=turn)):
                return None
        return self._draw_fault_of_turn(key)

    def find_switching_step(self, handoff: str) -> PlannedStep | None:
        """Return the step of a handoff with several models; None for other handoffs."""
        for step in self.steps:
            if step.specialist == SWITCHING and step.id == parse_step_id(handoff):
                return step
        return None

    def is_external_step(self, handoff: str) -> bool:
        """Return whether the Claude Agent SDK runs this handoff."""
        step_id = parse_step_id(handoff)
        return any(step.id == step_id and step.specialist == EXTERNAL for step in self.steps)

    def draw_refusal(self, key: CallKey, model: str) -> ModelRefusal | None:
        """Return how the model turns this call away, or None. One model of each handoff with
        several models turns calls away, from one turn on.
        """
        if self.find_switching_step(key.handoff) is None:
            return None
        dice = random.Random(f"{self.seed} {key.job} {key.handoff} refusal")  # noqa: S311
        refusing, first_turn = dice.choice(REFUSING), dice.choice((1, 2))
        if model != refusing or key.turn < first_turn:
            return None
        return dice.choice(list(ModelRefusal))

    def _draw_fault_of_turn(self, key: CallKey) -> Trouble | None:
        dice = random.Random(f"{self.seed} {key.job} {key.handoff} {key.turn}")  # noqa: S311 - a seed is the point
        is_counted = self.is_tight or self.shape in (
            Shape.TIGHT_TREE,
            Shape.SWITCHED,
            Shape.BATCHED,
            Shape.SHORTENED,
        )
        if not is_counted and dice.random() < self.trouble_share:
            return dice.choice(list(Trouble))
        return None

    def draw_seconds(self, key: CallKey) -> float:
        """Return the seconds that the server takes for this call."""
        is_plan = key.handoff.startswith(("planner", "router"))
        if self.shape in (Shape.CANCELLED, Shape.CALLED_OFF) and not is_plan:
            return UNTIL_CANCELLED_S
        if self.shape is Shape.JOINED and key.handoff == "c.1":
            return LATE_S
        dice = random.Random(f"{self.seed} {key.job} {key.handoff} {key.turn} s")  # noqa: S311
        return dice.choice(self.takes_from)


def compute_price(usage: Usage, model: str) -> int:
    """Return the price in micro-dollars, by the system's price list."""
    price = Prices().compute_microusd(usage, model)
    assert price is not None, f"{model} has no price"
    return price
