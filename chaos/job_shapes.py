"""Shapes of the jobs of a run, and their possible modes. Pure."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from handoff_queue.shared.types.job_options import ApprovalOf, Mode


class Shape(StrEnum):
    """Shape of a job."""

    PARALLEL = "parallel"
    """Three steps at once."""
    DIAMOND = "diamond"
    """One step, then two, then one."""
    TOOLS = "tools"
    """Two steps of three turns, with a tool between."""
    REVISED = "revised"
    """A step is sent back once."""
    REPAIRED = "repaired"
    """The first plan cannot be read."""
    WRITTEN = "written"
    """A model writes the answer from two results."""
    TIGHT = "tight"
    """Twelve steps at once on a budget of four calls."""
    TIGHT_TOKENS = "tight in tokens"
    """A budget of tokens that the spent tokens and the upper bound of a third step's call
    exceed.
    """
    TIGHT_MONEY = "tight in money"
    """A tight budget of money."""
    CANCELLED = "cancelled"
    """Three steps at once, then its user types `handoff cancel`. No seed draws it."""
    ALONE = "alone"
    """The whole request is one step of one specialist."""
    REPEATED = "repeated"
    """A step for each of several lines, then a step with all of their results."""
    JOINED = "joined"
    """Two of three results suffice for the next step; the third is late, and is a team in half
    of the jobs.
    """
    TEAMS = "teams"
    """A step is a child job. In half of the jobs a step of that child is a child job, too."""
    TIGHT_TREE = "tight tree"
    """Two child jobs of twelve steps each, on a budget of ten calls for all three jobs."""
    CALLED_OFF = "called off"
    """The user cancels the job while a child job runs."""
    NEEDY = "needy"
    """A step asks for something, and the planner answers it."""
    FAILING = "failing"
    """A step fails once; or three times, and another specialist does it."""
    DISPUTED = "disputed"
    """Two steps contradict each other, and the judge decides."""
    HELPED = "helped"
    """A step asks for something, and the planner adds a step that finds it out."""
    OVERRULED = "overruled"
    """The assessor repeats a point that a step does not correct, and the judge decides for the
    step.
    """
    UPHELD = "upheld"
    """The assessor repeats a point, and the judge decides for it: the step runs once
    more.
    """
    CHECKED = "checked"
    """A specialist checks the facts of the answer, and passes them."""
    VETOED = "vetoed"
    """The check of the facts rejects the first answer, and passes the second."""
    REJECTED_PLAN = "plan rejected"
    """The user rejects the first plan, and approves the next one."""
    REJECTED_RESEARCH = "research rejected"
    """The user rejects the results of the steps once."""
    REJECTED_ANSWER = "answer rejected"
    """The user rejects the answer once."""
    APPROVED = "approved"
    """The job waits for its user's approval of its plan, and of its answer."""
    FOLLOWED = "followed"
    """After its end the user submits another job that follows it."""
    ADDED = "added"
    """The replanner adds a step."""
    CHANGED = "changed"
    """The replanner changes one step and drops another."""
    SWITCHED = "switched"
    """Two steps of three turns, whose specialist has two models. One model turns calls away."""
    BATCHED = "batched"
    """Two steps of two turns, and a step after them. All calls of the job go into batches."""
    EXTERNAL = "external"
    """A step of three turns that the Claude Agent SDK runs, and a step after it. It needs the extra
    `agent-sdk`.
    """
    SHORTENED = "shortened"
    """A step reads a long document. The provider clears the parts that it has read, and writes a
    summary. Another step follows.
    """
    REMEMBERED = "remembered"
    """A step writes a note. After its end the user submits a job that needs the same fact."""
    RECALLED = "recalled"
    """One specialist finds the note of an earlier job. It is only drawn after that job."""
    FORKED = "forked"
    """Two steps, then one. After its end the user forks the job from the last step."""
    FORK = "fork"
    """The last step of an ended job, with another task. It is only drawn after that job."""


CHORDS = (
    Shape.PARALLEL,
    Shape.DIAMOND,
    Shape.TOOLS,
    Shape.REVISED,
    Shape.REPAIRED,
    Shape.WRITTEN,
    Shape.TIGHT,
    Shape.TIGHT_TOKENS,
    Shape.TIGHT_MONEY,
)
"""Shapes that plain chords support as well: teams without replanning. Only the control uses
this list.
"""
TIGHT = (Shape.TIGHT, Shape.TIGHT_TOKENS, Shape.TIGHT_MONEY)
REJECTED = {
    Shape.REJECTED_PLAN: ApprovalOf.PLAN,
    Shape.REJECTED_RESEARCH: ApprovalOf.RESEARCH,
    Shape.REJECTED_ANSWER: ApprovalOf.ANSWER,
}
"""Question that a user rejects once."""
FACT_CHECKED = (Shape.CHECKED, Shape.VETOED)
QUARRELS = (Shape.OVERRULED, Shape.UPHELD)
PLANNED = (Mode.TEAM, Mode.ADAPTIVE, Mode.AUTO)
"""Modes in which a planner makes the plan (`auto`: where a team gets the job)."""
_ANY = (*PLANNED, Mode.PIPELINE)
MODES: dict[Shape, tuple[Mode, ...]] = {
    Shape.PARALLEL: _ANY,
    Shape.DIAMOND: _ANY,
    Shape.TOOLS: _ANY,
    Shape.REVISED: _ANY,
    Shape.REPAIRED: PLANNED,
    Shape.WRITTEN: _ANY,
    **dict.fromkeys((*TIGHT, Shape.TIGHT_TREE, Shape.CANCELLED), (Mode.TEAM,)),
    Shape.ALONE: (Mode.SINGLE, Mode.AUTO),
    Shape.REPEATED: (Mode.PIPELINE,),
    Shape.JOINED: _ANY,
    Shape.TEAMS: _ANY,
    Shape.CALLED_OFF: _ANY,
    Shape.NEEDY: _ANY,
    Shape.FAILING: _ANY,
    Shape.DISPUTED: _ANY,
    Shape.HELPED: _ANY,
    **dict.fromkeys(QUARRELS, _ANY),
    Shape.REJECTED_PLAN: PLANNED,
    **dict.fromkeys(
        (*FACT_CHECKED, Shape.REJECTED_RESEARCH, Shape.REJECTED_ANSWER, Shape.APPROVED),
        (*_ANY, Mode.SINGLE),
    ),
    Shape.FOLLOWED: _ANY,
    Shape.ADDED: (Mode.ADAPTIVE,),
    Shape.CHANGED: (Mode.ADAPTIVE,),
    Shape.SWITCHED: _ANY,
    Shape.BATCHED: _ANY,
    Shape.EXTERNAL: _ANY,
    Shape.SHORTENED: _ANY,
    Shape.REMEMBERED: _ANY,
    Shape.RECALLED: (Mode.SINGLE,),
    Shape.FORKED: _ANY,
    Shape.FORK: (Mode.PIPELINE,),
}
"""Possible modes of each shape. Calls of tight jobs are counted one by one, so their plans are
never replanned.
"""


FEATURES = (
    Shape.SWITCHED,
    Shape.BATCHED,
    Shape.EXTERNAL,
    Shape.SHORTENED,
    Shape.REMEMBERED,
    Shape.FORKED,
)
"""Shapes with several models, batches, the Claude Agent SDK, edits by the provider, notes and
forks. Few jobs of other runs have them.
"""
NOT_DRAWN = (Shape.CANCELLED, Shape.RECALLED, Shape.FORK)
"""Shapes of jobs that a run submits for another reason."""


def list_shapes(modes: Collection[Mode]) -> list[Shape]:
    """Return the shapes that a seed draws from for these modes."""
    shapes: list[Shape] = []
    for shape in Shape:
        if shape not in NOT_DRAWN and not {*modes}.isdisjoint(MODES[shape]):
            shapes.append(shape)
    return shapes
