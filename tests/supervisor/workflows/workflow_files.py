"""Helpers that write workflow files and their items."""

from __future__ import annotations

from pathlib import Path

from handoff_queue.supervisor.workflows import Items, Workflow, read_workflow
from handoff_queue.supervisor.workflows.library import BUILT_IN


def write_workflow(folder: Path, steps: str, head: str = "description: A test.\n") -> Path:
    """Write a workflow file with these steps, one step per line, without dashes."""
    path = folder / "test.yaml"
    listed = "".join(f"  - {{{line.strip()}}}\n" for line in steps.strip().splitlines())
    path.write_text(f"{head}steps:\n{listed}", encoding="utf-8")
    return path


UNREVIEWED = "description: A test.\nreview: false\n"
ROW_STEP = "id: look, specialist: researcher, for_each: rows, task: 'Look at {name}.'"
"""Step that runs once per row."""


def numbered_rows(count: int) -> Items:
    return Items(rows=tuple({"name": f"number {n}"} for n in range(count)))


def make_workflow(folder: Path, steps: str, head: str = "description: A test.\n") -> Workflow:
    return read_workflow(str(write_workflow(folder, steps, head)))


def read_built_in_workflows() -> list[Workflow]:
    """Return the built-in workflows, sorted by name."""
    return [read_workflow(path.stem) for path in sorted(BUILT_IN.glob("*.yaml"))]
