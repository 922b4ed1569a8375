"""How a job is supervised."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """Who does a job, and who decides that."""

    AUTO = "auto"
    """One cheap call decides between one specialist and a team."""
    SINGLE = "single"
    """One specialist with its tools: no planner, no review, no synthesis."""
    PIPELINE = "pipeline"
    """The steps of a workflow file: no planner."""
    TEAM = "team"
    """A planner makes a DAG of steps, which is run as it is."""
    ADAPTIVE = "adaptive"
    """A team whose plan is looked at again whenever results come in: steps are added, changed or dropped."""
