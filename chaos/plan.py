"""What is run: jobs of several shapes, out of a seed, what they may spend, and the model calls that each needs when all goes well. Pure."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum

from shared.agent.price import Prices
from shared.wire.usage import Usage

SPECIALISTS = ("generalist", "analyst", "writer")
TIGHT_SPECIALIST = "writer"
ROOMY_TURNS = 60
"""A budget that no other job comes near, whatever is repeated."""
UNTIL_CANCELLED_S = 15.0
"""Time enough to type `handoff cancel`."""
TROUBLE_SHARE = 0.06
"""Of all model calls."""


class Shape(StrEnum):
    """What a job is like."""

    PARALLEL = "parallel"
    """Three steps at once."""
    DIAMOND = "diamond"
    """One, then two, then one."""
    TOOLS = "tools"
    """Two steps of three turns, with a tool between."""
    REVISED = "revised"
    """A step is sent back once."""
    REPAIRED = "repaired"
    """The first plan cannot be read."""
    WRITTEN = "written"
    """A model writes the answer out of two results."""
    TIGHT = "tight"
    """Twelve steps at once on a budget of four calls."""
    TIGHT_TOKENS = "tight in tokens"
    """The same on a budget of tokens: what has gone, and the most that a third step's call could use, is too much."""
    TIGHT_MONEY = "tight in money"
    """The same on a budget of money."""
    CANCELLED = "cancelled"
    """Three steps at once, and its user thinks better of it."""


TIGHT = (Shape.TIGHT, Shape.TIGHT_TOKENS, Shape.TIGHT_MONEY)
TIGHT_STEPS = "abcdefghijkl"
TIGHT_CALLS = 4
"""That a tight budget lets through when nothing goes wrong: the plan, two of twelve steps, the review."""
TIGHT_MODEL = "claude-haiku-5-5"
"""Of all agents of a job that is tight in money: by their own models, one call of its planner costs more than all of its steps."""
PLAIN_USAGE = Usage(input_tokens=100, output_tokens=20)
GREEDY_USAGE = Usage(input_tokens=4_000, output_tokens=6_000)
"""Of a call of a job that is tight in tokens or money: near enough to its worst case (some 6,500 to 11,100, and 8,192)."""
TIGHT_USAGE = Usage(input_tokens=36_500, output_tokens=47_500)
"""Such a job's budget. Half is kept for the review, which has twelve results to read and could cost more than that; beside the plan and one
step, the worst case of one more fits into the other half, beside the plan and two steps it does not."""


class Trouble(StrEnum):
    """What the provider does to the first try of a call."""

    BUSY = "429"
    OVERLOADED = "529"
    GARBAGE = "garbage"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step: its specialist, what it waits for, its turns."""

    id: str
    specialist: str
    after: tuple[str, ...] = ()
    turns: int = 1


@dataclass(frozen=True, slots=True, order=True)
class CallKey:
    """What a model call was for. `handoff`: the handoff's id; `turn`: from 1, replies only."""

    job: str
    handoff: str
    turn: int


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job. `name`: unique within the run, part of every text of the job, so that the server knows whose call it answers."""

    name: str
    shape: Shape
    steps: tuple[PlannedStep, ...]
    seed: int
    trouble_share: float = TROUBLE_SHARE

    @property
    def request(self) -> str:
        return f"chaos {self.name}"

    @property
    def is_tight(self) -> bool:
        """It wants more than it may spend."""
        return self.shape in TIGHT

    @property
    def max_turns(self) -> int:
        return TIGHT_CALLS if self.shape is Shape.TIGHT else ROOMY_TURNS

    @property
    def max_tokens(self) -> int | None:
        return TIGHT_USAGE.input_tokens + TIGHT_USAGE.output_tokens if self.shape is Shape.TIGHT_TOKENS else None

    @property
    def max_microusd(self) -> int | None:
        return price_of(TIGHT_USAGE, TIGHT_MODEL) if self.shape is Shape.TIGHT_MONEY else None

    @property
    def most_calls(self) -> int:
        """That its budget lets through when nothing goes wrong."""
        return TIGHT_CALLS if self.is_tight else ROOMY_TURNS

    @property
    def model(self) -> str | None:
        """Of all its agents; None: each has its own."""
        return TIGHT_MODEL if self.shape is Shape.TIGHT_MONEY else None

    @property
    def usage(self) -> Usage:
        """What each of its calls uses."""
        return GREEDY_USAGE if self.shape in (Shape.TIGHT_TOKENS, Shape.TIGHT_MONEY) else PLAIN_USAGE

    def needs(self) -> Counter[CallKey]:
        """The calls of a run in which nothing but the planned trouble goes wrong. A tight budget allows no more than it does."""
        turns = {f"{step.id}.1": step.turns for step in self.steps}
        turns["planner.1"] = 2 if self.shape is Shape.REPAIRED else 1
        turns["assessor.1"] = 1
        if self.shape is Shape.REVISED:
            turns |= {f"{self.steps[0].id}.2": 1, "assessor.2": 1}
        if self.shape is Shape.WRITTEN:
            turns["synthesizer.1"] = 1
        keys = [CallKey(self.name, handoff, turn) for handoff, count in turns.items() for turn in range(1, count + 1)]
        return Counter({key: self.tries(key) for key in keys})

    def tries(self, key: CallKey) -> int:
        """How often this call is made before it is answered."""
        return 1 + (self.trouble(key) is not None)

    def trouble(self, key: CallKey) -> Trouble | None:
        """What happens to the first try of this call. One trouble in each handoff: its specialist's turns leave no room for more."""
        earlier = (self._drawn(replace(key, turn=turn)) for turn in range(1, key.turn))
        return self._drawn(key) if not any(earlier) else None

    def _drawn(self, key: CallKey) -> Trouble | None:
        dice = random.Random(f"{self.seed} {key.job} {key.handoff} {key.turn}")  # noqa: S311 - a seed is the point
        return dice.choice(list(Trouble)) if not self.is_tight and dice.random() < self.trouble_share else None

    def takes_s(self, key: CallKey) -> float:
        """How long the server takes for this call: long enough for kills to find calls in the air."""
        if self.shape is Shape.CANCELLED and not key.handoff.startswith("planner"):
            return UNTIL_CANCELLED_S
        return random.Random(f"{self.seed} {key.job} {key.handoff} {key.turn} s").choice((0.02, 0.2, 0.5, 0.9))  # noqa: S311


def jobs_of(seed: int, count: int, first: int = 0) -> list[PlannedJob]:
    """`count` jobs, every shape in turn, from the one with this number on."""
    shapes = [shape for shape in Shape if shape is not Shape.CANCELLED]
    random.Random(f"{seed} shapes").shuffle(shapes)  # noqa: S311
    return [_job(seed, number, shapes[number % len(shapes)]) for number in range(first, first + count)]


def _job(seed: int, number: int, shape: Shape) -> PlannedJob:
    dice = random.Random(f"{seed} {number}")  # noqa: S311

    def step(name: str, *after: str, turns: int = 1) -> PlannedStep:
        return PlannedStep(name, dice.choice(SPECIALISTS), after, turns)

    steps: tuple[PlannedStep, ...]
    match shape:
        case Shape.DIAMOND:
            steps = (step("a"), step("b", "a"), step("c", "a", turns=2), step("d", "b", "c"))
        case Shape.TOOLS:
            steps = (step("a", turns=3), step("b", turns=3))
        case Shape.TIGHT:
            steps = tuple(step(name) for name in TIGHT_STEPS)
        case Shape.TIGHT_TOKENS | Shape.TIGHT_MONEY:  # one specialist, whose worst case is known
            steps = tuple(PlannedStep(name, TIGHT_SPECIALIST) for name in TIGHT_STEPS)
        case Shape.WRITTEN:
            steps = (step("a"), step("b"))
        case _:
            steps = (step("a"), step("b"), step("c"))
    return PlannedJob(f"{seed}-{number}", shape, steps, seed)


def price_of(usage: Usage, model: str) -> int:
    """In micro-dollars, by the same list as the system's."""
    price = Prices().cost_microusd(usage, model)
    assert price is not None, f"{model} has no price"
    return price
